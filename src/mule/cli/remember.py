"""From what a run says of actors to what is remembered of them."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch

from mule.cli.show_compare import experiment_of, noted
from mule.core.config import StageData, TableData
from mule.core.errors import RangeError, VideoError
from mule.data.batches.batches import ClipSampler
from mule.data.batches.loading import ClipLoader, ReadAhead, SkipRule
from mule.data.batches.samples import WHOLE_FRAME
from mule.data.batches.video_clips import ClipReading, VideoClips
from mule.data.table.reading import read_actor_table
from mule.data.table.table import ActorTable
from mule.data.table.videos import find_videos
from mule.inference.output_files import OutputsOf, weights_digest
from mule.inference.outputs import SideOutputs, outputs_of
from mule.inference.remembering import remembered_of, seen_actors
from mule.inference.sides import TRAIN, VAL, ActorTruth, Side, rows_by_clip
from mule.memory.building import SeenActors
from mule.memory.taught import Remembered, apart_from
from mule.training.build import LoadedRun, load_run, normalisation
from mule.training.data import frame_rate, tags_of, views
from mule.training.kept_maps import KeptBatches, kept_table
from mule.training.maps import kept_features
from mule.video.clips import ClipShape
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
    outputs = outputs_of(run, _table_side(run, table, videos), dropout_passes=0)
    return replace(outputs, tags=tags_of(run.experiment.data))


def _with_classes(table: ActorTable, classes: Sequence[str]) -> ActorTable:
    """The same table with a column for each class; an action it does not name is done by nobody."""
    missing = [name for name in classes if name not in table.classes]
    labels = np.pad(table.labels, ((0, 0), (0, len(missing))))
    return replace(table, classes=(*table.classes, *missing), labels=labels)


def _table_side(run: LoadedRun, table: ActorTable, folder: Path) -> Side:
    """The actors of a table as the run sees any: from pixels, or from maps of its frozen backbone, kept with the others."""
    data = run.experiment.data
    found = find_videos(sorted(set(table.video_names)), folder)
    lacking = [*found.missing, *found.refused]
    if lacking:
        raise VideoError(
            f"{folder}: every video of the table must be here; these are not: {', '.join(lacking[:5])}."
        )
    truth = ActorTruth(
        classes=table.classes,
        labels=table.labels,
        is_novel=np.zeros(len(table), dtype=bool),
        boxes_xyxy_unit=np.where(table.has_box[:, None], table.boxes_xyxy_unit, WHOLE_FRAME),
        actor_ids=table.actor_id,
    )
    if run.experiment.backbone.frozen and not isinstance(data, StageData):
        return _kept_side(run, data, table, dict(found.paths), truth=truth)
    return _pixel_side(run, table, dict(found.paths), truth=truth)


def _kept_side(
    run: LoadedRun, data: TableData, table: ActorTable, videos: dict[str, Path], *, truth: ActorTruth
) -> Side:
    features = kept_features(run.experiment, data, videos, table=table)
    clips = kept_table(table, features, classes=run.classes, objects=None)
    order = ClipSampler(len(clips), run.experiment.training.batch_clips, is_shuffled=False)
    batches = KeptBatches(clips, order, num_classes=len(run.classes))
    return Side("examples", batches, rows_by_clip(table), truth, digest="")


def _pixel_side(run: LoadedRun, table: ActorTable, videos: dict[str, Path], *, truth: ActorTruth) -> Side:
    experiment, data = run.experiment, run.experiment.data
    is_stage = isinstance(data, StageData)
    reading = ClipReading(
        shape=ClipShape(
            data.num_frames, 1 if is_stage else data.stride_frames, num_slow_frames=data.num_frames
        ),
        frame_rate=None if is_stage else frame_rate(data),
        num_views=1,
        short_side_px=experiment.view.val_short_side_px,
    )
    samples = VideoClips(table, videos, classes=run.classes, reading=reading)
    batches = ClipLoader(
        samples,
        ClipSampler(len(samples), experiment.training.batch_clips, is_shuffled=False),
        view=views(experiment, normalisation(experiment))[1],
        read_ahead=ReadAhead(0),
        skip_rule=SkipRule(max_share=0.0),
    )
    return Side("examples", batches, samples.rows_of, truth, digest="")
