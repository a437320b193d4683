"""The sides of an experiment's data.

Batches in a fixed order, the same for every system, and the truth about the actors.

    Stage   train, val, test-uniform, test-biased, test-counter      table   train, val, test

Every side, training included, shows whole frames without random augmentation: a score must learn from actors
that look like those it judges.
"""

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import numpy as np
import torch
from jaxtyping import Bool, Float, Int, UInt8

from mule.core.errors import RangeError
from mule.core.files import sha256_while_unchanged
from mule.core.settings import Experiment, StageData, TableData
from mule.data.batches.batches import ClipSampler
from mule.data.batches.loading import ClipLoader, ReadAhead, SkipRule
from mule.data.batches.samples import WHOLE_FRAME, ClipName
from mule.data.batches.video_clips import ClipObjects, VideoClips
from mule.data.split.sides import OpenSetSides
from mule.data.table.table import ActorTable
from mule.data.table.videos import find_videos
from mule.novelty.crossfit import Inputs
from mule.stage.benchmark import StageSet
from mule.stage.classes import ACTIONS
from mule.stage.clips import CachedClips, StageClips, render_to_cache
from mule.training.actor_inputs import inputs_of_table
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
from mule.training.side_boxes import persons_of_videos
from mule.training.step import Batches
from mule.video.reading import frames_at, video_facts

TRAIN, VAL = "train", "val"
STAGE_TESTS = ("test-uniform", "test-biased", "test-counter")
TABLE_TESTS = ("test",)

RowNumbers = Int[np.ndarray, " rows"]


@dataclass(frozen=True)
class ActorTruth:
    """The truth about the actors of one side, including actions the network was not taught."""

    classes: tuple[str, ...]
    """Every action of the data, taught or not."""
    labels: Bool[np.ndarray, "rows classes"]
    is_novel: Bool[np.ndarray, " rows"]
    boxes_xyxy_unit: Float[np.ndarray, "rows 4"]
    actor_ids: tuple[str, ...]

    def at(self, rows: RowNumbers) -> "ActorTruth":
        """The truth about these actors, in this order."""
        return ActorTruth(
            classes=self.classes,
            labels=self.labels[rows],
            is_novel=self.is_novel[rows],
            boxes_xyxy_unit=self.boxes_xyxy_unit[rows].astype(np.float64),
            actor_ids=tuple(self.actor_ids[row] for row in rows.tolist()),
        )


@dataclass(frozen=True)
class SideBatches:
    """One side: batches in the order of its clips, and the truth about their actors."""

    name: str
    batches: Batches
    rows_of: Callable[[int], RowNumbers]
    """Give the rows of `truth` that belong to the clip at a position."""
    truth: ActorTruth
    digest: str
    """Two sides with the same digest show the same clips and actors."""
    is_judged: Bool[np.ndarray, " rows"] | None = None
    """False for rows that the network sees and official metrics count, but nobody calls known or novel; None judges all."""
    inputs: Callable[[], Inputs] | None = None
    """Give what each row of `truth` is seen by; None without a frozen backbone."""


@dataclass(frozen=True)
class ActorRows:
    """Rows of an actor table to run a network on, with their videos and objects."""

    actors: ActorTable
    videos: Mapping[str, Path]
    """The file of every video by its name."""
    is_novel: Bool[np.ndarray, " rows"] | None = None
    """None if nobody is novel."""
    is_judged: Bool[np.ndarray, " rows"] | None = None
    """As in `SideBatches`."""
    objects: ClipObjects | None = None
    persons: ClipObjects | None = None
    """Detected persons, the actors of clips that are drawn from whole videos."""
    num_views: int | None = None
    """Clips drawn from a whole video; None draws as many as in validation."""
    num_crops: int | None = None
    """Squares of each of these clips; None shows the whole frame."""
    map_times: ActorTable | None = None
    """The table whose key times the cached maps cover; None is `actors`.

    Splits of one table share its maps.
    """


def sides_under_test(experiment: Experiment) -> tuple[str, ...]:
    """The names of the test sides, where known and novel actors meet."""
    return STAGE_TESTS if isinstance(experiment.data, StageData) else TABLE_TESTS


def require_sides(experiment: Experiment, names: Sequence[str]) -> None:
    """Require that every name is a side of the experiment's data.

    Raises:
        RangeError: one is not.
    """
    available = (TRAIN, VAL, *sides_under_test(experiment))
    wrong = [name for name in names if name not in available]
    if wrong:
        raise RangeError(
            f"the split of an evaluation must be one of {', '.join(available)}; got {', '.join(wrong)}."
        )


