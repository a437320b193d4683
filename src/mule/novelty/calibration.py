"""What is fitted on the novelty of held-out known actors: checked once, kept in buffers, saved with the model.

A novelty score as a p-value: the share of known actors that look at least this strange.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from mule.core.errors import NotFinite, NotFitted, RangeError, ShapeError, TooFewActors
from mule.core.records import Novelty
from mule.novelty.odds import in_words


def require_novelty(novelty: Tensor) -> None:
    """One finite number per actor; NaN has no rank, and infinite scores tie where the actors differ."""
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
    """The novelty of held-out known actors, ascending, in float64 (so that equal scores stay equal)."""
    require_novelty(novelty)
    if len(novelty) < fewest:
        raise TooFewActors(
            f"{purpose} needs at least {fewest} held-out known actors; got {len(novelty)}. "
            "Hold out more actors that neither trained the model nor are tested."
        )
    return novelty.detach().double().sort().values


def num_at_or_above(
    novelty: Float[Tensor, " actors"], held_out: Float[Tensor, " held_out"]
) -> Int[Tensor, " actors"]:
    """How many held-out actors (ascending) are at least as novel as each actor; equal ones count."""
    return len(held_out) - torch.searchsorted(held_out, novelty.detach().to(held_out).contiguous())


class HeldOutModule(nn.Module):
    """Something learnt from held-out known actors, in buffers whose sizes come from those actors.

    `state_dict` saves it; `load_state_dict` brings it back into one that has seen nobody.
    """

    is_fitted: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("is_fitted", torch.tensor(False))
        self.register_load_state_dict_pre_hook(_make_room)

    def require_fitted(self) -> None:
        """It has seen held-out known actors."""
        if not self.is_fitted:
            raise NotFitted(
                f"{type(self).__name__} has not seen held-out known actors yet. Call fit on their novelty, or load "
                "a state_dict that was saved after it."
            )


def _make_room(module: nn.Module, state_dict: Mapping[str, Tensor], prefix: str, *_: object) -> None:
    """Buffers take the sizes that were saved, which an unfitted module cannot know."""
    for name, buffer in list(module.named_buffers(recurse=False)):
        saved = state_dict.get(prefix + name)
        if saved is not None:
            setattr(module, name, torch.empty_like(saved, device=buffer.device))


TAIL_SHARE = 0.05
"""The share of held-out known actors whose excess sets the exponential tail."""
FEWEST_HELD_OUT = round(1 / TAIL_SHARE)


def conformal_p_value(
    novelty: Float[Tensor, " actors"], held_out: Float[Tensor, " held_out"]
) -> Float[Tensor, " actors"]:
    """The actor's place among itself and the held-out known actors, counted from the strangest (conformal p-value).

        p = (1 + #{held-out ≥ s}) / (n + 1)

    *Conformal guarantee*: if the actor is exchangeable with the n held-out ones, P(p ≤ a) ≤ a for every a, whatever
    the score and its distribution; ties only lower the left side. Without ties P(p ≤ a) is ⌊a·(n + 1)⌋/(n + 1). The
    probability runs over actor and held-out actors together. Actors of one track or clip are not exchangeable with
    those of another one by one: hold out whole clips, and give one actor per track where the promise matters.

    `held_out` is ascending.

    >>> held_out = torch.tensor([1.0, 2.0, 2.0, 3.0])
    >>> conformal_p_value(torch.tensor([0.0, 2.0, 9.0]), held_out.double()).tolist()
    [1.0, 0.8, 0.2]
    """
    return (1 + num_at_or_above(novelty, held_out)).double() / (len(held_out) + 1)


def continuous_p_value(
    novelty: Float[Tensor, " actors"], held_out: Float[Tensor, " held_out"]
) -> Float[Tensor, " actors"]:
    """The conformal p-value without its steps: different scores have different p-values (interpolated p-value).

        p = (1 + #{held-out ≥ s}) / (n + 1) + (1 − f) / (n + 1)

    f rises from 0 to 1 between two neighbouring held-out values, and is 1 at each. So p is never below the conformal
    p-value, whose guarantee it keeps, and less than 1/(n + 1) above it. Below the smallest held-out value, where all
    conformal p-values are 1, f = 1 / (1 + d/r), d being the distance to that value and r the range of all: there p lies
    between 1 and 1 + 1/(n + 1), a number to rank by. Above the largest one p is 1/(n + 1): `CalibratedScore` has a tail there.

    Few held-out actors leave few conformal p-values, so that many actors share one, and sums of two such p-values tie.

    `held_out` is ascending, and not all of it the same.

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
    """How novel each actor is, measured against held-out known actors.

    `rank` is −log p, continuous and with the exponential tail: it orders, adds up under Fisher's rule, and neither
    saturates nor ties where scores differ; for whoever is less novel than all held-out actors it is a little below 0.
    `conformal_p_value` is the p-value in steps and without the tail: it carries the guarantee.
    """

    rank: Float[Tensor, " actors"]
    conformal_p_value: Float[Tensor, " actors"]
    num_held_out: int

    @property
    def p_value(self) -> Float[Tensor, " actors"]:
        """The share of known actors that look at least this strange; it may round to 0 where `rank` does not."""
        return torch.exp(-self.rank.clamp(min=0))

    @property
    def novelty(self) -> Novelty:
        """The same as every other score: value 1 − p, rank −log p."""
        return Novelty(value=-torch.expm1(-self.rank.clamp(min=0)), rank=self.rank)

    def in_words(self) -> list[str]:
        """One sentence per actor: "only 1 in 400 known actors looks this strange"."""
        return [in_words(p, num_held_out=self.num_held_out) for p in self.p_value.tolist()]


class CalibratedScore(HeldOutModule):
    """Turns a novelty score (`Novelty.rank`) into a p-value on held-out known actors (tailed rank p-value).

        p = (1 + #{held-out ≥ s} + 1 − f) / (n + 1)      for s ≤ q, f as in `continuous_p_value`
        p = (1 + m) / (n + 1) · exp(−(s − q) / e)        for s > q

    q is the 95th percentile: the largest held-out value with at least 5 % of the held-out actors strictly above it (the
    smallest value, where ties leave none). m is how many are above it, e their mean excess over it. The two parts
    decrease strictly and so does their join. Up to q the guarantee of the conformal p-value holds. Above q the tail is an
    estimate: it lets actors beyond the largest held-out one still differ, and promises nothing; a promise is made
    by `mule.novelty.thresholds`, on ranks alone.

    The held-out actors must be known, must not have trained the score, and must not be tested.
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
        """Learns what is usual from the novelty of held-out known actors."""
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
        """The calibrated novelty of each actor, from its `Novelty.rank`."""
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
