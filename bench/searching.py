"""Recall and speed of the inverted file of very large memories, compared with exact search.

    python -m bench.searching

Entries are drawn around those of the built-in model's memory, with the spread of its neighbours, so that they
are distributed like remembered actors. Queries are drawn in the same way and are not entries. Random
directions are the worst case: neighbours are hardly nearer than everything else and lie in many cells.
"""

import resource
import time
from pathlib import Path

import torch
from jaxtyping import Float
from torch import Tensor

from bench.timing import take_turns
from mule.memory.files import read_memory
from mule.memory.memory import EvidenceMemory, unit_features
from mule.memory.search import MOST_EXACT, NO_ENTRY, EntrySearch, nearest
from mule.watching.engine.bundle import MEMORY, STAGE, packaged_folder

MANY, FEWER = 1_100_000, 200_000
NUM_QUERIES, NUM_NEIGHBOURS = 256, 20
ACTORS_AT_ONCE = 4  # at one key time of a watched video
GOAL = 0.95


def main() -> None:
    print(
        f"recall@{NUM_NEIGHBOURS} of the inverted file for {NUM_QUERIES} actors; "
        f"queries of {ACTORS_AT_ONCE} actors at once"
    )
    print(f"{'':<34}{'entries':>10}{'build':>9}{'recall':>8}{'exact':>10}{'inverted':>10}{'speedup':>14}")
    memory = read_memory(Path(str(packaged_folder(STAGE))) / MEMORY).memory
    dim = memory.dim
    share = measure(
        "like remembered actors", as_remembered(memory, MANY, 0), as_remembered(memory, NUM_QUERIES, 1)
    )
    measure("random directions (worst case)", by_chance(dim, FEWER, 0), by_chance(dim, NUM_QUERIES, 1))
    verdict = "reached" if share >= GOAL else "not reached"
    print(f"recall of at least {GOAL} beyond {MOST_EXACT:,} entries: {verdict}; {dim} dimensions")
    print(f"peak memory {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6:.1f} GB")


def measure(what: str, entries: Float[Tensor, "entries dim"], queries: Float[Tensor, "actors dim"]) -> float:
    """Print a line and return the recall."""
    groups = torch.arange(len(entries))
    before = time.perf_counter()
    inverted = EntrySearch(entries, groups, method="inverted_file")
    build_s = time.perf_counter() - before
    exact = EntrySearch(entries, groups, method="exact")
    share = recall(inverted, queries, num_neighbours=NUM_NEIGHBOURS)
    some = queries[:ACTORS_AT_ONCE]
    times = take_turns(
        {
            "exact": lambda: exact.nearest(some, NUM_NEIGHBOURS),
            "inverted": lambda: inverted.nearest(some, NUM_NEIGHBOURS),
        }
    )
    print(
        f"{what:<34}{len(entries):>10,}{build_s:>7.0f} s{share:>8.3f}{1000 * times['exact']:>7.0f} ms"
        f"{1000 * times['inverted']:>7.1f} ms{times['exact'] / times['inverted']:>14.1f}"
    )
    return share


def recall(search: EntrySearch, queries: Float[Tensor, "actors dim"], *, num_neighbours: int = 20) -> float:
    """Return the share of the true nearest entries of these actors that a search finds."""
    truly = EntrySearch(search.features, search.group_index, method="exact").nearest(queries, num_neighbours)
    found = search.nearest(queries, num_neighbours)
    is_found = (truly.index[:, :, None] == found.index[:, None, :]).any(dim=2)
    is_there = truly.index != NO_ENTRY
    return (is_found & is_there).sum().item() / max(1, int(is_there.sum()))


def as_remembered(memory: EvidenceMemory, count: int, seed: int) -> Float[Tensor, "count dim"]:
    """Draw features around those of a memory, with half the covariance between its neighbours.

    Half, because the difference between two actors contains the noise of both.
    """
    near = nearest(memory, memory.features).index[:, 1:]  # the first is the entry itself
    apart = (memory.features[near] - memory.features[:, None]).flatten(0, 1).double()
    covariance = apart.T @ apart / len(apart) / 2
    values, directions = torch.linalg.eigh(covariance)
    spread = (directions * values.clamp(min=0).sqrt()).float()
    draw = torch.Generator().manual_seed(seed)
    around = memory.features[torch.randint(len(memory), (count,), generator=draw)]
    return unit_features(around + torch.randn(count, memory.dim, generator=draw) @ spread.T)


def by_chance(dim: int, count: int, seed: int) -> Float[Tensor, "count dim"]:
    return unit_features(torch.randn(count, dim, generator=torch.Generator().manual_seed(seed)))


if __name__ == "__main__":
    main()
