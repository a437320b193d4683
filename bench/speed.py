"""`make bench`: every speed we claim, as a ratio within one run, written to docs/BENCHMARKS.md."""

from pathlib import Path

from bench import constraint, losses, metrics
from bench.timing import Comparison, machine, replace_section

PAGE = Path("docs/BENCHMARKS.md")


def main() -> None:
    found = []
    for part in (losses, constraint, metrics):
        for comparison in part.comparisons():
            print(comparison.row())
            found.append(comparison)
    sizes = metrics.full_size()
    print("\n".join(sizes))
    text = "\n".join([Comparison.HEADER, *[c.row() for c in found], "", "At full size:", "", *sizes, ""])
    replace_section(PAGE, "speed", f"{text}\nMeasured by `make bench` on {machine()}.")


if __name__ == "__main__":
    main()
