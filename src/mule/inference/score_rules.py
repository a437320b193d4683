"""Novelty scores as rules that one comparison can apply to any system: what each needs, and what it learns from.

A rule may learn from training actors, who are known, and from held-out known actors; never from a novel one.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol, get_args, runtime_checkable

import torch

from mule.core.errors import MissingOutputs, NotFitted, RangeError
from mule.core.records import Evidence, Novelty
from mule.inference.outputs import SideOutputs
from mule.inference.remembering import MEMORY_SCORES, MemoryRule, SharedMemories
from mule.novelty.calibration import CalibratedScore
from mule.novelty.combining import DECIDING_SCORE, NETWORK_PARTS, fisher_name, fisher_statistic
from mule.novelty.scores import NOVELTY_BY_KIND, NoveltyKind
from mule.rivals.networks.enn import vacuity_novelty
from mule.rivals.scores.by_name import SCORE_BY_NAME, ScoreName
from mule.rivals.scores.output_score import OutputScore
from mule.rivals.scores.outputs import Need
from mule.systems.catalogue import EvidenceKind


@runtime_checkable
class ScoreRule(Protocol):
    """How novel each actor is, from all that a network said of it; larger is more novel."""

    @property
    def name(self) -> str:
        """What tables call it."""
        ...

    def fit(self, train: SideOutputs, held_out: SideOutputs) -> None:
        """Learns from known actors: those of training, and those of validation, which no weight has seen."""
        ...

    def novelty(self, outputs: SideOutputs) -> Novelty:
        """The novelty of each actor."""
        ...


def _printed(kind: NoveltyKind) -> Callable[[Evidence], Novelty]:
    """The score ranked by its value in [0, 1] as printed, which rounds: actors tie where it saturates."""

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
    "vacuity": vacuity_novelty,
}
PAPER_SCORES = ("PE", "NE", "PNE", "Belief")
EXP_SCORES = ("exp-pe", "exp-belief")
"""PE of log and Belief of evidence read off logits as e^±h, for networks trained by cross-entropy too."""
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
"""−Σ log p of the scores in brackets, p on held-out known actors; named twice, one weighs twice. Others can be asked for."""
SCORE_NAMES: tuple[str, ...] = (
    *EVIDENCE_SCORES,
    *EXP_SCORES,
    *get_args(ScoreName),
    *MEMORY_SCORES,
    *COMBINED_SCORES,
)

_SAME_ORDER = "with a Dirichlet's evidence it puts actors in the order of vacuity"
_NOTHING_AGAINST = "a Dirichlet gives no evidence against an action"
_READ_ALREADY = "this network's PE, NE, PNE and Belief are read off its logits by this rule already"
_OF_A_DIRICHLET = "it is the uncertainty of a Dirichlet; this network has none"
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
"""Scores that say nothing of their own about a network, and why."""

JUDGED_BY: Mapping[EvidenceKind, str] = {
    "tied": "PE of log",
    "independent": "PE",
    "dirichlet": "vacuity",
    "read": "joint-energy",
}
"""The one score by which a network is compared with others unless told otherwise; chosen before any outcome."""


@dataclass(frozen=True)
class EvidenceRule:
    """A score of the network's own evidence; it learns nothing."""

    name: str

    def fit(self, train: SideOutputs, held_out: SideOutputs) -> None:
        """Nothing is learned."""

    def novelty(self, outputs: SideOutputs) -> Novelty:
        """The novelty of each actor.

        Raises:
            MissingOutputs: the score means nothing for this network; the message says why.
        """
        _require_meaning(self.name, outputs)
        return EVIDENCE_SCORES[self.name](outputs.evidence)


@dataclass(frozen=True)
class LogitRule:
    """A score of evidence read off logits as e^±h, whatever the network was trained by; it learns nothing."""

    name: str

    def fit(self, train: SideOutputs, held_out: SideOutputs) -> None:
        """Nothing is learned."""

    def novelty(self, outputs: SideOutputs) -> Novelty:
        """The novelty of each actor.

        Raises:
            MissingOutputs: the network has not one logit per action.
        """
        if outputs.kind not in ("tied", "read"):
            raise MissingOutputs(f"needs one logit per action; this network's evidence is {outputs.kind}")
        return NETWORK_PARTS[self.name](outputs.stored.logits)


@dataclass
class RivalRule:
    """A rival's score; it learns from training actors alone, and from the same ones once."""

    name: str
    score: OutputScore
    _learned_from: SideOutputs | None = field(default=None, repr=False)

    def fit(self, train: SideOutputs, held_out: SideOutputs) -> None:  # noqa: ARG002 - one call for all rules
        """Learns from training actors, where the score learns."""
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
    """−Σ log p of several scores: what all of them find strange together.

    Each p-value is taken on held-out known actors, with an exponential tail, so that none drowns another by its scale.
    """

    parts: Sequence[ScoreRule]
    _calibrated: list[CalibratedScore] = field(default_factory=list[CalibratedScore], repr=False)

    @property
    def name(self) -> str:
        """Its parts, by name."""
        return fisher_name([part.name for part in self.parts])

    def fit(self, train: SideOutputs, held_out: SideOutputs) -> None:
        """Fits every part, then learns what its values mean among held-out known actors.

        Raises:
            TooFewActors: a p-value needs more of these.
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
            raise NotFitted(f"{self.name} has not seen known actors yet. Call fit(train, held_out).")
        calibrated = zip(self.parts, self._calibrated, strict=True)
        total = fisher_statistic(
            torch.stack([score(part.novelty(outputs).rank).rank for part, score in calibrated], dim=-1)
        )
        return Novelty(value=-torch.expm1(-total.clamp(min=0)), rank=total)


def score_rule(name: str) -> ScoreRule:
    """A fresh rule of that name: a score of evidence, a rival's, one of a memory, or Fisher's combination of such.

    Raises:
        RangeError: there is none of that name.
    """
    return score_rules([name])[0]


def score_rules(names: Sequence[str] = SCORE_NAMES) -> list[ScoreRule]:
    """Fresh rules of these names. What several of them ask, a memory or a rival's score, is one and learns once.

    Raises:
        RangeError: there is none of a name.
    """
    memories, rivals = SharedMemories(), dict[str, RivalRule]()

    def made(name: str) -> ScoreRule:
        if name in EVIDENCE_SCORES:
            return EvidenceRule(name)
        if name in EXP_SCORES:
            return LogitRule(name)
        if name in MEMORY_SCORES:
            return MemoryRule(name, memories.asked_by(name))
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
    raise RangeError(f"a score must be one of {', '.join(SCORE_NAMES)}; got {name!r}.")
