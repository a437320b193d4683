from time import process_time

import numpy as np
import pytest
import torch
import torchmetrics.functional.classification as torchmetrics
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import norm
from sklearn.metrics import average_precision_score, roc_auc_score

from mule import metrics
from mule.core.errors import NotFinite, RangeError, ShapeError
from mule.metrics import (
    MEASURES,
    auroc,
    average_precision_known,
    average_precision_novel,
    detection_error,
    fpr_at_tpr,
    fpr_at_tpr_novel,
    min_detection_error,
    operating_curve,
    threshold_at_false_alarm_rate,
)

ALL = [
    auroc,
    average_precision_novel,
    average_precision_known,
    fpr_at_tpr,
    fpr_at_tpr_novel,
    detection_error,
    min_detection_error,
]


@st.composite
def scored_actors(draw):
    """A handful of actors, with many ties, at least one of them known and one novel."""
    scores = st.integers(-4, 4)
    known = draw(st.lists(scores, min_size=1, max_size=30))
    novel = draw(st.lists(scores, min_size=1, max_size=30))
    order = np.array(draw(st.permutations(range(len(known) + len(novel)))))
    novelty = np.array(known + novel, dtype=float)[order]
    is_novel = (np.arange(len(order)) >= len(known))[order]
    return novelty, is_novel


def gaussian_actors(num_known, num_novel, shift, seed):
    generator = np.random.default_rng(seed)
    is_novel = np.arange(num_known + num_novel) < num_novel
    return generator.normal(size=len(is_novel)) + shift * is_novel, is_novel


def loop_fpr_at_tpr(positive_scores, negative_scores, tpr):
    """Positives score high: lower the threshold until enough positives are chosen."""
    for threshold in sorted({*positive_scores, *negative_scores}, reverse=True):
        if sum(p >= threshold for p in positive_scores) / len(positive_scores) >= tpr:
            return sum(n >= threshold for n in negative_scores) / len(negative_scores)
    raise AssertionError


@pytest.mark.parametrize("metric", ALL)
@pytest.mark.parametrize("is_novel", [[], [False, False], [True]], ids=["nobody", "all known", "all novel"])
def test_one_sided_actors_are_an_error_that_counts_them(metric, is_novel):
    with pytest.raises(RangeError, match=f"known and novel actors; got 0 .* of {len(is_novel)}"):
        metric(np.zeros(len(is_novel)), np.array(is_novel, dtype=bool))


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_scores_that_are_not_finite_are_an_error_that_says_where(value):
    with pytest.raises(NotFinite, match=r"1 of 3 are not, the first is -?(nan|inf) at position 1"):
        auroc(np.array([0.0, value, 1.0]), np.array([False, True, True]))


@pytest.mark.parametrize(
    ("novelty", "is_novel", "error", "words"),
    [
        (
            np.zeros(3),
            np.zeros(2, dtype=bool),
            ShapeError,
            r"one entry per actor; got shapes \(3,\) and \(2,\)",
        ),
        (np.zeros((2, 1)), np.zeros((2, 1), dtype=bool), ShapeError, "one entry per actor"),
        (np.array(["a", "b"]), np.array([True, False]), ShapeError, "one number per actor"),
        (np.zeros(2), np.array([0.0, 1.0]), ShapeError, "truth values; got dtype float64"),
        (np.zeros(2), np.array([1, 2]), RangeError, "must be 0 or 1; got values from 1 to 2"),
    ],
)
def test_wrong_arrays_are_answered_in_words(novelty, is_novel, error, words):
    with pytest.raises(error, match=words):
        auroc(novelty, is_novel)


@pytest.mark.parametrize("tpr", [0.0, -0.1, 1.01, np.nan])
@pytest.mark.parametrize("metric", [fpr_at_tpr, fpr_at_tpr_novel, detection_error])
def test_a_true_positive_rate_outside_its_range_is_an_error(metric, tpr):
    with pytest.raises(RangeError, match="true-positive rate"):
        metric(np.array([0.0, 1.0]), np.array([False, True]), tpr=tpr)


def test_labels_may_be_zeros_and_ones():
    novelty, is_novel = gaussian_actors(20, 20, 1.0, seed=1)
    assert auroc(novelty, is_novel.astype(np.int64)) == auroc(novelty, is_novel)


def test_perfect_and_inverted_scores_have_known_values():
    novelty, is_novel = np.array([0.0, 1.0, 2.0, 3.0]), np.array([False, False, True, True])
    assert [metric(novelty, is_novel) for metric in ALL] == [1.0, 1.0, 1.0, 0.0, 0.0, 0.025, 0.0]
    assert auroc(-novelty, is_novel) == 0.0
    assert fpr_at_tpr(-novelty, is_novel) == 1.0
    assert min_detection_error(-novelty, is_novel) == 0.5


