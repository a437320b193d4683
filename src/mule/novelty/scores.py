"""PE, NE, PNE and Belief: four ways to read novelty off the evidence (Eq. 9 and 10). Larger is more novel.

Scores that first look at known actors, and are saved with the model.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from typing import Literal

import torch
from jaxtyping import Bool, Float, Shaped
from torch import Tensor, nn

from mule.core.errors import NotFitted, RangeError, ShapeError, TooFewActors
from mule.core.records import Evidence, Novelty, at_least_single
from mule.evidence.head import log_unbelieved

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


def require_known(targets: Shaped[Tensor, "actors classes"]) -> None:
    """Every actor does at least one known action; a novel one must not teach a score what novel looks like."""
    is_novel: Bool[Tensor, " actors"] = ~(targets > 0).any(dim=-1)
    if is_novel.any():
        first = int(torch.nonzero(is_novel)[0])
        raise RangeError(
            f"a score is fitted on known actors only; {int(is_novel.sum())} of {len(targets)} do no known action, "
            f"the first is actor {first}. Leave them out, or they decide what counts as novel."
        )


class FittedScore(nn.Module, ABC):
    """A novelty score with something to learn from known actors.

    What was learnt lives in buffers, so `state_dict` saves it with the model, `load_state_dict` brings it back
    and `to` moves it. Subclasses register their buffers at construction and fill them in `_fit`.
    """

    is_fitted: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("is_fitted", torch.tensor(False))

    def fit(self, evidence: Evidence, targets: Shaped[Tensor, "actors classes"]) -> None:
        """Learns from known actors and their actions; refuses actors that do no known action."""
        if targets.shape != evidence.positive.shape:
            raise ShapeError(
                f"targets must have one entry per actor and class, {tuple(evidence.positive.shape)}; got "
                f"{tuple(targets.shape)}."
            )
        require_known(targets)
        with torch.no_grad():
            self._fit(evidence, targets)
            self.is_fitted.fill_(True)

    def forward(self, evidence: Evidence) -> Novelty:
        """The novelty of each actor, by what was learnt."""
        if not self.is_fitted:
            raise NotFitted(
                f"{type(self).__name__} has not seen known actors yet. Call fit(evidence, targets) on training "
                "actors, or load a state_dict that was saved after it."
            )
        return self._novelty(evidence)

    @abstractmethod
    def _fit(self, evidence: Evidence, targets: Shaped[Tensor, "actors classes"]) -> None: ...

    @abstractmethod
    def _novelty(self, evidence: Evidence) -> Novelty: ...


class ClassNormalisedEvidence(FittedScore):
    """Positive log-evidence, each class measured against what is usual for it among known actors.

    z = (log(1 + e⁺) − mean) / deviation per class over known actors; the rank is −mean(z) and the value its
    normal tail. A class that always answers loudly no longer drowns one that whispers.
    """

    mean: Tensor
    deviation: Tensor

    def __init__(self, num_classes: int) -> None:
        super().__init__()
        self.register_buffer("mean", torch.zeros(num_classes))
        self.register_buffer("deviation", torch.ones(num_classes))

    def _fit(self, evidence: Evidence, targets: Shaped[Tensor, "actors classes"]) -> None:
        if len(targets) < 2:
            raise TooFewActors(f"a deviation needs at least 2 known actors; got {len(targets)}.")
        loudness = self._loudness(evidence)
        self.mean.copy_(loudness.mean(dim=0))
        self.deviation.copy_(loudness.std(dim=0).clamp(min=torch.finfo(loudness.dtype).eps))

    def _novelty(self, evidence: Evidence) -> Novelty:
        rank = -((self._loudness(evidence) - self.mean) / self.deviation).mean(dim=-1)
        return Novelty(value=torch.special.ndtr(rank), rank=rank)

    @staticmethod
    def _loudness(evidence: Evidence) -> Float[Tensor, "actors classes"]:
        return torch.log1p(at_least_single(evidence.positive))
