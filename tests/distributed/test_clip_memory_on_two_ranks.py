"""Two processes that write half of a batch each remember what one process does that writes all of it."""

import pytest
import torch
from two_ranks import on_two_ranks

from mule.data.batches.samples import ClipName
from mule.relations.remembered import MemorySpan
from mule.rivals.networks.clip_memory import ClipMemory

pytestmark = pytest.mark.distributed

TIMES_S = [0.0, 1.0, 1.0, 2.0, 0.0]  # some clips are drawn twice


def rows_of(draws):
    """What a memory reads after these draws of one batch were written, and after an empty batch."""
    memory = ClipMemory(MemorySpan(seconds=5, actors_per_clip=2))
    memory.write(
        [ClipName("a", TIMES_S[at]) for at in draws], [torch.full((1, 2), float(at)) for at in draws]
    )
    memory.write([], [])
    read = memory.near([ClipName("a", 3.0)], torch.device("cpu"))
    return [(each.offset_s, each.actors.tolist()) for each in read]


def write_my_share(rank):
    return rows_of(range(rank, len(TIMES_S), 2))


def test_two_processes_hold_what_one_holds(tmp_path):
    alone = rows_of(range(len(TIMES_S)))
    assert alone == [(-3, [[4.0, 4.0]]), (-2, [[2.0, 2.0]]), (-1, [[3.0, 3.0]])]
    assert on_two_ranks(write_my_share, tmp_path) == [alone, alone]
