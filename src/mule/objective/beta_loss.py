"""The Beta loss: cross-entropy expected under the Beta that the evidence describes.

It is built from ψ(x + d) − ψ(x), computed here without losing digits.
"""

from typing import Any, Literal

import torch
from jaxtyping import Float, Shaped
from torch import Tensor

from mule.core.errors import RangeError, ShapeError
from mule.core.records import Evidence
from mule.evidence.head import beta_parameters

# B₂ₖ of the asymptotic series ψ(x) = log x − 1/(2x) − Σₖ (B₂ₖ/2k) x⁻²ᵏ and of its derivative
_BERNOULLI = (1 / 6, -1 / 30, 1 / 42, -1 / 30, 5 / 66, -691 / 2730, 7 / 6)
_SERIES = tuple(b / (2 * k) for k, b in enumerate(_BERNOULLI, start=1))
# Steps of the recurrence and terms of the series; the remainder is below the type's rounding for x ≥ 1.
_STEPS_AND_TERMS = {torch.float32: (4, 3), torch.float64: (8, 7)}


def digamma_increase(x: Float[Tensor, "*shape"], d: Float[Tensor, "*shape"]) -> Float[Tensor, "*shape"]:
    """ψ(x + d) − ψ(x) for x ≥ 1 and d ≥ 0, in float32 or float64, to the type's precision where d ≥ 1.

    Subtracting two digammas loses every digit once evidence is large: in float32, ψ(10⁶ + 1) − ψ(10⁶) is
    computed as 0 or as 2·10⁻⁶ instead of 10⁻⁶, and its gradient likewise. Here the differences are formed term by
    term, after a few steps of ψ(x) = ψ(x + 1) − 1/x:

        1/(x+i) − 1/(y+i) = d / ((x+i)(y+i)),   log(Y/X) = log(1 + d/X),   1/(2X) − 1/(2Y) = d / (2XY)

    with y = x + d. All of these are positive, so nothing cancels.
    """
    return _DigammaIncrease.apply(x, d)


class _DigammaIncrease(torch.autograd.Function):
    """∂/∂d = ψ′(x + d), ∂/∂x = ψ′(x + d) − ψ′(x); written out, so that backwards keeps two tensors only."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, d: Tensor) -> Tensor:  # noqa: ANN401 - torch gives it no type
        ctx.save_for_backward(x, d)
        steps, terms = _STEPS_AND_TERMS[x.dtype]
        y = x + d
        inverse = sum(1 / ((x + i) * (y + i)) for i in range(steps))
        x, y = x + steps, y + steps
        series = _polynomial(_SERIES[:terms], x**-2) - _polynomial(_SERIES[:terms], y**-2)
        return d * (inverse + 0.5 / (x * y)) + torch.log1p(d / x) + series

    @staticmethod
    def backward(ctx: Any, *grad_outputs: Tensor) -> tuple[Tensor, Tensor]:  # noqa: ANN401
        x, d = ctx.saved_tensors
        return -grad_outputs[0] * _trigamma_decrease(x, d), grad_outputs[0] * _trigamma(x + d)


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


Reduction = Literal["mean", "sum", "none"]


def _labels(evidence: Evidence, targets: Tensor) -> Tensor:
    """Return the targets as booleans."""
    if targets.shape != evidence.positive.shape:
        raise ShapeError(
            f"targets must have one entry per actor and class, {tuple(evidence.positive.shape)}; got "
            f"{tuple(targets.shape)}."
        )
    is_done = targets == 1
    if not torch.compiler.is_compiling() and not (is_done | (targets == 0)).all():
        raise RangeError("targets must be 0 or 1; the Beta loss takes no soft labels. Threshold them first.")
    return is_done


def expected_cross_entropy(
    evidence: Evidence, targets: Shaped[Tensor, "actors classes"]
) -> Float[Tensor, "actors classes"]:
    """Binary cross-entropy of each action, expected under Beta(α, β) (Eq. 3, before the sum over classes).

    ψ is the digamma function, α = e⁺ + 1 and β = e⁻ + 1:
        y·(ψ(α+β) − ψ(α)) + (1−y)·(ψ(α+β) − ψ(β))

    >>> evidence = Evidence(torch.tensor([[9.0, 0.0]]), torch.tensor([[0.0, 9.0]]))
    >>> loss = expected_cross_entropy(evidence, torch.tensor([[1, 1]]))
    >>> loss.shape, bool(loss[0, 0] < loss[0, 1])
    (torch.Size([1, 2]), True)
    """
    alpha, beta = beta_parameters(evidence)
    is_done = _labels(evidence, targets)
    return digamma_increase(torch.where(is_done, alpha, beta), torch.where(is_done, beta, alpha))


def beta_loss(
    evidence: Evidence,
    targets: Shaped[Tensor, "actors classes"],
    *,
    reduction: Reduction = "mean",
    class_weights: Float[Tensor, " classes"] | None = None,
    focal_exponent: float = 0.0,
) -> Float[Tensor, "..."]:
    """The Beta loss of a batch: summed over classes, then reduced over actors (Eq. 2 and 3).

    Args:
        evidence: of each actor, for and against each action.
        targets: 1 where the actor does the action, else 0.
        reduction: over actors. ``"mean"`` keeps the balance with the debiasing constraint whatever the number of
            actors; ``"sum"`` is the paper's; ``"none"`` gives one loss per actor. Without actors: zero, not NaN.
        class_weights: one factor per class, for long tails.
        focal_exponent: each term is weighted by (1 − p)^exponent, p being the expected probability
            α/(α+β) or β/(α+β) of the label that holds. Zero, the default, is Eq. 3 itself.

    >>> sure = Evidence(torch.tensor([[9.0]]), torch.tensor([[0.0]]))
    >>> right, wrong = (beta_loss(sure, torch.tensor([[label]])).item() for label in (1, 0))
    >>> right < wrong
    True
    """
    per_class = expected_cross_entropy(evidence, targets)
    if focal_exponent:
        alpha, beta = beta_parameters(evidence)
        against_label = torch.where(targets == 1, beta, alpha) / (alpha + beta)
        per_class = against_label.pow(focal_exponent) * per_class
    if class_weights is not None:
        per_class = per_class * class_weights
    return reduce_over_actors(per_class.sum(dim=-1), reduction)


def reduce_over_actors(per_actor: Float[Tensor, " actors"], reduction: Reduction) -> Float[Tensor, "..."]:
    """Return the mean, the sum, or the losses themselves; a batch without actors gives zero."""
    if reduction == "mean":
        return per_actor.sum() / max(len(per_actor), 1)
    if reduction == "sum":
        return per_actor.sum()
    if reduction == "none":
        return per_actor
    raise RangeError(f"reduction must be 'mean', 'sum' or 'none'; got {reduction!r}.")
