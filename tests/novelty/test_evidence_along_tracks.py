"""Evidence along a track: each rule keeps the false-alarm share that it states, and none dilutes a strange look."""

import math

import numpy as np
import pytest
import torch
from scipy import stats

from mule.novelty.calibration import CalibratedScore
from mule.novelty.tracks import (
    ACCUMULATORS,
    along_track,
    best_window,
    fisher_rank,
    largest_by_track,
    log_e_mean,
    log_e_product,
    log_e_value,
    mean_rank,
)

ALARM = 0.05
NUM = 1000
ALLOWED = 3 * math.sqrt(ALARM * (1 - ALARM) / NUM)


def ordinary(num, looks, *, likeness, seed):
    """−log p of known people: uniform p-values, whose normal quantiles correlate by `likeness` from look to look."""
    draw = np.random.default_rng(seed)
    shared = draw.normal(size=(num, 1))
    normal = math.sqrt(likeness) * shared + math.sqrt(1 - likeness) * draw.normal(size=(num, looks))
    return -stats.norm.logsf(normal)


def test_fisher_is_that_of_scipy():
    for ranks in ([0.3], [2.0, 0.1, 3.0], [0.01] * 8):
        _, expected = np.asarray(stats.combine_pvalues(np.exp(-np.array(ranks))))
        assert fisher_rank(ranks) == pytest.approx(-np.log(expected), rel=1e-9)


def test_fisher_flags_the_promised_share_of_independent_looks():
    flagged = [
        fisher_rank(ranks) >= -math.log(ALARM) for ranks in ordinary(NUM, 5, likeness=0, seed=1).tolist()
    ]
    assert np.mean(flagged) == pytest.approx(ALARM, abs=ALLOWED)


def test_fisher_breaks_its_promise_where_looks_are_alike():
    """The reason why watched tracks calibrate it."""
    flagged = [
        fisher_rank(ranks) >= -math.log(ALARM) for ranks in ordinary(NUM, 5, likeness=0.8, seed=2).tolist()
    ]
    assert np.mean(flagged) > 2 * ALARM


def test_the_product_of_e_values_is_ever_too_large_for_the_promised_share_at_most():
    ranks = ordinary(NUM, 20, likeness=0, seed=3)
    wealth = np.cumsum(np.vectorize(log_e_value)(ranks), axis=1)
    assert wealth[0, -1] == pytest.approx(log_e_product(ranks[0].tolist()))
    assert np.mean(wealth.max(axis=1) >= -math.log(ALARM)) <= ALARM + ALLOWED


@pytest.mark.parametrize("likeness", [0.0, 0.5, 1.0])
def test_the_mean_of_e_values_keeps_its_promise_however_alike_looks_are(likeness):
    ranks = ordinary(NUM, 5, likeness=likeness, seed=4).tolist()
    assert np.mean([log_e_mean(each) >= -math.log(ALARM) for each in ranks]) <= ALARM + ALLOWED


@pytest.mark.parametrize("name", list(ACCUMULATORS))
def test_calibrated_on_the_largest_of_each_track_every_rule_flags_the_promised_share_of_people(name):
    """Looks are alike, and tracks are of several lengths; the promise is about people, not looks."""
    shares = []
    for seed in range(3):
        lengths = np.random.default_rng(seed).integers(1, 12, size=300)
        rows = ordinary(300, 12, likeness=0.5, seed=10 + seed)
        largest = [
            max(along_track(row[:n], [False] * n, ACCUMULATORS[name], most_looks=5, idle_ends_act=2))
            for row, n in zip(rows.tolist(), lengths.tolist(), strict=True)
        ]
        score = CalibratedScore()
        score.fit(torch.tensor(largest[:150], dtype=torch.float64))
        p_values = score(torch.tensor(largest[150:], dtype=torch.float64)).p_value
        shares.append(float((p_values <= ALARM).double().mean()))
    assert np.mean(shares) == pytest.approx(ALARM, abs=0.04)


def test_ordinary_looks_before_an_act_do_not_dilute_it_in_the_window():
    act = [4.0, 4.0]
    before = [0.2] * 6
    assert best_window([*before, *act]) == best_window(act)
    assert mean_rank([*before, *act]) < mean_rank(act) / 2


def test_an_act_is_over_when_it_is_over():
    """Five ordinary looks, or two idle ones, and nothing of the act is left."""
    act, after = [6.0] * 5, [0.5] * 5
    numbers = along_track([*act, *after], [False] * 10, best_window, most_looks=5, idle_ends_act=2)
    assert numbers[4] == 25.0
    assert numbers[-1] == max(-0.5 * n for n in range(1, 6))
    idle = along_track(
        [*act, 0.0, 0.0, 0.5], [False] * 5 + [True, True, False], best_window, most_looks=5, idle_ends_act=2
    )
    assert idle[-1] == -0.5


def test_people_who_were_never_more_than_idle_calibrate_nothing():
    numbers = torch.tensor([1.0, -torch.inf, 3.0, -torch.inf]).double()
    assert largest_by_track(numbers, torch.tensor([4, 4, 2, 9])).tolist() == [3.0, 1.0]
