"""Frames that a program hands over, numpy arrays or torch tensors, as a video like any other."""

from collections.abc import Iterable, Iterator
from fractions import Fraction
from functools import partial
from itertools import chain, islice
from typing import Any

import numpy as np
import torch
from jaxtyping import UInt8

from mule.core.errors import RangeError, ShapeError, VideoError
from mule.video.clips import Seconds, exact
from mule.video.decode import Picture, frame_of_rgb
from mule.video.sources import DecodeReport, FrameStream, VideoFacts


def frame_stream(frames: Iterable[Any], *, rate: Seconds | None = None) -> FrameStream:
    """A source made of frames in memory, or of frames that arrive one by one.

    Args:
        frames: `(time_s, frame)` pairs in the order of time, or frames alone with `rate`. A frame is an array or a
            tensor of uint8: rows, columns and three channels (red, green, blue); a tensor may have its channels first.
        rate: frames per second; required for frames without times.

    >>> stream = frame_stream([np.zeros((48, 64, 3), np.uint8)] * 10, rate=5)
    >>> stream.rows, stream.cols, stream.frame_rate
    (48, 64, Fraction(5, 1))
    """
    items = iter(frames)
    first = list(islice(items, 2))
    if not first:
        raise VideoError("frames: a video must have frames; the iterable has none.")
    if rate is not None and not rate > 0:
        raise RangeError(f"rate must be above 0 frames per second; got {rate}.")
    has_times = isinstance(first[0], tuple)
    if not has_times and rate is None:
        raise RangeError("frames must come as (time_s, frame) pairs, or with rate=; got neither.")
    frame_rate = exact(rate) if rate is not None else _rate(first)
    timed = chain(first, items)
    if not has_times:
        timed = ((number / frame_rate, frame) for number, frame in enumerate(timed))
    rows, cols, _ = pixels_of(first[0][1] if has_times else first[0], 0).shape
    return FrameStream("frames", _from_zero(timed), rows, cols, frame_rate)


def pixels_of(frame: object, number: int) -> UInt8[np.ndarray, "rows cols 3"]:
    """The frame as an array of rows, columns and channels."""
    if isinstance(frame, torch.Tensor):
        is_channels_first = frame.ndim == 3 and frame.shape[0] == 3 and frame.shape[2] != 3
        frame = (frame.permute(1, 2, 0) if is_channels_first else frame).detach().cpu().numpy()
    if not isinstance(frame, np.ndarray) or frame.ndim != 3 or frame.shape[2] != 3 or frame.dtype != np.uint8:
        what = (
            f"{frame.dtype} of shape {frame.shape}" if isinstance(frame, np.ndarray) else type(frame).__name__
        )
        raise ShapeError(
            f"frame {number}: must be an array or tensor of uint8 with rows, columns and 3 channels; got {what}."
        )
    return np.ascontiguousarray(frame)


class ArrayFrames:
    """An open stream of frames; see `frame_stream`."""

    can_seek = False

    def __init__(self, source: FrameStream, report: DecodeReport) -> None:
        self.report = report
        self._source = source
        self._num_read = 0
        self._latest_s: Fraction | None = None
        self.first_frame = frame_of_rgb(np.zeros((source.rows, source.cols, 3), np.uint8))
        self.facts = VideoFacts(source.rows, source.cols, source.frame_rate, None, "frames")

    def __enter__(self) -> "ArrayFrames":
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def next_picture(self) -> Picture | None:
        """The next picture, or None after the last."""
        for time_s, frame in self._source.frames:
            pixels = pixels_of(frame, self._num_read)
            self._num_read += 1
            if self._latest_s is not None and time_s <= self._latest_s:
                self.report.num_out_of_order += 1
                continue
            if self._latest_s is not None:
                self.report.longest_gap_s = max(self.report.longest_gap_s, time_s - self._latest_s)
            self._latest_s = time_s
            self.report.num_decoded += 1
            return Picture(time_s, partial(frame_of_rgb, pixels))
        self.report.end_s = (self._latest_s or Fraction(0)) + 1 / self._source.frame_rate
        return None

    def seek(self, time_s: Fraction) -> None:
        """Frames arrive once, so no reader calls this (`can_seek`)."""
        raise AssertionError(f"a stream of frames cannot jump to {time_s} s")


def _rate(first: list[tuple[float, Any]]) -> Fraction:
    """Frames per second by the first two times; one frame alone counts as one second."""
    if len(first) < 2:
        return Fraction(1)
    step_s = exact(float(first[1][0])) - exact(float(first[0][0]))
    if step_s <= 0:
        raise RangeError(f"times must rise; the second frame's, {first[1][0]} s, follows {first[0][0]} s.")
    return 1 / step_s


def _from_zero(timed: Iterable[tuple[Any, Any]]) -> Iterator[tuple[Fraction, Any]]:
    """The same frames on a clock that starts with the first."""
    start_s: Fraction | None = None
    for time_s, frame in timed:
        at_s = exact(time_s if isinstance(time_s, Fraction) else float(time_s))
        start_s = at_s if start_s is None else start_s
        yield at_s - start_s, frame
