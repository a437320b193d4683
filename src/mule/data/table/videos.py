"""Open the videos that a table names, and read their length, size and frame rate."""

import queue
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path

from mule.core.errors import MuleError
from mule.video.reading import video_facts
from mule.video.sources import VideoFile, VideoSource, video_source

NUM_PROBES = 4
"""Videos opened at the same time; opening one mostly waits for the disk."""


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


@dataclass(frozen=True)
class ProbedVideos:
    """Opened videos, and the reason for each one that cannot be read."""

    readable: Mapping[str, VideoOnDisk]
    unreadable: Mapping[str, str]

    @property
    def ends_s(self) -> dict[str, float | None]:
        """Length of each readable video, for checking a table."""
        return {name: video.length_s for name, video in self.readable.items()}


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
