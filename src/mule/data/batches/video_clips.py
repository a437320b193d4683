"""Clips of real videos: a table says who does what and when, the decoder shows it.

A row with a time gives the clip around it. Rows of a whole video, as in Charades, give clips inside the video:
for training one whose begin is drawn evenly each time, for testing a fixed number that cover it evenly.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from pathlib import Path

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Generator

from mule.core.errors import RangeError, VideoError
from mule.data.batches.samples import WHOLE_FRAME, ClipName, ClipSample
from mule.data.table.table import ActorTable, ObjectTable
from mule.detection.detections import DEFAULT_MAX_OBJECTS
from mule.video.clips import AVA_CLIP, ClipShape, ClipWindow, clip_window, spread_windows
from mule.video.reading import Scaler, read_clips, video_facts
from mule.video.sources import DecodeReport, ImageSequence, VideoFacts, VideoSource, video_source

_TICKS_PER_S = 1000
_WHOLE_VIDEO_TICK = 2**40


@dataclass(frozen=True)
class ClipReading:
    """How clips are cut out of videos and decoded."""

    shape: ClipShape = AVA_CLIP
    frame_rate: Fraction | None = None
    """Of the grid of times; None takes each video's own. AVA is annotated at 30 whatever the file has."""
    num_views: int | None = None
    """Clips that cover a whole video, for testing; None draws one inside it each time, for training."""
    short_side_px: int | None = None
    """Scale while decoding: right where the view wants this size anyway, as in testing."""
    scaler: Scaler = "torch"
    decoder_threads: int = 1
    """Per file; one is best where several workers read."""

    def __post_init__(self) -> None:
        if self.num_views is not None and self.num_views < 1:
            raise RangeError(f"num_views must be at least 1, or None to draw one; got {self.num_views}.")


