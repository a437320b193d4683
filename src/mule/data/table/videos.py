"""Find the videos that a table names in a folder, and read their length, size and frame rate.

A name is a path inside the folder: a file, with or without its suffix, or a folder of frames. Names come from files
that others wrote, so a path that leads out of the folder is refused. Links in the folder are the owner's: they are
followed wherever they lead, since films often lie on another disk.
"""

import os
import queue
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path, PurePosixPath, PureWindowsPath

from mule.core.errors import MuleError, VideoError
from mule.video.reading import video_facts
from mule.video.sources import IMAGE_SUFFIXES, VideoFile, VideoSource, natural_key, video_source

_VIDEO_FORMATS = """
    3gp asf avi flv gif h264 h265 hevc m2ts m4v mkv mov mp4 mpe mpeg mpg mts mxf ogv ts vob webm wmv y4m"""
VIDEO_SUFFIXES = frozenset(f".{name}" for name in _VIDEO_FORMATS.split())
"""Suffixes that a name may leave out."""
NUM_PROBES = 4
"""Videos opened at the same time; opening one mostly waits for the disk."""


@dataclass(frozen=True)
class FoundVideos:
    """Paths of the named videos. Every name is in one of the three fields."""

    paths: Mapping[str, Path]
    missing: tuple[str, ...]
    """Names without a file or folder."""
    refused: Mapping[str, str]
    """Names that do not identify one video of the folder, with the reason."""


@dataclass(frozen=True)
class VideoOnDisk:
    """A readable video. Rows and columns are those of upright frames."""

    name: str
    path: Path
    length_s: float | None
    """Length according to the file; None if it does not state it."""
    frame_rate: Fraction
    rows: int
    cols: int

    @property
    def source(self) -> VideoSource:
        """Source to read the video from; images of a folder are shown at the frame rate."""
        is_folder = self.path.is_dir()
        return video_source(self.path, image_rate=self.frame_rate) if is_folder else VideoFile(self.path)


@dataclass(frozen=True)
class ProbedVideos:
    """Opened videos, and the reason for each one that cannot be read."""

    readable: Mapping[str, VideoOnDisk]
    unreadable: Mapping[str, str]

    @property
    def ends_s(self) -> dict[str, float | None]:
        """Length of each readable video, for checking a table."""
        return {name: video.length_s for name, video in self.readable.items()}


def find_videos(names: Iterable[str], folder: Path) -> FoundVideos:
    """Find each named video in the folder.

    A file of exactly this name is the video; otherwise the one file with this name and a video suffix, or the one
    folder of images. If there are several, the name is refused, and so is a second name of the same video.

    Raises:
        VideoError: there is no such folder.
    """
    if not folder.is_dir():
        raise VideoError(f"{folder}: must be a folder of videos; there is no such folder.")
    search = _Search(folder)
    paths: dict[str, Path] = {}
    missing: list[str] = []
    refused: dict[str, str] = {}
    name_of: dict[Path, str] = {}
    for name in dict.fromkeys(names):
        try:
            path = search.path_of(name)
        except VideoError as error:
            refused[name] = str(error)
            continue
        if path is None:
            missing.append(name)
        elif (other := name_of.setdefault(path, name)) != name:
            refused[name] = (
                f"one video must have one name; {other!r} and {name!r} both are {path}. Use one throughout."
            )
        else:
            paths[name] = path
    return FoundVideos(paths, tuple(missing), refused)


def videos_below(folder: Path) -> dict[str, Path]:
    """Return all videos in a folder and the folders below it, under the names that `find_videos` finds them by.

    A file is named without its suffix, unless two names would be equal; a folder that holds images but no video is one.
    If there is none but the folder itself holds images, it is the video.
    """
    paths: list[Path] = []
    for parent, folders, files in os.walk(folder):
        folders.sort(key=natural_key)
        here = Path(parent)
        videos = [here / name for name in files if Path(name).suffix.lower() in VIDEO_SUFFIXES]
        paths += sorted(videos, key=lambda path: natural_key(path.name))
        if here != folder and not videos and _holds_frames(here):
            paths.append(here)
    if not paths and _holds_frames(folder):
        return {folder.absolute().name: folder}
    names = [path.relative_to(folder) for path in paths]
    short = [name if path.is_dir() else name.with_suffix("") for name, path in zip(names, paths, strict=True)]
    num_called = Counter(short)
    chosen = [each if num_called[each] == 1 else name for name, each in zip(names, short, strict=True)]
    return {name.as_posix(): path for name, path in zip(chosen, paths, strict=True)}


def probe_videos(
    paths: Mapping[str, Path],
    *,
    on_progress: Callable[[int, int], None] | None = None,
    image_rate: Fraction = Fraction(30),
    timeout_s: float = 60.0,
) -> ProbedVideos:
    """Open each video and decode its first frame; several at the same time.

    Args:
        paths: path of each video by name.
        on_progress: called with the number of finished videos and of all videos.
        image_rate: frames per second of a folder of frames.
        timeout_s: count a video as unreadable after this time; its thread is abandoned.
    """
    probes = _Probes(paths, image_rate)
    outcomes: dict[str, VideoOnDisk | str] = {}
    while len(outcomes) < len(paths):
        outcomes.update(probes.next_outcomes(timeout_s))
        if on_progress is not None:
            on_progress(len(outcomes), len(paths))
    in_order = {name: outcomes[name] for name in paths}
    return ProbedVideos(
        {name: each for name, each in in_order.items() if isinstance(each, VideoOnDisk)},
        {name: each for name, each in in_order.items() if isinstance(each, str)},
    )


