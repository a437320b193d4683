"""`mule train`: from one's own videos to a model, or from an experiment to weights. Torch is imported when it runs."""

import os
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer

from mule.cli.bundle import print_bundle
from mule.cli.printing import noted, steps_shown
from mule.core.progress import advance

if TYPE_CHECKING:
    from mule.training.monitor import Validation
    from mule.training.step import Progress as TrainingProgress


def train(
    experiment: Annotated[
        Path | None,
        typer.Argument(
            metavar="EXPERIMENT",
            help="Experiment file, or the name of a packaged one, such as stage or ava. Not with --data.",
        ),
    ] = None,
    data: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR",
            help="Train on your own videos: a folder with videos and a table with the columns video and actions.",
        ),
    ] = None,
    weights: Annotated[
        str | None,
        typer.Option(
            metavar="FILE|NAME",
            help="With --data: weights of the backbone, a file or a name of `mule weights list`. Default: i3d.",
        ),
    ] = None,
    detector: Annotated[
        str | None,
        typer.Option(
            metavar="FILE|NAME",
            help="With --data: finds people where the table has no boxes, and when the model watches.",
        ),
    ] = None,
    novel: Annotated[
        list[str] | None,
        typer.Option(
            metavar="ACTION",
            help="With --data: keep this action out of training, to measure how well it is noticed. Repeatable.",
        ),
    ] = None,
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
        typer.Option(
            metavar="DIR",
            help="Folder of the run; with --data, of the model. Default: runs/ and the name of the experiment, or, beside the "
            "data, runs/ and the name of their folder.",
        ),
    ] = None,
    resume: Annotated[
        bool, typer.Option("--resume", help="Continue from the last checkpoint, if there is one.")
    ] = False,
) -> None:
    """Train a model on your own videos, or from an experiment file.

    With --data one command goes from videos and a table to a model for `mule watch`. The table needs the columns video and
    actions, one row per clip or person; people are found where it has no boxes. What is decided is printed before training.

    With an EXPERIMENT the folder of the run is for `mule evaluate run` and `mule bundle`. Checkpoints survive a crash at any
    time; --resume continues exactly where training stopped. A resumed run accepts new settings for data paths, data
    loading, the learning rate and the number of epochs.

    To train in several processes: torchrun --nproc-per-node 2 --no-python mule train EXPERIMENT
    """
    own = {"--weights": weights, "--detector": detector, "--novel": novel}
    if data is not None:
        _refuse({"EXPERIMENT": experiment, "--system": system}, "does not go with --data.")
        chosen = _Own(data, weights, detector, tuple(novel or ()), tuple(settings or ()))
        _train_own(chosen, out or data.absolute().parent / "runs" / data.absolute().name, resumes=resume)
        return
    _refuse(own, "goes with --data DIR.")
    if experiment is None:
        raise typer.BadParameter("give --data DIR for your own videos, or an EXPERIMENT.")
    _train_experiment(experiment, system, settings or [], out, resumes=resume)


class _Own(NamedTuple):
    """What the options say about one's own videos."""

    data: Path
    weights: str | None
    detector: str | None
    novel: tuple[str, ...]
    settings: tuple[str, ...]


def _refuse(options: Mapping[str, object], why: str) -> None:
    for name, value in options.items():
        if value:
            raise typer.BadParameter(why, param_hint=name)


def _train_own(own: _Own, out: Path, *, resumes: bool) -> None:
    from mule.data.table.own_folder import own_folder

    folder = own_folder(own.data)  # a wrong path is reported before torch is imported
    from mule.api.own_videos import OwnVideosPlan, train_on_own_videos

    out = _from_here(out)
    plan = OwnVideosPlan(
        folder.table,
        folder.videos,
        out,
        weights=own.weights,
        detector=own.detector,
        novel=own.novel,
        groups=folder.groups,
        settings=own.settings,
        resumes=resumes,
    )
    with _Screen(plan.run_dir) as screen:
        try:
            model = train_on_own_videos(plan, listener=screen)
        except KeyboardInterrupt:
            raise KeyboardInterrupt(screen.stopped()) from None
    print_bundle(model)
    if own.novel:
        typer.echo(f"how well {', '.join(own.novel)} is noticed: mule evaluate run {plan.run_dir}")


def _from_here(path: Path) -> Path:
    """Return the path as one would type it."""
    here = Path.cwd()
    return path.relative_to(here) if path.is_relative_to(here) else path


def _train_experiment(
    experiment: Path, system: str | None, settings: Sequence[str], out: Path | None, *, resumes: bool
) -> None:
    from mule.core.config import load_experiment, systems_by_row

    name = experiment.stem if system is None else f"{experiment.stem}_{system}"
    run_dir = Path("runs") / name if out is None else out
    named = [] if system is None else [f"system={system}"]
    # loaded first: a wrong file is reported before torch is imported
    loaded = load_experiment(experiment, [*settings, *named])
    from mule.training.build import run_experiment
    from mule.training.choosing import settled
    from mule.training.run_folder import with_default_paths

    chosen = settled(loaded, settings, rows=systems_by_row(experiment))
    with _Screen(run_dir) as screen:
        try:
            progress = run_experiment(with_default_paths(chosen), run_dir, listener=screen, resumes=resumes)
        except KeyboardInterrupt:
            raise KeyboardInterrupt(screen.stopped()) from None
        screen.finished(progress)


class _Screen:
    """Show one training: bars on a terminal, lines elsewhere; under torchrun only the first process prints."""

    def __init__(self, run_dir: Path) -> None:
        self._run_dir = run_dir
        self._prints = os.environ.get("RANK", "0") == "0"  # set by torchrun; processes may have ended already
        self._context = ExitStack()
        self._started_at = time.perf_counter()
        self._step = 0
        self._said: set[str] = set()

    def __enter__(self) -> "_Screen":
        if self._prints:
            self._context.enter_context(steps_shown())
        return self

    def __exit__(self, *_: object) -> None:
        self._context.close()

    def stepped(self, step: int, num_steps: int, values: Mapping[str, Any]) -> None:
        """Move the bar."""
        self._step = step
        words = [f"epoch {values['epoch'] + 1}", f"loss {values['loss']:.4f}"]
        words += [f"λ {value:.3g}" for value in values["multipliers"].values()]
        advance("training", step, num_steps, status=", ".join(words))

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
        """Print one sentence, once."""
        if sentence not in self._said:
            self._said.add(sentence)
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
            noted(sentence)
