"""Intervals over draws of clips: the right measures, paired, and wide enough."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import norm

from mule.core.errors import NotFinite, RangeError
from mule.evaluation.intervals import (
    ClipDraws,
    draw_clips,
    drawn_auroc,
    drawn_measures,
    interval_of,
    intervals_of,
    weighted_measures,
)
from mule.metrics import MEASURES, operating_curve


def direct(novelty, is_novel):
    curve = operating_curve(novelty, is_novel)
    return {name: float(measure(curve)) for name, measure in MEASURES.items()}


@st.composite
def scored_actors(draw):
    """Novelty with ties, known and novel actors both, and how often each counts."""
    size = draw(st.integers(2, 25))
    novelty = np.array(draw(st.lists(st.integers(0, 6), min_size=size, max_size=size)), dtype=np.float64)
    is_novel = np.array(draw(st.lists(st.booleans(), min_size=size, max_size=size)))
    is_novel[:2] = [True, False]
    weights = np.array(draw(st.lists(st.integers(0, 3), min_size=size, max_size=size)))
    weights[:2] = np.maximum(weights[:2], 1)
    return novelty, is_novel, weights


@given(scored_actors())
def test_measures_of_weighted_actors_are_those_of_actors_repeated(drawn):
    novelty, is_novel, weights = drawn
    found = weighted_measures(novelty, is_novel, np.stack([np.ones(len(weights)), weights.astype(float)]))
    assert set(found) == set(MEASURES)
    once = direct(novelty, is_novel)
    repeated = direct(np.repeat(novelty, weights), np.repeat(is_novel, weights))
    for name, values in found.items():
        np.testing.assert_allclose(values, [once[name], repeated[name]], atol=1e-12)


@given(scored_actors())
def test_auroc_alone_is_that_among_all_measures(drawn):
    novelty, is_novel, weights = drawn
    counts = np.stack([np.ones_like(weights), weights, weights * is_novel, np.zeros_like(weights)])
    draws = ClipDraws(counts, np.arange(len(weights)), seed=0)
    expected = drawn_measures(novelty, is_novel, draws)["auroc"]
    assert np.isnan(expected[2:]).all()  # nobody known, nobody at all
    np.testing.assert_allclose(drawn_auroc(novelty, is_novel, draws), expected, atol=1e-12)


def test_all_actors_of_a_clip_are_drawn_together():
    clip_of_actor = np.array([0, 0, 0, 2, 2, 4])
    draws = draw_clips(clip_of_actor, num_clips=5, resamples=300, seed=1)
    (weights,) = draws.weights()
    assert (draws.counts.sum(axis=1) == 5).all()
    np.testing.assert_array_equal(weights, draws.counts[:, clip_of_actor])
    assert weights.mean() == pytest.approx(1, abs=0.1)


def test_the_difference_of_a_score_with_itself_is_exactly_zero_in_every_draw():
    generator = np.random.default_rng(0)
    novelty, is_novel = generator.normal(size=40), generator.random(40) < 0.5
    draws = draw_clips(np.arange(40) // 3, num_clips=14, resamples=50)
    first, second = (drawn_measures(novelty, is_novel, draws) for _ in range(2))
    for name in MEASURES:
        assert interval_of(first[name] - second[name]) == (0.0, 0.0)


def test_many_actors_are_weighed_in_parts(monkeypatch):
    generator = np.random.default_rng(2)
    novelty, is_novel = generator.normal(size=30), generator.random(30) < 0.5
    draws = draw_clips(np.arange(30) // 2, num_clips=15, resamples=20)
    whole = drawn_measures(novelty, is_novel, draws)
    monkeypatch.setattr("mule.evaluation.intervals.WEIGHTS_AT_ONCE", 90)
    in_parts = drawn_measures(novelty, is_novel, draws)
    assert len(list(draws.weights())) == 7
    for name in MEASURES:
        np.testing.assert_array_equal(whole[name], in_parts[name])


def clips_of_actors(generator, *, num_clips=60, shared=1.0):
    """Two to four actors per clip whose novelty has a part in common; novel ones lie one higher."""
    clip = np.repeat(np.arange(num_clips), generator.integers(2, 5, num_clips))
    is_novel = generator.random(len(clip)) < 0.5
    novelty = shared * generator.normal(size=num_clips)[clip] + generator.normal(size=len(clip)) + is_novel
    return novelty, is_novel, clip


def test_intervals_cover_the_truth_as_often_as_they_promise():
    """Sampled; actors of different clips differ by N(1, 2·(1 + shared²)), and nearly all pairs are such."""
    generator, shared, num_trials = np.random.default_rng(5), 1.0, 150
    truth = norm.cdf(1 / np.sqrt(2 * (1 + shared**2)))
    covered = 0
    for _ in range(num_trials):
        novelty, is_novel, clip = clips_of_actors(generator, shared=shared)
        draws = draw_clips(clip, num_clips=60, resamples=200, seed=int(generator.integers(2**31)))
        found = interval_of(drawn_measures(novelty, is_novel, draws)["auroc"])
        assert found is not None
        covered += found.low <= truth <= found.high
    assert 0.88 <= covered / num_trials <= 0.99


def test_there_is_no_interval_where_many_draws_lack_a_kind_of_actor():
    novelty, is_novel = np.array([1.0, 0.0, 2.0, 3.0]), np.array([True, False, False, False])
    draws = draw_clips(np.arange(4), num_clips=4, resamples=200)
    found = drawn_measures(novelty, is_novel, draws)
    assert np.isnan(found["auroc"]).mean() > 0.2
    assert intervals_of(found) is None


def test_what_cannot_be_measured_is_told_in_words():
    draws = draw_clips(np.arange(2), num_clips=2, resamples=3)
    with pytest.raises(RangeError, match="need known and novel actors"):
        drawn_measures(np.array([0.0, 1.0]), np.array([True, True]), draws)
    with pytest.raises(NotFinite):
        drawn_measures(np.array([0.0, np.inf]), np.array([True, False]), draws)
    with pytest.raises(RangeError, match="at least 1 resample"):
        draw_clips(np.arange(2), num_clips=2, resamples=0)
