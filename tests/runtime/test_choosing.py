"""Which runtime a model gets: the fastest that agrees with torch, once for each model and size; or exported graphs."""

import json
from dataclasses import replace
from importlib.util import find_spec

import pytest
import torch
from torch import nn

from mule.core.errors import RangeError, WeightsError
from mule.features.pooling import FeatureMaps, RoiSampling
from mule.model import MuleModel, SceneBoxes
from mule.relations.maps import RelationSettings
from mule.runtime import choosing, exported
from mule.runtime.choosing import FEWEST_CLIPS_TO_CHOOSE, Choice, model_on
from mule.runtime.eight_bits import ExampleClips
from mule.runtime.engines import RUNTIME_PACKAGES
from mule.runtime.exported import export_model, open_exported
from mule.runtime.openvino import RuntimeMissing
from mule.runtime.running import ParityError
from mule.systems.catalogue import find_system
from mule.systems.design import Sizes

SIZE, STRIDE, CHANNELS = (2, 40, 56), 8, 6
needs_openvino = pytest.mark.skipif(find_spec("openvino") is None, reason="needs mule-actions[openvino]")


class Patches(nn.Module):
    """A backbone of one layer."""

    def __init__(self):
        super().__init__()
        self.conv = nn.Conv3d(3, CHANNELS, (1, STRIDE, STRIDE), stride=(1, STRIDE, STRIDE))

    def forward(self, clips):
        return FeatureMaps((self.conv(clips).relu(),), STRIDE)


@pytest.fixture
def model():
    torch.manual_seed(0)
    relations = RelationSettings(width=8, padding=1, is_downsampled=False)
    sizes = replace(
        Sizes(CHANNELS, 3), relations=relations, width=8, dropout=0.0, sampling=RoiSampling(bins=3)
    )
    return MuleModel(Patches(), find_system("slowfast").build(sizes)).eval()


def clips_of(count=1, size=SIZE, seed=1):
    return torch.randn(count, 3, *size, generator=torch.Generator().manual_seed(seed))


def actors_of(count):
    first = torch.zeros(count, dtype=torch.int64)
    box = torch.tensor([[4.0, 4.0, 30.0, 36.0]])
    return SceneBoxes(box.repeat(count, 1), first, box[:0], first[:0])


@torch.inference_mode()
def require_same(model, running, *, size=SIZE):
    clips = clips_of(size=size)
    for count in (0, 1, 7):
        wanted, got = (each.decide([each.backbone(clips)], actors_of(count)) for each in (model, running))
        torch.testing.assert_close(got.outputs, wanted.outputs, rtol=1e-4, atol=1e-5)


@pytest.fixture
def timed(monkeypatch):
    """Seconds by runtime, and what was timed; a runtime without seconds fails in the way that is given instead."""
    seconds: dict[str, float | Exception] = {"torch": 3.0, "onnx": 2.0, "openvino": 1.0}
    asked: list[str] = []
    exports = choosing.running_model

    def running_model(model, runtime, **more):
        asked.append(runtime)
        return exports(model, "torch", **more)

    def seconds_per_clip(*_):
        found = seconds[asked[-1] if asked else "torch"]
        if isinstance(found, Exception):
            raise found
        return found

    monkeypatch.setattr(choosing, "running_model", running_model)
    monkeypatch.setattr(choosing, "seconds_per_clip", seconds_per_clip)
    monkeypatch.setattr(choosing, "require_runtime", lambda name: name)
    return seconds, asked


def test_few_clips_run_on_torch_and_nothing_is_exported(model, tmp_path, timed):
    said = []
    running = model_on(
        model, "auto", kept_in=tmp_path, num_clips=FEWEST_CLIPS_TO_CHOOSE - 1, noted=said.append
    )
    require_same(model, running)
    assert (timed[1], said, list(tmp_path.iterdir())) == ([], [], [])


@pytest.mark.parametrize("fastest", ["torch", "onnx", "openvino"])
def test_the_fastest_is_chosen_once_for_a_model_and_a_size(fastest, model, tmp_path, timed):
    seconds, asked = timed
    seconds[fastest] = 0.5
    said = []
    require_same(
        model, model_on(model, "auto", kept_in=tmp_path, num_clips=FEWEST_CLIPS_TO_CHOOSE, noted=said.append)
    )
    assert asked == ["onnx", "openvino", fastest]
    assert len(said) == 1
    assert said[0].startswith(f"runtime {fastest}")
    asked.clear()
    require_same(model, model_on(model, "auto", kept_in=tmp_path, num_clips=1, noted=said.append))
    assert (asked, len(said)) == ([fastest], 1)  # even a short video has what was chosen before
    require_same(model, model_on(model, "auto", kept_in=tmp_path), size=(2, 40, 64))
    assert len(list(tmp_path.iterdir())) == 2


def test_with_other_packages_it_is_chosen_again(model, tmp_path, timed):
    _, asked = timed
    require_same(model, model_on(model, "auto", kept_in=tmp_path))
    (path,) = tmp_path.iterdir()
    kept = json.loads(path.read_text())
    kept["made_by"]["openvino"] = "1999.1"
    path.write_text(json.dumps(kept))
    asked.clear()
    require_same(model, model_on(model, "auto", kept_in=tmp_path))
    assert asked == ["onnx", "openvino", "openvino"]
    path.write_text("damaged")
    asked.clear()
    require_same(model, model_on(model, "auto", kept_in=tmp_path))
    assert Choice.model_validate_json(path.read_bytes()).runtime == "openvino"


