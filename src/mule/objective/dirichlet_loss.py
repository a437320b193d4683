"""The Dirichlet losses of evidential networks for one action per actor, which the Beta loss generalises.

One evidence per class, e ≥ 0; α = e + 1, S = Σα, p = α/S, u = K/S. These serve the ENN and DEAR rivals.
"""

import math

import torch
from jaxtyping import Float, Shaped
from torch import Tensor

from mule.core.records import at_least_single
from mule.objective.beta_loss import digamma_increase

ClassEvidence = Float[Tensor, "actors classes"]
Labels = Shaped[Tensor, "actors classes"]

_TINY = 1e-10  # keeps log(1 − u) and log u finite, as published


def dirichlet_parameters(
    evidence: ClassEvidence,
) -> tuple[Float[Tensor, "actors classes"], Float[Tensor, "actors 1"]]:
    """α = e + 1 and its sum S over classes."""
    alpha = at_least_single(evidence) + 1
    return alpha, alpha.sum(dim=-1, keepdim=True)


def dirichlet_uncertainty(evidence: ClassEvidence) -> Float[Tensor, " actors"]:
    """The mass that no class has claimed, u = K/S: 1 without evidence, towards 0 with much."""
    alpha, total = dirichlet_parameters(evidence)
    return alpha.shape[-1] / total.squeeze(-1)


def dirichlet_digamma_loss(evidence: ClassEvidence, targets: Labels) -> Float[Tensor, " actors"]:
    """Cross-entropy expected under the Dirichlet, Σ y·(ψ(S) − ψ(α)) (Eq. 11)."""
    alpha, total = dirichlet_parameters(evidence)
    return (targets * digamma_increase(alpha, total - alpha)).sum(dim=-1)


def dirichlet_log_loss(evidence: ClassEvidence, targets: Labels) -> Float[Tensor, " actors"]:
    """Negative log of the marginal likelihood, Σ y·(log S − log α): the loss DEAR trains with."""
    alpha, total = dirichlet_parameters(evidence)
    return (targets * torch.log1p((total - alpha) / alpha)).sum(dim=-1)


def misleading_evidence_kl(evidence: ClassEvidence, targets: Labels) -> Float[Tensor, " actors"]:
    """KL(Dir(α̃) ‖ Dir(1)), where α̃ = (α − 1)(1 − y) + 1 keeps only the evidence for wrong classes.

    ln Γ(S̃) − ln Γ(K) − Σ ln Γ(α̃) + Σ (α̃ − 1)(ψ(α̃) − ψ(S̃))
    """
    misleading = at_least_single(evidence) * (1 - targets.to(evidence.dtype))
    alpha, total = dirichlet_parameters(misleading)
    log_normaliser = torch.lgamma(total.squeeze(-1)) - torch.lgamma(alpha).sum(dim=-1)
    pull = (alpha - 1) * digamma_increase(alpha, total - alpha)
    return log_normaliser - math.lgamma(alpha.shape[-1]) - pull.sum(dim=-1)


def accuracy_versus_uncertainty_loss(
    evidence: ClassEvidence, targets: Labels, *, weight: float
) -> Float[Tensor, " actors"]:
    """Make correct answers certain and wrong ones uncertain (DEAR's EUC term).

        right: −weight·p̂·log(1 − u)        wrong: −(1 − weight)·(1 − p̂)·log u

    p̂ is the largest expected probability; an answer is right when its class is among the labels. `weight` follows
    `exponential_annealing`: early training weighs wrong answers, late training correct ones.
    """
    alpha, total = dirichlet_parameters(evidence)
    confidence, answer = (alpha / total).max(dim=-1)
    uncertainty = dirichlet_uncertainty(evidence)
    is_right = targets.gather(-1, answer.unsqueeze(-1)).squeeze(-1) > 0
    sure = -weight * confidence * torch.log(1 - uncertainty + _TINY)
    unsure = -(1 - weight) * (1 - confidence) * torch.log(uncertainty + _TINY)
    return torch.where(is_right, sure, unsure)


def exponential_annealing(epoch: float, *, num_epochs: float, start: float = 0.01) -> float:
    """`start` at epoch 0, rising exponentially to 1 at `num_epochs`: start·exp(−ln(start)·epoch/num_epochs)."""
    return start ** (1 - epoch / num_epochs)


def linear_annealing(epoch: float, *, num_epochs: float = 10.0) -> float:
    """epoch/num_epochs, at most 1."""
    return min(1.0, epoch / num_epochs)
