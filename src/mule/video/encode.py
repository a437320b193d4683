"""Write frames to a video file. Besides `decode`, the only module that uses PyAV.

Files are MP4, nearly lossless (4:2:0, quality 10), and browsers play them. VP9 is written by libvpx, which has a BSD
licence; H.264 by libx264, which has the GPL. On request H.264 is lossless (RGB, quality 0), which most browsers cannot
show, but FFmpeg decodes to the same bytes. There is a key frame every second, so that players and readers of single clips
can seek quickly.
"""

import os
from fractions import Fraction
from pathlib import Path
from typing import Any, Literal

import av
import numpy as np
from av.codec.codec import UnknownCodecError
from jaxtyping import UInt8

from mule.core.errors import FileError, RangeError
from mule.core.files import os_reason

# In small pictures x264's macroblock tree reads memory it has not written: without it, same frames, same file.
_OPTIONS = {"preset": "veryfast", "threads": "1", "x264-params": "mbtree=0"}
LONGEST_PAUSE_S = 3600
"""A frame that stays for longer is written again."""
Codec = Literal["vp9", "h264"]
_REAL_TIME = {"deadline": "realtime", "cpu-used": "8", "threads": "1", "crf": "10", "b": "0"}
_NEARLY_LOSSLESS: dict[Codec, tuple[str, str, dict[str, str]]] = {
    "vp9": ("libvpx-vp9", "yuv420p", _REAL_TIME),
    "h264": ("libx264", "yuv420p", {**_OPTIONS, "crf": "10"}),
}
_LOSSLESS = ("libx264rgb", "rgb24", {**_OPTIONS, "qp": "0"})


class VideoWriter:
    """A video being written. It gets its name when it is closed without an error."""

    def __init__(
        self,
        path: Path,
        size: tuple[int, int],
        rate: Fraction | int,
        *,
        lossless: bool = False,
        codec: Codec = "h264",
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
        encoder, self._format, options = _LOSSLESS if lossless else _NEARLY_LOSSLESS[codec]
        options = {**options, "g": str(max(1, round(rate)))}
        try:
            self._unfinished.touch()
            self._container = av.open(str(self._unfinished), "w", format="mp4")
            self._stream: Any = self._container.add_stream(encoder, rate=rate, options=options)
        except UnknownCodecError:
            self._unfinished.unlink()
            raise FileError(
                f"{path}: PyAV must have the encoder {encoder}; this build has not. Choose another codec."
            ) from None
        except OSError as error:
            raise _unwritable(path, error) from error
        self._stream.height, self._stream.width = size
        self._stream.pix_fmt = self._format
        self._count = 0
        self._last: UInt8[np.ndarray, "rows cols 3"] | None = None
        self._longest_pause = max(1, round(LONGEST_PAUSE_S * rate))

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

    def write(self, frames: UInt8[np.ndarray, "frames rows cols 3"], *, first: int | None = None) -> None:
        """Append frames; `first` is the number of the first, if the frame before stays on screen until then."""
        if frames.shape[1:3] != self._size:
            raise RangeError(f"frames must have {self._size} rows and columns; got {frames.shape[1:3]}.")
        while first is not None and self._last is not None and first - self._count > self._longest_pause:
            self._count += self._longest_pause  # MP4 holds no frame for days
            self._append(self._last)
        self._count = self._count if first is None else max(first, self._count)
        for image in frames:
            self._append(image)

    def _append(self, image: UInt8[np.ndarray, "rows cols 3"]) -> None:
        self._last = np.ascontiguousarray(image)
        frame = av.VideoFrame.from_ndarray(self._last, format="rgb24")
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
