"""Box formats, clipping, overlap and non-maximum suppression on tensors.

Names state the format: `xyxy` (left, top, right, bottom), `xywh` (left, top, width, height)
and `cxcywh` (centre, width, height). Two units: `px` (pixels, x to the right, the image spans 0 to its width)
and `unit` (the image spans 0 to 1 both ways). Converting the format keeps the unit.
"""

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

Boxes = Float[Tensor, "boxes 4"]


def xyxy_from_xywh(boxes_xywh: Boxes) -> Boxes:
    """Convert top-left corner and size to corners."""
    corner, size = boxes_xywh[:, :2], boxes_xywh[:, 2:]
    return torch.cat([corner, corner + size], dim=1)


def xyxy_from_cxcywh(boxes_cxcywh: Boxes) -> Boxes:
    """Convert centre and size to corners."""
    centre, half = boxes_cxcywh[:, :2], boxes_cxcywh[:, 2:] / 2
    return torch.cat([centre - half, centre + half], dim=1)


def cxcywh_from_xyxy(boxes_xyxy: Boxes) -> Boxes:
    """Convert corners to centre and size."""
    corner, opposite = boxes_xyxy[:, :2], boxes_xyxy[:, 2:]
    return torch.cat([(corner + opposite) / 2, opposite - corner], dim=1)


def clip_to_image(boxes_xyxy_px: Boxes, *, width_px: int, height_px: int) -> Boxes:
    """Return the part of each box inside the image; a box outside it has no area (see `has_area`)."""
    x = boxes_xyxy_px[:, 0::2].clamp(0, width_px)
    y = boxes_xyxy_px[:, 1::2].clamp(0, height_px)
    return torch.stack([x, y], dim=2).flatten(1)  # (boxes, 4): x1 y1 x2 y2


def has_area(boxes_xyxy: Boxes) -> Bool[Tensor, " boxes"]:
    """Whether x2 > x1 and y2 > y1; False for a box with NaN."""
    return (boxes_xyxy[:, 2] > boxes_xyxy[:, 0]) & (boxes_xyxy[:, 3] > boxes_xyxy[:, 1])


def area(boxes_xyxy: Boxes) -> Float[Tensor, " boxes"]:
    """Return width times height; 0 for a box with x2 < x1 or y2 < y1."""
    return (boxes_xyxy[:, 2:] - boxes_xyxy[:, :2]).clamp(min=0).prod(dim=1)


def iou_matrix(
    first_xyxy: Float[Tensor, "first 4"], second_xyxy: Float[Tensor, "second 4"]
) -> Float[Tensor, "first second"]:
    """Return the intersection over union of every pair; 0 if the union is empty. Both must have the same unit."""
    shared = intersections(first_xyxy, second_xyxy)
    union = area(first_xyxy)[:, None] + area(second_xyxy)[None, :] - shared
    return torch.where(union > 0, shared / union, torch.zeros_like(union))


def intersections(
    first_xyxy: Float[Tensor, "first 4"], second_xyxy: Float[Tensor, "second 4"]
) -> Float[Tensor, "first second"]:
    """Return the area that every pair of boxes shares."""
    top_left = torch.maximum(first_xyxy[:, None, :2], second_xyxy[None, :, :2])
    bottom_right = torch.minimum(first_xyxy[:, None, 2:], second_xyxy[None, :, 2:])
    return (bottom_right - top_left).clamp(min=0).prod(dim=2)


def nms(
    boxes_xyxy: Boxes,
    scores: Float[Tensor, " boxes"],
    *,
    max_iou: float,
    group: Int[Tensor, " boxes"] | None = None,
) -> Int[Tensor, " kept"]:
    """Return the indices of the boxes that overlap no better box of their group by more than `max_iou`, best first.

    Only a kept box suppresses others (greedy suppression); of equal scores the earlier box is better. Boxes of
    different groups (class, image, or both) do not suppress each other; without groups all boxes are one group.

    Greedy suppression has one solution. The loop finds it in as many rounds as the longest chain of boxes that
    suppress one another, usually two or three, instead of one round per box.
    """
    order = torch.argsort(scores, descending=True, stable=True)
    beats = torch.triu(iou_matrix(boxes_xyxy[order], boxes_xyxy[order]) > max_iou, diagonal=1)
    if group is not None:
        beats &= group[order][:, None] == group[order][None, :]
    stays = torch.ones_like(order, dtype=torch.bool)
    while True:
        still_stays = ~(beats & stays[:, None]).any(dim=0)
        if torch.equal(still_stays, stays):
            return order[stays]
        stays = still_stays
