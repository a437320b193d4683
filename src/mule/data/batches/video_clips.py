"""Clips of real videos: a table lists who does what and when, the decoder supplies the frames.

A row with a time gives the clip around it. Rows of a whole video, as in Charades, give clips inside the video: in
training one with a uniformly drawn begin, in testing a fixed number that cover it evenly, each as a whole or in squares.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from pathlib import Path

import numpy as np
import torch
from jaxtyping import Bool, Float, Int, UInt8
from torch import Generator

from mule.core.errors import RangeError, VideoError
from mule.data.batches.samples import WHOLE_FRAME, ClipName, ClipSample
from mule.data.table.table import ActorTable, ObjectTable
from mule.detection.detections import DEFAULT_MAX_OBJECTS
from mule.video.clips import AVA_CLIP, ClipShape, ClipWindow, clip_window, spread_windows
from mule.video.reading import read_clips, video_facts
from mule.video.sources import (
    DecodeReport,
    ImageSequence,
    VideoFacts,
    VideoSource,
    video_source,
)
from mule.video.transforms import clip_boxes, px_from_unit

_Found = tuple[Float[np.ndarray, "objects 4"], Int[np.ndarray, " objects"], Float[np.ndarray, " objects"]]
"""Boxes, classes and scores of objects or persons."""
_Seen = tuple[Float[np.ndarray, "seen 4"], Int[np.ndarray, " seen"], Float[np.ndarray, " seen"]]
"""Those of them that a square shows."""
_TICKS_PER_S = 1000
_WHOLE_VIDEO_TICK = 2**40


@dataclass(frozen=True)
class ClipReading:
    """How to cut clips out of videos and decode them."""

    shape: ClipShape = AVA_CLIP
    frame_rate: Fraction | None = None
    """Frames per second of the grid of times; None uses each video's own. AVA is annotated at 30 for every file."""
    num_views: int | None = None
    """Clips that cover a whole video, for testing; None draws one at random, for training."""
    num_crops: int | None = None
    """Squares in which each clip of a whole video is seen, evenly from one end of the long side to the other; None shows
    the whole frame."""
    short_side_px: int | None = None
    """Scale to this short side while decoding; use it where the view has this size anyway, as in testing."""

    def __post_init__(self) -> None:
        if self.num_views is not None and self.num_views < 1:
            raise RangeError(f"num_views must be at least 1, or None to draw one; got {self.num_views}.")
        if self.num_crops is not None and self.num_crops < 1:
            raise RangeError(
                f"num_crops must be at least 1, or None for the whole frame; got {self.num_crops}."
            )


