"""Neighbours as reasons: the remembered actors that a decision rests on, as people can look them up."""

import math
from collections.abc import Mapping
from dataclasses import dataclass

from mule.memory.kernel import Weighed, require_entries_of
from mule.memory.memory import EvidenceMemory
from mule.memory.search import NOBODY


@dataclass(frozen=True)
class Reason:
    """One remembered actor near the one asked about."""

    video: str
    time_s: float | None
    """None where it was seen in the video as a whole."""
    box_xyxy_unit: tuple[float, float, float, float]
    actions: Mapping[str, float]
    """What it did, and how surely; below 1 where an entry stands for several actors."""
    num_actors: float
    """How many actors the entry stands for; the place is that of the most typical one."""
    weight: float
    distance: float


def reasons(memory: EvidenceMemory, weighed: Weighed, *, at_most: int | None = None) -> list[list[Reason]]:
    """The nearest remembered actors of each actor, nearest first, with what they did and where they were seen."""
    require_entries_of(memory, weighed)
    near = weighed.neighbours
    return [
        [
            _reason(memory, entry, weight=weight, distance=distance)
            for entry, weight, distance in zip(entries, weights, distances, strict=True)
            if entry != NOBODY
        ]
        for entries, weights, distances in zip(
            near.index[:, :at_most].tolist(),
            weighed.weight[:, :at_most].tolist(),
            near.distance[:, :at_most].tolist(),
            strict=True,
        )
    ]


def _reason(memory: EvidenceMemory, entry: int, *, weight: float, distance: float) -> Reason:
    places = memory.places
    x1, y1, x2, y2 = places.boxes_xyxy_unit[entry].tolist()
    labels, time_s = memory.labels[entry].tolist(), places.time_s[entry].item()
    return Reason(
        video=places.video_names[int(places.video_index[entry])],
        time_s=None if math.isnan(time_s) else time_s,
        box_xyxy_unit=(x1, y1, x2, y2),
        actions={name: label for name, label in zip(memory.class_names, labels, strict=True) if label > 0},
        num_actors=memory.counts[entry].item(),
        weight=weight,
        distance=distance,
    )
