"""Batches, read ahead by worker processes and handed out in an order that depends on the seed alone.

    sampler ─ orders ─▶ worker: read, view, batch ─▶ ActorBatch
                        worker: read, view, batch ─▶

All chance of a draw comes from a generator keyed by (seed, epoch, number of the draw), so any number of workers or
ranks gives the same batches, bit for bit.

A clip that cannot be read is skipped and listed; above a share of the epoch's clips loading stops with the list.
"""

from collections.abc import Generator, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from multiprocessing.connection import wait
from multiprocessing.process import BaseProcess
from typing import Any, Literal

import torch
from torch.utils.data import DataLoader, Sampler
from torch.utils.data.dataloader import _MultiProcessingDataLoaderIter as _WorkersIterator  # pyright: ignore[reportPrivateUsage] - alone knows its workers

from mule.core.errors import MuleError, RangeError, VideoError
from mule.core.heap import keep_freed_memory
from mule.data.batches.batch_reading import BatchReader, ReadBatch, SkippedClip, SkipRule
from mule.data.batches.batches import ActorBatch
from mule.data.batches.samples import ClipSamples, ClipView
from mule.data.batches.sampling import BatchOrder, ClipSampler

_MOST_SHOWN = 10
_DEATH_S = 5.0
"""How long a process may take from its last pipe to its end; on a busy machine more than an instant."""


class WorkerLost(MuleError, RuntimeError):  # noqa: N818 - names the fact, as the messages do
    """A process that reads clips ahead is gone."""


@dataclass(frozen=True)
class ReadAhead:
    """Who reads, and how far ahead."""

    num_workers: int = 2
    """Processes, with one torch thread each; 0 reads when asked, in the process that asks."""
    prefetch_batches: int = 2
    """How many batches each worker is ahead."""
    pins_memory: bool = False
    """Whether batches come in memory that a device copies from without waiting."""
    start_method: Literal["fork", "forkserver", "spawn"] | None = None
    """How workers start; None is the platform's way."""

    def __post_init__(self) -> None:
        if self.num_workers < 0 or self.prefetch_batches < 1:
            raise RangeError(
                "num_workers must not be below zero and prefetch_batches at least 1; got "
                f"{self.num_workers} and {self.prefetch_batches}."
            )


@dataclass
class _Place:
    """How far a loader has come."""

    epoch: int = 0
    num_batches: int = 0


