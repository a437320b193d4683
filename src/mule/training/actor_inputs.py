"""What the actors of a table are seen by, computed once and kept: `roi`, `frame`, `crop` and `labels` of every row.

    kept maps of the frame ───────────────┐
    flipped frame, further strides ─ pass ┼─ roi, frame ─┐
    square around each actor ─────── pass ┴─ crop ───────┴─ mean over flips and strides ─ classifier ─▶ labels

Kept maps give `roi`, `frame` and `labels` without a further pass. Other passes are kept beside the maps, in a file for
every `CHUNK_TIMES` key times of a video, so that an interrupted run loses at most one file's work.
"""

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import partial
from pathlib import Path
from typing import Literal, NamedTuple

import numpy as np
import torch
from jaxtyping import Float, Int
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from mule.core.config import ConfigError
from mule.core.errors import RangeError, VideoError
from mule.core.files import write_file
from mule.core.progress import advance
from mule.core.settings import Experiment, StageData, TableData
from mule.data.batches.samples import WHOLE_FRAME, ClipName
from mule.data.table.table import ActorTable
from mule.features.cache import video_sha256
from mule.features.extraction import FrozenBackbone
from mule.features.feature_files import VideoFeatures
from mule.features.pooling import context_map
from mule.features.weights.cards import find_card
from mule.features.weights.classifier import LabelClassifier, last_channels, load_classifier
from mule.model import inputs_in_map, with_labels
from mule.novelty.crossfit import CROP, Inputs
from mule.training.data import Noted, root_of
from mule.training.kept_maps import map_at
from mule.training.maps import as_seen, backbone_when_asked, kept_features
from mule.video.clips import clip_windows, exact
from mule.video.person_crops import CROP_PX, SQUARE_SHARE, cut_squares
from mule.video.reading import Clip, read_clips, video_facts
from mule.video.sources import VideoSource, video_source
from mule.video.transforms import normalised, px_from_unit

CHUNK_TIMES = 32
"""Key times of a video in one file."""
_FORMAT = 1


class ViewPass(NamedTuple):
    """One pass of the backbone: over the frame, or over the square around each actor."""

    over: Literal["frame", "crop"]
    stride: int
    """A multiple of the experiment's own."""
    is_flipped: bool


@dataclass(frozen=True)
class SeenBy:
    """By which views actors are seen. `roi`, `frame` and `labels` come from the frame, so they cost no pass of their own.

    >>> SeenBy().num_passes(num_actors=3), SeenBy(crop=True, flipped=True).num_passes(num_actors=3)
    (1, 8)
    """

    crop: bool = False
    """Whether each actor gets a pass over the square around it."""
    flipped: bool = False
    """Whether every view is also seen in a mirror."""
    strides: tuple[int, ...] = (1,)
    """Multiples of the experiment's stride; the clip has the same number of frames at each."""

    def __post_init__(self) -> None:
        if not self.strides or min(self.strides) < 1 or len(set(self.strides)) < len(self.strides):
            raise RangeError(f"strides must be different multiples, each at least 1; got {self.strides}.")

    @property
    def passes(self) -> tuple[ViewPass, ...]:
        """Return the passes of one moment; one over `crop` is repeated for each actor."""
        return tuple(
            ViewPass(over, stride, is_flipped)
            for over in (("frame", "crop") if self.crop else ("frame",))
            for stride in self.strides
            for is_flipped in ((False, True) if self.flipped else (False,))
        )

    def num_passes(self, *, num_actors: int) -> int:
        """Return how often the backbone runs at a moment with so many actors: what these inputs cost."""
        return sum(num_actors if each.over == "crop" else 1 for each in self.passes)


ONE_PASS = SeenBy()


