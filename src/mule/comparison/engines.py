"""Run jobs in parallel: each in a process of its own on this machine, or as a Ray task on one machine or many.

A job saves its own progress (checkpoints, a result file). A job whose process is killed is started again and
resumes from there. A job that fails is reported at the end and does not stop the others. Where there are GPUs, each
job sees one of them; if there are more jobs at a time than GPUs, they share.

With Ray (extra `mule-actions[ray]`), every machine needs this package and the same folders under the same names.
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
from mule.core.files import os_reason
from mule.core.heap import keep_freed_memory
from mule.core.signals import without_ctrl_c

MOST_TRIES = 3
"""How often to start a job whose process keeps being killed."""
_IMPORTED_LATE = ("torch._dynamo",)
"""Modules that torch imports when the first optimiser is built, which takes as long as torch itself."""
_LOOK_EVERY_S = 0.2
_GRACE_S = 10.0
_LONGEST_REASON = 4_000
"""Characters of a reason: a pipe takes so many at once, so no job waits until its reason is read."""


@runtime_checkable
class Job(Protocol):
    """A piece of work. It travels to another process, so it must pickle."""

    @property
    def name(self) -> str:
        """Its name in messages."""
        ...


JobT = TypeVar("JobT", bound=Job)


@dataclass(frozen=True)
class JobFailure:
    """A job that failed, and why."""

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
    """Run every job once; return those that failed, in the order of the jobs.

    Args:
        jobs: the work to do.
        work: does one job, and resumes one that was interrupted; must be a function of a module.
        engine: `local` starts a new process for each job; `ray` runs each as a task, on the cluster at $RAY_ADDRESS if that
            is set, else on a cluster that lives as long as this call.
        num_workers: jobs to run in parallel, with one thread each; 0 runs them in this process, one after the other. An
            existing Ray cluster has its own number.
        noted: receives a sentence when a job is started again.

    Raises:
        RangeError: the number of workers is negative, or zero with Ray.
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
        reasons = list[str | None]()
        for job in jobs:
            try:
                work(job)
                reasons.append(None)
            except Exception as error:  # the other jobs run whatever it is
                reasons.append(_reason(error))
    else:
        reasons = _in_processes(jobs, work, num_workers=num_workers, noted=noted)
    return tuple(
        JobFailure(job.name, reason) for job, reason in zip(jobs, reasons, strict=True) if reason is not None
    )


def _reason(error: Exception) -> str:
    """Why a job failed; a bug comes with the place to look at first."""
    if isinstance(error, MuleError):
        return str(error)[:_LONGEST_REASON]
    if isinstance(error, OSError) and error.filename is not None:
        return f"{error.filename}: must be usable; {os_reason(error)}."
    message = "".join(traceback.format_exception_only(error)).strip()
    place = traceback.extract_tb(error.__traceback__)[-1]
    return f"{message[:_LONGEST_REASON]} ({place.filename}, line {place.lineno})"


@dataclass(frozen=True)
class _Child:
    """A process that runs one job."""

    number: int
    num_tries: int
    process: BaseProcess
    outcome: SimpleQueue[str | None]
    gpu: str | None
    """What CUDA calls the GPU that it sees; None where there is none."""

    def end(self) -> None:
        """Wait for the process to end; kill it if it does not."""
        self.process.join(_GRACE_S)
        if self.process.is_alive():
            self.process.kill()
        self.process.join()


