import numpy as np
import pytest
from scipy.stats import norm

from mule.core.errors import RangeError
from mule.evaluation import intervals
from mule.evaluation.intervals import bootstrap_intervals
from mule.metrics import MEASURES, operating_curve


def gaussian_actors(num_known, num_novel, shift, generator):
    is_novel = np.arange(num_known + num_novel) < num_novel
    return generator.normal(size=len(is_novel)) + shift * is_novel, is_novel


@pytest.mark.parametrize("wrong", [{"level": 0.0}, {"level": 1.0}, {"resamples": 0}])
def test_intervals_refuse_a_level_or_number_of_resamples_that_means_nothing(wrong):
    curve = operating_curve(np.array([0.0, 1.0]), np.array([False, True]))
    with pytest.raises(RangeError, match=r"must lie between 0 and 1|at least one resample"):
        bootstrap_intervals(curve, **wrong)


def test_one_known_and_one_novel_actor_leave_nothing_to_resample():
    curve = operating_curve(np.array([0.0, 1.0]), np.array([False, True]))
    assert bootstrap_intervals(curve, resamples=10)["auroc"] == (1.0, 1.0)


def test_the_same_seed_gives_the_same_interval_and_another_seed_another():
    curve = operating_curve(*gaussian_actors(60, 40, 1.0, np.random.default_rng(0)))
    first = bootstrap_intervals(curve, resamples=50, seed=3)
    assert bootstrap_intervals(curve, resamples=50, seed=3) == first
    assert bootstrap_intervals(curve, resamples=50, seed=4) != first


def test_intervals_do_not_depend_on_how_many_resamples_are_drawn_at_once(monkeypatch):
    curve = operating_curve(*gaussian_actors(60, 40, 1.0, np.random.default_rng(0)))
    together = bootstrap_intervals(curve, resamples=400)
    monkeypatch.setattr(intervals, "COUNTS_AT_ONCE", 700)
    apart = bootstrap_intervals(curve, resamples=400)
    for name in MEASURES:
        np.testing.assert_allclose(apart[name], together[name], atol=0.06)


def test_histogram_resampling_agrees_with_resampling_the_actors():
    generator = np.random.default_rng(1)
    novelty, is_novel = gaussian_actors(150, 90, 0.9, generator)
    novelty = novelty.round(1)
    known, novel = novelty[~is_novel], novelty[is_novel]
    labels = np.arange(240) >= 150
    draws = {name: [] for name in MEASURES}
    for _ in range(1500):
        actors = np.concatenate([generator.choice(known, 150), generator.choice(novel, 90)])
        curve = operating_curve(actors, labels)
        for name, measure in MEASURES.items():
            draws[name].append(float(measure(curve)))
    ours = bootstrap_intervals(operating_curve(novelty, is_novel), resamples=4000, seed=2)
    for name in MEASURES:
        np.testing.assert_allclose(ours[name], np.quantile(draws[name], [0.025, 0.975]), atol=0.025)


def test_intervals_of_auroc_cover_the_true_value_as_often_as_they_say():
    generator = np.random.default_rng(5)
    truth = norm.cdf(1.0 / np.sqrt(2))
    covered = 0
    for trial in range(200):
        curve = operating_curve(*gaussian_actors(120, 80, 1.0, generator))
        low, high = bootstrap_intervals(curve, level=0.9, resamples=200, seed=trial)["auroc"]
        covered += low <= truth <= high
    assert 0.84 <= covered / 200 <= 0.96


def test_every_value_lies_between_zero_and_one_and_around_the_measure():
    curve = operating_curve(*gaussian_actors(300, 200, 1.0, np.random.default_rng(6)))
    found = bootstrap_intervals(curve, resamples=300)
    for name, measure in MEASURES.items():
        low, high = found[name]
        assert 0 <= low <= high <= 1
        assert low - 0.02 <= float(measure(curve)) <= high + 0.02


def test_binning_many_distinct_scores_changes_the_interval_little(monkeypatch):
    curve = operating_curve(*gaussian_actors(3000, 2000, 1.0, np.random.default_rng(7)))
    exact = bootstrap_intervals(curve, resamples=300)
    monkeypatch.setattr(intervals, "MAX_BINS", 500)
    binned = bootstrap_intervals(curve, resamples=300)
    for name in MEASURES:
        np.testing.assert_allclose(binned[name], exact[name], atol=0.01)


@pytest.mark.parametrize("max_bins", [5, 6])
def test_a_curve_with_no_more_thresholds_than_bins_keeps_all_of_them(max_bins):
    novelty = np.append(
        np.zeros(20), [1.0, 2.0, 3.0, 4.0]
    )  # most actors tie: bins of equal size would merge the rest
    curve = operating_curve(novelty, np.arange(24) % 2 == 0)
    assert intervals.coarsened(curve, max_bins).thresholds.tolist() == [4.0, 3.0, 2.0, 1.0, 0.0]
    assert len(intervals.coarsened(curve, 4).thresholds) <= 4


def test_bins_hold_about_equally_many_actors_and_never_split_a_tie():
    novelty, is_novel = gaussian_actors(3000, 2000, 1.0, np.random.default_rng(8))
    curve = operating_curve(novelty.round(3), is_novel)
    binned = intervals.coarsened(curve, 100)
    sizes = np.diff(binned.novel_flagged + binned.known_flagged, prepend=0)
    assert len(sizes) == 100
    assert sizes.max() <= 50 + 10
    assert set(binned.thresholds) <= set(curve.thresholds)
    assert (binned.num_known, binned.num_novel) == (3000, 2000)


@pytest.mark.parametrize("few_per_bin", [0, 1000], ids=["histogram", "actors"])
def test_both_ways_of_drawing_have_the_moments_of_a_multinomial(monkeypatch, few_per_bin):
    monkeypatch.setattr(intervals, "FEW_PER_BIN", few_per_bin)
    counts = np.array([4, 0, 10, 1, 5])
    drawn = np.diff(
        intervals.resampled_flags(np.cumsum(counts), 20_000, np.random.default_rng(9)), axis=1, prepend=0
    )
    share = counts / 20
    assert (drawn.sum(axis=1) == 20).all()
    np.testing.assert_allclose(drawn.mean(axis=0), counts, atol=0.08)
    np.testing.assert_allclose(np.cov(drawn.T), 20 * (np.diag(share) - np.outer(share, share)), atol=0.15)
