"""One clip before any view of it: its frames, who acts in them, and what else is there.

A data set is anything that gives such samples by position (`ClipSamples`). It goes to worker processes as it is,
so it must pickle. Where it lies on a disk is its own affair.
"""

import math
from dataclasses import dataclass
from typing import NamedTuple, Protocol, runtime_checkable

import torch
from jaxtyping import Bool, Float, Int, UInt8
from torch import Generator, Tensor

from mule.core.errors import RangeError, ShapeError

WHOLE_FRAME = (0.0, 0.0, 1.0, 1.0)
"""The box of an actor that nobody pointed out: all of the frame."""


class ClipName(NamedTuple):
    """What people call a clip: its video and the time it is about, NaN for a whole video."""

    video: str
    key_time_s: float

    def __str__(self) -> str:
        return self.video if math.isnan(self.key_time_s) else f"{self.video} at {self.key_time_s:g} s"


@dataclass(frozen=True)
class ClipSample:
    """One clip: RGB frames of 0 to 255, its actors with what they do, and the objects around them.

    Boxes are fractions of the frame; an actor without a place of its own has the `WHOLE_FRAME`.
    """

    name: ClipName
    frames: UInt8[Tensor, "frames channels rows cols"]
    actor_boxes_xyxy_unit: Float[Tensor, "actors 4"]
    labels: Bool[Tensor, "actors classes"]
    actor_ids: tuple[str, ...]
    """Tells the actors of a video apart; empty where nobody was followed."""
    object_boxes_xyxy_unit: Float[Tensor, "objects 4"]
    object_class: Int[Tensor, " objects"]
    object_scores: Float[Tensor, " objects"]
    source_size: tuple[int, int]
    """Rows and columns of the source before any scaling."""
    num_damaged: int = 0
    """Pieces of the file that the decoder refused or patched up on the way to these frames."""

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
        """The actions that labels speak of, one per column."""
        ...

    def __len__(self) -> int: ...

    def __getitem__(self, position: int) -> ClipSample:
        """The clip at the position, the same every time."""
        ...

    def name_of(self, position: int) -> ClipName:
        """What the clip is called, without reading it."""
        ...


@runtime_checkable
class DrawnClipSamples(Protocol):
    """A data set whose clips are also drawn by chance, as from a whole video in training."""

    def drawn(self, position: int, generator: Generator) -> ClipSample:
        """A clip for the position, chosen by nothing but the generator."""
        ...


def sample_at(samples: ClipSamples, position: int, generator: Generator) -> ClipSample:
    """The clip at the position, drawn anew where the data set draws."""
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