def _in_processes(
    jobs: Sequence[JobT], work: Callable[[JobT], None], *, num_workers: int, noted: Callable[[str], None]
) -> list[str | None]:
    """The reason why each job failed, or None.

    A killed job is started again after the jobs that still wait.
    """
    reasons: list[str | None] = [None] * len(jobs)
    waiting = deque((number, 1) for number in range(len(jobs)))
    running: list[_Child] = []
    gpus = visible_gpus()
    try:
        while waiting or running:
            while waiting and len(running) < num_workers:
                number, num_tries = waiting.popleft()
                gpu = least_used(gpus, [child.gpu for child in running])
                running.append(_started(jobs[number], work, number=number, num_tries=num_tries, gpu=gpu))
            wait([child.process.sentinel for child in running], timeout=_LOOK_EVERY_S)
            for child in [child for child in running if child.process.exitcode is not None]:
                running.remove(child)
                number = child.number
                if not child.outcome.empty():
                    reasons[number] = child.outcome.get()
                elif _was_killed(child) and child.num_tries < MOST_TRIES:
                    waiting.append((number, child.num_tries + 1))
                    noted(
                        f"{jobs[number].name}: its process {_ending(child)}. Resuming it, try {child.num_tries + 1} of "
                        f"{MOST_TRIES}. The usual cause is too little memory; fewer workers need less."
                    )
                else:
                    reasons[number] = (
                        f"its process {_ending(child)}, in try {child.num_tries} of {MOST_TRIES}."
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
    return f"{how} before the job was finished"


def visible_gpus() -> list[str]:
    """Return what CUDA calls the GPUs that this process sees, without using any of them."""
    import torch

    num_gpus = torch.cuda.device_count()
    chosen = os.environ.get("CUDA_VISIBLE_DEVICES")
    names = [str(number) for number in range(num_gpus)] if chosen is None else chosen.split(",")
    return names[:num_gpus]


def least_used(gpus: Sequence[str], in_use: Sequence[str | None]) -> str | None:
    """Return the first of the GPUs that fewest jobs use; None if there are no GPUs."""
    return min(gpus, key=in_use.count, default=None)


def _started(
    job: JobT, work: Callable[[JobT], None], *, number: int, num_tries: int, gpu: str | None
) -> _Child:
    """Start a job in a new process, without the threads of this one, whose locks a fork would copy.

    Where there is a fork server, it imports what the work needs once for all jobs, which saves seconds per job. A job with
    a GPU starts without it: CUDA must not have been loaded when it is told which GPU to see.
    """
    has_server = "forkserver" in get_all_start_methods() and gpu is None
    fresh = get_context("forkserver") if has_server else get_context("spawn")
    fresh.set_forkserver_preload([work.__module__, *_IMPORTED_LATE])
    outcome: SimpleQueue[str | None] = fresh.SimpleQueue()
    with _in_environment(OMP_NUM_THREADS="1", **({} if gpu is None else {"CUDA_VISIBLE_DEVICES": gpu})):
        packed = pickle.dumps((work, job))
        process = fresh.Process(target=_do_in_child, args=(packed, dict(os.environ), outcome), name=job.name)
        with without_ctrl_c():
            process.start()
    return _Child(number, num_tries, process, outcome, gpu)


@contextmanager
def _in_environment(**variables: str) -> Generator[None]:
    """Set variables while a child starts; numeric libraries and CUDA read them when they are loaded."""
    before = {name: os.environ.get(name) for name in variables}
    os.environ.update(variables)
    try:
        yield
    finally:
        for name, value in before.items():
            os.environ.pop(name)
            if value is not None:
                os.environ[name] = value


def _do_in_child(packed: bytes, environment: dict[str, str], outcome: SimpleQueue[str | None]) -> None:
    """Run the job and report the outcome.

    The parent handles Ctrl-C and sends SIGTERM, which closes all files.

    The environment is the parent's present one; a fork server would use the one it was started with.
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
        outcome.put(_reason(error))
    else:
        outcome.put(_with_one_thread(work, job))


def _with_one_thread(work: Callable[[JobT], None], job: JobT) -> str | None:
    if "torch" in sys.modules:  # loaded with the work; if it is loaded later, it reads the environment
        import torch

        torch.set_num_threads(1)
    try:
        work(job)
    except Exception as error:  # the other jobs run whatever it is
        return _reason(error)
    return None


def _leave(signum: int, _: FrameType | None) -> None:
    signal.signal(signum, signal.SIG_IGN)  # a second signal would interrupt the clean-up of the first
    sys.exit(128 + signum)


def _leave_with_parent() -> None:
    """End with the parent: if the command is given again, two processes must not write the same files."""
    parent = parent_process()
    if parent is not None:
        parent.join()
        os.kill(os.getpid(), signal.SIGTERM)


def _with_ray(jobs: Sequence[JobT], work: Callable[[JobT], None], *, num_workers: int) -> list[str | None]:
    """The reason why each job failed, or None. Ray itself restarts jobs whose worker or machine is lost."""
    ray = _ray()
    is_ours = not ray.is_initialized()
    if is_ours:
        ray.init(**_cluster(num_workers))
    try:
        task = ray.remote(
            num_cpus=1,
            num_gpus=1 if ray.cluster_resources().get("GPU") else 0,
            max_retries=MOST_TRIES - 1,
            runtime_env={"env_vars": {"OMP_NUM_THREADS": "1"}},
        )(_with_one_thread)
        outcomes = [task.options(name=job.name).remote(work, job) for job in jobs]
        try:
            return [_ray_outcome(ray, outcome) for outcome in outcomes]
        except BaseException:  # Ctrl-C too: an existing cluster must not continue with these
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
        return f"Ray gave up, after {MOST_TRIES} tries if workers were lost: {error}"[:_LONGEST_REASON]


def _cluster(num_workers: int) -> dict[str, object]:
    """Arguments that join the existing cluster, or start a quiet one on this machine."""
    quiet = {"log_to_driver": False, "logging_level": logging.ERROR}
    address = os.environ.get("RAY_ADDRESS")
    if address:
        return {"address": address, **quiet}
    return {
        "address": "local",
        "num_cpus": num_workers,
        "include_dashboard": False,
        "object_store_memory": 80 * 2**20,  # only jobs and reasons travel; near Ray's minimum
        **quiet,
    }


def _ray() -> ModuleType:
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")  # Ray reads it when it is imported
    try:
        import ray
    except ImportError as missing:
        raise MuleError(
            f"--engine ray needs the package Ray, which cannot be imported: {missing}. Run `pip install 'mule-actions[ray]'`, or use "
            "--engine local."
        ) from None
    return ray
