"""Cost of a training step, as ratios: cached maps, inner steps, repeatable bits, waiting for batches, two processes.

    python -m bench.training [--small]

Each measurement runs the experiment `stage` on fewer clips and reads the times from the run's metrics.
The first batch of an epoch is excluded; among the 125 batches of the full experiment it hardly counts.
"""

import itertools
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from mule.core.config import load_experiment
from mule.core.heap import keep_freed_memory
from mule.training.build import run_experiment
from mule.training.run_folder import METRICS, read_metrics
from mule.training.step import Silence

EXPERIMENT = Path("stage")
BATCH_CLIPS = 16
MOST_INNER_STEPS = 5


@dataclass(frozen=True)
class Effort:
    """The amount of work per measurement."""

    train_clips: int = 64
    epochs: int = 2
    rounds: int = 2


@dataclass(frozen=True)
class Times:
    """Seconds of each step, and of the wait for its batch."""

    step_s: tuple[float, ...]
    wait_s: tuple[float, ...]

    @property
    def batch_s(self) -> float:
        """Median time of a batch, wait and step together."""
        return statistics.median(step + wait for step, wait in zip(self.step_s, self.wait_s, strict=True))

    @property
    def wait_share(self) -> float:
        return sum(self.wait_s) / (sum(self.step_s) + sum(self.wait_s))

    def __add__(self, other: "Times") -> "Times":
        return Times(self.step_s + other.step_s, self.wait_s + other.wait_s)


