import pytest
import torch
from hypothesis import given
from strategies import evidences

from mule.core.records import Evidence
from mule.evidence.head import beta_parameters, opinion_from

pytestmark = pytest.mark.paper("Eq. 1")


@given(evidence=evidences())
def test_opinion_masses_sum_to_one_and_are_never_negative(evidence):
    opinion = opinion_from(evidence)
    masses = torch.stack([opinion.belief, opinion.disbelief, opinion.uncertainty])
    assert (masses >= 0).all()
    torch.testing.assert_close(masses.sum(0), torch.ones_like(opinion.belief), rtol=0, atol=1e-12)


@given(evidence=evidences())
def test_probability_is_the_mean_of_the_beta(evidence):
    alpha, beta = beta_parameters(evidence)
    mean = torch.distributions.Beta(alpha, beta, validate_args=False).mean
    torch.testing.assert_close(opinion_from(evidence).probability, mean, rtol=1e-12, atol=0)


def test_no_evidence_is_pure_uncertainty():
    nothing = Evidence(positive=torch.zeros(1, 1), negative=torch.zeros(1, 1))
    opinion = opinion_from(nothing)
    assert (opinion.belief, opinion.disbelief, opinion.uncertainty) == (0, 0, 1)
    assert opinion.probability == 0.5


def test_masses_follow_the_printed_formula_for_any_prior():
    evidence = Evidence(positive=torch.tensor([[7.0]]), negative=torch.tensor([[5.0]]))
    opinion = opinion_from(evidence, prior_weight=3.0, base_rate=0.25)
    # by hand: α = 8, β = 6, aW = 0.75
    assert opinion.belief.item() == pytest.approx(7.25 / 14)
    assert opinion.disbelief.item() == pytest.approx(5.25 / 14)
    assert opinion.uncertainty.item() == pytest.approx(3 / 14)
    assert opinion.probability.item() == pytest.approx(7.25 / 14 + 0.25 * 3 / 14)


@given(evidence=evidences())
def test_printed_base_rate_of_one_breaks_the_sum_and_is_clamped(evidence):
    opinion = opinion_from(evidence, base_rate=1.0)
    masses = torch.stack([opinion.belief, opinion.disbelief, opinion.uncertainty])
    assert ((masses >= 0) & (masses <= 1)).all()
    alpha, beta = beta_parameters(evidence)
    unclamped = (alpha >= 2) & (beta >= 2)
    short_of_one = 1 - masses.sum(0)
    torch.testing.assert_close(short_of_one[unclamped], (2 / (alpha + beta))[unclamped], rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_evidence_gives_a_single_precision_opinion(dtype):
    evidence = Evidence(
        positive=torch.tensor([[6e4, 0.0]], dtype=dtype), negative=torch.tensor([[6e4, 3.0]], dtype=dtype)
    )
    opinion = opinion_from(evidence)  # the sum of the two would overflow float16
    assert opinion.belief.dtype == torch.float32
    masses = opinion.belief + opinion.disbelief + opinion.uncertainty
    torch.testing.assert_close(masses, torch.ones(1, 2))
