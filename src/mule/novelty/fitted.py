"""Scores that first look at known actors, and are saved with the model."""

from abc import ABC, abstractmethod

import torch
from jaxtyping import Bool, Float, Shaped
from torch import Tensor, nn

from mule.core.errors import NotFitted, RangeError, ShapeError, TooFewActors
from mule.core.records import Evidence, Novelty, at_least_single


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
