"""From an experiment to the clips of training and validation, with digests that identify the data."""

import hashlib
import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import lru_cache
from pathlib import Path

import numpy as np
import torch
from jaxtyping import Bool, Int

from mule.core.config import ConfigError
from mule.core.errors import VideoError
from mule.core.files import file_stamp
from mule.core.processes import is_first, num_ranks, own_rank, wait_for_all
from mule.core.settings import Experiment, LabelsOf, StageData, TableData
from mule.data.batches.batches import ClipSampler, class_balanced_weights
from mule.data.batches.loading import ClipLoader, ReadAhead, SkipRule
from mule.data.batches.other_clips import OtherBackground, UndoneMotion
from mule.data.batches.samples import ClipSample, ClipView, TrainingView, ViewedClip, WholeView
from mule.data.batches.video_clips import ClipObjects, ClipReading, VideoClips
from mule.data.split.sides import apply_split
from mule.data.split.splits import Split, read_split, table_digest
from mule.data.table.reading import read_actor_table, read_object_table
from mule.data.table.videos import find_videos
from mule.stage.benchmark import StageSet
from mule.stage.classes import stage_split
from mule.stage.clips import StageClips, render_to_cache
from mule.training.side_boxes import (
    TableSides,
    persons_of_videos,
    read_persons,
    require_persons,
    training_actors,
)
from mule.training.step import Batches
from mule.video.clips import ClipShape
from mule.video.transforms import Normalisation

Noted = Callable[[str], None]
Labelled = tuple[Bool[np.ndarray, "actors classes"], Int[np.ndarray, " actors"]]
RENDER_WORKERS = 2
FEW_CLIPS = 64
"""Up to this many clips are rendered in one process: starting others would take longer."""
SPLITS_AT_HAND = 32
"""Class splits that stay in memory, for the next rows of a comparison."""


@dataclass(frozen=True)
class RunData:
    """The batches of a run, on this process."""

    train: Batches
    val: Batches
    classes: tuple[str, ...]
    digests: Mapping[str, str]
    """Digests of the actors and of the split: two runs with the same digests have the same data."""


@dataclass(frozen=True)
class SourceClips:
    """The clips of training and validation, before any view is applied."""

    train: StageClips | VideoClips
    val: StageClips | VideoClips
    classes: tuple[str, ...]
    digests: Mapping[str, str]


@dataclass(frozen=True)
class EveryNthFrame:
    """A view of every n-th frame of a clip."""

    view: ClipView
    stride_frames: int

    def __call__(self, sample: ClipSample, generator: torch.Generator) -> ViewedClip:
        """Return the view of these frames."""
        return self.view(replace(sample, frames=sample.frames[:: self.stride_frames]), generator)


def known_classes(experiment: Experiment) -> int:
    """Return the number of actions to know. A table's split is read only if the experiment leaves the number out."""
    data = experiment.data
    if isinstance(data, StageData):
        return len(stage_split(data.split).known)
    return data.num_known or len(_split_of(data).classes.known_train)


def with_known_classes(experiment: Experiment) -> Experiment:
    """Return the experiment with `data.num_known` filled in, so that a finished run needs no split to be loaded."""
    if isinstance(experiment.data, StageData) or experiment.data.num_known:
        return experiment
    data = experiment.data.model_copy(update={"num_known": known_classes(experiment)})
    return experiment.model_copy(update={"data": data})


def labels_of(experiment: Experiment) -> LabelsOf:
    """Return whether labels are of actors or of whole clips; those of rendered clips are of actors."""
    return experiment.data.labels_of if isinstance(experiment.data, TableData) else "actors"


def build_data(experiment: Experiment, *, normalisation: Normalisation, noted: Noted) -> RunData:
    """Build the batches of training and validation. The first process renders clips that are missing.

    Raises:
        ConfigError: data.root is not set, or data.num_known differs from the split.
        MuleError: the data cannot be read.
    """
    source = source_clips(experiment, noted=noted)
    loading = experiment.loading
    training, whole = views(experiment, normalisation)
    if experiment.view.other_background > 0:
        training = OtherBackground(training, source.train, experiment.view.other_background)
    samplers = build_samplers(
        experiment, source.train.labelled_actors(), (len(source.train), len(source.val))
    )
    undone = experiment.view.undone_motion
    drawn = UndoneMotion(source.train, undone) if undone > 0 else source.train
    train, val = (
        ClipLoader(
            samples,
            sampler,
            view=view,
            read_ahead=ReadAhead(loading.workers, loading.prefetch_batches, torch.cuda.is_available()),
            skip_rule=SkipRule(max_share=loading.unreadable_share),
        )
        for samples, sampler, view in zip((drawn, source.val), samplers, (training, whole), strict=True)
    )
    return RunData(train, val, source.classes, source.digests)


