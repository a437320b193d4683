"""The videos a table names: where each lies in a folder, and what is known of it once it is opened.

A name is a path below the folder: of a file, with or without its ending, or of a folder of frames. Names come
from files that others wrote, so one that leads out of the folder is refused.
"""

import os
import queue
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path, PurePosixPath, PureWindowsPath

from mule.core.errors import MuleError, VideoError
from mule.video.reading import video_facts
from mule.video.sources import IMAGE_SUFFIXES, VideoFile, VideoSource, video_source

_VIDEO_FORMATS = """
    3gp asf avi flv gif h264 h265 hevc m2ts m4v mkv mov mp4 mpe mpeg mpg mts mxf ogv ts vob webm wmv y4m"""
VIDEO_SUFFIXES = frozenset(f".{name}" for name in _VIDEO_FORMATS.split())
"""What a name without an ending may stand for."""
NUM_PROBES = 4
"""Videos opened at a time. Opening one is mostly waiting for the disk."""


@dataclass(frozen=True)
class FoundVideos:
    """Where the named videos lie. Every name is in one of the three."""

    paths: Mapping[str, Path]
    missing: tuple[str, ...]
    """Nothing by this name is there."""
    refused: Mapping[str, str]
    """Names that cannot stand for one video of the folder, and why."""


@dataclass(frozen=True)
class VideoOnDisk:
    """One video that can be read. Rows and columns are those of upright frames."""

    name: str
    path: Path
    length_s: float | None
    """As the file states it; None where it does not."""
    frame_rate: Fraction
    rows: int
    cols: int

    @property
    def source(self) -> VideoSource:
        """What to read it from; images of a folder follow each other at the frame rate."""
        is_folder = self.path.is_dir()
        return video_source(self.path, image_rate=self.frame_rate) if is_folder else VideoFile(self.path)


@dataclass(frozen=True)
class ProbedVideos:
    """Videos that were opened: what is known of each, or why it cannot be read."""

    readable: Mapping[str, VideoOnDisk]
    unreadable: Mapping[str, str]

    @property
    def ends_s(self) -> dict[str, float | None]:
        """The length of each video that can be read, as a table is checked against it."""
        return {name: video.length_s for name, video in self.readable.items()}


def find_videos(names: Iterable[str], folder: Path) -> FoundVideos:
    """Where each named video lies in the folder.

    A file of exactly this name is the video. Otherwise it is the one file with this name and a video's ending, or the
    one folder of images; if there are several, the name is refused, and so is a second name for the same video.

    Raises:
        VideoError: the folder is not there.
    """
    if not folder.is_dir():
        raise VideoError(f"{folder}: videos must lie in a folder; there is no folder of this name.")
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


def probe_videos(
    paths: Mapping[str, Path],
    *,
    on_progress: Callable[[int, int], None] | None = None,
    image_rate: Fraction = Fraction(30),
    timeout_s: float = 60.0,
) -> ProbedVideos:
    """What is known of each video once its first frame is decoded; several are opened at a time.

    Args:
        paths: where each video lies, by name.
        on_progress: told how many are done, of how many.
        image_rate: frames per second of a folder of frames.
        timeout_s: after this time a video counts as unreadable. What hangs on it is left behind.
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
    """Looks into each folder once, however many names lie in it."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._root = folder.resolve()
        self._seen: dict[tuple[str, ...], _Entries] = {}

    def path_of(self, name: str) -> Path | None:
        """The path of the named video, or None. Raises VideoError where the name cannot be used."""
        *parents, last = _parts_below(name)
        entries = self._entries(tuple(parents))
        candidates = entries.candidates(last)
        if len(candidates) > 1:
            shown = " and ".join(entry.path for entry in candidates)
            raise VideoError(
                f"a name must stand for one video; {name!r} may be {shown}. Write the ending too."
            )
        for entry in candidates:
            path = Path(entry.path)
            real = path.resolve() if entry.is_symlink() else entries.real_parent / entry.name
            if not real.is_relative_to(self._root):
                raise VideoError(
                    f"a video must lie in {self._folder}; {path} leads to {real}. Give the folder it leads to."
                )
            return path
        return None

    def _entries(self, parents: tuple[str, ...]) -> "_Entries":
        if parents not in self._seen:
            self._seen[parents] = _Entries(self._folder.joinpath(*parents))
        return self._seen[parents]


class _Entries:
    """What lies in one folder, as its listing tells: a file that is no link is not asked again what it is."""

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
        self.real_parent = parent.resolve()
        """Where links lead: asked once for all that lies in it."""

    def candidates(self, name: str) -> list[os.DirEntry[str]]:
        exact = self._by_name.get(name)
        if exact is not None and exact.is_file():
            return [exact]
        frames = [exact] if exact is not None and _holds_frames(Path(exact.path)) else []
        return frames + [entry for entry in self._by_stem.get(name, []) if entry.is_file()]


class _Prober:
    """A thread that opens one video after the other, and the one it is at. It does not keep a program from ending."""

    def __init__(self, work: Callable[["_Prober"], None]) -> None:
        self.name: str | None = None
        self.started_at = time.monotonic()
        threading.Thread(target=work, args=(self,), daemon=True).start()


class _Probes:
    """Videos that wait to be opened, and who opens them. For one that takes too long another prober comes."""

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
        """What has come to an end since; after a short while, possibly nothing."""
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
    except Exception as error:  # whatever a decoder makes of a damaged file is this file's problem alone
        return f"{type(error).__name__}: {error}"
    length_s = None if facts.duration_s is None else float(facts.duration_s)
    return VideoOnDisk(name, path, length_s, facts.frame_rate, facts.rows, facts.cols)


def _source(path: Path, image_rate: Fraction) -> VideoSource:
    return video_source(path, image_rate=image_rate) if path.is_dir() else VideoFile(path, num_threads=1)


def _parts_below(name: str) -> tuple[str, ...]:
    path = PurePosixPath(name)
    leads_out = path.is_absolute() or ".." in path.parts or PureWindowsPath(name).anchor
    if not path.parts or leads_out or "\0" in name:
        raise VideoError(f"a video must be named by a path below the folder of videos; got {name!r}.")
    return path.parts


def _holds_frames(folder: Path) -> bool:
    return folder.is_dir() and any(path.suffix.lower() in IMAGE_SUFFIXES for path in folder.iterdir())
