import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy import special

from mule.objective.beta_loss import digamma_increase


@given(st.floats(1, 1e7), st.floats(1, 1e7))
def test_double_precision_equals_scipy_where_scipy_keeps_its_digits(x, d):
    found = digamma_increase(
        torch.tensor(x, dtype=torch.float64), torch.tensor(d, dtype=torch.float64)
    ).item()
    expected = special.digamma(x + d) - special.digamma(x)
    assert found == pytest.approx(expected, rel=1e-12, abs=1e-13 * abs(special.digamma(x + d)) + 1e-14)


@given(st.floats(1, 1e6, width=32), st.floats(1, 1e6, width=32))
def test_single_precision_equals_double_precision_to_a_few_roundings(x, d):
    single = digamma_increase(torch.tensor(x), torch.tensor(d)).item()
    double = digamma_increase(
        torch.tensor(x, dtype=torch.float64), torch.tensor(d, dtype=torch.float64)
    ).item()
    assert single == pytest.approx(double, rel=1e-6)


def test_an_integer_increase_is_a_sum_of_reciprocals():
    x = torch.tensor(2.5, dtype=torch.float64)
    expected = sum(1 / (2.5 + i) for i in range(7))
    assert digamma_increase(x, torch.tensor(7.0, dtype=torch.float64)).item() == pytest.approx(
        expected, rel=1e-14
    )


def test_the_plain_difference_fails_where_this_one_does_not():
    x, d = torch.tensor(1e6), torch.tensor(1.0)
    assert digamma_increase(x, d).item() == pytest.approx(1e-6, rel=1e-5)
    assert abs((torch.digamma(x + d) - torch.digamma(x)).item() / 1e-6 - 1) > 0.01


def test_derivatives_of_both_orders_match_finite_differences():
    generator = torch.Generator().manual_seed(0)
    x = (1 + 9 * torch.rand(6, dtype=torch.float64, generator=generator)).requires_grad_()
    d = (1 + 9 * torch.rand(6, dtype=torch.float64, generator=generator)).requires_grad_()
    assert torch.autograd.gradcheck(digamma_increase, (x, d))
    assert torch.autograd.gradgradcheck(digamma_increase, (x, d))
