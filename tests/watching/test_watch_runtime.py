"""Watching on another runtime, and exporting what is watched with: the same moments, clear refusals."""

import json
import sys
from importlib.util import find_spec

import pytest
import torch
import typer
from jaxtyping import config as shape_checks
from typer.testing import CliRunner

import mule
from mule.cli.export import export as export_command
from mule.cli.main import _Commands  # pyright: ignore[reportPrivateUsage] - exit codes are its work
from mule.cli.watch import watch_videos
from mule.watching.engine.key_times import Overlapped

TOLERANCE = 1e-3
"""Of every number that a moment tells, p-values among them; on a share of its size where that is above one."""
RUNTIMES = [
    pytest.param(
        name, marks=pytest.mark.skipif(find_spec(package) is None, reason=f"needs mule-actions[{name}]")
    )
    for name, package in (("onnx", "onnxruntime"), ("openvino", "openvino"))
]

app = typer.Typer(cls=_Commands)
app.command("watch")(watch_videos)
app.command()(export_command)


def mule_command(*arguments):
    return CliRunner().invoke(app, [*map(str, arguments)])


@pytest.fixture(scope="module", autouse=True)
def cache(tmp_path_factory):
    """Graphs are kept where nobody else looks."""
    with pytest.MonkeyPatch.context() as patch:
        folder = tmp_path_factory.mktemp("cache")
        patch.setenv("XDG_CACHE_HOME", str(folder))
        yield folder


@pytest.fixture(autouse=True)
def unchecked_shapes(monkeypatch):
    """The exporter has tensors where sizes are, which no check of types lets pass; outside tests there is none."""
    monkeypatch.setattr(shape_checks, "jaxtyping_disable", True)


@pytest.fixture(scope="module")
def on_torch(take, bundle):
    return list(mule.watch(take, model=bundle, runtime="torch"))


def leaves_of(value, place=""):
    """Every word and number of a moment, with its place."""
    if isinstance(value, dict):
        return [leaf for name, each in value.items() for leaf in leaves_of(each, f"{place}.{name}")]
    if isinstance(value, list | tuple):
        return [leaf for number, each in enumerate(value) for leaf in leaves_of(each, f"{place}[{number}]")]
    return [(place, value)]


@pytest.mark.parametrize("runtime", RUNTIMES)
def test_the_moments_are_those_of_torch(runtime, take, bundle, on_torch, cache):
    found = list(mule.watch(take, model=bundle, runtime=runtime))
    assert len(found) == len(on_torch) == 4
    assert any(moment.actors for moment in found)
    differs = False
    for got, wanted in zip(found, on_torch, strict=True):
        for (place, mine), (other, theirs) in zip(
            leaves_of(got.model_dump()), leaves_of(wanted.model_dump()), strict=True
        ):
            assert place == other
            differs |= mine != theirs
            if isinstance(theirs, float):
                assert mine == pytest.approx(theirs, rel=TOLERANCE, abs=TOLERANCE), place
            else:
                assert mine == theirs, place
    assert differs  # or it was torch that ran
    assert any(runtime in folder.name for folder in (cache / "mule" / "graphs").iterdir())


@pytest.mark.parametrize(
    ("package", "runtime", "message"),
    [
        (None, "tensorrt", "a runtime must be auto, one of torch, onnx, openvino"),
        ("onnxruntime", "onnx", "pip install 'mule-actions[onnx]'"),
        ("openvino", "openvino", "pip install 'mule-actions[openvino]'"),
    ],
)
def test_a_runtime_that_is_not_there_is_said_and_nothing_is_written(
    package, runtime, message, take, bundle_dir, tmp_path, monkeypatch
):
    if package is not None:
        monkeypatch.setitem(sys.modules, package, None)
    outcome = mule_command(
        "watch", take, "--model", bundle_dir, "--out", tmp_path / "r", "--runtime", runtime
    )
    assert outcome.exit_code == 2
    assert message in outcome.stderr
    assert not (tmp_path / "r").exists()


@pytest.mark.parametrize("target", RUNTIMES[:1])
def test_a_bundle_is_exported_with_its_parity_in_a_table(target, bundle_dir, tmp_path):
    out = tmp_path / "exported"
    outcome = mule_command("export", bundle_dir, "--to", target, "--out", out)
    assert outcome.exit_code == 0, outcome.output
    for words in (f"{target} against torch", "objects", "all within 0.001", "clips of 4 frames of 24 × 32"):
        assert words in outcome.stdout
    card = json.loads((out / "card.json").read_text())
    run = json.loads((bundle_dir / "card.json").read_text())
    assert card["about"]["classes"] == run["classes"]
    assert card["about"]["weights_sha256"] == run["weights_sha256"]
    again = mule_command("export", bundle_dir, "--to", target, "--out", out)
    assert (again.exit_code, "must not exist yet" in again.stderr) == (2, True)


def test_a_network_in_eight_bits_is_chosen_on_the_training_clips_and_watches(
    take, bundle_dir, tmp_path, on_torch
):
    pytest.importorskip("nncf", reason="needs NNCF: pip install 'mule-actions[openvino]'")
    out = tmp_path / "eight"
    outcome = mule_command("export", bundle_dir, "--to", "openvino", "--bits", "8", "--out", out)
    assert outcome.exit_code == 0, outcome.output
    assert "the likeliest action is the same for" in outcome.stdout
    card = json.loads((out / "card.json").read_text())
    assert (card["bits"], card["agreement"]["num_clips"] > 0) == (8, True)
    found = list(mule.watch(take, model=bundle_dir, runtime=str(out)))
    assert [len(each.actors) for each in found] == [len(each.actors) for each in on_torch]
    assert found != on_torch


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--to", "onnx", "--bits", "8"), "eight bits need openvino"),
        (("--to", "openvino", "--bits", "4"), "bits must be 8 or 32; got 4"),
        (("--to", "tflite"), "must be one of onnx, openvino; got 'tflite'"),
        (("--to", "onnx", "--size", "big"), "--size must be ROWSxCOLS"),
        (("--to", "onnx", "--size", "20x32"), "must be multiples of 8"),
        (("--to", "onnx", "--limit", "1e-15"), "Nothing was written"),
    ],
)
def test_an_export_that_cannot_be_is_exit_code_2_and_leaves_nothing(options, message, bundle_dir, tmp_path):
    outcome = mule_command("export", bundle_dir, "--out", tmp_path / "a" / "b", *options)
    assert outcome.exit_code == 2
    assert message in outcome.stderr
    assert list(tmp_path.iterdir()) == []


def test_what_is_made_ahead_computes_in_one_thread_and_the_taker_keeps_its_own():
    before = torch.get_num_threads()
    torch.set_num_threads(3)
    try:
        first = Overlapped(torch.get_num_threads() for _ in range(2))
        assert list(Overlapped((each, torch.get_num_threads()) for each in first)) == [(1, 1)] * 2
        assert torch.get_num_threads() == 3
    finally:
        torch.set_num_threads(before)
