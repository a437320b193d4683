"""Rows of a comparison: finished ones stay, unfinished ones go on, changed ones are refused, budgets are equal."""

import json
from dataclasses import replace

import pytest
from tiny_rows import JUDGING, contestants, silent, times_of, tiny_experiment, watched_by_nobody

from mule.comparison import compare as comparing
from mule.comparison import equal, rows
from mule.comparison.compare import quickened, run_comparison
from mule.comparison.equal import at_equal_time, require_equal_steps, stretched, with_steps
from mule.comparison.rows import (
    Contestant,
    finish_row,
    gradient_steps,
    planned_rows,
    require_same_rows,
    results_of,
)
from mule.core.config import ConfigError
from mule.core.errors import MuleError
from mule.core.locks import FolderInUseError, only_writer
from mule.core.settings import StageData
from mule.evaluation.outcomes import Trial


def test_no_experiments_and_two_of_one_name_are_refused(root, tmp_path):
    with pytest.raises(ConfigError, match="at least one experiment; got none"):
        planned_rows([], tmp_path, seeds=[0], judging=JUDGING)
    twice = contestants(root, "mule", "slowfast") + contestants(root, "mule")
    with pytest.raises(ConfigError, match="got mule twice"):
        planned_rows(twice, tmp_path, seeds=[0], judging=JUDGING)


def test_a_row_for_every_experiment_split_and_seed_whose_seed_draws_the_data_too(root, tmp_path):
    planned = planned_rows(
        contestants(root, "mule", "slowfast"), tmp_path, seeds=[3, 4], splits=["A", "C"], judging=JUDGING
    )
    assert [row.name for row in planned] == [
        "mule-A-s3", "slowfast-A-s3", "mule-C-s3", "slowfast-C-s3",
        "mule-A-s4", "slowfast-A-s4", "mule-C-s4", "slowfast-C-s4",
    ]  # fmt: skip
    row = planned[5]
    assert row.trial == Trial("A", 4)
    assert isinstance(row.experiment.data, StageData)
    assert (row.experiment.seed, row.experiment.data.seed, row.experiment.data.split) == (4, 4, "A")
    with pytest.raises(ConfigError, match="split = 'Z'"):
        planned_rows(contestants(root, "mule"), tmp_path, seeds=[0], splits=["Z"], judging=JUDGING)


def test_finished_rows_are_left_alone(asked, done, monkeypatch):
    before = times_of(asked.out / "rows")
    for name in ("run_experiment", "judge_run"):
        monkeypatch.setattr(rows, name, lambda *_, **__: pytest.fail("a finished row was worked on"))
    again = run_comparison(asked, watch=watched_by_nobody, noted=pytest.fail)
    for row in again.rows:
        finish_row(row)
    assert times_of(asked.out / "rows") == before
    assert again.findings is not None
    assert done.findings is not None
    assert [each.results for each in again.findings.rows] == [each.results for each in done.findings.rows]


def test_a_second_comparison_in_one_folder_is_refused(asked, done):  # noqa: ARG001 - it is there
    with (
        only_writer(asked.out),
        pytest.raises(FolderInUseError, match=r"only one process may write here at a time; process \d+"),
    ):
        run_comparison(asked, watch=watched_by_nobody, noted=silent)


def test_a_changed_experiment_is_refused_with_what_has_changed(asked, done, root):  # noqa: ARG001 - it is there
    before = times_of(asked.out)
    changed = replace(
        asked, contestants=contestants(root, "slowfast", optimizer__lr=2e-3, training__epochs=2)
    )
    with pytest.raises(ConfigError) as told:
        run_comparison(changed, watch=watched_by_nobody, noted=silent)
    for part in ("lr was 0.001, is 0.002", "training.epochs was 1, is 2", "--out"):
        assert part in str(told.value)
    assert times_of(asked.out) == before


def test_a_row_killed_between_training_and_judging_is_judged_without_training_again(
    root, tmp_path, monkeypatch
):
    (row,) = planned_rows(contestants(root, "slowfast"), tmp_path, seeds=[0], judging=JUDGING)

    def killed(*_, **__):
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(rows, "judge_run", killed)
        with pytest.raises(KeyboardInterrupt):
            finish_row(row)
    assert results_of(row) is None
    weights = (row.folder / "model.safetensors").stat().st_mtime_ns
    monkeypatch.setattr(rows, "run_experiment", lambda *_, **__: pytest.fail("it was trained already"))
    finish_row(row)
    assert results_of(row) is not None
    assert (row.folder / "model.safetensors").stat().st_mtime_ns == weights
    other = replace(row, judging=replace(JUDGING, resamples=0))
    assert results_of(other) is None  # judged otherwise: only the judgement is made anew
    finish_row(other)
    assert results_of(other) is not None


