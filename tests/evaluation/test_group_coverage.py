import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import binomtest

from mule.core.errors import RangeError, ShapeError, TooFewActors
from mule.evaluation.coverage import clopper_pearson, coverage, holm_rejects


def flagged(num_flagged, num_known):
    return np.arange(num_known) < num_flagged


def test_nobody_flagged_and_nobody_there_is_no_broken_promise():
    found = coverage(
        flagged(0, 0), alarm_rate=0.05, num_held_out=100, groups={"empty": np.array([], dtype=int)}
    )
    for row in (found.overall, found.groups["empty"]):
        assert (row.num_known, row.num_flagged, row.p_value, row.is_off) == (0, 0, 1.0, False)
        assert row.interval == (0.0, 1.0)
        assert math.isnan(row.share)


@given(st.integers(0, 60), st.integers(0, 60), st.sampled_from([0.8, 0.95, 0.99]))
def test_intervals_are_those_of_scipy(num_flagged, num_passed, level):
    num_known = num_flagged + num_passed
    if num_known == 0:
        return
    low, high = clopper_pearson(np.array([num_flagged]), np.array([num_known]), level=level)
    expected = binomtest(num_flagged, num_known).proportion_ci(level, method="exact")
    assert (low[0], high[0]) == pytest.approx((expected.low, expected.high), abs=1e-9)


def test_intervals_hold_the_true_share_as_often_as_they_say():
    draws = np.random.default_rng(0).binomial(80, 0.05, size=5000)
    low, high = clopper_pearson(draws, np.full(5000, 80), level=0.9)
    assert np.mean((low <= 0.05) & (high >= 0.05)) >= 0.9


def test_with_many_held_out_actors_the_test_is_the_exact_binomial_one():
    found = coverage(flagged(9, 100), alarm_rate=0.05, num_held_out=10**8 - 1)
    expected = binomtest(9, 100, 0.05, alternative="greater").pvalue
    assert found.overall.p_value == pytest.approx(expected, rel=1e-4)


def test_the_chance_of_as_many_flags_counts_the_luck_of_the_held_out_actors():
    """Slow and obvious: shuffle held-out and test actors together, flag those above the conformal quantile."""
    generator = np.random.default_rng(1)
    actors = generator.random((20_000, 39 + 50))
    threshold = np.sort(actors[:, :39], axis=1)[:, [39 - 4]]  # ⌊0.1·40⌋ = 4 may lie above
    num_flagged = (actors[:, 39:] > threshold).sum(axis=1)
    for at_least in (3, 8, 12):
        found = coverage(flagged(at_least, 50), alarm_rate=0.1, num_held_out=39)
        assert found.overall.p_value == pytest.approx(np.mean(num_flagged >= at_least), abs=0.015)


def test_groups_are_called_off_by_mistake_no_more_often_than_stated():
    """Five groups, all exchangeable with the held-out actors: any is off in at most 10 % of 250 trials."""
    generator = np.random.default_rng(2)
    groups = {f"camera {i}": np.arange(i * 60, (i + 1) * 60) for i in range(5)}
    mistakes = 0
    for _ in range(250):
        actors = generator.random(99 + 300)
        threshold = np.sort(actors[:99])[99 - 5]
        found = coverage(actors[99:] > threshold, alarm_rate=0.05, num_held_out=99, groups=groups, level=0.9)
        mistakes += any(group.is_off for group in found.groups.values())
    assert mistakes / 250 <= 0.1


def test_a_camera_that_flags_too_many_is_named_and_the_others_are_not():
    is_flagged = np.concatenate([flagged(10, 200), flagged(50, 200), flagged(12, 200)])
    groups = {
        "camera/left": np.arange(200),
        "camera/right": np.arange(200, 400),
        "class/kick": np.arange(100, 350),
        "class/wave": np.arange(400, 600),
    }
    found = coverage(is_flagged, alarm_rate=0.05, num_held_out=1000, groups=groups)
    assert {name for name, group in found.groups.items() if group.is_off} == {"camera/right", "class/kick"}
    right = found.groups["camera/right"]
    assert (right.num_known, right.num_flagged, right.share) == (200, 50, 0.25)
    assert right.interval.low > 0.05
    assert found.overall.num_flagged == 72
    assert found.overall.is_off


def test_flagging_too_few_keeps_the_promise():
    assert not coverage(flagged(0, 10_000), alarm_rate=0.05, num_held_out=1000).overall.is_off


@given(st.lists(st.floats(0, 1), max_size=8), st.sampled_from([0.05, 0.2]))
def test_holm_steps_down_from_the_smallest(p_values, risk):
    remaining, expected = sorted(enumerate(p_values), key=lambda pair: pair[1]), set()
    while remaining and remaining[0][1] <= risk / len(remaining):
        expected.add(remaining.pop(0)[0])
    assert set(np.flatnonzero(holm_rejects(np.array(p_values), risk)).tolist()) == expected


def test_what_is_no_promise_is_refused():
    with pytest.raises(TooFewActors, match="at least 19 held-out known actors; got 18"):
        coverage(flagged(0, 5), alarm_rate=0.05, num_held_out=18)
    assert coverage(flagged(0, 5), alarm_rate=0.05, num_held_out=19).overall.p_value == 1.0
    with pytest.raises(RangeError, match=r"alarm_rate must lie between 0 and 1; got 0\.0"):
        coverage(flagged(0, 5), alarm_rate=0.0, num_held_out=18)
    with pytest.raises(RangeError, match=r"level must lie between 0 and 1; got 1\.0"):
        coverage(flagged(0, 5), alarm_rate=0.05, num_held_out=19, level=1.0)
    with pytest.raises(ShapeError, match="group 'left' must be positions from 0 to 4; got 3 to 5"):
        coverage(flagged(0, 5), alarm_rate=0.05, num_held_out=19, groups={"left": np.array([3, 5])})
