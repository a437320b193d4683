"""The score that decides whether an actor is novel unless told otherwise: one recipe for every data set.

    outputs h ─▶ evidence e⁺ = e^h, e⁻ = e^−h ─▶ novelty of the network ─┐
    [z | a] ────▶ memory ─▶ trust t ───────────▶ vacuity −log t ─────────┴─ each its p-value ─▶ −Σ log p

Judging a table and watching a stream both read it from here.

Several novelty scores as one: p-values combined by Fisher's or Cauchy's rule, and calibrated again.
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

MEMORY = "whole-memory"
"""The part that a memory gives: its vacuity."""
DECIDING_PARTS: tuple[str, ...] = ("exp-pe", "exp-pe", MEMORY)
"""What is combined by Fisher's rule; a part named twice weighs twice (chosen in docs/PREREGISTRATION.md, section 8)."""


def exp_belief_novelty(logits: Float[Tensor, "actors classes"]) -> Novelty:
    """Belief (Eq. 10) of evidence read off one logit per action as tied and exponential, for any network that has one."""
    return belief_novelty(Evidence(exp_evidence(logits.double()), exp_evidence(-logits.double())))


def log_evidence_novelty(logits: Float[Tensor, "actors classes"]) -> Novelty:
    """PE on the logarithm of evidence read off one logit per action as tied and exponential, −Σ log(1 + e^h).

    It puts actors in the order of JointEnergy, whose rank is the logarithm of this sum; the exponential tail of a p-value,
    which goes by distances, tells them apart.
    """
    total = F.softplus(logits.double()).sum(dim=-1)
    return Novelty(value=torch.exp(-total), rank=-total)


def largest_logit_novelty(logits: Float[Tensor, "actors classes"]) -> Novelty:
    """MaxLogit: novel is whom no action fits; only the best one counts."""
    largest = logits.double().amax(dim=-1)
    return Novelty(value=torch.sigmoid(-largest), rank=-largest)


NETWORK_PARTS: Mapping[str, Callable[[Float[Tensor, "actors classes"]], Novelty]] = {
    "exp-pe": log_evidence_novelty,
    "exp-belief": exp_belief_novelty,
    "max-logit": largest_logit_novelty,
}
"""What may stand beside the memory; all are read off one logit per action, so cross-entropy's networks have them too."""


def fisher_name(parts: Sequence[str]) -> str:
    """What tables call the combination of these scores."""
    return f"fisher({'+'.join(parts)})"


DECIDING_SCORE = fisher_name(DECIDING_PARTS)


def deciding_ranks(
    logits: Float[Tensor, "actors classes"], log_trust: Float[Tensor, " actors"]
) -> Float[Tensor, "actors scores"]:
    """The novelty of each actor by each part, in the order of `DECIDING_PARTS`; what `CombinedScore` combines."""
    columns = [
        -log_trust.double() if part == MEMORY else NETWORK_PARTS[part](logits).rank.double()
        for part in DECIDING_PARTS
    ]
    return torch.stack(columns, dim=1)


CombinationRule = Literal["fisher", "cauchy"]

LARGEST_CAUCHY_P = 0.99
"""A p-value of exactly 1 would weigh −∞ in Cauchy's mean and drown every other; larger ones count as this."""
SMALLEST_CAUCHY_P = 1e-300


def fisher_statistic(ranks: Float[Tensor, "actors scores"]) -> Float[Tensor, " actors"]:
    """How strange all scores together find the actor: −Σ log p (Fisher's rule), from ranks −log p."""
    return ranks.sum(dim=-1)


def cauchy_statistic(ranks: Float[Tensor, "actors scores"]) -> Float[Tensor, " actors"]:
    """The mean of cot(π·p), in which one very small p-value decides (Cauchy's rule, Liu and Xie 2020).

    p above 0.99 counts as 0.99 (the truncated form).
    """
    p_values = torch.exp(-ranks.double()).clamp(SMALLEST_CAUCHY_P, LARGEST_CAUCHY_P)
    return (1 / torch.tan(torch.pi * p_values)).mean(dim=-1)