def test_a_constant_score_is_worth_a_coin_toss():
    novelty, is_novel = np.ones(10), np.arange(10) < 3
    assert auroc(novelty, is_novel) == 0.5
    assert average_precision_novel(novelty, is_novel) == pytest.approx(0.3)
    assert average_precision_known(novelty, is_novel) == pytest.approx(0.7)
    assert fpr_at_tpr(novelty, is_novel) == 1.0
    assert fpr_at_tpr_novel(novelty, is_novel) == 1.0
    assert min_detection_error(novelty, is_novel) == 0.5


@given(scored_actors())
def test_auroc_and_average_precision_equal_scikit_learn(actors):
    novelty, is_novel = actors
    assert auroc(novelty, is_novel) == pytest.approx(roc_auc_score(is_novel, novelty), abs=1e-12)
    assert average_precision_novel(novelty, is_novel) == pytest.approx(
        average_precision_score(is_novel, novelty), abs=1e-12
    )
    assert average_precision_known(novelty, is_novel) == pytest.approx(
        average_precision_score(~is_novel, -novelty), abs=1e-12
    )


@pytest.mark.parametrize("digits", [1, 8], ids=["ties", "no ties"])
def test_auroc_and_average_precision_equal_torchmetrics(digits):
    novelty, is_novel = gaussian_actors(300, 200, 0.7, seed=2)
    scores = torch.from_numpy(1 / (1 + np.exp(-novelty.round(digits))))
    labels = torch.from_numpy(is_novel.astype(np.int64))
    ours = np.array([auroc(scores.numpy(), is_novel), average_precision_novel(scores.numpy(), is_novel)])
    theirs = [
        torchmetrics.binary_auroc(scores, labels).item(),
        torchmetrics.binary_average_precision(scores, labels).item(),
    ]
    np.testing.assert_allclose(ours, theirs, atol=1e-6)


@given(scored_actors(), st.sampled_from([0.3, 0.5, 0.8, 0.95, 1.0]))
def test_fpr_at_tpr_equals_a_search_over_thresholds(actors, tpr):
    novelty, is_novel = actors
    known, novel = novelty[~is_novel], novelty[is_novel]
    assert fpr_at_tpr(novelty, is_novel, tpr=tpr) == loop_fpr_at_tpr(-known, -novel, tpr)
    assert fpr_at_tpr_novel(novelty, is_novel, tpr=tpr) == loop_fpr_at_tpr(novel, known, tpr)


def test_nineteen_known_of_twenty_are_exactly_95_percent():
    novelty = np.append(np.arange(20.0), [18.5, 30.0])
    is_novel = np.arange(22) >= 20
    assert fpr_at_tpr(novelty, is_novel) == 0.0
    assert fpr_at_tpr(novelty, is_novel, tpr=0.951) == 0.5


@given(scored_actors())
def test_min_detection_error_equals_a_search_over_thresholds(actors):
    novelty, is_novel = actors
    thresholds = [-np.inf, *np.unique(novelty), np.inf]
    errors = [
        0.5 * np.mean(novelty[is_novel] < threshold) + 0.5 * np.mean(novelty[~is_novel] >= threshold)
        for threshold in thresholds
    ]
    assert min_detection_error(novelty, is_novel) == pytest.approx(min(errors), abs=1e-12)


@given(scored_actors())
def test_detection_error_is_a_fortieth_plus_half_the_false_positive_rate(actors):
    assert detection_error(*actors) == 0.025 + fpr_at_tpr(*actors) / 2


@given(scored_actors())
def test_the_least_detection_error_is_not_above_the_one_at_95_percent(actors):
    assert min_detection_error(*actors) <= detection_error(*actors) + 1e-12


@given(scored_actors())
def test_a_flipped_score_reads_one_minus_its_auroc(actors):
    novelty, is_novel = actors
    assert auroc(-novelty, is_novel) == pytest.approx(1 - auroc(novelty, is_novel), abs=1e-12)


@given(scored_actors())
def test_exchanging_known_and_novel_and_the_sign_exchanges_the_two_sides(actors):
    novelty, is_novel = actors
    assert auroc(-novelty, ~is_novel) == pytest.approx(auroc(novelty, is_novel), abs=1e-12)
    assert average_precision_known(novelty, is_novel) == average_precision_novel(-novelty, ~is_novel)
    assert fpr_at_tpr(novelty, is_novel) == fpr_at_tpr_novel(-novelty, ~is_novel)
    assert min_detection_error(novelty, is_novel) == pytest.approx(min_detection_error(-novelty, ~is_novel))