def test_what_is_missing_or_differs_from_torch_is_not_chosen_and_is_said(model, tmp_path, timed):
    seconds, _ = timed
    seconds["onnx"] = ParityError("results must stay within 0.001 of torch")
    seconds["openvino"] = RuntimeMissing("it needs OpenVINO: pip install 'x'. It could not be imported: no")
    said = []
    require_same(model, model_on(model, "auto", kept_in=tmp_path, noted=said.append))
    assert said == [
        "runtime torch: onnx cannot run it (results must stay within 0.001 of torch); it needs OpenVINO: pip install 'x'"
    ]


@pytest.mark.usefixtures("timed")
def test_a_cache_that_cannot_be_written_is_said_and_torch_runs(model, tmp_path):
    (tmp_path / "file").write_text("")
    said = []
    require_same(model, model_on(model, "auto", kept_in=tmp_path / "file" / "graphs", noted=said.append))
    assert len(said) == 2
    assert said[1].startswith("runtime torch, because the graphs of others cannot be kept")


def test_what_cannot_be_exported_runs_on_torch_and_is_said(tmp_path):
    torch.manual_seed(0)
    model = MuleModel(Patches(), find_system("afac").build(Sizes(CHANNELS, 3))).eval()
    said = []
    assert model_on(model, "auto", kept_in=tmp_path, noted=said.append) is model
    assert len(said) == 1
    assert said[0].startswith("runtime torch: only a network of pooling")


@pytest.mark.skipif(
    any(find_spec(package) is None for package in RUNTIME_PACKAGES.values()), reason="needs both runtimes"
)
def test_the_choice_is_made_of_measured_times(model, tmp_path):
    running = model_on(model, "auto", kept_in=tmp_path)
    require_same(model, running)
    (path,) = (each for each in tmp_path.iterdir() if each.suffix == ".json")
    choice = Choice.model_validate_json(path.read_bytes())
    assert set(choice.seconds) == {"torch", "onnx", "openvino"}
    assert choice.seconds[choice.runtime] == min(choice.seconds.values())
    assert model_on(running, "auto", kept_in=tmp_path) is running


@pytest.fixture
def graphs(model, tmp_path):
    export_model(model, SIZE, "onnx", tmp_path / "graphs")
    return tmp_path / "graphs"


def test_exported_graphs_run_for_clips_of_their_size_and_others_run_without_them(model, graphs, tmp_path):
    said = []
    running = model_on(model, str(graphs), kept_in=tmp_path / "kept", num_clips=1, noted=said.append)
    require_same(model, running)
    assert said == []
    require_same(model, running, size=(2, 40, 64))
    assert len(said) == 1
    assert "is for clips of 56 × 40 pixels; these are 64 × 40" in said[0]


def test_graphs_of_another_model_are_refused(model, graphs, tmp_path):
    with torch.no_grad():
        model.get_parameter("backbone.conv.bias").add_(1)
    with pytest.raises(WeightsError, match="must be exported from this model"):
        model_on(model, str(graphs), kept_in=tmp_path)
    with pytest.raises(RangeError, match="or a folder that `mule export` wrote; got 'nowhere'"):
        model_on(model, "nowhere", kept_in=tmp_path)


def examples_of(num_clips):
    boxes = torch.tensor([[0.0, 0.0, 56.0, 40.0], [8.0, 4.0, 30.0, 36.0]])
    made = [(clip, boxes) for clip in clips_of(2 * num_clips, seed=3).split(1)]
    return ExampleClips(made[::2], made[1::2])


@needs_openvino
def test_eight_bits_are_chosen_and_compared_on_clips_and_run(model, tmp_path, monkeypatch):
    pytest.importorskip("nncf", reason="needs NNCF: pip install 'mule-actions[openvino]'")
    out = tmp_path / "graphs"
    card = export_model(model, SIZE, "openvino", out, examples=examples_of(3))
    assert card.bits == 8
    assert card.agreement is not None
    assert (card.agreement.num_clips, card.agreement.num_actors) == (3, 6)
    assert 0 < card.agreement.probability_moved < 0.1
    assert 0.95 < card.agreement.least_cosine < 1
    clips, scene = clips_of(seed=9), actors_of(2)
    with torch.inference_mode():
        running = model_on(model, str(out), kept_in=tmp_path / "kept")
        wanted, got = (each.decide([each.backbone(clips)], scene).outputs for each in (model, running))
        opened = open_exported(out)
        assert torch.equal(got, opened.decide(opened.context(clips), scene).outputs)
    assert 0 < (got - wanted).abs().max() < 0.1 * wanted.abs().max()
    with pytest.raises(RangeError, match="eight bits need openvino"):
        export_model(model, SIZE, "onnx", tmp_path / "other", examples=examples_of(3))
    monkeypatch.setattr(exported, "LEAST_SAME_ACTION", 1.1)
    with pytest.raises(ParityError, match=r"must leave the likeliest action .*Nothing was written"):
        export_model(model, SIZE, "openvino", tmp_path / "other", examples=examples_of(3))
    assert not (tmp_path / "other").exists()
