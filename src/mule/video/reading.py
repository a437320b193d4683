"""Clips and single frames from any source: every frame is decoded once, however many clips it belongs to.

frames of the reel   │ 40 │ 41 │ 42 │ 43 │ 44 │ 45 │ 46 │ 47 │ room for more
one clip               ╰─────────┴─────────╯
the next                         ╰─────────┴─────────╯

Frames lie side by side in memory, so overlapping clips are views of the same pixels. A frame that a clip shows several
times, at the edge of a video or at a rate above the video's own, is stored as many times.

The frame on screen at a time is the last one that appeared at or before it, give or take `SAME_INSTANT_S`.
Before the first frame it is the first, after the last it is the last; such times are counted as clamped.

Only frames that a clip needs are converted to pixels, once, and overlapping clips share them, so a clip's frames are
read-only. A clip stays valid for as long as it is held, and keeps its neighbours' frames in memory. Memory grows with
the clips in progress and held, not with the video.
"""

import math
from bisect import bisect_left
from collections import deque
from collections.abc import Collection, Generator, Iterable, Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from pathlib import Path
from typing import Literal

import numpy as np
import torch
from jaxtyping import UInt8
from torch import Tensor

from mule.core.errors import RangeError, VideoError
from mule.video.arrays import ArrayFrames
from mule.video.clips import SAME_INSTANT_S, ClipWindow, PacedWindows, Seconds, exact
from mule.video.decode import Picture, RgbConverter, VideoFrames
from mule.video.images import ImageFrames
from mule.video.reel import FrameArray, Reel
from mule.video.sources import DecodeReport, FrameStream, ImageSequence, VideoFacts, VideoSource, video_source
from mule.video.transforms import resized, short_side_size

Scaler = Literal["torch", "swscale"]
FrameReader = VideoFrames | ImageFrames | ArrayFrames

MOST_TIMES_AS_LONG = 32
"""How many times as long as its shorter side the longer side of a picture may be."""
MOST_CLIP_PIXELS = 1 << 28
"""Pixels of a clip after scaling, all frames together: 128 frames of 1080p."""
LONGEST_STILL_S = Fraction(60)
"""A picture that stays on screen for longer is a gap in time."""
SEEK_AHEAD_S = Fraction(5)
"""Jump over gaps between clips that are longer than this; decoding through a shorter gap is cheaper."""


@dataclass(frozen=True)
class Clip:
    """The frames of one window: RGB, 0 to 255, channels last in memory."""

    window: ClipWindow
    frames: UInt8[Tensor, "frames channels rows cols"]
    """Read-only: overlapping clips may share this memory."""
    source_size: tuple[int, int]
    """Rows and columns of the source before scaling, which boxes in source pixels refer to."""
    num_clamped: int
    """How many of the window's times lay before the first or after the last frame."""
    key_frame: UInt8[Tensor, "channels source_rows source_cols"] | None = None
    """The frame at the key time in full size, if `keep_key_frames` was set."""


