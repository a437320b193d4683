"""What a worker does: reads the clips of a batch, looks at them, puts them together.

A clip that cannot be read is tried again, then left out of its batch and named beside it. The batch is smaller,
nothing takes the clip's place, and no other draw changes.
"""

import time
from dataclasses import dataclass, replace

import torch
from torch.utils.data import Dataset, get_worker_info

from mule.core.errors import MuleError, RangeError
from mule.data.batches.batches import ActorBatch, BatchClip, batch_of
from mule.data.batches.samples import ClipSample, ClipSamples, ClipView, sample_at
from mule.data.batches.sampling import BatchOrder, ClipSampler


@dataclass(frozen=True)
class SkipRule:
    """When a clip is given up, and when the whole run."""

    num_tries: int = 3
    pause_s: float = 0.1
    """Before each further try: network disks come back."""
    max_share: float = 0.01
    """Of the clips this rank reads in an epoch: if more are skipped, loading stops."""

    def __post_init__(self) -> None:
        if self.num_tries < 1 or self.pause_s < 0 or not 0 <= self.max_share <= 1:
            raise RangeError(
                "num_tries must be at least 1, pause_s not below zero and max_share within [0, 1]; got "
                f"{self.num_tries}, {self.pause_s} and {self.max_share}."
            )


@dataclass(frozen=True)
class SkippedClip:
    """A clip that an epoch went without, and why."""

    epoch: int
    position: int
    name: str
    reason: str


@dataclass(frozen=True)
class ReadBatch:
    """What a worker sends."""

    batch: ActorBatch
    skipped: tuple[SkippedClip, ...]

    def pin_memory(self) -> "ReadBatch":
        """The same in memory that a device copies from without waiting."""
        return replace(self, batch=self.batch.pin_memory())


class BatchReader(Dataset):
    """Reads whole batches, in whatever process it is asked."""

    def __init__(self, samples: ClipSamples, sampler: ClipSampler, view: ClipView, rule: SkipRule) -> None:
        self._samples, self._sampler, self._view, self._rule = samples, sampler, view, rule

    def __getitem__(self, order: BatchOrder) -> "ReadBatch | MuleError":
        """The batch; an error of ours travels as a value, or torch would wrap it in a traceback of the worker."""
        try:
            return self._batch(order)
        except MuleError as error:
            return error

    def _batch(self, order: BatchOrder) -> ReadBatch:
        clips: list[BatchClip] = []
        skipped: list[SkippedClip] = []
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
        return ReadBatch(batch, tuple(skipped))

    def _read(self, position: int, seed: int) -> tuple[ClipSample, torch.Generator]:
        """The clip, and its generator for the view; every try begins with the same chance."""
        for _ in range(self._rule.num_tries - 1):
            try:
                return self._read_once(position, seed)
            except OSError:
                time.sleep(self._rule.pause_s)
        return self._read_once(position, seed)

    def _read_once(self, position: int, seed: int) -> tuple[ClipSample, torch.Generator]:
        generator = torch.Generator().manual_seed(seed)
        return sample_at(self._samples, position, generator), generator
