"""The sides of an experiment's data: the same batches for every system, and what is true of the actors in them.

    Stage   train, val, test-uniform, test-biased, test-counter      table   train, val, test

Whole frames and no chance on every side, training too: what a score learns from must look like what it judges.
"""

import hashlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from jaxtyping import Bool, Float, Int, UInt8

from mule.core.config import Experiment, StageData, TableData
from mule.core.errors import RangeError
from mule.core.files import sha256_while_unchanged
from mule.data.batches.batches import ActorBatch, ClipSampler
from mule.data.batches.loading import ClipLoader, ReadAhead, SkipRule
from mule.data.batches.samples import WHOLE_FRAME, ClipName
from mule.data.batches.video_clips import ClipObjects, VideoClips
from mule.data.split.sides import OpenSetSides
from mule.data.table.table import ActorTable
from mule.data.table.videos import find_videos
from mule.stage.benchmark import StageSet
from mule.stage.classes import ACTIONS
from mule.stage.clips import CachedClips, StageClips, render_to_cache
from mule.training.build import normalisation
from mule.training.data import (
    FEW_CLIPS,
    RENDER_WORKERS,
    Noted,
    clip_reading,
    root_of,
    stage_set,
    table_sides,
    videos_of,
    views,
)
from mule.training.kept_maps import KeptBatches, kept_table
from mule.training.maps import keep_features, kept_features
from mule.video.reading import frames_at, video_facts

TRAIN, VAL = "train", "val"
STAGE_TESTS = ("test-uniform", "test-biased", "test-counter")
TABLE_TESTS = ("test",)

Rows = Int[np.ndarray, " rows"]


@dataclass(frozen=True)
class ActorTruth:
    """What is true of the actors of one side, whether a network knows of it or not."""

    classes: tuple[str, ...]
    """Every action of the data, taught or not."""
    labels: Bool[np.ndarray, "rows classes"]
    is_novel: Bool[np.ndarray, " rows"]
    boxes_xyxy_unit: Float[np.ndarray, "rows 4"]
    actor_ids: tuple[str, ...]

    def at(self, rows: Rows) -> "ActorTruth":
        """Of these actors, in this order."""
        return ActorTruth(
            classes=self.classes,
            labels=self.labels[rows],
            is_novel=self.is_novel[rows],
            boxes_xyxy_unit=self.boxes_xyxy_unit[rows].astype(np.float64),
            actor_ids=tuple(self.actor_ids[row] for row in rows.tolist()),
        )


@dataclass(frozen=True)
class Side:
    """One side: batches in the order of its clips, and who is in them."""

    name: str
    batches: Iterable[ActorBatch]
    rows_of: Callable[[int], Rows]
    """The rows of `truth` that are the actors of the clip at a position."""
    truth: ActorTruth
    digest: str
    """Two sides with the same one show the same clips and the same actors."""


@dataclass(frozen=True)
class TableRows:
    """Rows of an actor table to look at, and what a network needs besides them."""

    actors: ActorTable
    videos: Mapping[str, Path]
    """The file of every video by its name."""
    is_novel: Bool[np.ndarray, " rows"] | None = None
    """None if nobody is."""
    objects: ClipObjects | None = None
    map_times: ActorTable | None = None
    """The table whose key times the cached maps cover; None is `actors`. Splits of one table share its maps."""


def sides_under_test(experiment: Experiment) -> tuple[str, ...]:
    """The sides that known and novel actors are told apart on."""
    return STAGE_TESTS if isinstance(experiment.data, StageData) else TABLE_TESTS


def require_sides(experiment: Experiment, names: Sequence[str]) -> None:
    """Every name is a side of the experiment's data.

    Raises:
        RangeError: one is not.
    """
    there = (TRAIN, VAL, *sides_under_test(experiment))
    wrong = [name for name in names if name not in there]
    if wrong:
        raise RangeError(
            f"the split of an evaluation must be one of {', '.join(there)}; got {', '.join(wrong)}."
        )


def render_sides(data: StageData, *, test_clips: int | None = None, noted: Noted) -> None:
    """Renders every side of Stage that is not there yet, so that nobody has to wait for, or race with, another."""
    for name in (TRAIN, VAL, *STAGE_TESTS):
        _rendered(data, name, test_clips, noted)


