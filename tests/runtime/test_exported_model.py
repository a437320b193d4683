"""Exported models against the ones on torch they were made of: any number of clips, actors and objects."""

import json
import sys
from dataclasses import replace
from importlib.util import find_spec

import numpy as np
import pytest
import torch
from torch import nn

from mule.core.errors import RangeError, ShapeError, WeightsError
from mule.features.backbones.slowfast import SlowFast
from mule.features.pooling import FeatureMaps, RoiSampling, context_map
from mule.model import MuleModel, SceneBoxes
from mule.relations.maps import RelationSettings
from mule.runtime import exported
from mule.runtime.engines import require_runtime
from mule.runtime.exported import export_model, open_exported, read_export_card, running_model
from mule.runtime.flat_head import FlatHead
from mule.runtime.graphs import deciding, digest_of, graphs_of
from mule.runtime.openvino import ContextMaps, RuntimeMissing
from mule.runtime.running import SCENES, ParityError, share_of_largest
from mule.systems.catalogue import find_system
from mule.systems.design import Sizes

STRIDE, CHANNELS, SIZE, MAP = 8, 6, (2, 40, 56), (5, 7)
TARGETS = [
    pytest.param(
        name, marks=pytest.mark.skipif(find_spec(package) is None, reason=f"needs mule-actions[{name}]")
    )
    for name, package in (("onnx", "onnxruntime"), ("openvino", "openvino"))
]


class Patches(nn.Module):
    """A backbone of one layer."""

    def __init__(self):
        super().__init__()
        self.conv = nn.Conv3d(3, CHANNELS, (1, STRIDE, STRIDE), stride=(1, STRIDE, STRIDE))

    def forward(self, clips):
        return FeatureMaps((self.conv(clips).relu(),), STRIDE)


def sizes(sampling=RoiSampling(bins=3), reduced=None):  # noqa: B008 - frozen
    relations = RelationSettings(width=8, padding=1, is_downsampled=False)
    return replace(
        Sizes(CHANNELS, 3), reduced=reduced, relations=relations, width=8, dropout=0.0, sampling=sampling
    )


def made(system="mule", **wanted):
    """A model none of whose layers is trivial, not even the null object, which starts at zero."""
    torch.manual_seed(0)
    model = MuleModel(Patches(), find_system(system).build(sizes(**wanted))).eval()
    for parameter in model.get_submodule("decide").parameters():
        if parameter.ndim == 1:
            nn.init.normal_(parameter, 0.5, 0.3)
    return model


def scene_of(num_clips, num_actors, num_objects, seed=0):
    """Boxes in chosen clips in no order; of several clips some have no objects."""
    generator = torch.Generator().manual_seed(seed)

    def boxes(count):
        corners = torch.rand(count, 2, 2, generator=generator).sort(dim=1).values
        return (corners * torch.tensor([SIZE[2], SIZE[1]])).flatten(1)

    def clips(count, most):
        return torch.randint(0, most, (count,), generator=generator)

    return SceneBoxes(
        boxes(num_actors),
        clips(num_actors, num_clips),
        boxes(num_objects),
        clips(num_objects, max(1, num_clips - 1)),
    )


def parts(boxes):
    return boxes.actors_xyxy_px, boxes.actor_clip_index, boxes.objects_xyxy_px, boxes.object_clip_index


def clips_of(count, seed=1):
    return torch.randn(count, 3, *SIZE, generator=torch.Generator().manual_seed(seed))


@pytest.mark.parametrize("system", ["mule", "mule-literal", "acar", "slowfast"])
@pytest.mark.parametrize(
    "sampling", [RoiSampling(), RoiSampling(bins=2, aligned=True), RoiSampling(bins=3, samples=2)]
)
@torch.inference_mode()
def test_the_flat_form_is_the_model(system, sampling):
    model = made(system, sampling=sampling)
    head = FlatHead(deciding(model), stride=STRIDE, map_size=MAP)
    for numbers in (*SCENES, (4, 9, 1)):
        boxes, maps = scene_of(*numbers), model.backbone(clips_of(numbers[0]))
        wanted = model.decide([maps], boxes)
        got = head(context_map(maps), *parts(boxes))
        for each, other in zip(
            got,
            (wanted.outputs, wanted.features, wanted.evidence.positive, wanted.evidence.negative),
            strict=True,
        ):
            torch.testing.assert_close(each, other, rtol=1e-5, atol=1e-5)


