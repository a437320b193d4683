"""A clip with its actors and objects (`ClipSample`), and the views of it that a backbone sees.

A data set is anything that returns samples by position (`ClipSamples`). It is sent to worker processes, so it must
pickle. How it stores its clips is its own concern.

A view is the paper's augmentation in training, and the whole frame in testing. Boxes move with the pixels; a view
leaves out actors that its crop has lost, and lists those that stayed.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import NamedTuple, Protocol, runtime_checkable

import torch
from jaxtyping import Bool, Float, Int, Num, UInt8
from torch import Generator, Tensor

from mule.core.defaults import BOX_JITTER, FLIP_PROBABILITY
from mule.core.errors import RangeError, ShapeError
from mule.detection.boxes import Boxes
from mule.video import transforms
from mule.video.transforms import SLOWFAST, Normalisation, normalised, px_from_unit

WHOLE_FRAME = (0.0, 0.0, 1.0, 1.0)
"""The box of an actor without a box: the whole frame."""


class ClipName(NamedTuple):
    """The name of a clip: its video and key time, NaN for a whole video."""

    video: str
    key_time_s: float

    @property
    def has_time(self) -> bool:
        """Whether the clip is around a key time; otherwise it is of the whole video."""
        return not math.isnan(self.key_time_s)

    def __str__(self) -> str:
        return self.video if math.isnan(self.key_time_s) else f"{self.video} at {self.key_time_s:g} s"


@dataclass(frozen=True)
class ClipSample:
    """One clip: RGB frames of 0 to 255, its actors with their labels, and the objects around them.

    Boxes are fractions of the frame; an actor without a box has the `WHOLE_FRAME`.
    """

    name: ClipName
    frames: UInt8[Tensor, "frames channels rows cols"]
    actor_boxes_xyxy_unit: Float[Tensor, "actors 4"]
    labels: Bool[Tensor, "actors classes"]
    actor_ids: tuple[str, ...]
    """Identifies the actors of a video; empty where they were not tracked."""
    object_boxes_xyxy_unit: Float[Tensor, "objects 4"]
    object_class: Int[Tensor, " objects"]
    object_scores: Float[Tensor, " objects"]
    source_size: tuple[int, int]
    """Rows and columns of the source before any scaling."""
    num_damaged: int = 0
    """Damaged pieces that the decoder skipped or concealed in these frames."""

    def __post_init__(self) -> None:
        num_actors = {len(self.actor_boxes_xyxy_unit), len(self.labels), len(self.actor_ids)}
        num_objects = {len(self.object_boxes_xyxy_unit), len(self.object_class), len(self.object_scores)}
        if len(num_actors) > 1 or len(num_objects) > 1:
            raise ShapeError(
                f"{self.name}: every actor must have a box, labels and an id, every object a box, a class and a "
                f"score; got {sorted(num_actors)} of actors and {sorted(num_objects)} of objects."
            )
        for what, boxes in (("actor", self.actor_boxes_xyxy_unit), ("object", self.object_boxes_xyxy_unit)):
            _require_unit_boxes(boxes, f"{self.name}: {what}")


@runtime_checkable
class ClipSamples(Protocol):
    """A data set: clips by position, all labelled with the same classes."""

    @property
    def classes(self) -> tuple[str, ...]:
        """The actions of the label columns."""
        ...

    def __len__(self) -> int: ...

    def __getitem__(self, position: int) -> ClipSample:
        """Return the clip at the position, the same every time."""
        ...

    def name_of(self, position: int) -> ClipName:
        """Return the name of the clip, without reading it."""
        ...


@runtime_checkable
class DrawnClipSamples(Protocol):
    """A data set whose clips can also be drawn at random, as from a whole video in training."""

    def drawn(self, position: int, generator: Generator) -> ClipSample:
        """Return a clip for the position, drawn by the generator alone."""
        ...


def sample_at(samples: ClipSamples, position: int, generator: Generator) -> ClipSample:
    """Return the clip at the position, drawn at random where the data set does so."""
    if isinstance(samples, DrawnClipSamples):
        return samples.drawn(position, generator)
    return samples[position]


def _require_unit_boxes(boxes: Float[Tensor, "boxes 4"], whose: str) -> None:
    low, high = boxes[:, :2], boxes[:, 2:]
    is_box = ((low >= 0) & (high <= 1) & (low < high)).all(dim=1)
    if not is_box.all():
        row = int(torch.nonzero(~is_box)[0])
        raise RangeError(
            f"{whose} boxes must have 0 <= x1 < x2 <= 1 and 0 <= y1 < y2 <= 1, in fractions of the frame; box {row} "
            f"is {[round(value, 4) for value in boxes[row].tolist()]}. Are they in pixels?"
        )


@dataclass(frozen=True)
class ViewedClip:
    """One clip as a backbone sees it; boxes are in pixels of this view."""

    frames: Num[Tensor, "frames channels rows cols"]
    """RGB of 0 to 255; a batch normalises them when it copies them into its stack."""
    normalisation: Normalisation
    actor_boxes_xyxy_px: Float[Tensor, "actors 4"]
    actor_index: Int[Tensor, " actors"]
    """The numbers of these actors in the sample, in order; the others are not in view."""
    object_boxes_xyxy_px: Float[Tensor, "objects 4"]
    object_index: Int[Tensor, " objects"]
    """The numbers of these objects in the sample."""

    @property
    def pixels(self) -> Float[Tensor, "channels frames rows cols"]:
        """The frames as the backbone takes them."""
        return normalised(self.frames, self.normalisation)


ClipView = Callable[[ClipSample, Generator], ViewedClip]
"""Makes a view of a sample; all its randomness comes from the generator."""


@dataclass(frozen=True)
class TrainingView:
    """A random size, square crop, mirror image, box jitter and colour, as in the paper's protocol for AVA.

    On AVA, short sides are 256 to 320 and crops 224. Sizes and flips are PySlowFast's, the box jitter is ACAR-Net's and
    MULE's. Both leave colours unchanged, so their strengths are 0 here; PySlowFast uses 0.4 each where it changes them.
    """

    short_sides_px: tuple[int, int] | None = None
    """The short side is drawn uniformly between these; None keeps the size of frames."""
    crop_px: int | None = None
    """Side of the square, anywhere in the frame; None keeps the whole frame."""
    flip_probability: float = FLIP_PROBABILITY
    box_jitter: float = BOX_JITTER
    """Every edge moves by up to this share of the box's width or height, within the frame. A box of the whole frame does
    not move."""
    brightness: float = 0.0
    contrast: float = 0.0
    saturation: float = 0.0
    normalisation: Normalisation = SLOWFAST

    def __post_init__(self) -> None:
        if not 0 <= self.flip_probability <= 1:
            raise RangeError(f"flip_probability must lie in [0, 1]; got {self.flip_probability}.")
        if not 0 <= self.box_jitter < 0.5:
            raise RangeError(
                f"box_jitter must lie in [0, 0.5), or boxes may turn inside out; got {self.box_jitter}."
            )

    def __call__(self, sample: ClipSample, generator: Generator) -> ViewedClip:
        """Return one random view of the clip."""
        boxes = self._jittered(_all_boxes(sample), generator)
        frames, boxes, kept = _in_sight(sample, boxes)
        view = self._framed(frames, boxes, generator)
        if max(self.brightness, self.contrast, self.saturation) > 0:
            recoloured = transforms.jitter_colours(
                view.frames,
                brightness=self.brightness,
                contrast=self.contrast,
                saturation=self.saturation,
                generator=generator,
            )
            view = replace(view, frames=recoloured)
        return _viewed(sample, view, kept, self.normalisation)

    def _framed(self, frames: Tensor, boxes: Boxes, generator: Generator) -> transforms.FrameView:
        short_side = min(frames.shape[2:])
        short_sides = self.short_sides_px or (short_side, short_side)
        if self.crop_px is not None:
            return transforms.random_view(
                frames,
                boxes,
                short_sides_px=short_sides,
                crop_px=self.crop_px,
                flip_probability=self.flip_probability,
                generator=generator,
            )
        chosen_px = transforms.random_short_side(*short_sides, generator)
        view = transforms.whole_view(frames, boxes, short_side_px=chosen_px)
        if torch.rand((), generator=generator).item() >= self.flip_probability:
            return view
        frames, boxes = transforms.flip(view.frames, view.boxes_xyxy_px)
        return replace(view, frames=frames, boxes_xyxy_px=boxes)

    def _jittered(self, boxes_unit: Boxes, generator: Generator) -> Boxes:
        moved = transforms.jitter_boxes(boxes_unit, self.box_jitter, generator).clamp(0, 1)
        is_whole = (boxes_unit == boxes_unit.new_tensor(WHOLE_FRAME)).all(dim=1, keepdim=True)
        return torch.where(is_whole, boxes_unit, moved)


@dataclass(frozen=True)
class WholeView:
    """The whole frame, with a fixed short side (256 for AVA). Nothing is random."""

    short_side_px: int | None = None
    """None keeps the size of frames."""
    normalisation: Normalisation = SLOWFAST

    def __call__(self, sample: ClipSample, generator: Generator) -> ViewedClip:  # noqa: ARG002 - one call for all views
        """Return the view of the clip, the same every time."""
        frames, boxes, kept = _in_sight(sample, _all_boxes(sample))
        short_side_px = min(frames.shape[2:]) if self.short_side_px is None else self.short_side_px
        view = transforms.whole_view(frames, boxes, short_side_px=short_side_px)
        return _viewed(sample, view, kept, self.normalisation)


def _all_boxes(sample: ClipSample) -> Boxes:
    return torch.cat([sample.actor_boxes_xyxy_unit, sample.object_boxes_xyxy_unit])


def _in_sight(
    sample: ClipSample, boxes_unit: Boxes
) -> tuple[Tensor, Float[Tensor, "kept 4"], Int[Tensor, " kept"]]:
    """Return the frames, the visible boxes in pixels, and their numbers; boxes that cover no pixel are dropped."""
    rows, cols = sample.frames.shape[2:]
    boxes = px_from_unit(boxes_unit, width_px=cols, height_px=rows)
    _, is_visible = transforms.clip_boxes(boxes, rows, cols)
    kept = torch.nonzero(is_visible).flatten()
    return sample.frames, boxes[kept], kept


def _viewed(
    sample: ClipSample, view: transforms.FrameView, kept: Int[Tensor, " boxes"], normalisation: Normalisation
) -> ViewedClip:
    num_actors = len(sample.actor_boxes_xyxy_unit)
    boxes, kept = view.boxes_xyxy_px[view.is_visible], kept[view.is_visible]
    is_actor = kept < num_actors
    return ViewedClip(
        frames=view.frames,
        normalisation=normalisation,
        actor_boxes_xyxy_px=boxes[is_actor],
        actor_index=kept[is_actor],
        object_boxes_xyxy_px=boxes[~is_actor],
        object_index=kept[~is_actor] - num_actors,
    )
