"""Boxes of persons and objects at the key times of videos: each video is decoded once, in order, and seen in batches.

video ─▶ frames at its key times ─▶ batches ─▶ finders ─▶ `VideoBoxes` ─▶ partial file ─▶ tables (`detected.py`)

A finder looks at frames (a detector), or looks boxes up by video and time (a table); several finders are joined.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from itertools import islice, takewhile
from pathlib import Path
from typing import NamedTuple, Protocol, runtime_checkable

import numpy as np
import torch
from jaxtyping import Float, Int

from mule.core.errors import RangeError, VideoError
from mule.core.text_rows import read_lines
from mule.data.convert.conversion import Corners
from mule.data.split.matching import PERSON_CLASS
from mule.data.table.ava_boxes import is_ava_boxes
from mule.data.table.reading import read_object_table
from mule.data.table.table import ObjectTable
from mule.data.table.videos import VideoOnDisk
from mule.detection.cards import COCO_CLASSES
from mule.detection.detections import (
    DEFAULT_MAX_OBJECTS,
    PERSON,
    BoxTable,
    Detections,
    split_actors_and_objects,
)
from mule.detection.detector import Detector, RgbFrames
from mule.detection.files import load_boxes
from mule.video.clips import SAME_INSTANT_S, ClipWindow, exact, key_times
from mule.video.reading import read_clips
from mule.video.sources import DecodeReport
from mule.video.transforms import unit_from_px

FrameTimes = Sequence[float] | Fraction
"""Rising key times in seconds, or the seconds from one to the next, from zero to the end of the video."""


class FrameBox(NamedTuple):
    """A box in one of some frames, in fractions of the frame."""

    frame: int
    class_name: str
    score: float
    box_xyxy_unit: Corners


@dataclass(frozen=True)
class VideoBoxes:
    """The boxes of one video: in each frame the persons, best first, then the best objects."""

    video: str
    times_s: Float[np.ndarray, " frames"]
    """Key times that were looked at, rising."""
    after_end_s: tuple[float, ...]
    """Key times after the end of the video."""
    frame_index: Int[np.ndarray, " boxes"]
    class_names: tuple[str, ...]
    """The class of each box."""
    scores: Float[np.ndarray, " boxes"]
    boxes_xyxy_unit: Float[np.ndarray, "boxes 4"]
    stopped_by: str | None = None
    """What ended the reading before the video's own end."""

    @property
    def is_person(self) -> np.ndarray:
        """Whether each box is a person's."""
        return np.array([name == PERSON_CLASS for name in self.class_names], dtype=bool)


@runtime_checkable
class Finder(Protocol):
    """Finds boxes in frames of a video."""

    @property
    def needs_frames(self) -> bool:
        """Whether it looks at the frames; otherwise they are not decoded."""
        ...

    @property
    def actor_score(self) -> float:
        """The least score of a person."""
        ...

    def __call__(self, video: str, times_s: Sequence[float], frames: RgbFrames | None) -> list[FrameBox]:
        """Return the boxes at these times, by their place in `times_s`."""
        ...


@dataclass(frozen=True)
class SeenBoxes:
    """Boxes from a detector."""

    detector: Detector
    actor_score: float
    object_score: float = 0.0
    needs_frames: bool = field(default=True, init=False)

    def __call__(self, video: str, times_s: Sequence[float], frames: RgbFrames | None) -> list[FrameBox]:  # noqa: ARG002 - one call for all
        """Run the detector on all frames at once."""
        if frames is None:
            raise AssertionError("frames are decoded")
        found = self.detector(frames)
        strong = found.select((found.class_index == PERSON) | (found.scores >= self.object_score))
        parts = split_actors_and_objects(strong, actor_score=self.actor_score)
        names, (rows, cols) = self.detector.class_names, frames.shape[2:]
        return [box for part in parts for box in _frame_boxes(part, names, width_px=cols, height_px=rows)]


