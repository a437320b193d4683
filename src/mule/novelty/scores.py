"""PE, NE, PNE and Belief: four ways to read novelty off the evidence (Eq. 9 and 10). Larger is more novel."""

from collections.abc import Callable, Mapping
from typing import Literal

import torch
from jaxtyping import Float
from torch import Tensor

from mule.core.records import Evidence, Novelty, at_least_single
from mule.evidence.opinion import log_unbelieved

NoveltyKind = Literal["pe", "pe_log", "ne", "ne_inverse", "pne", "belief"]


def _total(evidence: Float[Tensor, "actors classes"]) -> Float[Tensor, " actors"]:
    return at_least_single(evidence).sum(dim=-1)


def positive_evidence_novelty(evidence: Evidence, *, temperature: float = 1.0) -> Novelty:
    """PE: novel is what no known action has evidence for (Eq. 9).

    2 / (1 + exp(τ·Σe⁺)), which is 1 − tanh(τ·Σe⁺/2); the paper's Σα − K is Σe⁺, its τ is 1.
    """
    total = temperature * _total(evidence.positive)
    return Novelty(value=2 * torch.sigmoid(-total), rank=-total)


def positive_log_evidence_novelty(evidence: Evidence) -> Novelty:
    """PE read on the logarithm of evidence: Π 1/α, with rank −Σ log(1 + e⁺).

    With exponential evidence a single confident class carries the whole sum Σe⁺; the logarithm lets every class
    speak. For tied exponential evidence log(1 + e⁺) = log(1 + e^h), so this is JointEnergy's order.
    """
    total = torch.log1p(at_least_single(evidence.positive)).sum(dim=-1)
    return Novelty(value=torch.exp(-total), rank=-total)


def negative_evidence_novelty(evidence: Evidence) -> Novelty:
    """NE: novel is what every known action has evidence against (Eq. 9, in the printed direction).

    2 / (1 + exp(−Σe⁻)) − 1, which is tanh(Σe⁻/2); the paper's Σβ − K is Σe⁻.
    """
    total = _total(evidence.negative)
    return Novelty(value=torch.tanh(total / 2), rank=total)


def inverse_negative_evidence_novelty(evidence: Evidence) -> Novelty:
    """NE turned round: novel is what too little speaks against, 2 / (1 + exp(Σe⁻)).

    Unseen inputs gather less evidence of both kinds, so this direction is usually the one that finds them.
    """
    total = _total(evidence.negative)
    return Novelty(value=2 * torch.sigmoid(-total), rank=-total)


def combined_evidence_novelty(evidence: Evidence) -> Novelty:
    """PNE: novel is what little is known about either way, 2K / Σ(α + β) (Eq. 9)."""
    total = _total(evidence.positive) + _total(evidence.negative)
    prior = 2 * evidence.num_classes
    return Novelty(value=prior / (prior + total), rank=-total)


def belief_novelty(evidence: Evidence, *, base_rate: float = 0.5) -> Novelty:
    """Belief: novel is who is not believed to do any known action, 1 − b₁ ∗ … ∗ b_K = Π(1 − b) (Eq. 10).

    A base rate of 1, as printed, counts all evidence below one as none (see `opinion_from`).
    """
    log_nothing_believed = log_unbelieved(evidence, base_rate=base_rate).sum(dim=-1)
    return Novelty(value=log_nothing_believed.exp(), rank=log_nothing_believed)


NOVELTY_BY_KIND: Mapping[NoveltyKind, Callable[[Evidence], Novelty]] = {
    "pe": positive_evidence_novelty,
    "pe_log": positive_log_evidence_novelty,
    "ne": negative_evidence_novelty,
    "ne_inverse": inverse_negative_evidence_novelty,
    "pne": combined_evidence_novelty,
    "belief": belief_novelty,
}
