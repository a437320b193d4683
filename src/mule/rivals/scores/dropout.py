"""Novelty from several passes with dropout, read as samples of the network (Gal and Ghahramani 2016).

Each pass t gives σ(h_tc), the probability of action c; the multi-label case has one Bernoulli per class where
the papers have one softmax. Where a network is sure, σ rounds to 0 or 1 in every pass; the spread is
therefore computed with logarithms, so that sure actors still differ.

Informed Democracy: output neurons vote on novelty by their uncertainty, but only those informed about the
leader.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float
from torch import Tensor

from mule.core.errors import TooFewActors
from mule.core.records import Novelty
from mule.rivals.scores.outputs import OutputScore, StoredOutputs, stored

_ACTORS_AT_ONCE = 512
ROUNDING = 1e-32
"""The square of a double's rounding error: a relative spread below it is no spread."""
_NEGLIGIBLE = -30.0
"""Below this, log(1 − e^x) is −e^x to the last digit of a double."""


def dropout_mean_novelty(dropout_logits: Float[Tensor, "passes actors classes"]) -> Novelty:
    """The lack of any action that is probable on average: 1 − max_c mean_t σ(h_tc).

    The rank is the log-odds of the value.
    """
    rank = -_by_actors(mean_log_odds, dropout_logits).amax(dim=1)
    return Novelty(value=torch.sigmoid(rank), rank=rank)


def dropout_variance_novelty(dropout_logits: Float[Tensor, "passes actors classes"]) -> Novelty:
    """The disagreement of the passes: mean over classes of Var_t σ(h_tc) (Kendall et al. 2017).

    The value is four times that, 1 when half of the passes give 0 and half give 1; the rank is its logarithm.
    """
    log_mean = log_variance(dropout_logits).logsumexp(dim=1) - math.log(dropout_logits.shape[2])
    return Novelty(value=(4 * log_mean.exp()).clamp(max=1), rank=log_mean)


def bald_novelty(dropout_logits: Float[Tensor, "passes actors classes"]) -> Novelty:
    """The mutual information between actions and network (BALD, Houlsby et al. 2011).

        Σ_c H(p̄_c) − mean_t H(p_tc) = Σ_c mean_t KL(p_tc ‖ p̄_c),   p_tc = σ(h_tc),  p̄_c = mean_t p_tc

    H is the entropy of a Bernoulli. The value is its share of the maximum, log 2 per class; the rank is
    the logarithm.
    """
    _require_passes(dropout_logits)
    log_total = _by_actors(_log_information, dropout_logits).logsumexp(dim=1)
    most = dropout_logits.shape[2] * math.log(2)
    return Novelty(value=(log_total.exp() / most).clamp(max=1), rank=log_total)


def mean_log_odds(dropout_logits: Float[Tensor, "passes actors classes"]) -> Float[Tensor, "actors classes"]:
    """log(p̄ / (1 − p̄)) of the mean probability p̄ = mean_t σ(h_t), exact however sure the passes are."""
    wide = dropout_logits.double()
    return F.logsigmoid(wide).logsumexp(dim=0) - F.logsigmoid(-wide).logsumexp(dim=0)


def log_variance(dropout_logits: Float[Tensor, "passes actors classes"]) -> Float[Tensor, "actors classes"]:
    """The logarithm of Var_t σ(h_t) for each class; the variance divides by the number of passes."""
    _require_passes(dropout_logits)
    return _by_actors(_log_variance, dropout_logits)


@dataclass(frozen=True)
class _RarerOutcome:
    """The less probable of "does" and "does not", per actor and class: probabilities e^{log_scale}·share."""

    log_scale: Float[Tensor, "actors classes"]
    share: Float[Tensor, "passes actors classes"]
    log_not: Float[Tensor, "passes actors classes"]


def _rarer_outcome(dropout_logits: Float[Tensor, "passes actors classes"]) -> _RarerOutcome:
    wide = dropout_logits.double()
    signed = torch.where(mean_log_odds(wide) > 0, -wide, wide)
    log_probability = F.logsigmoid(signed)
    log_scale = log_probability.amax(dim=0)
    return _RarerOutcome(log_scale, (log_probability - log_scale).exp(), F.logsigmoid(-signed))


def _log_variance(dropout_logits: Float[Tensor, "passes actors classes"]) -> Float[Tensor, "actors classes"]:
    rarer = _rarer_outcome(dropout_logits)
    spread = (rarer.share - rarer.share.mean(dim=0)).square().mean(dim=0)
    return 2 * rarer.log_scale + spread.clamp(min=ROUNDING).log()


