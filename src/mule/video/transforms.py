"""Resize, crop, flip, recolour, normalise: pixels and boxes move together.

Frames are (frames, 3, rows, cols). Boxes are (x1, y1, x2, y2) in pixels of those frames, as AVA's published
models were trained with them: scaled by the ratio of the sizes, mirrored as W − 1 − x, kept in [0, W − 1] and
[0, H − 1]. Random choices come from the given generator. No function changes its arguments.
"""

from dataclasses import dataclass
from typing import Literal

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Num, UInt8
from torch import Generator, Tensor

from mule.core.errors import NotFinite, RangeError, ShapeError

Frames = Num[Tensor, "frames channels rows cols"]
NewFrames = Num[Tensor, "frames channels new_rows new_cols"]
PixelBoxes = Float[Tensor, "actors 4"]


@dataclass(frozen=True)
class Normalisation:
    """The pixel normalisation that weights expect: (value · scale − mean) / std per channel."""

    mean: tuple[float, float, float]
    std: tuple[float, float, float]
    scale: float = 1 / 255
    channel_order: Literal["rgb", "bgr"] = "rgb"
    """The order the weights expect; mean and std are given in that order."""

    def __post_init__(self) -> None:
        if min(self.std) <= 0 or self.scale <= 0:
            raise RangeError(f"std and scale must be above zero; got {self.std} and {self.scale}.")


IMAGENET = Normalisation(mean=(0.485, 0.456, 0.406), std=(0.229, 0.224, 0.225))
SLOWFAST = Normalisation(mean=(0.45, 0.45, 0.45), std=(0.225, 0.225, 0.225))
"""PySlowFast, pytorchvideo, ACAR-Net R50; X3D too."""
PLUS_MINUS_ONE = Normalisation(mean=(0.5, 0.5, 0.5), std=(0.5, 0.5, 0.5))
"""[−1, 1]: I3D."""
ACAR_R101 = Normalisation(
    mean=(110.63666788, 103.16065604, 96.29023126), std=(38.7568578, 37.88248729, 40.02898126), scale=1.0
)
MMACTION2 = Normalisation(mean=(123.675, 116.28, 103.53), std=(58.395, 57.12, 57.375), scale=1.0)


def normalised(
    frames: UInt8[Tensor, "frames channels rows cols"] | Float[Tensor, "frames channels rows cols"],
    normalisation: Normalisation,
) -> Float[Tensor, "channels frames rows cols"]:
    """Normalise RGB frames of 0 to 255, and put channels first, then time."""
    if frames.shape[1] != 3:
        raise ShapeError(f"frames must have 3 channels; got {tuple(frames.shape)}.")
    if normalisation.channel_order == "bgr":
        frames = frames.flip(1)
    std = frames.new_tensor(normalisation.std, dtype=torch.float32)[:, None, None, None]
    mean = frames.new_tensor(normalisation.mean, dtype=torch.float32)[:, None, None, None]
    return frames.transpose(0, 1).float().mul(normalisation.scale).sub_(mean).div_(std)


def short_side_size(rows: int, cols: int, short_side_px: int) -> tuple[int, int]:
    """Return rows and columns for a short side of the given length; the other side rounds down.

    >>> short_side_size(240, 320, 256)
    (256, 341)
    """
    if cols < rows:
        return rows * short_side_px // cols, short_side_px
    return short_side_px, cols * short_side_px // rows


def resized(frames: Frames, size: tuple[int, int]) -> NewFrames:
    """Resize frames to the given rows and columns by plain bilinear interpolation; the type stays."""
    if tuple(frames.shape[2:]) == size:
        return frames
    return F.interpolate(frames, size=size, mode="bilinear", align_corners=False)


def resize_short_side(frames: Frames, boxes: PixelBoxes, short_side_px: int) -> tuple[NewFrames, PixelBoxes]:
    """Scale frames to a short side of the given length, and their boxes with them."""
    rows, cols = frames.shape[2:]
    new_rows, new_cols = short_side_size(rows, cols, short_side_px)
    ratios = boxes.new_tensor([new_cols / cols, new_rows / rows]).repeat(2)
    return resized(frames, (new_rows, new_cols)), boxes * ratios


