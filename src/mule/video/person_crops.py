"""Square crops around people: what a second pass of a backbone sees of one person."""

import torch
import torch.nn.functional as F
from jaxtyping import Float, UInt8
from torch import Tensor

SQUARE_SHARE = 1.5
"""Side of the square around a person, as a multiple of the longer side of the box."""
CROP_PX = 192
"""Side of the square as the backbone sees it."""
OUTSIDE_GREY = 128
"""Fills what a square shows beyond the frame."""


def person_square(
    box_xyxy_px: Float[Tensor, " 4"], rows: int, cols: int, *, share: float = SQUARE_SHARE
) -> tuple[int, int, int]:
    """Return top, left and side of the square around a box, in pixels.

    The square is centred on the box and moved into the frame along each axis in which it fits; along an axis in which it
    does not fit it is centred on the frame.

    >>> import torch
    >>> person_square(torch.tensor([10.0, 20.0, 30.0, 60.0]), rows=240, cols=320)
    (10, 0, 60)
    """
    x1, y1, x2, y2 = box_xyxy_px.tolist()
    side = max(1, round(share * max(x2 - x1, y2 - y1)))
    return _start((y1 + y2) / 2, side, rows), _start((x1 + x2) / 2, side, cols), side


def _start(centre: float, side: int, length: int) -> int:
    if side >= length:
        return (length - side) // 2
    return min(max(round(centre - side / 2), 0), length - side)


def cut_square(
    frames: UInt8[Tensor, "frames channels rows cols"], square: tuple[int, int, int], size_px: int
) -> UInt8[Tensor, "frames channels size size"]:
    """Cut the square (top, left, side) out of frames and scale it to `size_px`; beyond the frame it is grey.

    >>> import torch
    >>> frames = torch.zeros(2, 3, 24, 32, dtype=torch.uint8)
    >>> tuple(cut_square(frames, (-4, 0, 32), 16).shape)
    (2, 3, 16, 16)
    """
    top, left, side = square
    rows, cols = frames.shape[2:]
    inside = frames[:, :, max(top, 0) : max(top + side, 0), max(left, 0) : max(left + side, 0)]
    beyond = (max(-left, 0), max(left + side - cols, 0), max(-top, 0), max(top + side - rows, 0))
    padded = F.pad(inside, beyond, value=OUTSIDE_GREY)
    return F.interpolate(padded, size=(size_px, size_px), mode="bilinear", align_corners=False)


def cut_squares(
    frames: UInt8[Tensor, "frames channels rows cols"],
    boxes_xyxy_px: Float[Tensor, "actors 4"],
    size_px: int = CROP_PX,
) -> UInt8[Tensor, "actors frames channels size size"]:
    """Cut the square around every person out of the frames of a clip: a batch for one pass of a backbone.

    >>> import torch
    >>> frames = torch.zeros(2, 3, 24, 32, dtype=torch.uint8)
    >>> tuple(cut_squares(frames, torch.tensor([[2.0, 2, 8, 20], [9.0, 2, 20, 20]]), 16).shape)
    (2, 2, 3, 16, 16)
    """
    rows, cols = frames.shape[2:]
    squares = [cut_square(frames, person_square(box, rows, cols), size_px) for box in boxes_xyxy_px]
    return torch.stack(squares) if squares else frames.new_zeros(0, *frames.shape[:2], size_px, size_px)