def render_sides(data: StageData, *, test_clips: int | None = None, noted: Noted) -> None:
    """Render every missing side of Stage, so that parallel rows need not wait for or race with each other."""
    for name in (TRAIN, VAL, *STAGE_TESTS):
        _rendered(data, name, test_clips, noted)


def side_digest(experiment: Experiment, name: str, *, test_clips: int | None = None) -> str:
    """A digest of what the side shows, computed without reading its clips."""
    require_sides(experiment, [name])
    data = experiment.data
    if isinstance(data, StageData):
        return f"{_set_of(data, name, test_clips).name}/{data.stride_frames}"
    files = [root_of(data) / each for each in (data.actors, data.split, data.objects) if each]
    text = " ".join(
        [
            name,
            experiment.view.model_dump_json(),
            *(_file_digest(path) for path in files),
            *_boxes_digest(data),
        ]
    )
    return hashlib.sha256(text.encode()).hexdigest()


def _boxes_digest(data: TableData) -> list[str]:
    """What else decides which clips and boxes a side shows; nothing where all is as before these settings."""
    shown: dict[str, object] = {}
    if data.test_boxes == "detected" or (data.persons and data.labels_of == "clips"):
        shown["persons"] = data.persons and _file_digest(root_of(data) / data.persons)
        shown["boxes"] = [data.test_boxes, data.test_person_score, data.person_score]
    if (data.val_views, data.test_views) != (1, None):
        shown["views"] = [data.val_views, data.test_views]
    if data.train_novel is not None:
        shown["train_novel"] = data.train_novel
    if data.test_crops is not None:
        shown["crops"] = data.test_crops
    return [json.dumps(shown)] if shown else []


def read_side(
    experiment: Experiment, name: str, *, test_clips: int | None = None, noted: Noted
) -> SideBatches:
    """Read one side of an experiment's data.

    Args:
        experiment: names the data.
        name: of the side.
        test_clips: clips in each test side of Stage; None uses the benchmark's number. Tables ignore it.
        noted: receives a sentence when something is rendered or computed.

    Raises:
        RangeError: there is no side of that name.
        MuleError: the data cannot be read.
    """
    digest, data = side_digest(experiment, name, test_clips=test_clips), experiment.data
    if isinstance(data, StageData):
        return _stage_side(experiment, _rendered(data, name, test_clips, noted), name, digest)
    return _split_side(experiment, data, name, digest, noted)


def keep_maps(experiments: Sequence[Experiment], *, noted: Noted) -> None:
    """Compute the missing feature maps of a frozen backbone, for all sides of experiments that share it.

    Args:
        experiments: on tables, equal in everything the maps depend on; their splits may differ.
        noted: receives a sentence about what was there and what was computed.
    """
    videos: dict[str, Path] = {}
    first, table = experiments[0], None
    for experiment in experiments:
        if isinstance(experiment.data, TableData):
            sides = table_sides(experiment.data)
            videos.update(sides.videos)
            videos.update(_test_videos(experiment.data, sides.test_boxes.actors))
            table = sides.table
    if isinstance(first.data, TableData) and table is not None:
        folder = root_of(first.data) / first.data.features
        num_computed = keep_features(first, first.data, videos, table=table)
        noted(
            f"feature maps of {len(videos)} videos: {len(videos) - num_computed} read from {folder}, {num_computed} computed now"
        )


def key_frame(
    experiment: Experiment, side: str, clip: tuple[int, ClipName], *, test_clips: int | None = None
) -> UInt8[np.ndarray, "rows cols 3"]:
    """The key frame of a clip, given by its position in the side and its name.

    For a whole video the middle frame.
    """
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


