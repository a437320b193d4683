"""Where frames come from: a video file, numbered images, a camera or a network stream. Nothing is opened here.

Also the facts of a source, and the report of reading it.
"""

import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from functools import reduce
from itertools import pairwise
from pathlib import Path
from typing import Any

from mule.core.errors import RangeError, VideoError
from mule.core.printable import printable_address

WORTH_SAYING_S = Fraction(1, 4)
MOST_LETTERS = 300
"""Letters of a name in a message."""


@dataclass(frozen=True)
class VideoFacts:
    """The facts of a source, known once its first frame is decoded. Rows and columns are those of upright frames."""

    rows: int
    cols: int
    frame_rate: Fraction
    """The average over the source; the time between two frames may differ."""
    duration_s: Fraction | None
    """As the container states it; None for a live stream."""
    codec: str


@dataclass
class DecodeReport:
    """What happened while reading a source. All but `num_decoded` is zero for an intact video read within its bounds."""

    num_decoded: int = 0
    num_damaged: int = 0
    """Pieces the decoder rejected; the frame before stays on screen."""
    num_concealed: int = 0
    """Frames the decoder returned but had to repair."""
    num_missing: int = 0
    """Frames announced by the container or the numbering that were not there (known once the end is reached)."""
    num_out_of_order: int = 0
    """Frames dropped because their timestamp did not move forward."""
    num_untimed: int = 0
    """Frames without a timestamp, placed one frame after the one before."""
    num_rescaled: int = 0
    """Frames resized because their size differed from that of the first frame."""
    num_clamped: int = 0
    """Times before the first or after the last frame, which got that frame instead."""
    num_gaps: int = 0
    """Times in which one frame stayed on screen for so long that the windows within were skipped."""
    gaps_s: Fraction = Fraction(0)
    """The length of these times, all together."""
    longest_gap_s: Fraction = Fraction(0)
    """The longest time that any frame stayed on screen."""
    end_s: Fraction | None = None
    """When the last frame leaves the screen; None until the end is reached."""
    stopped_by: str | None = None
    """What ended the reading before the source's own end."""
    unread_from_s: Fraction | None = None
    """Key time of the first window after the end; it and later ones were not read."""

    def summary(self) -> str:
        """Return one line with every count above zero, and the longest gap if it is long.

        >>> DecodeReport(num_decoded=292, num_damaged=8).summary()
        '292 decoded; 8 damaged'
        """
        counts = {name[4:].replace("_", " "): n for name, n in vars(self).items() if name.startswith("num_")}
        gaps = counts.pop("gaps")
        parts = [f"{n} {name}" for name, n in counts.items() if n or name == "decoded"]
        if self.longest_gap_s >= WORTH_SAYING_S:
            parts.append(f"one frame stayed for {float(self.longest_gap_s):g} s")
        if gaps:
            parts.append(f"gaps in time skipped: {gaps}, {float(self.gaps_s):g} s in all")
        if self.stopped_by is not None:
            parts.append(f"stopped by: {self.stopped_by}")
        if self.unread_from_s is not None:
            parts.append(f"windows from {float(self.unread_from_s):g} s on lie after the end")
        return "; ".join(parts)


IMAGE_SUFFIXES = frozenset({".bmp", ".jpeg", ".jpg", ".pgm", ".png", ".ppm", ".tif", ".tiff", ".webp"})
LIST_SUFFIXES = frozenset({".list", ".lst", ".txt"})
LIVE_SCHEMES = frozenset({"http", "https", "rtmp", "rtmps", "rtp", "rtsp", "rtsps", "srt", "tcp", "udp"})

_NUMBER = re.compile(r"(\d+)")
_CAMERA = re.compile(r"/dev/video\d+")


@dataclass(frozen=True)
class VideoFile:
    """A file in any container FFmpeg reads."""

    path: Path
    num_threads: int = 0
    """Decoder threads; 0 uses one per core. Use 1 where several workers read files side by side."""

    def __str__(self) -> str:
        return str(self.path)


@dataclass(frozen=True)
class ImageSequence:
    """Images shown one after the other: image i from `positions[i] / frame_rate` seconds on.

    Positions leave room for images that are missing; the image before a gap stays on screen.
    """

    name: str
    paths: tuple[Path, ...]
    positions: tuple[int, ...]
    frame_rate: Fraction

    def __str__(self) -> str:
        return self.name

    @property
    def num_missing(self) -> int:
        """The number of images that the numbering announces but the folder lacks."""
        return self.positions[-1] + 1 - len(self.positions)


