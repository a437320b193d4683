"""Find the k nearest entries of a memory, and weigh them.

Search is exact in torch; above a million entries it uses an inverted file (faiss), whose recall
`bench/searching.py` measures. Weights have a local geometric bandwidth; their mean is the trust in an actor.
"""

import math
from dataclasses import dataclass
from typing import Any, Literal

import torch
from jaxtyping import Bool, Float, Int, Int64
from torch import Tensor

from mule.core.errors import MuleError, RangeError, ShapeError, TooFewActors
from mule.core.records import Novelty
from mule.memory.memory import EvidenceMemory, unit_features

Method = Literal["exact", "inverted_file"]

MOST_EXACT = 1_000_000
"""Larger memories use an inverted file, unless exact search is requested."""
NUMBERS_AT_ONCE = 1 << 24
ENTRIES_PER_CELL = 39
"""The number of entries that faiss needs to place a cell; more take longer and hardly change the result."""
NO_ENTRY = -1


class SearchUnavailable(MuleError, ImportError):  # noqa: N818 - it names the fact
    """faiss, which searches very large memories, is not installed; the message names the extra."""


@dataclass(frozen=True)
class Neighbours:
    """The nearest entries of each actor, nearest first.

    If there are fewer entries than requested, `index` is −1 and `distance` infinite.
    """

    index: Int64[Tensor, "actors neighbours"]
    distance: Float[Tensor, "actors neighbours"]
    """Between points of the unit sphere: 0 to 2."""