class VideoClips:
    """A data set of clips, decoded on demand and sorted by video, then time, then view."""

    def __init__(
        self,
        table: ActorTable,
        sources: Mapping[str, str | Path | VideoSource],
        *,
        classes: Sequence[str],
        reading: ClipReading,
        objects: "ClipObjects | None" = None,
        persons: "ClipObjects | None" = None,
    ) -> None:
        """Prepare; no video is opened yet.

        Args:
            table: the actors.
            sources: the path or source of each video in the table.
            classes: the actions that labels are about; labels of other actions are ignored.
            reading: how clips are cut.
            objects: objects in the frames. A clip of a whole video has those of the nearest frame within it.
            persons: detected persons. In a clip of a whole video those of the nearest frame within it are the actors, each
                with the labels of the video; without any, the whole frame is the actor. In a crop these are the persons
                who can be seen in it or, without any, the whole crop.

        Raises:
            VideoError: the table names videos without a source.
            RangeError: a class is not in the table.
        """
        self.classes = tuple(classes)
        self._reading, self._sources = reading, dict(sources)
        self._objects, self._persons = objects, persons
        self._facts: dict[str, VideoFacts] = {}
        self._ids = table.actor_id
        self._labels = table.labels_of(classes)
        self._boxes = np.where(table.has_box[:, None], table.boxes_xyxy_unit, WHOLE_FRAME).astype(np.float32)
        first, clip_of_row = table.clips()
        self._rows = np.argsort(clip_of_row, kind="stable")
        self._bounds = np.searchsorted(clip_of_row[self._rows], np.arange(len(first) + 1))
        of_video = (reading.num_views or 1) * (reading.num_crops or 1)
        num_views = np.where(np.isnan(table.time_s[first]), of_video, 1)
        self._clip = np.repeat(np.arange(len(first)), num_views)
        self._view = np.arange(len(self._clip)) - (np.cumsum(num_views) - num_views)[self._clip]
        names = [table.videos[i] for i in table.video_index[first].tolist()]
        self._names = [ClipName(*pair) for pair in zip(names, table.time_s[first].tolist(), strict=True)]
        _require_sources(names, self._sources)

    def __len__(self) -> int:
        return len(self._clip)

    def name_of(self, position: int) -> ClipName:
        """Return the video and key time; NaN where a row is about the whole video."""
        return self._names[self._clip[position]]

    def rows_of(self, position: int) -> Int[np.ndarray, " actors"]:
        """Return the table rows of the clip's actors, in the order of its actors."""
        clip = self._clip[position]
        return self._rows[self._bounds[clip] : self._bounds[clip + 1]]

    def labelled_actors(self) -> tuple[Bool[np.ndarray, "actors classes"], Int[np.ndarray, " actors"]]:
        """Return the labels of all actors, and the position of each one's clip, for class-balanced drawing."""
        num_actors = np.diff(self._bounds)[self._clip]
        rows = [self.rows_of(position) for position in range(len(self))]
        return self._labels[np.concatenate([np.empty(0, int), *rows])], np.repeat(
            np.arange(len(self)), num_actors
        )

    def __getitem__(self, position: int) -> ClipSample:
        """Return the clip at the position; of a whole video without views, the clip in the middle.

        Raises:
            VideoError: the video cannot be read, or ends before the key time.
        """
        return self.drawn(position, None)

    def drawn(self, position: int, generator: Generator | None) -> ClipSample:
        """Return the clip at the position; of a whole video without views, one with a random begin.

        Raises:
            VideoError: the video cannot be read, or ends before the key time.
        """
        name, rows = self.name_of(position), self.rows_of(position)
        source = self._source(name.video)
        window = self._window(position, source, generator)
        report = DecodeReport()
        clips = read_clips(source, [window], short_side_px=self._reading.short_side_px, report=report)
        clip = next(clips, None)
        clips.close()
        if clip is None:
            raise VideoError(
                f"{source}: a key time must lie before the end ({float(report.end_s or 0):g} s); the table has "
                f"{float(window.key_time_s):g} s. Is the file complete? `mule data check` finds such rows."
            )
        objects, persons = (
            _NO_OBJECTS
            if each is None
            else each.at(name)
            if name.has_time
            else each.within(name.video, window)
            for each in (self._objects, self._persons)
        )
        frames, num_crops = clip.frames, None if name.has_time else self._reading.num_crops
        if num_crops is not None:
            square = _Square.of(frames, int(self._view[position]) % num_crops, num_crops)
            frames = square.cut(frames)
            objects, persons = square.seen(objects), square.seen(persons)
        boxes = self._boxes[rows]
        if not name.has_time and len(persons[0]):
            boxes, rows = np.tile(persons[0], (len(rows), 1)), np.repeat(rows, len(persons[0]))
        return ClipSample(
            name=ClipName(name.video, float(window.key_time_s)),
            frames=frames,
            actor_boxes_xyxy_unit=torch.from_numpy(boxes),
            labels=torch.from_numpy(self._labels[rows]),
            actor_ids=tuple(self._ids[row] for row in rows.tolist()),
            object_boxes_xyxy_unit=torch.from_numpy(objects[0]),
            object_class=torch.from_numpy(objects[1]),
            object_scores=torch.from_numpy(objects[2]),
            source_size=clip.source_size,
            num_damaged=report.num_damaged + report.num_concealed,
        )

    def _source(self, video: str) -> VideoSource:
        source = video_source(self._sources[video])
        if isinstance(source, ImageSequence):
            return source
        return replace(source, num_threads=1)  # several workers decode at the same time

    def _window(self, position: int, source: VideoSource, generator: Generator | None) -> ClipWindow:
        name, reading = self.name_of(position), self._reading
        has_time = name.has_time
        if has_time and reading.frame_rate:
            return clip_window(name.key_time_s, reading.shape, reading.frame_rate)
        if name.video not in self._facts:
            self._facts[name.video] = video_facts(source)
        facts = self._facts[name.video]
        rate = reading.frame_rate or facts.frame_rate
        if has_time:
            return clip_window(name.key_time_s, reading.shape, rate)
        if facts.duration_s is None:
            raise VideoError(
                f"{source}: to choose clips inside a video its length must be known; it is not. Rewrite the video "
                "(ffmpeg -i IN -c copy OUT.mp4)."
            )
        num_frames = max(int(facts.duration_s * rate), 1)
        if generator is not None and reading.num_views is None:
            return _drawn_window(num_frames, reading.shape, rate, generator)
        windows = spread_windows(num_frames, reading.num_views or 1, reading.shape, rate)
        return windows[int(self._view[position]) // (reading.num_crops or 1)]


class ClipObjects:
    """The best objects of each clip, by video and time."""

    def __init__(self, table: ObjectTable, *, most: int = DEFAULT_MAX_OBJECTS) -> None:
        self._most = most
        self._video = {name: number for number, name in enumerate(table.videos)}
        keys = table.video_index.astype(np.int64) * (_WHOLE_VIDEO_TICK + 1) + _ticks(table.time_s)
        order = np.lexsort((-table.score, keys))  # stable: among equal scores the earlier row comes first
        self._keys = keys[order]
        self._boxes = table.boxes_xyxy_unit[order].astype(np.float32)
        self._class = table.class_index[order].astype(np.int64)
        self._score = table.score[order].astype(np.float32)

    def at(self, name: ClipName) -> _Found:
        """Return boxes, classes and scores at the clip's key time, to the millisecond, best first; there may be none."""
        if name.video not in self._video:
            return _NO_OBJECTS
        return self._best(self._key(name.video, name.key_time_s))

    def within(self, video: str, window: ClipWindow) -> _Found:
        """Return the same of the frame with objects that is nearest to the clip's key time, from its first frame to its last."""
        if video not in self._video:
            return _NO_OBJECTS
        first, key, last = (
            self._key(video, max(float(time_s), 0.0))
            for time_s in (window.times_s[0], window.key_time_s, window.times_s[-1])
        )
        keys = self._keys[slice(*np.searchsorted(self._keys, [first, last + 1]))]
        return self._best(int(keys[np.abs(keys - key).argmin()])) if len(keys) else _NO_OBJECTS

    def _key(self, video: str, time_s: float) -> int:
        return self._video[video] * (_WHOLE_VIDEO_TICK + 1) + int(_ticks(np.array([time_s]))[0])

    def _best(self, key: int) -> _Found:
        start, end = np.searchsorted(self._keys, [key, key + 1])
        best = slice(start, min(end, start + self._most))
        return self._boxes[best], self._class[best], self._score[best]


_NO_OBJECTS = (np.zeros((0, 4), np.float32), np.zeros(0, np.int64), np.zeros(0, np.float32))


@dataclass(frozen=True)
class _Square:
    """A square of frames that is as long as their short side; long sides are cut evenly, as in PySlowFast's test."""

    rows: int
    cols: int
    top: int
    left: int

    @classmethod
    def of(
        cls, frames: UInt8[torch.Tensor, "frames channels rows cols"], number: int, count: int
    ) -> "_Square":
        rows, cols = frames.shape[2:]
        slack = abs(rows - cols)
        start = math.ceil(slack / 2) if count == 1 else math.ceil(number * slack / (count - 1))
        return cls(rows, cols, start if rows > cols else 0, 0 if rows > cols else start)

    @property
    def side_px(self) -> int:
        return min(self.rows, self.cols)

    def cut(
        self, frames: UInt8[torch.Tensor, "frames channels rows cols"]
    ) -> UInt8[torch.Tensor, "frames channels side side"]:
        return frames[:, :, self.top :, self.left :][:, :, : self.side_px, : self.side_px]

    def seen(self, found: _Found) -> _Seen:
        """Return what can be seen in the square, in fractions of it."""
        boxes, classes, scores = found
        boxes_px = px_from_unit(torch.from_numpy(boxes), width_px=self.cols, height_px=self.rows)
        boxes_px = boxes_px - boxes_px.new_tensor([self.left, self.top]).repeat(2)
        _, is_seen = clip_boxes(boxes_px, self.side_px, self.side_px)
        kept = is_seen.numpy()
        inside = boxes_px[is_seen].clamp(0, self.side_px) / self.side_px
        return inside.numpy(), classes[kept], scores[kept]


def _ticks(time_s: Float[np.ndarray, " rows"]) -> Int[np.ndarray, " rows"]:
    is_whole = np.isnan(time_s)
    ticks = np.rint(np.where(is_whole, 0, time_s) * _TICKS_PER_S).astype(np.int64)
    return np.where(is_whole, _WHOLE_VIDEO_TICK, ticks)


def _drawn_window(num_frames: int, shape: ClipShape, rate: Fraction, generator: Generator) -> ClipWindow:
    """Draw a clip that begins at any frame, all equally likely, and ends within the video if it can."""
    start = int(torch.randint(max(num_frames - shape.span_frames, 0) + 1, (), generator=generator))
    key = Fraction(min(start + shape.span_frames // 2, num_frames - 1)) / rate
    return ClipWindow(key, tuple((start + i * shape.stride_frames) / rate for i in range(shape.num_frames)))


def _require_sources(videos: Sequence[str], sources: Mapping[str, object]) -> None:
    missing = sorted(set(videos) - set(sources))
    if missing:
        raise VideoError(
            f"every video of the table must have a source; {len(missing)} of {len(set(videos))} have none: "
            f"{', '.join(missing[:5])}{', …' if len(missing) > 5 else ''}. Download them, or remove their rows "
            "(`mule data check` lists them)."
        )