def side_digest(experiment: Experiment, name: str, *, test_clips: int | None = None) -> str:
    """What the side would show, without reading its clips."""
    require_sides(experiment, [name])
    data = experiment.data
    if isinstance(data, StageData):
        return f"{_set_of(data, name, test_clips).name}/{data.stride_frames}"
    files = [root_of(data) / each for each in (data.actors, data.split, data.objects) if each]
    text = " ".join([name, experiment.view.model_dump_json(), *(_file_digest(path) for path in files)])
    return hashlib.sha256(text.encode()).hexdigest()


def read_side(experiment: Experiment, name: str, *, test_clips: int | None = None, noted: Noted) -> Side:
    """The side of that name.

    Args:
        experiment: whose data.
        name: which side.
        test_clips: of each test side of Stage; None is as many as the benchmark has. Tables have what they have.
        noted: is told what is being rendered or computed.

    Raises:
        RangeError: there is none of that name.
        MuleError: its data cannot be read.
    """
    digest, data = side_digest(experiment, name, test_clips=test_clips), experiment.data
    if isinstance(data, StageData):
        return _stage_side(experiment, _rendered(data, name, test_clips, noted), name, digest)
    return _split_side(experiment, data, name, digest, noted)


def keep_maps(experiments: Sequence[Experiment], *, noted: Noted) -> None:
    """Computes the maps of a frozen backbone that are not kept yet, for all sides of experiments that share it.

    Args:
        experiments: on tables, alike in all that maps depend on; they may differ in their splits.
        noted: is told what is being computed.
    """
    videos: dict[str, Path] = {}
    first, table = experiments[0], None
    for experiment in experiments:
        if isinstance(experiment.data, TableData):
            found = table_sides(experiment.data)
            actors, _ = table_actors(TABLE_TESTS[0], found.sides)
            videos.update(found.videos)
            videos.update(_test_videos(experiment.data, actors))
            table = found.table
    if isinstance(first.data, TableData) and table is not None:
        folder = root_of(first.data) / first.data.features
        noted(f"maps of {len(videos)} videos are in {folder}, or computed now")
        keep_features(first, first.data, videos, table=table)


