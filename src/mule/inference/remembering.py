"""A network together with a memory of its training actors.

Memory scores, and evidence that adds to the network's.

    whole-memory     G-Vac: no remembered actor is near, by [z / ‖z‖ | a / ‖a‖]
    memory           the same for a memory that holds only what the last layer saw, z / ‖z‖
    discounted-pe    GD-PE: the network's evidence, discounted by the memory's trust
    agreement-pe     A-PE: evidence for actions that neighbours do as well

    train ─▶ memory ─┐
    val   ─▶ ρ, S ───┴─▶ for any side: evidence of the network, e^±h, plus that of the nearest training actors

The memory holds training actors; held-out known actors set how far it reaches. Every network, ours or a
rival's, uses it the same way.
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
"""Stands in for the weights' SHA-256: this memory is never saved."""


def seen_actors(outputs: SideOutputs) -> SeenActors:
    """The actors of a side as a memory stores them.

    Actors of one video form a group: they share camera and light.
    """
    clips = [outputs.clip_names[i] for i in outputs.clip_index.tolist()]
    places = Places.of(
        [clip.video for clip in clips],
        torch.tensor([clip.key_time_s for clip in clips], dtype=torch.float64),
        torch.from_numpy(outputs.truth.boxes_xyxy_unit.clip(0, 1)),
    )
    labels = torch.from_numpy(outputs.labels).float()
    return SeenActors(outputs.remembered, labels, places, outputs.inputs)


def related_features(outputs: SideOutputs) -> Float[Tensor, "actors dim"]:
    """The feature of each actor before the last layer."""
    return outputs.features.float()


def remembered_features(outputs: SideOutputs) -> Float[Tensor, "actors dim"]:
    """The feature before the last layer together with the backbone's."""
    return outputs.remembered


def known_of(outputs: SideOutputs) -> SeenActors:
    """The actors of a side that do a known action, as a memory stores them."""
    return seen_actors(outputs).at(torch.from_numpy(outputs.does_known))


@dataclass
class SharedMemory:
    """A memory of training actors that several scores share: built once, searched once per side."""

    features_of: Callable[[SideOutputs], Tensor] = related_features
    """Which feature of an actor it remembers."""
    _sides: tuple[SideOutputs, SideOutputs] | None = field(default=None, repr=False)
    _memory: EvidenceMemory | None = field(default=None, repr=False)
    _searched: list[tuple[SideOutputs, Weighed]] = field(
        default_factory=list[tuple[SideOutputs, Weighed]], repr=False
    )

    def of(self, train: SideOutputs, held_out: SideOutputs) -> EvidenceMemory:
        """Build the memory of training actors; held-out known actors set how far it reaches."""
        memory = self._memory
        if (
            memory is None
            or self._sides is None
            or self._sides[0] is not train
            or self._sides[1] is not held_out
        ):
            memory = build_memory(self._known(train), class_names=train.classes, model=_NO_WEIGHTS)
            reach = reach_of(memory, self._known(held_out).features)
            memory = replace(memory, kernel=replace(memory.kernel, reach=reach))
            self._sides, self._memory, self._searched = (train, held_out), memory, []
        return memory

    def weighed(self, memory: EvidenceMemory, outputs: SideOutputs) -> Weighed:
        """The nearest entries of each actor of a side, weighed."""
        if memory is not self._memory:
            return weigh(memory, self.features_of(outputs))
        for searched, weighed in self._searched:
            if searched is outputs:
                return weighed
        weighed = weigh(memory, self.features_of(outputs))
        self._searched.append((outputs, weighed))
        return weighed

    def _known(self, outputs: SideOutputs) -> SeenActors:
        is_known = torch.from_numpy(outputs.does_known)
        return replace(seen_actors(outputs), features=self.features_of(outputs)).at(is_known)


@dataclass(frozen=True)
class SharedMemories:
    """A memory of the features before the last layer, and one that adds the backbone's."""

    related: SharedMemory = field(default_factory=SharedMemory)
    whole: SharedMemory = field(default_factory=lambda: SharedMemory(remembered_features))

    def used_by(self, score: str) -> SharedMemory:
        """The memory that the score of this name searches."""
        return self.whole if score == "whole-memory" else self.related


@dataclass
class MemoryRule:
    """A score that searches a memory of training actors."""

    name: str
    shared: SharedMemory = field(default_factory=SharedMemory, repr=False)
    _memory: EvidenceMemory | None = field(default=None, repr=False)

    @property
    def learns_from(self) -> frozenset[str]:
        """Training, which it remembers, and validation, which sets its reach."""
        return frozenset({"train", "val"})

    def fit(self, train: SideOutputs, held_out: SideOutputs) -> None:
        """Remember the training actors; held-out known actors set how far the memory reaches."""
        self._memory = self.shared.of(train, held_out)

    def novelty(self, outputs: SideOutputs) -> Novelty:
        """The novelty of each actor.

        Raises:
            MissingOutputs: the score needs one logit per action, which the network does not have.
        """
        if self._memory is None:
            raise NotFitted(f"{self.name} must be fitted on known actors first. Call fit(train, held_out).")
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
    """A memory of a run's known training actors, calibrated on the known actors of validation, which it includes.

    Args:
        train: outputs on the training side.
        val: outputs on the validation side.
        model: SHA-256 of the weights that made both.

    Raises:
        MissingOutputs: the network does not have one logit per action.
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
    """How to read a system's outputs on a side.

    As they are, or with a memory's evidence added if the system has one.

    Do not read the training side this way: its actors would find themselves in the memory.
    """
    if not find_system(system).has_memory:
        return lambda outputs: outputs
    memory = remembered_of(train, val, model=model).memory

    def with_memory(outputs: SideOutputs) -> SideOutputs:
        logits = outputs.stored.logits.float()
        network = Evidence(exp_evidence(logits), exp_evidence(-logits))
        remembered = memory_evidence(memory, weigh(memory, outputs.remembered))
        return replace(outputs, kind="tied", evidence=fused(network, remembered))

    return with_memory
