"""From a network's outputs to evidence, trust and novelty; held-out and watched actors go through the same steps.

outputs h, features z ─┬─▶ evidence of the network, e^±h ──────────────┬─▶ evidence of network and memory together
                       ├─▶ neighbours in memory ─▶ weights, trust t ───╯
                       ╰─▶ novelty ranks: PE of log evidence; with a memory, all parts of the score that decides
inputs (roi, frame, labels) ──▶ novelty ranks of `crossfit`, for models with a frozen backbone; they replace the others

`UsualNovelty` knows how novel known actors look. It turns novelty into a p-value, for one look and along a track, and holds
the threshold.

*One look.* Every score becomes a p-value on held-out known actors; Fisher's rule (the sum of their logarithms) makes them
one (`CombinedScore`, crossed over clips or films).

*Several looks.* r is the mean of −log p over the last n ≤ 4 looks. How many count depends on time alone, never on what they
show. Where held-out actors were followed, r is calibrated on their looks after as many others. Long tracks give more of
these, so the promise is about a share of looks, not of tracks, and holds as far as tracks are about as long here as there.
Where they were not followed, p = min(1, e·exp(−r)): e times the geometric mean of p-values is a p-value however the looks
depend on each other (Vovk and Wang 2020), for by Markov's inequality on a convex function
P(r ≥ t) ≤ E[(r − t + 1)⁺] ≤ e^(1−t), each −log p being exponential. One look is itself.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from mule.core.errors import RangeError, ShapeError
from mule.core.records import Evidence
from mule.detection.tracks import NO_TRACK
from mule.evidence.head import exp_evidence
from mule.memory.opinion import fused
from mule.memory.search import EntrySearch, Weighed, weigh
from mule.memory.taught import (
    Remembered,
    evidence_with_taught,
    log_trust_with_taught,
    outputs_with_taught,
)
from mule.novelty.calibration import (
    FEWEST_HELD_OUT,
    CalibratedNovelty,
    CalibratedScore,
    NoveltyThreshold,
    promised_threshold,
)
from mule.novelty.combining import CombinedScore, deciding_ranks, folds_of
from mule.novelty.crossfit import Inputs
from mule.novelty.drift import DriftAlarm
from mule.novelty.known import FittedToKnown
from mule.novelty.odds import promised_alarm_rate
from mule.novelty.scores import positive_log_evidence_novelty
from mule.watching.moments import IDLE_FROM, P_VALUE, DecisionThreshold

EVIDENCE_SCORE, MEMORY_SCORE = "PE of log", "memory vacuity"
"""Names of scores in results: the paper's PE of the logarithm of the evidence, and how far all remembered actors are."""


@dataclass(frozen=True)
class Judged:
    """Actors of one or many clips, one row each."""

    network: Evidence
    """Evidence of the network alone; actions taught later are read off its outputs."""
    together: Evidence
    """Evidence of network and memory, added up. The same as `network` without a memory."""
    ranks: Float[Tensor, "actors scores"]
    """The novelty scores to calibrate: those of `SeenParts`, or `DECIDING_PARTS` of `mule.novelty.combining`; without a
    memory, PE of the log evidence alone."""
    log_trust: Float[Tensor, " actors"] | None
    weighed: Weighed | None
    idle: Float[Tensor, " actors"] | None = None
    """How much each resembles idle people (`idle_share`); None where nobody knows any."""


@dataclass(frozen=True)
class Judgements:
    """Actors judged by one look, or by all their looks so far, one row each; they become `Judgement` records."""

    network: Evidence
    together: Evidence
    rank: Float[Tensor, " actors"]
    """−log p."""
    log_trust: Float[Tensor, " actors"]
    """The mean over looks; 0 without a memory."""
    num_looks: Int[Tensor, " actors"]
    """How many looks the evidence rests on."""
    idle: Float[Tensor, " actors"] | None = None
    """How much each resembles idle people now; None where nobody knows any."""

    @property
    def is_idle(self) -> Bool[Tensor, " actors"]:
        """Who resembles idle people more than people who act."""
        return torch.zeros(len(self.rank), dtype=torch.bool) if self.idle is None else self.idle > IDLE_FROM


