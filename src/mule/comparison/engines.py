"""Jobs side by side: each in a process of its own on this machine, or as a Ray task on one machine or many.

A job keeps what it has done by itself (checkpoints, a result file). So one whose process is killed is started again,
goes on from there and leaves its result once. Jobs that fail are named in the end; the others go on.

With Ray (extra `mule[ray]`) every machine needs this package, and the same folders under the same names.
"""

import logging
import os
import pickle
import signal
import sys
import threading
import traceback
from collections import deque
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing import get_all_start_methods, get_context, parent_process
from multiprocessing.connection import wait
from multiprocessing.process import BaseProcess
from multiprocessing.queues import SimpleQueue
from types import FrameType, ModuleType
from typing import Literal, Protocol, TypeVar, runtime_checkable

from mule.core.errors import MuleError, RangeError
from mule.core.heap import keep_freed_memory

MOST_TRIES = 3
"""How often a job is started whose process is killed each time."""
_IMPORTED_LATE = ("torch._dynamo",)
"""What torch imports only when the first optimiser is built, which takes as long as torch itself."""
_LOOK_EVERY_S = 0.2
_GRACE_S = 10.0
_MOST_TOLD = 4_000
"""Characters of a reason: so many are written at once, whole or not at all, and no job waits to be heard."""


@runtime_checkable
class Job(Protocol):
    """What is to be done; it travels to another process, so it must pickle."""

    @property
    def name(self) -> str:
        """What people call it."""
        ...


JobT = TypeVar("JobT", bound=Job)


@dataclass(frozen=True)
class JobFailure:
    """A job that did not come to its end, and why."""

    name: str
    reason: str


def run_jobs(
    jobs: Sequence[JobT],
    work: Callable[[JobT], None],
    *,
    engine: Literal["local", "ray"],
    num_workers: int,
    noted: Callable[[str], None],
) -> tuple[JobFailure, ...]:
    """Every job is done once; those that failed come back, in the order of the jobs.

    Args:
        jobs: what is to be done.
        work: does one job, and when it is started again goes on where it was; a function of a module.
        engine: `local` starts a fresh process for each job; `ray` makes each a task, on the cluster at $RAY_ADDRESS if
            that is set, else on one that lives as long as this call.
        num_workers: how many jobs run at a time, with one thread each. Zero does them here, one after the other; a Ray
            cluster that is already there has its own number.
        noted: hears what people should know meanwhile.

    Raises:
        RangeError: there are fewer than zero workers, or none for Ray.
        MuleError: Ray is not installed.
    """
    least = 1 if engine == "ray" else 0
    if num_workers < least:
        raise RangeError(f"num_workers must be at least {least} with engine {engine}; got {num_workers}.")
    if not jobs:
        return ()
    if engine == "ray":
        reasons = _with_ray(jobs, work, num_workers=num_workers)
    elif num_workers == 0:
        reasons = [_reason_of(work, job) for job in jobs]
    else:
        reasons = _in_processes(jobs, work, num_workers=num_workers, noted=noted)
    return tuple(
        JobFailure(job.name, reason) for job, reason in zip(jobs, reasons, strict=True) if reason is not None
    )


def _reason_of(work: Callable[[JobT], None], job: JobT) -> str | None:
    """Why the job failed, in words; None if it did not."""
    try:
        work(job)
    except MuleError as error:
        return str(error)[:_MOST_TOLD]
    except Exception as error:  # the other jobs go on whatever it is
        return _bug(error)
    return None


def _bug(error: Exception) -> str:
    """An error nobody foresaw, with the place to look at first."""
    message = "".join(traceback.format_exception_only(error)).strip()
    place = traceback.extract_tb(error.__traceback__)[-1]
    return f"{message[:_MOST_TOLD]} ({place.filename}, line {place.lineno})"


@dataclass(frozen=True)
class _Child:
    """A process with one job."""

    number: int
    num_tries: int
    process: BaseProcess
    outcome: SimpleQueue[str | None]

    def end(self) -> None:
        """Nothing of it is left."""
        self.process.join(_GRACE_S)
        if self.process.is_alive():
            self.process.kill()
        self.process.join()


def _in_processes(
    jobs: Sequence[JobT], work: Callable[[JobT], None], *, num_workers: int, noted: Callable[[str], None]
) -> list[str | None]:
    """The reason of each job, or None. A job whose process was killed waits until others have had their turn."""
    reasons: list[str | None] = [None] * len(jobs)
    waiting = deque((number, 1) for number in range(len(jobs)))
    running: list[_Child] = []
    try:
        while waiting or running:
            while waiting and len(running) < num_workers:
                number, num_tries = waiting.popleft()
                running.append(_started(jobs[number], work, number=number, num_tries=num_tries))
            wait([child.process.sentinel for child in running], timeout=_LOOK_EVERY_S)
            for child in [child for child in running if child.process.exitcode is not None]:
                running.remove(child)
                number = child.number
                if not child.outcome.empty():
                    reasons[number] = child.outcome.get()
                elif _was_killed(child) and child.num_tries < MOST_TRIES:
                    waiting.append((number, child.num_tries + 1))
                    noted(
                        f"{jobs[number].name}: its process {_ending(child)}. It is started again where it was, try "
                        f"{child.num_tries + 1} of {MOST_TRIES}. Most often memory ran out: fewer workers need less."
                    )
                else:
                    reasons[number] = (
                        f"its process {_ending(child)}, at try {child.num_tries} of {MOST_TRIES}."
                    )
    finally:
        for child in running:
            child.process.terminate()
        for child in running:
            child.end()
    return reasons


