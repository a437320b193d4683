"""Loading speed in clips per second by number of workers, and the time a training step waits for its batch.

    python -m bench.loading

A step only sleeps, as if an accelerator computed it, so both cores are free to read. Clips of a video are
requested in random order, so each starts decoding at the key frame before it, up to 250 frames away in this
file.
"""

import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch

from bench.timing import Comparison
from bench.video import rendered
from mule.data.batches.loading import ClipLoader, ReadAhead
from mule.data.batches.samples import (
    SMALL_TRAINING_VIEW,
    ClipName,
    ClipSample,
    ClipSamples,
    ClipView,
    TrainingView,
    WholeView,
)
from mule.data.batches.sampling import ClipSampler
from mule.data.batches.video_clips import ClipReading, VideoClips
from mule.data.table.table import ActorTable

STEP_S = 0.25
REPEATS = 3


def comparisons() -> list[Comparison]:
    """Compare workers with reading in the training process, and a step that loads with a bare step."""
    with tempfile.TemporaryDirectory() as folder:
        film = rendered(Path(folder) / "film.mp4", num_frames=600, size=(360, 640))
        return [
            *_compared(
                "Stage clips of 32 × 96 × 128 in memory", HeldClips(64), SMALL_TRAINING_VIEW, batch_clips=8
            ),
            *_compared("360p video, AVA test view", filmed(film, 256), WholeView(), batch_clips=1),
            *_compared("360p video, AVA training view", filmed(film, None), TrainingView(), batch_clips=2),
        ]


class HeldClips:
    """Noise clips of Stage's size in memory, with three actors each."""

    classes = tuple(f"action{number}" for number in range(14))

    def __init__(self, num_clips: int) -> None:
        generator = np.random.default_rng(0)
        self._frames = generator.integers(0, 256, (num_clips, 32, 3, 96, 128), dtype=np.uint8)

    def __len__(self) -> int:
        return len(self._frames)

    def name_of(self, position: int) -> ClipName:
        return ClipName(f"clip{position}", 1.0)

    def __getitem__(self, position: int) -> ClipSample:
        return ClipSample(
            name=self.name_of(position),
            frames=torch.from_numpy(self._frames[position]),
            actor_boxes_xyxy_unit=torch.tensor(
                [[0.1, 0.2, 0.3, 0.9], [0.4, 0.3, 0.6, 0.9], [0.7, 0.2, 0.9, 0.8]]
            ),
            labels=torch.zeros(3, len(self.classes), dtype=torch.bool),
            actor_ids=("", "", ""),
            object_boxes_xyxy_unit=torch.zeros(0, 4),
            object_class=torch.zeros(0, dtype=torch.int64),
            object_scores=torch.zeros(0),
            source_size=(96, 128),
        )


def filmed(film: Path, short_side_px: int | None) -> VideoClips:
    """AVA's clip around every second of the film, with one actor each."""
    times = np.arange(1.0, 19.0)
    table = ActorTable(
        ("film",),
        ("act",),
        np.zeros(len(times), np.int64),
        times,
        np.tile([0.2, 0.2, 0.6, 0.9], (len(times), 1)),
        np.ones((len(times), 1), bool),
        ("",) * len(times),
    )
    return VideoClips(
        table, {"film": film}, classes=("act",), reading=ClipReading(short_side_px=short_side_px)
    )


def _compared(what: str, samples: ClipSamples, view: ClipView, *, batch_clips: int) -> list[Comparison]:
    loaders = {
        num_workers: ClipLoader(
            samples,
            ClipSampler(len(samples), batch_clips),
            view=view,
            read_ahead=ReadAhead(num_workers=num_workers),
        )
        for num_workers in (0, 1, 2)
    }
    per_clip = _in_turns({n: lambda loader=loader: _epoch_s(loader) for n, loader in loaders.items()})
    step_s = statistics.median(_step_s(loaders[2]) for _ in range(REPEATS))
    here = f"in the training process, {len(samples) / per_clip[0]:.0f} clips/s"
    rows = [
        Comparison(
            f"{what}: {n} worker{'s' * (n > 1)}, {len(samples) / per_clip[n]:.0f} clips/s",
            here,
            per_clip[n] / len(samples),
            per_clip[0] / len(samples),
        )
        for n in (1, 2)
    ]
    waiting = (
        f"{what}: a step with {batch_clips} clip{'s' * (batch_clips > 1)}, {1 - STEP_S / step_s:.1%} waiting"
    )
    return [*rows, Comparison(waiting, "a bare step", step_s, STEP_S, "above 0.9")]


def _in_turns(runs: dict[int, Callable[[], float]]) -> dict[int, float]:
    times: dict[int, list[float]] = {name: [] for name in runs}
    for _ in range(REPEATS):
        for name, run in runs.items():
            times[name].append(run())
    return {name: statistics.median(series) for name, series in times.items()}


def _epoch_s(loader: ClipLoader) -> float:
    """Seconds of a whole epoch after the workers have started."""
    if loader.epoch == 0:
        list(loader)
    started_at = time.perf_counter()
    for _ in loader:
        pass
    return time.perf_counter() - started_at


def _step_s(loader: ClipLoader) -> float:
    """Seconds of a step including its wait for a batch, in the middle of an epoch."""
    batches = iter(loader)
    next(batches)
    num_steps = min(len(loader), 6)
    started_at = time.perf_counter()
    for _ in range(num_steps):
        time.sleep(STEP_S)
        next(batches)
    elapsed_s = time.perf_counter() - started_at
    list(batches)
    return elapsed_s / num_steps


def main() -> None:
    print(Comparison.HEADER)
    for row in comparisons():
        print(row.row())


if __name__ == "__main__":
    main()
