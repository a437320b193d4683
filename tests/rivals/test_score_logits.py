"""Scores of the logits alone: closed forms, and the same from scipy."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from scipy import special

from mule.core.errors import RangeError
from mule.novelty.combining import largest_logit_novelty
from mule.rivals.scores.logits import (
    energy_novelty,
    joint_energy,
    joint_energy_novelty,
    max_softmax_novelty,
    relu_evidence,
    relu_evidence_novelty,
)

logit_tables = hnp.arrays(
    np.float64, st.tuples(st.integers(0, 4), st.integers(2, 6)), elements=st.floats(-30, 30)
)
ALL = [energy_novelty, joint_energy_novelty, largest_logit_novelty, max_softmax_novelty]


@given(logits=logit_tables)
def test_values_are_the_papers_formulas(logits):
    table = torch.from_numpy(logits)
    expected = {
        max_softmax_novelty: 1 - np.asarray(special.softmax(logits, axis=1)).max(axis=1),
        largest_logit_novelty: 1 - special.expit(logits).max(axis=1),
        energy_novelty: 1 / (1 + np.exp(logits).sum(axis=1)),
        joint_energy_novelty: np.prod(1 - special.expit(logits), axis=1),
    }
    for novelty, value in expected.items():
        np.testing.assert_allclose(novelty(table).value.numpy(), value, rtol=1e-9, atol=1e-13)


@given(logits=logit_tables)
def test_ranks_are_the_papers_scores_in_order(logits):
    table = torch.from_numpy(logits)
    np.testing.assert_allclose(
        energy_novelty(table).rank.numpy(), -np.asarray(special.logsumexp(logits, axis=1)), atol=1e-12
    )
    np.testing.assert_allclose(largest_logit_novelty(table).rank.numpy(), -logits.max(axis=1))
    energies = np.log1p(np.exp(logits)).sum(axis=1)
    np.testing.assert_allclose(joint_energy(table).numpy(), energies)
    np.testing.assert_allclose(joint_energy_novelty(table).rank.numpy(), -np.log(energies), atol=1e-12)


@pytest.mark.parametrize("novelty", ALL)
def test_raising_the_largest_logit_makes_an_actor_less_novel(novelty):
    logits = torch.tensor([[1.0, -2.0, 0.5], [2.0, -2.0, 0.5]])
    assert novelty(logits).rank[1] < novelty(logits).rank[0]
    assert novelty(logits).value[1] < novelty(logits).value[0]


@pytest.mark.parametrize("novelty", ALL)
@pytest.mark.parametrize("centre", [-1e4, 0.0, 1e4])
def test_actors_with_huge_logits_still_differ(novelty, centre):
    steps = torch.arange(50.0)[:, None]
    logits = torch.cat([centre + steps, torch.full((50, 3), centre - 100.0)], dim=1)
    rank = novelty(logits).rank
    assert torch.isfinite(rank).all()
    assert (rank.diff() < 0).all()


def test_softmax_takes_two_actions_at_once_for_doubt_and_sigmoids_do_not():
    both, neither = torch.tensor([[8.0, 8.0, -8.0]]), torch.tensor([[1.0, -8.0, -8.0]])
    assert max_softmax_novelty(both).rank > max_softmax_novelty(neither).rank
    for novelty in (largest_logit_novelty, energy_novelty, joint_energy_novelty):
        assert novelty(both).rank < novelty(neither).rank


def test_softmax_over_one_class_is_refused():
    with pytest.raises(RangeError, match="max-softmax needs at least 2 classes"):
        max_softmax_novelty(torch.zeros(3, 1))
    for novelty in (largest_logit_novelty, energy_novelty, joint_energy_novelty):
        assert len(novelty(torch.zeros(3, 1)).rank) == 3


@pytest.mark.paper("fair comparison")
def test_outputs_read_as_evidence_are_relu_on_either_side():
    evidence = relu_evidence(torch.tensor([[2.0, -3.0]]))
    assert evidence.positive.tolist() == [[2.0, 0.0]]
    assert evidence.negative.tolist() == [[0.0, 3.0]]


@pytest.mark.paper("fair comparison")
def test_scores_of_relu_evidence_are_those_of_the_paper():
    """By hand for h = (2, −3): α = (3, 1), β = (1, 4), K = 2, W = 2, a = 1/2."""
    logits = torch.tensor([[2.0, -3.0]])

    def value(kind):
        return relu_evidence_novelty(logits, kind=kind).value.item()

    assert value("pe") == pytest.approx(2 / (1 + np.exp(3 + 1 - 2)))
    assert value("ne") == pytest.approx(2 / (1 + np.exp(2 - 1 - 4)) - 1)
    assert value("pne") == pytest.approx(2 * 2 / (3 + 1 + 1 + 4))
    assert value("belief") == pytest.approx(1 - 2 / 4)


@pytest.mark.paper("fair comparison")
def test_the_rule_cannot_tell_apart_actors_without_a_positive_logit():
    logits = torch.tensor([[-1.0, -2.0], [-5.0, -9.0]])
    assert relu_evidence_novelty(logits, kind="pe").rank.unique().numel() == 1
    assert relu_evidence_novelty(logits, kind="ne").rank.unique().numel() == 2
