"""The small detector: boxes come from where centres are, scale with the frame, and its file is what it says."""

import pytest
import torch
from torch import nn

from mule.core.errors import DetectorError, ShapeError
from mule.detection.centres import (
    CENTRES_STRIDE,
    CentreDetector,
    CentreNetwork,
    boxes_at,
    centre_detector_file,
    read_centre_detector,
)
from mule.detection.detector import Detector

NAMES = ("person", "ball", "box")


class Planted(nn.Module):
    """Says that boxes (class, x1, y1, x2, y2 in px of what it sees) are there, whatever it is shown."""

    def __init__(self, *boxes):
        super().__init__()
        self.boxes, self.seen = boxes, []

    def forward(self, pixels):
        self.seen.append(pixels)
        frames, _, rows, cols = pixels.shape
        heat = torch.full((frames, len(NAMES), rows // CENTRES_STRIDE, cols // CENTRES_STRIDE), -9.0)
        sides = torch.ones(frames, 4, rows // CENTRES_STRIDE, cols // CENTRES_STRIDE)
        for number, (kind, x1, y1, x2, y2) in enumerate(self.boxes):
            col, row = int((x1 + x2) / 2 / CENTRES_STRIDE), int((y1 + y2) / 2 / CENTRES_STRIDE)
            x, y = (col + 0.5) * CENTRES_STRIDE, (row + 0.5) * CENTRES_STRIDE
            heat[:, kind, row, col] = 4.0 - number
            sides[:, :, row, col] = torch.tensor([x - x1, y - y1, x2 - x, y2 - y])
        return heat, sides


def detector(network):
    return CentreDetector(network, class_names=NAMES, short_side_px=96, actor_score=0.4)


@pytest.mark.parametrize("scale", [1, 3])
def test_boxes_are_found_where_they_were_planted_in_pixels_of_any_frame(scale):
    planted = [(0, 20.0, 10.0, 44.0, 70.0), (1, 60.0, 80.0, 66.0, 86.0), (0, 90.0, 20.0, 140.0, 94.0)]
    found = detector(Planted(*planted))(torch.zeros(2, 3, 96 * scale, 128 * scale, dtype=torch.uint8))
    expected = torch.tensor([box[1:] for box in planted]) * scale
    expected[:, 2].clamp_(max=128 * scale)  # the last one reaches beyond the picture
    for image in range(2):
        of_image = found.of_image(image)
        torch.testing.assert_close(of_image.boxes_xyxy_px, expected)
        assert of_image.class_index.tolist() == [0, 1, 0]
        torch.testing.assert_close(of_image.scores, torch.tensor([4.0, 3.0, 2.0]).sigmoid())


def test_of_two_boxes_that_are_nearly_the_same_the_weaker_is_dropped():
    twice = Planted((0, 20.0, 10.0, 44.0, 70.0), (0, 20.0, 14.0, 44.0, 74.0), (2, 20.0, 14.0, 44.0, 74.0))
    found = detector(twice)(torch.zeros(1, 3, 96, 128, dtype=torch.uint8))
    assert found.class_index.tolist() == [0, 2]


def test_frames_of_any_size_reach_the_network_in_sides_it_can_halve():
    network = Planted((0, 20.0, 10.0, 44.0, 70.0))
    for size in ((96, 128), (101, 333), (480, 270), (7, 5)):
        found = detector(network)(torch.rand(1, 3, *size))
        assert network.seen[-1].shape[2] % 16 == network.seen[-1].shape[3] % 16 == 0
        assert (found.boxes_xyxy_px[:, 2:] <= torch.tensor([size[1], size[0]])).all()
    assert isinstance(detector(network), Detector)


def test_sides_told_at_a_place_are_counted_from_its_middle():
    boxes = boxes_at(torch.tensor([[1.0, 2.0, 3.0, 4.0]]), torch.tensor([2 * 10 + 3]), cols=10)
    assert boxes.tolist() == [[7.0 - 1.0, 5.0 - 2.0, 7.0 + 3.0, 5.0 + 4.0]]


def test_a_detector_comes_back_from_its_file(tmp_path):
    torch.manual_seed(0)
    network = CentreNetwork(len(NAMES)).eval()
    nn.init.constant_(network.heat.get_parameter("bias"), -1.0)
    file = centre_detector_file(network, class_names=NAMES, short_side_px=96, actor_score=0.35)
    assert len(file) < 1_000_000
    (tmp_path / "detector.safetensors").write_bytes(file)
    back = read_centre_detector(tmp_path / "detector.safetensors")
    assert (back.class_names, back.short_side_px, back.actor_score) == (NAMES, 96, 0.35)
    frames = torch.rand(1, 3, 96, 128, generator=torch.Generator().manual_seed(1))
    network.half().float()  # as precise as the file
    first, second = detector(network)(frames), back(frames)
    assert len(first) > 0
    torch.testing.assert_close(first.boxes_xyxy_px, second.boxes_xyxy_px)
    torch.testing.assert_close(first.scores, second.scores)


def test_what_is_no_detector_is_refused_by_name(tmp_path):
    path = tmp_path / "detector.safetensors"
    with pytest.raises(DetectorError, match=r"detector\.safetensors"):
        read_centre_detector(path)
    file = centre_detector_file(CentreNetwork(3), class_names=NAMES, short_side_px=96, actor_score=0.35)
    for content in (b"", file[:-10], file.replace(b"mule-centres-1", b"mule-centres-9"), b"{}" * 40):
        path.write_bytes(content)
        with pytest.raises(DetectorError, match=r"detector\.safetensors"):
            read_centre_detector(path)


def test_frames_that_are_not_pictures_are_refused():
    with pytest.raises(ShapeError):
        detector(Planted())(torch.zeros(1, 4, 96, 128, dtype=torch.uint8))
