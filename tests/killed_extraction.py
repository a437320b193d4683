"""Extractions that are killed, or that race each other; run as a program, because it forks.

    killed_extraction.py kill FOLDER     one child per chosen moment; each is killed and the video then finished
    killed_extraction.py race FOLDER     pairs of children on one video, slowed down at random lines

A moment is a line of the modules under test: a tracer counts them and ends the process with SIGKILL. What was
found is printed as one JSON object per trial.
"""

import json
import os
import random
import signal
import sys
import time
import traceback
from pathlib import Path

import torch
from tiny_extraction import every, render, tiny_backbone

from mule.features import cache, extraction, feature_files
from mule.features.cache import Every
from mule.features.extraction import Extractor
from mule.video.sources import VideoFile

TRACED = {module.__file__ for module in (cache, extraction, feature_files)}
PART_CLIPS = 3
PERIOD_S = Every(every("1/2", 1)[1])


def traced(on_line):
    """Calls `on_line` before every line of the modules under test."""

    def trace(frame, event, _):
        if frame.f_code.co_filename not in TRACED:
            return None
        if event == "line":
            on_line()
        return trace

    sys.settrace(trace)


def extractor(folder):
    return Extractor(tiny_backbone(), folder, batch_clips=2, part_clips=PART_CLIPS)


def child(work):
    """The process id of a fork that does the work and leaves."""
    pid = os.fork()
    if pid == 0:
        try:
            work()
            os._exit(0)
        except BaseException:
            traceback.print_exc()
            os._exit(1)
    return pid


def killed_at(moment, video, folder):
    """How many clips a child had computed when it was killed, and whether it was."""
    seen = folder.parent / f"{folder.name}.count"
    seen.write_text("0")
    lines = 0

    def on_line():
        nonlocal lines
        lines += 1
        if lines == moment:
            os.kill(os.getpid(), signal.SIGKILL)

    def work():
        traced(on_line)
        extractor(folder).extract(video, PERIOD_S, on_progress=lambda p: seen.write_text(str(p.num_computed)))

    _, status = os.waitpid(child(work), 0)
    assert os.WIFSIGNALED(status) or os.WEXITSTATUS(status) == 0, status
    return int(seen.read_text() or 0), os.WIFSIGNALED(status)


def num_lines(video, folder):
    """The lines of an undisturbed extraction."""
    lines = 0

    def on_line():
        nonlocal lines
        lines += 1

    traced(on_line)
    extractor(folder).extract(video, PERIOD_S, on_progress=lambda _: None)
    sys.settrace(None)
    return lines


def kill(root, num_moments=30):
    video = VideoFile(render(root / "video.mp4"), num_threads=1)
    expected = extractor(root / "whole").extract(video, PERIOD_S).features.context
    last = num_lines(video, root / "counted")
    chance = random.Random(5)
    for number in range(num_moments):
        moment = 1 + int((number + chance.random()) * last / num_moments)
        folder = root / f"killed{moment}"
        num_before, was_killed = killed_at(moment, video, folder)
        names_after_kill = sorted(path.name for path in folder.glob("*.safetensors"))
        finished = extractor(folder).extract(video, PERIOD_S)
        result = {
            "moment": moment,
            "was_killed": was_killed,
            "num_before": num_before,
            "num_reused": len(expected) if finished.was_cached else finished.progress.num_reused,
            "num_computed": finished.progress.num_computed,
            "num_discarded": len(finished.discarded),
            "had_file": bool(names_after_kill),
            "is_equal": torch.equal(finished.features.context, expected),
            "left": sorted(path.name for path in folder.iterdir() if path != finished.path),
        }
        sys.stdout.write(json.dumps(result) + "\n")


def race(root, num_rounds=8):
    video = VideoFile(render(root / "video.mp4"), num_threads=1)
    expected = extractor(root / "whole").extract(video, PERIOD_S).features.context

    def work(folder, seed):
        chance = random.Random(seed)
        traced(lambda: time.sleep(0.004) if chance.random() < 0.05 else None)
        found = extractor(folder).extract(video, PERIOD_S).features.context
        assert torch.equal(found, expected)

    for number in range(num_rounds):
        folder = root / f"race{number}"
        pids = [child(lambda seed=2 * number + i, folder=folder: work(folder, seed)) for i in range(2)]
        statuses = [os.waitpid(pid, 0)[1] for pid in pids]
        finished = extractor(folder).extract(video, PERIOD_S)
        result = {
            "statuses": statuses,
            "was_cached": finished.was_cached,
            "is_equal": torch.equal(finished.features.context, expected),
            "left": sorted(path.name for path in folder.iterdir() if path != finished.path),
        }
        sys.stdout.write(json.dumps(result) + "\n")


if __name__ == "__main__":
    torch.set_num_threads(1)  # a fork has only the thread that forked
    {"kill": kill, "race": race}[sys.argv[1]](Path(sys.argv[2]))
