"""Work spread over processes, done in any order, reported as it gets done."""

from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from multiprocessing import get_context
from typing import TypeVar

from mule.core.errors import RangeError

Item = TypeVar("Item")
OnProgress = Callable[[int, int], None]


def silent(num_done: int, num_all: int) -> None:
    """Progress nobody asked for."""


def do_all(
    work: Callable[[Item], int], items: Sequence[Item], *, workers: int, report: Callable[[int], None]
) -> None:
    """Calls `work` on every item; `report` hears how much each did. With one worker no process is started.

    Processes are started afresh (spawn), so `work` must be a function of a module or a partial of one.

    Raises:
        RangeError: there must be a worker.
    """
    if workers < 1:
        raise RangeError(f"workers must be at least 1; got {workers}.")
    if workers == 1 or len(items) < 2:
        for item in items:
            report(work(item))
        return
    with ProcessPoolExecutor(min(workers, len(items)), mp_context=get_context("spawn")) as pool:
        waiting = [pool.submit(work, item) for item in items]
        try:
            for future in as_completed(waiting):
                report(future.result())
        except BaseException:
            pool.shutdown(wait=True, cancel_futures=True)
            raise
