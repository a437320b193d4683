"""What relations are made of: the context of every clip, and the actors and objects found in it."""

from dataclasses import dataclass
from functools import cached_property

import torch
from jaxtyping import Float, Int
from torch import Tensor

from mule.core.errors import RangeError, ShapeError


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
