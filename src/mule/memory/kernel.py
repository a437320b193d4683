"""How near is near: kernel weights with a local geometric bandwidth, and the trust they add up to."""

import math
from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor

from mule.core.errors import RangeError, ShapeError, TooFewActors
from mule.core.records import Novelty
from mule.memory.memory import EvidenceMemory, unit_features
from mule.memory.search import NOBODY, EntrySearch, Neighbours


@dataclass(frozen=True)
class Weighed:
    """The k nearest entries of each actor and the weight of each, w = exp(−d² / (ρ·s·s̄)).

    Weights are kept as logarithms: far from everything they are too small for a plain number, and still rank.
    """

    neighbours: Neighbours
    log_weight: Float[Tensor, "actors neighbours"]

    @property
    def weight(self) -> Float[Tensor, "actors neighbours"]:
        """From 1 where an entry is the actor itself, to 0; a neighbour that is not there weighs 0."""
        return self.log_weight.exp()

    @property
    def log_trust(self) -> Float[Tensor, " actors"]:
        """The logarithm of trust t; −∞ for a memory without entries."""
        return self.log_weight.logsumexp(dim=1) - math.log(self.log_weight.shape[1])

    @property
    def trust(self) -> Float[Tensor, " actors"]:
        """The mean weight of the k nearest entries, t from 0 to 1: how far the memory vouches for an actor."""
        return self.log_trust.exp()


def weigh(
    memory: EvidenceMemory,
    features: Float[Tensor, "actors dim"],
    *,
    excluding: Int[Tensor, " actors"] | None = None,
    search: EntrySearch | None = None,
) -> Weighed:
    """The nearest entries of each actor, weighed.

    Args:
        memory: calibrated.
        features: what the network's last layer sees, of any length.
        excluding: the group of each actor as `memory.places` numbers them, whose entries do not count.
        search: made of this memory's features; by default one is made for this call.
    """
    kernel = memory.kernel
    neighbours = nearest(memory, features, excluding=excluding, search=search)
    bandwidth = kernel.calibrated_reach() * _scale_of(memory, neighbours) * kernel.typical_scale
    return Weighed(neighbours, -neighbours.distance.square() / bandwidth)


def nearest(
    memory: EvidenceMemory,
    features: Float[Tensor, "actors dim"],
    *,
    excluding: Int[Tensor, " actors"] | None = None,
    search: EntrySearch | None = None,
) -> Neighbours:
    """The k nearest entries of each actor, k as the memory's kernel has it."""
    search = search or EntrySearch(memory.features, memory.places.group_index)
    return search.nearest(unit_features(features), memory.kernel.num_neighbours, excluding=excluding)


def vacuity_novelty(weighed: Weighed) -> Novelty:
    """G-Vac: novel is whom no remembered actor is near, −log t; the value is 1 − t."""
    log_trust = weighed.log_trust
    return Novelty(value=-torch.expm1(log_trust), rank=-log_trust)


def entry_scales(
    features: Float[Tensor, "entries dim"], group_index: Int[Tensor, " entries"], *, num_neighbours: int
) -> Float[Tensor, " entries"]:
    """s: the distance of each entry to its k-th neighbour from another group.

    Neighbours of the same clip are left out because they share camera, light and moment.
    """
    return scales_among(
        EntrySearch(features, group_index), features, group_index, num_neighbours=num_neighbours
    )


def scales_among(
    search: EntrySearch,
    features: Float[Tensor, "actors dim"],
    group_index: Int[Tensor, " actors"],
    *,
    num_neighbours: int,
) -> Float[Tensor, " actors"]:
    """The distance of each actor to its k-th neighbour of another group among the entries searched."""
    distance = search.nearest(features, num_neighbours, excluding=group_index).distance[:, -1]
    lonely = torch.nonzero(torch.isinf(distance)).flatten()
    if len(lonely):
        raise TooFewActors(
            f"every entry must have {num_neighbours} others from other clips to measure its scale by; {len(lonely)} of "
            f"{len(features)} have not. Remember more actors, or lower num_neighbours."
        )
    if (distance <= 0).any():
        first = int(torch.nonzero(distance <= 0)[0])
        raise RangeError(
            f"an entry must differ from its k-th neighbour, k = {num_neighbours}; {int((distance <= 0).sum())} do not, "
            f"the first is entry {first}. Was the same actor given many times, or is the network dead?"
        )
    return distance


def reach_of(
    memory: EvidenceMemory, features: Float[Tensor, "actors dim"], *, search: EntrySearch | None = None
) -> float:
    """ρ: the median of d² / (s·s̄) over held-out known actors and their k neighbours.

    Held-out, because the network has pulled its training actors together: distances among them are too small.
    """
    if len(features) == 0:
        raise TooFewActors("ρ is a median over held-out known actors; got none.")
    if len(memory) < memory.kernel.num_neighbours:
        raise TooFewActors(
            f"ρ needs a memory of at least k = {memory.kernel.num_neighbours} entries; got {len(memory)}."
        )
    neighbours = nearest(memory, features, search=search)
    ratio = neighbours.distance.square() / (_scale_of(memory, neighbours) * memory.kernel.typical_scale)
    return ratio.median().item()


def _scale_of(memory: EvidenceMemory, neighbours: Neighbours) -> Float[Tensor, "actors neighbours"]:
    if len(memory) == 0:
        return torch.ones_like(neighbours.distance)
    return torch.where(neighbours.index == NOBODY, 1.0, memory.scales[neighbours.index])


def require_entries_of(memory: EvidenceMemory, weighed: Weighed) -> None:
    """What was weighed are entries of this memory, as far as their numbers tell."""
    index = weighed.neighbours.index
    if index.numel() and int(index.max()) >= len(memory):
        raise ShapeError(
            f"neighbours must be entries of this memory of {len(memory)}; got entry {int(index.max())}."
        )
