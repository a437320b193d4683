"""`mule evaluate far`, shown."""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from mule.cli import remember
from mule.cli.show_compare import command_shown, experiment_of, noted, sheet_shown, side_results
from mule.comparison.far import far_sheets, judge_far
from mule.comparison.judging import Judging
from mule.comparison.score_rules import SCORE_NAMES
from mule.report.formats import escaped_markdown, markdown
from mule.report.tables import Sheet
from mule.training.checkpoint import write_whole

Others = Sequence[tuple[Path, Path]]
"""Tables of actors, each with the folder of its videos."""


def far(
    run_dirs: Sequence[Path],
    others: Others,
    *,
    settings: Sequence[str],
    scores: Sequence[str],
    resamples: int,
    docs: Path | None,
) -> None:
    """Judges by every score and prints; nothing is kept but the maps of a frozen backbone, and the page if it is wanted."""
    judging = Judging(scores=tuple(scores or SCORE_NAMES), dropout_passes=0, resamples=resamples)
    found = []
    for run_dir in run_dirs:
        seen = {
            actors.stem: remember.outputs_in_table(run_dir, actors, videos, settings=settings)
            for actors, videos in others
        }
        experiment = experiment_of(run_dir, settings)
        found.append(judge_far(run_dir, experiment, seen, judging=judging, noted=noted))
    sheets = far_sheets(found)
    if docs is not None:
        docs.parent.mkdir(parents=True, exist_ok=True)
        write_whole(docs, "\n".join(_page(sheets)) + "\n")
    if len(found) == 1:
        side_results(dict(found[0]))
        return
    for system, sheet in sheets.items():
        sheet_shown(sheet, system)


def _page(sheets: Mapping[str, Sheet]) -> Iterator[str]:
    yield "# Near and far novelty"
    yield ""
    yield f"Made by `{command_shown()}`; nothing on this page was written by hand."
    yield ""
    yield (
        "Near: actions never taught, in videos of the same kind as those of training; the first column. Far: everybody in "
        "other videos, but those who do an action of a known name, against the known actors of the test side. Other videos "
        "differ in camera, light and size of people too, so a score may do well there without knowing anything of actions: "
        "what counts is near. A system with a memory and its twin without share one network, so a score has the same "
        "numbers on both."
    )
    for system, sheet in sheets.items():
        yield ""
        yield f"## {escaped_markdown(system)}"
        yield ""
        yield markdown(sheet).rstrip("\n")