def _was_killed(child: _Child) -> bool:
    return (child.process.exitcode or 0) < 0


def _ending(child: _Child) -> str:
    code = child.process.exitcode or 0
    how = (
        f"was killed by signal {-code} ({signal.strsignal(-code)})"
        if code < 0
        else f"ended with exit code {code}"
    )
    return f"{how} before the job was done"


def _started(job: JobT, work: Callable[[JobT], None], *, number: int, num_tries: int) -> _Child:
    """A child without the threads of this process, whose locks a fork would copy.

    Where there is a fork server, it has imported what the work needs once, for all jobs: seconds of each.
    """
    has_server = "forkserver" in get_all_start_methods()
    fresh = get_context("forkserver") if has_server else get_context("spawn")
    fresh.set_forkserver_preload([work.__module__, *_IMPORTED_LATE])
    outcome: SimpleQueue[str | None] = fresh.SimpleQueue()
    with _one_thread_in_environment():
        packed = pickle.dumps((work, job))
        process = fresh.Process(target=_do_in_child, args=(packed, dict(os.environ), outcome), name=job.name)
        process.start()
    return _Child(number, num_tries, process, outcome)


@contextmanager
def _one_thread_in_environment() -> Generator[None]:
    """Numeric libraries read it when they are loaded, which in a child is before any code of ours."""
    before = os.environ.get("OMP_NUM_THREADS")
    os.environ["OMP_NUM_THREADS"] = "1"
    try:
        yield
    finally:
        os.environ.pop("OMP_NUM_THREADS")
        if before is not None:
            os.environ["OMP_NUM_THREADS"] = before


def _do_in_child(packed: bytes, environment: dict[str, str], outcome: SimpleQueue[str | None]) -> None:
    """Does the job and says how it went. Ctrl-C is the parent's affair; its SIGTERM unwinds, so nothing stays open.

    The environment is the parent's as it is now; a fork server has the one it was started with.
    """
    os.environ.clear()
    os.environ.update(environment)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, _leave)
    threading.Thread(target=_leave_with_parent, daemon=True).start()
    keep_freed_memory()
    try:
        work, job = pickle.loads(packed)
    except Exception as error:  # a package may be missing here
        outcome.put(_bug(error))
    else:
        outcome.put(_with_one_thread(work, job))


def _with_one_thread(work: Callable[[JobT], None], job: JobT) -> str | None:
    if "torch" in sys.modules:  # loaded with the work; if later, the environment says it
        import torch

        torch.set_num_threads(1)
    return _reason_of(work, job)


def _leave(signum: int, _: FrameType | None) -> None:
    signal.signal(
        signum, signal.SIG_IGN
    )  # once is enough; a second one would break into what the first one closes
    sys.exit(128 + signum)


def _leave_with_parent() -> None:
    """Two processes on one job would be the end of its files, once the same command is given again."""
    parent = parent_process()
    if parent is not None:
        parent.join()
        os.kill(os.getpid(), signal.SIGTERM)


def _with_ray(jobs: Sequence[JobT], work: Callable[[JobT], None], *, num_workers: int) -> list[str | None]:
    """The reason of each job, or None. Ray itself starts a job again whose worker or machine is lost."""
    ray = _ray()
    is_ours = not ray.is_initialized()
    if is_ours:
        ray.init(**_cluster(num_workers))
    try:
        task = ray.remote(
            num_cpus=1,
            max_retries=MOST_TRIES - 1,
            runtime_env={"env_vars": {"OMP_NUM_THREADS": "1"}},
        )(_with_one_thread)
        outcomes = [task.options(name=job.name).remote(work, job) for job in jobs]
        try:
            return [_ray_outcome(ray, outcome) for outcome in outcomes]
        except BaseException:  # Ctrl-C too: a cluster that goes on must not go on with these
            for outcome in outcomes:
                ray.cancel(outcome, force=True)
            raise
    finally:
        if is_ours:
            ray.shutdown()


def _ray_outcome(ray: ModuleType, outcome: object) -> str | None:
    try:
        return ray.get(outcome)
    except ray.exceptions.RayError as error:
        return f"Ray gave it up, after {MOST_TRIES} tries if workers were lost: {error}"[:_MOST_TOLD]


def _cluster(num_workers: int) -> dict[str, object]:
    """How to join the cluster that is there, or to start a quiet one on this machine."""
    quiet = {"log_to_driver": False, "logging_level": logging.ERROR}
    address = os.environ.get("RAY_ADDRESS")
    if address:
        return {"address": address, **quiet}
    return {
        "address": "local",
        "num_cpus": num_workers,
        "include_dashboard": False,
        "object_store_memory": 80 * 2**20,  # what travels are jobs and reasons; near the least Ray allows
        **quiet,
    }


def _ray() -> ModuleType:
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")  # read when it is imported
    try:
        import ray
    except ImportError as missing:
        raise MuleError(
            f"engine ray needs Ray: pip install 'mule[ray]', or use engine local. It could not be imported: {missing}"
        ) from None
    return ray
