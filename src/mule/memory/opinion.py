"""What remembered actors contribute: evidence that adds to the network's, trust that discounts it, and reasons.

Adding evidence separates known actions; discounting separates known from novel. The reasons of a decision are
the remembered actors it rests on, with the place where each was seen.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor

from mule.core.errors import ShapeError, TooFewActors
from mule.core.records import Evidence, Novelty, at_least_single
from mule.evidence.head import beta_parameters
from mule.memory.memory import EvidenceMemory
from mule.memory.search import NO_ENTRY, Weighed, require_entries_of

EVIDENCE_SCALES = (1.0, 2.0, 5.0, 10.0, 20.0, 50.0, 100.0, 200.0, 500.0)
"""Candidates for S."""
LEAST_AGREEMENT = 1e-6


def class_weights(memory: EvidenceMemory, weighed: Weighed) -> Float[Tensor, "actors classes"]:
    """Return w_c, the part of trust t from neighbours that do each action: (1/k)·Σ w·y."""
    require_entries_of(memory, weighed)
    index = weighed.neighbours.index
    if len(memory) == 0:
        return weighed.log_weight.new_zeros(len(index), memory.num_classes)
    weight = torch.where(index == NO_ENTRY, 0.0, weighed.weight)
    return torch.einsum("ak,akc->ac", weight, memory.labels[index]) / index.shape[1]


def memory_evidence(memory: EvidenceMemory, weighed: Weighed) -> Evidence:
    """Return the evidence of the neighbours: e⁺ = S·w_c from those that do the action, e⁻ = S·(t − w_c) from the others."""
    return _evidence(
        class_weights(memory, weighed), weighed.trust, scale=memory.kernel.calibrated_evidence_scale()
    )


def fused(network: Evidence, remembered: Evidence) -> Evidence:
    """Add the evidence of two independent sources about the same actors and actions (cumulative fusion)."""
    if network.positive.shape != remembered.positive.shape:
        raise ShapeError(
            "network and memory must have evidence for the same actors and actions; got "
            f"{tuple(network.positive.shape)} and {tuple(remembered.positive.shape)}. Use `for_classes`."
        )
    return Evidence(
        positive=at_least_single(network.positive) + remembered.positive.to(network.positive.device),
        negative=at_least_single(network.negative) + remembered.negative.to(network.negative.device),
    )


def for_classes(evidence: Evidence, names: Sequence[str], wanted: Sequence[str]) -> Evidence:
    """Return the evidence of the wanted actions, in their order; an action that is not among `names` has none."""
    if len(names) != evidence.num_classes:
        raise ShapeError(
            f"every class must have a name; got {evidence.num_classes} classes, {len(names)} names."
        )
    places = {name: at for at, name in enumerate(names)}
    columns = torch.tensor([places.get(name, len(names)) for name in wanted], dtype=torch.int64)
    return Evidence(
        positive=F.pad(evidence.positive, (0, 1))[:, columns],
        negative=F.pad(evidence.negative, (0, 1))[:, columns],
    )


def best_evidence_scale(
    memory: EvidenceMemory, weighed: Weighed, *, network: Evidence, labels: Float[Tensor, "actors classes"]
) -> float:
    """Return the S with which network and memory together predict held-out known actors best, by log-loss.

    The prediction is the mean of the fused Beta, α / (α + β). Ties go to the smaller S.
    """
    if labels.shape != network.positive.shape:
        raise ShapeError(
            f"labels must have one entry per actor and class, {tuple(network.positive.shape)}; got "
            f"{tuple(labels.shape)}."
        )
    if len(labels) == 0:
        raise TooFewActors("S must be chosen on held-out known actors; got none.")
    weights, trust = class_weights(memory, weighed), weighed.trust
    losses = [
        _log_loss(fused(network, _evidence(weights, trust, scale=scale)), labels) for scale in EVIDENCE_SCALES
    ]
    return EVIDENCE_SCALES[int(torch.stack(losses).argmin())]


def discounted_evidence_novelty(
    log_evidence: Float[Tensor, "actors classes"], log_trust: Float[Tensor, " actors"]
) -> Novelty:
    """Return GD-PE: an actor is novel if there is little trusted evidence for any known action, −Σ log(1 + t·e⁺).

    `log_evidence` is log e⁺, which is h itself for tied exponential evidence; the rank is then −Σ softplus(h
    + log t). With full trust it equals PE on the logarithm of evidence.
    """
    return _product_novelty(log_evidence + log_trust[:, None].to(log_evidence))


def agreement_novelty(
    log_evidence: Float[Tensor, "actors classes"], class_weight: Float[Tensor, "actors classes"]
) -> Novelty:
    """Return A-PE: an actor is novel if network and neighbours agree on no action, −Σ log(1 + e⁺·w_c).

    `class_weight` comes from `class_weights`; 10⁻⁶ is added to it, so that an action without neighbours still
    counts a little.
    """
    return _product_novelty(log_evidence + (class_weight.to(log_evidence) + LEAST_AGREEMENT).log())


def _product_novelty(log_evidence: Float[Tensor, "actors classes"]) -> Novelty:
    total = F.softplus(log_evidence.double()).sum(dim=-1)
    return Novelty(value=torch.exp(-total), rank=-total)


def _evidence(
    weights: Float[Tensor, "actors classes"], trust: Float[Tensor, " actors"], *, scale: float
) -> Evidence:
    return Evidence(positive=scale * weights, negative=scale * (trust[:, None] - weights).clamp(min=0))


def _log_loss(evidence: Evidence, labels: Float[Tensor, "actors classes"]) -> Float[Tensor, ""]:
    alpha, beta = (each.double() for each in beta_parameters(evidence))
    labels = labels.double()
    total = (alpha + beta).log()
    return (labels * (total - alpha.log()) + (1 - labels) * (total - beta.log())).mean()


@dataclass(frozen=True)
class Reason:
    """A remembered actor near another actor."""

    video: str
    time_s: float | None
    """None for an actor of a whole video."""
    box_xyxy_unit: tuple[float, float, float, float]
    actions: Mapping[str, float]
    """Its actions; values below 1 if the entry stands for several actors that differ."""
    distance: float


def reasons(memory: EvidenceMemory, weighed: Weighed, *, at_most: int | None = None) -> list[list[Reason]]:
    """Return the nearest remembered actors of each actor, nearest first, with their actions and places."""
    require_entries_of(memory, weighed)
    near = weighed.neighbours
    return [
        [
            _reason(memory, entry, distance)
            for entry, distance in zip(entries, distances, strict=True)
            if entry != NO_ENTRY
        ]
        for entries, distances in zip(
            near.index[:, :at_most].tolist(), near.distance[:, :at_most].tolist(), strict=True
        )
    ]


def _reason(memory: EvidenceMemory, entry: int, distance: float) -> Reason:
    places = memory.places
    x1, y1, x2, y2 = places.boxes_xyxy_unit[entry].tolist()
    labels, time_s = memory.labels[entry].tolist(), places.time_s[entry].item()
    return Reason(
        video=places.video_names[int(places.video_index[entry])],
        time_s=None if math.isnan(time_s) else time_s,
        box_xyxy_unit=(x1, y1, x2, y2),
        actions={name: label for name, label in zip(memory.class_names, labels, strict=True) if label > 0},
        distance=distance,
    )
