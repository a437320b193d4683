"""Asynchronous interaction aggregation (Tang et al., ECCV 2020), whole: actors attend to persons, objects and memory.

    block X in {P, O, M}:  q = actor;  shortcut(q) + W·ReLU(LayerNorm(softmax(q·kᵀ/√d) v))

`serial` chains P, O, M, P, O, M. `dense_serial` gives each block from the third on a learned mixture of all earlier
outputs. `parallel` has a branch of two blocks for each kind and adds them. The last block of a chain returns to the
channels of the actor, to which the result is added; two layers follow. A later P block attends to the persons as the
blocks before have left them.

Memory is the pooled features of the persons of the clip itself (without gradients) and of its neighbours within 30 s, up to
five of each clip; k and v have a learned part for each second. The features of neighbours come from the asynchronous
memory update (`mule.rivals.networks.clip_memory`). A clip without neighbours attends to its own persons at second 0, as
in the released code.

Differences from the released code: an empty place is never attended to (there, clips are padded with zeros that take
part), so an actor whose clip has no objects keeps its query; all persons and objects of a clip are attended to (there, at
most 25 and 5, drawn at random); the first five persons of a clip are remembered (there, five drawn at random).
"""

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from mule.core.errors import ShapeError
from mule.relations.aco import SceneFeatures
from mule.relations.maps import Seats
from mule.relations.remembered import MemorySpan
from mule.rivals.networks.aia import (
    PUBLISHED_AIA,
    AiaSettings,
    Structure,
    attended,
    mixture_of,
    mixture_start,
    near_clip,
)

KINDS = ("person", "object", "memory")
INITIAL_DEVIATION = 0.01


@dataclass(frozen=True)
class Asked:
    """What a block attends to: reduced features, which actors they are near to and, of a memory, their second."""

    features: Float[Tensor, "asked width"]
    is_near: Bool[Tensor, "actors asked"]
    second: Int[Tensor, " asked"] | None = None
    """From 0, for the earliest second of the span."""


class MemoryBlock(nn.Module):
    """Attention to one kind of thing; what it is told starts at zero."""

    def __init__(self, width: int, out_channels: int, *, dropout: float, num_seconds: int | None) -> None:
        super().__init__()
        self.query, self.key, self.value = (_linear(width, width) for _ in range(3))
        self.out = _linear(width, out_channels, deviation=0.0)
        self.shortcut = nn.Identity() if out_channels == width else _linear(width, out_channels)
        self.dropout = nn.Dropout(dropout)
        self.seconds = None if num_seconds is None else nn.Parameter(torch.zeros(2, num_seconds, width))

    def forward(self, asking: Float[Tensor, "actors width"], asked: Asked) -> Float[Tensor, "actors out"]:
        """Return the query plus what it was told; an actor with nobody to ask is told nothing."""
        key, value = self.key(asked.features), self.value(asked.features)
        if self.seconds is not None:
            of_key, of_value = self.seconds[:, asked.second]
            key, value = key + of_key, value + of_value
        told = self.out(attended(self.query(asking), key, value, asked.is_near))
        return self.shortcut(asking) + self.dropout(told) * asked.is_near.any(dim=1, keepdim=True)


