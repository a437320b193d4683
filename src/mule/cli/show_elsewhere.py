"""`mule evaluate far` and `mule evaluate looks`, shown: runs judged on videos that are no part of their data."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from mule.cli import remember
from mule.cli.evaluate_run import print_results
from mule.cli.printing import command_shown, noted, print_sheet
from mule.cli.show_looks import looks_in_words, looks_table
from mule.comparison.far import judge_far
from mule.comparison.looks import Takes, judge_takes
from mule.comparison.run_means import mean_sheets
from mule.core.files import write_file
from mule.evaluation.formats import escaped_markdown, markdown
from mule.evaluation.tables import Sheet
from mule.inference.judging import Judging
from mule.training.experiments import experiment_of

NEAR_AND_FAR = (
    "Near: actions never taught, in videos of the same kind as those of training; the first column. Far: everybody in other "
    "videos, but those who do an action of a known name, against the known actors of the test side. Other videos differ in "
    "camera, light and size of people too, so a score may do well there without knowing anything of actions: what counts is "
    "near."
)
LOOKS = (
    "The same tracks judged with their first look, the first two, four, eight. A track is of one actor while it does the same "
    "actions; one that has fewer looks gives all it has. Evidence is fused along a track; rivals get the mean output and "
    "feature. Runs were trained on single looks; thresholds and p-values are of held-out tracks of as many looks."
)


class Videos(NamedTuple):
    """A table of actors, and the folder of its videos."""

    actors: Path
    folder: Path


def far(
    run_dirs: Sequence[Path],
    others: Sequence[Videos],
    *,
    settings: Sequence[str],
    judging: Judging,
    docs: Path | None,
) -> None:
    """Judges by every score and prints; nothing is kept but the maps of a frozen backbone, and the page if it is wanted."""
    found = []
    for run_dir in run_dirs:
        seen = {
            each.actors.stem: remember.outputs_in_table(run_dir, *each, settings=settings) for each in others
        }
        experiment = experiment_of(run_dir, settings)
        found.append(judge_far(run_dir, experiment, seen, judging=judging, noted=noted))
    if len(found) == 1:
        print_results(found[0])
    _told(mean_sheets(found), "Near and far novelty", NEAR_AND_FAR, is_shown=len(found) > 1, docs=docs)


def looks(
    run_dirs: Sequence[Path],
    takes: Videos,
    held_out: Videos,
    *,
    looks: Sequence[int],
    settings: Sequence[str],
    judging: Judging,
    docs: Path | None,
) -> None:
    """Judges tracks of takes by every score with more and more looks, and prints."""
    found = []
    for run_dir in run_dirs:
        seen = Takes(
            *(remember.outputs_in_table(run_dir, *each, settings=settings) for each in (takes, held_out))
        )
        experiment = experiment_of(run_dir, settings)
        found.append(judge_takes(run_dir, experiment, seen, looks=looks, judging=judging, noted=noted))
    if len(found) == 1:
        looks_table("takes", found[0])
    titled = [{looks_in_words(number): result for number, result in each.items()} for each in found]
    _told(mean_sheets(titled), "More looks", LOOKS, is_shown=len(found) > 1, docs=docs)


def _told(
    sheets: Mapping[str, Sheet], title: str, meaning: str, *, is_shown: bool, docs: Path | None
) -> None:
    """The tables on the screen, and as a page if it is wanted."""
    if is_shown:
        for system, sheet in sheets.items():
            print_sheet(sheet, system)
    if docs is None:
        return
    page = [f"# {title}", "", f"Made by `{command_shown()}`; nothing on this page was written by hand."]
    page += ["", meaning]
    for system, sheet in sheets.items():
        page += ["", f"## {escaped_markdown(system)}", "", markdown(sheet).rstrip("\n")]
    docs.parent.mkdir(parents=True, exist_ok=True)
    write_file(docs, "\n".join(page) + "\n")
