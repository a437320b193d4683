"""Which windows to cut: arithmetic on times, in exact fractions, without pixels.

A window is a list of times. Times lie on the grid 0, 1/rate, 2/rate, … of a frame rate, either the video's own
or a nominal one (AVA is annotated at 30 frames per second whatever the file has). The decoder knows which frame
is on screen at a time; before the first frame it is the first, after the last it is the last.
"""

import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from fractions import Fraction
from itertools import count, pairwise, takewhile
from typing import Literal

from mule.core.errors import RangeError

Seconds = Fraction | float | int
SlowRule = Literal["full_span", "stride"]

SAME_INSTANT_S = Fraction(1, 2000)
"""Times closer than this are equal. Matroska stores whole milliseconds, and so do many tables."""


def exact(time_s: Seconds) -> Fraction:
    """Return the time as a fraction; floats are rounded to the nanosecond, far below any clock tick."""
    if isinstance(time_s, Fraction | int):
        return Fraction(time_s)
    if not math.isfinite(time_s):
        raise RangeError(f"a time must be a finite number of seconds; got {time_s}.")
    return Fraction(round(time_s * 10**9), 10**9)


@dataclass(frozen=True)
class ClipShape:
    """The number of frames of a clip, their distance, and the frames that the slow pathway sees.

    `full_span` spreads the slow frames from the first to the last fast one (0 4 8 13 17 22 26 31 of 32);
    `stride` takes every (num_frames / num_slow_frames)-th (0 4 8 12 16 20 24 28 of 32).
    """

    num_frames: int
    stride_frames: int
    num_slow_frames: int
    slow_rule: SlowRule = "full_span"

    def __post_init__(self) -> None:
        if self.num_frames < 1 or self.stride_frames < 1:
            raise RangeError(
                "num_frames and stride_frames must be at least 1; got "
                f"{self.num_frames} and {self.stride_frames}."
            )
        if not 1 <= self.num_slow_frames <= self.num_frames:
            raise RangeError(
                f"num_slow_frames must lie between 1 and num_frames = {self.num_frames}; "
                f"got {self.num_slow_frames}."
            )
        if self.slow_rule == "stride" and self.num_frames % self.num_slow_frames:
            raise RangeError(
                "under the slow rule 'stride' num_slow_frames must divide num_frames; got "
                f"{self.num_slow_frames} and {self.num_frames}. The rule 'full_span' takes any number."
            )

    @property
    def span_frames(self) -> int:
        """The length of a clip in frames of the grid."""
        return self.num_frames * self.stride_frames

    @property
    def slow_indices(self) -> tuple[int, ...]:
        """The frames of the clip that the slow pathway sees."""
        if self.slow_rule == "stride":
            return tuple(range(0, self.num_frames, self.num_frames // self.num_slow_frames))
        last, gaps = self.num_frames - 1, max(self.num_slow_frames - 1, 1)
        return tuple(i * last // gaps for i in range(self.num_slow_frames))


AVA_CLIP = ClipShape(num_frames=32, stride_frames=2, num_slow_frames=8)
"""64 frames around the key frame: fast 32, slow 8 (about every eighth frame), key frame at place 16 of 32."""
CHARADES_CLIP = ClipShape(num_frames=32, stride_frames=1, num_slow_frames=8, slow_rule="stride")
"""32 consecutive frames: fast all of them, slow every fourth (8 × 4)."""
CHARADES_FRAME_RATE = Fraction(24)


@dataclass(frozen=True)
class ClipWindow:
    """The times of one clip's frames, in order, and its key time."""

    key_time_s: Fraction
    times_s: tuple[Fraction, ...]

    def __post_init__(self) -> None:
        if not self.times_s:
            raise RangeError("a window must have at least one time; it has none.")
        if any(later < earlier for earlier, later in pairwise(self.times_s)):
            raise RangeError(
                f"the times of a window must not go back; got {[float(t) for t in self.times_s]}."
            )

    @property
    def begin_s(self) -> Fraction:
        """The first time that the window needs."""
        return min(self.times_s[0], self.key_time_s)


def clip_window(key_time_s: Seconds, shape: ClipShape, frame_rate: Fraction | int) -> ClipWindow:
    """Return the clip around one key time: frame i lies i·stride − (frames·stride)//2 grid steps from the key frame.

    The key frame is the last of the grid that is not after the key time. Times before zero stay below zero.
    """
    rate = _positive_rate(frame_rate)
    key_time = exact(key_time_s)
    if key_time < 0:
        raise RangeError(f"key_time_s must not be below zero, the first frame; got {float(key_time)}.")
    key_index = math.floor((key_time + SAME_INSTANT_S) * rate)
    return _window_from(key_index - shape.span_frames // 2, shape, rate, key_time)


def clip_windows(
    key_times_s: Iterable[Seconds], shape: ClipShape, frame_rate: Fraction | int
) -> Iterator[ClipWindow]:
    """Yield one clip per key time, in the given order."""
    return (clip_window(key_time_s, shape, frame_rate) for key_time_s in key_times_s)


def key_times(
    start_s: Seconds = 0, stop_s: Seconds | None = None, *, period_s: Seconds = 1
) -> Iterator[Fraction]:
    """Yield times from start to just before stop, one period apart; without stop, endlessly.

    >>> [float(t) for t in key_times(2, 4, period_s=0.5)]
    [2.0, 2.5, 3.0, 3.5]
    """
    start, period = exact(start_s), exact(period_s)
    if period <= 0:
        raise RangeError(f"period_s must be above zero; got {float(period)}.")
    times = (start + i * period for i in count())
    if stop_s is None:
        return times
    stop = exact(stop_s)
    return takewhile(lambda time: time < stop, times)


class PacedWindows:
    """Windows without end, a fixed step from one to the next. A reader may skip ahead over a time in which nothing moves."""

    def __init__(self, window: Callable[[int], ClipWindow], *, start_s: Fraction, step_s: Fraction) -> None:
        """`window` makes number 0, 1, …, whose key times begin at `start_s`."""
        self._window, self._start_s, self._step_s = window, start_s, step_s
        self._number = 0

    def __iter__(self) -> "PacedWindows":
        return self

    def __next__(self) -> ClipWindow:
        self._number += 1
        return self._window(self._number - 1)

    def skip_to(self, time_s: Fraction) -> None:
        """Leave out the windows whose key time lies before this one."""
        self._number = max(self._number, math.ceil((time_s - self._start_s) / self._step_s))


def spread_windows(
    num_video_frames: int, num_views: int, shape: ClipShape, frame_rate: Fraction | int
) -> list[ClipWindow]:
    """Return views that cover a whole video: the first begins with it, the last ends with it, the rest lie evenly.

    View k of n begins at frame floor(k·gap/(n−1)), gap = max(frames − span, 0). A single view lies in the middle.
    """
    if num_video_frames < 1 or num_views < 1:
        raise RangeError(
            f"num_video_frames and num_views must be at least 1; got {num_video_frames} and {num_views}."
        )
    rate = _positive_rate(frame_rate)
    gap = max(num_video_frames - shape.span_frames, 0)
    starts = [gap // 2] if num_views == 1 else [k * gap // (num_views - 1) for k in range(num_views)]
    last = num_video_frames - 1
    keys = [Fraction(min(start + shape.span_frames // 2, last), 1) / rate for start in starts]
    return [_window_from(start, shape, rate, key) for start, key in zip(starts, keys, strict=True)]


def _window_from(start: int, shape: ClipShape, rate: Fraction, key_time: Fraction) -> ClipWindow:
    return ClipWindow(
        key_time, tuple((start + i * shape.stride_frames) / rate for i in range(shape.num_frames))
    )


def _positive_rate(frame_rate: Fraction | int) -> Fraction:
    if frame_rate <= 0:
        raise RangeError(f"frame_rate must be above zero frames per second; got {frame_rate}.")
    return Fraction(frame_rate)
