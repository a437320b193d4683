"""Beta(α, β), and the subjective opinion that stands behind it."""

import torch
from jaxtyping import Float
from torch import Tensor

from mule.core.records import Evidence, Opinion, at_least_single


def beta_parameters(
    evidence: Evidence,
) -> tuple[Float[Tensor, "actors classes"], Float[Tensor, "actors classes"]]:
    """The Beta's parameters are the evidence plus one each: α = e⁺ + 1, β = e⁻ + 1, in float32 or finer."""
    return at_least_single(evidence.positive) + 1, at_least_single(evidence.negative) + 1


def opinion_from(evidence: Evidence, *, prior_weight: float = 2.0, base_rate: float = 0.5) -> Opinion:
    """Evidence divides one unit of mass between belief, disbelief and uncertainty (Eq. 1).

        b = (α − aW) / (α + β)      d = (β − aW) / (α + β)      u = W / (α + β)

    a is `base_rate`, W is `prior_weight`. With a = 1/2 and W = 2 this is b = e⁺/S, d = e⁻/S, u = 2/S with
    S = e⁺ + e⁻ + 2: no mass is negative and b + d + u = 1.

    The paper prints a = 1. Then b and d are negative while α < 2 or β < 2; the masses are clamped to [0, 1], and
    two things break: they no longer sum to one (b + d + u = 1 − (2a − 1)·W/(α + β) before the clamp), and all
    evidence below one counts as none.
    """
    alpha, beta = beta_parameters(evidence)
    total = alpha + beta
    return Opinion(
        belief=((alpha - base_rate * prior_weight) / total).clamp(0, 1),
        disbelief=((beta - base_rate * prior_weight) / total).clamp(0, 1),
        uncertainty=(prior_weight / total).clamp(0, 1),
        base_rate=base_rate,
    )


def log_unbelieved(
    evidence: Evidence, *, prior_weight: float = 2.0, base_rate: float = 0.5
) -> Float[Tensor, "actors classes"]:
    """log(1 − b) for each action, to full precision however close belief comes to 0 or 1.

    From Eq. 1, b / (1 − b) = (α − aW) / (β + aW), so log(1 − b) = −log(1 + (α − aW) / (β + aW)); b itself, which
    rounds to 1, is never formed.
    """
    alpha, beta = beta_parameters(evidence)
    prior = base_rate * prior_weight
    return -torch.log1p((alpha - prior).clamp(min=0) / (beta + prior))


def combined_belief(
    evidence: Evidence, *, prior_weight: float = 2.0, base_rate: float = 0.5
) -> Float[Tensor, " actors"]:
    """Belief that the actor does at least one known action: the co-multiplication b₁ ∗ … ∗ b_K (Eq. 10).

    Folding bᵢ ∗ bⱼ = bᵢ + bⱼ − bᵢ·bⱼ over the actions gives 1 − Π(1 − bᵢ), whatever the order.
    """
    return -torch.expm1(log_unbelieved(evidence, prior_weight=prior_weight, base_rate=base_rate).sum(dim=-1))
