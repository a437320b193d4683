"""What relations are made of: the context of every clip, and the actors and objects found in it.

From features to relations, as far as both kinds go together: a map per pair, or per actor and object.

    vector ────┐
               ├─ + ─ LeakyReLU ─ 3×3 ─ GroupNorm ─ LeakyReLU ─ max pool ─ relation blocks ─ mean over cells
    W_X · X ───┘

The paper concatenates [A | X | O] along channels and convolves with a 1×1 kernel W = [W_A | W_X | W_O]. That is
W_A·A + W_X·X + W_O·O: two vectors and one map, added. The concatenation, of 3C channels per pair, is never made.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor, nn

from mule.core.errors import RangeError, ShapeError
from mule.relations.block import MapConvolution, RelationBlock, Seats


@dataclass(frozen=True)
class SceneFeatures:
    """Context maps, one per clip and of any size; the actors and objects of all clips flat, with their clips.

    A batch of clips of one size is `context=tuple(batch)`. A clip without actors or objects simply has no rows.
    """

    context: tuple[Float[Tensor, "channels _rows _cols"], ...]
    """X of each clip: its feature map, averaged over time."""
    actors: Float[Tensor, "actors channels"]
    """A: one feature per actor, in any order."""
    actor_clip_index: Int[Tensor, " actors"]
    objects: Float[Tensor, "objects channels"]
    """O: one feature per object, in any order."""
    object_clip_index: Int[Tensor, " objects"]

    def __post_init__(self) -> None:
        problems = [
            *self._shape_problems(),
            *_index_problems("actor", self.actors, self.actor_clip_index),
            *_index_problems("object", self.objects, self.object_clip_index),
        ]
        if problems:
            raise ShapeError(" ".join(problems))
        self._require_known_clips("actor_clip_index", self.actor_clip_index)
        self._require_known_clips("object_clip_index", self.object_clip_index)

    @property
    def num_clips(self) -> int:
        """How many clips there are, with actors or without."""
        return len(self.context)

    @property
    def channels(self) -> int:
        """C: the length of every feature."""
        return self.actors.shape[1]

    @cached_property
    def context_means(self) -> Float[Tensor, "clips channels"]:
        """X of each clip, averaged over its cells."""
        return torch.stack([each.mean(dim=(1, 2)) for each in self.context])

    def clips_by_size(self) -> list[list[int]]:
        """The clips whose maps have as many rows and columns as each other: they can be worked on together."""
        clips: dict[torch.Size, list[int]] = {}
        for clip, each in enumerate(self.context):
            clips.setdefault(each.shape, []).append(clip)
        return list(clips.values())

    def _shape_problems(self) -> list[str]:
        problems: list[str] = []
        if any(each.ndim != 3 for each in self.context) or self.actors.ndim != 2 or self.objects.ndim != 2:
            problems.append(
                "context maps must be (channels, rows, cols), actors and objects (number, channels); got "
                f"{[tuple(each.shape) for each in self.context]}, {tuple(self.actors.shape)} and "
                f"{tuple(self.objects.shape)}."
            )
            return problems
        found = (*self.context, *(each.T for each in (self.actors, self.objects)))
        if len({each.shape[0] for each in found}) > 1:
            problems.append(
                f"context, actors and objects must have the same channels; got {[len(each) for each in self.context]}, "
                f"{self.actors.shape[1]} and {self.objects.shape[1]}. Pool actors and objects from the context map."
            )
        kinds = sorted({f"{each.dtype} on {each.device}" for each in found})
        if len(kinds) > 1 or not self.actors.is_floating_point():
            problems.append(
                f"context, actors and objects must share one floating-point type and device; got {', '.join(kinds)}."
            )
        return problems

    def _require_known_clips(self, name: str, clip_index: Tensor) -> None:
        is_recording = torch.compiler.is_compiling() or torch.jit.is_tracing()
        if is_recording or len(clip_index) == 0:  # a check of values has no place in a graph
            return
        least, most = int(clip_index.min()), int(clip_index.max())
        if least < 0 or most >= self.num_clips:
            raise RangeError(
                f"{name} must name one of {self.num_clips} clips, from 0; got values from {least} to {most}."
            )


def _index_problems(name: str, features: Tensor, clip_index: Tensor) -> list[str]:
    if clip_index.shape == features.shape[:1] and clip_index.dtype == torch.int64:
        return []
    return [
        f"{name}_clip_index must be one int64 per {name}; got {tuple(clip_index.shape)} of {clip_index.dtype} for "
        f"{len(features)} {name}s."
    ]


@dataclass(frozen=True)
class ActorAttention:
    """How much each actor looks at the actors and the objects of its clip; zero for those of other clips.

    What is missing to one went to the null object, which stands in where a clip has no objects.
    """

    to_actors: Float[Tensor, "actors actors"]
    to_objects: Float[Tensor, "actors objects"]


@dataclass(frozen=True)
class RelationSettings:
    """The sizes of relations; the defaults are those of the authors' released code."""

    width: int = 512
    """Channels of every map after the first, 1×1 convolution."""
    depth: int = 2
    """Relation blocks, one after the other."""
    kernel_size: int = 3
    """Side of every convolution after the first; odd."""
    padding: int = 0
    """Cells of zeros around the map before the first of these; in relation blocks maps keep their size."""
    is_downsampled: bool = True
    """Whether a maximum over 3×3 cells at every second cell comes before the relation blocks."""
    is_normalised: bool = True
    """Whether group normalisation follows the first spatial convolution; ACAR has none there."""
    slope: float = 0.1
    """LeakyReLU's slope below zero, outside relation blocks."""
    block_slope: float = 0.3
    """The same, inside them."""
    block_dropout: float = 0.2
    """Share of values dropped at the end of each relation block while training."""
    dropout: float = 0.0
    """Share of an actor's relational feature dropped while training."""

    def __post_init__(self) -> None:
        rules = {
            "width and depth must be at least 1": min(self.width, self.depth) >= 1,
            "kernel_size must be odd": self.kernel_size >= 1 and self.kernel_size % 2 == 1,
            "padding must not be below 0": self.padding >= 0,
            "slope and block_slope must not be below 0": min(self.slope, self.block_slope) >= 0,
            "dropout and block_dropout must lie in [0, 1)": all(
                0 <= each < 1 for each in (self.dropout, self.block_dropout)
            ),
        }
        broken = [rule for rule, holds in rules.items() if not holds]
        if broken:
            raise RangeError(f"{'; '.join(broken)}; got {self}.")