@dataclass(frozen=True)
class LiveStream:
    """A camera or a network address: read once, forward, with a time limit on every wait."""

    address: str
    demuxer: str | None = None
    options: Mapping[str, str] = field(default_factory=dict)
    timeout_s: float = 10.0
    num_threads: int = 0

    def __post_init__(self) -> None:
        if not (math.isfinite(self.timeout_s) and self.timeout_s > 0):
            raise RangeError(f"timeout_s must be a positive number of seconds; got {self.timeout_s}. Try 10.")

    def __str__(self) -> str:
        """Return the address without user name, password and query, so that messages and logs may show it."""
        return printable_address(self.address)

    def __repr__(self) -> str:
        return f"LiveStream({str(self)!r})"


@dataclass(frozen=True, eq=False)
class FrameStream:
    """Frames held in memory or made by a program: read once, forward. `mule.video.arrays.frame_stream` makes one."""

    name: str
    frames: Iterator[tuple[Fraction, Any]]
    """Seconds since the first frame, and an array or tensor of pixels."""
    rows: int
    cols: int
    frame_rate: Fraction

    def __str__(self) -> str:
        return self.name


VideoSource = VideoFile | ImageSequence | LiveStream | FrameStream


def video_source(
    address: str | Path | VideoSource, *, image_rate: Fraction | int = 30, timeout_s: float = 10.0
) -> VideoSource:
    """Return the source at an address: a file, a folder of images, a list of images, a camera or a stream.

    A folder gives its images in natural order (2 before 10). A text file (.txt, .lst, .list) names one image
    per line, relative to itself and inside its folder; blank lines are ignored. `/dev/videoN` is a camera,
    `scheme://…` a stream.

    Args:
        address: a path, an address, or a source, which is returned as it is.
        image_rate: frames per second of a folder or a list; files and streams have their own.
        timeout_s: seconds to wait for a camera or a stream.

    Raises:
        VideoError: the address does not exist, or holds no images.

    >>> video_source("rtsp://camera.example/live").__class__.__name__
    'LiveStream'
    """
    if isinstance(address, VideoFile | ImageSequence | LiveStream | FrameStream):
        return address
    text = str(address)
    scheme = text.split("://", 1)[0].lower() if "://" in text else ""
    if scheme:
        return _stream(text, scheme, timeout_s)
    if _CAMERA.fullmatch(text):
        return LiveStream(text, demuxer="v4l2", timeout_s=timeout_s)
    path = Path(address)
    if _is(path, Path.is_dir):
        return _folder(path, Fraction(image_rate))
    if not _is(path, Path.is_file):
        raise VideoError(
            f"{printable_address(text)}: a video must be a file, a folder of images or an address; nothing is there. Check the path."
        )
    if path.suffix.lower() in LIST_SUFFIXES:
        return _image_list(path, Fraction(image_rate))
    return VideoFile(path)


def _is(path: Path, kind: Callable[[Path], bool]) -> bool:
    """Whether there is a file or folder at a path; no system has one at a name that is too long."""
    try:
        return kind(path)
    except OSError:
        return False


def natural_key(name: str) -> tuple[tuple[int, int, str], ...]:
    """Return a sorting key that orders numbers by value.

    >>> sorted(["f10.jpg", "f9.jpg", "f1.jpg"], key=natural_key)
    ['f1.jpg', 'f9.jpg', 'f10.jpg']
    """
    parts = _NUMBER.split(name)
    return tuple((0, int(part), "") if i % 2 else (1, 0, part) for i, part in enumerate(parts))


def _stream(address: str, scheme: str, timeout_s: float) -> LiveStream:
    if scheme not in LIVE_SCHEMES:
        raise VideoError(
            f"{printable_address(address)}: the address must begin with one of "
            f"{', '.join(sorted(LIVE_SCHEMES))}; got {scheme!r}. Give a file by its path alone."
        )
    # Over UDP a lost packet is a damaged frame; over TCP it is a short wait.
    options = {"rtsp_transport": "tcp"} if scheme in ("rtsp", "rtsps") else {}
    return LiveStream(address, options=options, timeout_s=timeout_s)


