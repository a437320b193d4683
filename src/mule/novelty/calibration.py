"""Calibrate a novelty score on held-out known actors: p-values, and thresholds with a promised false-alarm rate.

A p-value is the share of known actors that look at least this novel. A fitted score keeps the novelty of the held-out
actors in buffers, which are saved with the model.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from mule.core.errors import NotFinite, NotFitted, RangeError, ShapeError, TooFewActors
from mule.core.records import Novelty
from mule.novelty.odds import fewest_held_out, in_words, is_promise, num_allowed, promised_alarm_rate


def require_novelty(novelty: Tensor) -> None:
    """Raise unless novelty is one finite number per actor; NaN has no rank, and infinite scores tie."""
    if novelty.ndim != 1 or not novelty.is_floating_point():
        raise ShapeError(
            f"novelty must be one floating-point number per actor; got {tuple(novelty.shape)} of {novelty.dtype}."
        )
    is_wrong = ~torch.isfinite(novelty)
    if is_wrong.any():
        first = int(torch.nonzero(is_wrong)[0])
        raise NotFinite(
            f"novelty must be finite; {int(is_wrong.sum())} of {len(novelty)} are not, the first is "
            f"{novelty[first].item()} at actor {first}. Use a score that does not overflow (`Novelty.rank`)."
        )


def sorted_held_out(novelty: Tensor, *, fewest: int, purpose: str) -> Float[Tensor, " held_out"]:
    """Return the novelty of held-out known actors in ascending order, as float64 so that equal scores stay equal."""
    require_novelty(novelty)
    if len(novelty) < fewest:
        raise TooFewActors(
            f"{purpose} needs at least {fewest} held-out known actors; got {len(novelty)}. "
            "Hold out more known actors, which neither train the model nor test it."
        )
    return novelty.detach().double().sort().values


class HeldOutModule(nn.Module):
    """A module fitted on held-out known actors, with buffers whose sizes depend on them.

    `state_dict` saves it; `load_state_dict` restores it into a module that is not fitted yet.
    """

    is_fitted: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("is_fitted", torch.tensor(False))
        self.register_load_state_dict_pre_hook(make_room)

    def require_fitted(self) -> None:
        """Raise unless the module has been fitted."""
        if not self.is_fitted:
            raise NotFitted(
                f"{type(self).__name__} must be fitted on held-out known actors first. Call fit on their novelty, or load "
                "a state_dict saved after fitting."
            )


def make_room(module: nn.Module, state_dict: Mapping[str, Tensor], prefix: str, *_: object) -> None:
    """Give buffers the saved sizes and types, which an unfitted module cannot know."""
    for name, buffer in list(module.named_buffers(recurse=False)):
        saved = state_dict.get(prefix + name)
        if saved is not None:
            setattr(module, name, torch.empty_like(saved, device=buffer.device))


TAIL_SHARE = 0.05
"""Share of the held-out known actors that the exponential tail is fitted on."""
FEWEST_HELD_OUT = round(1 / TAIL_SHARE)


def conformal_p_value(
    novelty: Float[Tensor, " actors"], held_out: Float[Tensor, " held_out"]
) -> Float[Tensor, " actors"]:
    """Return each actor's rank among itself and the held-out known actors, counted from the most novel (conformal p-value).

        p = (1 + #{held-out ≥ s}) / (n + 1)

    *Conformal guarantee*: if the actor is exchangeable with the n held-out ones, P(p ≤ a) ≤ a for every a,
    whatever the score and its distribution; ties only lower the left side. Without ties P(p ≤ a) is ⌊a·(n +
    1)⌋/(n + 1). The probability is over the actor and the held-out actors together. Actors of one track or
    clip resemble each other, so hold out whole clips, and use one actor per track where the guarantee
    matters.

    `held_out` is ascending.

    >>> held_out = torch.tensor([1.0, 2.0, 2.0, 3.0])
    >>> conformal_p_value(torch.tensor([0.0, 2.0, 9.0]), held_out.double()).tolist()
    [1.0, 0.8, 0.2]
    """
    num_below = torch.searchsorted(held_out, novelty.detach().to(held_out).contiguous())  # ties are not below
    return (1 + len(held_out) - num_below).double() / (len(held_out) + 1)


def continuous_p_value(
    novelty: Float[Tensor, " actors"], held_out: Float[Tensor, " held_out"]
) -> Float[Tensor, " actors"]:
    """Return the conformal p-value without steps: different scores have different p-values (interpolated p-value).

        p = (1 + #{held-out ≥ s}) / (n + 1) + (1 − f) / (n + 1)

    f rises from 0 to 1 between two neighbouring held-out values, and is 1 at each. So p is never below the
    conformal p-value, whose guarantee it keeps, and less than 1/(n + 1) above it. Below the smallest held-out
    value, where all conformal p-values are 1, f = 1 / (1 + d/r), d being the distance to that value and r the
    range of all: there p lies between 1 and 1 + 1/(n + 1), which still ranks actors. Above the largest one p
    is 1/(n + 1); `CalibratedScore` adds a tail there.

    With few held-out actors there are few conformal p-values, so many actors would share one.

    `held_out` is ascending, and its values are not all equal.

    >>> held_out = torch.tensor([1.0, 2.0, 2.0, 3.0]).double()
    >>> continuous_p_value(torch.tensor([-1.0, 1.0, 1.5, 2.0, 2.5, 3.0]), held_out).tolist()
    [1.1, 1.0, 0.9, 0.8, 0.5, 0.4]
    """
    novelty = novelty.detach().to(held_out).contiguous()
    above = torch.searchsorted(held_out, novelty)
    upper, lower = (held_out[at.clamp(0, len(held_out) - 1)] for at in (above, above - 1))
    share = torch.where(upper > lower, (novelty - lower) / (upper - lower), 1.0)
    beyond = (held_out[0] - novelty) / (held_out[-1] - held_out[0])
    share = torch.where(above == 0, 1 / (1 + beyond), share).clamp(0, 1)
    return conformal_p_value(novelty, held_out) + (1 - share) / (len(held_out) + 1)


@dataclass(frozen=True)
class CalibratedNovelty:
    """How novel each actor is, compared with held-out known actors.

    `rank` is −log p, continuous and with the exponential tail: it ranks actors, can be summed (Fisher's
    rule), and neither saturates nor ties where scores differ. It is slightly below 0 for actors less novel
    than all held-out ones. `conformal_p_value` has steps and no tail; the guarantee holds for it.
    """

    rank: Float[Tensor, " actors"]
    conformal_p_value: Float[Tensor, " actors"]
    num_held_out: int

    @property
    def p_value(self) -> Float[Tensor, " actors"]:
        """Return the share of known actors that look at least this novel; it may round to 0 where `rank` does not."""
        return torch.exp(-self.rank.clamp(min=0))

    @property
    def novelty(self) -> Novelty:
        """Return the novelty as every other score does: value 1 − p, rank −log p."""
        return Novelty(value=-torch.expm1(-self.rank.clamp(min=0)), rank=self.rank)

    def in_words(self) -> list[str]:
        """Return one sentence per actor, such as "only 1 in 400 known actors looks this strange"."""
        return [in_words(p, num_held_out=self.num_held_out) for p in self.p_value.tolist()]


class CalibratedScore(HeldOutModule):
    """Turn a novelty score (`Novelty.rank`) into a p-value on held-out known actors (tailed rank p-value).

        p = (1 + #{held-out ≥ s} + 1 − f) / (n + 1)      for s ≤ q, f as in `continuous_p_value`
        p = (1 + m) / (n + 1) · exp(−(s − q) / e)        for s > q

    q is the 95th percentile: the largest held-out value with at least 5 % of the held-out actors strictly
    above it (the smallest value, if ties leave none). m is the number above it, e their mean excess over it.
    p decreases strictly in s. Up to q the guarantee of the conformal p-value holds. Above q the tail is an
    estimate without a guarantee: it keeps actors beyond the largest held-out one apart.
    `promised_threshold` makes promises, from ranks alone.

    The held-out actors must be known, must not have trained the score, and must not be tested.

    >>> score = CalibratedScore()
    >>> score.fit(torch.arange(100.0))
    >>> calibrated = score(torch.tensor([50.0, 500.0]))
    >>> calibrated.p_value[0].item() > 0.4, calibrated.in_words()[1]
    (True, 'fewer than 1 in 100 known actors look this strange')
    """

    held_out: Tensor
    tail_start: Tensor
    tail_excess: Tensor
    num_in_tail: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("held_out", torch.zeros(0, dtype=torch.float64))
        self.register_buffer("tail_start", torch.tensor(0.0, dtype=torch.float64))
        self.register_buffer("tail_excess", torch.tensor(1.0, dtype=torch.float64))
        self.register_buffer("num_in_tail", torch.tensor(0))

    def fit(self, novelty: Float[Tensor, " held_out"]) -> None:
        """Fit on the novelty of held-out known actors."""
        held_out = sorted_held_out(novelty, fewest=FEWEST_HELD_OUT, purpose="a 95th percentile")
        if held_out[0] == held_out[-1]:
            raise RangeError(
                f"held-out known actors must differ in novelty; all {len(held_out)} have {held_out[0].item():.6g}. "
                "Calibrate `Novelty.rank`, which does not saturate, or look for dead outputs."
            )
        tail_start = _tail_start(held_out)
        tail = held_out[held_out > tail_start]
        self.held_out = held_out
        self.tail_start = tail_start
        self.tail_excess = (tail - tail_start).mean()
        self.num_in_tail = torch.tensor(len(tail), device=held_out.device)
        self.is_fitted = torch.tensor(True, device=held_out.device)

    def forward(self, novelty: Float[Tensor, " actors"]) -> CalibratedNovelty:
        """Return the calibrated novelty of each actor from its `Novelty.rank`."""
        self.require_fitted()
        require_novelty(novelty)
        conformal = conformal_p_value(novelty, self.held_out)
        beyond = novelty.detach().to(self.held_out) - self.tail_start
        tail_share = (1 + self.num_in_tail).double() / (len(self.held_out) + 1)
        tail_rank = beyond / self.tail_excess - torch.log(tail_share)
        usual_rank = -torch.log(continuous_p_value(novelty, self.held_out))
        rank = torch.where(beyond > 0, tail_rank, usual_rank)
        return CalibratedNovelty(rank, conformal, num_held_out=len(self.held_out))


def _tail_start(held_out: Float[Tensor, " held_out"]) -> Float[Tensor, ""]:
    lowest_in_tail = held_out[-max(1, int(TAIL_SHARE * len(held_out)))]
    below = int(torch.searchsorted(held_out, lowest_in_tail))
    return held_out[max(0, below - 1)].clone()


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
    if is_promise(text):
        return promised_threshold(held_out, alarm_rate=promised_alarm_rate(text))
    try:
        novelty = float(text)
    except ValueError:
        raise RangeError(
            f"a threshold must be a promise such as known-95 or a novelty such as 3.2; got {text!r}."
        ) from None
    return chosen_threshold(held_out, novelty=novelty)
