"""Numbered images as a video: pictures, times and counts as from a file."""

from bisect import bisect_right
from fractions import Fraction
from pathlib import Path

from mule.core.errors import VideoError
from mule.video.decode import Picture, VideoFrame, read_image, upright_size
from mule.video.sources import DecodeReport, ImageSequence, VideoFacts


class ImageFrames:
    """An open image sequence. Unreadable images are counted, and the image before stays on screen."""

    can_seek = True

    def __init__(self, source: ImageSequence, report: DecodeReport) -> None:
        self.report = report
        report.num_missing += source.num_missing
        self._source = source
        self._damaged: set[Path] = set()
        self._next_index = 0
        self._size: tuple[int, int] | None = None
        first = next((frame for path in source.paths if (frame := self._frame_of(path)) is not None), None)
        if first is None:
            raise VideoError(
                f"{source}: at least one image must be readable; none of {len(source.paths)} is."
            )
        self.first_frame = first
        rows, cols = upright_size(first)
        duration_s = (source.positions[-1] + 1) / source.frame_rate
        self.facts = VideoFacts(rows, cols, source.frame_rate, duration_s, "images")

    def __enter__(self) -> "ImageFrames":
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def next_picture(self) -> Picture | None:
        """Return the next picture, or None after the last."""
        index = self._next_index
        if index == len(self._source.paths):
            self.report.end_s = self.facts.duration_s
            return None
        self._next_index += 1
        return Picture(self._source.positions[index] / self._source.frame_rate, lambda: self._shown_at(index))

    def seek(self, time_s: Fraction) -> Picture | None:
        """Return the picture on screen at the time; reading continues there."""
        self._next_index = max(bisect_right(self._source.positions, time_s * self._source.frame_rate) - 1, 0)
        return self.next_picture()

    def _shown_at(self, index: int) -> VideoFrame:
        for path in reversed(self._source.paths[: index + 1]):
            if (frame := self._frame_of(path)) is not None:
                return frame
        return self.first_frame

    def _frame_of(self, path: Path) -> VideoFrame | None:
        if path in self._damaged:
            return None
        frame = read_image(path)
        if frame is None:
            self._damaged.add(path)
            self.report.num_damaged += 1
            return None
        size = upright_size(frame)
        if self._size is not None and size != self._size:
            raise VideoError(
                f"{path}: all images of a sequence must have one size, {self._size[0]} × {self._size[1]} (rows × "
                f"columns); this one has {size[0]} × {size[1]}."
            )
        self._size = size
        self.report.num_decoded += 1
        return frame