def _folder(folder: Path, frame_rate: Fraction) -> ImageSequence:
    found = [path for path in folder.iterdir() if path.suffix.lower() in IMAGE_SUFFIXES]
    if not found:
        raise VideoError(
            f"{folder}: a folder of frames must hold images ({', '.join(sorted(IMAGE_SUFFIXES))}); it has none."
        )
    paths = sorted(found, key=lambda path: (natural_key(path.name), path.name))
    sequence = _sequence(str(folder), paths, _frame_positions([path.name for path in paths]), frame_rate)
    if sequence.num_missing > len(paths):
        raise VideoError(
            f"{folder}: numbers in image names must be frame numbers; by them {sequence.num_missing} frames are "
            f"missing and {len(paths)} are there. If they mean something else, list the images in a text file."
        )
    return sequence


def _image_list(file: Path, frame_rate: Fraction) -> ImageSequence:
    try:
        lines = file.read_text(encoding="utf-8").splitlines()
    except UnicodeDecodeError as error:
        raise VideoError(f"{file}: a list of images must be UTF-8 text; {error.reason}.") from error
    named = [(number, line.strip()) for number, line in enumerate(lines, start=1) if line.strip()]
    if not named:
        raise VideoError(f"{file}: a list of images must name at least one image; it is empty.")
    paths = [file.parent / line for _, line in named]
    absent = [
        (number, path) for (number, _), path in zip(named, paths, strict=True) if not _is(path, Path.is_file)
    ]
    if absent:
        number, path = absent[0]
        raise VideoError(
            f"{file}, line {number}: every listed image must exist; {str(path)[:MOST_LETTERS]} does not "
            f"({len(absent)} of {len(paths)} are absent). Paths are relative to the list."
        )
    folder = file.parent.resolve()
    outside = [
        (number, line) for number, line in named if not (folder / line).resolve().is_relative_to(folder)
    ]
    if outside:
        number, line = outside[0]
        raise VideoError(
            f"{file}, line {number}: listed images must lie in the folder of the list; {line} does not "
            f"({len(outside)} of {len(paths)} are outside). Put the list into a folder that holds them all."
        )
    return _sequence(str(file), paths, range(len(paths)), frame_rate)


def _sequence(
    name: str, paths: Sequence[Path], positions: Sequence[int], frame_rate: Fraction
) -> ImageSequence:
    if frame_rate <= 0:
        raise RangeError(f"{name}: image_rate must be above zero frames per second; got {frame_rate}.")
    return ImageSequence(name, tuple(paths), tuple(positions), frame_rate)


def _frame_positions(names: Sequence[str]) -> Sequence[int]:
    """Return positions from the last number of each name, if names differ in it alone; otherwise from 0.

    Numbers may start anywhere and rise by any step, which is their greatest common divisor.
    """
    matches = [re.fullmatch(r"(.*?)(\d+)(\D*)", name) for name in names]
    if any(match is None for match in matches) or len({(m[1], m[3]) for m in matches if m}) > 1:
        return range(len(names))
    numbers = [int(match[2]) for match in matches if match]
    steps = [after - before for before, after in pairwise(numbers)]
    if 0 in steps:  # 7.jpg beside 07.jpg
        return range(len(names))
    step = reduce(math.gcd, steps, 0) or 1
    return [(number - numbers[0]) // step for number in numbers]


VIDEO_NAME = re.compile(
    r".*\.(3gp|asf|avi|flv|gif|h26[45]|hevc|m2ts|m4v|mkv|mov|mp4|mpe?g|mts|mxf|ogv|ts|vob|webm|wmv|y4m)",
    re.IGNORECASE | re.DOTALL,
)
"""Which files of a folder are videos. A video given by its own path may have any suffix."""


def videos_at(address: str) -> list[str]:
    """Return the videos in a folder, in natural order; anything else, such as a folder of images, is one source."""
    folder = Path(address)
    if "://" in address or not folder.is_dir():
        return [address]
    files = [path for path in folder.iterdir() if VIDEO_NAME.fullmatch(path.name) and path.is_file()]
    return [str(path) for path in sorted(files, key=lambda path: natural_key(path.name))] or [address]
