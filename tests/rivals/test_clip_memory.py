"""The memory of clips: what is read of it is what a slow search over everything written would find."""

import math

import pytest
import torch
from scenes import generator
from torch import nn

from mule.core.errors import RangeError, ShapeError
from mule.data.batches.samples import ClipName
from mule.model import neighbourhood
from mule.relations.remembered import MemorySpan
from mule.rivals.networks.clip_memory import ClipMemory

CPU = torch.device("cpu")
SPAN = MemorySpan(seconds=3, actors_per_clip=2)


def written(times_s=tuple(range(10)), videos=("a", "b"), seed=0):
    """Names and actors, up to three each; numbers that half precision holds exactly."""
    g = generator(seed)
    names = [ClipName(video, float(time_s)) for video in videos for time_s in times_s]
    actors = [torch.randint(-9, 9, (at % 4, 5), generator=g).float() for at in range(len(names))]
    return names, actors


def filled(span=SPAN, **what):
    memory = ClipMemory(span)
    memory.write(*written(**what))
    return memory


def slow_reading(names, actors, asking, span):
    """A loop over every actor ever written: (clip asking, seconds from it, feature)."""
    found = []
    for number, clip in enumerate(asking):
        for name, rows in sorted(zip(names, actors, strict=True), key=lambda pair: pair[0]):
            is_near = abs(name.key_time_s - clip.key_time_s) <= span.seconds
            for row in rows[: span.actors_per_clip]:
                if name.video == clip.video and is_near and name != clip:
                    found.append((number, round(name.key_time_s - clip.key_time_s), row.tolist()))
    return found


def as_rows(remembered):
    return [(each.near_clip, each.offset_s, row.tolist()) for each in remembered for row in each.actors]


def test_reading_equals_a_search_over_all_stored_actors():
    names, actors = written()
    asking = [ClipName("b", 4.0), ClipName("a", 0.0), ClipName("a", 8.5), ClipName("c", 1.0)]
    found = as_rows(filled().near(asking, CPU))
    assert found == slow_reading(names, actors, asking, SPAN)
    assert {number for number, _, _ in found} == {0, 1, 2}


def test_a_clip_never_reads_itself():
    memory = ClipMemory(MemorySpan(seconds=100, actors_per_clip=5))
    names, actors = written(times_s=(7,))
    memory.write(names, [torch.ones(1, 5), torch.ones(1, 5)])
    assert memory.near(names, CPU) == ()
    assert len(memory) == len(actors) == 2


def test_the_order_of_writing_does_not_matter_and_the_latest_actors_count():
    names, actors = written()
    backwards = ClipMemory(SPAN)
    backwards.write(names[:3], [torch.zeros(1, 5)] * 3)
    backwards.write(names[::-1], actors[::-1])
    assert as_rows(backwards.near(names, CPU)) == as_rows(filled().near(names, CPU))


def test_a_clip_of_a_whole_video_is_neither_remembered_nor_a_neighbour():
    memory = filled()
    size = len(memory)
    whole = ClipName("a", math.nan)
    memory.write([whole], [torch.ones(1, 5)])
    assert len(memory) == size
    assert memory.near([whole], CPU) == ()


def test_a_restored_memory_reads_the_same(tmp_path):
    memory = filled(MemorySpan(3, 2, fades=True))
    memory.write([ClipName("a", 2.0)], [torch.ones(1, 5)], loss=4.0)
    memory.write([ClipName("a", 3.0)], [torch.ones(1, 5)], loss=1.0)
    torch.save(memory.state_dict(), tmp_path / "state.pt")
    other = filled(memory.span, videos=("z",))
    other.load_state_dict(torch.load(tmp_path / "state.pt", weights_only=True))
    names = written(videos=("a", "b", "z"))[0]
    assert as_rows(other.near(names, CPU)) == as_rows(memory.near(names, CPU))


def test_a_memory_fades_by_the_ratio_of_the_losses_then_and_now():
    memory = ClipMemory(MemorySpan(9, 1, fades=True))
    for time_s, loss in enumerate((8.0, 1.0, 2.0)):
        memory.write([ClipName("a", float(time_s))], [torch.ones(1, 1)], loss=loss)
    read = memory.near([ClipName("a", 5.0)], CPU)
    assert [each.actors.item() for each in read] == [2 / 8, 1 / 2, 1.0]


def test_nothing_that_is_remembered_has_a_gradient():
    actors = torch.ones(2, 5, requires_grad=True)
    memory = ClipMemory(SPAN)
    memory.write([ClipName("a", 0.0)], [actors * 2])
    with torch.no_grad():
        actors += 1
    (read,) = memory.near([ClipName("a", 1.0)], CPU)
    assert not read.actors.requires_grad
    assert (read.actors == 2).all()


def test_bad_memories_are_refused():
    with pytest.raises(ShapeError, match="2 clips and 1 names"):
        ClipMemory(SPAN).write([ClipName("a", 0.0)], [torch.ones(1, 1)] * 2)
    with pytest.raises(RangeError, match="at least one actor per clip"):
        MemorySpan(seconds=3, actors_per_clip=0)


def test_a_network_that_sees_each_clip_alone_has_no_memory():
    assert neighbourhood(nn.Sequential(nn.Linear(2, 2))) is None