@pytest.mark.slow
@torch.inference_mode()
def test_a_slowfast_inside_another_module_is_prepared_too():
    class Within(nn.Module):
        def __init__(self):
            super().__init__()
            self.backbone = SlowFast().eval()

        def forward(self, clips):
            return FeatureMaps((context_map(self.backbone(clips)).unsqueeze(2),), self.backbone.stride)

    model, clips = Within(), torch.randn(1, 3, 32, 32, 32)
    wanted = context_map(model(clips))
    torch.testing.assert_close(ContextMaps(model, None, num_frames=32)(clips), wanted, rtol=1e-4, atol=1e-5)


@pytest.fixture(scope="module", params=TARGETS)
def folder(request, tmp_path_factory):
    """The grid, whose graph has all that the factored one has and pairs, with a reduction before it."""
    out = tmp_path_factory.mktemp("exported") / "new" / request.param
    export_model(made("mule-literal", reduced=4), SIZE, request.param, out, about={"name": "test"})
    return out


@torch.inference_mode()
def test_an_exported_model_says_what_the_model_says(folder):
    model, running = made("mule-literal", reduced=4), open_exported(folder, num_threads=1)
    for numbers in ((1, 1, 0), (1, 5, 9), (5, 12, 3), (2, 0, 3)):
        clips, boxes = clips_of(numbers[0]), scene_of(*numbers, seed=7)
        wanted = model([clips], boxes)
        got = running.decide(running.context(clips), boxes)
        for name in ("outputs", "features", "context"):
            torch.testing.assert_close(getattr(got, name), getattr(wanted, name), rtol=1e-4, atol=1e-5)
        torch.testing.assert_close(got.evidence.positive, wanted.evidence.positive, rtol=1e-4, atol=1e-5)
        torch.testing.assert_close(got.evidence.negative, wanted.evidence.negative, rtol=1e-4, atol=1e-5)


def test_the_card_tells_what_is_there(folder):
    card = read_export_card(folder)
    assert (card.clip_size, card.map_size, card.stride) == (SIZE, MAP, STRIDE)
    assert card.model_sha256 == digest_of(made("mule-literal", reduced=4))
    assert [(each.num_clips, each.num_actors, each.num_objects) for each in card.parity.scenes] == [*SCENES]
    assert {(1, 1, 0), (2, 3, 0)} <= set(SCENES)
    assert 0 < card.parity.largest < 1e-4
    assert {path.name for path in folder.iterdir()} == {*card.files, "card.json"}
    assert [path.name for path in folder.parent.iterdir()] == [folder.name]


def test_the_files_run_without_us(folder):
    card = json.loads((folder / "card.json").read_text())
    if card["target"] != "onnx":
        pytest.skip("the form is OpenVINO's own")
    import onnxruntime

    see, decide = (onnxruntime.InferenceSession(folder / f"{name}.onnx") for name in ("see", "decide"))
    (context,) = see.run(None, {"clips": clips_of(1).numpy()})
    names = [each.name for each in decide.get_inputs()]
    assert names == list(card["graphs"]["decide"]["inputs"])
    box, first = np.array([[0, 0, 20, 30]], np.float32), np.zeros(1, np.int64)
    found = decide.run(None, dict(zip(names, (context, box, first, box[:0], first[:0]), strict=True)))
    assert [torch.as_tensor(each).shape for each in found] == [(1, 6), (1, 16), (1, 3), (1, 3)]


def test_a_damaged_file_is_refused(folder, tmp_path):
    import shutil

    copy = shutil.copytree(folder, tmp_path / "copy")
    file = next(path for path in sorted(copy.iterdir()) if path.name.startswith("see."))
    file.write_bytes(file.read_bytes()[:-9])
    with pytest.raises(WeightsError, match=r"checksum is in card\.json"):
        open_exported(copy)
    with pytest.raises(WeightsError, match="must be the card of an exported model"):
        open_exported(tmp_path)


