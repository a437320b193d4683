"""A smaller memory that says nearly the same: nearby entries become one, with the mean of their labels.

What is in a memory: how much of each action, from where, and how much of it stands alone.
"""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, replace

import torch
from jaxtyping import Float, Int
from torch import Tensor

from mule.core.errors import RangeError, TooFewActors
from mule.memory.memory import EvidenceMemory, Kernel, unit_features
from mule.memory.search import entry_scales

MOST_ROUNDS = 50
NUMBERS_AT_ONCE = 1 << 24


@dataclass(frozen=True)
class Clusters:
    """Centres on the unit sphere, and to which of them each point belongs."""

    centres: Float[Tensor, "clusters dim"]
    index: Int[Tensor, " points"]


def prune_memory(memory: EvidenceMemory, *, share: float, seed: int = 0) -> EvidenceMemory:
    """The memory with about this share of its entries: centres of k-means, with soft labels.

    A centre has the mean of its members' labels, weighted by the actors they stand for, and the sum of these as its
    count; so counts times labels add up as before, for every action. It is placed where its most typical member was
    seen. Scales are measured among the centres; ρ and S must be set again.
    """
    if not 0 < share <= 1:
        raise RangeError(f"share must lie above 0 and up to 1; got {share}.")
    num_kept = max(1, round(share * len(memory)))
    if num_kept <= memory.kernel.num_neighbours:
        raise TooFewActors(
            f"a memory must keep more than k = {memory.kernel.num_neighbours} entries; {share:g} of {len(memory)} is "
            f"{num_kept}. Keep a larger share."
        )
    clusters = sphere_means(memory.features, memory.counts, num_clusters=num_kept, seed=seed)
    counts = torch.zeros(num_kept).index_add(0, clusters.index, memory.counts)
    mass = torch.zeros(num_kept, memory.num_classes, dtype=torch.float64)
    mass.index_add_(0, clusters.index, memory.labels.double() * memory.counts.double()[:, None])
    places = memory.places[_most_typical(memory.features, clusters)]
    scales = entry_scales(
        clusters.centres,
        torch.arange(num_kept),  # a centre stands for many groups; only itself is left out
        num_neighbours=memory.kernel.num_neighbours,
    )
    return replace(
        memory,
        features=clusters.centres,
        labels=(mass / counts[:, None]).float().clamp(0, 1),
        counts=counts,
        scales=scales,
        places=places,
        kernel=Kernel(memory.kernel.num_neighbours, scales.median().item()),
    )


def sphere_means(
    points: Float[Tensor, "points dim"], weight: Float[Tensor, " points"], *, num_clusters: int, seed: int
) -> Clusters:
    """k-means on the unit sphere (Lloyd's rounds from seeded points), in which no cluster is empty.

    A centre is the direction of its members' weighted sum. A centre that lost its members moves to the point that lies
    farthest from its own.
    """
    if not 1 <= num_clusters <= len(points):
        raise RangeError(
            f"num_clusters must lie from 1 to {len(points)}, the number of points; got {num_clusters}."
        )
    draw = torch.Generator().manual_seed(seed)
    centres = points[torch.randperm(len(points), generator=draw)[:num_clusters]]
    index = torch.full((len(points),), -1)
    for _ in range(MOST_ROUNDS):
        cosine, nearest = _nearest_centre(points, centres)
        nearest = _without_empty(nearest, cosine, num_clusters)
        if torch.equal(nearest, index):
            break
        index = nearest
        total = torch.zeros_like(centres).index_add(0, index, points * weight[:, None])
        # opposite members can cancel; such a centre stays where it was
        is_somewhere = total.norm(dim=1, keepdim=True) > torch.finfo(total.dtype).eps
        centres = torch.where(is_somewhere, unit_features(total), centres)
    return Clusters(centres, index)


def _nearest_centre(points: Tensor, centres: Tensor) -> tuple[Tensor, Tensor]:
    at_once = max(1, NUMBERS_AT_ONCE // len(centres))
    best = [(some @ centres.T).max(dim=1) for some in points.split(at_once)]
    return torch.cat([each.values for each in best]), torch.cat([each.indices for each in best])


def _without_empty(index: Tensor, cosine: Tensor, num_clusters: int) -> Tensor:
    """Every cluster gets a member: the empty ones those that fit worst where they are, and leave others behind."""
    members = torch.bincount(index, minlength=num_clusters)
    empty = torch.nonzero(members == 0).flatten().tolist()
    if not empty:
        return index
    index = index.clone()
    for point in cosine.argsort().tolist():
        if not empty:
            break
        if members[index[point]] > 1:
            members[index[point]] -= 1
            index[point] = empty.pop()
    return index


def _most_typical(points: Tensor, clusters: Clusters) -> Int[Tensor, " clusters"]:
    """For each cluster, its member nearest to the centre."""
    cosine = (points * clusters.centres[clusters.index]).sum(dim=1)
    order = cosine.argsort(descending=True, stable=True)
    order = order[
        clusters.index[order].argsort(stable=True)
    ]  # by cluster, and in each the most typical first
    members = torch.bincount(clusters.index, minlength=len(clusters.centres))
    return order[members.cumsum(0) - members]


ISOLATED_SCALES = 2.0


@dataclass(frozen=True)
class Contents:
    """What is in a memory."""

    num_entries: int
    num_actors: float
    """How many actors the entries stand for."""
    actors_by_class: Mapping[str, float]
    """Counts times labels, which pruning does not change."""
    entries_by_video: Mapping[str, int]
    """From the video with most entries to that with fewest."""
    num_groups: int
    isolated_share: float
    """Entries whose k-th neighbour is more than twice as far as is typical: they vouch for few."""


def memory_contents(memory: EvidenceMemory) -> Contents:
    """Counts per action and source, and the share of isolated entries."""
    mass = (memory.labels.double() * memory.counts.double()[:, None]).sum(dim=0)
    is_isolated = memory.scales > ISOLATED_SCALES * memory.kernel.typical_scale
    return Contents(
        num_entries=len(memory),
        num_actors=memory.counts.double().sum().item(),
        actors_by_class=dict(zip(memory.class_names, mass.tolist(), strict=True)),
        entries_by_video=dict(Counter(memory.places.videos()).most_common()),
        num_groups=len(torch.unique(memory.places.group_index)),
        isolated_share=is_isolated.float().mean().item() if len(memory) else 0.0,
    )
