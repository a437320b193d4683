"""How fast clips are rendered, for benchmarks of this package."""

import time
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from multiprocessing import get_context

from mule.stage.benchmark import StageSet


def clips_per_second(num_clips: int = 200, *, workers: Sequence[int] = (1, 2)) -> dict[int, float]:
    """Training clips (32 × 96 × 128, 1 to 4 actors) planned and rendered per second, by number of processes.

    The start of the processes is not counted: a benchmark of 2000 clips and more has long forgotten it.
    """
    found = {}
    for count in workers:
        with ProcessPoolExecutor(count, mp_context=get_context("spawn")) as pool:
            list(pool.map(partial(_render_some, 2), [0] * (2 * count)))
            per_worker = num_clips // count
            started_at = time.perf_counter()
            list(
                pool.map(partial(_render_some, per_worker), [number * per_worker for number in range(count)])
            )
            found[count] = per_worker * count / (time.perf_counter() - started_at)
    return found


def _render_some(count: int, first: int) -> int:
    clips = StageSet(num_clips=first + count)
    return sum(len(clips.clip(index).frames) for index in range(first, first + count))
