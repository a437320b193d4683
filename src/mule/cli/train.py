"""`mule train`: an experiment from its file to its weights. Torch is imported when the command runs."""

from pathlib import Path
from typing import Annotated

import typer


def train(
    experiment: Annotated[
        Path,
        typer.Argument(
            metavar="EXPERIMENT", help="An experiment file, or a packaged one: stage, own, ava, …"
        ),
    ],
    system: Annotated[
        str | None, typer.Option(metavar="NAME", help="Train this system instead (see `mule models`).")
    ] = None,
    settings: Annotated[
        list[str] | None,
        typer.Option(
            "--set", metavar="KEY=VALUE", help="Replace a setting, such as optimizer.lr=1e-3; may come again."
        ),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(
            metavar="RUN_DIR", help="The folder of the run; by default runs/ and the experiment's name."
        ),
    ] = None,
    resume: Annotated[
        bool, typer.Option("--resume", help="Go on from the last checkpoint of the run, if there is one.")
    ] = False,
) -> None:
    """Train a recogniser, with checkpoints that survive any crash.

    Several processes train as one: torchrun --nproc-per-node 2 --no-python mule train EXPERIMENT.toml. What may be set
    anew in a run that is resumed: where data lies, who reads it, the learning rate, and how long to train.
    """
    from mule.cli.show_training import Screen
    from mule.core.config import load_experiment
    from mule.training.build import run_experiment
    from mule.training.experiments import with_usual_places

    name = experiment.stem if system is None else f"{experiment.stem}_{system}"
    run_dir = Path("runs") / name if out is None else out
    chosen = [] if system is None else [f"system={system}"]
    wanted = with_usual_places(load_experiment(experiment, [*(settings or []), *chosen]))
    with Screen(run_dir) as screen:
        progress = run_experiment(wanted, run_dir, listener=screen, resumes=resume)
        screen.finished(progress)