def inputs_of_table(
    experiment: Experiment,
    table: ActorTable,
    videos: Mapping[str, Path],
    *,
    seen_by: SeenBy = ONE_PASS,
    map_times: ActorTable | None = None,
    noted: Noted = lambda _: None,
) -> Inputs:
    """Return what each row of a table is seen by, in the order of its rows; missing passes are computed and kept.

    Args:
        experiment: names the frozen backbone and how its clips look.
        table: the actors; every row has a time.
        videos: the file of every video of the table.
        seen_by: the views.
        map_times: the table whose key times the kept maps cover, as splits of one table share them; None is `table`.
        noted: told how far the passes are.

    Raises:
        ConfigError: the experiment has no frozen backbone with weights, or no table.
        RangeError: a row is about a whole video.
        VideoError: a video cannot be read, or ends before one of its key times.
    """
    data = experiment.data
    if isinstance(data, StageData) or not experiment.backbone.frozen or experiment.backbone.weights is None:
        raise ConfigError(
            "what actors are seen by needs a table of videos and a frozen backbone with weights. Set backbone.frozen=true and "
            "backbone.weights=FILE."
        )
    if not table.has_time.all():
        raise RangeError(
            "actors are seen at a time; some rows are about whole videos. Write one row per key time."
        )
    card = as_seen(find_card(experiment.backbone.name), experiment, data)
    chunks, channels = list(_chunks(table)), last_channels(card)
    sums: dict[str, Tensor] = {}
    for each in seen_by.passes:
        if each == ViewPass("frame", 1, is_flipped=False):
            maps = kept_features(experiment, data, videos, table=map_times or table)
            found = [_from_maps(chunk, maps[chunk.video], channels) for chunk in chunks]
        else:
            found = _kept_pass(experiment, data, each, (chunks, videos, channels), noted)
        for name in found[0] if found else ():
            rows = torch.empty(len(table), channels)
            for chunk, values in zip(chunks, found, strict=True):
                rows[chunk.rows] = values[name]
            sums[name] = sums.get(name, 0) + rows
    views = len(seen_by.passes) // (2 if seen_by.crop else 1)
    means = {name: each / views for name, each in sums.items()}
    return with_labels(means, classifier_of(experiment), has_box=torch.from_numpy(table.has_box))


def classifier_of(experiment: Experiment) -> LabelClassifier | None:
    """Return the classifier in the experiment's file of weights; None if it has none."""
    if experiment.backbone.weights is None or not isinstance(experiment.data, TableData):
        return None
    card = as_seen(find_card(experiment.backbone.name), experiment, experiment.data)
    return load_classifier(experiment.backbone.weights, card)


class _Chunk(NamedTuple):
    """Some key times of a video, and the rows of the table at each."""

    video: str
    times: tuple[Fraction, ...]
    rows: Int[np.ndarray, " rows"]
    clip_index: Int[Tensor, " rows"]
    boxes_unit: Float[Tensor, "rows 4"]


def _chunks(table: ActorTable) -> Iterator[_Chunk]:
    boxes = np.where(table.has_box[:, None], table.boxes_xyxy_unit, WHOLE_FRAME).astype(np.float32)
    for video in sorted(set(table.video_index.tolist())):
        here = np.flatnonzero(table.video_index == video)
        times, at = np.unique(table.time_s[here], return_inverse=True)
        for first in range(0, len(times), CHUNK_TIMES):
            is_in = (at >= first) & (at < first + CHUNK_TIMES)
            yield _Chunk(
                table.videos[video],
                tuple(exact(float(each)) for each in times[first : first + CHUNK_TIMES]),
                here[is_in],
                torch.from_numpy(at[is_in] - first),
                torch.from_numpy(boxes[here[is_in]]),
            )


def _from_maps(chunk: _Chunk, maps: VideoFeatures, channels: int) -> dict[str, Tensor]:
    places = [map_at(ClipName(chunk.video, float(each)), maps) for each in chunk.times]
    rows, cols = maps.input_size
    boxes = px_from_unit(chunk.boxes_unit, width_px=cols, height_px=rows)
    context = maps.context[places][:, :channels].float()
    return inputs_in_map(context, boxes, chunk.clip_index, stride=maps.stride)


def _kept_pass(
    experiment: Experiment,
    data: TableData,
    view: ViewPass,
    asked: tuple[Sequence[_Chunk], Mapping[str, Path], int],
    noted: Noted,
) -> list[dict[str, Tensor]]:
    """Return the features of each chunk by one pass, from the cache or computed."""
    chunks, videos, channels = asked
    data = data.model_copy(update={"stride_frames": view.stride * data.stride_frames})
    backbone, folder = backbone_when_asked(experiment, data), root_of(data) / data.features / "seen"
    found: list[dict[str, Tensor]] = []
    for number, chunk in enumerate(chunks, start=1):
        source = video_source(videos[chunk.video])
        key = input_key(backbone, source, view, (chunk.times, chunk.boxes_unit, chunk.clip_index))
        path = (
            folder
            / f"{Path(chunk.video).stem[:48]}-{hashlib.sha256(key.encode()).hexdigest()[:16]}.safetensors"
        )
        values = _read(path, key, noted)
        if values is None:
            values = _computed(backbone, source, view, chunk, channels)
            write_file(path, partial(save_file, _whole(values), metadata={"key": key}))
        found.append(values)
        advance(f"looking at people ({_in_words(view)})", number, len(chunks))
    return found


