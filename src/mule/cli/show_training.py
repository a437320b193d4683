"""Training as people see it: a bar, a line per validation, and every warning."""

import os
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.text import Text

from mule.training.monitor import Validation
from mule.training.step import Progress as TrainingProgress


class Screen:
    """Shows one training on the terminal; processes beside the first stay silent."""

    def __init__(self, run_dir: Path) -> None:
        self._run_dir = run_dir
        self._speaks = os.environ.get("RANK", "0") == "0"  # torchrun's; the processes may have parted already
        self._console = Console(stderr=True)
        self._bar = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TimeRemainingColumn(),
            console=self._console,
            transient=True,
            disable=not self._console.is_terminal,
        )
        self._task = self._bar.add_task("training", total=None)
        self._started_at = time.perf_counter()

    def __enter__(self) -> "Screen":
        self._bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._bar.stop()

    def stepped(self, step: int, num_steps: int, values: Mapping[str, Any]) -> None:
        """Moves the bar."""
        words = [f"epoch {values['epoch'] + 1}", f"loss {values['loss']:.4f}"]
        words += [f"λ {value:.3g}" for value in values["multipliers"].values()]
        self._bar.update(self._task, completed=step, total=num_steps, description="  ".join(words))

    def validated(self, step: int, epoch: int, found: Validation) -> None:
        """One line."""
        elapsed_s = time.perf_counter() - self._started_at
        self._say(
            f"epoch {epoch:3d}  step {step:6d}  mAP of known actions {found.mean_ap:.4f}"
            + (f"  dead outputs {found.dead_share:.0%}" if found.dead_share else "")
            + f"  {elapsed_s:.0f} s"
        )

    def noted(self, sentence: str) -> None:
        """One sentence."""
        self._say(sentence)

    def finished(self, progress: TrainingProgress) -> None:
        """What came of it, and where it is."""
        best = "not validated" if progress.best_mean_ap is None else f"{progress.best_mean_ap:.4f}"
        self._say(f"{self._run_dir}: {progress.step} steps, best mAP of known actions {best}")

    def _say(self, sentence: str) -> None:
        if self._speaks:
            self._console.print(Text(sentence), soft_wrap=True)