class VideoClips:
    """A data set of clips decoded as they are asked for. Clips come by video, then by time, then by view."""

    def __init__(
        self,
        table: ActorTable,
        sources: Mapping[str, str | Path | VideoSource],
        *,
        classes: Sequence[str],
        reading: ClipReading,
        objects: "ClipObjects | None" = None,
    ) -> None:
        """Nothing is opened yet.

        Args:
            table: the actors.
            sources: where each video that the table names lies.
            classes: the actions that labels speak of; labels of other actions are left out.
            reading: how clips are cut.
            objects: what else is in the frames.

        Raises:
            VideoError: the table names videos without a source.
            RangeError: a class is not in the table.
        """
        self.classes = tuple(classes)
        self._reading, self._sources, self._objects = reading, dict(sources), objects
        self._facts: dict[str, VideoFacts] = {}
        self._ids = table.actor_id
        self._labels = table.labels_of(classes)
        self._boxes = np.where(table.has_box[:, None], table.boxes_xyxy_unit, WHOLE_FRAME).astype(np.float32)
        first, clip_of_row = table.clips()
        self._rows = np.argsort(clip_of_row, kind="stable")
        self._bounds = np.searchsorted(clip_of_row[self._rows], np.arange(len(first) + 1))
        num_views = np.where(np.isnan(table.time_s[first]), reading.num_views or 1, 1)
        self._clip = np.repeat(np.arange(len(first)), num_views)
        self._view = np.arange(len(self._clip)) - (np.cumsum(num_views) - num_views)[self._clip]
        names = [table.videos[i] for i in table.video_index[first].tolist()]
        self._names = [ClipName(*pair) for pair in zip(names, table.time_s[first].tolist(), strict=True)]
        _require_sources(names, self._sources)

    def __len__(self) -> int:
        return len(self._clip)

    def name_of(self, position: int) -> ClipName:
        """The video and key time; NaN where the table speaks of the whole video."""
        return self._names[self._clip[position]]

    def rows_of(self, position: int) -> Int[np.ndarray, " actors"]:
        """The rows of the table that are the clip's actors, in the order of its actors."""
        clip = self._clip[position]
        return self._rows[self._bounds[clip] : self._bounds[clip + 1]]

    def labelled_actors(self) -> tuple[Bool[np.ndarray, "actors classes"], Int[np.ndarray, " actors"]]:
        """What the actors of all clips do, and each one's clip by position: what class-balanced drawing needs."""
        num_actors = np.diff(self._bounds)[self._clip]
        rows = [self.rows_of(position) for position in range(len(self))]
        return self._labels[np.concatenate([np.empty(0, int), *rows])], np.repeat(
            np.arange(len(self)), num_actors
        )

    def __getitem__(self, position: int) -> ClipSample:
        """The clip at the position. Of a whole video that is drawn from it is the clip in the middle.

        Raises:
            VideoError: the video cannot be read, or ends before the key time.
        """
        return self._sample(position, None)

    def drawn(self, position: int, generator: Generator) -> ClipSample:
        """The clip at the position; of a whole video that is drawn from, one that begins anywhere in it."""
        return self._sample(position, generator if self._reading.num_views is None else None)

    def _sample(self, position: int, generator: Generator | None) -> ClipSample:
        name, rows, reading = self.name_of(position), self.rows_of(position), self._reading
        source = self._source(name.video)
        window = self._window(position, source, generator)
        report = DecodeReport()
        clips = read_clips(
            source, [window], short_side_px=reading.short_side_px, scaler=reading.scaler, report=report
        )
        clip = next(clips, None)
        clips.close()
        if clip is None:
            raise VideoError(
                f"{source}: a key time must lie before the end ({float(report.end_s or 0):g} s); the table has "
                f"{float(window.key_time_s):g} s. Is the file whole? `mule data check` finds such rows."
            )
        objects = self._objects.at(name) if self._objects else _NO_OBJECTS
        return ClipSample(
            name=ClipName(name.video, float(window.key_time_s)),
            frames=clip.frames,
            actor_boxes_xyxy_unit=torch.from_numpy(self._boxes[rows]),
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
        return replace(source, num_threads=self._reading.decoder_threads)

    def _window(self, position: int, source: VideoSource, generator: Generator | None) -> ClipWindow:
        name, shape = self.name_of(position), self._reading.shape
        rate = self._reading.frame_rate or self._facts_of(name.video, source).frame_rate
        if not np.isnan(name.key_time_s):
            return clip_window(name.key_time_s, shape, rate)
        duration_s = self._facts_of(name.video, source).duration_s
        if duration_s is None:
            raise VideoError(
                f"{source}: to choose clips inside a video its length must be known; it is not. Write the video anew "
                "(ffmpeg -i IN -c copy OUT.mp4)."
            )
        num_frames = max(int(duration_s * rate), 1)
        if generator is not None:
            return _drawn_window(num_frames, shape, rate, generator)
        return spread_windows(num_frames, self._reading.num_views or 1, shape, rate)[self._view[position]]

    def _facts_of(self, video: str, source: VideoSource) -> VideoFacts:
        if video not in self._facts:
            self._facts[video] = video_facts(source)
        return self._facts[video]


class ClipObjects:
    """The best objects of each clip, found again by video and time."""

    def __init__(self, table: ObjectTable, *, most: int = DEFAULT_MAX_OBJECTS) -> None:
        self._most = most
        self._video = {name: number for number, name in enumerate(table.videos)}
        keys = table.video_index.astype(np.int64) * (_WHOLE_VIDEO_TICK + 1) + _ticks(table.time_s)
        order = np.lexsort((-table.score, keys))  # stable: of equal scores the earlier row is the better
        self._keys = keys[order]
        self._boxes = table.boxes_xyxy_unit[order].astype(np.float32)
        self._class = table.class_index[order].astype(np.int64)
        self._score = table.score[order].astype(np.float32)

    def at(
        self, name: ClipName
    ) -> tuple[Float[np.ndarray, "objects 4"], Int[np.ndarray, " objects"], Float[np.ndarray, " objects"]]:
        """Boxes, classes and scores at the clip's key time to the millisecond, best first; none is ordinary."""
        if name.video not in self._video:
            return _NO_OBJECTS
        tick = int(_ticks(np.array([name.key_time_s]))[0])
        key = self._video[name.video] * (_WHOLE_VIDEO_TICK + 1) + tick
        start, end = np.searchsorted(self._keys, [key, key + 1])
        best = slice(start, min(end, start + self._most))
        return self._boxes[best], self._class[best], self._score[best]


_NO_OBJECTS = (np.zeros((0, 4), np.float32), np.zeros(0, np.int64), np.zeros(0, np.float32))


def _ticks(time_s: Float[np.ndarray, " rows"]) -> Int[np.ndarray, " rows"]:
    is_whole = np.isnan(time_s)
    ticks = np.rint(np.where(is_whole, 0, time_s) * _TICKS_PER_S).astype(np.int64)
    return np.where(is_whole, _WHOLE_VIDEO_TICK, ticks)


def _drawn_window(num_frames: int, shape: ClipShape, rate: Fraction, generator: Generator) -> ClipWindow:
    """A clip that begins at any frame, all equally likely, and ends within the video if it can."""
    start = int(torch.randint(max(num_frames - shape.span_frames, 0) + 1, (), generator=generator))
    key = Fraction(min(start + shape.span_frames // 2, num_frames - 1)) / rate
    return ClipWindow(key, tuple((start + i * shape.stride_frames) / rate for i in range(shape.num_frames)))


def _require_sources(videos: Sequence[str], sources: Mapping[str, object]) -> None:
    missing = sorted(set(videos) - set(sources))
    if missing:
        raise VideoError(
            f"every video of the table must have a source; {len(missing)} of {len(set(videos))} have none: "
            f"{', '.join(missing[:5])}{', …' if len(missing) > 5 else ''}. Fetch them, or leave their rows out "
            "(`mule data check` lists them)."
        )
