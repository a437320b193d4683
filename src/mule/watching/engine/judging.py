"""From what a network says of actors to evidence, trust and novelty ranks; held-out actors and watched ones alike.

outputs h, features z ─┬─▶ evidence of the network, e^±h ──────────────┬─▶ evidence of network and memory together
                       ├─▶ neighbours in memory ─▶ weights, trust t ───╯
                       ╰─▶ novelty ranks: PE of log; with a memory, the parts of the score that decides

What is usual among known actors: novelty as a p-value, for one look and along a track, and the threshold.

*One look.* Every score becomes a p-value on held-out known actors; Fisher's rule makes them one (`CombinedScore`,
crossed over clips).

*Several looks*, −log p of each, mean r over the last n ≤ 4. How many count depends on time alone, never on what they
show. Where held-out actors were followed, r is calibrated on their looks that had as many behind them. Long tracks give
more of these, so what is promised is a share of looks, not of tracks, and only as far as tracks are about as long here as
there. Where they were not followed, p = min(1, e·exp(−r)): e times the geometric mean of p-values is a p-value however the looks depend on each other (Vovk and Wang 2020), for by
Markov's inequality on a convex function P(r ≥ t) ≤ E[(r − t + 1)⁺] ≤ e^(1−t), each −log p being exponential. One look is
itself.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from mule.core.errors import RangeError, ShapeError
from mule.core.records import Evidence
from mule.evidence.head import exp_evidence
from mule.memory.opinion import fused
from mule.memory.search import EntrySearch, Weighed, weigh
from mule.memory.taught import (
    Remembered,
    evidence_with_taught,
    log_trust_with_taught,
    outputs_with_taught,
)
from mule.novelty.calibration import FEWEST_HELD_OUT, CalibratedNovelty, CalibratedScore
from mule.novelty.combining import DECIDING_PARTS, MEMORY_PART, CombinedScore, deciding_ranks, folds_of
from mule.novelty.drift import DriftAlarm
from mule.novelty.scores import positive_log_evidence_novelty
from mule.novelty.thresholds import NoveltyThreshold, promised_alarm_rate, promised_threshold
from mule.watching.moments import P_VALUE, Threshold, View

EVIDENCE_SCORE, MEMORY_SCORE = "PE of log", "memory vacuity"


@dataclass(frozen=True)
class Judged:
    """Actors of one or many clips, one row each."""

    network: Evidence
    """What the network alone says; actions taught since are its read-outs."""
    together: Evidence
    """What network and memory say: their evidence adds. The same as `network` without a memory."""
    ranks: Float[Tensor, "actors scores"]
    """The novelty scores that are calibrated, in the order of `Judge.score_names`."""
    log_trust: Float[Tensor, " actors"] | None
    weighed: Weighed | None


class Judge:
    """What a network's outputs mean, with a memory beside it or without."""

    def __init__(
        self,
        pair_evidence: Callable[[Tensor], Evidence] | None,
        classes: Sequence[str],
        remembered: Remembered | None,
        *,
        tags: Sequence[str] = (),
    ) -> None:
        """Finds the columns that the memory speaks of, and those that novelty is read from: all but tags.

        `pair_evidence` makes evidence of two outputs per action (`System.pair_evidence`); None reads one logit per action.

        Raises:
            RangeError: the memory speaks of actions the network does not have, or needs one logit per action.
        """
        self._pair_evidence = pair_evidence
        self.remembered = remembered
        self.classes: tuple[str, ...] = tuple(classes)
        self._columns = torch.arange(len(classes))
        self._search: EntrySearch | None = None
        if remembered is not None:
            self._remember(remembered, classes)
        self._is_action = torch.tensor([name not in tags for name in self.classes], dtype=torch.bool)

    def _remember(self, remembered: Remembered, classes: Sequence[str]) -> None:
        if self._pair_evidence is not None:
            raise RangeError(
                "a memory needs a network with one logit per action; this one has two outputs for each. Leave "
                "memory.safetensors out of the folder."
            )
        unknown = [name for name in remembered.network_class_names if name not in classes]
        if unknown:
            raise RangeError(
                f"a memory must speak of the network's actions; it has {', '.join(unknown)}, which the network has not."
            )
        trained = remembered.network_class_names
        self._columns = torch.tensor([list(classes).index(name) for name in trained], dtype=torch.int64)
        self.classes = (*trained, *(action.name for action in remembered.taught))
        self._search = EntrySearch(remembered.memory.features, remembered.memory.places.group_index)

    @property
    def score_names(self) -> tuple[str, ...]:
        """The novelty scores that are combined."""
        if self.remembered is None:
            return (EVIDENCE_SCORE,)
        names = {MEMORY_PART: MEMORY_SCORE, "exp-pe": EVIDENCE_SCORE}
        return tuple(names.get(part, part) for part in DECIDING_PARTS)

    def __call__(
        self, outputs: Float[Tensor, "actors outputs"], features: Float[Tensor, "actors dim"]
    ) -> Judged:
        """What is to be said of each actor, from the raw outputs and what a memory keeps of it."""
        if self.remembered is None:
            network = self._evidence(outputs)
            rank = positive_log_evidence_novelty(self._of_actions(network)).rank.double()
            return Judged(network, network, rank[:, None], None, None)
        remembered = self.remembered
        logits = outputs_with_taught(remembered, outputs[:, self._columns], features)
        network = self._evidence(logits)
        weighed = weigh(remembered.memory, features, search=self._search)
        log_trust = log_trust_with_taught(remembered, weighed, features).double()
        ranks = deciding_ranks(logits[:, self._is_action], log_trust)
        together = fused(network, evidence_with_taught(remembered, weighed))
        return Judged(network, together, ranks, log_trust, weighed)

    def _of_actions(self, evidence: Evidence) -> Evidence:
        return Evidence(evidence.positive[:, self._is_action], evidence.negative[:, self._is_action])

    def _evidence(self, outputs: Float[Tensor, "actors outputs"]) -> Evidence:
        """One logit h becomes e⁺ = e^h and e⁻ = e^−h, whose expected probability is exactly the sigmoid of h.

        So a network trained by cross-entropy is read as the tied exponential one is, and means what it meant.
        """
        if self._pair_evidence is not None:
            return self._pair_evidence(outputs)
        outputs = outputs.float()
        return Evidence(exp_evidence(outputs), exp_evidence(-outputs))