def read_clips(
    source: str | Path | VideoSource,
    windows: Iterable[ClipWindow],
    *,
    short_side_px: int | None = None,
    scaler: Scaler = "torch",
    keep_key_frames: bool = False,
    report: DecodeReport | None = None,
) -> Generator[Clip, None, None]:
    """Yield one clip per window, each as soon as its last frame has been read.

    Windows must be sorted by their begin; they are taken one at a time, so the iterable may be endless. Reading ends
    with the windows or with the source: a window whose key time lies after the end is not read, nor are later ones,
    and the report holds the first such key time.

    Of `PacedWindows`, all but one are left out that lie within a gap: a picture that stays on screen for more than
    `LONGEST_STILL_S`. The report counts the gaps.

    Args:
        source: a path, an address, or a source from `video_source`.
        windows: the windows to cut.
        short_side_px: scale frames to this short side (the other side rounds down); None leaves them as they are.
        scaler: `torch` is plain bilinear, as published weights saw it in training. `swscale` scales while it
            converts colours: faster, and smoother where it shrinks, so pixels differ by some levels.
        keep_key_frames: give each clip the frame at its key time in full size, for a detector.
        report: filled in while reading.

    >>> import tempfile
    >>> import numpy as np
    >>> from mule.video.clips import ClipShape, clip_window
    >>> from mule.video.encode import VideoWriter
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = Path(folder) / "video.mp4"
    ...     with VideoWriter(path, (32, 48), Fraction(8)) as video:
    ...         video.write(np.zeros((16, 32, 48, 3), np.uint8))
    ...     window = clip_window(1.0, ClipShape(4, 1, num_slow_frames=4), Fraction(8))
    ...     [tuple(clip.frames.shape) for clip in read_clips(path, [window])]
    [(4, 3, 32, 48)]
    """
    with open_frames(video_source(source), report) as frames:
        painter = _Painter(frames, short_side_px, scaler)
        most_frames = MOST_CLIP_PIXELS // (painter.scaled_size[0] * painter.scaled_size[1])
        pace = windows if isinstance(windows, PacedWindows) else None
        report, reel = frames.report, Reel(painter.scaled_size)
        under_way: deque[_ClipUnderWay] = deque()
        waiting = (
            _ClipUnderWay(window, keeps_key_frame=keep_key_frames)
            for window in _in_order(windows, most_frames)
        )
        upcoming = next(waiting, None)
        sought: _ClipUnderWay | None = None
        picture = frames.next_picture()
        first_s = Fraction(0) if picture is None else picture.time_s
        while picture is not None and (under_way or upcoming is not None):
            if upcoming is not None and upcoming is not sought and not under_way:
                picture = _jumped(frames, picture, upcoming.window)
                sought = upcoming
            following = frames.next_picture()
            _skip_gap(pace, report, upcoming, picture, following)
            shown = _Shown(picture, None if following is None else following.time_s, painter)
            while (
                upcoming is not None
                and shown.is_on_screen(upcoming.latest_begin_s)
                and not _is_after(report, upcoming.window)
            ):
                under_way.append(upcoming)
                upcoming = next(waiting, None)
            _see(shown, under_way, reel)
            while under_way and under_way[0].is_whole and not _is_after(report, under_way[0].window):
                clip = under_way.popleft()
                num_clamped = _num_clamped(clip.window, first_s, report.end_s)
                report.num_clamped += num_clamped
                yield clip.clip(reel, painter.size, num_clamped)
            picture = following
        unread = under_way[0] if under_way else upcoming
        report.unread_from_s = None if unread is None else unread.window.key_time_s


def frames_at(
    source: str | Path | VideoSource,
    times_s: Sequence[Seconds],
    *,
    short_side_px: int | None = None,
    scaler: Scaler = "torch",
    report: DecodeReport | None = None,
) -> UInt8[Tensor, "frames channels rows cols"]:
    """Return the frames on screen at the given times, in the given order.

    Raises:
        RangeError: there are no times, or one is below zero.
        VideoError: a time lies after the end.

    >>> import tempfile
    >>> import numpy as np
    >>> from mule.video.encode import VideoWriter
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = Path(folder) / "video.mp4"
    ...     with VideoWriter(path, (32, 48), Fraction(8)) as video:
    ...         video.write(np.zeros((16, 32, 48, 3), np.uint8))
    ...     tuple(frames_at(path, [0.5, 1.5]).shape)
    (2, 3, 32, 48)
    """
    report = DecodeReport() if report is None else report
    times = [exact(time_s) for time_s in times_s]
    if not times or min(times) < 0:
        raise RangeError(
            f"times_s must be one or more times, none below zero; got {[float(t) for t in times]}."
        )
    windows = [ClipWindow(time, (time,)) for time in sorted(set(times))]
    clips = read_clips(source, windows, short_side_px=short_side_px, scaler=scaler, report=report)
    by_time = {clip.window.key_time_s: clip.frames for clip in clips}
    if report.unread_from_s is not None:
        raise VideoError(
            f"{video_source(source)}: times must lie before the end ({float(report.end_s or 0):g} s); got "
            f"{float(report.unread_from_s):g} s."
        )
    return torch.cat([by_time[time] for time in times])


