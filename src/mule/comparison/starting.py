"""One backbone for all rows of a trial: trained before them, once, and where the training of each of them begins.

    OUT/starts/NAME-SPLIT-sSEED/   a run as `mule train` leaves it, and log.txt

The paper's systems all begin with a backbone that has seen Kinetics. Here it has seen the training clips of the trial,
and no others: novel actions stay unseen.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from mule.comparison.rows import LOG, Contestant, Row, RowLog, drawn, folder_name
from mule.core.config import ConfigError, Experiment
from mule.evaluation.outcomes import Trial
from mule.training.build import run_experiment
from mule.training.run_folder import CARD

STARTS = "starts"


@dataclass(frozen=True)
class Start:
    """The training of a trial's backbone."""

    experiment: Experiment
    trial: Trial
    folder: Path

    @property
    def name(self) -> str:
        """What people, and the engine that runs it, call it."""
        return self.folder.name


def require_start(start: Contestant, contestants: Sequence[Contestant]) -> None:
    """Every experiment can begin with the backbone of this one.

    Raises:
        ConfigError: one has other data, another backbone, or weights already.
    """
    theirs = start.experiment
    for each in contestants:
        mine = each.experiment
        if mine.backbone.weights is not None:
            raise ConfigError(
                f"a row begins with one backbone; {each.name} has backbone.weights already, and should begin with that of "
                f"{start.name}. Take one of them away."
            )
        if mine.data != theirs.data:
            raise ConfigError(
                f"a backbone must have seen the clips of the rows alone; the data of {start.name} and {each.name} differ."
            )
        if (mine.backbone.name, mine.backbone.options) != (theirs.backbone.name, theirs.backbone.options):
            raise ConfigError(
                f"rows begin with the backbone of {start.name}, {_told(theirs)}; {each.name} has another, {_told(mine)}."
            )


def _told(experiment: Experiment) -> str:
    options = [f"{name} = {value}" for name, value in experiment.backbone.options.items()]
    return " with ".join([experiment.backbone.name, *options])


def planned_starts(start: Contestant, rows: Sequence[Row], out: Path) -> tuple[Start, ...]:
    """A training of the backbone for every trial of the rows."""
    splits = {row.trial: row.experiment.data.split for row in rows}
    return tuple(
        Start(
            drawn(start, seed=trial.seed, split=split),
            trial,
            out.absolute() / STARTS / folder_name(start, trial),
        )
        for trial, split in splits.items()
    )


def begun_with(rows: Sequence[Row], starts: Sequence[Start]) -> tuple[Row, ...]:
    """The same rows, each from the backbone of its trial."""
    folders = {start.trial: start.folder for start in starts}
    return tuple(replace(row, experiment=_with_weights(row.experiment, folders[row.trial])) for row in rows)


def train_start(start: Start) -> None:
    """Trains the backbone, unless that is done; one that was begun goes on."""
    if not (start.folder / CARD).exists():
        start.folder.mkdir(parents=True, exist_ok=True)
        log = RowLog(start.folder / LOG)
        run_experiment(start.experiment, start.folder, listener=log, resumes=True)


def _with_weights(experiment: Experiment, folder: Path) -> Experiment:
    backbone = experiment.backbone.model_copy(update={"weights": folder})
    return experiment.model_copy(update={"backbone": backbone})
