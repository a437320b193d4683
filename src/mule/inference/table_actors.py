"""The actors of any table, as a trained run sees them: what it outputs for each, and what a memory keeps of each."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch

from mule.core.errors import RangeError
from mule.core.processes import own_device
from mule.core.settings import Experiment
from mule.data.table.reading import read_actor_table
from mule.data.table.table import ActorTable
from mule.inference.outputs import SideOutputs
from mule.inference.remembering import seen_actors
from mule.inference.running import outputs_of
from mule.inference.sides import ActorRows, SideBatches, table_side
from mule.memory.building import SeenActors
from mule.memory.taught import Remembered
from mule.training.build import LoadedRun, load_run
from mule.training.data import tags_of, videos_of
from mule.training.run_folder import experiment_of


@dataclass(frozen=True)
class LabelledActors:
    """Actors as a network saw them, with a label for every action of their table."""

    actors: SeenActors
    class_names: tuple[str, ...]

    def at_known(self, remembered: Remembered) -> SeenActors:
        """Return the actors with one label per remembered action; an action the table does not name counts as not done."""
        columns = {name: self.actors.labels[:, at] for at, name in enumerate(self.class_names)}
        absent = torch.zeros(len(self.actors.labels))
        labels = [columns.get(name, absent) for name in remembered.memory.class_names]
        return replace(self.actors, labels=torch.stack(labels, dim=1))


def seen_in_table(
    run_dir: Path,
    table_file: Path,
    videos: Path | None = None,
    *,
    settings: Sequence[str] = (),
    doing: str | None = None,
) -> LabelledActors:
    """Return the actors of a table as a memory of the run keeps them.

    Args:
        run_dir: a finished run, or a bundle.
        table_file: actors, .csv or .parquet.
        videos: the folder of their videos; by default `videos/` beside the table, or the table's own folder.
        settings: where the run's own data lies now, such as `data.root=DIR`.
        doing: only actors that do this action; None takes all.
    """
    videos = videos or videos_beside(table_file)
    # without tags, which the split states: a bundle may be far from its data
    outputs = _untagged(run_dir, table_file, videos, experiment_of(run_dir, settings), doing=doing)
    labels = torch.from_numpy(outputs.truth.labels).float()
    return LabelledActors(replace(seen_actors(outputs), labels=labels), outputs.truth.classes)


def videos_beside(table_file: Path) -> Path:
    """Return the folder of a table's videos if none is given: `videos/` beside it, or its own folder."""
    beside = table_file.parent / "videos"
    return beside if beside.is_dir() else table_file.parent


def outputs_in_table(
    run_dir: Path, table_file: Path, videos: Path, *, settings: Sequence[str] = (), doing: str | None = None
) -> SideOutputs:
    """Return everything a run outputs for the actors of a table; with `doing`, for those that do this action.

    Raises:
        RangeError: the table does not name the action.
    """
    experiment = experiment_of(run_dir, settings)
    outputs = _untagged(run_dir, table_file, videos, experiment, doing=doing)
    return replace(outputs, tags=tags_of(experiment.data))


def _untagged(
    run_dir: Path, table_file: Path, videos: Path, experiment: Experiment, *, doing: str | None
) -> SideOutputs:
    run = load_run(run_dir, device=own_device())._replace(experiment=experiment)
    table = read_actor_table(table_file)
    if doing is not None:
        if doing not in table.classes:
            raise RangeError(
                f"{table_file}: some actors must do '{doing}'; the table names {', '.join(table.classes)}."
            )
        table = table.at(np.flatnonzero(table.labels[:, table.classes.index(doing)]))
    table = table.with_classes(run.classes)
    return outputs_of(run, _examples(run, table, videos), dropout_passes=0)


def _examples(run: LoadedRun, table: ActorTable, folder: Path) -> SideBatches:
    """Build a side of a few examples: this process reads them, and all must be readable."""
    loading = run.experiment.loading.model_copy(update={"workers": 0, "unreadable_share": 0.0})
    experiment = run.experiment.model_copy(update={"loading": loading})
    rows = ActorRows(table, videos_of(set(table.video_names), folder))
    return table_side(experiment, rows, name="examples", classes=run.classes)
