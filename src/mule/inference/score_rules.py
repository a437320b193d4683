"""Novelty scores as rules that apply to any system: what each needs, and what it learns from.

A rule may learn from training actors and from held-out known actors, never from a novel one.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol, get_args, runtime_checkable

import torch

from mule.core.errors import MissingOutputs, NotFitted, RangeError, did_you_mean
from mule.core.records import Evidence, Novelty
from mule.inference.outputs import SideOutputs
from mule.inference.remembering import MEMORY_SCORES, MemoryRule, SharedMemories
from mule.inference.seen import SEEN_SCORE, SeenRule
from mule.novelty.calibration import CalibratedScore
from mule.novelty.combining import DECIDING_SCORE, NETWORK_PARTS, fisher_name, fisher_statistic
from mule.novelty.scores import NOVELTY_BY_KIND, NoveltyKind, belief_novelty
from mule.rivals.networks.enn import dirichlet_vacuity_novelty
from mule.rivals.scores.by_name import SCORE_BY_NAME, ScoreName
from mule.rivals.scores.outputs import Need, OutputScore
from mule.systems.catalogue import EvidenceKind

NO_SIDE_NEEDED: frozenset[str] = frozenset()


@runtime_checkable
class ScoreRule(Protocol):
    """A novelty score of a network's outputs; larger is more novel."""

    @property
    def name(self) -> str:
        """The name of the score in tables."""
        ...

    @property
    def learns_from(self) -> frozenset[str]:
        """The sides it is fitted on: train, val, both or none."""
        ...

    def fit(self, train: SideOutputs, held_out: SideOutputs) -> None:
        """Learn from known actors.

        Those of training, and those of validation, on which no weight was trained.
        """
        ...

    def novelty(self, outputs: SideOutputs) -> Novelty:
        """The novelty of each actor."""
        ...


def _printed(kind: NoveltyKind) -> Callable[[Evidence], Novelty]:
    """The score ranked by its value in [0, 1], as printed in the paper; where it saturates, actors tie."""

    def novelty(evidence: Evidence) -> Novelty:
        value = NOVELTY_BY_KIND[kind](evidence).value
        return Novelty(value=value, rank=value)

    return novelty


EVIDENCE_SCORES: Mapping[str, Callable[[Evidence], Novelty]] = {
    "PE": NOVELTY_BY_KIND["pe"],
    "NE": NOVELTY_BY_KIND["ne"],
    "PNE": NOVELTY_BY_KIND["pne"],
    "Belief": NOVELTY_BY_KIND["belief"],
    "PE of log": NOVELTY_BY_KIND["pe_log"],
    "PE by value": _printed("pe"),
    "NE inverse": NOVELTY_BY_KIND["ne_inverse"],
    "vacuity": dirichlet_vacuity_novelty,
}
PAPER_SCORES = ("PE", "NE", "PNE", "Belief")
EXP_SCORES = ("exp-pe", "exp-belief")
"""PE and Belief of evidence read off the logits as e^±h, also for networks trained with cross-entropy."""
COMBINED_SCORES = (
    DECIDING_SCORE,
    *(
        name
        for name in (
            "fisher(exp-pe+memory)",
            "fisher(joint-energy+memory)",
            "fisher(max-logit+memory)",
            "fisher(exp-belief+memory)",
            "fisher(max-logit+memory+memory)",
            "fisher(vim+memory)",
            "fisher(vim-residual+memory)",
            "fisher(exp-pe+vim-residual+memory)",
            "fisher(exp-pe+whole-memory)",
            "fisher(max-logit+whole-memory)",
            "fisher(exp-belief+whole-memory)",
            "fisher(exp-pe+exp-pe+whole-memory)",
            "fisher(exp-pe+knn)",
        )
        if name != DECIDING_SCORE
    ),
)
"""−Σ log p of the scores in brackets, with p-values on held-out known actors.

A score named twice weighs twice.

Any other combination of score names works too.
"""
SCORE_NAMES: tuple[str, ...] = (
    *EVIDENCE_SCORES,
    *EXP_SCORES,
    *get_args(ScoreName),
    *MEMORY_SCORES,
    SEEN_SCORE,
    *COMBINED_SCORES,
)

_SAME_ORDER = "for Dirichlet evidence it ranks actors like vacuity"
_NOTHING_AGAINST = "a Dirichlet gives no evidence against an action"
_READ_ALREADY = "this network's PE, NE, PNE and Belief are already computed from its logits this way"
_OF_A_DIRICHLET = "it is the uncertainty of a Dirichlet, which this network does not have"
LEFT_OUT: Mapping[EvidenceKind, Mapping[str, str]] = {
    "dirichlet": {
        **dict.fromkeys(("PE", "PNE", "PE by value"), _SAME_ORDER),
        **dict.fromkeys(("NE", "NE inverse"), _NOTHING_AGAINST),
    },
    "tied": {"vacuity": _OF_A_DIRICHLET},
    "independent": {"vacuity": _OF_A_DIRICHLET},
    "read": {
        "vacuity": _OF_A_DIRICHLET,
        **{name: _READ_ALREADY for name in get_args(ScoreName) if name.startswith("relu-")},
    },
}
"""Scores that add nothing for a kind of network, and why."""

JUDGED_BY: Mapping[EvidenceKind, str] = {
    "tied": "PE of log",
    "independent": "PE",
    "dirichlet": "vacuity",
    "read": "joint-energy",
}
"""The default score for comparing networks of each kind, fixed before any result was seen."""