def random_short_side(low_px: int, high_px: int, generator: Generator) -> int:
    """Draw a short side uniformly from low to high."""
    if not 1 <= low_px <= high_px:
        raise RangeError(f"short sides must satisfy 1 <= low <= high; got {low_px} and {high_px}.")
    u = torch.rand((), generator=generator, dtype=torch.float64).item()
    return round(low_px + u * (high_px - low_px))


def crop(
    frames: Frames, boxes: PixelBoxes, *, top: int, left: int, size_px: int
) -> tuple[NewFrames, PixelBoxes]:
    """Crop the square at (top, left); boxes are relative to its corner and may reach beyond it."""
    rows, cols = frames.shape[2:]
    if not (0 <= top <= rows - size_px and 0 <= left <= cols - size_px):
        raise RangeError(
            f"a crop of {size_px} px at row {top}, column {left} must lie inside frames of {rows} × {cols}. "
            "Resize the short side first."
        )
    corner = boxes.new_tensor([left, top]).repeat(2)
    return frames[:, :, top : top + size_px, left : left + size_px], boxes - corner


def random_crop(
    frames: Frames, boxes: PixelBoxes, size_px: int, generator: Generator
) -> tuple[NewFrames, PixelBoxes]:
    """Crop a square anywhere in the frame, all places equally likely."""
    rows, cols = frames.shape[2:]
    top, left = (
        int(torch.randint(max(length - size_px, 0) + 1, (), generator=generator)) for length in (rows, cols)
    )
    return crop(frames, boxes, top=top, left=left, size_px=size_px)


def flip(frames: Frames, boxes: PixelBoxes) -> tuple[Frames, PixelBoxes]:
    """Mirror frames and boxes left to right."""
    x1, y1, x2, y2 = boxes.unbind(-1)
    last = frames.shape[3] - 1
    return frames.flip(3), torch.stack([last - x2, y1, last - x1, y2], dim=-1)


def px_from_unit(
    boxes_xyxy_unit: Float[Tensor, "boxes 4"], *, width_px: int, height_px: int
) -> Float[Tensor, "boxes 4"]:
    """Convert fractions to pixels of an image of this size."""
    return boxes_xyxy_unit * boxes_xyxy_unit.new_tensor([width_px, height_px, width_px, height_px])


def unit_from_px(
    boxes_xyxy_px: Float[Tensor, "boxes 4"], *, width_px: int, height_px: int
) -> Float[Tensor, "boxes 4"]:
    """Convert pixels to fractions of an image of this size."""
    return boxes_xyxy_px / boxes_xyxy_px.new_tensor([width_px, height_px, width_px, height_px])


def clip_boxes(boxes: PixelBoxes, rows: int, cols: int) -> tuple[PixelBoxes, Bool[Tensor, " actors"]]:
    """Clip boxes to the frame, and return which of them still cover something."""
    last = boxes.new_tensor([cols - 1, rows - 1]).repeat(2)
    clipped = torch.minimum(boxes.clamp(min=0), last)
    return clipped, (clipped[:, 2:] > clipped[:, :2]).all(dim=-1)


def require_boxes(boxes: PixelBoxes, rows: int, cols: int) -> None:
    """Check that every box is finite, has width and height, and covers some of the frame."""
    _, is_visible = clip_boxes(boxes, rows, cols)
    has_area = (boxes[:, 2:] > boxes[:, :2]).all(dim=-1)
    is_finite = boxes.isfinite().all(dim=-1)
    for actor in torch.nonzero(~(is_visible & has_area & is_finite)).flatten().tolist():
        box = [round(value, 3) for value in boxes[actor].tolist()]
        if not is_finite[actor]:
            raise NotFinite(f"boxes must be finite; actor {actor} has {box}. Drop the actor or mend its row.")
        if not has_area[actor]:
            raise RangeError(
                f"boxes must have x1 < x2 and y1 < y2; actor {actor} has {box}. Are the corners swapped?"
            )
        raise RangeError(
            f"boxes must cover some of the frame, {rows} rows × {cols} columns; actor {actor} has {box}. Are they in "
            "pixels of this frame?"
        )


