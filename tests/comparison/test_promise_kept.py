"""Known actors flagged, group by group: who is counted, and when a group is off the promise."""

from dataclasses import replace

import numpy as np
import pytest
from made_outputs import made_outputs

from mule.comparison.checks import coverage_sheet, known_coverage
from mule.core.errors import TooFewActors
from mule.data.batches.samples import ClipName
from mule.evaluation.formats import markdown

HELD_OUT = np.arange(99.0)
"""At most 5 % are promised by the fifth largest, 94: of a hundred, five lie above."""


def side_of(num_actors, *, num_novel=0, of_one_video=0):
    found = made_outputs(num_actors, seed=1)
    is_novel = np.arange(num_actors) >= num_actors - num_novel
    names = [ClipName("lobby" if i < of_one_video else f"v{i}", float(i)) for i in range(num_actors)]
    return replace(found, truth=replace(found.truth, is_novel=is_novel), clip_names=tuple(names))


def test_only_known_actors_are_counted_each_under_what_it_does():
    novelty = np.array([0.0, 94.0, 94.5, 99.0, 99.0, 99.0, 99.0])
    found = known_coverage(side_of(7, num_novel=2), novelty, HELD_OUT)
    assert (found.overall.num_known, found.overall.num_flagged) == (5, 3)
    counts = {name: (group.num_known, group.num_flagged) for name, group in found.groups.items()}
    assert counts == {"bow": (2, 1), "run": (2, 1), "wave": (1, 1)}


def test_a_video_with_enough_known_actors_is_a_group_and_is_off_if_it_is_flagged():
    outputs = side_of(90, of_one_video=30)
    novelty = np.where(np.arange(90) < 30, 95.0 * (np.arange(90) % 2), 50.0)
    found = known_coverage(outputs, novelty, HELD_OUT)
    assert list(found.groups) == ["bow", "run", "wave", "lobby"]
    assert [name for name, group in found.groups.items() if group.is_off] == ["lobby"]
    assert found.groups["lobby"].share == 0.5


def test_trials_are_counted_together_and_tested_apart():
    outputs = side_of(60)
    quiet, loud = (known_coverage(outputs, np.full(60, value), HELD_OUT) for value in (0.0, 95.0))
    sheet = coverage_sheet([quiet, loud], "mule by PE")
    first, bow = markdown(sheet).splitlines()[2:4]
    assert first == "| everybody | 120 | **50.0 %** | 1 of 2 |"
    assert bow == "| bow | 40 | **50.0 %** | 1 of 2 |"
    assert "the conformal quantile of 99 known actors" in sheet.notes[0]


def test_too_few_held_out_actors_promise_nothing():
    with pytest.raises(TooFewActors, match="at least 19"):
        known_coverage(side_of(9), np.zeros(9), np.arange(18.0))
