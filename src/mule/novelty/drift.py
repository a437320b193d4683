"""A drift alarm: report when the actors of a stream, as a crowd, stop looking like known ones, at a stated risk."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from mule.core.errors import RangeError, ShapeError
from mule.core.tensors import require_tensors
from mule.novelty.calibration import HeldOutModule, require_novelty, sorted_held_out

Drift = Literal["stranger", "more ordinary", "more alike"]

NUM_BINS = 100
_ACTORS_AT_ONCE = 4096  # bounds the memory of one long call
SMALLEST_P = 1e-12  # a bet pays no more below it

POWERS = (1 / 2, 1 / 4)
NUM_WINDOWS = 10
WINDOW_STAKE = 1 / 2
DRIFTS: tuple[Drift, ...] = ("stranger", "more ordinary", "more alike")
DRIFT_OF_BET = (
    *(0,) * len(POWERS),
    *(1,) * len(POWERS),
    *(0, *(2,) * (NUM_WINDOWS - 2), 1),  # a crowd in the first or last tenth is not only alike
)
"""The kind of drift, an index into `DRIFTS`, that each bet of `log_bets` wins on."""


def log_bets(p_values: Float[Tensor, " actors"]) -> Float[Tensor, "actors bets"]:
    """Return the logarithm of the factor each bet multiplies its stake by; its mean factor is 1 if p is uniform.

    *Power bets* κ·p^(κ−1) and κ·(1 − p)^(κ−1) win when p-values crowd near 0 and near 1, *window bets*
    ½ + ½·10·[p in the j-th tenth] when they crowd anywhere.
    """
    p_values = p_values.double().clamp(SMALLEST_P, 1 - SMALLEST_P)
    powers = torch.tensor(POWERS, dtype=torch.float64, device=p_values.device)
    near_zero = torch.log(powers) + (powers - 1) * torch.log(p_values)[:, None]
    near_one = torch.log(powers) + (powers - 1) * torch.log1p(-p_values)[:, None]
    window = (p_values * NUM_WINDOWS).long().clamp(max=NUM_WINDOWS - 1)
    is_in = torch.nn.functional.one_hot(window, NUM_WINDOWS).double()
    return torch.cat(
        [near_zero, near_one, torch.log(1 - WINDOW_STAKE + WINDOW_STAKE * NUM_WINDOWS * is_in)], 1
    )


@dataclass(frozen=True)
class DriftReport:
    """The state of the alarm: how many actors it has seen, its capital, and whether there is an alarm."""

    num_actors: int
    largest_capital: float
    """The largest value that one unit of money reached; without drift the chance of that is at most 1/`largest_capital`."""
    alarm_at: int | None
    """The number of the actor that raised the alarm, counted from 1; an alarm stays on."""
    drift: Drift | None
    """The kind of bet that had won most when the alarm was raised."""
    false_alarm_rate: float

    @property
    def is_alarm(self) -> bool:
        """Return whether drift was reported."""
        return self.alarm_at is not None

    def in_words(self) -> str:
        """Return the state in one sentence."""
        if self.alarm_at is None:
            return f"no drift seen in {self.num_actors:,} actors"
        return (
            f"the actors of this stream look {self.drift} than known actors did (seen at actor {self.alarm_at:,}; without "
            f"drift at most {100 * self.false_alarm_rate:.4g} % of streams, however long, raise this alarm)"
        )


class DriftAlarm(HeldOutModule):
    """Bet against "held-out actors and stream are exchangeable"; a large capital is the alarm (conformal test martingale).

    1. *Urn p-value.* Held-out values cut the line into at most 100 bins of n₁ … n_B places, n + 1 in all.
       With cᵢ actors of the stream so far in each bin, a new actor in bin b gets

           p = (Σ_{bins above b} (nᵢ + cᵢ) + θ·(n_b + c_b)) / (n + 1 + Σc),      θ uniform in [0, 1]

       Ranks of exchangeable actors are a Pólya urn, so these p-values are independent and exactly uniform.
       Equal values are put in a random order. The generator is seeded and part of the state.
    2. *Capital.* Before actor t, the part 1/(t(t + 1)) of one unit of money goes to the bets of `log_bets` (a
       third each on stranger, more ordinary, more alike) and stays there: W ← f(p)·(W + 1/(t(t + 1))·share).
       So detecting drift that begins after t actors costs at most a factor t(t + 1).
    3. *Ville's inequality.* Without drift the capital is a martingale that starts at 1, so
       P(it ever reaches 1/a) ≤ a, however long the stream. a is `false_alarm_rate`.

    The p-values shown to people do not serve here. Plain ones, P(p ≤ a) ≤ a, are safe for bets near 0 only;
    bets near 1 would win without drift. Smoothed ones are uniform one by one but share the same held-out
    actors; in a long stream the error of these becomes visible and raises the alarm without drift (measured
    for a stated 5 %: 20 % of streams of 2,000 actors with 50 held out, 10 % of 5,000 with 100; the urn 2 %
    and 3 %). The urn learns that error from the stream. The price: it also learns drift that is there from
    the start, which must show within about the first n actors.

    *One look per track.* Looks at one actor resemble each other and would break the guarantee. An actor
    counts once, at its first look: when its track id is above all earlier ids (ids count upwards, as in
    `mule.detection.tracks`; -1 is no track). Fit on first looks too. People who keep coming back, or a change
    of light, are drift, not an error.

    The state is some 300 numbers and a generator, whatever the length of the stream; `state_dict` holds all
    of it.

    >>> alarm = DriftAlarm()
    >>> alarm.fit(torch.arange(100.0))
    >>> alarm.watch(torch.full((200,), 99.0), torch.arange(200)).is_alarm
    True
    """

    false_alarm_rate: Tensor
    edges: Tensor
    edge_ties: Tensor
    num_places: Tensor
    num_in_bin: Tensor
    log_invested: Tensor
    largest_log_capital: Tensor
    alarm_at: Tensor
    drift_index: Tensor
    newest_track_id: Tensor
    generator_state: Tensor

    def __init__(self, *, false_alarm_rate: float = 0.01, seed: int = 0) -> None:
        super().__init__()
        if not 0 < false_alarm_rate < 1:
            raise RangeError(f"false_alarm_rate must lie between 0 and 1; got {false_alarm_rate}.")
        self.register_buffer("false_alarm_rate", torch.tensor(false_alarm_rate, dtype=torch.float64))
        for name in ("edges", "edge_ties"):
            self.register_buffer(name, torch.zeros(0, dtype=torch.float64))
        self.register_buffer("num_places", torch.ones(1, dtype=torch.int64))
        self.register_buffer("generator_state", torch.Generator().manual_seed(seed).get_state())
        self._start_over()

    def fit(self, novelty: Float[Tensor, " held_out"]) -> None:
        """Fit the bins on the novelty of held-out known actors, one look each, and start over."""
        ascending = sorted_held_out(
            novelty, fewest=1, purpose="a drift alarm"
        )  # with fewer, the alarm is weaker but as safe
        num_bins = min(NUM_BINS, len(ascending) + 1)
        places = torch.arange(1, num_bins) * (len(ascending) + 1) // num_bins
        # equal values in random order: the k-th of g equal ones has the k-th of g uniform numbers
        ties = self._drawn(len(ascending), 1)[:, 0]
        _, value_index = torch.unique_consecutive(ascending.cpu(), return_inverse=True)
        ties = torch.sort(value_index + ties).values - value_index
        device = ascending.device
        self.edges = ascending[places.to(device) - 1]
        self.edge_ties = ties[places - 1].to(device)
        bounds = torch.cat([torch.zeros(1, dtype=torch.int64), places, torch.tensor([len(ascending) + 1])])
        self.num_places = bounds.diff().to(device)
        self._start_over()
        self.is_fitted = torch.tensor(True, device=device)

    def restore(self, state: Mapping[str, Tensor]) -> None:
        """Continue with the `state_dict` of an alarm that was fitted to as many held-out actors.

        Raises:
            ShapeError: it is not such a state.
        """
        promised = {name: (each.dtype, tuple(each.shape)) for name, each in self.state_dict().items()}
        capital = {
            name: each.exp() for name, each in state.items() if name == "log_invested"
        }  # −∞ before any bet
        require_tensors({**state, **capital}, promised)
        negative = [
            name for name in ("num_places", "num_in_bin", "alarm_at") if bool((state[name] < 0).any())
        ]
        if negative or not 0 <= int(state["drift_index"]) < len(DRIFTS):
            raise ShapeError(
                f"counts must not be negative, and a drift must be known; {negative or 'drift_index'} is wrong."
            )
        try:
            torch.Generator().set_state(state["generator_state"])
        except RuntimeError as error:
            raise ShapeError(f"generator_state must be the state of a generator; {error}.") from None
        self.load_state_dict(dict(state))

    def watch(self, novelty: Float[Tensor, " actors"], track_id: Int[Tensor, " actors"]) -> DriftReport:
        """Take the next actors of the stream, in order of time, and report the state of the alarm.

        Args:
            novelty: the score whose held-out values were fitted (`Novelty.rank`, or a calibrated rank).
            track_id: the track of each actor; only the first look at a new track counts.
        """
        self.require_fitted()
        require_novelty(novelty)
        if track_id.shape != novelty.shape:
            raise ShapeError(f"track_id must have one entry per actor, {len(novelty)}; got {len(track_id)}.")
        first_looks = novelty[self._is_first_look(track_id)]
        for some in first_looks.split(_ACTORS_AT_ONCE):
            if len(some):
                self._bet(self.take_in(some))
        return self.report

    def take_in(self, novelty: Float[Tensor, " actors"]) -> Float[Tensor, " actors"]:
        """Return the urn p-value of each next actor, one look each, and add the actor to the urn; `watch` bets on them."""
        novelty = novelty.detach().to(self.edges)
        tie, within = self._drawn(len(novelty), 2).to(novelty).unbind(dim=1)
        is_above = novelty[:, None] > self.edges
        is_above |= (novelty[:, None] == self.edges) & (tie[:, None] > self.edge_ties)
        chosen = torch.nn.functional.one_hot(is_above.sum(dim=1), len(self.num_places))  # (actors, bins)
        seen_before = self.num_in_bin + chosen.cumsum(dim=0) - chosen
        weight = (self.num_places + seen_before).double()
        at_or_above = weight.flip(1).cumsum(dim=1).flip(1)
        own, reached = (weight * chosen).sum(dim=1), (at_or_above * chosen).sum(dim=1)
        self.num_in_bin = self.num_in_bin + chosen.sum(dim=0)
        return (reached - own + within * own) / weight.sum(dim=1)

    @property
    def report(self) -> DriftReport:
        """The state of the alarm."""
        return DriftReport(
            num_actors=self.num_actors,
            largest_capital=math.exp(min(self.largest_log_capital.item(), 700.0)),
            alarm_at=int(self.alarm_at) or None,
            drift=DRIFTS[int(self.drift_index)] if self.alarm_at else None,
            false_alarm_rate=self.false_alarm_rate.item(),
        )

    @property
    def num_actors(self) -> int:
        """The number of actors counted since the start."""
        return int(self.num_in_bin.sum())

    def _start_over(self) -> None:
        zero = torch.zeros((), dtype=torch.int64, device=self.num_places.device)
        self.register_buffer("num_in_bin", torch.zeros_like(self.num_places))
        self.register_buffer("log_invested", zero.double().log().repeat(len(DRIFT_OF_BET)))
        self.register_buffer("largest_log_capital", zero.double())
        self.register_buffer("alarm_at", zero.clone())
        self.register_buffer("drift_index", zero.clone())
        self.register_buffer("newest_track_id", zero - 1)

    def _drawn(self, num_actors: int, each: int) -> Float[Tensor, "actors draws"]:
        """Draw fresh uniform numbers actor by actor, so that the size of a batch does not matter."""
        generator = torch.Generator()
        generator.set_state(self.generator_state.cpu())
        drawn = torch.rand(num_actors, each, generator=generator, dtype=torch.float64)
        self.generator_state = generator.get_state()
        return drawn

    def _is_first_look(self, track_id: Int[Tensor, " actors"]) -> Bool[Tensor, " actors"]:
        ids = torch.cat([self.newest_track_id[None], track_id.to(self.newest_track_id)])
        newest = ids.cummax(dim=0).values
        self.newest_track_id = newest[-1].clone()
        return ids[1:] > newest[:-1]

    def _bet(self, p_values: Float[Tensor, " actors"]) -> None:
        """Bet on one actor after another: W_t = f_t·(W_{t−1} + w_t) unrolled over the actors, in logarithms."""
        last = self.num_actors  # these actors are already in their bins
        number = torch.arange(last - len(p_values) + 1, last + 1, device=p_values.device).double()
        log_gain = log_bets(p_values).cumsum(dim=0)
        log_laid = self._log_shares() - torch.log(number * (number + 1))[:, None]
        before = torch.cat([torch.zeros_like(log_gain[:1]), log_gain[:-1]])
        stakes = torch.cat([self.log_invested[None], log_laid - before]).logcumsumexp(dim=0)[1:]
        log_invested = log_gain + stakes
        log_capital = torch.logaddexp(log_invested.logsumexp(dim=1), -torch.log(number + 1))
        self.log_invested = log_invested[-1].clone()
        self.largest_log_capital = torch.maximum(self.largest_log_capital, log_capital.max())
        is_rich = log_capital >= -torch.log(self.false_alarm_rate)
        if is_rich.any() and not self.alarm_at:
            at = int(is_rich.int().argmax())
            self.alarm_at = number[at].long()
            won = torch.zeros_like(log_invested[0, : len(DRIFTS)])
            won.index_add_(0, self._drift_of_bet(), log_invested[at].softmax(dim=0))
            self.drift_index = won.argmax()

    def _drift_of_bet(self) -> Int[Tensor, " bets"]:
        return torch.tensor(DRIFT_OF_BET, device=self.log_invested.device)

    def _log_shares(self) -> Float[Tensor, " bets"]:
        """Return equal shares for every kind of drift, and for every bet of a kind."""
        drift_of_bet = self._drift_of_bet()
        return -torch.log(len(DRIFTS) * torch.bincount(drift_of_bet)[drift_of_bet].double())
