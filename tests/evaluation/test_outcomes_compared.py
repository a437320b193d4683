import math

import numpy as np
import pytest
from compared import AUROC, FPR, MAP, compared, outcomes_of
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from mule.core.errors import NotFinite, RangeError
from mule.evaluation.outcomes import (
    PAPER_MEASURES,
    Comparison,
    Contender,
    Measure,
    MethodRow,
    Outcome,
    Trial,
    paired_difference,
)
from mule.metrics import MEASURES


def best_of(comparison, measure=AUROC):
    return {each.method for each in comparison.best(comparison.contenders(measure), measure)}


def test_a_comparison_of_nothing_has_no_trials_and_no_best():
    comparison = Comparison((), (AUROC,), ())
    assert comparison.trials == ()
    assert best_of(comparison) == set()


def test_a_method_without_outcomes_has_an_undefined_mean():
    summary = compared({"a": []}).summary(Contender("a", "PE"), AUROC)
    assert math.isnan(summary.mean)
    assert math.isnan(summary.deviation)
    assert summary.num_trials == 0


def test_the_deviation_is_of_a_sample():
    values = [0.5, 0.7, 0.9]
    summary = compared({"a": values}).summary(Contender("a", "PE"), AUROC)
    assert summary.mean == pytest.approx(0.7)
    assert summary.deviation == pytest.approx(np.std(values, ddof=1))


def test_every_column_of_the_paper_with_scores_is_an_open_set_measure():
    assert {each.key for each in PAPER_MEASURES if each.has_scores} <= set(MEASURES)


@pytest.mark.parametrize(("measure", "best"), [(AUROC, "high"), (FPR, "low")])
def test_the_best_follows_the_direction_of_the_column(measure, best):
    values = {"high": [0.8, 0.81, 0.82], "low": [0.4, 0.41, 0.42], "middle": [0.6, 0.61, 0.62]}
    assert best_of(compared(values, measure), measure) == {best}


def test_a_column_without_direction_has_no_best():
    measure = Measure("hours", "hours", "neither")
    assert best_of(compared({"a": [1.0], "b": [2.0]}, measure), measure) == set()


def test_a_single_contender_is_not_marked():
    assert best_of(compared({"a": [0.8, 0.9]})) == set()


def test_what_cannot_be_told_from_the_best_is_marked_with_it():
    values = {"best": [0.80, 0.82, 0.84], "alike": [0.81, 0.80, 0.84], "worse": [0.60, 0.62, 0.64]}
    assert best_of(compared(values)) == {"best", "alike"}


def test_a_small_but_steady_difference_is_told_apart():
    values = {"best": [0.80, 0.90, 0.70], "steadily less": [0.789, 0.89, 0.69], "worst": [0.1, 0.2, 0.1]}
    assert best_of(compared(values)) == {"best"}


def test_nobody_is_marked_where_nobody_can_be_told_apart():
    assert best_of(compared({"a": [0.80, 0.60, 0.70], "b": [0.60, 0.80, 0.71]})) == set()


def test_values_printed_alike_are_marked_alike():
    assert best_of(compared({"a": [0.80001], "b": [0.80002], "c": [0.7]})) == {"a", "b"}


def test_with_one_trial_the_best_value_s_own_interval_decides():
    rows = tuple(map(MethodRow, ("best", "within", "below")))
    outcomes = [
        *outcomes_of("best", AUROC, [0.80], score="PE", intervals=[(0.75, 0.85)]),
        *outcomes_of("within", AUROC, [0.76], score="PE", intervals=[(0.70, 0.82)]),
        *outcomes_of("below", AUROC, [0.74], score="PE", intervals=[(0.69, 0.79)]),
    ]
    assert best_of(Comparison(rows, (AUROC,), tuple(outcomes))) == {"best", "within"}


@pytest.mark.parametrize("lucky", [[0.9], [0.9, math.nan, math.nan]], ids=["unfinished", "undefined"])
def test_a_row_that_lacks_a_trial_is_never_best(lucky):
    values = {"lucky": lucky, "a": [0.8, 0.81, 0.82], "b": [0.5, 0.51, 0.52]}
    assert best_of(compared(values)) == {"a"}


