"""Batches, read ahead by worker processes, in an order that depends on the seed alone.

    sampler ─ orders ─▶ worker: read, view, batch ─▶ ActorBatch
                        worker: read, view, batch ─▶

All randomness of a draw comes from a generator keyed by (seed, epoch, number of the draw), so any number of workers or
ranks gives the same batches, bit for bit.

A clip that cannot be read is skipped and listed; if too many are, loading stops with the list.
"""

import time
from collections.abc import Generator, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from multiprocessing.connection import wait
from multiprocessing.process import BaseProcess
from typing import Any

import torch
from torch.utils.data import DataLoader, Dataset, Sampler, get_worker_info
from torch.utils.data.dataloader import _MultiProcessingDataLoaderIter as _WorkersIterator  # pyright: ignore[reportPrivateUsage] - alone knows its workers

from mule.core.defaults import PREFETCH_BATCHES, READ_WORKERS, UNREADABLE_SHARE
from mule.core.errors import MuleError, RangeError, VideoError
from mule.core.heap import keep_freed_memory
from mule.core.signals import without_ctrl_c
from mule.data.batches.batches import ActorBatch, BatchClip, BatchOrder, ClipSampler, batch_of
from mule.data.batches.samples import ClipSample, ClipSamples, ClipView, sample_at

_MOST_SHOWN = 10
_DEATH_S = 5.0
"""How long a process may take to end after its last pipe has closed."""


class WorkerLost(MuleError, RuntimeError):  # noqa: N818 - names the fact, as the messages do
    """A process that reads clips ahead is gone."""


@dataclass(frozen=True)
class ReadAhead:
    """How many processes read, and how far ahead."""

    num_workers: int = READ_WORKERS
    """Worker processes, with one torch thread each; 0 reads on demand in the calling process."""
    prefetch_batches: int = PREFETCH_BATCHES
    """Batches that each worker reads ahead."""
    pins_memory: bool = False
    """Whether batches are in pinned memory, for faster copies to a GPU."""

    def __post_init__(self) -> None:
        if self.num_workers < 0 or self.prefetch_batches < 1:
            raise RangeError(
                "num_workers must not be below zero and prefetch_batches at least 1; got "
                f"{self.num_workers} and {self.prefetch_batches}."
            )


@dataclass
class _Place:
    """The position of a loader."""

    epoch: int = 0
    num_batches: int = 0


@dataclass(frozen=True)
class SkipRule:
    """When to give up on a clip, and when on the whole run."""

    num_tries: int = 3
    pause_s: float = 0.1
    """Pause before each further try; network disks may come back."""
    max_share: float = UNREADABLE_SHARE
    """Loading stops if more than this share of the rank's clips in an epoch is skipped."""

    def __post_init__(self) -> None:
        if self.num_tries < 1 or self.pause_s < 0 or not 0 <= self.max_share <= 1:
            raise RangeError(
                "num_tries must be at least 1, pause_s not below zero and max_share within [0, 1]; got "
                f"{self.num_tries}, {self.pause_s} and {self.max_share}."
            )


@dataclass(frozen=True)
class SkippedClip:
    """A clip that was skipped in an epoch, and why."""

    epoch: int
    position: int
    name: str
    reason: str


@dataclass(frozen=True)
class ReadBatch:
    """A batch as a worker sends it."""

    batch: ActorBatch
    skipped: tuple[SkippedClip, ...]

    def pin_memory(self) -> "ReadBatch":
        """Return the same in pinned memory."""
        return replace(self, batch=self.batch.pin_memory())


class BatchReader(Dataset):
    """Reads whole batches, in whatever process it is called.

    A clip that cannot be read is tried again, then left out of its batch and reported beside it. The batch is smaller,
    nothing takes the clip's place, and no other draw changes.
    """

    def __init__(self, samples: ClipSamples, sampler: ClipSampler, view: ClipView, rule: SkipRule) -> None:
        self._samples, self._sampler, self._view, self._rule = samples, sampler, view, rule

    def __getitem__(self, order: BatchOrder) -> "ReadBatch | MuleError":
        """Return the batch. Errors of ours are returned as values: torch would wrap them in a worker's traceback."""
        clips: list[BatchClip] = []
        skipped: list[SkippedClip] = []
        try:
            for position, draw in zip(order.positions, order.draws, strict=True):
                seed = self._sampler.draw_seed(order.epoch, draw)
                try:
                    sample, generator = self._read(position, seed)
                except OSError as error:  # a VideoError is one
                    name = str(self._samples.name_of(position))
                    skipped.append(SkippedClip(order.epoch, position, name, str(error)))
                else:
                    clips.append(BatchClip(position, sample, self._view(sample, generator)))
            is_shared = get_worker_info() is not None
            batch = batch_of(clips, num_classes=len(self._samples.classes), is_shared=is_shared)
        except MuleError as error:
            return error
        return ReadBatch(batch, tuple(skipped))

    def _read(self, position: int, seed: int) -> tuple[ClipSample, torch.Generator]:
        """Return the clip and the generator for its view; every try starts from the same seed."""
        num_tries = 0
        while True:
            generator = torch.Generator().manual_seed(seed)
            try:
                return sample_at(self._samples, position, generator), generator
            except OSError:
                num_tries += 1
                if num_tries == self._rule.num_tries:
                    raise
                time.sleep(self._rule.pause_s)


