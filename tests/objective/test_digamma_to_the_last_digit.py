"""ψ(x + d) − ψ(x) and its gradients keep every digit of a double, down to the last terms of the series."""

import math

import pytest
import torch

from mule.objective.beta_loss import digamma_increase

EXACT = 2e-15


def increase_and_gradients(x, d):
    x, d = (torch.tensor(value, dtype=torch.float64, requires_grad=True) for value in (x, d))
    increase = digamma_increase(x, d)
    by_x, by_d = torch.autograd.grad(increase, (x, d))
    return increase.item(), by_x.item(), by_d.item()


@pytest.mark.parametrize("x", [1.0, 1.125, 1.5, 2.0, 3.25])
@pytest.mark.parametrize("steps", [1, 2, 9])
def test_an_integer_increase_is_exact(x, steps):
    found, to_x, _ = increase_and_gradients(x, float(steps))
    assert found == pytest.approx(math.fsum(1 / (x + i) for i in range(steps)), rel=EXACT, abs=0)
    assert to_x == pytest.approx(-math.fsum((x + i) ** -2 for i in range(steps)), rel=EXACT, abs=0)


@pytest.mark.parametrize("total", [2, 3, 4, 8])
def test_the_gradient_of_the_increase_is_trigamma(total):
    """ψ′(n) = π²/6 − Σ 1/k², k < n."""
    _, _, to_d = increase_and_gradients(1.0, total - 1.0)
    assert to_d == pytest.approx(
        math.pi**2 / 6 - math.fsum(k**-2 for k in range(1, total)), rel=2 * EXACT, abs=0
    )
