"""A drift alarm: when the actors of a stream stop looking like known ones as a crowd, say so, at a stated risk."""

import math
from dataclasses import dataclass
from typing import Literal

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from mule.core.errors import RangeError, ShapeError
from mule.novelty.calibration import HeldOutModule, require_novelty, sorted_held_out

Drift = Literal["stranger", "more ordinary", "more alike"]

NUM_BINS = 100
ACTORS_AT_ONCE = 4096  # bounds the memory of one long call
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
"""Which of `DRIFTS` each bet speaks for when it wins, in the order of `log_bets`."""


def log_bets(p_values: Float[Tensor, " actors"]) -> Float[Tensor, "actors bets"]:
    """What each bet multiplies its stake by, as a logarithm; each pays 1 on average when p is uniform.

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
    """Where the game stands: how many actors it has seen, what the capital came to, and whether that is an alarm."""

    num_actors: int
    largest_capital: float
    """The most that one unit of money became; 1/`largest_capital` bounds the chance of it without drift."""
    alarm_at: int | None
    """The number of the actor that raised the alarm, counted from 1; an alarm stays."""
    drift: Drift | None
    """Which kind of bet had won most when the alarm was raised."""
    false_alarm_rate: float

    @property
    def is_alarm(self) -> bool:
        """There is, or was, drift."""
        return self.alarm_at is not None

    def in_words(self) -> str:
        """One sentence for people."""
        if self.alarm_at is None:
            return f"no drift seen in {self.num_actors:,} actors"
        return (
            f"the actors of this stream look {self.drift} than known actors did (seen at actor {self.alarm_at:,}; without "
            f"drift at most {100 * self.false_alarm_rate:.4g} % of streams, however long, would raise this alarm)"
        )


class DriftAlarm(HeldOutModule):
    """Bets against "held-out actors and stream are exchangeable"; growing rich is the alarm (conformal test martingale).

    1. *Urn p-value.* Held-out values cut the line into at most 100 bins of n₁ … n_B places, n + 1 in all. With cᵢ
       actors of the stream so far in each bin, a new actor in bin b gets

           p = (Σ_{bins above b} (nᵢ + cᵢ) + θ·(n_b + c_b)) / (n + 1 + Σc),      θ uniform in [0, 1]

       Ranks of exchangeable actors are a Pólya urn, so these p-values are independent and exactly uniform. Equal
       values are put in a random order. The generator is seeded and part of the state.
    2. *Capital.* A unit of money waits; before actor t the part 1/(t(t + 1)) of it is laid on the bets of `log_bets`
       (a third each on stranger, more ordinary, more alike) and stays there: W ← f(p)·(W + 1/(t(t + 1))·share). So drift
       that begins after t quiet actors costs no more than a factor t(t + 1), where one old capital would have withered.
    3. *Ville's inequality.* Without drift the capital is a martingale that starts at 1, so
       P(it ever reaches 1/a) ≤ a, however long the stream. a is `false_alarm_rate`.

    Why not the p-values shown to people: plain ones, P(p ≤ a) ≤ a, keep the promise for bets near 0 alone, where erring
    upwards loses money; bets near 1 would win by it. Smoothed ones are uniform one by one, but all rest on the same
    held-out actors; in a long stream the error of those becomes visible and the alarm goes off without drift (measured
    for a stated 5 %: 20 % of streams of 2,000 actors with 50 held out, 10 % of 5,000 with 100; the urn 2 % and 3 %).
    The urn learns that error from the stream. The price: drift that was there from the start is learnt too, and must
    show within about the first n actors.

    *One look per track.* Looks at one actor resemble each other and would break the promise. Only an actor whose track
    id is above all ids before counts, once, at first sight (ids count upwards, as `mule.detection.tracks` gives them;
    -1 is no track). Fit on first looks too. A crowd that keeps coming back, or a change of light, is drift, not error:
    exchangeability is what is tested.

    The state is some 300 numbers and a generator, whatever the length of the stream; `state_dict` holds all of it.
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
        """Learns the bins from the novelty of held-out known actors, one look each, and starts over."""
        ascending = sorted_held_out(
            novelty, fewest=1, purpose="a drift alarm"
        )  # fewer see less, and promise the same
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

    def restart(self) -> None:
        """Forgets the stream, and an alarm with it, but not the held-out actors. Each start risks a false alarm anew."""
        self.require_fitted()
        self._start_over()

    def watch(self, novelty: Float[Tensor, " actors"], track_id: Int[Tensor, " actors"]) -> DriftReport:
        """Takes in the next actors of the stream, in the order of time, and says where the game stands.

        Args:
            novelty: any score whose held-out values were fitted (`Novelty.rank`, or a calibrated rank).
            track_id: which track each actor belongs to; only the first look at a new track counts.
        """
        self.require_fitted()
        require_novelty(novelty)
        if track_id.shape != novelty.shape:
            raise ShapeError(f"track_id must have one entry per actor, {len(novelty)}; got {len(track_id)}.")
        first_looks = novelty[self._is_first_look(track_id)]
        for some in first_looks.split(ACTORS_AT_ONCE):
            if len(some):
                self._bet(self.take_in(some))
        return self.report

    def take_in(self, novelty: Float[Tensor, " actors"]) -> Float[Tensor, " actors"]:
        """The urn p-value of each next actor, one look each, which is then part of the urn; `watch` bets on them."""
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
        """Where the game stands."""
        return DriftReport(
            num_actors=self.num_actors,
            largest_capital=math.exp(min(self.largest_log_capital.item(), 700.0)),
            alarm_at=int(self.alarm_at) or None,
            drift=DRIFTS[int(self.drift_index)] if self.alarm_at else None,
            false_alarm_rate=self.false_alarm_rate.item(),
        )

    @property
    def num_actors(self) -> int:
        """How many actors have counted since the start."""
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
        """Uniform numbers never drawn before; one actor after another, so that it does not matter how many at once."""
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
        """Plays the actors one after another: W_t = f_t·(W_{t−1} + w_t) unrolled over the actors, in logarithms."""
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
        """The same money on every kind of drift, the same on every bet of a kind."""
        drift_of_bet = self._drift_of_bet()
        return -torch.log(len(DRIFTS) * torch.bincount(drift_of_bet)[drift_of_bet].double())
