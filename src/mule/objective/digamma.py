"""ψ(x + d) − ψ(x) without losing digits: what every evidential loss is made of."""

from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

# B₂ₖ of the asymptotic series ψ(x) = log x − 1/(2x) − Σₖ (B₂ₖ/2k) x⁻²ᵏ and of its derivative
_BERNOULLI = (1 / 6, -1 / 30, 1 / 42, -1 / 30, 5 / 66, -691 / 2730, 7 / 6)
_SERIES = tuple(b / (2 * k) for k, b in enumerate(_BERNOULLI, start=1))
# Steps of the recurrence, terms of the series: what is left out is below the type's rounding for x ≥ 1.
_STEPS_AND_TERMS = {torch.float32: (4, 3), torch.float64: (8, 7)}


def digamma_increase(x: Float[Tensor, "*shape"], d: Float[Tensor, "*shape"]) -> Float[Tensor, "*shape"]:
    """ψ(x + d) − ψ(x) for x ≥ 1 and d ≥ 0, in float32 or float64, to the type's precision where d ≥ 1.

    Subtracting two digammas loses every digit once evidence is large: in float32, ψ(10⁶ + 1) − ψ(10⁶) comes
    out as 0 or as 2·10⁻⁶ where 10⁻⁶ is right, and its gradient likewise. Here the differences are formed term by
    term, after a few steps of ψ(x) = ψ(x + 1) − 1/x:

        1/(x+i) − 1/(y+i) = d / ((x+i)(y+i)),   log(Y/X) = log(1 + d/X),   1/(2X) − 1/(2Y) = d / (2XY)

    with y = x + d. All of these are positive, so nothing cancels.
    """
    return _DigammaIncrease.apply(x, d)


class _DigammaIncrease(torch.autograd.Function):
    """∂/∂d = ψ′(x + d), ∂/∂x = ψ′(x + d) − ψ′(x); written out, so that backwards keeps two tensors only."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, d: Tensor) -> Tensor:  # noqa: ANN401 - torch hands over what it likes
        ctx.save_for_backward(x, d)
        return _increase(x, d)

    @staticmethod
    def backward(ctx: Any, *grad_outputs: Tensor) -> tuple[Tensor, Tensor]:  # noqa: ANN401
        x, d = ctx.saved_tensors
        return -grad_outputs[0] * _trigamma_decrease(x, d), grad_outputs[0] * _trigamma(x + d)


def _increase(x: Tensor, d: Tensor) -> Tensor:
    steps, terms = _STEPS_AND_TERMS[x.dtype]
    y = x + d
    inverse = sum(1 / ((x + i) * (y + i)) for i in range(steps))
    x, y = x + steps, y + steps
    series = _polynomial(_SERIES[:terms], x**-2) - _polynomial(_SERIES[:terms], y**-2)
    return d * (inverse + 0.5 / (x * y)) + torch.log1p(d / x) + series


def _trigamma(x: Tensor) -> Tensor:
    """ψ′(x) = Σ 1/(x+i)² + 1/X + 1/(2X²) + Σ B₂ₖ/X²ᵏ⁺¹, where X = x + steps."""
    steps, terms = _STEPS_AND_TERMS[x.dtype]
    inverse = sum((x + i) ** -2 for i in range(steps))
    x = 1 / (x + steps)
    return inverse + x * (1 + 0.5 * x + _polynomial(_BERNOULLI[:terms], x * x))


def _trigamma_decrease(x: Tensor, d: Tensor) -> Tensor:
    """ψ′(x) − ψ′(x + d), term by term as above: 1/(x+i)² − 1/(y+i)² = d·(x + y + 2i) / ((x+i)²(y+i)²)."""
    steps, terms = _STEPS_AND_TERMS[x.dtype]
    y = x + d
    inverse = sum((x + y + 2 * i) / ((x + i) * (y + i)) ** 2 for i in range(steps))
    x, y = 1 / (x + steps), 1 / (y + steps)
    series = x * _polynomial(_BERNOULLI[:terms], x * x) - y * _polynomial(_BERNOULLI[:terms], y * y)
    return d * (inverse + x * y * (1 + 0.5 * (x + y))) + series


def _polynomial(coefficients: tuple[float, ...], z: Tensor) -> Tensor:
    """Σ coefficientₖ·zᵏ, k from 1."""
    total = coefficients[-1] * z
    for coefficient in coefficients[-2::-1]:
        total = (total + coefficient) * z
    return total
