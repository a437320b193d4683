"""How many threads compute at once: one rule for torch, OpenVINO, onnxruntime, FFmpeg, workers and pools.

A process has as many threads as it may use cores, divided by the processes that compute beside it (`threads_each`). In a
command torch is told so before it is loaded, everything else asks torch, and workers and threads behind another one have one
thread each. Threads that wait for each other sleep: by default OpenMP's burn their core for milliseconds instead, and
where another process has that core, a step of training takes ten times as long.
"""

import math
import os
from pathlib import Path

QUOTA = Path("/sys/fs/cgroup/cpu.max")
"""A container's microseconds of processor time, and the period that they are for."""
NUM_THREADS, WAIT_POLICY = "OMP_NUM_THREADS", "OMP_WAIT_POLICY"


def num_cores() -> int:
    """Return the cores that this process may use: those it is bound to, and no more than its container is granted.

    >>> num_cores() >= 1
    True
    """
    bound = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    try:
        quota, period = QUOTA.read_text().split()
        return max(1, min(bound, math.ceil(int(quota) / int(period))))
    except (OSError, ValueError, ZeroDivisionError):  # no container, or one without a limit
        return bound


def threads_each(num_processes: int = 1) -> int:
    """Return the threads of each of several processes that compute side by side; OMP_NUM_THREADS may lower it.

    >>> threads_each(10_000)
    1
    """
    share = max(1, num_cores() // max(1, num_processes))
    wanted = os.environ.get(NUM_THREADS, "").split(",")[0]
    return max(1, min(share, int(wanted))) if wanted.isdecimal() else share


def share_cores() -> None:
    """Tell torch, which must not be loaded yet, and all processes to come how many threads to use, and to wait asleep.

    It affects the whole process, so only commands call it; importing the library does not.
    """
    os.environ.setdefault(NUM_THREADS, str(threads_each()))
    os.environ.setdefault(WAIT_POLICY, "PASSIVE")
