"""The Beta loss: cross-entropy expected under the Beta that the evidence describes."""

from typing import Literal

import torch
from jaxtyping import Float, Shaped
from torch import Tensor

from mule.core.errors import RangeError, ShapeError
from mule.core.records import Evidence
from mule.evidence.opinion import beta_parameters
from mule.objective.digamma import digamma_increase

Reduction = Literal["mean", "sum", "none"]


def _labels(evidence: Evidence, targets: Tensor) -> Tensor:
    """The targets as booleans; labels are 0 or 1, nothing between."""
    if targets.shape != evidence.positive.shape:
        raise ShapeError(
            f"targets must have one entry per actor and class, {tuple(evidence.positive.shape)}; got "
            f"{tuple(targets.shape)}."
        )
    is_done = targets == 1
    if not torch.compiler.is_compiling() and not (is_done | (targets == 0)).all():
        raise RangeError("targets must be 0 or 1; the Beta loss has no soft labels. Threshold them first.")
    return is_done


def expected_cross_entropy(
    evidence: Evidence, targets: Shaped[Tensor, "actors classes"]
) -> Float[Tensor, "actors classes"]:
    """Binary cross-entropy of each action, expected under Beta(α, β) (Eq. 3, before the sum over classes).

    ψ is the digamma function, α = e⁺ + 1 and β = e⁻ + 1:
        y·(ψ(α+β) − ψ(α)) + (1−y)·(ψ(α+β) − ψ(β))
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
        evidence: what the head says of each actor.
        targets: 1 where the actor does the action, else 0.
        reduction: over actors. ``"mean"`` keeps the balance with the debiasing constraint whatever the number of
            actors; ``"sum"`` is printed; ``"none"`` gives one loss per actor. No actors: zero, not NaN.
        class_weights: one factor per class, for long tails.
        focal_exponent: each term is weighted by (1 − p)^exponent, p being the expected probability
            α/(α+β) or β/(α+β) of the label that holds. Zero, the default, is Eq. 3 itself.
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
    """The mean, the sum, or the losses themselves; a batch without actors costs nothing."""
    if reduction == "mean":
        return per_actor.sum() / max(len(per_actor), 1)
    if reduction == "sum":
        return per_actor.sum()
    if reduction == "none":
        return per_actor
    raise RangeError(f"reduction must be 'mean', 'sum' or 'none'; got {reduction!r}.")