class EntrySearch:
    """An index over the entries of a memory.

    Args:
        features: on the unit sphere.
        group_index: the group of each entry; a search can exclude the actor's own group.
        method: by default exact up to `MOST_EXACT` entries, an inverted file beyond.
        share_probed: share of the inverted file's cells to search; docs/BENCHMARKS.md has the recall of the
            default.
    """

    def __init__(
        self,
        features: Float[Tensor, "entries dim"],
        group_index: Int[Tensor, " entries"],
        *,
        method: Method | None = None,
        share_probed: float = 0.05,
    ) -> None:
        if len(features) != len(group_index):
            raise ShapeError(
                f"features and group_index must have one row per entry; got {len(features)} and {len(group_index)}."
            )
        if not 0 < share_probed <= 1:
            raise RangeError(f"share_probed must lie above 0 and up to 1; got {share_probed}.")
        self.features = features
        self.group_index = group_index
        self.method: Method = method or ("exact" if len(features) <= MOST_EXACT else "inverted_file")
        self._cells: Any = None if self.method == "exact" else _inverted_file(features, share_probed)
        self._largest_group = int(torch.bincount(group_index).max()) if len(group_index) else 0

    def nearest(
        self,
        queries: Float[Tensor, "actors dim"],
        num_neighbours: int,
        *,
        excluding: Int[Tensor, " actors"] | None = None,
    ) -> Neighbours:
        """Return the nearest entries of each actor; entries of its group in `excluding` do not count."""
        if num_neighbours < 1:
            raise RangeError(f"num_neighbours must be at least 1; got {num_neighbours}.")
        if queries.shape[1] != self.features.shape[1]:
            raise ShapeError(
                f"queries must have {self.features.shape[1]} dimensions, as the memory has; got {queries.shape[1]}. "
                "Use features of the model that made the memory."
            )
        at_once = self._queries_at_once(num_neighbours)
        found = self._exact if self._cells is None else self._probed
        blocks: list[tuple[Tensor, Tensor]] = []
        for first in range(0, max(1, len(queries)), at_once):  # one empty block if there are no queries
            rows = slice(first, first + at_once)
            own = None if excluding is None else excluding[rows]
            blocks.append(self._ordered(queries[rows], found(queries[rows], num_neighbours, own)))
        index, distance = (torch.cat(parts) for parts in zip(*blocks, strict=True))
        return Neighbours(index, distance)

    def _queries_at_once(self, num_neighbours: int) -> int:
        """Return how many queries fit in memory: exact search holds a cosine per entry, an inverted file only its results."""
        most_found = num_neighbours + self._largest_group
        each = len(self.features) if self._cells is None else most_found
        return max(1, NUMBERS_AT_ONCE // max(1, each, self.features.shape[1]))

    def _exact(
        self, queries: Tensor, num_neighbours: int, excluding: Tensor | None
    ) -> Int64[Tensor, "actors k"]:
        # on a sphere the nearest entries have the largest cosine; a query of zeros is equally far from all
        cosine = queries.to(self.features) @ self.features.T
        if excluding is not None:
            cosine = cosine.masked_fill(excluding[:, None] == self.group_index, -torch.inf)
        top = cosine.topk(min(num_neighbours, len(self.features)), dim=1)
        return _padded(top.indices.masked_fill(top.values == -torch.inf, NO_ENTRY), num_neighbours)

    def _probed(
        self, queries: Tensor, num_neighbours: int, excluding: Tensor | None
    ) -> Int64[Tensor, "actors k"]:
        wanted = num_neighbours + (0 if excluding is None else self._largest_group)
        wanted = min(wanted, len(self.features))
        _, found = self._cells.search(queries.float().contiguous().numpy(), wanted)
        index = torch.from_numpy(found)
        if excluding is not None:
            index = _kept_first(index, (index == NO_ENTRY) | (self.group_index[index] == excluding[:, None]))
        return _padded(index[:, :num_neighbours], num_neighbours)

    def _ordered(
        self, queries: Tensor, index: Int64[Tensor, "actors k"]
    ) -> tuple[Int64[Tensor, "actors k"], Float[Tensor, "actors k"]]:
        # from the difference: 2 − 2·cosine would lose digits for near neighbours
        distance = torch.full(index.shape, torch.inf, dtype=torch.float64)
        for column in range(index.shape[1]):
            is_there = index[:, column] != NO_ENTRY
            near = self.features[index[is_there, column]].double()
            distance[is_there, column] = (queries[is_there].double() - near).norm(dim=1)
        distance, order = distance.sort(dim=1, stable=True)
        return index.gather(1, order), distance.to(self.features.dtype)


def _padded(index: Int64[Tensor, "actors found"], width: int) -> Int64[Tensor, "actors k"]:
    return torch.nn.functional.pad(index, (0, width - index.shape[1]), value=NO_ENTRY)


def _kept_first(index: Int64[Tensor, "actors found"], is_left_out: Bool[Tensor, "actors found"]) -> Tensor:
    order = is_left_out.to(torch.int8).argsort(dim=1, stable=True)
    return index.masked_fill(is_left_out, NO_ENTRY).gather(1, order)


def _inverted_file(features: Float[Tensor, "entries dim"], share_probed: float) -> Any:  # noqa: ANN401 - faiss has no types
    try:
        import faiss
    except ImportError as error:
        raise SearchUnavailable(
            f"searching {len(features)} entries by an inverted file needs faiss: pip install 'mule-actions[faiss]'. Or prune "
            "the memory, or use method='exact'."
        ) from error
    entries = features.float().contiguous().numpy()
    num_cells = max(1, min(round(4 * len(entries) ** 0.5), len(entries) // ENTRIES_PER_CELL))
    cells = faiss.IndexIVFFlat(
        faiss.IndexFlatIP(entries.shape[1]), entries.shape[1], num_cells, faiss.METRIC_INNER_PRODUCT
    )
    cells.cp.max_points_per_centroid = ENTRIES_PER_CELL
    cells.train(entries)
    cells.add(entries)
    cells.nprobe = max(1, round(share_probed * num_cells))
    return cells


@dataclass(frozen=True)
class Weighed:
    """The k nearest entries of each actor and the weight of each, w = exp(−d² / (ρ·s·s̄)).

    Weights are stored as logarithms, because far from every entry they underflow and must still rank.
    """

    neighbours: Neighbours
    log_weight: Float[Tensor, "actors neighbours"]

    @property
    def weight(self) -> Float[Tensor, "actors neighbours"]:
        """The weight of each neighbour: 1 at distance 0, falling to 0; a missing neighbour weighs 0."""
        return self.log_weight.exp()

    @property
    def log_trust(self) -> Float[Tensor, " actors"]:
        """The logarithm of trust t; −∞ for an empty memory."""
        return self.log_weight.logsumexp(dim=1) - math.log(self.log_weight.shape[1])

    @property
    def trust(self) -> Float[Tensor, " actors"]:
        """Trust t in each actor, from 0 to 1: the mean weight of its k nearest entries."""
        return self.log_trust.exp()


def weigh(
    memory: EvidenceMemory, features: Float[Tensor, "actors dim"], *, search: EntrySearch | None = None
) -> Weighed:
    """Find the nearest entries of each actor in a calibrated memory, and weigh them."""
    kernel = memory.kernel
    neighbours = nearest(memory, features, search=search)
    bandwidth = kernel.calibrated_reach() * _scale_of(memory, neighbours) * kernel.typical_scale
    return Weighed(neighbours, -neighbours.distance.square() / bandwidth)


def nearest(
    memory: EvidenceMemory, features: Float[Tensor, "actors dim"], *, search: EntrySearch | None = None
) -> Neighbours:
    """Return the k nearest entries of each actor, k being that of the memory's kernel."""
    search = search or EntrySearch(memory.features, memory.places.group_index)
    return search.nearest(unit_features(features), memory.kernel.num_neighbours)


def memory_vacuity_novelty(weighed: Weighed) -> Novelty:
    """Return G-Vac: an actor is novel if nobody similar is remembered, −log t; the value is 1 − t."""
    log_trust = weighed.log_trust
    return Novelty(value=-torch.expm1(log_trust), rank=-log_trust)


def entry_scales(
    features: Float[Tensor, "entries dim"],
    group_index: Int[Tensor, " entries"],
    *,
    num_neighbours: int,
    search: EntrySearch | None = None,
) -> Float[Tensor, " entries"]:
    """Return s, the distance of each entry to its k-th neighbour from another group.

    Neighbours of the same group do not count, because they share camera, light and moment. They are found by the
    search, or among the entries themselves.
    """
    search = EntrySearch(features, group_index) if search is None else search
    distance = search.nearest(features, num_neighbours, excluding=group_index).distance[:, -1]
    lonely = torch.nonzero(torch.isinf(distance)).flatten()
    if len(lonely):
        raise TooFewActors(
            f"every entry must have {num_neighbours} neighbours from other clips; {len(lonely)} of {len(features)} do not. "
            "Remember more actors, or lower num_neighbours."
        )
    if (distance <= 0).any():
        first = int(torch.nonzero(distance <= 0)[0])
        raise RangeError(
            f"an entry must differ from its k-th neighbour, k = {num_neighbours}; {int((distance <= 0).sum())} do not, "
            f"the first is entry {first}. Check for repeated actors, and for a network whose features are all equal."
        )
    return distance


def reach_of(
    memory: EvidenceMemory, features: Float[Tensor, "actors dim"], *, search: EntrySearch | None = None
) -> float:
    """Return ρ, the median of d² / (s·s̄) over held-out known actors and their k neighbours.

    Training actors would not do: the network has pulled them together, so distances among them are too small.
    """
    if len(features) == 0:
        raise TooFewActors("ρ must be measured on held-out known actors; got none.")
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
    return torch.where(neighbours.index == NO_ENTRY, 1.0, memory.scales[neighbours.index])


def require_entries_of(memory: EvidenceMemory, weighed: Weighed) -> None:
    """Raise if neighbours cannot be entries of this memory, judging by their numbers."""
    index = weighed.neighbours.index
    if index.numel() and int(index.max()) >= len(memory):
        raise ShapeError(
            f"neighbours must be entries of this memory of {len(memory)}; got entry {int(index.max())}."
        )
