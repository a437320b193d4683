"""Rows that begin with one backbone: it is trained once per trial, all of them have it, and nothing else changes."""

from dataclasses import replace

import pytest
import safetensors.torch
import torch
from tiny_rows import JUDGING, contestants, silent, times_of, tiny_experiment, watched_by_nobody

from mule.comparison.compare import ComparisonPlan, run_comparison
from mule.comparison.rows import Contestant
from mule.core.config import ConfigError
from mule.training.build import backbone_weights, build_networks, initialise


def asked_for(root, out, **changes):
    rows = contestants(root, "slowfast")
    start = Contestant("backbone", tiny_experiment(root, training__epochs=2))
    return replace(
        ComparisonPlan(rows, out, seeds=(0, 1), judging=JUDGING, num_workers=0, start=start), **changes
    )


@pytest.fixture(scope="module")
def compared(tmp_path_factory):
    out = tmp_path_factory.mktemp("compared")
    asked = asked_for(tmp_path_factory.mktemp("stage"), out)
    return asked, run_comparison(asked, watch=watched_by_nobody, noted=silent)


def test_every_row_begins_with_the_backbone_of_its_own_trial(compared):
    asked, done = compared
    assert done.failures == ()
    for row in done.rows:
        start = asked.out / "starts" / f"backbone-A-s{row.trial.seed}"
        assert row.experiment.backbone.weights == start
        trained = safetensors.torch.load_file(start / "model.safetensors")
        _, backbone = build_networks(row.experiment)
        initialise(backbone, row.experiment)
        for name, weight in backbone.state_dict().items():
            assert torch.equal(weight, trained[f"backbone.{name}"])
    first, second = (backbone_weights(asked.out / "starts" / f"backbone-A-s{seed}") for seed in (0, 1))
    assert any(not torch.equal(weight, second[name]) for name, weight in first.items())


def test_a_finished_comparison_trains_no_backbone_again(compared):
    asked, _ = compared
    before = times_of(asked.out / "starts")
    again = run_comparison(asked, watch=watched_by_nobody, noted=silent)
    assert again.failures == ()
    assert times_of(asked.out / "starts") == before


def test_a_start_that_has_changed_is_refused_and_not_taken_for_the_new_one(compared):
    asked, _ = compared
    root = asked.contestants[0].experiment.data.root
    longer = Contestant("backbone", tiny_experiment(root, training__epochs=3))
    with pytest.raises(ConfigError, match=r"backbone-A-s0: training\.epochs was 2, is 3"):
        run_comparison(replace(asked, start=longer), watch=watched_by_nobody, noted=silent)


def test_rows_do_not_begin_without_their_backbone_and_say_which_one(tmp_path):
    start = Contestant("backbone", tiny_experiment(tmp_path, optimizer__lr=1e30))
    asked = asked_for(tmp_path, tmp_path / "out", start=start, seeds=(0,))
    done = run_comparison(asked, watch=watched_by_nobody, noted=silent)
    told = {failure.name: failure.reason for failure in done.failures}
    assert list(told) == ["backbone-A-s0", "slowfast-A-s0"]
    assert "training stopped" in told["backbone-A-s0"]
    assert "starts from the backbone of backbone-A-s0" in told["slowfast-A-s0"]
    assert not (tmp_path / "out" / "rows").exists()


def test_the_budget_says_what_rows_began_with(compared):
    _, done = compared
    assert done.budget.endswith("from a backbone that backbone trained on the same clips for 4 steps")


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"data__train_clips": 12}, "the data of backbone and slowfast differ"),
        ({"backbone__name": "slowfast_r50_ava"}, "slowfast has tiny"),
        (
            {"backbone__options": {"sees_motion": True}},
            "tiny with sees_motion = True; slowfast has tiny",
        ),
    ],
)
def test_a_start_that_does_not_fit_is_refused_before_anything_is_written(tmp_path, changes, told):
    start = Contestant("backbone", tiny_experiment(tmp_path, **changes))
    with pytest.raises(ConfigError, match=told):
        run_comparison(
            asked_for(tmp_path, tmp_path / "out", start=start), watch=watched_by_nobody, noted=silent
        )
    assert not (tmp_path / "out").exists()


def test_a_row_with_weights_of_its_own_cannot_begin_with_others(tmp_path):
    rows = contestants(tmp_path, "slowfast", backbone__weights=str(tmp_path))
    with pytest.raises(ConfigError, match=r"slowfast sets backbone\.weights"):
        run_comparison(
            asked_for(tmp_path, tmp_path / "out", contestants=rows), watch=watched_by_nobody, noted=silent
        )
