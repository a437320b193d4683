"""PE, NE, PNE and Belief: four novelty scores of evidence (Eq. 9 and 10), and scores fitted on known actors.

Larger is more novel.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from typing import Literal

import torch
from jaxtyping import Bool, Float, Shaped
from torch import Tensor, nn

from mule.core.defaults import BASE_RATE
from mule.core.errors import NotFitted, RangeError, ShapeError, TooFewActors
from mule.core.records import Evidence, Novelty, at_least_single
from mule.evidence.head import log_unbelieved

NoveltyKind = Literal["pe", "pe_log", "ne", "ne_inverse", "pne", "belief"]


def _total(evidence: Float[Tensor, "actors classes"]) -> Float[Tensor, " actors"]:
    return at_least_single(evidence).sum(dim=-1)


def positive_evidence_novelty(evidence: Evidence, *, temperature: float = 1.0) -> Novelty:
    """Return PE: an actor is novel if there is no evidence for any known action (Eq. 9).

    2 / (1 + exp(τ·Σe⁺)), which is 1 − tanh(τ·Σe⁺/2); the paper's Σα − K is Σe⁺, its τ is 1.

    >>> evidence = Evidence(torch.tensor([[4.0, 0.0], [0.0, 0.0]]), torch.tensor([[0.0, 4.0], [1.0, 1.0]]))
    >>> [round(value, 3) for value in positive_evidence_novelty(evidence).value.tolist()]
    [0.036, 1.0]
    """
    total = temperature * _total(evidence.positive)
    return Novelty(value=2 * torch.sigmoid(-total), rank=-total)


def positive_log_evidence_novelty(evidence: Evidence) -> Novelty:
    """Return PE on the logarithm of evidence: Π 1/α, with rank −Σ log(1 + e⁺).

    With exponential evidence one confident class dominates the sum Σe⁺; with the logarithm every class
    counts. For tied exponential evidence log(1 + e⁺) = log(1 + e^h), so actors rank as by JointEnergy.

    >>> evidence = Evidence(torch.tensor([[4.0, 0.0], [0.0, 0.0]]), torch.tensor([[0.0, 4.0], [1.0, 1.0]]))
    >>> [round(value, 3) for value in positive_log_evidence_novelty(evidence).value.tolist()]
    [0.2, 1.0]
    """
    total = torch.log1p(at_least_single(evidence.positive)).sum(dim=-1)
    return Novelty(value=torch.exp(-total), rank=-total)


def negative_evidence_novelty(evidence: Evidence) -> Novelty:
    """Return NE: an actor is novel if there is evidence against every known action (Eq. 9, in the printed direction).

    2 / (1 + exp(−Σe⁻)) − 1, which is tanh(Σe⁻/2); the paper's Σβ − K is Σe⁻.

    >>> evidence = Evidence(torch.tensor([[4.0, 0.0], [0.0, 0.0]]), torch.tensor([[0.0, 4.0], [1.0, 1.0]]))
    >>> [round(value, 3) for value in negative_evidence_novelty(evidence).value.tolist()]
    [0.964, 0.762]
    """
    total = _total(evidence.negative)
    return Novelty(value=torch.tanh(total / 2), rank=total)


def inverse_negative_evidence_novelty(evidence: Evidence) -> Novelty:
    """Return NE in the other direction: an actor is novel if there is little evidence against, 2 / (1 + exp(Σe⁻)).

    Unseen inputs gather less evidence of both kinds, so this direction usually finds them.

    >>> evidence = Evidence(torch.tensor([[4.0, 0.0], [0.0, 0.0]]), torch.tensor([[0.0, 4.0], [1.0, 1.0]]))
    >>> [round(value, 3) for value in inverse_negative_evidence_novelty(evidence).value.tolist()]
    [0.036, 0.238]
    """
    total = _total(evidence.negative)
    return Novelty(value=2 * torch.sigmoid(-total), rank=-total)


def combined_evidence_novelty(evidence: Evidence) -> Novelty:
    """Return PNE: an actor is novel if there is little evidence of either kind, 2K / Σ(α + β) (Eq. 9).

    >>> evidence = Evidence(torch.tensor([[4.0, 0.0], [0.0, 0.0]]), torch.tensor([[0.0, 4.0], [1.0, 1.0]]))
    >>> [round(value, 3) for value in combined_evidence_novelty(evidence).value.tolist()]
    [0.333, 0.667]
    """
    total = _total(evidence.positive) + _total(evidence.negative)
    prior = 2 * evidence.num_classes
    return Novelty(value=prior / (prior + total), rank=-total)


def belief_novelty(evidence: Evidence, *, base_rate: float = BASE_RATE) -> Novelty:
    """Return Belief: an actor is novel if no known action is believed, 1 − b₁ ∗ … ∗ b_K = Π(1 − b) (Eq. 10).

    A base rate of 1, as printed, ignores evidence below one (see `opinion_from`).

    >>> evidence = Evidence(torch.tensor([[4.0, 0.0], [0.0, 0.0]]), torch.tensor([[0.0, 4.0], [1.0, 1.0]]))
    >>> [round(value, 3) for value in belief_novelty(evidence).value.tolist()]
    [0.333, 1.0]
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
"""The scores of the paper, and two variants, by name.

>>> sorted(NOVELTY_BY_KIND)
['belief', 'ne', 'ne_inverse', 'pe', 'pe_log', 'pne']
"""


