"""The k nearest entries: exact in torch; for very many entries an inverted file, which says how much it finds.

How near is near: kernel weights with a local geometric bandwidth, and the trust they add up to.
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
"""Beyond so many entries an index decides which are looked at, unless exact search is asked for."""
NUMBERS_AT_ONCE = 1 << 24
ENTRIES_PER_CELL = 39
"""What faiss asks for to place a cell; more take longer, and what is found hardly changes."""
NOBODY = -1


class SearchUnavailable(MuleError, ImportError):  # noqa: N818 - names the fact, as the messages do
    """The package that searches very large memories is not installed; the message names the extra."""


@dataclass(frozen=True)
class Neighbours:
    """The nearest entries of each actor, nearest first.

    Where fewer entries than asked for were allowed, `index` is −1 and `distance` infinite.
    """

    index: Int64[Tensor, "actors neighbours"]
    distance: Float[Tensor, "actors neighbours"]
    """Between points of the unit sphere: 0 to 2."""
    method: Method
    """How they were found; only ``"exact"`` promises that nobody nearer was missed."""


class EntrySearch:
    """The entries of a memory, ready to be searched.

    Args:
        features: on the unit sphere.
        group_index: entries of an actor's own group can be left out.
        method: by default exact up to `MOST_EXACT` entries, an inverted file beyond; every answer names it.
        share_probed: of the inverted file's cells, how many are looked into; what the default finds is measured in
            docs/BENCHMARKS.md.
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
        self._cells = None if self.method == "exact" else _inverted_file(features, share_probed)
        self._largest_group = int(torch.bincount(group_index).max()) if len(group_index) else 0

    def nearest(
        self,
        queries: Float[Tensor, "actors dim"],
        num_neighbours: int,
        *,
        excluding: Int[Tensor, " actors"] | None = None,
    ) -> Neighbours:
        """The nearest entries of each actor; those of the group it is excluded from do not count.

        Args:
            queries: on the unit sphere, or zeros.
            num_neighbours: how many entries are wanted.
            excluding: the group of each actor, as the entries' are numbered.
        """
        if num_neighbours < 1:
            raise RangeError(f"num_neighbours must be at least 1; got {num_neighbours}.")
        if queries.shape[1] != self.features.shape[1]:
            raise ShapeError(
                f"queries must have {self.features.shape[1]} dimensions as the memory has; got {queries.shape[1]}. "
                "Ask with features of the model that made the memory."
            )
        at_once = self._queries_at_once(num_neighbours)
        found = self._exact if self._cells is None else self._probed
        blocks: list[tuple[Tensor, Tensor]] = []
        for first in range(0, max(1, len(queries)), at_once):  # nobody to ask about is a block, too
            rows = slice(first, first + at_once)
            own = None if excluding is None else excluding[rows]
            blocks.append(self._ordered(queries[rows], found(queries[rows], num_neighbours, own)))
        index, distance = (torch.cat(parts) for parts in zip(*blocks, strict=True))
        return Neighbours(index, distance, self.method)

    def _queries_at_once(self, num_neighbours: int) -> int:
        """Exact search holds a cosine with every entry; an inverted file only what it finds."""
        most_found = num_neighbours + self._largest_group
        each = len(self.features) if self._cells is None else most_found
        return max(1, NUMBERS_AT_ONCE // max(1, each, self.features.shape[1]))

    def _exact(
        self, queries: Tensor, num_neighbours: int, excluding: Tensor | None
    ) -> Int64[Tensor, "actors k"]:
        # the nearest on a sphere have the largest cosine; so has a query of zeros, to which all are alike
        cosine = queries.to(self.features) @ self.features.T
        if excluding is not None:
            cosine = cosine.masked_fill(excluding[:, None] == self.group_index, -torch.inf)
        top = cosine.topk(min(num_neighbours, len(self.features)), dim=1)
        return _padded(top.indices.masked_fill(top.values == -torch.inf, NOBODY), num_neighbours)

    def _probed(
        self, queries: Tensor, num_neighbours: int, excluding: Tensor | None
    ) -> Int64[Tensor, "actors k"]:
        wanted = num_neighbours + (0 if excluding is None else self._largest_group)
        wanted = min(wanted, len(self.features))
        _, found = _require_cells(self._cells).search(queries.float().contiguous().numpy(), wanted)
        index = torch.from_numpy(found)
        if excluding is not None:
            index = _kept_first(index, (index == NOBODY) | (self.group_index[index] == excluding[:, None]))
        return _padded(index[:, :num_neighbours], num_neighbours)

    def _ordered(
        self, queries: Tensor, index: Int64[Tensor, "actors k"]
    ) -> tuple[Int64[Tensor, "actors k"], Float[Tensor, "actors k"]]:
        # from the difference, not from 2 − 2·cosine, which loses the digits of near neighbours
        distance = torch.full(index.shape, torch.inf, dtype=torch.float64)
        for column in range(index.shape[1]):
            is_there = index[:, column] != NOBODY
            near = self.features[index[is_there, column]].double()
            distance[is_there, column] = (queries[is_there].double() - near).norm(dim=1)
        distance, order = distance.sort(dim=1, stable=True)
        return index.gather(1, order), distance.to(self.features.dtype)


def recall(search: EntrySearch, queries: Float[Tensor, "actors dim"], *, num_neighbours: int = 20) -> float:
    """The share of the true nearest entries of these actors that a search finds; exact search finds all."""
    if len(queries) == 0:
        raise RangeError("recall is measured on at least one actor; got none.")
    truly = EntrySearch(search.features, search.group_index, method="exact").nearest(queries, num_neighbours)
    found = search.nearest(queries, num_neighbours)
    is_found = (truly.index[:, :, None] == found.index[:, None, :]).any(dim=2)
    is_there = truly.index != NOBODY
    return (is_found & is_there).sum().item() / max(1, int(is_there.sum()))


def _padded(index: Int64[Tensor, "actors found"], width: int) -> Int64[Tensor, "actors k"]:
    return torch.nn.functional.pad(index, (0, width - index.shape[1]), value=NOBODY)


def _kept_first(index: Int64[Tensor, "actors found"], is_left_out: Bool[Tensor, "actors found"]) -> Tensor:
    order = is_left_out.to(torch.int8).argsort(dim=1, stable=True)
    return index.masked_fill(is_left_out, NOBODY).gather(1, order)


def _inverted_file(features: Float[Tensor, "entries dim"], share_probed: float) -> Any:  # noqa: ANN401 - faiss has no types
    try:
        import faiss
    except ImportError as error:
        raise SearchUnavailable(
            f"searching {len(features)} entries by an inverted file needs faiss: pip install 'mule[faiss]'. Or prune "
            "the memory, or ask for method='exact'."
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


def _require_cells(cells: Any) -> Any:  # noqa: ANN401 - faiss has no types
    assert cells is not None  # noqa: S101 - an inverted file was built at construction
    return cells


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
