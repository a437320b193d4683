"""Outputs of a network that nobody trained, made by hand."""

import numpy as np
import torch

from mule.core.records import Evidence
from mule.data.batches.samples import ClipName
from mule.evidence.head import exp_evidence
from mule.inference.outputs import SideOutputs
from mule.inference.sides import ActorTruth
from mule.systems.catalogue import EvidenceKind

CLASSES = ("bow", "run", "wave")


def made_outputs(num_actors: int, *, seed: int, kind: EvidenceKind = "tied", shift: float = 0.0):
    """Actors around one centre per action, each of a video of its own."""
    generator = torch.Generator().manual_seed(seed)
    action = torch.arange(num_actors) % len(CLASSES)
    centres = torch.eye(3, 8) * 3
    features = centres[action] + torch.randn(num_actors, 8, generator=generator) + shift
    logits = 4 * torch.nn.functional.one_hot(action, 3) - 2 + torch.randn(num_actors, 3, generator=generator)
    labels = torch.nn.functional.one_hot(action, 3).bool().numpy()
    outputs = torch.cat([logits, -logits], dim=1) if kind == "independent" else logits
    return SideOutputs(
        classes=CLASSES,
        kind=kind,
        outputs=outputs,
        evidence=Evidence(exp_evidence(logits), exp_evidence(-logits)),
        features=features,
        backbone_features=torch.randn(num_actors, 5, generator=generator) + 2,
        readout=None,
        dropout_logits=None,
        labels=labels,
        truth=ActorTruth(
            classes=CLASSES,
            labels=labels,
            is_novel=np.zeros(num_actors, dtype=bool),
            boxes_xyxy_unit=np.tile(np.array([0.1, 0.1, 0.5, 0.9], dtype=np.float32), (num_actors, 1)),
            actor_ids=tuple(str(i) for i in range(num_actors)),
        ),
        clip_names=tuple(ClipName(f"v{i}", 1.0) for i in range(num_actors)),
        clip_index=np.arange(num_actors),
        not_stored={},
    )
