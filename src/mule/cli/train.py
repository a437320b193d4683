"""`mule train`: from an experiment file to weights. Torch is imported when the command runs."""

import os
import time
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.text import Text

if TYPE_CHECKING:
    from mule.training.monitor import Validation
    from mule.training.step import Progress as TrainingProgress


def train(
    experiment: Annotated[
        Path,
        typer.Argument(
            metavar="EXPERIMENT",
            help="Experiment file, or the name of a packaged one, such as stage, own or ava.",
        ),
    ],
    system: Annotated[
        str | None,
        typer.Option(
            metavar="NAME", help="Train this system (see `mule models`) or row ([systems.NAME]) of the file."
        ),
    ] = None,
    settings: Annotated[
        list[str] | None,
        typer.Option(
            "--set", metavar="KEY=VALUE", help="Override a setting, such as optimizer.lr=1e-3. Repeatable."
        ),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(metavar="RUN_DIR", help="Folder of the run. Default: runs/ and the experiment's name."),
    ] = None,
    resume: Annotated[
        bool, typer.Option("--resume", help="Continue from the last checkpoint, if there is one.")
    ] = False,
) -> None:
    """Train a model from an experiment file.

    Checkpoints survive a crash at any time; --resume continues exactly where training stopped. A resumed run accepts
    new settings for data paths, data loading, the learning rate and the number of epochs.

    To train in several processes: torchrun --nproc-per-node 2 --no-python mule train EXPERIMENT
    """
    from mule.core.config import load_experiment, systems_by_row

    name = experiment.stem if system is None else f"{experiment.stem}_{system}"
    run_dir = Path("runs") / name if out is None else out
    named = [] if system is None else [f"system={system}"]
    # loaded first: a wrong file is reported before torch is imported
    loaded = load_experiment(experiment, [*(settings or []), *named])
    from mule.training.build import run_experiment
    from mule.training.choosing import settled
    from mule.training.run_folder import with_default_paths

    chosen = settled(loaded, settings or [], rows=systems_by_row(experiment))
    with _Screen(run_dir) as screen:
        try:
            progress = run_experiment(with_default_paths(chosen), run_dir, listener=screen, resumes=resume)
        except KeyboardInterrupt:
            raise KeyboardInterrupt(screen.stopped()) from None
        screen.finished(progress)


class _Screen:
    """Show one training on the terminal; under torchrun only the first process prints."""

    def __init__(self, run_dir: Path) -> None:
        self._run_dir = run_dir
        self._prints = os.environ.get("RANK", "0") == "0"  # set by torchrun; processes may have ended already
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
        self._step = 0

    def __enter__(self) -> "_Screen":
        self._bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._bar.stop()

    def stepped(self, step: int, num_steps: int, values: Mapping[str, Any]) -> None:
        """Move the bar."""
        self._step = step
        words = [f"epoch {values['epoch'] + 1}", f"loss {values['loss']:.4f}"]
        words += [f"λ {value:.3g}" for value in values["multipliers"].values()]
        self._bar.update(self._task, completed=step, total=num_steps, description="  ".join(words))

    def validated(self, step: int, epoch: int, found: "Validation") -> None:
        """Print one line per validation."""
        self._step = step
        elapsed_s = time.perf_counter() - self._started_at
        self._print(
            f"epoch {epoch:3d}  step {step:6d}  mAP of known actions {found.mean_ap:.4f}"
            + (f"  dead outputs {found.dead_share:.0%}" if found.dead_share else "")
            + f"  {elapsed_s:.0f} s"
        )

    def noted(self, sentence: str) -> None:
        """Print one sentence."""
        self._print(sentence)

    def stopped(self) -> str:
        """Return where Ctrl-C stopped the training, and how to continue it."""
        from mule.training.checkpoint import Checkpoints
        from mule.training.run_folder import RunFolder

        saved = max(Checkpoints(RunFolder(self._run_dir).checkpoints).steps(), default=0)
        step = max(self._step, saved)
        where = f"at step {step}" if step else "before the first step"
        after = f" after step {saved}" if 0 < saved < step else ""
        return f"{self._run_dir}: stopped {where}; the same command with --resume continues{after}"

    def finished(self, progress: "TrainingProgress") -> None:
        """Print the best result and the folder of the run."""
        best = "not validated" if progress.best_mean_ap is None else f"{progress.best_mean_ap:.4f}"
        self._print(f"{self._run_dir}: {progress.step} steps, best mAP of known actions {best}")

    def _print(self, sentence: str) -> None:
        if self._prints:
            self._console.print(Text(sentence), soft_wrap=True)