def _frame_boxes(
    found: Detections, class_names: Sequence[str], *, width_px: int, height_px: int
) -> Iterator[FrameBox]:
    boxes_px = found.boxes_xyxy_px.double()
    unit = unit_from_px(boxes_px, width_px=width_px, height_px=height_px).clamp(0, 1).tolist()
    kinds, scores = found.class_index.tolist(), found.scores.tolist()
    for at, frame in enumerate(found.image_index.tolist()):
        x1, y1, x2, y2 = unit[at]
        yield FrameBox(frame, class_names[int(kinds[at])], scores[at], (x1, y1, x2, y2))


class ListedBoxes:
    """Boxes from a table, by video and time to the millisecond."""

    needs_frames = False

    def __init__(self, table: ObjectTable, *, actor_score: float, object_score: float) -> None:
        self.actor_score = actor_score
        least = np.array([actor_score if name == PERSON_CLASS else object_score for name in table.classes])
        kept = (
            np.flatnonzero(table.score >= least[table.class_index]) if len(table) else np.zeros(0, np.int64)
        )
        self._rows: dict[tuple[str, int], list[int]] = {}
        self._table = table
        for row in kept.tolist():
            key = (table.videos[table.video_index[row]], _tick(table.time_s[row]))
            self._rows.setdefault(key, []).append(row)

    def __call__(self, video: str, times_s: Sequence[float], frames: RgbFrames | None) -> list[FrameBox]:  # noqa: ARG002 - one call for all
        """Look the boxes up."""
        table = self._table
        return [
            FrameBox(
                frame,
                table.classes[table.class_index[row]],
                float(table.score[row]),
                tuple(table.boxes_xyxy_unit[row].tolist()),
            )
            for frame, time_s in enumerate(times_s)
            for row in self._rows.get((video, _tick(time_s)), ())
        ]


def _tick(time_s: float) -> int:
    return round(float(time_s) * 1000)


def read_boxes(path: Path) -> ObjectTable:
    """Read boxes of any supported format: a table of objects, AVA's person boxes, boxes by frame, COCO or AIA.

    Raises:
        AnnotationError: the file cannot be read.
    """
    if path.suffix.lower() == ".parquet" or (path.suffix.lower() == ".csv" and _is_table(path)):
        return read_object_table(path)
    return _object_table_of(load_boxes(path))


def _is_table(path: Path) -> bool:
    return is_ava_boxes(path) or "object_class" in next(read_lines(path), "")


def _object_table_of(boxes: BoxTable) -> ObjectTable:
    """Return boxes as a table of objects; a class that COCO lacks is an `object`."""
    videos = {name: at for at, name in enumerate(dict.fromkeys(frame.video for frame in boxes.frames))}
    frames = [boxes.frames[at] for at in boxes.frame_index.tolist()]
    return ObjectTable(
        tuple(videos),
        (*COCO_CLASSES, "object"),
        np.array([videos[frame.video] for frame in frames], dtype=np.int64),
        np.array([frame.key_time_s for frame in frames], dtype=np.float64),
        boxes.boxes_xyxy_unit.double().numpy(),
        boxes.class_index.numpy(),
        boxes.scores.double().numpy(),
    )


def boxes_in_video(
    video: VideoOnDisk,
    times: FrameTimes,
    finders: Sequence[Finder],
    *,
    batch_frames: int = 1,
    on_frames: Callable[[int], None] = lambda _: None,
) -> VideoBoxes:
    """Return the boxes of one video at its key times.

    Args:
        video: the video.
        times: its key times.
        finders: their boxes are joined.
        batch_frames: frames that a detector sees in one call.
        on_frames: called with the number of finished frames.

    Raises:
        VideoError: the video cannot be read, or its length is needed and unknown.
    """
    if batch_frames < 1:
        raise RangeError(f"batch_frames must be at least 1; got {batch_frames}.")
    report = DecodeReport()
    needs_frames = any(finder.needs_frames for finder in finders)
    batches = (
        _seen(video, times, report, batch_frames) if needs_frames else _listed(video, times, batch_frames)
    )
    seen_s: list[float] = []
    found: list[FrameBox] = []
    for times_s, frames in batches:
        boxes = [box for finder in finders for box in finder(video.name, times_s, frames)]
        found += [box._replace(frame=box.frame + len(seen_s)) for box in _best(boxes)]
        seen_s += times_s
        on_frames(len(seen_s))
    after_end_s = () if isinstance(times, Fraction) else tuple(times[len(seen_s) :])
    return _video_boxes(video.name, seen_s, after_end_s, found, report.stopped_by)


