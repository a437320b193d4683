"""Write frames to a video file. Besides `decode`, the only module that uses PyAV.

Files are H.264 in MP4. By default they are nearly lossless and every player shows them (4:2:0, quality 10); on
request they are lossless (RGB, quality 0), which most browsers cannot show, but FFmpeg decodes to the same bytes.
There is a key frame every second, so that players and readers of single clips can seek quickly.
"""

import os
from fractions import Fraction
from pathlib import Path
from typing import Any

import av
import numpy as np
from jaxtyping import UInt8

from mule.core.errors import FileError, RangeError
from mule.core.files import os_reason

# In small pictures x264's macroblock tree reads memory it has not written: without it, same frames, same file.
_OPTIONS = {"preset": "veryfast", "threads": "1", "x264-params": "mbtree=0"}
_NEARLY_LOSSLESS = ("libx264", "yuv420p", {**_OPTIONS, "crf": "10"})
_LOSSLESS = ("libx264rgb", "rgb24", {**_OPTIONS, "qp": "0"})


class VideoWriter:
    """A video being written. It gets its name when it is closed without an error."""

    def __init__(
        self, path: Path, size: tuple[int, int], rate: Fraction | int, *, lossless: bool = False
    ) -> None:
        """Open a temporary file beside `path`, an `.mp4`; rows and columns in `size` are even unless lossless."""
        if not lossless and (size[0] % 2 or size[1] % 2):
            raise RangeError(
                f"rows and columns of a video must be even; got {size[0]} × {size[1]}. Change the size, or write "
                "lossless."
            )
        self._path = path
        self._size = size
        self._unfinished = path.with_name(f".{os.getpid()}.{path.name}")
        codec, self._format, options = _LOSSLESS if lossless else _NEARLY_LOSSLESS
        options = {**options, "g": str(max(1, round(rate)))}
        try:
            self._unfinished.touch()
            self._container = av.open(str(self._unfinished), "w", format="mp4")
            self._stream: Any = self._container.add_stream(codec, rate=rate, options=options)
        except OSError as error:
            raise _unwritable(path, error) from error
        self._stream.height, self._stream.width = size
        self._stream.pix_fmt = self._format
        self._count = 0

    def __enter__(self) -> "VideoWriter":
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        try:
            if kind is None:
                self._encode(None)
            self._container.close()
            if kind is None:
                self._unfinished.replace(self._path)
        finally:
            self._unfinished.unlink(missing_ok=True)

    def write(self, frames: UInt8[np.ndarray, "frames rows cols 3"]) -> None:
        """Append frames."""
        if frames.shape[1:3] != self._size:
            raise RangeError(f"frames must have {self._size} rows and columns; got {frames.shape[1:3]}.")
        for image in frames:
            frame = av.VideoFrame.from_ndarray(np.ascontiguousarray(image), format="rgb24")
            frame.pts = self._count
            self._count += 1
            self._encode(frame)

    def _encode(self, frame: av.VideoFrame | None) -> None:
        """Write one frame; None writes what the encoder still holds."""
        try:
            self._container.mux(self._stream.encode(frame))
        except OSError as error:
            raise _unwritable(self._path, error) from error


def _unwritable(path: Path, error: OSError) -> FileError:
    return FileError(f"{path}: the video cannot be written: {os_reason(error)}.")
