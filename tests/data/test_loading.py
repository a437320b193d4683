"""Batches depend on the seed alone: not on workers, ranks, or where a run was cut in two."""

import json
import platform
import resource

import numpy as np
import pytest
import torch
from made_clips import CLASSES, MadeClips, made_sample
from made_loaders import VIEW, contents, epoch_of, loader_of

from mule.core.errors import RangeError
from mule.data.batches.batches import ClipSampler
from mule.data.batches.loading import ClipLoader, ReadAhead
from mule.data.batches.samples import TrainingView


def test_a_data_set_without_clips_has_epochs_without_batches():
    loader = loader_of(MadeClips(0))
    assert (list(loader), loader.epoch, len(loader)) == ([], 1, 0)


@pytest.mark.filterwarnings("ignore:This DataLoader will create 4")
def test_any_number_of_workers_gives_the_same_batches_bit_for_bit():
    alone = loader_of(num_workers=0)
    expected = [epoch_of(alone), epoch_of(alone)]
    assert expected[0] != expected[1]
    for num_workers in (1, 2, 4):
        loader = loader_of(num_workers=num_workers)
        assert [epoch_of(loader), epoch_of(loader)] == expected


@pytest.mark.parametrize("num_ranks", [2, 3])
def test_ranks_together_read_what_one_rank_reads_bit_for_bit(num_ranks):
    (alone,) = (list(loader_of()),)
    shares = [list(loader_of(rank=rank, num_ranks=num_ranks)) for rank in range(num_ranks)]
    for number, batch in enumerate(alone):
        pixels = {p: clip for p, clip in zip(batch.positions.tolist(), batch.stack, strict=True)}
        parts = [share[number] for share in shares]
        assert sorted(p for part in parts for p in part.positions.tolist()) == sorted(pixels)
        assert sum(part.num_actors for part in parts) == batch.num_actors
        for part in parts:
            for position, clip in zip(
                part.positions.tolist(), part.pixels[0] if part.pixels else [], strict=True
            ):
                assert torch.equal(clip, pixels[position])


@pytest.mark.parametrize(("num_workers", "num_seen"), [(0, 1), (0, 4), (2, 0), (2, 3)])
def test_a_run_cut_in_two_reads_exactly_the_remaining_batches(num_workers, num_seen):
    expected = epoch_of(whole := loader_of()) + epoch_of(whole)
    before = loader_of(num_workers=num_workers)
    batches = iter(before)
    seen = [contents(next(batches)) for _ in range(num_seen)]  # workers are further ahead than this
    state = json.loads(json.dumps(before.state_dict()))
    after = loader_of(num_workers=num_workers)
    after.load_state_dict(state)
    assert len(after) == len(before) == 4 - num_seen
    rest = epoch_of(after) + epoch_of(after)
    assert after.epoch == 2
    assert (seen + rest)[: len(expected)] == expected


def test_a_state_goes_on_with_another_number_of_ranks():
    before = loader_of()
    next(iter(before))
    remaining = {int(p) for batch in before for p in batch.positions}
    state = loader_of().state_dict() | {"num_batches": 1}
    seen = []
    for rank in range(3):
        after = loader_of(rank=rank, num_ranks=3)
        after.load_state_dict(state)
        seen += [int(p) for batch in after for p in batch.positions]
    assert sorted(seen) == sorted(remaining)


@pytest.mark.parametrize("num_workers", [0, 2])
def test_an_iteration_left_half_way_goes_on_where_it_stopped(num_workers):
    expected = epoch_of(loader_of())
    loader = loader_of(num_workers=num_workers)
    first = contents(next(iter(loader)))
    assert [first, *epoch_of(loader)] == expected
    assert (loader.epoch, loader.num_batches) == (1, 0)


def test_a_state_may_be_loaded_into_a_loader_under_way():
    loader = loader_of(num_workers=2)
    state = loader.state_dict()
    next(iter(loader))
    loader.load_state_dict(state)
    assert epoch_of(loader) == epoch_of(loader_of())


