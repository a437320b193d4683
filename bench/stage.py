"""How fast Stage renders clips of 32 frames, 96 × 128 pixels, with 1 to 4 actors."""

import time
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from multiprocessing import get_context

from mule.stage.benchmark import StageSet


def clips_per_second(num_clips: int = 200, *, workers: Sequence[int] = (1, 2)) -> dict[int, float]:
    """Return the training clips planned and rendered per second, by number of processes.

    The start of the processes is not counted: over the 2000 clips of a benchmark it does not matter.
    """
    rates = {}
    for count in workers:
        with ProcessPoolExecutor(count, mp_context=get_context("spawn")) as pool:
            list(pool.map(partial(_render_some, 2), [0] * (2 * count)))
            per_worker = num_clips // count
            started_at = time.perf_counter()
            list(
                pool.map(partial(_render_some, per_worker), [number * per_worker for number in range(count)])
            )
            rates[count] = per_worker * count / (time.perf_counter() - started_at)
    return rates


def _render_some(count: int, first: int) -> int:
    clips = StageSet(num_clips=first + count)
    return sum(len(clips.clip(index).frames) for index in range(first, first + count))


def main() -> None:
    for processes, rate in clips_per_second().items():
        goal = " (goal: at least 40)" if processes == 2 else ""
        print(f"{processes} process{'es' if processes > 1 else ''}: {rate:.1f} clips per second{goal}")


if __name__ == "__main__":
    main()
