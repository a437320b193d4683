"""What more looks at each actor are worth: the same tracks judged with their first look, the first two, four, eight."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from mule.build_data import Noted
from mule.comparison.judging import Judging, judge_run
from mule.comparison.results import SideResult
from mule.config import Experiment

NUMBERS_OF_LOOKS = (1, 2, 4, 8)


def judge_looks(
    run_dir: Path,
    experiment: Experiment,
    side: str,
    *,
    looks: Sequence[int] = NUMBERS_OF_LOOKS,
    judging: Judging,
    noted: Noted,
) -> dict[int, SideResult]:
    """How well every score does with the first few looks at each track, by their number; on the same tracks each time.

    Args:
        run_dir: the folder of the run.
        experiment: its experiment, with the data where they now lie.
        side: of its data.
        looks: numbers of looks.
        judging: how; by track, whatever it says.
        noted: is told what is being computed.

    Raises:
        RangeError: nobody was followed on that side, or a number is below one.
    """
    found: dict[int, SideResult] = {}
    for number in looks:
        wanted = replace(judging, by="track", most_looks=number)
        results = judge_run(run_dir, experiment, sides=[side], judging=wanted, noted=noted)
        found[number] = results[wanted.name_of(side)]
    return found
