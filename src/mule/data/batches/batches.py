"""Clips of a batch together: pixels in stacks, actors and objects flat, each knowing its clip.

Nothing is padded. Clips that follow each other in one size make a stack, so a batch of one size is one stack and
a batch of many sizes is several; counted through the stacks, clips keep their order. A clip without actors simply
has no rows, and a batch without clips (every one of them could not be read) has no stacks.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields, replace
from itertools import groupby

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from mule.core.errors import ShapeError
from mule.data.batches.samples import ClipName, ClipSample, ViewedClip
from mule.video.transforms import normalised

_FRAMES_AT_ONCE = 2


@dataclass(frozen=True)
class ActorBatch:
    """A batch of clips. Boxes are in pixels of their own clip's view."""

    pixels: tuple[Float[Tensor, "_ channels frames _ _"], ...]
    """(clips, channels, frames, rows, cols): one stack for each run of clips that share a size."""
    clip_names: tuple[ClipName, ...]
    positions: Int[Tensor, " clips"]
    """Where each clip lies in the data set."""
    actor_boxes_xyxy_px: Float[Tensor, "actors 4"]
    actor_clip_index: Int[Tensor, " actors"]
    actor_index: Int[Tensor, " actors"]
    """Which of its sample's actors this is, so that it can be found again however many the crop has lost."""
    labels: Bool[Tensor, "actors classes"]
    actor_ids: tuple[str, ...]
    object_boxes_xyxy_px: Float[Tensor, "objects 4"]
    object_clip_index: Int[Tensor, " objects"]
    object_class: Int[Tensor, " objects"]
    object_scores: Float[Tensor, " objects"]
    num_lost_actors: int = 0
    """Actors of these clips that are not in view."""
    num_damaged: int = 0
    """Pieces of files that the decoder refused or patched up on the way to these clips."""

    def __post_init__(self) -> None:
        num_pixels = sum(len(stack) for stack in self.pixels)
        if not num_pixels == len(self.clip_names) == len(self.positions):
            raise ShapeError(
                f"a batch must have pixels, a name and a position for each clip; got {num_pixels}, "
                f"{len(self.clip_names)} and {len(self.positions)}."
            )
        actors = (self.actor_boxes_xyxy_px, self.actor_clip_index, self.actor_index, self.labels)
        num_actors = [len(each) for each in (*actors, self.actor_ids)]
        objects = (self.object_boxes_xyxy_px, self.object_clip_index, self.object_class, self.object_scores)
        num_objects = [len(each) for each in objects]
        if len(set(num_actors)) > 1 or len(set(num_objects)) > 1:
            raise ShapeError(
                "every actor must have a box, a clip, an index, labels and an id, every object a box, a clip, a class "
                f"and a score; got {num_actors} and {num_objects}."
            )
        if (
            self.positions.device.type != "cpu"
        ):  # it was checked where it was made; here a look at values would wait
            return
        for index in (self.actor_clip_index, self.object_clip_index):
            if len(index) and not 0 <= int(index.min()) <= int(index.max()) < num_pixels:
                raise ShapeError(
                    f"a clip index must name one of {num_pixels} clips, from 0; got {index.tolist()}."
                )

    @property
    def num_clips(self) -> int:
        """How many clips there are; zero is an ordinary number."""
        return len(self.clip_names)

    @property
    def num_actors(self) -> int:
        """How many actors there are in all clips; zero is an ordinary number."""
        return len(self.labels)

    @property
    def stack(self) -> Float[Tensor, "clips channels frames rows cols"]:
        """The pixels of all clips in one tensor.

        Raises:
            ShapeError: the clips differ in size, or there are none.
        """
        if len(self.pixels) == 1:
            return self.pixels[0]
        sizes = sorted({tuple(stack.shape[3:]) for stack in self.pixels})
        raise ShapeError(
            f"one stack needs clips of one size; this batch of {self.num_clips} has {len(sizes)}: {sizes[:4]} (rows, "
            "columns). Go through `pixels`, crop, or load one clip at a time."
        )

    def to(self, device: torch.device | str, *, non_blocking: bool = False) -> "ActorBatch":
        """The same batch on a device."""
        return self._each(lambda tensor: tensor.to(device, non_blocking=non_blocking))

    def pin_memory(self) -> "ActorBatch":
        """The same batch in memory that a device copies from without waiting. DataLoader looks for this name."""
        return self._each(Tensor.pin_memory)

    def _each(self, change: Callable[[Tensor], Tensor]) -> "ActorBatch":
        values = {field.name: getattr(self, field.name) for field in fields(self)}
        changed = {name: change(value) for name, value in values.items() if isinstance(value, Tensor)}
        return replace(self, pixels=tuple(change(stack) for stack in self.pixels), **changed)