def test_each_score_of_a_method_is_a_contender_where_the_measure_has_scores():
    outcomes = [
        *outcomes_of("a", AUROC, [0.8], score="PE"),
        *outcomes_of("a", AUROC, [0.7], score="NE"),
        *outcomes_of("a", MAP, [0.3]),
    ]
    comparison = Comparison((MethodRow("a"),), (AUROC, MAP), tuple(outcomes))
    assert comparison.contenders(AUROC) == (Contender("a", "PE"), Contender("a", "NE"))
    assert comparison.contenders(MAP) == (Contender("a", ""),)


def by_seed(values, split="A"):
    return {Trial(split, seed): value for seed, value in enumerate(values)}


@pytest.mark.parametrize("level", [0.8, 0.95])
def test_seeds_of_one_split_give_scipy_s_interval_of_a_paired_t_test(level):
    generator = np.random.default_rng(4)
    ours, theirs = generator.uniform(size=(2, 7)).tolist()
    found = paired_difference(by_seed(ours), by_seed(theirs), level=level)
    expected = stats.ttest_rel(ours, theirs).confidence_interval(level)
    assert (found.low, found.high) == pytest.approx((expected.low, expected.high))
    assert (found.num_units, found.unit) == (7, "seed")


def test_with_several_splits_seeds_are_averaged_first():
    ours = {**by_seed([0.5, 0.7], "A"), **by_seed([0.6, 0.6], "B"), **by_seed([0.9, 0.7], "C")}
    theirs = {**by_seed([0.4, 0.4], "A"), **by_seed([0.3, 0.5], "B"), **by_seed([0.5, 0.5], "C")}
    found = paired_difference(ours, theirs)
    expected = stats.ttest_1samp([0.2, 0.2, 0.3], 0).confidence_interval(0.95)
    assert (found.low, found.high) == pytest.approx((expected.low, expected.high))
    assert (found.num_units, found.unit) == (3, "split")


def test_only_trials_that_both_have_are_paired():
    found = paired_difference(by_seed([0.5, 0.9, 0.8]), {Trial("A", 1): 0.6, Trial("B", 1): 0.1})
    assert found.mean == pytest.approx(0.3)
    assert math.isnan(found.low)
    assert not found.is_clear


def test_no_common_trial_leaves_the_difference_undefined():
    found = paired_difference(by_seed([0.5]), {})
    assert math.isnan(found.mean)
    assert found.num_units == 0


@given(st.lists(st.tuples(st.floats(0, 1), st.floats(0, 1)), min_size=2, max_size=6))
def test_turning_the_pair_round_turns_the_difference_round(pairs):
    ours, theirs = by_seed([a for a, _ in pairs]), by_seed([b for _, b in pairs])
    there, back = paired_difference(ours, theirs), paired_difference(theirs, ours)
    assert (back.mean, back.low, back.high) == pytest.approx(
        (-there.mean, -there.high, -there.low), abs=1e-12
    )


@pytest.mark.parametrize("level", [0.0, 1.0])
def test_a_level_that_is_no_level_is_an_error(level):
    with pytest.raises(RangeError, match="between 0 and 1"):
        paired_difference({}, {}, level=level)


def test_every_problem_of_a_comparison_is_told_at_once():
    rows = (MethodRow("a"), MethodRow("a"), MethodRow("b"))
    outcomes = (*outcomes_of("ghost", AUROC, [0.1]), *(2 * outcomes_of("b", AUROC, [0.1], score="PE")))
    with pytest.raises(RangeError) as error:
        Comparison(rows, (AUROC,), outcomes)
    for words in ("'a' has two rows", "'ghost' has outcomes and no row", "given twice"):
        assert words in str(error.value)


def test_an_infinite_outcome_is_an_error_that_names_it():
    with pytest.raises(NotFinite, match="auroc of 'a' is inf in trial"):
        Comparison((MethodRow("a"),), (AUROC,), (Outcome("a", "auroc", math.inf, Trial("A", 0)),))
