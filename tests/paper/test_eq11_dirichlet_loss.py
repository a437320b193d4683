import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats
from strategies import evidences_with_targets

from mule.objective.beta_loss import beta_loss
from mule.objective.dirichlet_loss import (
    accuracy_versus_uncertainty_loss,
    dirichlet_digamma_loss,
    dirichlet_log_loss,
    dirichlet_uncertainty,
    exponential_annealing,
    linear_annealing,
    misleading_evidence_kl,
)

E = torch.tensor([[2.0, 0.5, 0.0], [0.0, 0.0, 7.0]], dtype=torch.float64)
Y = torch.tensor([[1.0, 0.0, 0.0], [0.0, 1.0, 0.0]], dtype=torch.float64)
SAMPLES = 400_000


def sampled(actor):
    return np.random.default_rng(7).dirichlet(E[actor].numpy() + 1, size=SAMPLES)


@pytest.mark.paper("Eq. 11")
@pytest.mark.parametrize("actor", [0, 1])
def test_digamma_loss_is_cross_entropy_expected_under_the_dirichlet(actor):
    expected = -np.mean(np.log(sampled(actor)[:, int(Y[actor].argmax())]))
    assert dirichlet_digamma_loss(E, Y)[actor].item() == pytest.approx(expected, rel=1e-2)


@pytest.mark.parametrize("actor", [0, 1])
def test_log_loss_is_minus_the_log_of_the_expected_probability(actor):
    expected = -np.log(np.mean(sampled(actor)[:, int(Y[actor].argmax())]))
    assert dirichlet_log_loss(E, Y)[actor].item() == pytest.approx(expected, rel=1e-2)


@pytest.mark.parametrize("actor", [0, 1])
def test_kl_is_the_divergence_of_misleading_evidence_from_uniform(actor):
    alpha = (E[actor] * (1 - Y[actor]) + 1).numpy()
    draws = np.random.default_rng(3).dirichlet(alpha, size=20_000)
    log_ratio = [stats.dirichlet.logpdf(p, alpha) - stats.dirichlet.logpdf(p, np.ones(3)) for p in draws]
    assert misleading_evidence_kl(E, Y)[actor].item() == pytest.approx(np.mean(log_ratio), abs=0.02)
    torch_alpha = torch.as_tensor(alpha)
    closed = torch.distributions.kl_divergence(
        torch.distributions.Dirichlet(torch_alpha), torch.distributions.Dirichlet(torch.ones(3).double())
    )
    assert misleading_evidence_kl(E, Y)[actor].item() == pytest.approx(closed.item(), rel=1e-9, abs=1e-12)


def test_evidence_for_the_right_class_only_misleads_nobody():
    assert misleading_evidence_kl(100 * Y, Y).tolist() == pytest.approx([0.0, 0.0], abs=1e-12)


@pytest.mark.parametrize("weight", [0.01, 0.5, 1.0])
def test_accuracy_versus_uncertainty_by_hand(weight):
    # actor 0: α = 3, 1.5, 1; S = 5.5; right. actor 1: α = 1, 1, 8; S = 10; answers class 2, wrong.
    right = -weight * (3 / 5.5) * np.log(1 - 3 / 5.5)
    wrong = -(1 - weight) * (1 - 0.8) * np.log(0.3)
    found = accuracy_versus_uncertainty_loss(E, Y, weight=weight)
    assert found.tolist() == pytest.approx([right, wrong], rel=1e-6)


def test_uncertainty_is_one_without_evidence_and_falls_with_it():
    assert dirichlet_uncertainty(torch.zeros(1, 4)).item() == 1.0
    assert dirichlet_uncertainty(E).tolist() == pytest.approx([3 / 5.5, 0.3])


@given(st.floats(1, 100), st.floats(0.001, 0.5))
def test_annealing_starts_low_and_ends_at_one(num_epochs, start):
    assert exponential_annealing(0.0, num_epochs=num_epochs, start=start) == pytest.approx(start)
    assert exponential_annealing(num_epochs, num_epochs=num_epochs, start=start) == pytest.approx(1.0)
    middle = exponential_annealing(num_epochs / 2, num_epochs=num_epochs, start=start)
    assert middle == pytest.approx(start * np.exp(-np.log(start) / 2))
    assert [linear_annealing(e) for e in (0.0, 5.0, 10.0, 20.0)] == [0.0, 0.5, 1.0, 1.0]


@pytest.mark.parametrize("loss", [dirichlet_digamma_loss, dirichlet_log_loss, misleading_evidence_kl])
def test_gradients_match_finite_differences(loss):
    evidence = E.clone().add(0.1).requires_grad_()
    assert torch.autograd.gradcheck(lambda e: loss(e, Y), (evidence,))


@pytest.mark.paper("Proposition 3")
@given(evidences_with_targets(max_classes=1))
def test_beta_loss_of_one_class_is_the_two_class_dirichlet_loss(drawn):
    evidence, targets = drawn
    two_classes = torch.cat([evidence.positive, evidence.negative], dim=1)
    labels = torch.cat([targets, 1 - targets], dim=1)
    torch.testing.assert_close(
        beta_loss(evidence, targets, reduction="none"), dirichlet_digamma_loss(two_classes, labels)
    )
