"""What a bundle's network is shown of the people of a clip: the whole frame once, or the square around each person.

frame    one pass ──────────▶ one map, with every box in it
person   a pass per person ─▶ a map each, with the person's own box in it; nobody and nothing else
"""

import torch
from jaxtyping import Bool, Float, UInt8
from torch import Tensor

from mule.features.pooling import FeatureMaps
from mule.model import SceneBoxes
from mule.video.person_crops import CROP_PX, cut_square, person_square
from mule.video.transforms import clip_boxes, normalised, px_from_unit, unit_from_px
from mule.watching.engine.bundle import Bundle

Shown = tuple[FeatureMaps, SceneBoxes, Bool[Tensor, " actors"], Bool[Tensor, " objects"]]


def maps_shown(
    bundle: Bundle,
    frames: UInt8[Tensor, "frames 3 rows cols"],
    actors_xyxy_unit: Float[Tensor, "actors 4"],
    objects_xyxy_unit: Float[Tensor, "objects 4"],
) -> Shown:
    """Run the backbone over what it is shown; boxes are shares of the frame.

    Returns:
        The maps; the boxes in pixels of the network's input, without those that cover no pixel of it; which actors and
        which objects those are.
    """
    if bundle.card.sees == "person":
        return _persons(bundle, frames, actors_xyxy_unit, objects_xyxy_unit)
    pixels = bundle.needs.pixels(frames)
    rows, cols = pixels.shape[3:]
    (actors, is_actor), (objects, is_object) = (
        clip_boxes(px_from_unit(unit, width_px=cols, height_px=rows), rows, cols)
        for unit in (actors_xyxy_unit, objects_xyxy_unit)
    )
    actors, objects = actors[is_actor], objects[is_object]
    boxes = SceneBoxes(
        actors,
        torch.zeros(len(actors), dtype=torch.int64),
        objects,
        torch.zeros(len(objects), dtype=torch.int64),
    )
    return bundle.model.backbone(pixels), boxes, is_actor, is_object


def _persons(
    bundle: Bundle,
    frames: UInt8[Tensor, "frames 3 rows cols"],
    actors_xyxy_unit: Float[Tensor, "actors 4"],
    objects_xyxy_unit: Float[Tensor, "objects 4"],
) -> Shown:
    rows, cols = frames.shape[2:]
    inside, is_actor = clip_boxes(px_from_unit(actors_xyxy_unit, width_px=cols, height_px=rows), rows, cols)
    squares = [person_square(box, rows, cols) for box in inside[is_actor]]
    boxes = SceneBoxes(
        box_in_square(inside[is_actor], squares),
        torch.arange(len(squares)),
        torch.zeros(0, 4),
        torch.zeros(0, dtype=torch.int64),
    )
    pixels = [
        normalised(cut_square(frames, square, CROP_PX), bundle.needs.normalisation)[None]
        for square in squares
    ]
    nobody = torch.zeros(1, 3, len(frames), CROP_PX, CROP_PX)
    passes = [bundle.model.backbone(each) for each in pixels or [nobody]]
    maps = FeatureMaps(
        tuple(torch.cat(level) for level in zip(*(each.maps for each in passes), strict=True)),
        passes[0].stride,
    )
    return maps, boxes, is_actor, torch.zeros(len(objects_xyxy_unit), dtype=torch.bool)


def box_in_square(
    boxes_xyxy_px: Float[Tensor, "actors 4"], squares: list[tuple[int, int, int]], size_px: int = CROP_PX
) -> Float[Tensor, "actors 4"]:
    """Return each box in pixels of the square (top, left, side) around it, as the network sees it.

    >>> box_in_square(torch.tensor([[10.0, 20.0, 30.0, 60.0]]), [(10, 0, 60)], 120).tolist()
    [[20.0, 20.0, 60.0, 100.0]]
    """
    if not squares:
        return torch.zeros(0, 4)
    top, left, side = torch.tensor(squares, dtype=torch.float32).unbind(dim=1)
    corner = torch.stack([left, top, left, top], dim=1)
    return ((boxes_xyxy_px - corner) * (size_px / side)[:, None]).clamp(0, size_px)


def in_shares(boxes_xyxy_px: Float[Tensor, "boxes 4"], size: tuple[int, int]) -> Float[Tensor, "boxes 4"]:
    """Return boxes as shares of a frame of these rows and columns."""
    return unit_from_px(boxes_xyxy_px, width_px=size[1], height_px=size[0])