def test_a_state_of_other_batches_is_refused_and_says_what_differs():
    state = loader_of(seed=1, batch_clips=5).state_dict()
    with pytest.raises(RangeError, match="batch_clips was 5, is 4; seed was 1, is 0"):
        loader_of().load_state_dict(state)


def test_loading_leaves_the_global_random_state_alone():
    before = torch.get_rng_state()
    for num_workers in (0, 1):
        list(loader_of(num_workers=num_workers))
    assert torch.equal(torch.get_rng_state(), before)


def test_a_clip_drawn_twice_is_viewed_anew():
    weights = np.eye(1, 14, 5)[0]  # only clip 5, fourteen times
    stack = torch.cat([batch.stack for batch in loader_of(weights=weights)])
    assert len(stack) == 14
    assert len({clip.numpy().tobytes() for clip in stack}) > 11


def test_without_chance_a_batch_is_what_lies_in_the_data_set():
    still = TrainingView(short_sides_px=None, crop_px=None, flip_probability=0.0, box_jitter=0.0)
    (batch,) = loader_of(batch_clips=14, view=still, is_shuffled=False)
    assert batch.positions.tolist() == list(range(14))
    samples = [made_sample(position) for position in range(14)]
    assert torch.equal(batch.labels, torch.cat([sample.labels for sample in samples]))
    scale = torch.tensor([16.0, 12.0, 16.0, 12.0])
    boxes = torch.cat([sample.actor_boxes_xyxy_unit for sample in samples]) * scale
    torch.testing.assert_close(batch.actor_boxes_xyxy_px, boxes.clamp(max=scale - 1))
    assert batch.labels.shape[1] == len(CLASSES)


class ThreadCounting(MadeClips):
    """Writes the number of torch threads into every pixel."""

    def __getitem__(self, position):
        sample = super().__getitem__(position)
        sample.frames.fill_(torch.get_num_threads())
        return sample


def test_a_worker_uses_one_thread_and_this_process_keeps_its_own():
    before = torch.get_num_threads()
    try:
        torch.set_num_threads(2)
        raw = {
            num_workers: next(iter(loader_of(ThreadCounting(), num_workers=num_workers, view=TrainingView())))
            for num_workers in (0, 1)
        }
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(before)
    levels = {n: round((batch.stack.mean().item() * 0.225 + 0.45) * 255) for n, batch in raw.items()}
    assert levels == {0: 2, 1: 1}


def faults_of_a_block():
    """Pages that are fetched from the system for a block of 48 MB."""
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    torch.ones(48 << 20, dtype=torch.uint8)
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before


class FaultCounting(MadeClips):
    """White where each of several blocks, asked for one after the other, is fetched from the system anew; else black."""

    def __getitem__(self, position):
        sample = super().__getitem__(position)
        is_fetched_anew = min(faults_of_a_block() for _ in range(6)) > 1000
        sample.frames.fill_(255 if is_fetched_anew else 0)
        return sample


@pytest.mark.alone  # a worker begins with the heap of this process, which thousands of tests leave in pieces
@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="needs glibc's mallopt")
def test_a_worker_keeps_the_memory_of_the_clips_it_has_read():
    for _ in range(
        3
    ):  # another process may press this one's memory; a worker that frees it faults every time
        batch = next(iter(loader_of(FaultCounting(), num_workers=1, view=TrainingView())))
        if round((batch.stack.mean().item() * 0.225 + 0.45) * 255) == 0:
            return
    pytest.fail("a worker faulted while it read clips, three times")


def test_settings_that_mean_nothing_are_refused():
    with pytest.raises(RangeError, match="must have as many clips as the data set; got 7 and 20"):
        ClipLoader(MadeClips(20), ClipSampler(7, 2), view=VIEW)
    with pytest.raises(RangeError, match="num_workers must not be below zero"):
        ReadAhead(num_workers=-1)
