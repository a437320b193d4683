"""Asynchronous interaction aggregation (Tang et al., ECCV 2020).

Actors attend to persons, objects and memory in turn.

    block X in {P, O, M}:  q = actor, k = v = what it attends to;  q + W·ReLU(LayerNorm(softmax(q·kᵀ/√d) v))

`serial` chains P, O, M, P, O, M. `dense_serial` gives each block from the third on a learned mixture of all
earlier outputs. `parallel` adds the outputs of one P, one O and one M block. Without memory there are no M
blocks.

Differences from the released code: an empty place is never attended to (there, clips are padded with zeros
that take part), and an actor whose clip has no objects or no memory keeps its query unchanged.
"""

from dataclasses import dataclass
from typing import Literal

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from mule.core.errors import RangeError, ShapeError
from mule.relations.aco import SceneFeatures

Structure = Literal["serial", "dense_serial", "parallel"]
Kind = Literal["person", "object", "memory"]

EARLIER_START = (
    -5 * 2.302585092994046
)  # softmax starts at the latest output; an earlier one has a weight of 1e-5
MEMORY_SPAN = 61
"""Seconds of memory, told apart by an embedding: the key time and 30 on each side."""


@dataclass(frozen=True)
class RememberedActors:
    """Actors of the same video at other times, from the asynchronous memory."""

    features: Float[Tensor, "remembered channels"]
    clip_index: Int[Tensor, " remembered"]
    """The clip of the batch that they belong to."""
    offset_s: Int[Tensor, " remembered"]
    """How many seconds after the clip's key time; from −30 to 30."""


class InteractionBlock(nn.Module):
    """Attention to one kind of thing; its output starts at zero, so a new block changes nothing."""

    def __init__(self, width: int, *, dropout: float) -> None:
        super().__init__()
        self.query = nn.Linear(width, width)
        self.key = nn.Linear(width, width)
        self.value = nn.Linear(width, width)
        self.out = nn.Linear(width, width)
        self.dropout = nn.Dropout(dropout)
        nn.init.zeros_(self.out.weight)
        nn.init.zeros_(self.out.bias)

    def forward(
        self,
        asking: Float[Tensor, "actors width"],
        asked: Float[Tensor, "asked width"],
        is_near: Bool[Tensor, "actors asked"],
    ) -> Float[Tensor, "actors width"]:
        """The query plus what it was told; an actor with nobody to ask stays as it is."""
        likeness = self.query(asking) @ self.key(asked).T / asking.shape[1] ** 0.5
        weight = likeness.masked_fill(~is_near, torch.finfo(likeness.dtype).min).softmax(dim=1) * is_near
        told = F.relu(F.layer_norm(weight @ self.value(asked), asking.shape[1:]))
        return asking + self.dropout(self.out(told)) * is_near.any(dim=1, keepdim=True)


class AiaRelations(nn.Module):
    """One feature per actor from its interactions with persons, objects and, if there is one, memory."""

    def __init__(
        self,
        channels: int,
        *,
        width: int = 1024,
        structure: Structure = "dense_serial",
        has_memory: bool = False,
        dropout: float = 0.2,
    ) -> None:
        super().__init__()
        if structure not in ("serial", "dense_serial", "parallel"):
            raise RangeError(f"structure must be serial, dense_serial or parallel; got {structure!r}.")
        self.structure: Structure = structure
        self.channels = channels
        self.dim = width
        kinds: tuple[Kind, ...] = ("person", "object", "memory") if has_memory else ("person", "object")
        self.kinds = kinds if structure == "parallel" else 2 * kinds
        self.reduce_query = nn.Sequential(nn.Linear(channels, width), nn.Dropout(dropout))
        self.reduce = nn.ModuleDict(
            {kind: nn.Sequential(nn.Linear(channels, width), nn.Dropout(dropout)) for kind in kinds}
        )
        self.blocks = nn.ModuleList(InteractionBlock(width, dropout=dropout) for _ in self.kinds)
        self.offset = nn.Embedding(MEMORY_SPAN, width) if has_memory else None
        self.mixture = nn.ParameterList(
            _mixture_start(at, width) for at in range(2, len(self.kinds)) if structure == "dense_serial"
        )
        self.person = nn.Linear(channels, width)
        self.fc1, self.fc2 = nn.Linear(width, width), nn.Linear(width, width)
        self.dropout = nn.Dropout(dropout)

    def forward(
        self, scene: SceneFeatures, memory: RememberedActors | None = None
    ) -> Float[Tensor, "actors dim"]:
        """The actor's own feature plus its interactions, through two layers."""
        asked = {
            "person": (self.reduce["person"](scene.actors), _near(scene, scene.actor_clip_index)),
            "object": (self.reduce["object"](scene.objects), _near(scene, scene.object_clip_index)),
        }
        if self.offset is not None:
            asked["memory"] = self._remembered(scene, memory, self.offset)
        interacted = self._interacted(self.reduce_query(scene.actors), asked)
        x = F.relu(self.fc1(self.person(scene.actors) + interacted))
        return self.dropout(F.relu(self.fc2(x)))

    def _interacted(
        self, query: Float[Tensor, "actors width"], asked: dict[str, tuple[Tensor, Tensor]]
    ) -> Float[Tensor, "actors width"]:
        told: list[Tensor] = []
        for at, (kind, block) in enumerate(zip(self.kinds, self.blocks, strict=True)):
            if self.structure == "parallel" or at == 0:
                asking = query
            elif self.structure == "serial" or at == 1:
                asking = told[-1]
            else:
                weight = self.mixture[at - 2].softmax(dim=0)  # (earlier blocks, width)
                asking = (weight[:, None] * torch.stack(told)).sum(dim=0)
            told.append(block(asking, *asked[kind]))
        return torch.stack(told).sum(dim=0) if self.structure == "parallel" else told[-1]

    def _remembered(
        self, scene: SceneFeatures, memory: RememberedActors | None, offset: nn.Embedding
    ) -> tuple[Float[Tensor, "remembered width"], Bool[Tensor, "actors remembered"]]:
        if memory is None:
            nobody = scene.actor_clip_index[:0]
            memory = RememberedActors(scene.actors[:0], nobody, nobody)
        half = MEMORY_SPAN // 2
        if len(memory.offset_s) and int(memory.offset_s.abs().max()) > half:
            raise ShapeError(
                f"memory must lie within {half} s of the key time; got offsets from "
                f"{int(memory.offset_s.min())} to {int(memory.offset_s.max())} s."
            )
        features = self.reduce["memory"](memory.features) + offset(memory.offset_s + half)
        return features, _near(scene, memory.clip_index)


def _near(scene: SceneFeatures, clip_index: Int[Tensor, " asked"]) -> Bool[Tensor, "actors asked"]:
    """Whether actor and asked belong to one clip."""
    return scene.actor_clip_index[:, None] == clip_index


def _mixture_start(num_earlier: int, width: int) -> nn.Parameter:
    start = torch.full((num_earlier, width), EARLIER_START)
    start[-1] = 0.0
    return nn.Parameter(start)
