"""`make bench`: measure every speed as a ratio within one run, and write docs/BENCHMARKS.md."""

import sys
from collections.abc import Callable
from contextlib import redirect_stdout
from io import StringIO
from pathlib import Path

from bench import (
    backbones,
    constraint,
    loading,
    losses,
    metrics,
    relations,
    searching,
    shared_work,
    stage,
    tracking,
    training,
    video,
    watching,
)
from bench.timing import Comparison, machine, replace_section
from mule.core.heap import keep_freed_memory

PAGE = Path("docs/BENCHMARKS.md")
PRINTED: dict[str, Callable[[], None]] = {
    "video": video.main,
    "tracking": tracking.main,
    "backbones": backbones.main,
    "relations": relations.main,
    "stage": stage.main,
    "loading": loading.main,
    "training": training.main,
    "searching": searching.main,
    "watching": watching.main,
}
MARKDOWN = ("backbones", "relations", "loading")
"""Sections that print Markdown; the others print plain text."""


def main() -> None:
    """Measure all sections, or only those named on the command line."""
    keep_freed_memory()  # as every command does
    chosen = sys.argv[1:] or ["mathematics", *PRINTED, "shared_work"]
    sys.argv = sys.argv[:1]
    if "mathematics" in chosen:
        mathematics()
    for name, run in PRINTED.items():
        if name in chosen:
            with redirect_stdout(StringIO()) as printed:
                run()
            print(printed.getvalue())
            text = printed.getvalue().rstrip()
            if name not in MARKDOWN:
                text = f"```\n{text}\n```"
            replace_section(PAGE, name, f"{text}\n\nMeasured by `make bench` on {machine()}.")
    if "shared_work" in chosen:
        rows = "\n".join(shared_work.table())
        print(rows)
        replace_section(PAGE, "shared_work", f"{rows}\n\n{shared_work.WHY}")


def mathematics() -> None:
    measured = []
    for part in (losses, constraint, metrics):
        for comparison in part.comparisons():
            print(comparison.row())
            measured.append(comparison)
    sizes = metrics.full_size()
    print("\n".join(sizes))
    text = "\n".join([Comparison.HEADER, *[c.row() for c in measured], "", "Full size:", "", *sizes, ""])
    replace_section(PAGE, "mathematics", f"{text}\nMeasured by `make bench` on {machine()}.")


if __name__ == "__main__":
    main()