def key_frame(
    experiment: Experiment, side: str, clip: tuple[int, ClipName], *, test_clips: int | None = None
) -> UInt8[np.ndarray, "rows cols 3"]:
    """The frame that a clip of a side, given by its position and name, is about; the middle one of a whole video."""
    data, (position, name) = experiment.data, clip
    if isinstance(data, StageData):
        rendered = _rendered(data, side, test_clips, lambda _: None)
        return np.array(rendered.frames[position][rendered.clips.num_frames // 2])
    source = find_videos([name.video], root_of(data) / data.videos).paths[name.video]
    time_s = name.key_time_s
    if np.isnan(time_s):
        time_s = float(video_facts(source).duration_s or 0) / 2
    return frames_at(source, [time_s])[0].permute(1, 2, 0).numpy()


def _set_of(data: StageData, name: str, test_clips: int | None) -> StageSet:
    role, _, scenes = name.partition("-")
    clips = stage_set(data, role, scenes=scenes or None)
    return clips if test_clips is None or name not in STAGE_TESTS else replace(clips, num_clips=test_clips)


def _rendered(data: StageData, name: str, test_clips: int | None, noted: Noted) -> CachedClips:
    clips, folder = _set_of(data, name, test_clips), root_of(data)
    if not (folder / clips.name).is_dir():
        noted(f"rendering {len(clips)} clips for {name} into {folder}")
    return render_to_cache(clips, folder, workers=1 if len(clips) <= FEW_CLIPS else RENDER_WORKERS)


def _stage_side(experiment: Experiment, rendered: CachedClips, name: str, digest: str) -> Side:
    samples, table = StageClips(rendered), rendered.table
    known = np.isin(list(ACTIONS), rendered.clips.classes.known)
    truth = ActorTruth(
        classes=tuple(ACTIONS),
        labels=table.labels,
        is_novel=np.logical_not(table.labels[:, known].any(axis=1)),
        boxes_xyxy_unit=table.actor_boxes_xyxy_unit[:, rendered.clips.num_frames // 2],
        actor_ids=tuple(map(str, table.actor_id.tolist())),
    )
    return Side(name, _pixels(experiment, samples), samples.rows_of, truth, digest)


def table_side(
    experiment: Experiment, rows: TableRows, *, name: str, classes: Sequence[str], digest: str = ""
) -> Side:
    """Build a side from rows of a table, as the network of the experiment sees them.

    A frozen backbone gives its maps, computed once and cached; every other network sees pixels. Rendered data have
    no cached maps, so a network that was trained on Stage always sees pixels.

    Args:
        experiment: says how clips are read and what the network sees.
        rows: the actors.
        name: what messages call the side.
        classes: the actions the network knows.
        digest: identifies the side in cache keys; empty if nothing is cached.
    """
    data, actors = experiment.data, rows.actors
    truth = ActorTruth(
        classes=actors.classes,
        labels=actors.labels,
        is_novel=np.zeros(len(actors), dtype=bool) if rows.is_novel is None else rows.is_novel,
        boxes_xyxy_unit=np.where(actors.has_box[:, None], actors.boxes_xyxy_unit, WHOLE_FRAME),
        actor_ids=actors.actor_id,
    )
    if experiment.backbone.frozen and isinstance(data, TableData):
        videos = {video: rows.videos[video] for video in sorted(set(actors.video_names))}
        features = kept_features(experiment, data, videos, table=rows.map_times or actors)
        clips = kept_table(actors, features, classes=classes, objects=rows.objects)
        batches = KeptBatches(clips, _in_order(len(clips), experiment), num_classes=len(classes))
        return Side(name, batches, rows_by_clip(actors), truth, digest)
    num_views = data.val_views if isinstance(data, TableData) else 1
    reading = clip_reading(data, num_views=num_views, short_side_px=experiment.view.val_short_side_px)
    samples = VideoClips(actors, rows.videos, classes=classes, reading=reading, objects=rows.objects)
    return Side(name, _pixels(experiment, samples), samples.rows_of, truth, digest)


def _split_side(experiment: Experiment, data: TableData, name: str, digest: str, noted: Noted) -> Side:
    """One side of the split that the experiment names."""
    found = table_sides(data)
    actors, is_novel = table_actors(name, found.sides)
    videos = _test_videos(data, actors) if name in TABLE_TESTS else found.videos
    if experiment.backbone.frozen:
        noted(f"feature maps of the {name} side: read from {root_of(data) / data.features}, or computed now")
    rows = TableRows(actors, videos, is_novel=is_novel, objects=found.objects, map_times=found.table)
    return table_side(experiment, rows, name=name, classes=found.split.classes.known_train, digest=digest)


def table_actors(name: str, sides: OpenSetSides) -> tuple[ActorTable, Bool[np.ndarray, " rows"]]:
    """The annotated actors of a side, and who is novel.

    Where a split keeps some novel actions for choosing and others for reporting, the test is of the latter alone.
    """
    if name not in TABLE_TESTS:
        actors = (sides.train if name == TRAIN else sides.val).actors
        return actors, np.zeros(len(actors), dtype=bool)
    test = sides.test
    if not (test.is_for_choosing.any() and test.is_for_reporting.any()):
        return test.actors, test.is_novel
    is_reported = ~test.is_novel | test.is_for_reporting
    return test.actors.at(is_reported), test.is_novel[is_reported]


def _test_videos(data: TableData, actors: ActorTable) -> dict[str, Path]:
    return videos_of(set(actors.video_names), root_of(data) / data.videos)


def rows_by_clip(table: ActorTable) -> Callable[[int], Rows]:
    """The rows of a table that are of the clip at each position."""
    first, clip_of_row = table.clips()
    order = np.argsort(clip_of_row, kind="stable")
    bounds = np.searchsorted(clip_of_row[order], np.arange(len(first) + 1))
    return lambda position: order[bounds[position] : bounds[position + 1]]


def _in_order(num_clips: int, experiment: Experiment) -> ClipSampler:
    return ClipSampler(num_clips, experiment.training.batch_clips, is_shuffled=False)


def _pixels(experiment: Experiment, samples: StageClips | VideoClips) -> ClipLoader:
    """Whole frames, read when asked: several systems are compared side by side, each on a core of its own."""
    loading = experiment.loading
    return ClipLoader(
        samples,
        _in_order(len(samples), experiment),
        view=views(experiment, normalisation(experiment))[1],
        read_ahead=ReadAhead(0 if isinstance(samples, StageClips) else loading.workers),
        skip_rule=SkipRule(max_share=loading.unreadable_share),
    )


def _file_digest(path: Path) -> str:
    try:
        return sha256_while_unchanged(path)
    except OSError as error:
        raise RangeError(f"{path}: must be a file that can be read; {error.strerror or error}.") from None
