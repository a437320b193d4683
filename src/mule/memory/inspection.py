"""What is in a memory: how much of each action, from where, and how much of it stands alone."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

import torch

from mule.memory.memory import EvidenceMemory

ISOLATED_SCALES = 2.0


@dataclass(frozen=True)
class Contents:
    """What is in a memory."""

    num_entries: int
    num_actors: float
    """How many actors the entries stand for."""
    actors_by_class: Mapping[str, float]
    """Counts times labels, which pruning does not change."""
    entries_by_video: Mapping[str, int]
    """From the video with most entries to that with fewest."""
    num_groups: int
    isolated_share: float
    """Entries whose k-th neighbour is more than twice as far as is typical: they vouch for few."""


def inspect(memory: EvidenceMemory) -> Contents:
    """Counts per action and source, and the share of isolated entries."""
    mass = (memory.labels.double() * memory.counts.double()[:, None]).sum(dim=0)
    is_isolated = memory.scales > ISOLATED_SCALES * memory.kernel.typical_scale
    return Contents(
        num_entries=len(memory),
        num_actors=memory.counts.double().sum().item(),
        actors_by_class=dict(zip(memory.class_names, mass.tolist(), strict=True)),
        entries_by_video=dict(Counter(memory.places.videos()).most_common()),
        num_groups=len(torch.unique(memory.places.group_index)),
        isolated_share=is_isolated.float().mean().item() if len(memory) else 0.0,
    )
