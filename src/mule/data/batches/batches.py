"""Which clips make which batch, and the batch they make.

*Order.* One order of draws per epoch, from the seed and the epoch alone. Consecutive draws make global batches, and rank
r of R takes draws r, r + R, r + 2R, … of each. So every global batch is the same for any number of ranks, all ranks
have the same number of batches, and no clip is read twice or forgotten. The last global batch may be smaller: it is
spread like the others, and a rank that gets nothing of it has an empty batch; or it is dropped on all ranks.

*Batch.* Pixels in stacks, actors and objects in flat rows, each with its clip. Nothing is padded. Consecutive clips of
one size make a stack; clips keep their order across stacks. A clip without actors has no rows, and a batch without
clips (none could be read) has no stacks.
"""

import hashlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, fields, replace
from itertools import groupby

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from mule.core.errors import RangeError, ShapeError
from mule.data.batches.samples import ClipName, ClipSample, ViewedClip
from mule.video.transforms import normalised

_FRAMES_AT_ONCE = 2


@dataclass(frozen=True)
class BatchOrder:
    """One rank's share of one global batch: positions in the data set, and the number of each draw in its epoch."""

    epoch: int
    positions: tuple[int, ...]
    draws: tuple[int, ...]


@dataclass(frozen=True, eq=False)
class ClipSampler:
    """The batches of every epoch, for one rank."""

    num_clips: int
    batch_clips: int
    """Clips of a global batch, all ranks together."""
    seed: int = 0
    is_shuffled: bool = True
    """Whether each epoch visits the clips in a new order; otherwise in the order of the data set."""
    weights: Float[np.ndarray, " clips"] | None = field(default=None, repr=False)
    """How likely each clip is drawn. An epoch is then `num_clips` draws with replacement. None visits every clip exactly
    once."""
    drops_last: bool = False
    """Whether a last global batch with fewer clips is dropped."""
    rank: int = 0
    num_ranks: int = 1

    def __post_init__(self) -> None:
        if self.num_clips < 0 or self.seed < 0 or not 0 <= self.rank < self.num_ranks:
            raise RangeError(
                "num_clips and seed must not be below zero, and rank must be one of num_ranks, from 0; got "
                f"{self.num_clips}, {self.seed}, and rank {self.rank} of {self.num_ranks}."
            )
        if self.batch_clips < self.num_ranks:
            raise RangeError(
                f"batch_clips counts the clips of all ranks and must be at least {self.num_ranks}, one for each; got "
                f"{self.batch_clips}."
            )
        if self.weights is not None:
            _require_weights(self.weights, self.num_clips, is_shuffled=self.is_shuffled)

    @property
    def num_batches(self) -> int:
        """The number of batches in an epoch, the same on every rank."""
        return (
            self.num_clips // self.batch_clips if self.drops_last else -(-self.num_clips // self.batch_clips)
        )

    @property
    def num_own_clips(self) -> int:
        """The number of clips that this rank reads in an epoch."""
        whole, rest = divmod(self.num_clips, self.batch_clips)
        in_last = 0 if self.drops_last else len(range(self.rank, rest, self.num_ranks))
        return whole * len(range(self.rank, self.batch_clips, self.num_ranks)) + in_last

    def order(self, epoch: int) -> Int[np.ndarray, " draws"]:
        """Return the position of every draw of an epoch, for all ranks together."""
        if not self.is_shuffled:
            return np.arange(self.num_clips)
        generator = np.random.default_rng(np.random.SeedSequence(self.seed, spawn_key=(epoch,)))
        if self.weights is None:
            return generator.permutation(self.num_clips)
        shares = self.weights / self.weights.sum()
        return generator.choice(self.num_clips, size=self.num_clips, replace=True, p=shares)

    def batches(self, epoch: int, *, first: int = 0) -> Iterator[BatchOrder]:
        """Yield this rank's batches of an epoch, from number `first` on."""
        order = self.order(epoch)
        for number in range(first, self.num_batches):
            end = min((number + 1) * self.batch_clips, self.num_clips)
            draws = range(number * self.batch_clips + self.rank, end, self.num_ranks)
            yield BatchOrder(epoch, tuple(order[list(draws)].tolist()), tuple(draws))

    def draw_seed(self, epoch: int, draw: int) -> int:
        """Return the seed of all randomness in one draw: the same wherever and whenever it is read."""
        sequence = np.random.SeedSequence(self.seed, spawn_key=(epoch, draw))
        return int(sequence.generate_state(1, np.uint32)[0])

    def settings(self) -> dict[str, int | bool | str]:
        """Return everything that decides which clips make which global batch; the number of ranks does not."""
        weights = (
            b"" if self.weights is None else np.ascontiguousarray(self.weights, dtype=np.float64).tobytes()
        )
        return {
            "num_clips": self.num_clips,
            "batch_clips": self.batch_clips,
            "seed": self.seed,
            "is_shuffled": self.is_shuffled,
            "drops_last": self.drops_last,
            "weights_sha256": hashlib.sha256(weights).hexdigest() if weights else "",
        }


