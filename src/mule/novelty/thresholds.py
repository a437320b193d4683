"""Known or novel: thresholds with a promised false-alarm rate, and decisions with their meaning in words."""

import math
import re
from dataclasses import dataclass
from decimal import Decimal

from jaxtyping import Bool, Float
from torch import Tensor

from mule.core.errors import RangeError
from mule.novelty.calibration import require_novelty, sorted_held_out
from mule.novelty.odds import fewest_held_out, num_allowed

_PROMISE = re.compile(r"known-(\d{1,2}(?:\.\d+)?)")


@dataclass(frozen=True)
class NoveltyDecision:
    """Which actors are novel, and what the decision means."""

    is_novel: Bool[Tensor, " actors"]
    meaning: str


@dataclass(frozen=True)
class NoveltyThreshold:
    """An actor is novel if its novelty is above `novelty`.

    `alarm_rate` is the share of known actors above it: a promise if `is_promised`, else the share measured on
    the `num_held_out` held-out ones.
    """

    novelty: float
    alarm_rate: float
    num_held_out: int
    is_promised: bool

    @property
    def meaning(self) -> str:
        """What the threshold means, such as "95 % of known actors pass"."""
        passing = f"{100 * (1 - self.alarm_rate):.4g} %"
        if self.is_promised:
            return f"{passing} of known actors pass"
        return f"{passing} of {self.num_held_out:,} held-out known actors passed"

    def decide(self, novelty: Float[Tensor, " actors"]) -> NoveltyDecision:
        """Decide for each actor; at the threshold itself an actor is known."""
        require_novelty(novelty)
        return NoveltyDecision(is_novel=novelty.detach().double() > self.novelty, meaning=self.meaning)


def promised_threshold(held_out: Float[Tensor, " held_out"], *, alarm_rate: float) -> NoveltyThreshold:
    """Return the threshold that at most `alarm_rate` of known actors exceed (conformal quantile).

        the ⌈(n + 1)·(1 − a)⌉-th smallest of the n held-out values

    *Conformal guarantee*: an actor exchangeable with the held-out ones is flagged with probability at most a.
    It is the same decision as "conformal p-value ≤ a". The probability includes the choice of the held-out
    actors: with these n, the share flagged is itself a draw from Beta(j, n + 1 − j), j = ⌊a·(n + 1)⌋, that is
    a ± √(a(1 − a)/n) or so.

    `mule.metrics.threshold_at_false_alarm_rate` describes the actors at hand; this threshold is for the next
    one.

    Raises:
        TooFewActors: n < 1/a − 1, so no value keeps the promise.
    """
    if not 0 < alarm_rate < 1:
        raise RangeError(f"the promised false-alarm rate must lie between 0 and 1; got {alarm_rate}.")
    ascending = sorted_held_out(
        held_out,
        fewest=fewest_held_out(alarm_rate),
        purpose=f"a promise of at most {100 * alarm_rate:.4g} % false alarms",
    )
    flagged = num_allowed(alarm_rate, len(ascending))
    return NoveltyThreshold(
        novelty=ascending[len(ascending) - flagged].item(),
        alarm_rate=alarm_rate,
        num_held_out=len(ascending),
        is_promised=True,
    )


def chosen_threshold(held_out: Float[Tensor, " held_out"], *, novelty: float) -> NoveltyThreshold:
    """Return a threshold of a given value, with the share of held-out known actors above it; it promises nothing."""
    if not math.isfinite(novelty):
        raise RangeError(f"a threshold must be finite; got {novelty}.")
    ascending = sorted_held_out(held_out, fewest=1, purpose="the meaning of a threshold")
    above = int((ascending > novelty).sum())
    return NoveltyThreshold(
        novelty=novelty,
        alarm_rate=above / len(ascending),
        num_held_out=len(ascending),
        is_promised=False,
    )


def threshold_named(text: str, held_out: Float[Tensor, " held_out"]) -> NoveltyThreshold:
    """Return the threshold named `known-95` (95 % of known actors pass), or of a plain novelty such as `3.2`.

    >>> import torch
    >>> held_out = torch.arange(1.0, 100.0)
    >>> threshold = threshold_named("known-95", held_out)
    >>> threshold.novelty, threshold.meaning
    (95.0, '95 % of known actors pass')
    >>> threshold_named("80", held_out).meaning
    '80.81 % of 99 held-out known actors passed'
    """
    if _PROMISE.fullmatch(text):
        return promised_threshold(held_out, alarm_rate=promised_alarm_rate(text))
    try:
        novelty = float(text)
    except ValueError:
        raise RangeError(
            f"a threshold must be a promise such as known-95 or a novelty such as 3.2; got {text!r}."
        ) from None
    return chosen_threshold(held_out, novelty=novelty)


def promised_alarm_rate(name: str) -> float:
    """Return the share of known actors that a promise such as `known-95` allows to be flagged.

    >>> promised_alarm_rate("known-95"), promised_alarm_rate("known-99.9")
    (0.05, 0.001)
    """
    found = _PROMISE.fullmatch(name)
    if not found or Decimal(found[1]) == 0:
        raise RangeError(
            f"a promise must be known- and the share of known actors that pass, above 0 and below 100 %, such as "
            f"known-95 or known-99.5; got {name!r}."
        )
    return float((100 - Decimal(found[1])) / 100)
