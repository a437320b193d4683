"""A clip that cannot be read is tried again, then skipped and listed; too many stop the run; nothing hangs."""

import errno
import json
import multiprocessing
import os
import signal
import threading
import time
from multiprocessing.resource_sharer import DupFd

import numpy as np
import pytest
import torch
from made_clips import MadeClips, made_sample
from made_loaders import contents, epoch_of, loader_of
from made_video_tables import READING, video_table
from tiny_extraction import render
from torch import Tensor

from mule.core.errors import MuleError, RangeError, VideoError
from mule.data.batches import loading
from mule.data.batches.batches import ClipSampler
from mule.data.batches.loading import ClipLoader, ReadAhead, SkipRule, WorkerLost, worker_loss_explained
from mule.data.batches.samples import ClipName, WholeView
from mule.data.batches.video_clips import VideoClips

PATIENT = SkipRule(num_tries=3, pause_s=0.0, max_share=0.2)


@pytest.mark.parametrize("num_workers", [0, 2])
def test_a_clip_that_comes_back_is_as_if_nothing_had_been(num_workers):
    loader = loader_of(MadeClips(14, flaky={3, 11}), num_workers=num_workers, skip_rule=PATIENT)
    assert epoch_of(loader) == epoch_of(loader_of())
    assert loader.skipped == []


@pytest.mark.parametrize("num_workers", [0, 2])
def test_an_unreadable_clip_is_left_out_listed_and_changes_no_other(num_workers):
    loader = loader_of(MadeClips(14, unreadable={3, 11}), num_workers=num_workers, skip_rule=PATIENT)
    whole = {int(p): clip for b in loader_of() for p, clip in zip(b.positions, b.stack, strict=True)}
    batches = list(loader)
    found = {int(p): clip for b in batches for p, clip in zip(b.positions, b.stack, strict=True)}
    assert found.keys() == whole.keys() - {3, 11}
    assert all(torch.equal(clip, whole[position]) for position, clip in found.items())
    assert {(c.epoch, c.position, c.name) for c in loader.skipped} == {
        (0, 3, "film0 at 3 s"),
        (0, 11, "film2 at 11 s"),
    }
    assert {c.reason for c in loader.skipped} == {
        "film0.mp4: cannot be opened.",
        "film2.mp4: cannot be opened.",
    }
    assert [batch.num_clips for batch in batches] == [
        len(set(order.positions) - {3, 11}) for order in loader.sampler.batches(0)
    ]


def test_every_try_is_made_and_no_more():
    samples = MadeClips(unreadable={3})
    list(loader_of(samples, skip_rule=PATIENT))
    assert samples.tries[3] == 3
    assert set(samples.tries.values()) == {1, 3}


def test_a_batch_of_nothing_but_unreadable_clips_is_empty():
    samples = MadeClips(4, unreadable={0, 1})
    rule = SkipRule(num_tries=1, max_share=0.5)
    batches = list(loader_of(samples, batch_clips=2, is_shuffled=False, skip_rule=rule, view=WholeView()))
    assert [(b.num_clips, b.num_actors, b.labels.shape[1]) for b in batches] == [(0, 0, 4), (2, 5, 4)]


@pytest.mark.parametrize("num_workers", [0, 2])
def test_above_the_stated_share_the_run_stops_with_the_list(num_workers):
    samples = MadeClips(unreadable={3, 11, 12, 13, 14})
    loader = loader_of(samples, num_workers=num_workers, skip_rule=PATIENT)
    with pytest.raises(
        VideoError, match=r"at most 20.00% of an epoch's 20 clips may be unreadable; in epoch 0 5 were"
    ):
        list(loader)
    assert len(loader.skipped) == 5


def test_the_list_names_clips_and_reasons_and_what_to_do():
    with pytest.raises(VideoError) as caught:
        list(loader_of(MadeClips(unreadable=range(20)), batch_clips=20, skip_rule=SkipRule(pause_s=0.0)))
    message = str(caught.value)
    assert "at most 1.00% of" in message
    assert "each tried 3 times" in message
    assert "`mule data check` finds them" in message
    assert message.count("cannot be opened") == 10
    assert message.endswith("and 10 more")


def test_the_share_is_counted_anew_each_epoch_and_the_list_kept():
    loader = loader_of(MadeClips(unreadable={3, 11}), skip_rule=SkipRule(num_tries=1, max_share=0.1))
    for _ in range(3):
        list(loader)
    assert [(c.epoch, c.position) for c in sorted(loader.skipped, key=lambda c: (c.epoch, c.position))] == [
        (epoch, position) for epoch in range(3) for position in (3, 11)
    ]