def _seen(
    video: VideoOnDisk, times: FrameTimes, report: DecodeReport, batch_frames: int
) -> Iterator[tuple[list[float], RgbFrames]]:
    """Yield batches of frames with their key times, up to the end of the video."""
    windows = (ClipWindow(time_s, (time_s,)) for time_s in _exact_times(times))
    clips = read_clips(video.source, windows, report=report)
    num_seen = 0
    while batch := list(islice(clips, batch_frames)):
        if isinstance(times, Fraction):
            times_s = [float(clip.window.key_time_s) for clip in batch]
        else:
            times_s = list(times[num_seen : num_seen + len(batch)])
        num_seen += len(batch)
        yield times_s, torch.cat([clip.frames for clip in batch])


def _listed(video: VideoOnDisk, times: FrameTimes, batch_frames: int) -> Iterator[tuple[list[float], None]]:
    """Yield the key times before the end of the video, without its frames."""
    if video.length_s is None:
        if isinstance(times, Fraction):
            raise VideoError(
                f"{video.path}: to choose key times without decoding, the length must be known; it is not. Give a table."
            )
        known = iter(times)
    else:
        end_s = exact(video.length_s) - SAME_INSTANT_S
        shown = takewhile(lambda time_s: time_s < end_s, _exact_times(times))
        known = map(float, shown) if isinstance(times, Fraction) else islice(times, sum(1 for _ in shown))
    while batch := list(islice(known, batch_frames)):
        yield batch, None


def _exact_times(times: FrameTimes) -> Iterator[Fraction]:
    return key_times(period_s=times) if isinstance(times, Fraction) else map(exact, times)


def _best(boxes: list[FrameBox]) -> list[FrameBox]:
    """Order boxes by frame, persons before objects, best first; keep the best objects of each frame."""
    ordered = sorted(boxes, key=lambda box: (box.frame, box.class_name != PERSON_CLASS, -box.score))
    kept: list[FrameBox] = []
    num_objects: dict[int, int] = {}
    for box in ordered:
        is_object = box.class_name != PERSON_CLASS
        rank = num_objects.get(box.frame, 0)
        num_objects[box.frame] = rank + is_object
        if not is_object or rank < DEFAULT_MAX_OBJECTS:
            kept.append(box)
    return kept


def _video_boxes(
    video: str,
    times_s: Sequence[float],
    after_end_s: tuple[float, ...],
    found: Sequence[FrameBox],
    stopped_by: str | None,
) -> VideoBoxes:
    return VideoBoxes(
        video,
        np.array(times_s, dtype=np.float64),
        after_end_s,
        np.array([box.frame for box in found], dtype=np.int64),
        tuple(box.class_name for box in found),
        np.array([box.score for box in found], dtype=np.float64),
        np.array([box.box_xyxy_unit for box in found], dtype=np.float64).reshape(-1, 4),
        stopped_by,
    )


def num_frames_expected(video: VideoOnDisk, times: FrameTimes) -> int:
    """Return how many frames will be looked at, as far as the container knows."""
    if not isinstance(times, Fraction):
        return len(times)
    return 0 if video.length_s is None else int(exact(video.length_s) / times) + 1


def key_times_by_video(
    videos: Sequence[str], video_index: Int[np.ndarray, " rows"], time_s: Float[np.ndarray, " rows"]
) -> Mapping[str, list[float]]:
    """Return the distinct times of each video's rows, rising.

    Raises:
        RangeError: a row has no time.
    """
    if np.isnan(time_s).any():
        raise RangeError(
            "rows must have a time to look for boxes; some rows describe whole videos. Write one row per key time, or "
            "look at regular times instead."
        )
    return {name: np.unique(time_s[video_index == number]).tolist() for number, name in enumerate(videos)}