@pytest.mark.parametrize("target", TARGETS)
def test_what_differs_too_much_is_refused_and_nothing_is_left(target, tmp_path):
    with pytest.raises(
        ParityError, match=r"must stay within 1e-15 of torch; they differ by .*Nothing was written"
    ):
        export_model(made(), SIZE, target, tmp_path / "a" / "b", limit=1e-15)
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_is_there_is_left_alone(tmp_path):
    with pytest.raises(WeightsError, match="must not exist yet"):
        export_model(made(), SIZE, "onnx", tmp_path)


def test_what_cannot_be_exported_is_said():
    with pytest.raises(RangeError, match=r"got AiaRelations\. Use --runtime torch"):
        graphs_of(made("aia-serial"), SIZE)
    with pytest.raises(RangeError, match="this one is AfacModel"):
        graphs_of(made("afac"), SIZE)
    with pytest.raises(RangeError, match="evaluation mode"):
        graphs_of(made().train(), SIZE)


@pytest.mark.parametrize("target", TARGETS[:1])
def test_graphs_are_kept_found_again_and_made_anew_when_they_must(target, tmp_path, monkeypatch):
    made_for = []

    def counted(model, size, *rest, **more):
        made_for.append(size)
        return export_model(model, size, *rest, **more)

    monkeypatch.setattr(exported, "export_model", counted)
    model, clips = made("slowfast"), clips_of(1)
    maps, _ = (
        running_model(model, target, kept_in=tmp_path, num_threads=1).backbone(clips) for _ in range(2)
    )
    assert made_for == [SIZE]
    torch.testing.assert_close(
        maps.maps[0][:, :, 0], context_map(model.backbone(clips)), rtol=1e-5, atol=1e-5
    )
    (kept,) = tmp_path.iterdir()
    (kept / "decide.onnx").write_bytes(b"")
    running_model(model, target, kept_in=tmp_path).backbone(clips)
    assert made_for == [SIZE] * 2
    with torch.no_grad():
        model.get_parameter("backbone.conv.bias").add_(1)
    said: list[str] = []
    other = running_model(model, target, kept_in=tmp_path, noted=said.append)
    assert made_for == [SIZE] * 2  # nothing before there is a clip
    assert not said
    other.backbone(clips)
    assert said == ["exporting the model to onnx for clips of 56 × 40 pixels; it is kept for the next time"]
    assert len(list(tmp_path.iterdir())) == 2
    with pytest.raises(ShapeError, match="maps that it made itself"):
        other.decide([FeatureMaps((maps.maps[0], maps.maps[0]), STRIDE)], scene_of(1, 1, 0))


def test_torch_stays_torch(tmp_path):
    model = made()
    assert running_model(model, "torch", kept_in=tmp_path) is model


@pytest.mark.parametrize(
    ("runtime", "package", "extra"), [("onnx", "onnxruntime", "onnx"), ("openvino", "openvino", "openvino")]
)
def test_a_missing_package_is_named_by_its_extra(runtime, package, extra, monkeypatch):
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(RuntimeMissing, match=rf"pip install 'mule-actions\[{extra}\]'"):
        require_runtime(runtime)


def test_without_the_exporters_package_the_message_names_the_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "onnx", None)
    with pytest.raises(RuntimeMissing, match=r"pip install 'mule-actions\[onnx\]'"):
        graphs_of(made(), SIZE)


def test_a_runtime_that_there_is_not():
    with pytest.raises(RangeError, match=r"one of torch, onnx, openvino, or a folder .* got 'tensorrt'"):
        require_runtime("tensorrt")


def test_no_share_is_small_where_a_number_is_none():
    wanted = torch.tensor([[1.0, -4.0]])
    assert share_of_largest(torch.tensor([[1.0, -3.0]]), wanted) == 0.25
    assert share_of_largest(torch.tensor([[1.0, torch.nan]]), wanted) == float("inf")
    assert share_of_largest(wanted[:0], wanted) == float("inf")
