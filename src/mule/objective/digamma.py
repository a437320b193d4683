"""ψ(x + d) − ψ(x) without losing digits: what every evidential loss is made of."""

import torch
from jaxtyping import Float
from torch import Tensor

# B₂ₖ / 2k of the asymptotic series ψ(x) = log x − 1/(2x) − Σₖ (B₂ₖ / 2k) x⁻²ᵏ
_SERIES = (1 / 12, -1 / 120, 1 / 252, -1 / 240, 1 / 132, -691 / 32760, 1 / 12)
# Steps of the recurrence, terms of the series: what is left out is below the type's rounding for x ≥ 1.
_STEPS_AND_TERMS = {torch.float32: (4, 3), torch.float64: (8, 7)}


def _series(inverse_square: Tensor, terms: int) -> Tensor:
    total = torch.zeros_like(inverse_square)
    for coefficient in reversed(_SERIES[:terms]):
        total = (total + coefficient) * inverse_square
    return total


def digamma_increase(x: Float[Tensor, "*shape"], d: Float[Tensor, "*shape"]) -> Float[Tensor, "*shape"]:
    """ψ(x + d) − ψ(x) for x ≥ 1 and d ≥ 0, in float32 or float64, to the type's precision where d ≥ 1.

    Subtracting two digammas loses every digit once evidence is large: in float32, ψ(10⁶ + 1) − ψ(10⁶) comes
    out as 0 or as 2·10⁻⁶ where 10⁻⁶ is right, and its gradient likewise. Here the differences are formed term by
    term, after a few steps of ψ(x) = ψ(x + 1) − 1/x:

        1/(x+i) − 1/(y+i) = d / ((x+i)(y+i)),   log(Y/X) = log(1 + d/X),   1/(2X) − 1/(2Y) = d / (2XY)

    with y = x + d. All of these are positive, so nothing cancels, neither here nor in the derivatives.
    """
    steps, terms = _STEPS_AND_TERMS[x.dtype]
    y = x + d
    recurrence = torch.zeros_like(y)
    for step in range(steps):
        recurrence = recurrence + d / ((x + step) * (y + step))
    x, y = x + steps, y + steps
    return (
        recurrence
        + torch.log1p(d / x)
        + d / (2 * x * y)
        + _series(x.square().reciprocal(), terms)
        - _series(y.square().reciprocal(), terms)
    )