class ClipLoader:
    """The batches of a data set, epoch by epoch.

    Iterating yields the rest of the current epoch and then moves to the next one. An iteration that was left half-way
    continues where it stopped, and so does one whose state was loaded. Only one iteration may run at a time.
    """

    def __init__(
        self,
        samples: ClipSamples,
        sampler: ClipSampler,
        *,
        view: ClipView,
        read_ahead: ReadAhead | None = None,
        skip_rule: SkipRule | None = None,
    ) -> None:
        """Prepare; no worker starts yet.

        Args:
            samples: the clips.
            sampler: decides which clips make which batch.
            view: turns a clip into what the backbone sees.
            read_ahead: how many workers read; the default is `ReadAhead()`, one worker.
            skip_rule: what to do about unreadable clips; the default is `SkipRule()`.
        """
        if sampler.num_clips != len(samples):
            raise RangeError(
                f"the sampler must have as many clips as the data set; got {sampler.num_clips} and {len(samples)}."
            )
        self.sampler = sampler
        self._place = _Place()
        self.skipped: list[SkippedClip] = []
        """Skipped clips of all epochs, in order."""
        self._rule = skip_rule or SkipRule()
        self._reader = BatchReader(samples, sampler, view, self._rule)
        self._ahead = read_ahead or ReadAhead()
        self._loader: DataLoader[ReadBatch | MuleError] | None = None
        self._upcoming: Iterator[ReadBatch | MuleError] | None = None

    @property
    def epoch(self) -> int:
        """The epoch of the next batch, from 0."""
        return self._place.epoch

    @property
    def num_batches(self) -> int:
        """Batches of this epoch handed out so far; those read ahead do not count."""
        return self._place.num_batches

    def __len__(self) -> int:
        """Return how many batches are left in this epoch."""
        return self.sampler.num_batches - self.num_batches

    def __iter__(self) -> Iterator[ActorBatch]:
        """Yield the batches left in this epoch.

        Raises:
            VideoError: too many clips could not be read; the message lists them.
            WorkerLost: a worker process was killed; the next iteration starts new ones. Torch may notice the loss
                elsewhere in the loop: use `worker_loss_explained` there, and `close` before you continue.
        """
        try:
            with worker_loss_explained():
                lost = [worker for worker in _workers_of(self._upcoming) if not worker.is_alive()]
                if lost:
                    raise _explained(_endings(lost))
                with without_ctrl_c():  # workers start here; this process ends them
                    self._upcoming = upcoming = iter(self._data_loader())
                while True:
                    with _broken_pipe_explained(upcoming):
                        read = next(upcoming, None)
                    if read is None:
                        break
                    if isinstance(read, MuleError):
                        raise read
                    self._place.num_batches += 1
                    self._note_skipped(read.skipped)
                    yield read.batch
        except Exception:
            self.close()
            raise
        self._place.epoch, self._place.num_batches = self.epoch + 1, 0

    def close(self) -> None:
        """Stop the workers; the next iteration starts new ones."""
        upcoming, self._upcoming, self._loader = self._upcoming, None, None
        if isinstance(upcoming, _WorkersIterator):
            _end_workers(upcoming)

    def state_dict(self) -> dict[str, Any]:
        """Return the position of the next batch as plain values, independent of ranks and workers."""
        return {
            "epoch": self.epoch,
            "num_batches": self.num_batches,
            "skipped": [asdict(clip) for clip in self.skipped],
            "sampler": self.sampler.settings(),
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Resume where another loader of the same clips in the same order was.

        Raises:
            RangeError: the other loader had different batches.
        """
        ours, theirs = self.sampler.settings(), dict(state["sampler"])
        differing = [
            f"{name} was {theirs.get(name)!r}, is {ours.get(name)!r}"
            for name in sorted(ours.keys() | theirs.keys())
            if ours.get(name) != theirs.get(name)
        ]
        if differing:
            raise RangeError(
                f"to resume, the batches must be those of the earlier run; {'; '.join(differing)}. Restore the old "
                "settings, or start a new run."
            )
        self._place.epoch, self._place.num_batches = int(state["epoch"]), int(state["num_batches"])
        self.skipped = [SkippedClip(**clip) for clip in state["skipped"]]

    def _data_loader(self) -> "DataLoader[ReadBatch | MuleError]":
        if self._loader is None:
            ahead = self._ahead
            has_workers = ahead.num_workers > 0
            self._loader = DataLoader(
                self._reader,
                batch_size=None,  # an item already is a batch
                sampler=_Orders(self.sampler, self._place),
                num_workers=ahead.num_workers,
                prefetch_factor=ahead.prefetch_batches if has_workers else None,
                persistent_workers=has_workers,
                pin_memory=ahead.pins_memory,
                worker_init_fn=_as_a_worker,
                collate_fn=_as_it_is,
                generator=torch.Generator(),  # otherwise torch draws from the global one, which training may use
            )
        return self._loader

    def _note_skipped(self, skipped: tuple[SkippedClip, ...]) -> None:
        self.skipped += skipped
        in_epoch = [clip for clip in self.skipped if clip.epoch == self.epoch]
        num_clips = self.sampler.num_own_clips
        if skipped and len(in_epoch) > self._rule.max_share * num_clips:
            shown = [f"{clip.name} ({clip.reason})" for clip in in_epoch[:_MOST_SHOWN]]
            rest = [f"and {len(in_epoch) - _MOST_SHOWN} more"] if len(in_epoch) > _MOST_SHOWN else []
            raise VideoError(
                f"at most {self._rule.max_share:.2%} of an epoch's {num_clips} clips may be unreadable; in epoch "
                f"{self.epoch} {len(in_epoch)} were by batch {self.num_batches}, each tried {self._rule.num_tries} "
                "times. Download them again, remove their rows (`mule data check` finds them), or allow a larger share.\n  "
                + "\n  ".join(shown + rest)
            )


@contextmanager
def worker_loss_explained() -> Generator[None, None, None]:
    """Raise `WorkerLost` where torch reports that a worker process is gone.

    Torch notices it wherever the program is at that moment, so wrap a whole training loop in this.

    Raises:
        WorkerLost: a worker is gone.
    """
    try:
        yield
    except RuntimeError as error:
        if not _tells_of_a_loss(error):
            raise
        raise _explained(str(error).strip()) from error


def _tells_of_a_loss(error: RuntimeError) -> bool:
    """Whether torch reports that a process is gone; an error raised by a live worker names no process id."""
    return not isinstance(error, MuleError) and str(error).startswith("DataLoader worker (pid")


def _explained(loss: str) -> WorkerLost:
    return WorkerLost(
        f"worker processes must live as long as the loader; one is gone ({loss}). Most often memory ran out: lower "
        "num_workers, prefetch_batches or batch_clips, or give a container more shared memory (--shm-size). With "
        "num_workers=0 the same clips are read in this process, where an error is visible. The last saved state "
        "continues with the batch after it."
    )


@contextmanager
def _broken_pipe_explained(upcoming: Iterator[ReadBatch | MuleError]) -> Generator[None]:
    """Raise `WorkerLost` where a broken pipe shows that a worker was killed.

    The pipes of a killed worker close before it is dead. Torch then still counts it as alive, raises the error of the
    pipe, and reports the worker later, while the program is elsewhere. So its end is awaited here.
    """
    try:
        yield
    except (OSError, EOFError) as error:
        workers = _workers_of(upcoming)
        ended = wait([worker.sentinel for worker in workers], timeout=_DEATH_S if workers else 0)
        lost = [worker for worker in workers if worker.sentinel in ended]
        if not lost:
            raise
        for worker in lost:
            worker.join()
        raise _explained(_endings(lost)) from error


def _endings(lost: Iterable[BaseProcess]) -> str:
    return ", ".join(f"process {worker.pid} ended with exit code {worker.exitcode}" for worker in lost)


def _workers_of(upcoming: Iterator[Any] | None) -> list[BaseProcess]:
    if not isinstance(upcoming, _WorkersIterator):
        return []
    return upcoming._workers  # pyright: ignore[reportPrivateUsage]


def _end_workers(upcoming: _WorkersIterator) -> None:
    """End all workers, and torch's watch over them, even if something (a traceback) still holds the iterator.

    If one is lost just now, torch may report it once more; it then forgets them all.
    """
    while True:
        try:
            return upcoming._shutdown_workers()  # pyright: ignore[reportPrivateUsage] - there is no public way
        except RuntimeError as error:
            if not _tells_of_a_loss(error):
                raise


class _Orders(Sampler[BatchOrder]):
    """The rest of the current epoch, as torch wants it.

    It must not refer to the loader: workers that only the garbage collector ends take five seconds each.
    """

    def __init__(self, sampler: ClipSampler, place: _Place) -> None:
        self._sampler, self._place = sampler, place

    def __iter__(self) -> Iterator[BatchOrder]:
        return self._sampler.batches(self._place.epoch, first=self._place.num_batches)


def _as_a_worker(_: int) -> None:
    """Use one thread, and keep freed memory, because clips of the same size follow each other."""
    torch.set_num_threads(1)
    keep_freed_memory()


def _as_it_is(read: Any) -> Any:  # noqa: ANN401 - torch types it for lists of samples
    return read