@dataclass(frozen=True)
class EvidenceRule:
    """A score of the network's own evidence. It learns nothing."""

    name: str
    learns_from: frozenset[str] = NO_SIDE_NEEDED

    def fit(self, train: SideOutputs, held_out: SideOutputs) -> None:
        """Do nothing: there is nothing to learn."""

    def novelty(self, outputs: SideOutputs) -> Novelty:
        """The novelty of each actor.

        Raises:
            MissingOutputs: the score does not apply to this network; the message says why.
        """
        _require_meaning(self.name, outputs)
        if self.name == "Belief":
            return belief_novelty(outputs.evidence, base_rate=outputs.base_rate)
        return EVIDENCE_SCORES[self.name](outputs.evidence)


@dataclass(frozen=True)
class LogitRule:
    """A score of evidence read off the logits as e^±h, however the network was trained. It learns nothing."""

    name: str
    learns_from: frozenset[str] = NO_SIDE_NEEDED

    def fit(self, train: SideOutputs, held_out: SideOutputs) -> None:
        """Do nothing: there is nothing to learn."""

    def novelty(self, outputs: SideOutputs) -> Novelty:
        """The novelty of each actor.

        Raises:
            MissingOutputs: the network does not have one logit per action.
        """
        if outputs.kind not in ("tied", "read"):
            raise MissingOutputs(f"needs one logit per action; this network's evidence is {outputs.kind}")
        return NETWORK_PARTS[self.name](outputs.stored.logits)


@dataclass
class RivalRule:
    """A rival's score. It learns from training actors only, and only once from the same ones."""

    name: str
    score: OutputScore
    _learned_from: SideOutputs | None = field(default=None, repr=False)

    @property
    def learns_from(self) -> frozenset[str]:
        """Training, if the score learns at all."""
        return frozenset({"train"}) if self.score.learns else NO_SIDE_NEEDED

    def fit(self, train: SideOutputs, held_out: SideOutputs) -> None:  # noqa: ARG002 - all rules share one signature
        """Learn from training actors, if the score learns at all."""
        self._require(train)
        if self.score.learns and self._learned_from is not train:
            self._learned_from = None
            self.score.fit(train.stored, torch.from_numpy(train.labels))
            self._learned_from = train

    def novelty(self, outputs: SideOutputs) -> Novelty:
        """The novelty of each actor.

        Raises:
            MissingOutputs: the network cannot give what the score needs; the message says why.
        """
        self._require(outputs)
        return self.score(outputs.stored)

    def _require(self, outputs: SideOutputs) -> None:
        _require_meaning(self.name, outputs)
        missing: list[Need] = outputs.stored.missing(self.score.needs)
        if missing:
            reasons = [f"{need}: {outputs.not_stored.get(need, 'not stored')}" for need in missing]
            raise MissingOutputs(f"needs {'; '.join(reasons)}")


def _require_meaning(score: str, outputs: SideOutputs) -> None:
    reason = LEFT_OUT[outputs.kind].get(score)
    if reason:
        raise MissingOutputs(reason)


@dataclass
class FisherRule:
    """Fisher's combination −Σ log p of several scores.

    Each p-value is computed on held-out known actors, with an exponential tail, so no score dominates by its
    scale.
    """

    parts: Sequence[ScoreRule]
    _calibrated: list[CalibratedScore] = field(default_factory=list[CalibratedScore], repr=False)

    @property
    def name(self) -> str:
        """The names of its parts, combined."""
        return fisher_name([part.name for part in self.parts])

    @property
    def learns_from(self) -> frozenset[str]:
        """Validation, where p-values are computed, and what its parts need."""
        return frozenset({"val"}).union(*(part.learns_from for part in self.parts))

    def fit(self, train: SideOutputs, held_out: SideOutputs) -> None:
        """Fit every part, then calibrate its values on held-out known actors.

        Raises:
            TooFewActors: there are too few held-out known actors for p-values.
        """
        is_known = torch.from_numpy(held_out.does_known)
        self._calibrated = []
        for part in self.parts:
            part.fit(train, held_out)
            score = CalibratedScore()
            score.fit(part.novelty(held_out).rank[is_known])
            self._calibrated.append(score)

    def novelty(self, outputs: SideOutputs) -> Novelty:
        """The novelty of each actor.

        Raises:
            MissingOutputs: the network cannot give what a part needs; the message says why.
        """
        if not self._calibrated:
            raise NotFitted(f"{self.name} must be fitted on known actors first. Call fit(train, held_out).")
        calibrated = zip(self.parts, self._calibrated, strict=True)
        total = fisher_statistic(
            torch.stack([score(part.novelty(outputs).rank).rank for part, score in calibrated], dim=-1)
        )
        return Novelty(value=-torch.expm1(-total.clamp(min=0)), rank=total)


def score_rules(names: Sequence[str] = SCORE_NAMES) -> list[ScoreRule]:
    """New rules by name. Rules that use the same memory or the same rival's score share it, so it learns once.

    Raises:
        RangeError: there is no score of one of these names.
    """
    memories, rivals = SharedMemories(), dict[str, RivalRule]()

    def made(name: str) -> ScoreRule:
        if name in EVIDENCE_SCORES:
            return EvidenceRule(name)
        if name in EXP_SCORES:
            return LogitRule(name)
        if name == SEEN_SCORE:
            return SeenRule()
        if name in MEMORY_SCORES:
            return MemoryRule(name, memories.used_by(name))
        if name.startswith("fisher(") and name.endswith(")"):
            return FisherRule([made(part) for part in name[len("fisher(") : -1].split("+")])
        if name not in rivals:
            rivals[name] = _rival_rule(name)
        return rivals[name]

    return [made(name) for name in names]


def _rival_rule(name: str) -> RivalRule:
    for rival, make in SCORE_BY_NAME.items():
        if rival == name:
            return RivalRule(name, make())
    raise RangeError(
        f"a score must be one of {', '.join(SCORE_NAMES)}; got {name!r}.{did_you_mean(name, SCORE_NAMES)}"
    )