def test_what_was_skipped_counts_on_after_a_run_was_cut_in_two():
    rule = SkipRule(num_tries=1, max_share=0.1)
    samples = MadeClips(unreadable={0, 1, 2})
    before = loader_of(samples, is_shuffled=False, batch_clips=2, skip_rule=rule)
    next(iter(before))
    after = loader_of(samples, is_shuffled=False, batch_clips=2, skip_rule=rule)
    after.load_state_dict(json.loads(json.dumps(before.state_dict())))
    assert after.skipped == before.skipped
    with pytest.raises(VideoError, match="in epoch 0 3 were by batch 2"):
        next(iter(after))


class Misread(MadeClips):
    """A clip whose boxes are wrong, and one whose code is."""

    def __getitem__(self, position):
        if position == 5:
            raise RangeError("actor boxes must lie in the frame.")
        if position == 7:
            raise KeyError("a bug")
        return made_sample(position)


@pytest.mark.parametrize("num_workers", [0, 1])
def test_wrong_annotations_and_bugs_are_no_unreadable_clips(num_workers):
    for only, error in ((5, RangeError), (7, KeyError)):
        weights = np.eye(1, 20, only)[0]
        with pytest.raises(error) as caught:
            list(loader_of(Misread(), weights=weights, num_workers=num_workers))
        if isinstance(caught.value, MuleError):
            assert str(caught.value) == "actor boxes must lie in the frame."


class Watched:
    """A loader that has handed out its first batch, and its own two workers; tests before may have left others."""

    def __init__(self):
        others = multiprocessing.active_children()
        self.loader = loader_of(MadeClips(14, delay_s=0.02), num_workers=2)
        self.batches = iter(self.loader)
        self.seen = [contents(next(self.batches))]
        self.workers = [worker for worker in multiprocessing.active_children() if worker not in others]
        assert len(self.workers) == 2

    def kill_one(self):
        self.workers[0].kill()

    def kill_one_and_read_on(self):
        self.kill_one()
        self.seen.extend(map(contents, self.batches))

    def kill_one_during_a_step(self):
        self.kill_one()
        time.sleep(60)  # torch interrupts the sleep

    def goes_on_to_the_same_bits(self):
        return self.seen + epoch_of(self.loader) == epoch_of(loader_of())

    def left_nothing(self):
        """Torch looks for lost workers of all loaders whenever any child ends."""
        for _ in range(2):
            child = multiprocessing.get_context("fork").Process(target=int)
            child.start()
            child.join()
        return not any(worker.is_alive() for worker in self.workers)


LOSS = r"worker processes must live as long as the loader; one is gone .*memory"


def test_a_killed_worker_is_a_clear_error_and_the_loader_goes_on_after_it():
    watched = Watched()
    with pytest.raises(WorkerLost, match=LOSS), worker_loss_explained():
        watched.kill_one_and_read_on()
    assert watched.goes_on_to_the_same_bits()


def test_a_worker_killed_during_a_step_is_the_same_clear_error():
    watched = Watched()
    with pytest.raises(WorkerLost, match="With num_workers=0"), worker_loss_explained():
        watched.kill_one_during_a_step()
    watched.loader.close()
    assert watched.goes_on_to_the_same_bits()


def test_of_a_closed_loader_nothing_is_left_though_a_traceback_holds_it():
    watched = Watched()
    with pytest.raises(WorkerLost) as caught, worker_loss_explained():
        watched.kill_one_and_read_on()
    watched.loader.close()
    assert watched.left_nothing()
    assert caught.value.__traceback__ is not None


def broken_pipe(*_):
    raise ConnectionResetError(errno.ECONNRESET, "Connection reset by peer")


def test_a_worker_whose_pipes_close_before_it_is_dead_is_told_once(monkeypatch):
    watched = Watched()

    def dies_soon(*_):
        threading.Timer(0.3, watched.kill_one).start()
        broken_pipe()

    monkeypatch.setattr(DupFd, "detach", dies_soon)
    with pytest.raises(WorkerLost, match=LOSS):
        list(watched.batches)
    assert watched.left_nothing()


def test_a_broken_pipe_of_living_workers_is_what_it_is(monkeypatch):
    watched = Watched()
    monkeypatch.setattr(DupFd, "detach", broken_pipe)
    monkeypatch.setattr(loading, "_DEATH_S", 0.1)
    with pytest.raises(ConnectionResetError):
        list(watched.batches)
    assert watched.left_nothing()