def jitter_boxes(boxes: PixelBoxes, amount: float, generator: Generator) -> PixelBoxes:
    """Move every edge of each box by up to `amount` of its width or height (ACAR, MULE: 0.075)."""
    sizes = (boxes[:, 2:] - boxes[:, :2]).repeat(1, 2)
    if not 0 <= amount < 0.5:
        raise RangeError(f"the box jitter must lie in [0, 0.5), or boxes may turn inside out; got {amount}.")
    moves = torch.rand(boxes.shape, generator=generator, dtype=boxes.dtype, device=boxes.device) * 2 - 1
    return boxes + amount * moves * sizes


def jitter_colours(
    frames: Frames,
    *,
    brightness: float = 0.0,
    contrast: float = 0.0,
    saturation: float = 0.0,
    generator: Generator,
) -> Float[Tensor, "frames channels rows cols"]:
    """Mix RGB frames of 0 to 255 with black, with their mean grey and with their own grey, in random order.

    Each strength v draws one weight from U(1 − v, 1 + v) for the whole clip, so that it does not flicker.
    """
    strengths = (brightness, contrast, saturation)
    if min(strengths) < 0 or max(strengths) > 1:
        raise RangeError(f"brightness, contrast and saturation must lie in [0, 1]; got {strengths}.")
    recoloured = frames.to(torch.float32, memory_format=torch.contiguous_format, copy=True)
    for kind in torch.randperm(3, generator=generator).tolist():
        weight = 1 + strengths[kind] * (2 * torch.rand((), generator=generator).item() - 1)
        grey = (_no_grey, _mean_grey, _grey)[kind](recoloured)
        recoloured.mul_(weight).add_(grey, alpha=1 - weight).clamp_(0, 255)
    return recoloured


def _no_grey(frames: Frames) -> Float[Tensor, ""]:
    return frames.new_zeros(())


def _mean_grey(frames: Frames) -> Float[Tensor, "frames 1 1 1"]:
    return _grey(frames.mean(dim=(2, 3), keepdim=True))


def _grey(frames: Frames) -> Float[Tensor, "frames 1 rows cols"]:
    red, green, blue = frames.split(1, dim=1)
    return (0.299 * red).add_(green, alpha=0.587).add_(blue, alpha=0.114)


@dataclass(frozen=True)
class FrameView:
    """A clip as a backbone sees it, and its boxes."""

    frames: Frames
    boxes_xyxy_px: PixelBoxes
    is_visible: Bool[Tensor, " actors"]
    """False for an actor the crop has lost; its box is empty and must not be pooled."""


def whole_view(frames: Frames, boxes_xyxy_px: PixelBoxes, *, short_side_px: int = 256) -> FrameView:
    """Return the whole frame with a fixed short side, as in testing on AVA."""
    rows, cols = frames.shape[2:]
    require_boxes(boxes_xyxy_px, rows, cols)
    return _view(*resize_short_side(frames, boxes_xyxy_px, short_side_px))


def random_view(
    frames: Frames,
    boxes_xyxy_px: PixelBoxes,
    *,
    short_sides_px: tuple[int, int] = (256, 320),
    crop_px: int = 224,
    flip_probability: float = 0.5,
    generator: Generator,
) -> FrameView:
    """Return a random size, a random square and, at random, the mirror image, as in training on AVA."""
    rows, cols = frames.shape[2:]
    require_boxes(boxes_xyxy_px, rows, cols)
    boxes, _ = clip_boxes(boxes_xyxy_px, rows, cols)
    frames, boxes = resize_short_side(frames, boxes, random_short_side(*short_sides_px, generator))
    frames, boxes = random_crop(frames, boxes, crop_px, generator)
    if torch.rand((), generator=generator).item() < flip_probability:
        frames, boxes = flip(frames, boxes)
    return _view(frames, boxes)


def _view(frames: Frames, boxes: PixelBoxes) -> FrameView:
    return FrameView(frames, *clip_boxes(boxes, *frames.shape[2:]))