def input_key(
    backbone: FrozenBackbone,
    source: VideoSource,
    view: ViewPass,
    asked: tuple[tuple[Fraction, ...], Float[Tensor, "rows 4"], Int[Tensor, " rows"]],
) -> str:
    """Return everything that the features of one pass depend on as JSON: times, boxes and the clip of each box included."""
    times, boxes_unit, clip_index = asked
    contents = {
        "format": _FORMAT,
        "recipe": backbone.recipe.written_out,
        "video_sha256": video_sha256(source),
        "view": view._asdict(),
        "crop": [CROP_PX, SQUARE_SHARE] if view.over == "crop" else None,
        "times_s": [str(each) for each in times],
        "boxes": [[round(float(x), 7) for x in box] for box in boxes_unit],
        "clip_index": clip_index.tolist(),
    }
    return json.dumps(contents, sort_keys=True)


def _read(path: Path, key: str, noted: Noted) -> dict[str, Tensor] | None:
    """Return the features in a file; None if it is missing, or damaged (with a note)."""
    if not path.is_file():
        return None
    try:
        with safe_open(path, framework="pt") as file:
            if (file.metadata() or {}).get("key") != key:
                return None
            return {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 - it is no mapping
    except (SafetensorError, OSError) as error:
        noted(f"{path}: damaged, so it is computed again ({error})")
        return None


def _computed(
    backbone: FrozenBackbone, source: VideoSource, view: ViewPass, chunk: _Chunk, channels: int
) -> dict[str, Tensor]:
    recipe = backbone.recipe
    windows = clip_windows(chunk.times, recipe.clip, recipe.frame_rate or video_facts(source).frame_rate)
    side = recipe.short_side_px if view.over == "frame" else None
    parts: list[dict[str, Tensor]] = []
    for at, clip in enumerate(read_clips(source, windows, short_side_px=side, scaler=recipe.scaler)):
        boxes_unit = chunk.boxes_unit[chunk.clip_index == at]
        parts.append(seen_in_clip(backbone, clip, boxes_unit, view, channels))
    if len(parts) < len(chunk.times):
        raise VideoError(
            f"{source}: must last until its last key time, {float(chunk.times[-1]):g} s; it ends before. `mule data check` "
            "finds such rows."
        )
    order = torch.argsort(chunk.clip_index, stable=True).argsort()
    return {name: torch.cat([each[name] for each in parts])[order] for name in parts[0]}


def seen_in_clip(
    backbone: FrozenBackbone,
    clip: Clip,
    boxes_unit: Float[Tensor, "actors 4"],
    view: ViewPass,
    channels: int,
) -> dict[str, Float[Tensor, "actors channels"]]:
    """Return what one pass over a clip shows of its actors: `roi` and `frame`, or `crop`."""
    recipe, frames = backbone.recipe, clip.frames
    rows, cols = frames.shape[2:]
    boxes = px_from_unit(boxes_unit, width_px=cols, height_px=rows)
    seen = cut_squares(frames, boxes) if view.over == "crop" else frames[None]
    if view.is_flipped:
        seen, boxes = (
            seen.flip(4),
            torch.stack([cols - boxes[:, 2], boxes[:, 1], cols - boxes[:, 0], boxes[:, 3]], 1),
        )
    pixels = torch.stack([normalised(each, recipe.normalisation) for each in seen])
    maps = backbone.features(pixels)
    last = context_map(maps)[:, :channels].float().cpu()
    if view.over == "crop":
        return {CROP: last.mean(dim=(2, 3))}
    return inputs_in_map(last, boxes, torch.zeros(len(boxes), dtype=torch.int64), stride=maps.stride)


def _whole(values: Mapping[str, Tensor]) -> dict[str, Tensor]:
    return {name: each.contiguous() for name, each in values.items()}


def _in_words(view: ViewPass) -> str:
    return f"{view.over}{' flipped' * view.is_flipped}{f' at stride {view.stride}' * (view.stride > 1)}"