def fisher_p_value(ranks: Float[Tensor, "actors scores"]) -> Float[Tensor, " actors"]:
    """The p-value of Fisher's statistic T of k *independent* uniform p-values: P(χ²₂ₖ ≥ 2T) = Γ(k, T)/Γ(k).

    Novelty scores of one actor depend on each other, so for them it claims too much; `CombinedScore` calibrates T.
    """
    statistic = fisher_statistic(ranks).double()
    return torch.special.gammaincc(torch.full_like(statistic, float(ranks.shape[-1])), statistic)


STATISTIC_BY_RULE: Mapping[CombinationRule, Callable[[Tensor], Tensor]] = {
    "fisher": fisher_statistic,
    "cauchy": cauchy_statistic,
}


def folds_of(clip_index: Int[Tensor, " actors"], *, num_folds: int = 5) -> Int[Tensor, " actors"]:
    """A fold for each actor; actors of one clip share it, and consecutive clips are dealt out in turn."""
    if num_folds < 2:
        raise RangeError(f"crossing needs at least 2 folds; got {num_folds}.")
    return torch.unique(clip_index, return_inverse=True)[1] % num_folds


class CombinedScore(nn.Module):
    """One calibrated novelty from several scores, however they depend on each other (re-calibrated Fisher).

        novelty s₁ … s_k  ─ each its p-value ─▶  p₁ … p_k  ─ T = −Σ log p ─▶  T  ─ its p-value ─▶  p

    Every score is first calibrated alone, with its exponential tail, so that none drowns another by its scale. T is
    then calibrated like any other score. What calibrates T must not have calibrated the scores: an actor that helped
    to set its own tail looks less strange than it is, and more known actors are flagged than was promised (measured
    for a promise of 5 % and two scores: 6.4 % with 40 held-out actors, 5.3 % with 300). So there are two ways to fit:

    * `fit`: two sets of held-out actors. T is then a fixed function of an actor, and its p-value is conformal.
    * `fit_crossed`: one set in folds. T of an actor comes from scores calibrated on the other folds, T of a new actor
      from all. Twice the actors for each step, better where few are held out; the guarantee weakens to
      P(p ≤ a) ≲ 2a in the worst case, and measured 3.5 % (40 held-out actors) to 5.0 % (300 or more) at a = 5 %.
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
        """Calibrates each score on the first held-out known actors and the combination on the second, all different."""
        self._fit_each(for_each)
        self.together.fit(self.statistic(for_together))

    def fit_crossed(
        self, novelty: Float[Tensor, "held_out scores"], fold_index: Int[Tensor, " held_out"]
    ) -> Float[Tensor, " held_out"]:
        """Calibrates scores and combination on the same held-out known actors, fold by fold (see `folds_of`).

        Returns T of each of them, from scores that were calibrated without its fold.
        """
        if len(fold_index) != len(novelty):
            raise ShapeError(
                f"fold_index must have one entry per actor, {len(novelty)}; got {len(fold_index)}."
            )
        folds = fold_index.unique().tolist()
        if len(folds) < 2:
            raise TooFewActors(
                f"crossing needs at least 2 folds; got {len(folds)}. Hold out actors of more clips, or `fit` on two sets."
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
        """T of each actor: the number that is calibrated, and that a threshold may be set on."""
        self._require_scores(novelty)
        ranks = [
            score(column).rank for score, column in zip(self._scores, novelty.unbind(dim=-1), strict=True)
        ]
        return STATISTIC_BY_RULE[self.rule](torch.stack(ranks, dim=-1))

    def forward(self, novelty: Float[Tensor, "actors scores"]) -> CalibratedNovelty:
        """The calibrated novelty of each actor, from the `Novelty.rank` of every score."""
        return self.together(self.statistic(novelty))

    def extra_repr(self) -> str:
        """How p-values become one, for `print(score)`."""
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