def test_a_worker_that_was_lost_unnoticed_is_told_when_the_next_iteration_begins():
    watched = Watched()
    watched.seen.extend(map(contents, watched.batches))
    worker = watched.workers[0]
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGCHLD})  # torch hears nothing of it
    worker.kill()
    worker.join()
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGCHLD})
    with pytest.raises(WorkerLost, match=rf"process {worker.pid} ended with exit code -9"):
        next(iter(watched.loader))
    alone = loader_of()
    assert watched.seen + epoch_of(watched.loader) == epoch_of(alone) + epoch_of(alone)
    assert watched.left_nothing()


def test_closing_while_a_worker_is_killed_is_no_error(monkeypatch):
    watched = Watched()
    worker = watched.workers[0]
    pid = int(worker.pid or 0)
    os.kill(pid, signal.SIGSTOP)  # or it might end in peace before
    told = []

    def killed_meanwhile(**_):
        try:
            worker.kill()
            os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)
        except RuntimeError as error:
            told.append(error)
            raise

    monkeypatch.setattr(worker, "join", killed_meanwhile)
    watched.loader.close()
    assert len(told) == 1
    assert watched.left_nothing()


class Buggy(MadeClips):
    """A bug whose error has the type of torch's word about a lost worker."""

    def __getitem__(self, position):
        raise RuntimeError("sizes differ")


def test_an_error_of_a_living_worker_is_no_lost_worker():
    with pytest.raises(
        RuntimeError, match=r"(?s)Caught RuntimeError in DataLoader worker .* sizes differ"
    ) as caught:
        list(loader_of(Buggy(), num_workers=1))
    assert not isinstance(caught.value, WorkerLost)


def test_other_errors_pass_through_unexplained():
    with pytest.raises(RuntimeError, match="sizes differ"), worker_loss_explained():
        raise RuntimeError("sizes differ")


class OneMissing(MadeClips):
    """A plain error of the disk, not one of ours."""

    def __getitem__(self, position):
        if position == 5:
            raise FileNotFoundError("no such file: film1.mp4")
        return made_sample(position)


def test_errors_of_the_disk_count_as_unreadable():
    loader = loader_of(OneMissing(), skip_rule=PATIENT)
    list(loader)
    assert [(c.position, c.reason) for c in loader.skipped] == [(5, "no such file: film1.mp4")]


def test_damaged_and_missing_videos_are_skipped_by_name(tmp_path):
    sources = {f"v{i}": render(tmp_path / f"v{i}.mp4", 20, seed=i) for i in range(4)}
    sources["v1"].write_bytes(sources["v1"].read_bytes()[:400])
    sources["v2"].unlink()
    rows = [(name, 1.0, None, ("run",), "") for name in sources]
    clips = VideoClips(video_table(rows), sources, classes=("run",), reading=READING)
    loader = ClipLoader(
        clips,
        ClipSampler(4, 2, is_shuffled=False),
        view=WholeView(),
        read_ahead=ReadAhead(num_workers=1),
        skip_rule=SkipRule(num_tries=2, pause_s=0.0, max_share=0.5),
    )
    names = [name for batch in loader for name in batch.clip_names]
    assert names == [ClipName("v0", 1.0), ClipName("v3", 1.0)]
    assert [c.name for c in loader.skipped] == ["v1 at 1 s", "v2 at 1 s"]
    assert all(f"{name}.mp4" in c.reason for name, c in zip(("v1", "v2"), loader.skipped, strict=True))


def test_pinned_memory_is_asked_for_where_it_is_wanted(monkeypatch):
    pinned = []
    monkeypatch.setattr(Tensor, "pin_memory", lambda tensor, *_: pinned.append(1) or tensor)
    monkeypatch.setattr("torch.accelerator.is_available", lambda: True)
    loader = ClipLoader(
        MadeClips(4),
        ClipSampler(4, 2),
        view=WholeView(),
        read_ahead=ReadAhead(num_workers=0, pins_memory=True),
    )
    assert len(list(loader)) == 2
    assert pinned


@pytest.mark.parametrize("settings", [{"num_tries": 0}, {"pause_s": -1.0}, {"max_share": 1.5}])
def test_skip_rules_that_mean_nothing_are_refused(settings):
    with pytest.raises(RangeError, match="num_tries must be at least 1"):
        SkipRule(**settings)