class Runs:
    """Training runs in one folder; clips are rendered once."""

    def __init__(self, folder: Path, effort: Effort) -> None:
        self._folder, self._effort = folder, effort
        self._numbers = itertools.count()

    def settings(self, *more: str, epochs: int = 1) -> list[str]:
        return [
            f"data.root={self._folder / 'stage'}",
            f"data.train_clips={self._effort.train_clips}",
            "data.val_clips=16",
            f"training.batch_clips={BATCH_CLIPS}",
            f"training.epochs={epochs}",
            f"training.validate_every_epochs={epochs}",
            "training.log_every_steps=1",
            *more,
        ]

    def train(self, *more: str, epochs: int = 1) -> Path:
        """Train in this process and return the run folder."""
        run_dir = self._new()
        run_experiment(
            load_experiment(EXPERIMENT, self.settings(*more, epochs=epochs)), run_dir, listener=Silence()
        )
        return run_dir

    def train_elsewhere(self, launcher: Sequence[str], *, num_threads: int, epochs: int) -> Path:
        """Train with the `mule train` command and return the run folder."""
        run_dir = self._new()
        given = [part for setting in self.settings(epochs=epochs) for part in ("--set", setting)]
        command = [str(Path(sys.executable).with_name("mule")), "train", str(EXPERIMENT), *given]
        done = subprocess.run(
            [*launcher, *command, "--out", str(run_dir)],
            env={**os.environ, "OMP_NUM_THREADS": str(num_threads)},
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        return run_dir

    def times(self, run_dir: Path) -> Times:
        steps = [line for line in read_metrics(run_dir / METRICS) if line["kind"] == "step"]
        epoch_steps = self._effort.train_clips // BATCH_CLIPS
        kept = [line for line in steps if line["step"] % epoch_steps != 1]
        return Times(tuple(line["step_s"] for line in kept), tuple(line["wait_s"] for line in kept))

    def _new(self) -> Path:
        return self._folder / f"run{next(self._numbers)}"


def in_turns(rivals: dict[str, Callable[[], Times]], rounds: int) -> dict[str, Times]:
    """Return the times of each rival; the rivals run in turn, repeatedly."""
    times = {name: Times((), ()) for name in rivals}
    for _ in range(rounds):
        for name, run in rivals.items():
            times[name] += run()
    return times


def kept_maps(runs: Runs, effort: Effort) -> None:
    trained = runs.train()
    frozen = (f"backbone.weights={trained}", "backbone.frozen=true")
    rivals = {
        "end to end": lambda: runs.times(runs.train()),
        "frozen backbone, cached maps": lambda: runs.times(runs.train(*frozen, epochs=effort.epochs)),
    }
    measured = in_turns(rivals, effort.rounds)
    whole_s = measured["end to end"].batch_s
    print(f"{'training on cached maps and end to end (m = 2)':<54} {'ms per clip':>13} {'speedup':>14}")
    for name, times in measured.items():
        per_clip_ms = 1000 * times.batch_s / BATCH_CLIPS
        print(f"  {name:<52} {per_clip_ms:>13.1f} {whole_s / times.batch_s:>14.1f}")


def inner_steps(runs: Runs, effort: Effort) -> None:
    rivals = {
        str(m): lambda m=m: runs.times(runs.train(f"objective.inner_steps={m}"))
        for m in range(MOST_INNER_STEPS + 1)
    }
    measured = {
        int(m): statistics.median(times.step_s) for m, times in in_turns(rivals, effort.rounds).items()
    }
    print(
        f"\n{'inner steps m per batch':<31} {'ms per batch':>12} {'relative':>15}"
        f" {'relative per gradient step':>31}"
    )
    for m, step_s in measured.items():
        ratio = step_s / measured[1]
        print(f"  {m:<29} {1000 * step_s:>12.0f} {ratio:>15.2f} {ratio / max(m, 1):>31.2f}")


def determinism(runs: Runs, effort: Effort) -> float:
    """Print and return how many times as long a step takes that gives the same bits each time."""
    rivals = {
        word: lambda word=word: runs.times(runs.train(f"training.deterministic={word}"))
        for word in ("true", "false")
    }
    measured = in_turns(rivals, max(effort.rounds, 3))
    step_s = {word: statistics.median(times.step_s) for word, times in measured.items()}
    print(f"\n{'training.deterministic':<31} {'ms per batch':>12} {'relative':>15}")
    for word, each in step_s.items():
        print(f"  {word:<29} {1000 * each:>12.0f} {each / step_s['false']:>15.3f}")
    return step_s["true"] / step_s["false"]


def waiting(runs: Runs, effort: Effort) -> None:
    rivals = {
        str(workers): lambda workers=workers: runs.times(
            runs.train(f"loading.workers={workers}", epochs=effort.epochs)
        )
        for workers in (0, 1, 2)
    }
    print(
        "\nloading.workers     share of time spent waiting for batches "
        "(goal: under 10 % with one worker or more)"
    )
    for workers, times in in_turns(rivals, 1).items():
        print(f"  {workers:<17} {times.wait_share:.1%}")


def processes(runs: Runs, effort: Effort) -> None:
    two = (sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2", "--no-python")
    started = {
        "1 process of 1 thread": ((), 1),
        "1 process of 2 threads": ((), 2),
        "2 processes of 1 thread": (two, 1),
    }
    rivals = {
        name: lambda launcher=launcher, num_threads=num_threads: runs.times(
            runs.train_elsewhere(launcher, num_threads=num_threads, epochs=effort.epochs)
        )
        for name, (launcher, num_threads) in started.items()
    }
    measured = in_turns(rivals, 1)
    alone_s = measured["1 process of 1 thread"].batch_s
    title = f"processes (gloo, {os.cpu_count()} cores)"
    print(f"\n{title:<29} {'clips per second':>17} {'speedup':>17}")
    for name, times in measured.items():
        print(f"  {name:<27} {BATCH_CLIPS / times.batch_s:>17.1f} {alone_s / times.batch_s:>17.2f}")


def main() -> None:
    effort = Effort(train_clips=32, rounds=1) if "--small" in sys.argv else Effort()
    keep_freed_memory()  # as the command line does
    with tempfile.TemporaryDirectory() as folder:
        runs = Runs(Path(folder), effort)
        for measure in (kept_maps, inner_steps, determinism, waiting, processes):
            measure(runs, effort)


if __name__ == "__main__":
    main()
