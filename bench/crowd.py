"""How much memory watching takes, by the number of people in view, and by the hours that a stream lasts.

python -m bench.crowd                40 and 400 people, each in a process of its own
python -m bench.crowd --people 400   that many, in this process: prints megabytes and seconds
python -m bench.crowd --hours 2      a stream that breaks off every ten minutes, on a clock that runs as fast as watching
"""

import argparse
import math
import resource
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Generator, Iterator
from fractions import Fraction
from functools import partial
from pathlib import Path
from unittest.mock import patch

import numpy as np
import torch

from mule.detection.detections import Detections
from mule.video.encode import VideoWriter
from mule.video.reading import Clip, video_facts
from mule.video.sources import DecodeReport, LiveStream, VideoFile, VideoSource
from mule.watching.engine import watch as watching
from mule.watching.engine.bundle import STAGE, read_bundle
from mule.watching.engine.finding import FoundBoxes
from mule.watching.engine.key_times import LiveSights, Rhythm, open_clips
from mule.watching.engine.watch import WatchSettings
from mule.watching.outputs.results import recorded, write_outputs
from mule.watching.watch import watch

ROWS, COLS, RATE, SECONDS = 480, 640, 8, 1


class Crowd:
    """People side by side, all over the picture."""

    class_names = ("person",)
    actor_score = 0.5
    links_between = False

    def __init__(self, people: int) -> None:
        cols = math.ceil(math.sqrt(people))
        place = torch.arange(people)
        left, top = (place % cols) * COLS / cols, (place // cols) * ROWS / cols
        boxes = torch.stack([left, top, left + COLS / cols, top + ROWS / cols], dim=1).float()
        none = torch.zeros(people, dtype=torch.int64)
        self._found = FoundBoxes(Detections(boxes, torch.full((people,), 0.9), none, none, num_images=1))

    def __call__(self, frame: torch.Tensor, *, key_time_s: float) -> FoundBoxes:
        """Return everybody."""
        del frame, key_time_s
        return self._found


def watched(people: int) -> tuple[int, float, int]:
    """Watch a crowd with the built-in model; return the peak in megabytes, seconds and actors seen."""
    draw = np.random.default_rng(0)
    frames = (draw.integers(0, 255, (ROWS, COLS, 3), np.uint8) for _ in range(RATE * SECONDS))
    began = time.monotonic()
    seen = [len(moment.actors) for moment in watch(frames, rate=RATE, model="stage", detector=Crowd(people))]
    peak_mb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
    return peak_mb, time.monotonic() - began, max(seen)


BREAKS_AFTER_S = 600


class Passers:
    """Three people who come and go all the time, each in a period of their own."""

    class_names = ("person",)
    actor_score = 0.5
    links_between = False

    def __call__(self, frame: torch.Tensor, *, key_time_s: float) -> FoundBoxes:
        """Return those in view."""
        rows, cols = frame.shape[1:]
        parts = [(key_time_s % period_s) / period_s for period_s in (13, 20, 31)]
        boxes = [(0.7 * part, 0.2, 0.7 * part + 0.25, 0.9) for part in parts if part < 0.9]
        place = torch.tensor(boxes).reshape(-1, 4) * torch.tensor([cols, rows, cols, rows])
        none = torch.zeros(len(boxes), dtype=torch.int64)
        return FoundBoxes(Detections(place, torch.full((len(boxes),), 0.9), none, none, num_images=1))


class FastClock(threading.Event):
    """Time that passes with what is seen and with every wait; asked whether to stop, it is the event that says so."""

    def __init__(self) -> None:
        super().__init__()
        self.now_s = 0.0
        self.room = threading.Semaphore(1)

    def __call__(self) -> float:
        return self.now_s

    def wait(self, timeout: float | None = None) -> bool:
        """Let time pass."""
        self.now_s += timeout or 0
        return self.is_set()

    def opened(self, film: VideoSource) -> Callable[..., Generator[Clip, None, None]]:
        """Return how to open a stream that shows a film and then breaks off; it waits for whoever watches."""

        def clips(
            _source: VideoSource, rhythm: Rhythm, start_s: Fraction, report: DecodeReport
        ) -> Generator[Clip, None, None]:
            began_s = self.now_s
            for clip in open_clips(film, rhythm, start_s, report):
                self.room.acquire()
                self.now_s = began_s + float(clip.window.key_time_s)
                yield clip

        return clips


def soaked(hours: float, folder: Path) -> Iterator[tuple[float, int]]:
    """Watch a stream for so many hours, into a folder; yield minutes and megabytes now and then, at last with all outputs."""
    film = VideoFile(folder / "film.mp4")
    with VideoWriter(film.path, (96, 128), Fraction(2)) as video:
        for number in range(2 * BREAKS_AFTER_S):
            video.write(np.full((1, 96, 128, 3), 40 + number % 160, np.uint8))
    clock = FastClock()
    live = partial(LiveSights, open=clock.opened(film), clock=clock)
    with (
        patch.object(watching, "video_facts", lambda _: video_facts(film)),
        patch.object(
            watching, "LiveSights", lambda *given, **more: live(*given, **(more | {"stopping": clock}))
        ),
    ):
        watcher = watching.open_watch(
            LiveStream("rtsp://soak/1"),
            read_bundle(Path(STAGE)),
            detector=Passers(),
            settings=WatchSettings(every_s=5.0),
        )
        for moment in recorded(watcher, folder / "watched"):
            minute, rest = divmod(moment.key_time_s, 60)
            if rest == 0 and minute % 10 == 0:
                yield minute, resident_mb()
            if minute >= 60 * hours:
                clock.set()
            clock.room.release()
    write_outputs(folder / "watched", watcher.source)
    yield 60 * hours, resident_mb()


def resident_mb() -> int:
    """Return the memory that this process has now."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize() // 2**20


def measured(people: int) -> str:
    """Return what a process that watches so many people prints: megabytes, seconds, actors."""
    command = [sys.executable, "-m", "bench.crowd", "--people", str(people)]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()


def main() -> None:
    """Print one line per crowd."""
    parser = argparse.ArgumentParser(description="memory of watching by people in view")
    parser.add_argument("--people", type=int)
    parser.add_argument("--hours", type=float)
    asked = parser.parse_args()
    people = asked.people
    if asked.hours is not None:
        with tempfile.TemporaryDirectory() as folder:
            for minute, megabytes in soaked(asked.hours, Path(folder)):
                print(f"minute {minute:.0f}: {megabytes} MB", flush=True)
        return
    if people is None:
        for each in (40, 400):
            print(f"{each} people: {measured(each)}")
        return
    peak_mb, took_s, seen = watched(people)
    print(f"{peak_mb} MB, {took_s:.1f} s, {seen} actors")


if __name__ == "__main__":
    main()
