"""Asynchronous interaction aggregation (Tang et al., ECCV 2020) without its memory: actors attend to persons and objects.

    block X in {P, O}:  q = actor, k = v = what it attends to;  q + W·ReLU(LayerNorm(softmax(q·kᵀ/√d) v))

`serial` chains P, O, P, O. `dense_serial` gives each block from the third on a learned mixture of all earlier outputs.
`parallel` adds the outputs of one P and one O block. `mule.rivals.networks.aia_memory` is the whole of AIA.

Differences from the released code: an empty place is never attended to (there, clips are padded with zeros
that take part), and an actor whose clip has no objects keeps its query unchanged.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from mule.core.errors import RangeError
from mule.relations.aco import SceneFeatures

Structure = Literal["serial", "dense_serial", "parallel"]
Kind = Literal["person", "object"]

EARLIER_START = (
    -5 * 2.302585092994046
)  # softmax starts at the latest output; an earlier one has a weight of 1e-5


def attended(
    query: Float[Tensor, "actors width"],
    key: Float[Tensor, "asked width"],
    value: Float[Tensor, "asked width"],
    is_near: Bool[Tensor, "actors asked"],
) -> Float[Tensor, "actors width"]:
    """What each query is told by those near it: ReLU(LayerNorm(softmax(q·kᵀ/√d) v))."""
    likeness = query @ key.T / query.shape[1] ** 0.5
    weight = likeness.masked_fill(~is_near, torch.finfo(likeness.dtype).min).softmax(dim=1) * is_near
    return F.relu(F.layer_norm(weight @ value, query.shape[1:]))


@dataclass(frozen=True)
class AiaSettings:
    """Sizes and structure of the interactions; the defaults are the published ones."""

    width: int = 1024
    structure: Structure = "dense_serial"
    dropout: float = 0.2

    def __post_init__(self) -> None:
        if self.structure not in ("serial", "dense_serial", "parallel"):
            raise RangeError(f"structure must be serial, dense_serial or parallel; got {self.structure!r}.")


PUBLISHED_AIA = AiaSettings()


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
        told = attended(self.query(asking), self.key(asked), self.value(asked), is_near)
        return asking + self.dropout(self.out(told)) * is_near.any(dim=1, keepdim=True)


class AiaRelations(nn.Module):
    """One feature per actor from its interactions with persons and objects."""

    def __init__(self, channels: int, settings: AiaSettings = PUBLISHED_AIA) -> None:
        super().__init__()
        self.structure: Structure = settings.structure
        width, dropout = settings.width, settings.dropout
        self.channels = channels
        self.dim = width
        kinds: tuple[Kind, ...] = ("person", "object")
        self.kinds = kinds if self.structure == "parallel" else 2 * kinds
        self.reduce_query = nn.Sequential(nn.Linear(channels, width), nn.Dropout(dropout))
        self.reduce = nn.ModuleDict(
            {kind: nn.Sequential(nn.Linear(channels, width), nn.Dropout(dropout)) for kind in kinds}
        )
        self.blocks = nn.ModuleList(InteractionBlock(width, dropout=dropout) for _ in self.kinds)
        self.mixture = nn.ParameterList(
            mixture_start(at, width) for at in range(2, len(self.kinds)) if self.structure == "dense_serial"
        )
        self.person = nn.Linear(channels, width)
        self.fc1, self.fc2 = nn.Linear(width, width), nn.Linear(width, width)
        self.dropout = nn.Dropout(dropout)

    def forward(self, scene: SceneFeatures) -> Float[Tensor, "actors dim"]:
        """The actor's own feature plus its interactions, through two layers."""
        asked = {
            "person": (self.reduce["person"](scene.actors), near_clip(scene, scene.actor_clip_index)),
            "object": (self.reduce["object"](scene.objects), near_clip(scene, scene.object_clip_index)),
        }
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
                asking = mixture_of(told, self.mixture[at - 2])
            told.append(block(asking, *asked[kind]))
        return torch.stack(told).sum(dim=0) if self.structure == "parallel" else told[-1]


def near_clip(scene: SceneFeatures, clip_index: Int[Tensor, " asked"]) -> Bool[Tensor, "actors asked"]:
    """Whether actor and asked belong to one clip."""
    return scene.actor_clip_index[:, None] == clip_index


def mixture_start(num_earlier: int, width: int) -> nn.Parameter:
    """Return weights, before a softmax, that start as the latest output alone, up to 1e-5."""
    start = torch.full((num_earlier, width), EARLIER_START)
    start[-1] = 0.0
    return nn.Parameter(start)


def mixture_of(
    told: Sequence[Float[Tensor, "actors width"]], mixture: Float[Tensor, "earlier width"]
) -> Float[Tensor, "actors width"]:
    """Return the mixture of all earlier outputs, channel by channel."""
    return (mixture.softmax(dim=0)[:, None] * torch.stack(list(told))).sum(dim=0)