def video_facts(source: str | Path | VideoSource) -> VideoFacts:
    """Return the facts of a source, which are known once its first frame is decoded."""
    with open_frames(video_source(source)) as frames:
        return frames.facts


def open_frames(source: VideoSource, report: DecodeReport | None = None) -> FrameReader:
    """Open the source. A given report is filled in while the source is read; counts are added to it."""
    report = DecodeReport() if report is None else report
    report.end_s = report.stopped_by = report.unread_from_s = None
    if isinstance(source, FrameStream):
        frames = ArrayFrames(source, report)
    else:
        frames = (
            ImageFrames(source, report) if isinstance(source, ImageSequence) else VideoFrames(source, report)
        )
    try:
        _require_proportions(source, frames.facts)
    except VideoError:
        frames.__exit__(None, None, None)
        raise
    return frames


def _require_proportions(source: VideoSource, facts: VideoFacts) -> None:
    longer, shorter = sorted((facts.rows, facts.cols), reverse=True)
    if longer > MOST_TIMES_AS_LONG * shorter:
        raise VideoError(
            f"{source}: the longer side of pictures must be at most {MOST_TIMES_AS_LONG} times the shorter one, since clips "
            f"are scaled by that; these have {facts.rows} rows and {facts.cols} columns. Crop the video first."
        )


class _Painter:
    """Converts pictures to pixels, in full size and in the requested size."""

    def __init__(self, frames: FrameReader, short_side_px: int | None, scaler: Scaler) -> None:
        if short_side_px is not None and short_side_px < 1:
            raise RangeError(f"short_side_px must be at least 1; got {short_side_px}.")
        self.size = (frames.facts.rows, frames.facts.cols)
        self.scaled_size = self.size if short_side_px is None else short_side_size(*self.size, short_side_px)
        self.is_scaled_by_torch = scaler == "torch"
        self.full = RgbConverter(frames.first_frame, frames.report)
        self.scaled = RgbConverter(frames.first_frame, frames.report, short_side_px)


class _Shown:
    """A picture while it is on screen. Its pixels are made at most once, and only if needed."""

    def __init__(self, picture: Picture, until_s: Fraction | None, painter: _Painter) -> None:
        self._picture = picture
        self.until_s = math.inf if until_s is None else float(until_s)
        self._painter = painter

    def is_on_screen(self, latest_s: float) -> bool:
        """Whether no later picture has appeared by then. Times only increase, so this picture is shown."""
        return latest_s < self.until_s

    @cached_property
    def full(self) -> FrameArray:
        return self._painter.full(self._picture.decoded())

    @property
    def scaled(self) -> FrameArray:
        painter = self._painter
        if painter.scaled_size == painter.size:
            return self.full
        if not painter.is_scaled_by_torch:
            return painter.scaled(self._picture.decoded())
        # One more dimension first, then its order: the other way round torch takes the slow path.
        full = torch.from_numpy(np.ascontiguousarray(self.full))[None].permute(0, 3, 1, 2)
        return resized(full, painter.scaled_size).permute(0, 2, 3, 1)[0].numpy()


class _ClipUnderWay:
    """A clip that is still missing frames."""

    def __init__(self, window: ClipWindow, *, keeps_key_frame: bool) -> None:
        self.window = window
        self.latest_begin_s = _latest(window.begin_s)
        self._latest_s = [_latest(time_s) for time_s in window.times_s]
        self._latest_key_s = _latest(window.key_time_s)
        self.numbers: list[int] = []
        self._key_image: FrameArray | None = None
        self._lacks_key_frame = keeps_key_frame

    @property
    def is_whole(self) -> bool:
        return len(self.numbers) == len(self.window.times_s) and not self._lacks_key_frame

    def num_times(self, shown: _Shown) -> int:
        """Return at how many of the clip's next times the picture is on screen."""
        return bisect_left(self._latest_s, shown.until_s) - len(self.numbers)

    def see_key_frame(self, shown: _Shown) -> None:
        """Keep the picture in full size if it is on screen at the key time."""
        if self._lacks_key_frame and shown.is_on_screen(self._latest_key_s):
            self._key_image = shown.full
            self._lacks_key_frame = False

    def clip(self, reel: Reel, source_size: tuple[int, int], num_clamped: int) -> Clip:
        key_image = self._key_image
        key_frame = None if key_image is None else torch.from_numpy(key_image.copy()).permute(2, 0, 1)
        return Clip(self.window, reel.frames(self.numbers), source_size, num_clamped, key_frame)


