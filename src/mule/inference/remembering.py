"""A network read together with the memory of its training actors: their evidence adds.

    train ─▶ memory ─┐
    val   ─▶ ρ, S ───┴─▶ for any side: evidence of the network, e^±h, plus that of the nearest training actors

Recognition is then by both; novelty has its own scores, which ask the memory themselves (`memory_rules`).
"""

from collections.abc import Callable
from dataclasses import replace

import torch

from mule.core.errors import MissingOutputs
from mule.core.records import Evidence
from mule.evidence.head import exp_evidence
from mule.inference.memory_rules import known_of
from mule.inference.outputs import SideOutputs
from mule.memory.building import build_memory, calibrate
from mule.memory.held_out import HeldOut
from mule.memory.kernel import weigh
from mule.memory.opinion import fused, memory_evidence
from mule.memory.taught import Remembered
from mule.systems.catalogue import find_system

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
