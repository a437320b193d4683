"""PicoDet: what the file says is looked at before it is believed. The networks are made here, and run by OpenVINO."""

import numpy as np
import pytest
import torch

from mule.core.compiling import compiled_for_cpu, require_openvino
from mule.core.errors import DetectorError
from mule.detection import picodet
from mule.detection.picodet import PicoDetector

SIDE = 64
FRAME = torch.zeros(1, 3, SIDE, SIDE, dtype=torch.uint8)
GOOD = [[0, 0.9, 8, 8, 40, 60], [1, 0.05, 1, 1, 9, 9], [-1, 0, 0, 0, 0, 0]]


def detector(folder, monkeypatch, rows=GOOD, *, sides=(1, 3, SIDE, SIDE), scale=(1, 2)):
    """A network that says the same of every frame."""
    require_openvino()
    from openvino import Model, PartialShape
    from openvino import opset13 as ops

    image = ops.parameter(PartialShape(list(sides)), np.float32, "image")
    factor = ops.parameter(PartialShape(list(scale)), np.float32, "scale_factor")
    said = ops.constant(np.array(rows, np.float32))
    for node, name in ((image, "image"), (factor, "scale_factor")):
        node.output(0).get_tensor().set_names({name})
    graph = Model([said.output(0)], [image, factor], "net")  # pyright: ignore - its own stubs disagree about it
    monkeypatch.setattr(picodet, "compiled_for_cpu", lambda _, threads: compiled_for_cpu(graph, threads))
    for suffix in (".pdmodel", ".pdiparams"):
        (folder / f"net{suffix}").write_bytes(b"see above")
    return PicoDetector(folder / "net.pdmodel", actor_score=0.5, threads=1)


def test_boxes_above_the_least_score_are_reported(tmp_path, monkeypatch):
    found = detector(tmp_path, monkeypatch)(FRAME)
    assert found.boxes_xyxy_px.tolist() == [[8, 8, 40, 60]]
    assert found.class_index.tolist() == [0]


@pytest.mark.parametrize(
    "sides", [(1, 3, -1, SIDE), (1, 3, SIDE, 100_000), (1, 4, SIDE, SIDE), (1, 3, SIDE)], ids=str
)
def test_an_input_of_other_or_unlimited_size_is_refused_by_name(tmp_path, monkeypatch, sides):
    with pytest.raises(DetectorError, match=r"net\.pdmodel: a PicoDet file must take an image"):
        detector(tmp_path, monkeypatch, sides=sides)


@pytest.mark.parametrize(
    "rows",
    [
        [[80, 0.9, 8, 8, 40, 60]],
        [[-1, 0.9, 8, 8, 40, 60]],
        [[0, 1.5, 8, 8, 40, 60]],
        [[0, 0.9, float("nan"), 8, 40, 60]],
        [[0, 0.9, 8, 8, 40]],
    ],
    ids=str,
)
def test_boxes_that_cannot_be_are_refused_by_name(tmp_path, monkeypatch, rows):
    with pytest.raises(DetectorError, match=r"net\.pdmodel: "):
        detector(tmp_path, monkeypatch, rows)(FRAME)


def test_a_network_that_fails_when_it_runs_ends_in_one_sentence(tmp_path, monkeypatch):
    def fails(_):
        raise RuntimeError("the shape is wrong\nat line 7")

    found = detector(tmp_path, monkeypatch)
    monkeypatch.setattr(found, "_compiled", fails)
    with pytest.raises(
        DetectorError, match=r"net\.pdmodel: must run on a frame; the shape is wrong at line 7"
    ):
        found(FRAME)


@pytest.mark.parametrize("missing", [".pdmodel", ".pdiparams"])
def test_a_missing_part_is_named(tmp_path, missing):
    for suffix in {".pdmodel", ".pdiparams"} - {missing}:
        (tmp_path / f"net{suffix}").write_bytes(b"")
    with pytest.raises(DetectorError, match=rf"net\{missing}: there is no such detector file"):
        PicoDetector(tmp_path / "net.pdmodel", actor_score=0.5)
