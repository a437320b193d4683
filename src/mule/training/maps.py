"""The maps of a frozen backbone that an experiment is trained on, computed once and kept."""

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, replace
from fractions import Fraction
from functools import cache, lru_cache
from pathlib import Path

import numpy as np
import torch
from torch import nn

from mule.core.config import ConfigError
from mule.core.errors import FeatureFileError
from mule.core.files import sha256_while_unchanged
from mule.core.processes import is_first, own_device, wait_for_all
from mule.core.progress import advance
from mule.core.settings import Experiment, StageData, TableData
from mule.data.batches.batches import BatchClip, batch_of
from mule.data.batches.samples import ClipSamples, ClipView
from mule.data.table.reading import read_actor_table
from mule.data.table.table import ActorTable
from mule.features.cache import video_stamp
from mule.features.extraction import (
    Extraction,
    ExtractionProgress,
    Extractor,
    FrozenBackbone,
    frozen_backbone,
    recipe_of,
)
from mule.features.feature_files import VideoFeatures, read_features, write_features
from mule.features.pooling import context_map
from mule.features.weights.card import WeightCard
from mule.features.weights.cards import find_card
from mule.runtime.openvino import compiled_frozen
from mule.training.data import (
    Noted,
    RunData,
    build_samplers,
    frame_rate,
    root_of,
    source_clips,
    table_sides,
    videos_of,
    views,
)
from mule.training.kept_maps import KeptBatches, KeptClip, kept_samples, kept_table, labelled_actors
from mule.training.run_folder import MODEL
from mule.video.clips import exact
from mule.video.sources import video_source
from mule.video.transforms import Normalisation

BATCH_CLIPS = 16
OnMaps = Callable[[int, int], None]
"""Called with the number of videos done and the number of all videos."""


def build_kept_data(
    experiment: Experiment, backbone: nn.Module, *, normalisation: Normalisation, noted: Noted
) -> RunData:
    """Build batches of maps for training and validation. The first process computes maps that are missing.

    Args:
        experiment: an experiment with a frozen backbone.
        backbone: the backbone with its weights, for rendered clips; for tables its card is loaded when needed.
        normalisation: the pixel normalisation that the backbone expects.
        noted: called with a sentence about what is being computed.

    Raises:
        ConfigError: there are no weights to be frozen.
    """
    if experiment.backbone.weights is None:
        raise ConfigError(
            "a frozen backbone must have weights; backbone.weights is not set. Add --set backbone.weights=FILE, or the "
            "folder of a run that trained one."
        )
    for name in ("other_background", "undone_motion"):
        if getattr(experiment.view, name) > 0:
            raise ConfigError(
                f"view.{name} must be 0 with kept maps, which have no pixels. Set it to 0, or backbone.frozen=false."
            )
    data = experiment.data
    if isinstance(data, StageData):
        train, val, classes, digests = _of_stage(experiment, data, backbone, normalisation, noted)
    else:
        train, val, classes, digests = _of_table(experiment, data, noted)
    samplers = build_samplers(experiment, labelled_actors(train, len(classes)), (len(train), len(val)))
    return RunData(
        KeptBatches(train, samplers[0], num_classes=len(classes)),
        KeptBatches(val, samplers[1], num_classes=len(classes)),
        classes,
        digests,
    )


MAPS_STEP = "computing feature maps"
Sides = tuple[list[KeptClip], list[KeptClip], tuple[str, ...], dict[str, str]]


def _of_stage(
    experiment: Experiment, data: StageData, backbone: nn.Module, normalisation: Normalisation, noted: Noted
) -> Sides:
    source = source_clips(experiment, noted=noted)
    view = views(experiment, normalisation)[1]
    weights = experiment.backbone.weights or Path()
    weights_sha256 = sha256_while_unchanged(weights / MODEL)
    kept: list[list[KeptClip]] = []
    for role, samples in (("train", source.train), ("val", source.val)):
        contents = {
            "set": source.digests[role],
            "weights_sha256": weights_sha256,
            "stride_frames": data.stride_frames,
            "normalisation": asdict(normalisation),
        }
        key = json.dumps(contents, sort_keys=True)
        path = (
            root_of(data) / f"{source.digests[role]}-{weights_sha256[:16]}-{data.stride_frames}.safetensors"
        )
        if is_first() and _kept(path, key) is None:
            noted(f"computing the maps of {len(samples)} clips for {role}")
            pieces = _maps_of(samples, backbone, view)
            write_features(path, pieces, key=key, scratch=root_of(data))
        wait_for_all()
        kept.append(kept_samples(samples, read_features(path, key=key)))
    return kept[0], kept[1], source.classes, dict(source.digests)