class _Search:
    """Lists each folder once."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._seen: dict[tuple[str, ...], _Entries] = {}

    def path_of(self, name: str) -> Path | None:
        """Return the path of the named video, or None. Raises VideoError if the name cannot be used."""
        *parents, last = _parts_below(name)
        entries = self._entries(tuple(parents))
        candidates = entries.candidates(last)
        if len(candidates) > 1:
            shown = " and ".join(entry.path for entry in candidates)
            raise VideoError(f"a name must identify one video; {name!r} may be {shown}. Add the suffix.")
        return Path(candidates[0].path) if candidates else None

    def _entries(self, parents: tuple[str, ...]) -> "_Entries":
        if parents not in self._seen:
            self._seen[parents] = _Entries(self._folder.joinpath(*parents))
        return self._seen[parents]


class _Entries:
    """The listing of one folder."""

    def __init__(self, parent: Path) -> None:
        self._by_name: dict[str, os.DirEntry[str]] = {}
        self._by_stem: dict[str, list[os.DirEntry[str]]] = {}
        try:
            entries = sorted(os.scandir(parent), key=lambda entry: entry.name) if parent.is_dir() else []
        except OSError as error:
            raise VideoError(f"{parent}: the folder must be readable; {error.strerror}.") from None
        for entry in entries:
            self._by_name[entry.name] = entry
            name = PurePosixPath(entry.name)
            if name.suffix.lower() in VIDEO_SUFFIXES:
                self._by_stem.setdefault(name.stem, []).append(entry)

    def candidates(self, name: str) -> list[os.DirEntry[str]]:
        exact = self._by_name.get(name)
        if exact is not None and exact.is_file():
            return [exact]
        frames = [exact] if exact is not None and _holds_frames(Path(exact.path)) else []
        return frames + [entry for entry in self._by_stem.get(name, []) if entry.is_file()]


class _Prober:
    """A daemon thread that opens one video after the other, and its current video."""

    def __init__(self, work: Callable[["_Prober"], None]) -> None:
        self.name: str | None = None
        self.started_at = time.monotonic()
        threading.Thread(target=work, args=(self,), daemon=True).start()


class _Probes:
    """The queue of videos to open and its threads. A thread that takes too long is replaced."""

    def __init__(self, paths: Mapping[str, Path], image_rate: Fraction) -> None:
        self._paths = paths
        self._image_rate = image_rate
        self._given_up: set[str] = set()
        self._done = queue.SimpleQueue[tuple[str, VideoOnDisk | str]]()
        self._waiting = queue.SimpleQueue[str]()
        for name in paths:
            self._waiting.put(name)
        self._probers = [_Prober(self._work) for _ in range(min(NUM_PROBES, len(paths)))]

    def next_outcomes(self, timeout_s: float) -> dict[str, VideoOnDisk | str]:
        """Return the videos that have finished since; waits a short while and may return nothing."""
        outcomes = self._too_slow(timeout_s)
        try:
            name, outcome = self._done.get(timeout=min(timeout_s, 0.5))
        except queue.Empty:
            return outcomes
        return outcomes if name in self._given_up else {**outcomes, name: outcome}

    def _too_slow(self, timeout_s: float) -> dict[str, VideoOnDisk | str]:
        latest = time.monotonic() - timeout_s
        at_work = [(each.name, each.started_at) for each in self._probers]
        late = [
            name for name, at in at_work if name is not None and at < latest and name not in self._given_up
        ]
        self._given_up.update(late)
        self._probers += [_Prober(self._work) for _ in late]
        return {name: f"opening it takes more than {timeout_s:g} s" for name in late}

    def _work(self, prober: _Prober) -> None:
        while True:
            try:
                name = self._waiting.get_nowait()
            except queue.Empty:
                return
            prober.started_at, prober.name = time.monotonic(), name
            outcome = _probed(name, self._paths[name], self._image_rate)
            prober.name = None
            self._done.put((name, outcome))


def _probed(name: str, path: Path, image_rate: Fraction) -> VideoOnDisk | str:
    try:
        facts = video_facts(_source(path, image_rate))
    except MuleError as error:
        return str(error).removeprefix(f"{path}: ").rstrip(".")
    except Exception as error:  # a decoder may raise anything for a damaged file
        return f"{type(error).__name__}: {error}"
    length_s = None if facts.duration_s is None else float(facts.duration_s)
    return VideoOnDisk(name, path, length_s, facts.frame_rate, facts.rows, facts.cols)


def _source(path: Path, image_rate: Fraction) -> VideoSource:
    return video_source(path, image_rate=image_rate) if path.is_dir() else VideoFile(path, num_threads=1)


def _parts_below(name: str) -> tuple[str, ...]:
    path = PurePosixPath(name)
    leads_out = path.is_absolute() or ".." in path.parts or PureWindowsPath(name).anchor
    if not path.parts or leads_out or "\0" in name:
        raise VideoError(f"a video must be named by a path inside the folder of videos; got {name!r}.")
    return path.parts


def _holds_frames(folder: Path) -> bool:
    return folder.is_dir() and any(path.suffix.lower() in IMAGE_SUFFIXES for path in folder.iterdir())