@given(scored_actors())
def test_a_rising_function_of_the_score_changes_no_metric(actors):
    novelty, is_novel = actors
    assert [m(np.exp(3 * novelty) - 7, is_novel) for m in ALL] == [m(novelty, is_novel) for m in ALL]


@given(scored_actors(), st.randoms(use_true_random=False))
def test_the_order_of_actors_changes_no_metric(actors, random):
    novelty, is_novel = actors
    order = list(range(len(novelty)))
    random.shuffle(order)
    assert [m(novelty[order], is_novel[order]) for m in ALL] == [m(novelty, is_novel) for m in ALL]


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.int16])
def test_the_type_of_the_scores_changes_no_metric(dtype):
    novelty, is_novel = gaussian_actors(100, 80, 1.0, seed=3)
    coarse = (novelty * 8).round()
    assert [m(coarse.astype(dtype), is_novel) for m in ALL] == [m(coarse, is_novel) for m in ALL]


def test_arrays_given_are_left_as_they_were():
    novelty, is_novel = gaussian_actors(10, 10, 1.0, seed=4)
    before = novelty.copy(), is_novel.copy()
    for metric in ALL:
        metric(novelty, is_novel)
    np.testing.assert_array_equal(novelty, before[0])
    np.testing.assert_array_equal(is_novel, before[1])


def test_auroc_of_two_gaussians_is_the_normal_probability():
    novelty, is_novel = gaussian_actors(200_000, 100_000, 1.3, seed=5)
    assert auroc(novelty, is_novel) == pytest.approx(norm.cdf(1.3 / np.sqrt(2)), abs=0.003)
    expected_fpr = norm.cdf(norm.ppf(0.95) - 1.3)
    assert fpr_at_tpr(novelty, is_novel) == pytest.approx(expected_fpr, abs=0.006)


def test_the_curve_counts_everybody_at_its_last_threshold():
    curve = operating_curve(np.array([2.0, 1.0, 2.0, 0.0]), np.array([True, False, False, True]))
    assert curve.thresholds.tolist() == [2.0, 1.0, 0.0]
    assert curve.novel_flagged.tolist() == [1, 1, 2]
    assert curve.known_flagged.tolist() == [1, 2, 2]


@given(st.lists(st.integers(-5, 5), min_size=1, max_size=40), st.integers(0, 99))
def test_threshold_is_the_smallest_that_keeps_the_false_alarm_rate(known, percent):
    known_novelty, rate = np.array(known, dtype=float), percent / 100
    expected = min(t for t in known if np.mean(known_novelty > t) <= rate)
    assert threshold_at_false_alarm_rate(known_novelty, rate) == expected
    just_below = np.nextafter(expected, -np.inf)
    assert np.mean(known_novelty > just_below) > rate


def test_29_percent_of_100_known_actors_are_29():
    assert threshold_at_false_alarm_rate(np.arange(100.0), 0.29) == 70.0


def test_thresholds_refuse_what_they_cannot_be_set_on():
    with pytest.raises(RangeError, match="must be set on known actors"):
        threshold_at_false_alarm_rate(np.zeros(0), 0.1)
    with pytest.raises(RangeError, match="at least 0 and below 1; got 1"):
        threshold_at_false_alarm_rate(np.zeros(3), 1.0)
    with pytest.raises(NotFinite):
        threshold_at_false_alarm_rate(np.array([0.0, np.nan]), 0.1)


@pytest.mark.slow
def test_two_million_scores_take_no_longer_for_each_than_two_metrics_of_scikit_learn():
    novelty, is_novel = gaussian_actors(1_400_000, 600_000, 1.0, seed=6)
    started_at = process_time()
    curve = operating_curve(novelty, is_novel)
    assert all(0 < float(measure(curve)) < 1 for measure in MEASURES.values())
    ours_s = process_time() - started_at
    novelty, is_novel = novelty[::10].copy(), is_novel[::10].copy()
    started_at = process_time()
    theirs = roc_auc_score(is_novel, novelty), average_precision_score(is_novel, novelty)
    theirs_s = process_time() - started_at
    assert (auroc(novelty, is_novel), average_precision_novel(novelty, is_novel)) == pytest.approx(
        theirs, abs=1e-9
    )
    assert ours_s < 10 * theirs_s


def test_every_measure_is_a_method_of_the_curve():
    novelty, is_novel = gaussian_actors(30, 20, 1.0, seed=7)
    curve = operating_curve(novelty, is_novel)
    values = [float(measure(curve)) for measure in MEASURES.values()]
    assert values == [metric(novelty, is_novel) for metric in ALL]
    assert metrics.NOMINAL_TPR == 0.95