class Judge:
    """Turns a network's outputs into evidence and novelty, with or without a memory, by what actors are seen by if it knows."""

    def __init__(
        self,
        pair_evidence: Callable[[Tensor], Evidence] | None,
        classes: Sequence[str],
        remembered: Remembered | None,
        *,
        tags: Sequence[str] = (),
        seen: FittedToKnown | None = None,
    ) -> None:
        """Find the columns of the actions in memory, and those that count for novelty: all except tags.

        With `seen`, novelty is read from an actor's inputs. `pair_evidence` makes evidence of two outputs per action (`System.pair_evidence`); None reads one logit per action.
        """
        self._pair_evidence = pair_evidence
        self.remembered = remembered
        self.seen = seen
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
                f"a memory must hold actions of the network; it has {', '.join(unknown)}, which the network does not know."
            )
        trained = remembered.network_class_names
        self._columns = torch.tensor([list(classes).index(name) for name in trained], dtype=torch.int64)
        self.classes = (*trained, *(action.name for action in remembered.taught))
        self._search = EntrySearch(remembered.memory.features, remembered.memory.places.group_index)

    def __call__(
        self,
        outputs: Float[Tensor, "actors outputs"],
        features: Float[Tensor, "actors dim"],
        inputs: Inputs | None = None,
    ) -> Judged:
        """Judge each actor by its raw outputs, by the features a memory keeps of it, and by its inputs if they decide."""
        network = self.network(outputs, features)
        if self.remembered is None:
            return Judged(
                network, network, self._ranks(outputs, None, inputs), None, None, self._idle(inputs)
            )
        remembered = self.remembered
        weighed = weigh(remembered.memory, features, search=self._search)
        log_trust = log_trust_with_taught(remembered, weighed, features).double()
        logits = self._logits(outputs, features)
        together = fused(network, evidence_with_taught(remembered, weighed))
        ranks = self._ranks(logits, log_trust, inputs)
        return Judged(network, together, ranks, log_trust, weighed, self._idle(inputs))

    def _idle(self, inputs: Inputs | None) -> Float[Tensor, " actors"] | None:
        return None if self.seen is None else self.seen.idle({} if inputs is None else inputs)

    def network(
        self, outputs: Float[Tensor, "actors outputs"], features: Float[Tensor, "actors dim"]
    ) -> Evidence:
        """Return the evidence of the network alone."""
        return self._evidence(self._logits(outputs, features))

    def _logits(self, outputs: Tensor, features: Tensor) -> Tensor:
        """The outputs for the actions that it knows, those taught later last."""
        if self.remembered is None:
            return outputs
        return outputs_with_taught(self.remembered, outputs[:, self._columns], features)

    def _ranks(
        self, outputs: Tensor, log_trust: Tensor | None, inputs: Inputs | None
    ) -> Float[Tensor, "actors scores"]:
        if self.seen is not None:
            return self.seen.parts.ranks({} if inputs is None else inputs)
        if log_trust is not None:
            return deciding_ranks(outputs[:, self._is_action], log_trust)
        network = self._evidence(outputs)
        of_actions = Evidence(network.positive[:, self._is_action], network.negative[:, self._is_action])
        return positive_log_evidence_novelty(of_actions).rank.double()[:, None]

    def _evidence(self, outputs: Float[Tensor, "actors outputs"]) -> Evidence:
        """One logit h becomes e⁺ = e^h and e⁻ = e^−h, whose expected probability is exactly the sigmoid of h.

        A network trained with cross-entropy is therefore read like the tied exponential one, and keeps its meaning.
        """
        if self._pair_evidence is not None:
            return self._pair_evidence(outputs)
        outputs = outputs.float()
        return Evidence(exp_evidence(outputs), exp_evidence(-outputs))


MOST_LOOKS_FOR_NOVELTY = 4
"""Actions in rendered takes last two to four seconds; older looks show something else."""

BY_TRACKS = "calibrated on held-out actors after as many looks"
BY_RULE = "e times the geometric mean of p-values, valid however looks depend on each other"


@dataclass(frozen=True)
class HeldOutOutputs:
    """Held-out known actors as the network saw them; a later change of the memory does not make them stale."""

    outputs: Float[Tensor, "actors outputs"]
    features: Float[Tensor, "actors whole"]
    """What a memory keeps of each actor (`mule.memory.memory.whole_features`)."""
    clip_index: Int[Tensor, " actors"]
    track_index: Int[Tensor, " actors"]
    labels: Float[Tensor, "actors classes"] | None = None
    """Which of the trained actions each actor does; None if the labels were not kept."""

    def still_known(
        self, trained: Sequence[str], remembered: Remembered | None, *, tags: Sequence[str] = ()
    ) -> "HeldOutOutputs":
        """Return the actors that do an action which was not forgotten since; all of them without labels.

        An actor who does nothing but forgotten actions is novel now and must not count among known ones.
        """
        if remembered is None or self.labels is None:
            return self
        known = set(remembered.memory.class_names).difference(tags)
        is_known = torch.tensor([name in known for name in trained], dtype=torch.bool)
        rows = (self.labels[:, is_known] > 0).any(dim=1)
        return HeldOutOutputs(
            self.outputs[rows],
            self.features[rows],
            self.clip_index[rows],
            self.track_index[rows],
            self.labels[rows],
        )


class UsualNovelty:
    """How novel known actors look, learnt from held-out actors that no training used."""

    def __init__(
        self,
        ranks: Float[Tensor, "actors scores"],
        fold_index: Int[Tensor, " actors"],
        track_index: Int[Tensor, " actors"],
    ) -> None:
        """Calibrate on the ranks of held-out actors, in the order of time.

        `fold_index` divides them for calibrating, clip by clip or film by film. `track_index` says which of them are looks at one track; it is −1 where an actor was not followed.
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

    @property
    def num_held_out(self) -> int:
        """The number of held-out known actors."""
        return len(self.combined.together.held_out)

    @property
    def looks_rule(self) -> str:
        """How looks along a track become one p-value, in words."""
        return BY_TRACKS if self._by_looks else BY_RULE

    def of_one_look(self, ranks: Float[Tensor, "actors scores"]) -> CalibratedNovelty:
        """Return the calibrated novelty of each actor by one look."""
        return self.combined(ranks)

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
        together = self.combined.together
        if text.startswith("known"):
            promise = promised_threshold(together.held_out, alarm_rate=promised_alarm_rate(text))
            value = together(torch.tensor([promise.novelty], dtype=torch.float64)).novelty.value.item()
            meaning = promise.meaning
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
    return UsualNovelty(fitted.ranks, fitted.folds, fitted.tracks)


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