def class_balanced_weights(
    labels: Bool[np.ndarray, "actors classes"],
    clip_index: Int[np.ndarray, " actors"],
    *,
    num_clips: int,
) -> Float[np.ndarray, " clips"]:
    """Return weights, summing to one, that draw clips of rare classes about as often as those of common ones.

    A class weighs 1 / (actors that do it), an actor the mean of its classes, a clip the largest of its
    actors. An actor without labels weighs nothing; a clip of such actors, or of none, is never drawn.

    Raises:
        RangeError: no actor has a label.
    """
    frequency = labels.sum(axis=0)
    class_weight = np.divide(1.0, frequency, out=np.zeros(len(frequency)), where=frequency > 0)
    actor_weight = labels @ class_weight / np.maximum(labels.sum(axis=1), 1)
    weights = np.zeros(num_clips)
    np.maximum.at(weights, clip_index, actor_weight)
    if not weights.sum() > 0:
        raise RangeError(
            f"class-balanced drawing needs actors with labels; none of {len(labels)} actors in {num_clips} clips has "
            "any of the classes."
        )
    return weights / weights.sum()


def _require_weights(weights: Float[np.ndarray, " clips"], num_clips: int, *, is_shuffled: bool) -> None:
    if not is_shuffled:
        raise RangeError(
            "weights need random draws; got weights with is_shuffled=False. Leave one of them out."
        )
    is_usable = len(weights) == num_clips and np.isfinite(weights).all() and (weights >= 0).all()
    if not (is_usable and weights.sum() > 0):
        raise RangeError(
            f"weights must be {num_clips} numbers of zero or more, one per clip, not all zero; got {len(weights)}, "
            f"from {weights.min(initial=np.inf)} to {weights.max(initial=-np.inf)}."
        )


@dataclass(frozen=True)
class ActorBatch:
    """A batch of clips. Boxes are in pixels of their own clip's view."""

    pixels: tuple[Float[Tensor, "_ channels frames _ _"], ...]
    """(clips, channels, frames, rows, cols): one stack for each run of clips that share a size."""
    clip_names: tuple[ClipName, ...]
    positions: Int[Tensor, " clips"]
    """The position of each clip in the data set."""
    actor_boxes_xyxy_px: Float[Tensor, "actors 4"]
    actor_clip_index: Int[Tensor, " actors"]
    actor_index: Int[Tensor, " actors"]
    """The number of each actor within its sample, however many actors the crop has lost."""
    labels: Bool[Tensor, "actors classes"]
    actor_ids: tuple[str, ...]
    object_boxes_xyxy_px: Float[Tensor, "objects 4"]
    object_clip_index: Int[Tensor, " objects"]
    object_class: Int[Tensor, " objects"]
    object_scores: Float[Tensor, " objects"]
    num_lost_actors: int = 0
    """Actors of these clips that are not in view."""
    num_damaged: int = 0
    """Damaged pieces that the decoder skipped or concealed in these clips."""

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
        ):  # checked when it was made; reading values here would wait for the GPU
            return
        for index in (self.actor_clip_index, self.object_clip_index):
            if len(index) and not 0 <= int(index.min()) <= int(index.max()) < num_pixels:
                raise ShapeError(
                    f"a clip index must name one of {num_pixels} clips, from 0; got {index.tolist()}."
                )

    @property
    def num_clips(self) -> int:
        """The number of clips; it may be zero."""
        return len(self.clip_names)

    @property
    def num_actors(self) -> int:
        """The number of actors in all clips; it may be zero."""
        return len(self.labels)

    @property
    def stack(self) -> Float[Tensor, "clips channels frames rows cols"]:
        """Return the pixels of all clips in one tensor.

        Raises:
            ShapeError: the clips differ in size, or there are none.
        """
        if len(self.pixels) == 1:
            return self.pixels[0]
        sizes = sorted({tuple(stack.shape[3:]) for stack in self.pixels})
        raise ShapeError(
            f"one stack needs clips of one size; this batch of {self.num_clips} has {len(sizes)}: {sizes[:4]} (rows, "
            "columns). Iterate over `pixels`, crop, or load one clip at a time."
        )

    def to(self, device: torch.device | str, *, non_blocking: bool = False) -> "ActorBatch":
        """Return the batch on a device."""
        return self._each(lambda tensor: tensor.to(device, non_blocking=non_blocking))

    def pin_memory(self) -> "ActorBatch":
        """Return the batch in pinned memory. DataLoader calls this by name."""
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
    """Put clips together into a batch, in their order; without clips it is empty.

    Args:
        clips: the clips of the batch.
        num_classes: columns of the labels.
        is_shared: whether pixels are written directly into memory shared with other processes.
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
    """Stack the pixels of clips of one size. A few frames at a time fit the CPU cache; whole clips do not."""
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
