"""The tables of the paper: their rows, budgets and layout."""

from pathlib import Path

import pytest

from mule.comparison.equal import require_equal_epochs
from mule.comparison.paper_tables import PAPER_TABLES, contestants_of, paper_table
from mule.comparison.rows import gradient_steps
from mule.core.config import ConfigError
from mule.systems.catalogue import SYSTEMS
from mule.training.choosing import inner_steps_of

TINY = ["data.root=x", "data.train_clips=32", "data.val_clips=8", "training.epochs=2"]


def of_stage(number, systems=(), settings=TINY):
    return contestants_of(paper_table(number, systems, experiment=Path("stage")), settings)


def test_table_1_has_m_from_0_to_5_at_equal_epochs():
    rows = of_stage(1)
    assert [each.experiment.objective.inner_steps for each in rows] == [0, 1, 2, 3, 4, 5]
    assert [each.text for each in rows] == [f"m = {m}" for m in range(6)]
    require_equal_epochs(rows)
    steps = [gradient_steps(each.experiment) for each in rows]
    assert steps == [4, 4, 8, 12, 16, 20]  # 2 epochs × 2 batches × m; D6: compared all the same


def test_rows_of_different_epochs_are_not_compared_at_equal_epochs():
    rows = (*of_stage(1)[:1], *of_stage(1, settings=[*TINY, "training.epochs=3"])[1:2])
    with pytest.raises(ConfigError, match=r"equally many epochs; got .* 2, .* 3"):
        require_equal_epochs(rows)


@pytest.mark.parametrize(("number", "num_rows"), [(2, 4), (5, 16)])
def test_tables_of_components_leave_out_one_part_at_a_time(number, num_rows):
    rows = of_stage(number)
    assert len({each.name for each in rows}) == len({each.text for each in rows}) == num_rows
    assert {each.experiment.system for each in rows} == {
        f"mule-literal{part}" for part in ("", "-without-aco-r", "-without-beta-enn", "-without-m-edc")
    }


def test_another_form_of_mule_takes_the_place_of_the_printed_one():
    assert {each.experiment.system for each in of_stage(1, ["mule"])} == {"mule"}


def test_a_row_that_a_table_does_not_have_is_refused_by_name():
    with pytest.raises(
        ConfigError,
        match=r"a row of Table 3: slowfast, acar-bank, .*; got 'acar-bnak'. Did you mean 'acar-bank'",
    ):
        paper_table(3, ["acar-bnak"])


def test_tables_show_what_the_paper_shows():
    by_pe = {number for number, table in PAPER_TABLES.items() if table.scores == ("PE",)}
    has_hours = {number for number, table in PAPER_TABLES.items() if table.measures[-1].key == "hours"}
    assert (by_pe, has_hours) == ({3, 4}, {1})
    assert [len(PAPER_TABLES[number].lines) for number in range(1, 8)] == [6, 4, 10, 10, 16, 10, 10]


@pytest.mark.parametrize("number", PAPER_TABLES)
def test_every_row_of_every_table_is_in_its_experiment(number):
    table = paper_table(number)
    rows = contestants_of(table, ["data.root=x"])
    assert len({each.name for each in rows}) == len(rows) == len(table.lines)
    assert {each.experiment.system for each in rows} <= SYSTEMS.keys()


def test_ablations_keep_the_settings_and_the_steps_of_the_printed_system():
    whole, *parts = contestants_of(paper_table(2), ["data.root=x"])
    for part in parts:
        assert part.experiment.model_copy(update={"system": "mule-literal"}) == whole.experiment
        assert inner_steps_of(part.experiment) == 2
