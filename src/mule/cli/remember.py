"""From what a run says of actors to what is remembered of them."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch

from mule.cli.show_compare import experiment_of, noted
from mule.core.errors import RangeError
from mule.data.table.reading import read_actor_table
from mule.data.table.table import ActorTable
from mule.inference.outputs import SideOutputs
from mule.inference.remembering import remembered_of, seen_actors
from mule.inference.running import OutputsOf, outputs_of, weights_digest
from mule.inference.sides import TRAIN, VAL, ActorRows, SideBatches, table_side
from mule.memory.building import SeenActors
from mule.memory.taught import Remembered, apart_from
from mule.training.build import LoadedRun, load_run
from mule.training.data import tags_of, videos_of
from mule.watching.engine.bundle import BUILTIN, builtin_folder

MEMORY = "memory.safetensors"
"""The memory of a run, in its folder."""


@dataclass(frozen=True)
class LabelledActors:
    """Actors as a network saw them, with labels of actions by name."""

    actors: SeenActors
    class_names: tuple[str, ...]

    def at_known(self, content: Remembered) -> SeenActors:
        """The same actors with one label for each remembered action; an action nobody named is not done."""
        columns = {name: self.actors.labels[:, at] for at, name in enumerate(self.class_names)}
        absent = torch.zeros(len(self.actors.labels))
        labels = [columns.get(name, absent) for name in content.memory.class_names]
        return replace(self.actors, labels=torch.stack(labels, dim=1))


def fingerprint(run_dir: Path) -> str:
    """The fingerprint of a run's weights, as memories name it."""
    if str(run_dir) == BUILTIN and not run_dir.exists():
        raise RangeError(
            f"{run_dir}: the model of the package stays as it is. Copy {builtin_folder()} to a folder of your own, and name "
            "that one here and to `mule watch --model`."
        )
    return weights_digest(run_dir)


def known_of_table(actors: SeenActors, content: Remembered, table_file: Path) -> SeenActors:
    """Those that do a remembered action; a tag is none.

    Raises:
        RangeError: nobody does.
    """
    is_known = (actors.labels[:, content.memory.is_action] > 0).any(dim=1)
    if not is_known.any():
        raise RangeError(
            f"{table_file}: some actors must do a remembered action; none of {len(is_known)} does. `mule teach` is for new "
            "actions."
        )
    return actors.at(is_known)


def apart_in_table(actors: SeenActors, content: Remembered, table_file: Path) -> SeenActors:
    """Those from videos that no held-out actor is from.

    Raises:
        RangeError: there are none.
    """
    is_apart = apart_from(content.held_out, actors.places.videos())
    if not is_apart.any():
        raise RangeError(
            f"{table_file}: some examples must be from videos without held-out actors; none of {len(is_apart)} is. Take "
            "them from other videos."
        )
    return actors.at(is_apart)


def from_run(run_dir: Path, settings: Sequence[str]) -> Remembered:
    """A calibrated memory of a run's training actors, with the known actors of validation that set it.

    Actors of either side that do no known action are left out.
    """
    source = OutputsOf(run_dir, experiment_of(run_dir, settings))
    train, val = (source.on(side, noted=noted) for side in (TRAIN, VAL))
    return remembered_of(train, val, model=fingerprint(run_dir))


def seen_in_table(
    run_dir: Path, table_file: Path, videos: Path | None, *, settings: Sequence[str], doing: str | None = None
) -> LabelledActors:
    """The actors of a table as a run sees them; with `doing`, those that do this action.

    Without `videos` these lie in the folder of that name beside the table, or beside the table itself.
    """
    beside = table_file.parent / "videos"
    videos = videos or (beside if beside.is_dir() else table_file.parent)
    outputs = outputs_in_table(run_dir, table_file, videos, settings=settings, doing=doing)
    labels = torch.from_numpy(outputs.truth.labels).float()
    return LabelledActors(replace(seen_actors(outputs), labels=labels), outputs.truth.classes)


def outputs_in_table(
    run_dir: Path, table_file: Path, videos: Path, *, settings: Sequence[str], doing: str | None = None
) -> SideOutputs:
    """All that a run says of the actors of a table."""
    run = load_run(run_dir)._replace(experiment=experiment_of(run_dir, settings))
    table = read_actor_table(table_file)
    if doing is not None:
        if doing not in table.classes:
            raise RangeError(
                f"{table_file}: some actors must do '{doing}'; the table has {', '.join(table.classes)}."
            )
        table = table.at(np.flatnonzero(table.labels[:, table.classes.index(doing)]))
    table = _with_classes(table, run.classes)
    outputs = outputs_of(run, _examples(run, table, videos), dropout_passes=0)
    return replace(outputs, tags=tags_of(run.experiment.data))


def _with_classes(table: ActorTable, classes: Sequence[str]) -> ActorTable:
    """The same table with a column for each class; an action it does not name is done by nobody."""
    missing = [name for name in classes if name not in table.classes]
    labels = np.pad(table.labels, ((0, 0), (0, len(missing))))
    return replace(table, classes=(*table.classes, *missing), labels=labels)


def _examples(run: LoadedRun, table: ActorTable, folder: Path) -> SideBatches:
    """The actors of a table as the run sees them. A few examples are read in this process, and all must be readable."""
    loading = run.experiment.loading.model_copy(update={"workers": 0, "unreadable_share": 0.0})
    experiment = run.experiment.model_copy(update={"loading": loading})
    rows = ActorRows(table, videos_of(set(table.video_names), folder))
    return table_side(experiment, rows, name="examples", classes=run.classes)