def test_a_row_that_fails_does_not_stop_the_others_and_is_named(root, tmp_path, asked):
    broken = Contestant("broken", tiny_experiment(root, data__train_clips=3, objective__inner_steps=0))
    fine = Contestant("fine", tiny_experiment(root))
    both = replace(asked, contestants=(broken, fine), out=tmp_path, equal="time")
    times = {"broken": 1.0, "fine": 1.0}
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(equal, "epoch_seconds", lambda _: times)
        found = run_comparison(both, watch=watched_by_nobody, noted=silent)
    (failure,) = found.failures
    assert failure.name == "broken-A-s0"
    assert "there are 3 clips, and a batch takes 4" in failure.reason
    assert found.findings is not None
    assert found.findings.methods == ("fine",)


def test_unequal_steps_are_refused_and_named_before_anything_is_written(root, tmp_path, asked):
    first, second = contestants(root, "mule", "slowfast")
    steps = gradient_steps(first.experiment)
    assert steps == 1 * (8 // 4) * 1
    longer = Contestant("longer", tiny_experiment(root, system="mule", objective__inner_steps=2))
    held = Contestant("held", tiny_experiment(root, objective__inner_steps=0))
    require_equal_steps([first, second, held])
    with pytest.raises(ConfigError, match=r"got mule 2, longer 4\..*--equal epochs\|time"):
        run_comparison(
            replace(asked, contestants=(first, longer), out=tmp_path / "out"),
            watch=watched_by_nobody,
            noted=silent,
        )
    assert not (tmp_path / "out").exists()
    patient = Contestant("patient", tiny_experiment(root, training__patience_epochs=1))
    with pytest.raises(ConfigError, match=r"patience_epochs is set in patient"):
        require_equal_steps([first, patient])


def test_at_equal_time_slower_experiments_get_fewer_epochs_and_are_timed_once(root, tmp_path, monkeypatch):
    changes = {"training__epochs": 8, "schedule__warmup_epochs": 2.0}
    first, second = contestants(root, "slowfast", "mule", **changes)
    calls = []

    def timed(asked_for):
        calls.append(asked_for)
        return {"slowfast": 1.0, "mule": 2.0}

    monkeypatch.setattr(equal, "epoch_seconds", timed)
    notes: list[str] = []
    at_equal_time([first, second], tmp_path, noted=notes.append)
    found = at_equal_time([first, second], tmp_path, noted=notes.append)
    assert len(calls) == 1
    assert [each.experiment.training.epochs for each in found] == [8, 4]
    assert [each.experiment.schedule.warmup_epochs for each in found] == [2.0, 1.0]
    assert any("4 epochs instead of 8" in note for note in notes)
    assert json.loads((tmp_path / equal.TIMES).read_text())["epoch_s"] == {"slowfast": 1.0, "mule": 2.0}


def test_steps_are_timed_in_turns(root):
    found = equal.epoch_seconds(contestants(root, "slowfast", "mule-literal"))
    assert set(found) == {"slowfast", "mule-literal"}
    assert all(seconds > 0 for seconds in found.values())


def test_a_stretched_schedule_keeps_its_shape(root):
    schedule = {"kind": "step", "warmup_epochs": 1.0, "milestones": [4.0, 6.0]}
    longer = stretched(tiny_experiment(root, schedule=schedule, training__epochs=8), 16)
    assert longer.training.epochs == 16
    assert (longer.schedule.warmup_epochs, longer.schedule.milestones) == (2.0, (8.0, 12.0))


def test_steps_may_be_given_to_all_rows_at_once(root):
    unequal = [
        Contestant(
            "twice", tiny_experiment(root, system="mule", objective__inner_steps=2, training__epochs=8)
        ),
        Contestant("once", tiny_experiment(root, training__epochs=3)),
    ]
    equal_now = with_steps(unequal, 12)
    assert [gradient_steps(each.experiment) for each in equal_now] == [12, 12]
    assert [each.experiment.training.epochs for each in equal_now] == [3, 6]
    with pytest.raises(ConfigError, match=r"got 6, .* twice 4, once 2\. Choose a multiple of 4"):
        with_steps(unequal, 6)


def test_the_quick_form_keeps_steps_equal(root):
    whole = [
        Contestant(
            "twice", tiny_experiment(root, system="mule", objective__inner_steps=2, training__epochs=8)
        ),
        Contestant("once", tiny_experiment(root, training__epochs=16)),
    ]
    require_equal_steps(whole)
    quick = [quickened(each) for each in whole]
    require_equal_steps(quick)
    assert [each.experiment.training.epochs for each in quick] == [4, 8]
    assert isinstance(quick[0].experiment.data, StageData)
    assert quick[0].experiment.data.train_clips == comparing.QUICK_CLIPS["train_clips"]
    on_table = Contestant("table", tiny_experiment(root, data={"kind": "table", "num_known": 2}))
    with pytest.raises(MuleError, match="--quick needs experiments on Stage"):
        quickened(on_table)


def test_rows_that_are_not_there_yet_are_the_same(root, tmp_path):
    require_same_rows(planned_rows(contestants(root, "mule"), tmp_path, seeds=[0], judging=JUDGING))
