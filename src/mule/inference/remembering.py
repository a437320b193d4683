"""Scores that ask a memory of training actors, for any network: ours, and every rival's the same way.

    whole-memory     G-Vac: nobody remembered is near, by [z / ‖z‖ | a / ‖a‖]
    memory           the same of a memory that holds what the last layer saw alone, z / ‖z‖
    discounted-pe    GD-PE: the network's evidence, discounted by the memory's trust
    agreement-pe     A-PE: evidence for actions that neighbours do as well

The memory holds training actors; how far it reaches is set on held-out known actors.

A network read together with the memory of its training actors: their evidence adds.

    train ─▶ memory ─┐
    val   ─▶ ρ, S ───┴─▶ for any side: evidence of the network, e^±h, plus that of the nearest training actors

Recognition is then by both; novelty has its own scores, which ask the memory themselves (`memory_rules`).
"""

from collections.abc import Callable
from dataclasses import dataclass, field, replace

import torch
from jaxtyping import Float
from torch import Tensor

from mule.core.errors import MissingOutputs, NotFitted
from mule.core.records import Evidence, Novelty
from mule.evidence.head import exp_evidence
from mule.inference.outputs import SideOutputs
from mule.memory.building import SeenActors, build_memory, calibrate
from mule.memory.memory import EvidenceMemory, Places
from mule.memory.opinion import (
    agreement_novelty,
    class_weights,
    discounted_evidence_novelty,
    fused,
    memory_evidence,
)
from mule.memory.search import Weighed, memory_vacuity_novelty, reach_of, weigh
from mule.memory.taught import HeldOut, Remembered
from mule.systems.catalogue import find_system

MEMORY_SCORES = ("memory", "whole-memory", "discounted-pe", "agreement-pe")
_NO_WEIGHTS = "0" * 64
"""In place of the fingerprint of weights: this memory is never kept."""


def seen_actors(outputs: SideOutputs) -> SeenActors:
    """The actors of a side as a memory takes them in. Those of one video are one group: they share camera and light."""
    clips = [outputs.clip_names[i] for i in outputs.clip_index.tolist()]
    places = Places.of(
        [clip.video for clip in clips],
        torch.tensor([clip.key_time_s for clip in clips], dtype=torch.float64),
        torch.from_numpy(outputs.truth.boxes_xyxy_unit.clip(0, 1)),
    )
    return SeenActors(outputs.remembered, torch.from_numpy(outputs.labels).float(), places)


def related_features(outputs: SideOutputs) -> Float[Tensor, "actors dim"]:
    """What the last layer saw of each actor."""
    return outputs.features.float()


def remembered_features(outputs: SideOutputs) -> Float[Tensor, "actors dim"]:
    """The same beside what the backbone saw of each actor."""
    return outputs.remembered


def known_of(outputs: SideOutputs) -> SeenActors:
    """The actors of a side that do a known action."""
    return seen_actors(outputs).at(torch.from_numpy(outputs.does_known))


@dataclass
class SharedMemory:
    """One memory of training actors for all scores that ask it: built once, and asked once about the actors of a side."""

    features_of: Callable[[SideOutputs], Tensor] = related_features
    """What it remembers of an actor."""
    _sides: tuple[SideOutputs, SideOutputs] | None = field(default=None, repr=False)
    _memory: EvidenceMemory | None = field(default=None, repr=False)
    _asked: list[tuple[SideOutputs, Weighed]] = field(
        default_factory=list[tuple[SideOutputs, Weighed]], repr=False
    )

    def of(self, train: SideOutputs, held_out: SideOutputs) -> EvidenceMemory:
        """The training actors; held-out known ones say how far a memory reaches."""
        found = self._memory
        if (
            found is None
            or self._sides is None
            or self._sides[0] is not train
            or self._sides[1] is not held_out
        ):
            memory = build_memory(self._known(train), class_names=train.classes, model=_NO_WEIGHTS)
            reach = reach_of(memory, self._known(held_out).features)
            found = replace(memory, kernel=replace(memory.kernel, reach=reach))
            self._sides, self._memory, self._asked = (train, held_out), found, []
        return found

    def weighed(self, memory: EvidenceMemory, outputs: SideOutputs) -> Weighed:
        """The nearest entries of each actor of a side, weighed."""
        if memory is not self._memory:
            return weigh(memory, self.features_of(outputs))
        for asked, weighed in self._asked:
            if asked is outputs:
                return weighed
        found = weigh(memory, self.features_of(outputs))
        self._asked.append((outputs, found))
        return found

    def _known(self, outputs: SideOutputs) -> SeenActors:
        is_known = torch.from_numpy(outputs.does_known)
        return replace(seen_actors(outputs), features=self.features_of(outputs)).at(is_known)


