"""The score that decides whether an actor is novel: one recipe for every data set, for tables and for watching.

    outputs h ─▶ evidence e⁺ = e^h, e⁻ = e^−h ─▶ novelty of the network ─┐
    [z | a] ────▶ memory ─▶ trust t ───────────▶ vacuity −log t ─────────┴─ each its p-value ─▶ −Σ log p

Each score becomes a p-value; Fisher's rule (the sum of −log p) or Cauchy's combines the p-values into one
number, which is calibrated again.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Literal, cast

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from mule.core.errors import RangeError, ShapeError, TooFewActors
from mule.core.records import Evidence, Novelty
from mule.evidence.head import exp_evidence
from mule.novelty.calibration import CalibratedNovelty, CalibratedScore
from mule.novelty.scores import belief_novelty

MEMORY_PART = "whole-memory"
"""The part that comes from the memory: nobody similar is remembered."""
DECIDING_PARTS: tuple[str, ...] = ("exp-pe", "exp-pe", MEMORY_PART)
"""The scores that Fisher's rule combines; a score named twice counts twice. The studies chose them on known actors and
on actions held out for choosing."""


def exp_belief_novelty(logits: Float[Tensor, "actors classes"]) -> Novelty:
    """Return belief (Eq. 10) for any network with one logit per action, read as tied exponential evidence."""
    return belief_novelty(Evidence(exp_evidence(logits.double()), exp_evidence(-logits.double())))


def log_evidence_novelty(logits: Float[Tensor, "actors classes"]) -> Novelty:
    """Return PE on the logarithm of evidence, −Σ log(1 + e^h), for any network with one logit h per action.

    It ranks actors as JointEnergy does, whose rank is the logarithm of this sum. Their p-values differ in the
    tail, which depends on distances.
    """
    total = F.softplus(logits.double()).sum(dim=-1)
    return Novelty(value=torch.exp(-total), rank=-total)


def largest_logit_novelty(logits: Float[Tensor, "actors classes"]) -> Novelty:
    """Return MaxLogit: an actor is novel if no action fits; only the likeliest one counts."""
    largest = logits.double().amax(dim=-1)
    return Novelty(value=torch.sigmoid(-largest), rank=-largest)


NETWORK_PARTS: Mapping[str, Callable[[Float[Tensor, "actors classes"]], Novelty]] = {
    "exp-pe": log_evidence_novelty,
    "exp-belief": exp_belief_novelty,
    "max-logit": largest_logit_novelty,
}
"""Scores of the network that can be combined with the memory. All need one logit per action alone."""


def fisher_name(parts: Sequence[str]) -> str:
    """Return the name that tables give to the combination of these scores."""
    return f"fisher({'+'.join(parts)})"


DECIDING_SCORE = fisher_name(DECIDING_PARTS)


def deciding_ranks(
    logits: Float[Tensor, "actors classes"], log_trust: Float[Tensor, " actors"]
) -> Float[Tensor, "actors scores"]:
    """Return the novelty of each actor by each score of `DECIDING_PARTS`, ready for `CombinedScore`."""
    columns = [
        -log_trust.double() if part == MEMORY_PART else NETWORK_PARTS[part](logits).rank.double()
        for part in DECIDING_PARTS
    ]
    return torch.stack(columns, dim=1)


CombinationRule = Literal["fisher", "cauchy"]

LARGEST_CAUCHY_P = 0.99
"""Larger p-values count as this: a p-value of 1 would be −∞ in Cauchy's mean and hide all others."""
SMALLEST_CAUCHY_P = 1e-300


def fisher_statistic(ranks: Float[Tensor, "actors scores"]) -> Float[Tensor, " actors"]:
    """Return −Σ log p, the novelty by all scores together (Fisher's rule), from ranks −log p."""
    return ranks.sum(dim=-1)


def cauchy_statistic(ranks: Float[Tensor, "actors scores"]) -> Float[Tensor, " actors"]:
    """Return the mean of cot(π·p), in which one very small p-value decides (Cauchy's rule, Liu and Xie 2020).

    p above 0.99 counts as 0.99 (the truncated form).
    """
    p_values = torch.exp(-ranks.double()).clamp(SMALLEST_CAUCHY_P, LARGEST_CAUCHY_P)
    return (1 / torch.tan(torch.pi * p_values)).mean(dim=-1)


STATISTIC_BY_RULE: Mapping[CombinationRule, Callable[[Tensor], Tensor]] = {
    "fisher": fisher_statistic,
    "cauchy": cauchy_statistic,
}


def folds_of(clip_index: Int[Tensor, " actors"], *, num_folds: int = 5) -> Int[Tensor, " actors"]:
    """Return a fold for each actor. Actors of one clip share a fold; consecutive clips go to different folds."""
    if num_folds < 2:
        raise RangeError(f"num_folds must be at least 2; got {num_folds}.")
    return torch.unique(clip_index, return_inverse=True)[1] % num_folds