NO_TRACK = -1
MOST_LOOKS_FOR_NOVELTY = 4
"""What actors of rendered takes do lasts two to four seconds; older looks are of something else."""

BY_TRACKS = "calibrated on held-out actors after as many looks"
BY_RULE = "e times the geometric mean of p-values, which holds however looks depend on each other"


@dataclass(frozen=True)
class HeldOutActors:
    """Known actors that trained nothing: how novel they look, and which share a clip or a track."""

    ranks: Float[Tensor, "actors scores"]
    clip_index: Int[Tensor, " actors"]
    track_index: Int[Tensor, " actors"]
    """−1 where an actor was not followed; looks at one track are in the order of time."""

    def __post_init__(self) -> None:
        if not len(self.ranks) == len(self.clip_index) == len(self.track_index):
            raise ShapeError(
                "held-out actors must have ranks, a clip and a track each; got "
                f"{len(self.ranks)}, {len(self.clip_index)} and {len(self.track_index)}."
            )


class UsualNovelty:
    """How novel known actors look, learnt from held-out ones."""

    def __init__(self, held_out: HeldOutActors) -> None:
        """Calibrates.

        Raises:
            TooFewActors: fewer than twenty were held out in some fold.
        """
        self.combined = CombinedScore(held_out.ranks.shape[1])
        statistic = self.combined.fit_crossed(held_out.ranks, folds_of(held_out.clip_index))
        self._of_first_looks = statistic[_is_first_look(held_out.track_index)]
        self._by_looks = _by_looks(self.combined(held_out.ranks).rank, held_out.track_index)

    @property
    def num_held_out(self) -> int:
        """How many known actors were held out."""
        return len(self.combined.together.held_out)

    @property
    def looks_rule(self) -> str:
        """How looks along a track become one p-value, in words."""
        return BY_TRACKS if self._by_looks else BY_RULE

    def of_one_look(self, ranks: Float[Tensor, "actors scores"]) -> CalibratedNovelty:
        """The calibrated novelty of each actor by one look."""
        return self.combined(ranks)

    def of_looks(
        self, mean_rank: Float[Tensor, " actors"], num_looks: Int[Tensor, " actors"]
    ) -> Float[Tensor, " actors"]:
        """−log p of each actor from the mean of −log p over its looks."""
        found = torch.where(num_looks == 1, mean_rank, (mean_rank - 1).clamp(min=0))
        for fewest, score in self._by_looks.items():
            is_meant = num_looks >= fewest
            found[is_meant] = score(mean_rank[is_meant]).rank
        return found

    def drift_alarm(self) -> DriftAlarm:
        """An alarm that has seen the held-out actors, at first sight, and no stream yet; give it `statistic`.

        It counts every track of a stream once, at first sight. Later looks resemble the first, and look less strange:
        with them among the held-out ones it would sound without drift.
        """
        alarm = DriftAlarm()
        alarm.fit(self._of_first_looks)
        return alarm

    def statistic(self, ranks: Float[Tensor, "actors scores"]) -> Float[Tensor, " actors"]:
        """T of each actor: what the drift alarm bets on."""
        return self.combined.statistic(ranks)

    def threshold(self, text: str, *, view: View = "so_far") -> Threshold:
        """`known-95` (95 % of known actors pass), or a share of known actors below which one is not novel.

        A promise is kept by ranks: its value is that of the held-out actor at which the promise ends, so that an actor
        lies above it exactly if its statistic lies above that actor's.

        Raises:
            RangeError: it is neither, or the share does not lie between 0 and 1.
            TooFewActors: too few actors were held out for the promise.
        """
        together = self.combined.together
        if text.startswith("known"):
            promise = promised_threshold(together.held_out, alarm_rate=promised_alarm_rate(text))
            value = together(torch.tensor([promise.novelty], dtype=torch.float64)).novelty.value.item()
            return self._threshold(text, value, view=view, meaning=promise.meaning)
        value = _share(text)
        above = int((together(together.held_out).novelty.value > value).sum())
        chosen = NoveltyThreshold(value, above / self.num_held_out, self.num_held_out, is_promised=False)
        return self._threshold(text, value, view=view, meaning=chosen.meaning)

    def _threshold(self, name: str, value: float, *, view: View, meaning: str) -> Threshold:
        return Threshold(
            name=name, score=P_VALUE, value=value, view=view, meaning=meaning, num_held_out=self.num_held_out
        )


