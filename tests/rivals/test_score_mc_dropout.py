"""Passes with dropout: direct formulas in numpy where they still have digits, laws where they do not."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from scipy import special

from mule.core.errors import TooFewActors
from mule.rivals.scores.dropout import (
    bald_novelty,
    dropout_mean_novelty,
    dropout_variance_novelty,
    log_variance,
    mean_log_odds,
)

passes = hnp.arrays(
    np.float64,
    st.tuples(st.integers(2, 5), st.integers(0, 3), st.integers(1, 4)),
    elements=st.floats(-12, 12),
)
SPREADS = [dropout_variance_novelty, bald_novelty]


@given(logits=passes)
def test_mean_is_one_minus_the_largest_mean_probability(logits):
    novelty = dropout_mean_novelty(torch.from_numpy(logits))
    expected = 1 - special.expit(logits).mean(axis=0).max(axis=1)
    np.testing.assert_allclose(novelty.value.numpy(), expected, rtol=1e-8)
    np.testing.assert_allclose(novelty.rank.numpy(), special.logit(expected), atol=1e-7)


@given(logits=passes)
def test_variance_is_the_variance_of_the_probabilities(logits):
    novelty = dropout_variance_novelty(torch.from_numpy(logits))
    expected = special.expit(logits).var(axis=0).mean(axis=1)
    np.testing.assert_allclose(novelty.value.numpy(), 4 * expected, rtol=1e-7, atol=1e-15)


def entropy(probability):
    return special.entr(probability) + special.entr(1 - probability)


@given(logits=passes)
def test_bald_is_the_entropy_of_the_mean_less_the_mean_entropy(logits):
    novelty = bald_novelty(torch.from_numpy(logits))
    probability = special.expit(logits)
    information = entropy(probability.mean(axis=0)) - entropy(probability).mean(axis=0)
    expected = information.sum(axis=1) / (logits.shape[2] * np.log(2))
    np.testing.assert_allclose(novelty.value.numpy(), expected, rtol=1e-6, atol=1e-13)


@pytest.mark.parametrize("novelty", SPREADS)
def test_passes_that_contradict_each_other_are_as_novel_as_can_be(novelty):
    logits = torch.tensor([50.0, -50.0])[:, None, None].expand(2, 1, 3)
    assert novelty(logits).value.item() == pytest.approx(1.0)


@pytest.mark.parametrize("novelty", SPREADS)
def test_passes_that_agree_are_least_novel(novelty):
    agreeing, differing = torch.zeros(3, 1, 2), torch.tensor([-0.1, 0.0, 0.1])[:, None, None].expand(3, 1, 2)
    rank = novelty(torch.cat([agreeing, differing], dim=1)).rank
    assert rank[0] < rank[1]
    assert torch.isfinite(rank).all()


@pytest.mark.parametrize("novelty", [dropout_mean_novelty, *SPREADS])
@pytest.mark.parametrize("sign", [-1.0, 1.0])
def test_actors_the_network_is_sure_of_still_differ(novelty, sign):
    """All probabilities round to 0 (or 1); the nearer the logits to zero, the more is left of the spread."""
    distance = torch.arange(10_000.0, 9_000.0, -20.0)
    draws = torch.tensor([0.0, 1.0, 3.0])
    logits = sign * (distance[None, :] + draws[:, None])[:, :, None].expand(3, 50, 2)
    rank = novelty(logits).rank
    assert torch.isfinite(rank).all()
    assert (rank.diff() > 0).all() if (sign > 0 or novelty in SPREADS) else (rank.diff() < 0).all()


def test_bald_of_rare_outcomes_joins_the_direct_formula_smoothly():
    """Either side of where the tiny-scale form takes over, log information falls by one per unit of logit."""
    centres = torch.arange(-34.0, -26.0, 0.5, dtype=torch.float64)
    logits = (centres[None, :] + torch.tensor([0.0, -1.0, -2.5])[:, None])[:, :, None]
    np.testing.assert_allclose(bald_novelty(logits).rank.diff().numpy(), 0.5, atol=1e-9)


def test_means_and_variances_have_one_entry_per_actor_and_class():
    logits = torch.randn(4, 1500, 3, generator=torch.Generator().manual_seed(0)).double()
    probability = torch.sigmoid(logits)
    torch.testing.assert_close(torch.sigmoid(mean_log_odds(logits)), probability.mean(dim=0))
    torch.testing.assert_close(log_variance(logits).exp(), probability.var(dim=0, correction=0))


@pytest.mark.parametrize("novelty", SPREADS)
def test_one_pass_has_no_spread(novelty):
    with pytest.raises(TooFewActors, match="needs at least 2 of them; got 1"):
        novelty(torch.zeros(1, 5, 3))