class CombinedScore(nn.Module):
    """Combine several novelty scores into one calibrated novelty, however they depend on each other.

        novelty s₁ … s_k  ─ each its p-value ─▶  p₁ … p_k  ─ T = −Σ log p ─▶  T  ─ its p-value ─▶  p

    Each score is first calibrated alone, so that their scales do not matter. T is then calibrated like any
    other score, on actors that did not calibrate the scores: an actor that helped to fit a tail looks less
    novel than it is, and more known actors would be flagged than promised (measured for a promise of 5 % and
    two scores: 6.4 % with 40 held-out actors, 5.3 % with 300). There are two ways to fit:

    * `fit` takes two sets of held-out actors. T is then a fixed function of an actor, and its p-value is
      conformal.
    * `fit_crossed` takes one set in folds. T of a held-out actor comes from scores calibrated on the other
      folds, T of a new actor from all. Each step uses twice the actors, which is better if few are held out.
      The guarantee weakens to P(p ≤ a) ≲ 2a in the worst case; measured 3.5 % (40 held-out actors) to 5.0 %
      (300 or more) at a = 5 %.

    >>> draw = torch.Generator().manual_seed(0)
    >>> held_out = torch.randn(100, 2, generator=draw)
    >>> score = CombinedScore(2)
    >>> _ = score.fit_crossed(held_out, folds_of(torch.arange(100)))
    >>> usual, novel = score(torch.tensor([[0.0, 0.0], [4.0, 4.0]])).p_value.tolist()
    >>> usual > 0.3, novel < 0.02
    (True, True)
    """

    def __init__(self, num_scores: int, *, rule: CombinationRule = "fisher") -> None:
        super().__init__()
        if num_scores < 1:
            raise RangeError(f"num_scores must be at least 1; got {num_scores}.")
        if rule not in STATISTIC_BY_RULE:
            raise RangeError(f"rule must be one of {', '.join(STATISTIC_BY_RULE)}; got {rule!r}.")
        self.rule: CombinationRule = rule
        self.each = nn.ModuleList(CalibratedScore() for _ in range(num_scores))
        self.together = CalibratedScore()

    def fit(
        self, for_each: Float[Tensor, "held_out scores"], for_together: Float[Tensor, "others scores"]
    ) -> None:
        """Calibrate each score on the first set of held-out known actors and the combination on the second; no actor is in both."""
        self._fit_each(for_each)
        self.together.fit(self.statistic(for_together))

    def fit_crossed(
        self, novelty: Float[Tensor, "held_out scores"], fold_index: Int[Tensor, " held_out"]
    ) -> Float[Tensor, " held_out"]:
        """Calibrate scores and combination on the same held-out known actors, fold by fold (see `folds_of`).

        Returns T of each of them, from scores calibrated without its fold.
        """
        if len(fold_index) != len(novelty):
            raise ShapeError(
                f"fold_index must have one entry per actor, {len(novelty)}; got {len(fold_index)}."
            )
        folds = fold_index.unique().tolist()
        if len(folds) < 2:
            raise TooFewActors(
                f"fold_index must have at least 2 folds; got {len(folds)}. Hold out actors of more clips, or `fit` on two sets."
            )
        statistic = torch.empty(len(novelty), dtype=torch.float64, device=novelty.device)
        for fold in folds:
            is_in: Bool[Tensor, " held_out"] = fold_index == fold
            self._fit_each(novelty[~is_in])
            statistic[is_in] = self.statistic(novelty[is_in])
        self._fit_each(novelty)
        self.together.fit(statistic)
        return statistic

    def statistic(self, novelty: Float[Tensor, "actors scores"]) -> Float[Tensor, " actors"]:
        """Return T of each actor: the number that is calibrated, and that a threshold can be set on."""
        self._require_scores(novelty)
        ranks = [
            score(column).rank for score, column in zip(self._scores, novelty.unbind(dim=-1), strict=True)
        ]
        return STATISTIC_BY_RULE[self.rule](torch.stack(ranks, dim=-1))

    def forward(self, novelty: Float[Tensor, "actors scores"]) -> CalibratedNovelty:
        """Return the calibrated novelty of each actor from the `Novelty.rank` of every score."""
        return self.together(self.statistic(novelty))

    def extra_repr(self) -> str:
        """Show the rule in `print(score)`."""
        return f"rule={self.rule!r}"

    @property
    def _scores(self) -> Iterable[CalibratedScore]:
        return cast("Iterable[CalibratedScore]", self.each)

    def _fit_each(self, novelty: Float[Tensor, "held_out scores"]) -> None:
        self._require_scores(novelty)
        for score, column in zip(self._scores, novelty.unbind(dim=-1), strict=True):
            score.fit(column)

    def _require_scores(self, novelty: Tensor) -> None:
        if novelty.ndim != 2 or novelty.shape[1] != len(self.each):
            raise ShapeError(
                f"novelty must have one column per score, (actors, {len(self.each)}); got {tuple(novelty.shape)}."
            )