def _kept(path: Path, key: str) -> VideoFeatures | None:
    try:
        return read_features(path, key=key)
    except (FileNotFoundError, FeatureFileError):  # not there, damaged, or made from something else
        return None


@torch.no_grad()
def _maps_of(samples: ClipSamples, backbone: nn.Module, view: ClipView) -> list[VideoFeatures]:
    """Return the context maps of all clips, in parts. The view is not random, so any generator will do."""
    device = next(backbone.eval().parameters()).device
    pieces: list[VideoFeatures] = []
    for first in range(0, len(samples), BATCH_CLIPS):
        positions = range(first, min(first + BATCH_CLIPS, len(samples)))
        clips = [
            BatchClip(i, sample := samples[i], view(sample, torch.Generator().manual_seed(0)))
            for i in positions
        ]
        batch = batch_of(clips, num_classes=len(samples.classes))
        maps = backbone(batch.stack.to(device))
        pieces.append(
            VideoFeatures(
                context=context_map(maps).cpu(),
                key_time_s=torch.tensor([name.key_time_s for name in batch.clip_names], dtype=torch.float64),
                num_clamped=torch.zeros(len(clips), dtype=torch.int64),
                stride=maps.stride,
                input_size=(batch.stack.shape[3], batch.stack.shape[4]),
                source_size=clips[0].sample.source_size,
            )
        )
    return pieces


def _of_table(experiment: Experiment, data: TableData, noted: Noted) -> Sides:
    sides = table_sides(data)
    sides.require_trainable(noted=noted)
    features = kept_features(experiment, data, sides.videos, table=sides.table, noted=noted)
    tables, classes = (sides.train_actors, sides.val_actors), sides.split.classes.known_train
    train, val = (kept_table(table, features, classes=classes, objects=sides.objects) for table in tables)
    return train, val, classes, dict(sides.digests)


def keep_all_features(experiment: Experiment, *, on_progress: OnMaps) -> tuple[int, int]:
    """Compute the maps of an experiment's table that are not kept yet.

    Returns:
        The number of videos, and of those whose maps were computed now.

    Raises:
        ConfigError: the experiment has no frozen backbone with weights, or no table.
    """
    data, settings = experiment.data, experiment.backbone
    if isinstance(data, StageData) or not settings.frozen or settings.weights is None:
        raise ConfigError(
            "keeping maps needs a table of videos and a frozen backbone with weights; this experiment has kind = "
            f"{data.kind!r}, frozen = {settings.frozen} and weights = {settings.weights}."
        )
    table = read_actor_table(root_of(data) / data.actors)
    videos = videos_of(table.videos, root_of(data) / data.videos)
    num_computed = keep_features(experiment, data, videos, table=table, on_progress=on_progress)
    return len(videos), num_computed


def keep_features(
    experiment: Experiment,
    data: TableData,
    videos: Mapping[str, Path],
    *,
    table: ActorTable,
    on_progress: OnMaps = lambda *_: None,
) -> int:
    """Compute the maps of these videos that are not kept yet, one video at a time; return how many were computed.

    Maps are not held across videos: where freed memory stays with the process (`mule.core.heap`), a map of 700 kB held for
    later splits the block that the next video's pixels would reuse, and the process grows by their 19 MB.
    """
    on_progress(0, len(videos))
    num_computed = 0
    for num_done, (_, extraction) in enumerate(_extractions(experiment, data, videos, table), start=1):
        num_computed += not extraction.was_cached
        on_progress(num_done, len(videos))
    return num_computed


