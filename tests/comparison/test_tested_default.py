"""The paired test of the default: intervals over trials and clips, and nothing to say where nothing differs."""

from dataclasses import replace

import numpy as np
import pytest
from tiny_rows import JUDGING, contestants, silent, watched_by_nobody

from mule.comparison.compare import ComparisonPlan, run_comparison
from mule.comparison.tested import PairedTest, default_against_others, default_in_short, over_trials
from mule.core.errors import RangeError
from mule.novelty.combining import DECIDING_SCORE

NEED_DROPOUT = ("dropout-mean", "informed-democracy")


def test_draws_over_trials_vary_by_trials_and_by_clips():
    """Trials at −1 and +1 without any spread of clips: the mean of two drawn ones is −1, 0 or 1, as 1 : 2 : 1."""
    drawn = over_trials([np.full(4000, -1.0), np.full(4000, 1.0)])
    shares = [float((drawn == value).mean()) for value in (-1, 0, 1)]
    assert shares == pytest.approx([0.25, 0.5, 0.25], abs=0.03)
    rng = np.random.default_rng(1)
    clips = [rng.normal(0.1, 0.02, 4000) for _ in range(4)]
    assert over_trials(clips).mean() == pytest.approx(0.1, abs=0.002)
    assert over_trials(clips).std() == pytest.approx(0.01, rel=0.1)  # four trials, each with its own clips


def test_a_mean_over_no_trials_is_refused():
    with pytest.raises(RangeError, match="at least one trial"):
        over_trials([])


def test_without_a_default_there_is_no_test(done):
    test = PairedTest(done.findings, "test-uniform", resamples=20)
    assert default_against_others(test) is None
    assert default_in_short(test) is None


@pytest.mark.slow
def test_the_default_is_tested_against_every_other_row_and_every_score_there_is(root, tmp_path):
    names = ("mule", "mule-memory", "bce-aco-r", "slowfast")
    asked = ComparisonPlan(
        contestants(root, *names, data__train_clips=24, data__val_clips=16),
        tmp_path / "out",
        seeds=(0, 1),
        judging=replace(
            JUDGING,
            scores=("PE of log", "joint-energy", "whole-memory", DECIDING_SCORE, *NEED_DROPOUT),
            dropout_passes=2,
        ),
        num_workers=0,
    )
    findings = run_comparison(asked, watch=watched_by_nobody, noted=silent).findings
    assert findings is not None
    test = PairedTest(findings, "test-uniform", resamples=50)
    sheet = default_against_others(test)
    assert sheet is not None
    shown = [(line.cells[0], line.cells[1]) for line in sheet.lines]
    assert shown[0] == ("mule", "PE of log")
    of_reference = {score for method, score in shown if method == "bce-aco-r"}
    assert of_reference == {*asked.judging.scores} - {*NEED_DROPOUT}  # its relations drop no units
    assert [score for method, score in shown if method == "slowfast"] == ["joint-energy", *NEED_DROPOUT]
    assert not [method for method, _ in shown if method == "mule-memory"]
    assert all(str(line.cells[4]).endswith("of 2") for line in sheet.lines)
    itself = test.against("mule", DECIDING_SCORE)
    assert itself is not None
    assert itself.difference == pytest.approx(0.0, abs=1e-12)  # the same features and logits
    assert itself.interval == pytest.approx((0.0, 0.0), abs=1e-12)
    told = default_in_short(test)
    assert told is not None
    assert told.startswith(f"mule-memory by {DECIDING_SCORE}: AUROC ")
    assert "mean over 2 trials" in told
    assert told.count("mule (") == told.count("bce-aco-r (") == 1  # everybody is in one group