def build_samplers(
    experiment: Experiment, labelled: Labelled, num_clips: tuple[int, int]
) -> tuple[ClipSampler, ClipSampler]:
    """Return the samplers of training and validation."""
    data, batch_clips = experiment.data, experiment.training.batch_clips
    is_balanced = isinstance(data, TableData) and data.draws_evenly
    train = ClipSampler(
        num_clips[0],
        batch_clips,
        seed=experiment.seed,
        weights=class_balanced_weights(*labelled, num_clips=num_clips[0]) if is_balanced else None,
        drops_last=True,
        rank=own_rank(),
        num_ranks=num_ranks(),
    )
    val = ClipSampler(num_clips[1], batch_clips, is_shuffled=False, rank=own_rank(), num_ranks=num_ranks())
    return train, val


def views(experiment: Experiment, normalisation: Normalisation) -> tuple[ClipView, ClipView]:
    """Return the views of training and validation."""
    settings = experiment.view
    stride = experiment.data.stride_frames if isinstance(experiment.data, StageData) else 1
    training = TrainingView(
        short_sides_px=settings.short_sides_px,
        crop_px=settings.crop_px,
        flip_probability=settings.flip_probability,
        box_jitter=settings.box_jitter,
        brightness=settings.brightness,
        contrast=settings.contrast,
        saturation=settings.saturation,
        normalisation=normalisation,
    )
    whole = WholeView(settings.val_short_side_px, normalisation)
    return EveryNthFrame(training, stride), EveryNthFrame(whole, stride)


def source_clips(experiment: Experiment, *, noted: Noted) -> SourceClips:
    """Return the clips of training and validation as they are on disk."""
    data = experiment.data
    if isinstance(data, StageData):
        train, val = (stage_clips(data, role, noted=noted) for role in ("train", "val"))
        return SourceClips(train, val, train.classes, stage_digests(data))
    sides = table_sides(data)
    sides.require_trainable(noted=noted)
    return SourceClips(
        video_clips(data, sides, "train"),
        video_clips(data, sides, "val", short_side_px=experiment.view.val_short_side_px),
        sides.split.classes.known_train,
        sides.digests,
    )


def stage_set(data: StageData, role: str, *, scenes: str | None = None) -> StageSet:
    """Return the rendered clips of one role; the experiment sets the size of training and validation."""
    num_clips = {"train": data.train_clips, "val": data.val_clips}.get(role)
    return StageSet(
        split=data.split,
        role=role,
        seed=data.seed,
        scenes=scenes,
        num_clips=num_clips,
        bias=data.bias,
        size=(data.rows, data.cols),
        num_frames=data.num_frames,
    )


def stage_clips(data: StageData, role: str, *, noted: Noted, scenes: str | None = None) -> StageClips:
    """Return the same as a data set; the first process renders it if it is missing."""
    clips, folder = stage_set(data, role, scenes=scenes), root_of(data)
    if is_first():
        if not (folder / clips.name).is_dir():
            noted(f"rendering {len(clips)} clips for {role} into {folder}")
        render_to_cache(clips, folder, workers=1 if len(clips) <= FEW_CLIPS else RENDER_WORKERS)
    wait_for_all()
    return StageClips(render_to_cache(clips, folder))


def stage_digests(data: StageData) -> dict[str, str]:
    """Return the names of the rendered sets, which identify their pixels, and a digest of the split."""
    split = stage_split(data.split)
    return {
        "train": stage_set(data, "train").name,
        "val": stage_set(data, "val").name,
        "split": _digest([split.z1, split.z2, split.z3]),
    }


def table_sides(data: TableData) -> TableSides:
    """Return the actors of a table on their sides; files are read again only if they have changed.

    Raises:
        ConfigError: data.num_known differs from the split.
        AnnotationError: a file cannot be read.
        VideoError: videos are missing.
    """
    require_persons(data)
    root = root_of(data)
    files = [root / each for each in (data.actors, data.split, data.objects, data.persons) if each]
    return _sides_read(data, tuple(map(_stamp, files)))  # pyright: ignore[reportArgumentType] - frozen, so it has a hash