@dataclass(frozen=True)
class BatchClip:
    """One clip on its way into a batch."""

    position: int
    sample: ClipSample
    view: ViewedClip


def batch_of(clips: Sequence[BatchClip], *, num_classes: int, is_shared: bool = False) -> ActorBatch:
    """The batch of these clips, in their order. Without clips it is empty, with as many classes as ever.

    Args:
        clips: what to put together.
        num_classes: columns of the labels.
        is_shared: whether pixels are written at once into memory that other processes see.
    """
    samples, views = [clip.sample for clip in clips], [clip.view for clip in clips]
    pairs = list(zip(samples, views, strict=True))
    num_lost = sum(len(sample.labels) - len(view.actor_index) for sample, view in pairs)
    return ActorBatch(
        pixels=_stacks(views, is_shared=is_shared),
        clip_names=tuple(sample.name for sample in samples),
        positions=torch.tensor([clip.position for clip in clips], dtype=torch.int64),
        actor_boxes_xyxy_px=_joined([view.actor_boxes_xyxy_px for view in views], torch.zeros(0, 4)),
        actor_clip_index=_clip_index([len(view.actor_index) for view in views]),
        actor_index=_joined([view.actor_index for view in views], _no_index()),
        labels=_joined(
            [sample.labels[view.actor_index] for sample, view in pairs],
            torch.zeros(0, num_classes, dtype=torch.bool),
        ),
        actor_ids=tuple(sample.actor_ids[i] for sample, view in pairs for i in view.actor_index.tolist()),
        object_boxes_xyxy_px=_joined([view.object_boxes_xyxy_px for view in views], torch.zeros(0, 4)),
        object_clip_index=_clip_index([len(view.object_index) for view in views]),
        object_class=_joined([sample.object_class[view.object_index] for sample, view in pairs], _no_index()),
        object_scores=_joined(
            [sample.object_scores[view.object_index] for sample, view in pairs], torch.zeros(0)
        ),
        num_lost_actors=num_lost,
        num_damaged=sum(sample.num_damaged for sample in samples),
    )


def _stacks(views: Sequence[ViewedClip], *, is_shared: bool) -> tuple[Tensor, ...]:
    runs = [list(run) for _, run in groupby(views, key=lambda view: view.frames.shape)]
    return tuple(_stack(run, is_shared=is_shared) for run in runs)


def _stack(
    views: Sequence[ViewedClip], *, is_shared: bool
) -> Float[Tensor, "clips channels frames rows cols"]:
    """The pixels of clips of one size. Few frames at a time stay in the cache, which whole clips do not."""
    num_frames, num_channels, *size = views[0].frames.shape
    stack = torch.empty(len(views), num_channels, num_frames, *size)
    if is_shared:
        stack.share_memory_()
    for place, view in zip(stack, views, strict=True):
        for first in range(0, num_frames, _FRAMES_AT_ONCE):
            some = slice(first, first + _FRAMES_AT_ONCE)
            place[:, some] = normalised(view.frames[some], view.normalisation)
    return stack


def _joined(parts: Sequence[Tensor], none: Tensor) -> Tensor:
    return torch.cat([none, *parts])


def _clip_index(num_rows: Sequence[int]) -> Int[Tensor, " rows"]:
    return torch.repeat_interleave(torch.tensor(num_rows, dtype=torch.int64))


def _no_index() -> Int[Tensor, " rows"]:
    return torch.zeros(0, dtype=torch.int64)