class ClipLoader:
    """The batches of a data set, epoch by epoch.

    Iterating hands out what is left of the current epoch and moves on to the next one, so an iteration that was
    left half-way goes on where it stopped, and so does one whose state was loaded. One iteration at a time.
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
        """No worker starts yet.

        Args:
            samples: the clips.
            sampler: which of them make which batch.
            view: what a backbone is to see of them.
            read_ahead: who reads; the default is `ReadAhead()`, two workers.
            skip_rule: what to do about clips that cannot be read; the default is `SkipRule()`.
        """
        if sampler.num_clips != len(samples):
            raise RangeError(
                f"the sampler must count the clips of the data set; got {sampler.num_clips} and {len(samples)}."
            )
        self.sampler = sampler
        self._place = _Place()
        self.skipped: list[SkippedClip] = []
        """Of all epochs, in order."""
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
        """Batches of this epoch that were handed out; those read ahead do not count."""
        return self._place.num_batches

    def __len__(self) -> int:
        """Batches that are left of this epoch."""
        return self.sampler.num_batches - self.num_batches

    def __iter__(self) -> Iterator[ActorBatch]:
        """The batches that are left of this epoch.

        Raises:
            VideoError: too many clips could not be read; the message lists them.
            WorkerLost: a worker process was killed; the next iteration starts new ones. Elsewhere in a loop
                `worker_loss_explained` says the same; `close` then, before you go on.
        """
        try:
            with worker_loss_explained():
                yield from self._remaining()
        except Exception:
            self.close()
            raise
        self._place.epoch, self._place.num_batches = self.epoch + 1, 0

    def close(self) -> None:
        """Ends the workers, so that nothing is heard of them again; the next iteration starts new ones."""
        upcoming, self._upcoming, self._loader = self._upcoming, None, None
        if isinstance(upcoming, _WorkersIterator):
            _end_workers(upcoming)

    def state_dict(self) -> dict[str, Any]:
        """Where the next batch comes from, in plain numbers and texts. It does not depend on ranks or workers."""
        return {
            "epoch": self.epoch,
            "num_batches": self.num_batches,
            "skipped": [asdict(clip) for clip in self.skipped],
            "sampler": self.sampler.settings(),
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Goes on where another loader of the same clips in the same order was.

        Raises:
            RangeError: its batches were others than ours, so "the remaining ones" would mean nothing.
        """
        ours, theirs = self.sampler.settings(), dict(state["sampler"])
        differing = [
            f"{name} was {theirs.get(name)!r}, is {ours.get(name)!r}"
            for name in sorted(ours.keys() | theirs.keys())
            if ours.get(name) != theirs.get(name)
        ]
        if differing:
            raise RangeError(
                f"to go on mid-epoch the batches must be those of the earlier run; {'; '.join(differing)}. Restore the "
                "old settings, or begin a new run."
            )
        self._place.epoch, self._place.num_batches = int(state["epoch"]), int(state["num_batches"])
        self.skipped = [SkippedClip(**clip) for clip in state["skipped"]]

    def _remaining(self) -> Iterator[ActorBatch]:
        lost = [worker for worker in _workers_of(self._upcoming) if not worker.is_alive()]
        if lost:
            raise _explained(_endings(lost))
        self._upcoming = upcoming = iter(self._data_loader())
        while (read := _next_of(upcoming)) is not None:
            if isinstance(read, MuleError):
                raise read
            self._place.num_batches += 1
            self._note_skipped(read.skipped)
            yield read.batch

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
                multiprocessing_context=ahead.start_method if has_workers else None,
                pin_memory=ahead.pins_memory,
                worker_init_fn=_as_a_worker,
                collate_fn=_as_it_is,
                generator=torch.Generator(),  # or it would draw from the global one, which training may use
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
                "times. Fetch them again, leave them out (`mule data check` finds them), or allow a larger share.\n  "
                + "\n  ".join(shown + rest)
            )


@contextmanager
def worker_loss_explained() -> Generator[None, None, None]:
    """Says `WorkerLost` where torch says that a worker process is gone.

    Torch notices it wherever the program is at that moment, so a training loop belongs inside this too.

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
    """Whether torch says that a process is gone; what a living worker raised names no process id."""
    return not isinstance(error, MuleError) and str(error).startswith("DataLoader worker (pid")


def _explained(loss: str) -> WorkerLost:
    return WorkerLost(
        f"worker processes must live as long as the loader; one is gone ({loss}). Most often memory ran out: lower "
        "num_workers, prefetch_batches or batch_clips, or give a container more shared memory (--shm-size). With "
        "num_workers=0 the same clips are read in this process, where an error shows itself. The last saved state "
        "goes on with the batch after it."
    )


def _next_of(upcoming: Iterator[ReadBatch | MuleError]) -> ReadBatch | MuleError | None:
    """What was read next; None at the end of the epoch.

    The pipes of a worker that is killed close before it is dead. Torch then still counts it among the living, lets
    the error of the pipe out, and speaks of the worker when the program is elsewhere. So its end is waited for here.
    """
    try:
        return next(upcoming, None)
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
    """No worker lives after it, nor does torch watch one, whoever still holds the iterator (a traceback does).

    If one is lost just now torch may say so once more; it then forgets them all.
    """
    while True:
        try:
            return upcoming._shutdown_workers()  # pyright: ignore[reportPrivateUsage] - there is no public way
        except RuntimeError as error:
            if not _tells_of_a_loss(error):
                raise


class _Orders(Sampler[BatchOrder]):
    """What is left of the current epoch, as torch wants it.

    It must not know the loader: workers that only the collector of cycles ends take five seconds each.
    """

    def __init__(self, sampler: ClipSampler, place: _Place) -> None:
        self._sampler, self._place = sampler, place

    def __iter__(self) -> Iterator[BatchOrder]:
        return self._sampler.batches(self._place.epoch, first=self._place.num_batches)


def _as_a_worker(_: int) -> None:
    """One thread; and clips of the same size come again and again, so their memory stays."""
    torch.set_num_threads(1)
    keep_freed_memory()


def _as_it_is(read: Any) -> Any:  # noqa: ANN401 - torch types this as if it made batches of lists
    return read