@dataclass(frozen=True)
class SharedMemories:
    """One memory of what the last layer saw, and one that also holds what the backbone did."""

    related: SharedMemory = field(default_factory=SharedMemory)
    whole: SharedMemory = field(default_factory=lambda: SharedMemory(remembered_features))

    def asked_by(self, score: str) -> SharedMemory:
        """The memory that a score of that name asks."""
        return self.whole if score == "whole-memory" else self.related


@dataclass
class MemoryRule:
    """A score that asks a memory of training actors."""

    name: str
    shared: SharedMemory = field(default_factory=SharedMemory, repr=False)
    _memory: EvidenceMemory | None = field(default=None, repr=False)

    def fit(self, train: SideOutputs, held_out: SideOutputs) -> None:
        """Remembers the training actors; held-out known ones say how far a memory reaches."""
        self._memory = self.shared.of(train, held_out)

    def novelty(self, outputs: SideOutputs) -> Novelty:
        """The novelty of each actor.

        Raises:
            MissingOutputs: the score needs one logit per action and the network has none; the message says so.
        """
        if self._memory is None:
            raise NotFitted(f"{self.name} has not seen known actors yet. Call fit(train, held_out).")
        weighed = self.shared.weighed(self._memory, outputs)
        if self.name not in _OF_LOGITS:
            return memory_vacuity_novelty(weighed)
        if outputs.kind not in ("tied", "read"):
            raise MissingOutputs(f"needs one logit per action; this network's evidence is {outputs.kind}")
        return _OF_LOGITS[self.name](outputs.stored.logits, self._memory, weighed)


def _discounted(logits: Float[Tensor, "actors classes"], _: EvidenceMemory, weighed: Weighed) -> Novelty:
    return discounted_evidence_novelty(logits, weighed.log_trust)


def _agreed(logits: Float[Tensor, "actors classes"], memory: EvidenceMemory, weighed: Weighed) -> Novelty:
    return agreement_novelty(logits, class_weights(memory, weighed))


_OF_LOGITS: dict[str, Callable[[Tensor, EvidenceMemory, Weighed], Novelty]] = {
    "discounted-pe": _discounted,
    "agreement-pe": _agreed,
}


Reading = Callable[[SideOutputs], SideOutputs]


def remembered_of(train: SideOutputs, val: SideOutputs, *, model: str) -> Remembered:
    """A calibrated memory of a run's known training actors, with the known actors of validation that set it.

    Args:
        train: outputs on the training side.
        val: outputs on the validation side.
        model: SHA-256 of the weights that made both.

    Raises:
        MissingOutputs: the network has not one logit per action.
    """
    if train.kind not in ("tied", "read"):
        raise MissingOutputs(
            f"a memory needs a network with one logit per action; this one's evidence is {train.kind}."
        )
    is_known = torch.from_numpy(val.does_known)
    held_out = HeldOut(
        val.remembered[is_known],
        val.stored.logits[is_known].float(),
        torch.from_numpy(val.labels)[is_known].float(),
        val.classes,
        model,
        tuple(sorted({val.clip_names[at].video for at in val.clip_index[is_known.numpy()].tolist()})),
    )
    memory = build_memory(known_of(train), class_names=train.classes, model=model, tags=train.tags)
    return Remembered(calibrate(memory, held_out), held_out)


def reading_of(system: str, train: SideOutputs, val: SideOutputs, *, model: str) -> Reading:
    """How outputs of a system on a side are read: as they are, or together with a memory if the system has one.

    The training side is not for this: its actors would remember themselves.
    """
    if not find_system(system).has_memory:
        return lambda outputs: outputs
    memory = remembered_of(train, val, model=model).memory

    def together(outputs: SideOutputs) -> SideOutputs:
        logits = outputs.stored.logits.float()
        network = Evidence(exp_evidence(logits), exp_evidence(-logits))
        said = memory_evidence(memory, weigh(memory, outputs.remembered))
        return replace(outputs, kind="tied", evidence=fused(network, said))

    return together