PUBLISHED = RelationSettings()


@dataclass(frozen=True)
class SizedContext:
    """W_X·X of the clips whose maps have one size, channels last."""

    clips: Int[Tensor, " clips"]
    """Which clips these are, in rising order."""
    maps: Float[Tensor, "clips rows cols width"]


@dataclass(frozen=True)
class MixedFeatures:
    """W_A·A, W_X·X and W_O·O. Every clip has at least one object here, if need be the null object."""

    actors: Float[Tensor, "actors width"]
    actor_clip_index: Int[Tensor, " actors"]
    objects: Float[Tensor, "objects width"]
    """Null objects come after the objects of the scene."""
    object_clip_index: Int[Tensor, " objects"]
    context: tuple[SizedContext, ...]


class FeatureMixing(nn.Module):
    """W = [W_A | W_X | W_O]: the 1×1 convolution of the concatenation, kept as one weight and used in three parts.

    Where a clip has no objects, a learned null object takes their place; it starts at zero.
    """

    def __init__(self, channels: int, width: int) -> None:
        super().__init__()
        self.channels = channels
        self.convolution = nn.Conv2d(3 * channels, width, 1, bias=False)
        self.null_object = nn.Parameter(torch.zeros(channels))

    def forward(self, scene: SceneFeatures) -> MixedFeatures:
        """The three products, none of them larger than a map per clip."""
        if scene.channels != self.channels:
            raise ShapeError(
                f"features must have the {self.channels} channels these relations were made for; got {scene.channels}."
            )
        of_actors, of_context, of_objects = self.convolution.weight.flatten(1).split(self.channels, dim=1)
        num_objects = torch.bincount(scene.object_clip_index, minlength=scene.num_clips)
        without_objects = (num_objects == 0).nonzero().squeeze(1)
        objects = torch.cat([scene.objects, self.null_object.expand(len(without_objects), -1)])
        context = (
            SizedContext(
                clips=scene.actor_clip_index.new_tensor(clips),
                maps=F.linear(torch.stack([scene.context[clip].movedim(0, 2) for clip in clips]), of_context),
            )
            for clips in scene.clips_by_size()
        )
        return MixedFeatures(
            actors=F.linear(scene.actors, of_actors),
            actor_clip_index=scene.actor_clip_index,
            objects=F.linear(objects, of_objects),
            object_clip_index=torch.cat([scene.object_clip_index, without_objects]),
            context=tuple(context),
        )


@dataclass(frozen=True)
class SizedAttention:
    """Who attended to whom in clips of one size with as many maps each, block after block."""

    rows: Int[Tensor, " maps"]
    """Which of all maps these are."""
    seats: Seats
    weights: tuple[Float[Tensor, "clips cells _asking_seats seats"], ...]