def _stage_side(experiment: Experiment, rendered: CachedClips, name: str, digest: str) -> SideBatches:
    samples, table = StageClips(rendered), rendered.table
    known = np.isin(list(ACTIONS), rendered.clips.classes.known)
    truth = ActorTruth(
        classes=tuple(ACTIONS),
        labels=table.labels,
        is_novel=np.logical_not(table.labels[:, known].any(axis=1)),
        boxes_xyxy_unit=table.actor_boxes_xyxy_unit[:, rendered.clips.num_frames // 2],
        actor_ids=tuple(map(str, table.actor_id.tolist())),
    )
    return SideBatches(name, _pixels(experiment, samples), samples.rows_of, truth, digest)


def table_side(
    experiment: Experiment,
    rows: ActorRows,
    *,
    name: str,
    classes: Sequence[str],
    digest: str = "",
    noted: Noted = lambda _: None,
) -> SideBatches:
    """Build a side from rows of a table, as the network of the experiment sees them.

    A frozen backbone gives its maps, computed once and cached; every other network sees pixels. Rendered data
    have no cached maps, so a network that was trained on Stage always sees pixels.

    Args:
        experiment: says how clips are read and what the network sees.
        rows: the actors.
        name: what messages call the side.
        classes: the actions the network knows.
        digest: identifies the side in cache keys; empty if nothing is cached.
        noted: receives a sentence about which maps were there.
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
        features = kept_features(experiment, data, videos, table=rows.map_times or actors, noted=noted)
        clips = kept_table(actors, features, classes=classes, objects=rows.objects)
        batches = KeptBatches(clips, _in_order(len(clips), experiment), num_classes=len(classes))
        inputs = None
        if data.labels_of == "actors" and actors.has_time.all():
            inputs = partial(inputs_of_table, experiment, actors, videos, map_times=rows.map_times)
        return SideBatches(name, batches, rows_by_clip(actors), truth, digest, rows.is_judged, inputs)
    num_views = rows.num_views or (data.val_views if isinstance(data, TableData) else 1)
    reading = clip_reading(
        data,
        num_views=num_views,
        num_crops=rows.num_crops,
        short_side_px=experiment.view.val_short_side_px,
    )
    samples = VideoClips(
        actors, rows.videos, classes=classes, reading=reading, objects=rows.objects, persons=rows.persons
    )
    return SideBatches(name, _pixels(experiment, samples), samples.rows_of, truth, digest, rows.is_judged)


def _split_side(experiment: Experiment, data: TableData, name: str, digest: str, noted: Noted) -> SideBatches:
    """One side of the split that the experiment names."""
    sides = table_sides(data)
    boxes, is_test = sides.boxes(name), name in TABLE_TESTS
    rows = ActorRows(
        boxes.actors,
        _test_videos(data, boxes.actors) if is_test else sides.videos,
        is_novel=boxes.is_novel,
        is_judged=None if boxes.is_judged.all() else boxes.is_judged,
        objects=sides.objects,
        persons=persons_of_videos(name, data, sides.persons),
        num_views=data.test_views if is_test else None,
        num_crops=data.test_crops if is_test else None,
        map_times=sides.table,
    )
    known = sides.split.classes.known_train
    return table_side(experiment, rows, name=name, classes=known, digest=digest, noted=noted)


def table_actors(name: str, sides: OpenSetSides) -> tuple[ActorTable, Bool[np.ndarray, " rows"]]:
    """The annotated actors of a side that are judged, and which of them are novel."""
    actors, _, is_novel = sides.judged(name)
    return actors, is_novel


def _test_videos(data: TableData, actors: ActorTable) -> dict[str, Path]:
    return videos_of(set(actors.video_names), root_of(data) / data.videos)


def rows_by_clip(table: ActorTable) -> Callable[[int], RowNumbers]:
    """A function that gives the rows of the clip at a position."""
    first, clip_of_row = table.clips()
    order = np.argsort(clip_of_row, kind="stable")
    bounds = np.searchsorted(clip_of_row[order], np.arange(len(first) + 1))
    return lambda position: order[bounds[position] : bounds[position + 1]]


def _in_order(num_clips: int, experiment: Experiment) -> ClipSampler:
    return ClipSampler(num_clips, experiment.training.batch_clips, is_shuffled=False)


def _pixels(experiment: Experiment, samples: StageClips | VideoClips) -> ClipLoader:
    """Whole frames. Rendered clips are read in this process: rows of a comparison already run in parallel."""
    loading = experiment.loading
    return ClipLoader(
        samples,
        _in_order(len(samples), experiment),
        view=views(experiment, normalisation(experiment))[1],
        read_ahead=ReadAhead(
            0 if isinstance(samples, StageClips) else loading.workers, pins_memory=torch.cuda.is_available()
        ),
        skip_rule=SkipRule(max_share=loading.unreadable_share),
    )


def _file_digest(path: Path) -> str:
    try:
        return sha256_while_unchanged(path)
    except OSError as error:
        raise RangeError(f"{path}: must be a readable file; {error.strerror or error}.") from None