def require_known(targets: Shaped[Tensor, "actors classes"]) -> None:
    """Raise unless every actor does at least one known action; novel actors must not fit a score."""
    is_novel: Bool[Tensor, " actors"] = ~(targets > 0).any(dim=-1)
    if is_novel.any():
        first = int(torch.nonzero(is_novel)[0])
        raise RangeError(
            f"a score must be fitted on known actors only; {int(is_novel.sum())} of {len(targets)} do no known action, "
            f"the first is actor {first}. Leave them out."
        )


class FittedScore(nn.Module, ABC):
    """A novelty score that is fitted on known actors.

    Its parameters are buffers, so `state_dict` saves them with the model, `load_state_dict` restores them and
    `to` moves them. Subclasses register their buffers at construction and fill them in `_fit`.

    >>> issubclass(ClassNormalisedEvidence, FittedScore)
    True
    """

    is_fitted: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("is_fitted", torch.tensor(False))

    def fit(self, evidence: Evidence, targets: Shaped[Tensor, "actors classes"]) -> None:
        """Fit on known actors and their actions; actors that do no known action are refused."""
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
        """Return the novelty of each actor."""
        if not self.is_fitted:
            raise NotFitted(
                f"{type(self).__name__} must be fitted on known actors first. Call fit(evidence, targets) on training "
                "actors, or load a state_dict saved after fitting."
            )
        return self._novelty(evidence)

    @abstractmethod
    def _fit(self, evidence: Evidence, targets: Shaped[Tensor, "actors classes"]) -> None: ...

    @abstractmethod
    def _novelty(self, evidence: Evidence) -> Novelty: ...


class ClassNormalisedEvidence(FittedScore):
    """Positive log-evidence, standardised per class over known actors.

    z = (log(1 + e⁺) − mean) / deviation per class over known actors; the rank is −mean(z) and the value its
    normal tail. Classes whose evidence is always large no longer hide the others.

    >>> known = Evidence(torch.tensor([[9.0, 0.0], [7.0, 1.0], [0.0, 3.0]]), torch.zeros(3, 2))
    >>> score = ClassNormalisedEvidence(num_classes=2)
    >>> score.fit(known, torch.tensor([[1, 0], [1, 0], [0, 1]]))
    >>> nothing = Evidence(torch.zeros(1, 2), torch.zeros(1, 2))
    >>> bool(score(nothing).rank > score(known).rank.max())
    True
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
        level = self._log_evidence(evidence)
        self.mean.copy_(level.mean(dim=0))
        self.deviation.copy_(level.std(dim=0).clamp(min=torch.finfo(level.dtype).eps))

    def _novelty(self, evidence: Evidence) -> Novelty:
        rank = -((self._log_evidence(evidence) - self.mean) / self.deviation).mean(dim=-1)
        return Novelty(value=torch.special.ndtr(rank), rank=rank)

    @staticmethod
    def _log_evidence(evidence: Evidence) -> Float[Tensor, "actors classes"]:
        return torch.log1p(at_least_single(evidence.positive))