def _share(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not 0 <= value < 1:
        raise RangeError(
            "a threshold must be a promise such as known-95, or the share of known actors that must be less novel, such "
            f"as 0.99; got {text!r}."
        )
    return value


def _by_looks(
    rank: Float[Tensor, " looks"], track_index: Int[Tensor, " looks"]
) -> Mapping[int, CalibratedScore]:
    """A calibration for every number of looks that enough held-out tracks had, fewest looks first."""
    is_followed = track_index != NO_TRACK
    rank, track_index = rank[is_followed], track_index[is_followed]
    num_looks = looks_up_to(track_index).clamp(max=MOST_LOOKS_FOR_NOVELTY)
    mean = means_of_last(rank, track_index, num_looks)
    found: dict[int, CalibratedScore] = {}
    for count in range(2, MOST_LOOKS_FOR_NOVELTY + 1):
        chosen = num_looks == count
        if len(track_index[chosen].unique()) < FEWEST_HELD_OUT:
            break
        found[count] = CalibratedScore()
        found[count].fit(mean[chosen])
    return found


def _is_first_look(track_index: Int[Tensor, " looks"]) -> Bool[Tensor, " looks"]:
    """The first look at each track; who was not followed was seen once."""
    return (looks_up_to(track_index) == 1) | (track_index == NO_TRACK)


def looks_up_to(track_index: Int[Tensor, " looks"]) -> Int[Tensor, " looks"]:
    """The how-manieth look at its track each look is.

    >>> looks_up_to(torch.tensor([7, 3, 7, 7, 3])).tolist()
    [1, 1, 2, 3, 2]
    """
    order = torch.argsort(track_index, stable=True)
    ordered = track_index[order]
    found = torch.empty_like(track_index)
    found[order] = torch.arange(1, len(ordered) + 1) - torch.searchsorted(ordered, ordered)
    return found


def means_of_last(
    rank: Float[Tensor, " looks"], track_index: Int[Tensor, " looks"], num_looks: Int[Tensor, " looks"]
) -> Float[Tensor, " looks"]:
    """At each look the mean over the last `num_looks` of its track; looks at one track are in the order of time.

    >>> rank = torch.tensor([1.0, 10.0, 3.0, 20.0]).double()
    >>> means_of_last(rank, torch.tensor([0, 1, 0, 1]), torch.tensor([1, 1, 2, 1])).tolist()
    [1.0, 10.0, 2.0, 20.0]
    """
    order = torch.argsort(track_index, stable=True)
    sums = torch.cat([rank.new_zeros(1), rank[order].cumsum(0)])
    after = torch.empty_like(order)
    after[order] = torch.arange(1, len(order) + 1)
    return (sums[after] - sums[after - num_looks]) / num_looks
