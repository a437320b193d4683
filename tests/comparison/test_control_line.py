"""The control without pixels in a table: it finds what clips are, is silent of what they show, and skips Stage."""

import numpy as np
import pytest
from made_films import settings_on, write_films
from tiny_rows import JUDGING, tiny_experiment

from mule.comparison.checks import CONTROL, control_note, with_control
from mule.comparison.rows import Row
from mule.comparison.sheets import Findings, FinishedRow
from mule.data.split.splits import ClassSets, SideVideos
from mule.data.table.table import ActorTable
from mule.evaluation.outcomes import PAPER_MEASURES, Comparison, MethodRow, Trial

FILMS = ("film0", "film1", "film2", "film3", "film4")
BARE = Comparison((MethodRow("mule"),), PAPER_MEASURES, ())


def findings_on(folder, data):
    row = Row("made", tiny_experiment(folder, data=data), Trial("made", 0), folder, JUDGING)
    return Findings((FinishedRow(row, "mule", {}),), "mule", {"mule": "PE"})


def films_in(folder, *, novel_frames):
    """One person in each of five films: film 3 shows a known act, film 4 a novel one of another length, or not."""
    labels = np.array([[1, 0], [1, 0], [1, 0], [1, 0], [0, 1]], dtype=bool)
    boxes = np.tile([0.1, 0.2, 0.5, 0.9], (5, 1))
    table = ActorTable(FILMS, ("run", "fly"), np.arange(5), np.full(5, 0.5), boxes, labels, tuple("01234"))
    sides = SideVideos(("film0", "film1"), ("film2",), ("film3", "film4"))
    classes = ClassSets((), ("run",), ("fly",), ())
    write_films(folder, table, classes=classes, sides=sides, frames_of={"film4": novel_frames})
    return findings_on(folder, settings_on(folder, num_known=1))


@pytest.mark.parametrize(
    ("novel_frames", "auroc", "told"),
    [(40, 1.0, "AUROC 1.00 without looking at the video"), (20, 0.5, "0.50; up to 0.55 counts as chance")],
)
def test_the_control_is_a_line_of_the_table_and_says_what_it_means(tmp_path, novel_frames, auroc, told):
    found = with_control(BARE, films_in(tmp_path, novel_frames=novel_frames), "test")
    assert [row.method for row in found.rows] == ["mule", CONTROL]
    (value,) = [each.value for each in found.outcomes if each.measure == "auroc"]
    assert value == auroc
    assert told in (control_note(found) or "")


def test_clips_of_stage_are_all_alike_so_there_is_no_control(tmp_path):
    on_stage = findings_on(tmp_path, {"kind": "stage"})
    assert with_control(BARE, on_stage, "test-uniform") is BARE
    assert control_note(BARE) is None
