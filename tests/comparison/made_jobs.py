"""Jobs that leave a result file once, and what they did before in a log; imported by processes that do them."""

import os
import signal
import sys
import threading
import time
from dataclasses import dataclass
from pathlib import Path

from mule.core.errors import RangeError


@dataclass(frozen=True)
class MadeJob:
    """A job in a folder of its own. `kind` is a function of this module."""

    name: str
    root: Path
    kind: str = "plain"

    @property
    def folder(self):
        return self.root / self.name

    def note(self, line):
        self.folder.mkdir(exist_ok=True)
        with (self.folder / "log.txt").open("a") as log:
            log.write(f"{line}\n")

    @property
    def notes(self):
        log = self.folder / "log.txt"  # comes after its folder
        return log.read_text().splitlines() if log.exists() else []

    @property
    def pids(self):
        """The process of each try."""
        return [int(line.split()[1]) for line in self.notes if line.startswith("begin")]

    @property
    def result(self):
        path = self.folder / "result.txt"
        return path.read_text() if path.exists() else None

    def finish(self, result="done"):
        with (self.folder / "result.txt").open("x") as file:  # a second time would be an error
            file.write(result)


def do(job):
    job.note(f"begin {os.getpid()}")
    KINDS[job.kind](job)


def plain(job):
    time.sleep(0.1)
    job.note("end")
    job.finish()


def late_refusal(job):
    time.sleep(0.4)
    raise RangeError(f"{job.name} must be smaller; got 7. Lower it.")


def bug(_):
    {}["nothing there"]


def killed_at_first(job):
    """Keeps half of its work; a first try then waits to be killed, a second one goes on with the other half."""
    checkpoint = job.folder / "checkpoint.txt"
    if not checkpoint.exists():
        checkpoint.write_text("half")
        job.note("half")
        time.sleep(120)
    job.finish(f"{checkpoint.read_text()} and half")


def killed_always(_):
    os.kill(os.getpid(), signal.SIGKILL)


def leaves_without_a_word(_):
    os._exit(3)


def counts_threads(job):
    import torch

    job.finish(f"{torch.get_num_threads()} {os.environ['OMP_NUM_THREADS']}")


def reads_environment(job):
    job.finish(os.environ["OMP_NUM_THREADS"])


def sees_gpus(job):
    job.finish(f"{os.environ.get('CUDA_VISIBLE_DEVICES')} {'torch' in sys.modules}")


def reads_what_a_test_set(job):
    job.finish(os.environ["MULE_OF_A_TEST"])


def endless(job):
    try:
        job.note("waits")
        time.sleep(120)
    finally:
        job.note("unwound")


KINDS = {
    each.__name__: each
    for each in (
        plain,
        late_refusal,
        bug,
        killed_at_first,
        killed_always,
        leaves_without_a_word,
        counts_threads,
        reads_environment,
        sees_gpus,
        reads_what_a_test_set,
        endless,
    )
}


def ignored(_):
    """What nobody needs to hear."""


def wait_until(is_so, *, at_most_s=60.0):
    started_at = time.monotonic()
    while not is_so():
        assert time.monotonic() - started_at < at_most_s
        time.sleep(0.02)


class KilledFromOutside(threading.Thread):
    """Kills the first process of a job, once it has done half of it."""

    def __init__(self, job):
        super().__init__(daemon=True)
        self.job = job
        self.start()

    def run(self):
        wait_until(lambda: "half" in self.job.notes)
        os.kill(self.job.pids[0], signal.SIGKILL)
