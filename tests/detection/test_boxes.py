"""Formats, clipping, overlap and suppression, against loops that spell the definition out."""

import hypothesis.strategies as st
import pytest
import torch
from hypothesis import given

from mule.detection.boxes import (
    area,
    clip_to_image,
    cxcywh_from_xyxy,
    has_area,
    iou_matrix,
    nms,
    xyxy_from_cxcywh,
    xyxy_from_xywh,
)
from mule.video.transforms import px_from_unit, unit_from_px

SIZES = [0, 1, 2, 30, 150]


def random_boxes(num_boxes: int, *, seed: int = 0, side: float = 100.0) -> torch.Tensor:
    random = torch.Generator().manual_seed(seed)
    corner = torch.rand(num_boxes, 2, generator=random) * side
    return torch.cat([corner, corner + 1 + torch.rand(num_boxes, 2, generator=random) * side / 2], dim=1)


def iou_by_definition(a: list[float], b: list[float]) -> float:
    width = min(a[2], b[2]) - max(a[0], b[0])
    height = min(a[3], b[3]) - max(a[1], b[1])
    shared = max(width, 0) * max(height, 0)
    union = (a[2] - a[0]) * (a[3] - a[1]) + (b[2] - b[0]) * (b[3] - b[1]) - shared
    return shared / union if union > 0 else 0.0


def nms_one_by_one(boxes, scores, max_iou, group):
    kept: list[int] = []
    for i in sorted(range(len(boxes)), key=lambda i: (-scores[i], i)):
        if all(group[i] != group[j] or iou_by_definition(boxes[i], boxes[j]) <= max_iou for j in kept):
            kept.append(i)
    return kept


@pytest.mark.parametrize("num_boxes", SIZES)
def test_each_format_turned_there_and_back_is_the_same_box(num_boxes):
    boxes = random_boxes(num_boxes)
    torch.testing.assert_close(xyxy_from_cxcywh(cxcywh_from_xyxy(boxes)), boxes)
    there = unit_from_px(boxes, width_px=320, height_px=240)
    torch.testing.assert_close(px_from_unit(there, width_px=320, height_px=240), boxes)


def test_formats_of_one_box_by_hand():
    xyxy = torch.tensor([[10.0, 20.0, 40.0, 80.0]])
    assert xyxy_from_xywh(torch.tensor([[10.0, 20.0, 30.0, 60.0]])).tolist() == xyxy.tolist()
    assert cxcywh_from_xyxy(xyxy).tolist() == [[25, 50, 30, 60]]
    assert unit_from_px(xyxy, width_px=100, height_px=200).tolist() == [
        pytest.approx([0.1, 0.1, 0.4, 0.4]),
    ]
    assert area(xyxy).tolist() == [1800]


def test_clipping_keeps_the_part_inside_the_image():
    boxes = torch.tensor(
        [
            [-5.0, -5.0, 5.0, 5.0],
            [90.0, 40.0, 120.0, 60.0],
            [10.0, 10.0, 20.0, 20.0],
            [200.0, 10.0, 210.0, 20.0],
        ]
    )
    clipped = clip_to_image(boxes, width_px=100, height_px=50)
    assert clipped.tolist() == [[0, 0, 5, 5], [90, 40, 100, 50], [10, 10, 20, 20], [100, 10, 100, 20]]
    assert has_area(clipped).tolist() == [True, True, True, False]
    assert boxes[0, 0] == -5, "what was given must not change"


def test_a_box_with_nan_never_has_area():
    nan = float("nan")
    assert not has_area(torch.tensor([[nan, 0.0, 1.0, 1.0], [0.0, 0.0, 1.0, nan]])).any()


@pytest.mark.parametrize("num_first", [0, 1, 17])
@pytest.mark.parametrize("num_second", [0, 1, 40])
def test_overlap_of_all_pairs_equals_the_definition_pair_by_pair(num_first, num_second):
    first, second = random_boxes(num_first, seed=1), random_boxes(num_second, seed=2)
    expected = [[iou_by_definition(a, b) for b in second.tolist()] for a in first.tolist()]
    expected = torch.tensor(expected).reshape(num_first, num_second)
    torch.testing.assert_close(iou_matrix(first, second), expected, atol=1e-6, rtol=1e-5)


def test_overlap_with_a_box_without_area_is_zero_not_nan():
    flat = torch.tensor([[5.0, 5.0, 5.0, 9.0], [9.0, 9.0, 1.0, 1.0]])
    assert (
        iou_matrix(flat, torch.cat([flat, torch.tensor([[0.0, 0.0, 10.0, 10.0]])])).tolist()
        == [[0, 0, 0]] * 2
    )


@pytest.mark.parametrize("num_boxes", SIZES)
@pytest.mark.parametrize("max_iou", [0.0, 0.3, 0.45, 0.9])
@pytest.mark.parametrize("num_groups", [1, 4])
def test_suppression_equals_taking_the_best_one_by_one(num_boxes, max_iou, num_groups):
    boxes = random_boxes(num_boxes, seed=3)
    random = torch.Generator().manual_seed(4)
    scores = (torch.rand(num_boxes, generator=random) * 20).round() / 20  # with ties
    group = torch.randint(0, num_groups, (num_boxes,), generator=random)
    kept = nms(boxes, scores, max_iou=max_iou, group=group)
    assert kept.tolist() == nms_one_by_one(boxes.tolist(), scores.tolist(), max_iou, group.tolist())


def test_a_box_suppressed_by_another_suppresses_nobody():
    chain = torch.tensor([[0.0, 0.0, 10.0, 10.0], [4.0, 0.0, 14.0, 10.0], [8.0, 0.0, 18.0, 10.0]])
    assert nms(chain, torch.tensor([0.9, 0.8, 0.7]), max_iou=0.3).tolist() == [0, 2]


@given(
    num_boxes=st.integers(0, 40),
    max_iou=st.floats(0.05, 0.95),
    seed=st.integers(0, 10_000),
    crowd=st.booleans(),
)
def test_what_stays_does_not_overlap_and_what_goes_overlaps_something_better(num_boxes, max_iou, seed, crowd):
    boxes = random_boxes(num_boxes, seed=seed, side=20.0 if crowd else 200.0)
    scores = torch.rand(num_boxes, generator=torch.Generator().manual_seed(seed))
    kept = nms(boxes, scores, max_iou=max_iou)
    overlap = iou_matrix(boxes, boxes) > max_iou
    assert not torch.triu(overlap[kept][:, kept], diagonal=1).any()
    for gone in set(range(num_boxes)) - set(kept.tolist()):
        assert any(overlap[gone, better] and scores[better] >= scores[gone] for better in kept)
