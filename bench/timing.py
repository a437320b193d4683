"""Timings for a noisy machine: rivals take turns, and medians are compared."""

import platform
import statistics
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import torch

import mule


@dataclass(frozen=True)
class Comparison:
    """Two timings of the same task: ours and a rival's."""

    HEADER: ClassVar[str] = (
        "| what | compared with | ours | theirs | speedup | goal |\n|---|---|---|---|---|---|"
    )

    what: str
    against: str
    ours_s: float
    theirs_s: float
    goal: str = ""

    def row(self) -> str:
        """Return the row of the table."""
        times = (
            f"{1000 * self.ours_s:.3g} ms | {1000 * self.theirs_s:.3g} ms | {self.theirs_s / self.ours_s:.2f}"
        )
        return f"| {self.what} | {self.against} | {times} | {self.goal} |"


def take_turns(rivals: Mapping[str, Callable[[], object]], *, seconds: float = 3.0) -> dict[str, float]:
    """Return the median time of each rival in seconds; the rivals run in turn, repeatedly."""
    for run in rivals.values():
        run()
    times: dict[str, list[float]] = {name: [] for name in rivals}
    started_at = time.perf_counter()
    while time.perf_counter() - started_at < seconds or len(next(iter(times.values()))) < 3:
        for name, run in rivals.items():
            before = time.perf_counter()
            run()
            times[name].append(time.perf_counter() - before)
    return {name: statistics.median(series) for name, series in times.items()}


def machine() -> str:
    """Describe processor, threads and versions in one line."""
    model = next(
        (
            line.split(":", 1)[1].strip()
            for line in Path("/proc/cpuinfo").read_text().splitlines()
            if "model name" in line
        ),
        platform.processor(),
    )
    threads = torch.get_num_threads()
    return (
        f"{model}, {threads} thread{'s' * (threads != 1)}, Python {platform.python_version()}, "
        f"torch {torch.__version__}, mule {mule.__version__}"
    )


def replace_section(path: Path, name: str, text: str) -> None:
    """Put `text` between `<!-- name -->` and `<!-- /name -->`; the rest of the page is written by hand."""
    page = path.read_text()
    start, end = f"<!-- {name} -->", f"<!-- /{name} -->"
    before, rest = page.split(start)
    after = rest.split(end)[1]
    path.write_text(f"{before}{start}\n{text.strip()}\n{end}{after}")