def _log_information(
    dropout_logits: Float[Tensor, "passes actors classes"],
) -> Float[Tensor, "actors classes"]:
    rarer = _rarer_outcome(dropout_logits)
    scale, is_tiny = rarer.log_scale.exp(), rarer.log_scale < _NEGLIGIBLE
    mean_share = rarer.share.mean(dim=0)
    log_mean_not = torch.log1p(-scale * mean_share)
    happens = torch.xlogy(rarer.share, rarer.share / mean_share)
    # (1 − p)·log((1 − p)/(1 − p̄)) over the scale; where that is tiny it is p̄ − p, which averages to zero
    not_happens = torch.where(
        is_tiny,
        0.0,
        rarer.log_not.exp() * (rarer.log_not - log_mean_not) / scale.clamp(min=math.exp(_NEGLIGIBLE)),
    )
    return rarer.log_scale + (happens + not_happens).mean(dim=0).clamp(min=ROUNDING).log()


def _by_actors(
    function: Callable[[Tensor], Tensor], dropout_logits: Float[Tensor, "passes actors classes"]
) -> Float[Tensor, "actors classes"]:
    return torch.cat([function(some) for some in dropout_logits.split(_ACTORS_AT_ONCE, dim=1)])


def _require_passes(dropout_logits: Float[Tensor, "passes actors classes"]) -> None:
    if len(dropout_logits) < 2:
        raise TooFewActors(
            f"the spread over passes with dropout needs at least 2 of them; got {len(dropout_logits)}. Run more passes."
        )


class InformedDemocracy(OutputScore):
    """Mean uncertainty of the leader's council, ν(x) = mean over j in C(leader) of Var_t σ(h_tj) (Roitberg et al. 2018).

    Re-implemented from the paper's description, not from its code. With dropout, every output neuron has a
    mean and a variance over passes. The *leader* is the class of highest mean. Only neurons that can tell
    novel from known when this leader wins may vote: its *council*, chosen on training actors.

    The choice of the council for several labels, and the bound of 0.001, are our reading. An actor is
    *rightly led* if it does the leading action, *wrongly led* if not. Neuron j sits in the council of leader
    i if, among training actors led by i, its mean variance

    * is at most `most_variance` over the rightly led: it is calm when the leader is right; and
    * is higher over the wrongly led: it is upset when the leader is wrong. This test is skipped for a leader that is never
      wrong in training.

    All neurons vote on a leader that was never right in training or has an empty council; such a leader is not
    `is_informed`. The value is 4·ν, which is at most 1; the rank is log ν.
    """

    council: Tensor
    is_informed: Tensor

    def __init__(self, *, most_variance: float = 0.001) -> None:
        super().__init__("dropout_logits", learns=True)
        self.most_variance = most_variance
        self.register_buffer("council", torch.zeros(0, 0, dtype=torch.bool))
        self.register_buffer("is_informed", torch.zeros(0, dtype=torch.bool))

    def _fit(self, train: StoredOutputs, does: Bool[Tensor, "actors classes"]) -> None:
        leader, log_spread = self._led(train)
        spread = log_spread.exp()
        led_by = torch.nn.functional.one_hot(leader, train.num_classes).bool()
        calm, num_right = _mean_when(led_by & does, spread)
        upset, num_wrong = _mean_when(led_by & ~does, spread)
        knows = (calm <= self.most_variance) & ((upset > calm) | (num_wrong == 0)[:, None])
        self.is_informed = (num_right > 0) & knows.any(dim=1)
        self.council = knows | ~self.is_informed[:, None]

    def _novelty(self, outputs: StoredOutputs) -> Novelty:
        leader, log_spread = self._led(outputs)
        votes = self.council[leader]
        rank = log_spread.masked_fill(~votes, -torch.inf).logsumexp(dim=1) - votes.sum(dim=1).log()
        return Novelty(value=(4 * rank.exp()).clamp(max=1), rank=rank)

    @staticmethod
    def _led(outputs: StoredOutputs) -> tuple[Tensor, Float[Tensor, "actors classes"]]:
        dropout_logits = stored(outputs.dropout_logits, "dropout_logits")
        return mean_log_odds(dropout_logits).argmax(dim=1), log_variance(dropout_logits)


def _mean_when(
    led: Bool[Tensor, "actors classes"], spread: Float[Tensor, "actors classes"]
) -> tuple[Float[Tensor, "classes classes"], Float[Tensor, " classes"]]:
    """For each leader (row), every neuron's mean spread over the actors it leads, and the number of these actors."""
    count = led.sum(dim=0).double()
    return led.double().T @ spread / count.clamp(min=1)[:, None], count
