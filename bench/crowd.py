"""How much memory watching takes, by the number of people in view.

python -m bench.crowd                40 and 400 people, each in a process of its own
python -m bench.crowd --people 400   that many, in this process: prints megabytes and seconds
"""

import argparse
import math
import resource
import subprocess
import sys
import time

import numpy as np
import torch

from mule.detection.detections import Detections
from mule.watching.engine.finding import FoundBoxes
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
    seen = [
        len(moment.actors) for moment in watch(frames, rate=RATE, model="builtin", detector=Crowd(people))
    ]
    peak_mb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
    return peak_mb, time.monotonic() - began, max(seen)


def measured(people: int) -> str:
    """Return what a process that watches so many people prints: megabytes, seconds, actors."""
    command = [sys.executable, "-m", "bench.crowd", "--people", str(people)]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()


def main() -> None:
    """Print one line per crowd."""
    parser = argparse.ArgumentParser(description="memory of watching by people in view")
    parser.add_argument("--people", type=int)
    people = parser.parse_args().people
    if people is None:
        for each in (40, 400):
            print(f"{each} people: {measured(each)}")
        return
    peak_mb, took_s, seen = watched(people)
    print(f"{peak_mb} MB, {took_s:.1f} s, {seen} actors")


if __name__ == "__main__":
    main()
