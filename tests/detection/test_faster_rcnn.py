"""Faster R-CNN: what is ours around torchvision's model, and the whole where torchvision can be imported."""

import pickle
import sys

import pytest
import torch
from torch import nn

from mule.core.errors import DetectorError
from mule.detection.cards import COCO_CLASSES, OTHER_OBJECT
from mule.detection.detections import PERSON
from mule.detection.faster_rcnn import FasterRcnnDetector, load_faster_rcnn


class Saying(nn.Module):
    """Stands for torchvision's model: says the same of every image and remembers what it was shown."""

    def __init__(self, boxes, labels, scores):
        super().__init__()
        self.answer = {
            "boxes": torch.tensor(boxes, dtype=torch.float32).reshape(-1, 4),
            "labels": torch.tensor(labels, dtype=torch.int64),
            "scores": torch.tensor(scores, dtype=torch.float32),
        }
        self.shown: list[torch.Tensor] = []

    def forward(self, images):
        self.shown += images
        return [self.answer for _ in images]


def torchvision_works() -> bool:
    try:
        import torchvision.models.detection  # noqa: F401  # pyright: ignore[reportMissingImports]
    except (ImportError, RuntimeError):
        return False
    return True


def test_images_in_which_nothing_is_found_are_ordinary():
    found = FasterRcnnDetector(Saying([], [], []))(torch.zeros(2, 3, 8, 9))
    assert (len(found), found.num_images) == (0, 2)
    assert FasterRcnnDetector(Saying([], [], []))(torch.zeros(0, 3, 8, 9)).num_images == 0


def test_category_ids_become_class_indices_and_weak_or_outside_boxes_go():
    model = Saying(
        [[0, 0, 4, 4], [2, 2, 30, 6], [1, 1, 2, 2], [0, 0, 3, 3], [40, 1, 44, 2]],
        [1, 44, 1, 12, 1],
        [0.9, 0.5, 0.05, 0.4, 0.9],
    )
    found = FasterRcnnDetector(model)(torch.zeros(1, 3, 8, 10))
    assert found.class_index.tolist() == [PERSON, COCO_CLASSES.index("bottle"), OTHER_OBJECT]
    assert found.boxes_xyxy_px.tolist() == [[0, 0, 4, 4], [2, 2, 10, 6], [0, 0, 3, 3]]


def test_the_model_is_shown_red_green_blue_from_0_to_1():
    model = Saying([], [], [])
    image = torch.tensor([51, 102, 255], dtype=torch.uint8).expand(1, 2, 2, 3).permute(0, 3, 1, 2)
    FasterRcnnDetector(model)(image)
    FasterRcnnDetector(model)(image.float() / 255)
    for shown in model.shown:
        torch.testing.assert_close(shown[:, 0, 0], torch.tensor([0.2, 0.4, 1.0]))


def test_without_torchvision_the_extra_is_named(tmp_path, monkeypatch):
    torch.save({"weight": torch.zeros(1)}, tmp_path / "some.pth")
    monkeypatch.setitem(sys.modules, "torchvision.models.detection", None)
    monkeypatch.setitem(sys.modules, "torchvision", None)
    with pytest.raises(DetectorError, match=r"mule-actions\[torchvision\]"):
        load_faster_rcnn(tmp_path / "some.pth")


class RunsCode:
    def __reduce__(self):
        return exec, ("raise SystemExit('the file ran code')",)


def test_files_that_are_missing_cut_or_want_to_run_code_are_refused_by_name(tmp_path):
    with pytest.raises(DetectorError, match=r"none\.pth: there is no such"):
        load_faster_rcnn(tmp_path / "none.pth")
    torch.save({"weight": torch.zeros(1000)}, tmp_path / "whole.pth")
    (tmp_path / "half.pth").write_bytes((tmp_path / "whole.pth").read_bytes()[:1000])
    (tmp_path / "code.pth").write_bytes(pickle.dumps(RunsCode(), protocol=2))
    (tmp_path / "text.pth").write_text("hello")
    (tmp_path / "empty.pth").write_bytes(b"")
    for name in ("half", "code", "text", "empty"):
        with pytest.raises(
            DetectorError, match=rf"{name}\.pth \(\d+ bytes\): not a complete file of tensors"
        ):
            load_faster_rcnn(tmp_path / f"{name}.pth")
    torch.save([1, 2], tmp_path / "list.pth")
    with pytest.raises(DetectorError, match=r"list\.pth: must hold a state dict"):
        load_faster_rcnn(tmp_path / "list.pth")


@pytest.mark.slow
@pytest.mark.skipif(not torchvision_works(), reason="needs torchvision built for this torch")
def test_weights_saved_by_torchvision_load_and_others_are_refused(tmp_path):
    from torchvision.models.detection import fasterrcnn_resnet50_fpn  # pyright: ignore[reportMissingImports]

    reference = fasterrcnn_resnet50_fpn(weights=None, weights_backbone=None)
    path = tmp_path / "resnet50.pth"
    torch.save(reference.state_dict(), path)
    found = load_faster_rcnn(path)(torch.zeros(1, 3, 32, 32))
    assert found.num_images == 1