def kept_features(
    experiment: Experiment,
    data: TableData,
    videos: Mapping[str, Path],
    *,
    table: ActorTable,
    noted: Noted = lambda _: None,
) -> dict[str, VideoFeatures]:
    """Return the maps of these videos at every key time of the table; missing ones are computed, and a sentence says how many.

    Maps that this process has read stay in memory while video and weights are unchanged: a row of a comparison needs them
    in training and again for each side it is judged on.
    """
    times = _key_times(table)
    at_hand = _read_before(maps_key(experiment), backbone_when_asked(experiment, data).recipe.weights_sha256)
    wanted = {name: (path, video_stamp(video_source(path)), times[name]) for name, path in videos.items()}
    unread = {name: videos[name] for name, which in wanted.items() if which not in at_hand}
    num_computed = 0
    for name, extraction in _extractions(experiment, data, unread, table):
        at_hand[wanted[name]] = extraction.features
        num_computed += not extraction.was_cached
    if unread:
        place = root_of(data) / data.features
        noted(
            f"feature maps of {len(unread)} videos: {len(unread) - num_computed} read from {place}, {num_computed} computed now"
        )
    return {name: at_hand[which] for name, which in sorted(wanted.items())}


def maps_key(experiment: Experiment) -> str:
    """Return a key that experiments with the same maps share: their data without the split, backbone and view."""
    data = experiment.data.model_copy(update={"split": ""})
    return "\n".join(each.model_dump_json() for each in (data, experiment.backbone, experiment.view))


@lru_cache(maxsize=1)
def _read_before(*_: str) -> dict[object, VideoFeatures]:
    """Maps read with this key, memory-mapped, by video, stamp and times; another key replaces them."""
    return {}


def _extractions(
    experiment: Experiment, data: TableData, videos: Mapping[str, Path], table: ActorTable
) -> Iterator[tuple[str, Extraction]]:
    """Yield the maps of one video after the other.

    All key times of a video are included, whatever the split does with its rows, so every split finds the same maps.
    """
    extractor = Extractor(backbone_when_asked(experiment, data), root_of(data) / data.features)
    key_times = _key_times(table)
    num_before, num_all = 0, sum(len(key_times[video]) for video in videos)
    advance(MAPS_STEP, 0, num_all)
    for video, path in sorted(videos.items()):

        def on_clips(clips: ExtractionProgress, before: int = num_before) -> None:
            advance(MAPS_STEP, before + clips.num_reused + clips.num_computed, num_all)

        first = extractor.extract(path, key_times[video], on_progress=on_clips) if is_first() else None
        wait_for_all()
        num_before += len(key_times[video])
        advance(MAPS_STEP, num_before, num_all)
        yield video, first or extractor.extract(path, key_times[video])


def _key_times(table: ActorTable) -> dict[str, tuple[Fraction, ...]]:
    """Return the key times of each video, in order."""
    by_video: dict[str, list[Fraction]] = {name: [] for name in table.videos}
    timed = np.flatnonzero(table.has_time)
    for video, time_s in sorted(
        set(zip(table.video_index[timed].tolist(), table.time_s[timed].tolist(), strict=True))
    ):
        by_video[table.videos[video]].append(exact(time_s))
    return {name: tuple(times) for name, times in by_video.items()}


def backbone_when_asked(experiment: Experiment, data: TableData) -> FrozenBackbone:
    """Return the frozen backbone; its weights are read at the first clip, so not at all where all maps are kept."""
    weights, is_compiled = experiment.backbone.weights or Path(), experiment.backbone.runtime == "openvino"
    card, rate = as_seen(find_card(experiment.backbone.name), experiment, data), frame_rate(data)
    short_side_px = experiment.view.val_short_side_px

    @cache
    def read() -> FrozenBackbone:
        device = "cpu" if is_compiled else str(own_device())  # OpenVINO compiles for the CPU
        backbone = frozen_backbone(weights, card, short_side_px=short_side_px, frame_rate=rate, device=device)
        return compiled_frozen(backbone) if is_compiled else backbone

    recipe = recipe_of(weights, card, short_side_px=short_side_px, frame_rate=rate)
    return FrozenBackbone(
        lambda clips: read().features(clips),
        replace(recipe, runtime="openvino") if is_compiled else recipe,
    )


def as_seen(card: WeightCard, experiment: Experiment, data: TableData) -> WeightCard:
    """Return the card with the experiment's clip length and backbone options."""
    clip = replace(card.clip, num_frames=data.num_frames, stride_frames=data.stride_frames)
    return replace(card.with_options(**experiment.backbone.options), clip=clip)