class AiaMemoryRelations(nn.Module):
    """One feature per actor from its interactions with persons, objects and the persons of neighbouring clips."""

    span = MemorySpan(seconds=30, actors_per_clip=5, fades=True)

    def __init__(self, channels: int, settings: AiaSettings = PUBLISHED_AIA) -> None:
        super().__init__()
        self.structure: Structure = settings.structure
        width, dropout = settings.width, settings.dropout
        self.dim = width
        self.reduce = nn.ModuleDict({kind: _linear(channels, width) for kind in ("query", *KINDS)})
        self.blocks = nn.ModuleList(
            MemoryBlock(
                width,
                channels if at in self._last() else width,
                dropout=dropout,
                num_seconds=2 * self.span.seconds + 1 if kind == "memory" else None,
            )
            for at, kind in enumerate(2 * KINDS)
        )
        self.mixture = nn.ParameterList(
            mixture_start(at, width) for at in range(2, len(self.blocks)) if self.structure == "dense_serial"
        )
        self.fc1, self.fc2 = _layer(channels, width), _layer(width, width)
        self.dropout = nn.Dropout(dropout)

    def forward(self, scene: SceneFeatures) -> Float[Tensor, "actors dim"]:
        """Return the actor's own feature plus its interactions, through two layers."""
        actors = scene.actors
        asked = {
            "person": Asked(self._reduced("person", actors), near_clip(scene, scene.actor_clip_index)),
            "object": Asked(
                self._reduced("object", scene.objects), near_clip(scene, scene.object_clip_index)
            ),
            "memory": self._memory(scene),
        }
        aggregate = self._branches if self.structure == "parallel" else self._chain
        interacted = aggregate(self._reduced("query", actors), asked)
        return self.dropout(F.relu(self.fc2(F.relu(self.fc1(actors + interacted)))))

    def remembering(
        self, scene: SceneFeatures
    ) -> tuple[Float[Tensor, "actors dim"], tuple[Float[Tensor, "_actors channels"], ...]]:
        """Return one feature per actor; what is remembered of an actor is its pooled feature."""
        seen, clip_index = scene.actors.detach(), scene.actor_clip_index
        return self(scene), tuple(seen[clip_index == clip] for clip in range(scene.num_clips))

    def _last(self) -> range:
        """The blocks that return to the channels of the actor."""
        num_blocks = 2 * len(KINDS)
        return range(num_blocks - (len(KINDS) if self.structure == "parallel" else 1), num_blocks)

    def _reduced(self, kind: str, features: Tensor) -> Float[Tensor, "rows width"]:
        return self.dropout(self.reduce[kind](features))

    def _memory(self, scene: SceneFeatures) -> Asked:
        """The first actors of each clip itself, at second 0, and its neighbours."""
        half = self.span.seconds
        stray = [each.offset_s for each in scene.remembered if abs(each.offset_s) > half]
        if stray:
            raise ShapeError(f"memory must lie within {half} s of the key time; got {stray[0]} s from it.")
        clip = scene.actor_clip_index
        is_first = Seats.of(clip, scene.num_clips).seat < self.span.actors_per_clip
        own, clips = scene.actors.detach()[is_first], clip[is_first]
        counts = clip.new_tensor([len(each.actors) for each in scene.remembered])
        near = clip.new_tensor([each.near_clip for each in scene.remembered]).repeat_interleave(counts)
        offset_s = clip.new_tensor([each.offset_s for each in scene.remembered]).repeat_interleave(counts)
        features = torch.cat([own, *(each.actors.to(own) for each in scene.remembered)])
        return Asked(
            self._reduced("memory", features),
            near_clip(scene, torch.cat([clips, near])),
            torch.cat([torch.zeros_like(clips), offset_s]) + half,
        )

    def _chain(
        self, query: Float[Tensor, "actors width"], asked: dict[str, Asked]
    ) -> Float[Tensor, "actors channels"]:
        told: list[Tensor] = []
        for at, (kind, block) in enumerate(zip(2 * KINDS, self.blocks, strict=True)):
            if self.structure == "dense_serial" and at >= 2:
                query = mixture_of(told, self.mixture[at - 2])
            if at and kind == "person":
                asked = {**asked, kind: Asked(query, asked[kind].is_near)}
            query = block(query, asked[kind])
            told.append(query)
        return query

    def _branches(
        self, query: Float[Tensor, "actors width"], asked: dict[str, Asked]
    ) -> Float[Tensor, "actors channels"]:
        ends: list[Tensor] = []
        for kind, first, second in zip(KINDS, self.blocks[:3], self.blocks[3:], strict=True):
            halfway = first(query, asked[kind])
            later = Asked(halfway, asked[kind].is_near) if kind == "person" else asked[kind]
            ends.append(second(halfway, later))
        return torch.stack(ends).sum(dim=0)


def _linear(channels: int, width: int, *, deviation: float = INITIAL_DEVIATION) -> nn.Linear:
    layer = nn.Linear(channels, width)
    nn.init.normal_(layer.weight, std=deviation)
    nn.init.zeros_(layer.bias)
    return layer


def _layer(channels: int, width: int) -> nn.Linear:
    layer = nn.Linear(channels, width)
    nn.init.kaiming_uniform_(layer.weight, a=1)
    nn.init.zeros_(layer.bias)
    return layer