@lru_cache(maxsize=SPLITS_AT_HAND)
def _sides_read(data: TableData, _: object) -> TableSides:
    root = root_of(data)
    table, split = read_actor_table(root / data.actors), _split_of(data)
    if data.num_known is not None and len(split.classes.known_train) != data.num_known:
        raise ConfigError(
            f"data.num_known must be the number of actions that {root / data.split} teaches, "
            f"{len(split.classes.known_train)}; got {data.num_known}. Correct it, or leave it out."
        )
    digests = {"actors": table_digest(table), "split": split.digest}
    table = table.with_classes(split.classes.known_train)  # a class of the split need not occur
    sides = apply_split(table, split)
    objects = ClipObjects(read_object_table(root / data.objects)) if data.objects else None
    persons = None if data.persons is None else read_persons(root / data.persons, beside=root / data.actors)
    train_actors = training_actors(sides.train.actors, data, persons)
    trained = TableSides(table, sides, train_actors, split, {}, objects, persons, data, digests)
    names = {*train_actors.video_names, *trained.val_actors.video_names}
    if data.test_boxes == "detected":
        names.update(trained.val_boxes.actors.video_names)
    return replace(trained, videos=videos_of(names, root / data.videos))


def tags_of(data: StageData | TableData) -> tuple[str, ...]:
    """Return the taught labels that do not count for novelty.

    Raises:
        AnnotationError: the split cannot be read.
    """
    return () if isinstance(data, StageData) else _split_of(data).tags


def groups_of(data: StageData | TableData) -> Mapping[str, str]:
    """Return the film, camera or day of each video, if the split states it; empty otherwise.

    Raises:
        AnnotationError: the split cannot be read.
    """
    return {} if isinstance(data, StageData) else _split_of(data).groups


def _split_of(data: TableData) -> Split:
    path = root_of(data) / data.split
    split = _split_read(path, _stamp(path))
    if data.train_novel is None:
        return split
    return replace(split, rules=replace(split.rules, train_novel=data.train_novel))


@lru_cache(maxsize=SPLITS_AT_HAND)
def _split_read(path: Path, _: object) -> Split:
    return read_split(path)


def _stamp(path: Path) -> tuple[int, int, int] | None:
    """Return a stamp that changes with the file; None if there is no file."""
    try:
        return file_stamp(path)
    except OSError:
        return None


def video_clips(
    data: TableData, sides: TableSides, side: str, *, short_side_px: int | None = None
) -> VideoClips:
    """Return the clips of one side; in training, clips of a whole video are drawn at random."""
    num_views = None if side == "train" else data.val_views
    return VideoClips(
        sides.train_actors if side == "train" else sides.val_actors,
        sides.videos,
        classes=sides.split.classes.known_train,
        reading=clip_reading(data, num_views=num_views, short_side_px=short_side_px),
        objects=sides.objects,
        persons=persons_of_videos(side, data, sides.persons),
    )


def clip_reading(
    data: StageData | TableData,
    *,
    num_views: int | None,
    short_side_px: int | None,
    num_crops: int | None = None,
) -> ClipReading:
    """How clips are read from videos; networks of rendered clips skip frames in their view, not here."""
    is_stage = isinstance(data, StageData)
    stride_frames = 1 if is_stage else data.stride_frames
    return ClipReading(
        shape=ClipShape(data.num_frames, stride_frames, num_slow_frames=data.num_frames),
        frame_rate=None if is_stage else frame_rate(data),
        num_views=num_views,
        num_crops=num_crops,
        short_side_px=short_side_px,
    )


def frame_rate(data: TableData) -> Fraction | None:
    """Return the frame rate of the grid of times; None uses each video's own."""
    try:
        return None if data.frame_rate is None else Fraction(data.frame_rate)
    except (ValueError, ZeroDivisionError):
        raise ConfigError(
            f"data.frame_rate must be a number such as '30' or '30000/1001'; got {data.frame_rate!r}."
        ) from None


def root_of(data: StageData | TableData) -> Path:
    """Return the folder of the data.

    Raises:
        ConfigError: data.root is not set.
    """
    if data.root is None:
        raise ConfigError("data.root must be the folder of the data; it is not set. Add --set data.root=DIR.")
    return data.root


def videos_of(names: Iterable[str], folder: Path) -> dict[str, Path]:
    """Return the path of each video.

    Raises:
        VideoError: some are missing.
    """
    videos = find_videos(sorted(names), folder)
    if videos.missing or videos.refused:
        lacking = [*videos.missing, *videos.refused]
        raise VideoError(
            f"{folder}: every video of the table must be here; {len(lacking)} are not: {', '.join(lacking[:5])}"
            f"{', …' if len(lacking) > 5 else ''}. Download them, or remove their rows (`mule data check "
            "--leave-out-missing`)."
        )
    return dict(videos.paths)


def _digest(thing: object) -> str:
    return hashlib.sha256(json.dumps(thing).encode()).hexdigest()
