"""Trainings that are killed and resumed; run as a program, because it forks.

    killed_training.py FOLDER NUM_MOMENTS SEED,NUM_WORKERS,NUM_THREADS …

A moment is a line of the modules under test, in every second trial of those that write files: a tracer counts them and
ends the process with SIGKILL, first in a new run, then once more after it was resumed. What became of each is printed as
a JSON object per trial.
"""

import json
import os
import random
import signal
import sys
import traceback
from collections import Counter
from functools import partial
from pathlib import Path

import torch
from tiny_runs import curves_of, tiny_experiment

from mule.data.batches import loading
from mule.objective import primal_dual
from mule.training import build, checkpoint, loop, step
from mule.training import run_folder as curves
from mule.training import run_folder as run_record
from mule.training.run_folder import MODEL
from mule.training.step import Silence

WRITING = {module.__file__ for module in (checkpoint, curves, run_record)}
ALL = WRITING | {module.__file__ for module in (build, loading, loop, primal_dual, step)}


def train(root, num_workers, num_threads, run_dir):
    torch.set_num_threads(num_threads)  # in the fork: threads of the parent would not live in it
    wanted = tiny_experiment(root, loading__workers=num_workers, training__average_decay=0.9)
    build.run_experiment(wanted, run_dir, listener=Silence(), resumes=True)


def traced(work, modules, on_line):
    def trace(frame, event, _):
        if frame.f_code.co_filename not in modules:
            return None
        if event == "line":
            on_line(frame)
        return trace

    sys.settrace(trace)
    work()
    sys.settrace(None)


def child(work):
    """Does the work in a fork; whether it ended by itself."""
    pid = os.fork()
    if pid == 0:
        try:
            work()
            os._exit(0)
        except BaseException:
            traceback.print_exc()
            os._exit(1)
    status = os.waitpid(pid, 0)[1]
    if os.WIFEXITED(status) and os.WEXITSTATUS(status):
        sys.exit("a training failed")
    return os.WIFEXITED(status)


def killed_at(moment, work, modules, log):
    """Does the work until the moment comes."""
    seen, own = 0, []

    def on_line(frame):
        nonlocal seen
        if os.getpid() != own[0]:  # a worker, forked with the tracer
            return
        seen += 1
        if seen == moment:
            place = f"{Path(frame.f_code.co_filename).stem}:{frame.f_lineno}"
            log.write_text(place)
            os.kill(os.getpid(), signal.SIGKILL)

    def run():
        own.append(os.getpid())
        traced(work, modules, on_line)

    return child(run)


def counted(work, log):
    """How many moments there are, in all modules and in those that write."""

    def run():
        seen = Counter()
        traced(work, ALL, lambda frame: seen.update([frame.f_code.co_filename]))
        log.write_text(json.dumps([seen.total(), sum(seen[each] for each in WRITING)]))

    child(run)
    return json.loads(log.read_text())


def main(folder, num_trials, *settings):
    torch.set_num_threads(1)
    torch.optim.SGD([torch.zeros(1)])  # brings in the rest of torch, once for all forks
    for number, (seed, num_workers, num_threads) in enumerate(settings):
        place = folder / str(number)
        place.mkdir()
        training = partial(partial, train, folder / "stage", num_workers, num_threads)
        tried(place, training, num_trials, seed)


def tried(folder, training, num_trials, seed):
    """Prints what became of each trial with one setting."""
    log, alone = folder / "log", folder / "alone"

    num_moments = counted(training(alone), log)
    draw = random.Random(seed)
    for trial in range(num_trials):
        run_dir, places = folder / f"run{trial}", []
        for _ in range(2):
            log.write_text("")
            moment = draw.randrange(1, num_moments[trial % 2])
            killed_at(moment, training(run_dir), (ALL, WRITING)[trial % 2], log)
            places.append(log.read_text())
        child(training(run_dir))
        found = {
            "killed_at": places,
            "same_weights": (run_dir / MODEL).read_bytes() == (alone / MODEL).read_bytes(),
            "same_curves": curves_of(run_dir) == curves_of(alone),
            "left_over": sorted(path.name for path in (run_dir / "checkpoints").glob(".*")),
            "status": json.loads((run_dir / "run.json").read_text())["status"],
        }
        print(json.dumps(found), flush=True)  # noqa: T201 - the result


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]), *(tuple(map(int, each.split(","))) for each in sys.argv[3:]))