def _skip_gap(
    pace: PacedWindows | None,
    report: DecodeReport,
    upcoming: _ClipUnderWay | None,
    picture: Picture,
    following: Picture | None,
) -> None:
    """Skip all but one of the windows that show nothing but a picture which stays for too long."""
    until_s = report.end_s if following is None else following.time_s
    if pace is None or upcoming is None or until_s is None or until_s - picture.time_s <= LONGEST_STILL_S:
        return
    window = upcoming.window
    reach_s = Fraction(0) if following is None else max(window.times_s[-1] - window.key_time_s, Fraction(0))
    if window.begin_s < picture.time_s or window.key_time_s >= until_s - reach_s:
        return
    pace.skip_to(until_s - reach_s)
    report.num_gaps += 1
    report.gaps_s += until_s - picture.time_s


def _see(shown: _Shown, clips: Collection[_ClipUnderWay], reel: Reel) -> None:
    """Store the picture on the reel as often as any clip shows it, and give every clip its numbers."""
    nums_times = [clip.num_times(shown) for clip in clips]
    if most := max(nums_times, default=0):
        if reel.room < most:
            _make_room(reel, clips)
        numbers = reel.append(shown.scaled, times=most)
        for clip, num_times in zip(clips, nums_times, strict=True):
            # If other clips show it longer, take the copies next to the frames this clip has, or will have.
            clip.numbers += numbers[:num_times] if clip.numbers else numbers[most - num_times :]
    for clip in clips:
        clip.see_key_frame(shown)


def _make_room(reel: Reel, clips: Collection[_ClipUnderWay]) -> None:
    """Keep the frames of these clips, and make room for all that the longest of them may still need."""
    needed_from = min((clip.numbers[0] for clip in clips if clip.numbers), default=None)
    reel.make_room(max(len(clip.window.times_s) for clip in clips), needed_from=needed_from)


def _latest(time_s: Fraction) -> float:
    """Return the latest time at which a picture may appear and still be on screen then."""
    return float(time_s + SAME_INSTANT_S)


def _jumped(frames: FrameReader, picture: Picture, upcoming: ClipWindow) -> Picture:
    """Return the picture to continue from: jump ahead if the upcoming window is far away."""
    if not frames.can_seek or upcoming.begin_s - picture.time_s <= SEEK_AHEAD_S:
        return picture
    return frames.seek(upcoming.begin_s) or picture


def _is_after(report: DecodeReport, window: ClipWindow) -> bool:
    return report.end_s is not None and window.key_time_s + SAME_INSTANT_S >= report.end_s


def _num_clamped(window: ClipWindow, first_s: Fraction, end_s: Fraction | None) -> int:
    times = window.times_s
    num_before = bisect_left(times, first_s - SAME_INSTANT_S)
    return (
        num_before if end_s is None else num_before + len(times) - bisect_left(times, end_s - SAME_INSTANT_S)
    )


def _in_order(windows: Iterable[ClipWindow], most_frames: int) -> Iterator[ClipWindow]:
    previous: ClipWindow | None = None
    for window in windows:
        if len(window.times_s) > most_frames:
            raise RangeError(
                f"a clip must have at most {MOST_CLIP_PIXELS:,} pixels, which are {most_frames} frames of this size; got "
                f"{len(window.times_s)} frames. Choose fewer frames, or a smaller short side."
            )
        if previous is not None and window.begin_s < previous.begin_s:
            raise RangeError(
                f"windows must be sorted by their begin; one beginning at {float(window.begin_s):g} s follows "
                f"one at {float(previous.begin_s):g} s. Sort them by key time first."
            )
        yield window
        previous = window
