"""How novel known actors look: p-values of one look and of many, and the threshold.

*One look.* Every score becomes a p-value on held-out known actors; Fisher's rule (the sum of their logarithms) makes them
one (`CombinedScore`, crossed over clips or films).

*Several looks.* r is the mean of −log p over the last n ≤ 4 looks. How many count depends on time alone, never on what they
show. Where held-out actors were followed, r is calibrated on their looks after as many others. Long tracks give more of
these, so the promise is about a share of looks, not of tracks, and holds as far as tracks are about as long here as there.
Where they were not followed, p = min(1, e·exp(−r)): e times the geometric mean of p-values is a p-value however the looks
depend on each other (Vovk and Wang 2020), for by Markov's inequality on a convex function
P(r ≥ t) ≤ E[(r − t + 1)⁺] ≤ e^(1−t), each −log p being exponential. One look is itself.
"""

from collections.abc import Mapping, Sequence

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from mule.core.errors import RangeError, ShapeError
from mule.detection.tracks import NO_TRACK
from mule.novelty.calibration import (
    FEWEST_HELD_OUT,
    CalibratedNovelty,
    CalibratedScore,
    NoveltyThreshold,
    promised_threshold,
)
from mule.novelty.combining import CombinedScore, folds_of
from mule.novelty.drift import DriftAlarm
from mule.novelty.known import FittedToKnown
from mule.novelty.odds import promised_alarm_rate
from mule.novelty.tracks import MOST_WINDOW, Ranks, best_window
from mule.watching.engine.judging import HeldOutOutputs, Judge
from mule.watching.moments import P_VALUE, DecisionThreshold

MOST_LOOKS_FOR_NOVELTY = 4
"""Actions in rendered takes last two to four seconds; older looks show something else."""

BY_TRACKS = "calibrated on held-out actors after as many looks"
BY_RULE = "e times the geometric mean of p-values, valid however looks depend on each other"
BY_WATCHING = "the best of the last {most} looks, calibrated on {num} known people while they were watched"


class UsualNovelty:
    """How novel known actors look, learnt from held-out actors that no training used."""

    def __init__(
        self,
        ranks: Float[Tensor, "actors scores"],
        fold_index: Int[Tensor, " actors"],
        track_index: Int[Tensor, " actors"],
        watched: Float[Tensor, " tracks"] | None = None,
    ) -> None:
        """Calibrate on the ranks of held-out actors, in the order of time.

        `fold_index` divides them for calibrating, clip by clip or film by film. `track_index` says which of them are looks at one track; it is −1 where an actor was not followed.
        `watched` is the largest `best_window` of each known person while held-out videos were watched; it is used if there are enough.
        """
        if not len(ranks) == len(fold_index) == len(track_index):
            raise ShapeError(
                "held-out actors must have ranks, a fold and a track each; got "
                f"{len(ranks)}, {len(fold_index)} and {len(track_index)}."
            )
        self.combined = CombinedScore(ranks.shape[1])
        statistic = self.combined.fit_crossed(ranks, fold_index)
        self._of_first_looks = statistic[_is_first_look(track_index)]
        self._by_looks = _by_looks(self.combined(ranks).rank, track_index)
        self._by_track: CalibratedScore | None = None
        if watched is not None and len(watched) >= FEWEST_HELD_OUT:
            self._by_track = CalibratedScore()
            self._by_track.fit(watched)

    @property
    def num_held_out(self) -> int:
        """The number of held-out known actors, or of known people who were watched, that the threshold rests on."""
        return len(self._deciding.held_out)

    @property
    def most_looks(self) -> int:
        """How many looks novelty rests on at most."""
        return MOST_LOOKS_FOR_NOVELTY if self._by_track is None else MOST_WINDOW

    @property
    def _deciding(self) -> CalibratedScore:
        return self.combined.together if self._by_track is None else self._by_track

    @property
    def looks_rule(self) -> str:
        """How looks along a track become one p-value, in words."""
        if self._by_track is not None:
            return BY_WATCHING.format(most=MOST_WINDOW, num=self.num_held_out)
        return BY_TRACKS if self._by_looks else BY_RULE

    def of_one_look(self, ranks: Float[Tensor, "actors scores"]) -> CalibratedNovelty:
        """Return the calibrated novelty of each actor by one look."""
        return self.combined(ranks)

    def so_far(self, ranks: Sequence[Ranks]) -> Float[Tensor, " tracks"]:
        """Return −log p of each track from −log p of its looks, oldest first."""
        if self._by_track is not None:
            return self._by_track(
                torch.tensor([best_window(each) for each in ranks], dtype=torch.float64)
            ).rank
        mean_rank = torch.tensor([sum(each) / len(each) for each in ranks], dtype=torch.float64)
        return self.of_looks(mean_rank, torch.tensor([len(each) for each in ranks], dtype=torch.int64))

    def of_looks(
        self, mean_rank: Float[Tensor, " actors"], num_looks: Int[Tensor, " actors"]
    ) -> Float[Tensor, " actors"]:
        """Return −log p of each actor from the mean of −log p over its looks."""
        rank = torch.where(num_looks == 1, mean_rank, (mean_rank - 1).clamp(min=0))
        for fewest, score in self._by_looks.items():
            has_enough = num_looks >= fewest
            rank[has_enough] = score(mean_rank[has_enough]).rank
        return rank

    def drift_alarm(self) -> DriftAlarm:
        """Return an alarm fitted to the first look at each held-out actor; it watches `statistic`.

        It counts every track of a stream once, by its first look. Later looks resemble the first and are less strange:
        fitted to them too, the alarm would sound without drift.
        """
        alarm = DriftAlarm()
        alarm.fit(self._of_first_looks)
        return alarm

    def statistic(self, ranks: Float[Tensor, "actors scores"]) -> Float[Tensor, " actors"]:
        """Return T of each actor, the number the drift alarm bets on."""
        return self.combined.statistic(ranks)

    def threshold(self, text: str) -> DecisionThreshold:
        """Return the threshold that `text` names: `known-95` (95 % of known actors pass), or a share such as 0.99.

        With a share, an actor is novel if it is stranger than that share of known actors. A promise is kept by ranks: its
        value is that of the held-out actor at which the promise ends, so that an actor lies above it exactly if its
        statistic lies above that actor's.
        """
        together = self._deciding
        if text.startswith("known"):
            promise = promised_threshold(together.held_out, alarm_rate=promised_alarm_rate(text))
            value = together(torch.tensor([promise.novelty], dtype=torch.float64)).novelty.value.item()
            meaning = (
                promise.meaning if self._by_track is None else f"{promise.meaning} while they are watched"
            )
        else:
            value = _share(text)
            above = int((together(together.held_out).novelty.value > value).sum())
            share = above / self.num_held_out
            meaning = NoveltyThreshold(value, share, self.num_held_out, is_promised=False).meaning
        return DecisionThreshold(
            name=text,
            score=P_VALUE,
            value=value,
            meaning=meaning,
            num_held_out=self.num_held_out,
            says_unsure=True,
        )