class MapRelations(nn.Module):
    """One vector per map, after maps of the same clip have attended to each other at every cell."""

    def __init__(self, settings: RelationSettings) -> None:
        super().__init__()
        self.settings = settings
        width, kernel_size = settings.width, settings.kernel_size
        self.convolution = MapConvolution(width, kernel_size, padding=settings.padding)
        self.norm = nn.GroupNorm(1, width) if settings.is_normalised else nn.Identity()
        self.pool = nn.MaxPool2d(3, stride=2, padding=1) if settings.is_downsampled else nn.Identity()
        self.blocks = nn.ModuleList(
            RelationBlock(
                width,
                kernel_size=kernel_size,
                slope=settings.block_slope,
                dropout=settings.block_dropout,
            )
            for _ in range(settings.depth)
        )
        # maps are channels last: a CPU need not turn the weights at every pass
        nn.utils.convert_conv2d_weight_memory_format(self, torch.channels_last)

    def forward(
        self,
        vectors: Float[Tensor, "maps width"],
        clip_index: Int[Tensor, " maps"],
        context: tuple[SizedContext, ...],
        *,
        num_asking: int,
    ) -> tuple[Float[Tensor, "asking width"], tuple[SizedAttention, ...]]:
        """The first `num_asking` maps, averaged over cells; the others are only attended to."""
        related = vectors.new_zeros(num_asking, vectors.shape[1])
        attention: list[SizedAttention] = []
        for part in context:
            for alike in clips_alike(clip_index, part.clips):
                rows = torch.isin(clip_index, alike).nonzero().squeeze(1)
                asking_rows = rows[rows < num_asking]
                spread = self._mapped(vectors[rows], part, clip_index[rows])
                table = torch.searchsorted(alike, clip_index[rows])
                asked = Seats.of(table, len(alike))
                asking = Seats.of(table[: len(asking_rows)], len(alike))
                maps, weights = self._attended(spread, asking, asked)
                means = maps.mean(dim=(2, 3))
                related = related.to(means.dtype)  # norms widen under autocast
                related = related.index_copy(0, asking_rows, means)
                attention.append(SizedAttention(rows, asked, weights))
        return related, tuple(attention)

    def _mapped(
        self,
        vectors: Float[Tensor, "maps width"],
        context: SizedContext,
        clip_index: Int[Tensor, " maps"],
    ) -> Float[Tensor, "maps width _rows _cols"]:
        """Each vector spread over the context of its clip, seen through a spatial convolution."""
        self._require_large_enough(context.maps)
        # The largest tensor of the pass, made once and changed in place: no step needs what it was before.
        spread = context.maps.index_select(0, torch.searchsorted(context.clips, clip_index))
        maps = F.leaky_relu_(spread.add_(vectors[:, None, None]), self.settings.slope)
        maps = F.leaky_relu_(self.norm(self.convolution(maps.movedim(3, 1))), self.settings.slope)
        return self.pool(maps)

    def _attended(
        self, maps: Float[Tensor, "maps width rows cols"], asking: Seats, asked: Seats
    ) -> tuple[Float[Tensor, "asking width rows cols"], tuple[Tensor, ...]]:
        """The maps that ask, after all blocks. In the last block nothing else needs an answer."""
        weights: list[Tensor] = []
        for block in self.blocks:
            is_last = block is self.blocks[-1]
            maps, found = block(maps, asking=asking if is_last else asked, asked=asked)
            weights.append(found)
        return maps, tuple(weights)

    def _require_large_enough(self, context: Float[Tensor, "clips rows cols width"]) -> None:
        rows, cols = context.shape[1:3]
        least = self.settings.kernel_size - 2 * self.settings.padding
        if min(rows, cols) < max(least, 1):
            raise ShapeError(
                f"context maps must have at least {max(least, 1)} rows and columns for kernel_size "
                f"{self.settings.kernel_size} and padding {self.settings.padding}; got {rows} × {cols}. Take a larger "
                "input, or set padding."
            )


def clips_alike(
    clip_index: Int[Tensor, " maps"], clips: Int[Tensor, " clips"]
) -> Iterator[Int[Tensor, " alike"]]:
    """Those of the clips that have as many maps as each other, group after group: seated together, no seat stays empty.

    Attention costs the square of the seats, so one crowded clip would make every other as dear as itself.
    """
    num_maps = torch.bincount(clip_index, minlength=int(clips.max()) + 1 if len(clips) else 0)[clips]
    for number in num_maps.unique():
        yield clips[num_maps == number]


def mean_attention(
    attention: tuple[SizedAttention, ...], *, num_asking: int, num_maps: int
) -> Float[Tensor, "asking maps"]:
    """The weight that each asking map gave to each map, averaged over cells and blocks; zero across clips."""
    mean = torch.zeros(num_asking, num_maps)
    for part in attention:
        clip, seat = part.seats.clip_index, part.seats.seat
        asking = part.rows < num_asking
        is_same_clip = clip[asking, None] == clip
        of_blocks = [
            each.detach().mean(dim=1)[clip[asking, None], seat[asking, None], seat] for each in part.weights
        ]
        mean = mean.to(of_blocks[0])
        mean[part.rows[asking, None], part.rows] = torch.stack(of_blocks).mean(dim=0) * is_same_clip
    return mean


class ActorFeature(nn.Module):
    """What relates to an actor beside what it looks like itself: [H | LeakyReLU(W·A)]."""

    def __init__(self, channels: int, settings: RelationSettings) -> None:
        super().__init__()
        self.slope = settings.slope
        self.linear = nn.Linear(channels, settings.width, bias=False)
        self.dropout = nn.Dropout(settings.dropout)

    def forward(
        self, related: Float[Tensor, "actors width"], actors: Float[Tensor, "actors channels"]
    ) -> Float[Tensor, "actors dim"]:
        """One relational feature per actor, twice as long as maps are wide."""
        return self.dropout(torch.cat([related, F.leaky_relu(self.linear(actors), self.slope)], dim=1))