def usual_novelty(judge: Judge, held_out: HeldOutOutputs) -> UsualNovelty:
    """Calibrate on held-out known actors, as a judge sees them."""
    ranks = judge(held_out.outputs, held_out.features).ranks
    return UsualNovelty(ranks, folds_of(held_out.clip_index), held_out.track_index)


def usual_of(fitted: FittedToKnown) -> UsualNovelty:
    """Calibrate on known actors as parts fitted without their film rank them."""
    return UsualNovelty(fitted.ranks, fitted.folds, fitted.tracks, fitted.watched)


def _share(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not 0 <= value < 1:
        raise RangeError(
            "a threshold must be a promise such as known-95 (95 % of known actors pass), or a share from 0 to 1 such as "
            f"0.99 (flag actors stranger than 99 % of known actors); got {text!r}."
        )
    return value


def _by_looks(
    rank: Float[Tensor, " looks"], track_index: Int[Tensor, " looks"]
) -> Mapping[int, CalibratedScore]:
    """A calibration for each number of looks that enough held-out tracks have, fewest looks first."""
    is_followed = track_index != NO_TRACK
    rank, track_index = rank[is_followed], track_index[is_followed]
    num_looks = looks_up_to(track_index).clamp(max=MOST_LOOKS_FOR_NOVELTY)
    mean = means_of_last(rank, track_index, num_looks)
    by_looks: dict[int, CalibratedScore] = {}
    for count in range(2, MOST_LOOKS_FOR_NOVELTY + 1):
        chosen = num_looks == count
        if len(track_index[chosen].unique()) < FEWEST_HELD_OUT:
            break
        by_looks[count] = CalibratedScore()
        by_looks[count].fit(mean[chosen])
    return by_looks


def _is_first_look(track_index: Int[Tensor, " looks"]) -> Bool[Tensor, " looks"]:
    """Whether each look is the first at its track; an actor who was not followed has one look."""
    return (looks_up_to(track_index) == 1) | (track_index == NO_TRACK)


def looks_up_to(track_index: Int[Tensor, " looks"]) -> Int[Tensor, " looks"]:
    """Number the looks at each track, from 1.

    >>> looks_up_to(torch.tensor([7, 3, 7, 7, 3])).tolist()
    [1, 1, 2, 3, 2]
    """
    order = torch.argsort(track_index, stable=True)
    ordered = track_index[order]
    number = torch.empty_like(track_index)
    number[order] = torch.arange(1, len(ordered) + 1) - torch.searchsorted(ordered, ordered)
    return number


def means_of_last(
    rank: Float[Tensor, " looks"], track_index: Int[Tensor, " looks"], num_looks: Int[Tensor, " looks"]
) -> Float[Tensor, " looks"]:
    """Return, at each look, the mean over the last `num_looks` of its track; looks come in the order of time.

    >>> rank = torch.tensor([1.0, 10.0, 3.0, 20.0]).double()
    >>> means_of_last(rank, torch.tensor([0, 1, 0, 1]), torch.tensor([1, 1, 2, 1])).tolist()
    [1.0, 10.0, 2.0, 20.0]
    """
    order = torch.argsort(track_index, stable=True)
    sums = torch.cat([rank.new_zeros(1), rank[order].cumsum(0)])
    after = torch.empty_like(order)
    after[order] = torch.arange(1, len(order) + 1)
    return (sums[after] - sums[after - num_looks]) / num_looks
