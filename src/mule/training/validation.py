"""Validation: what a model says of known actors that it was not trained on, whole frames and no chance."""

from contextlib import AbstractContextManager, nullcontext

import torch
from torch import Tensor, nn

from mule.core.config import LabelsOf
from mule.core.errors import RangeError
from mule.core.records import Evidence
from mule.model import ModelOutput
from mule.training.distributed import gathered, over_ranks
from mule.training.monitor import Validation, validation_of
from mule.training.parts import Batches
from mule.training.step import evaluating, labels_in, said_of, scene_boxes


def validated(
    model: nn.Module,
    batches: Batches,
    *,
    device: torch.device,
    precision: AbstractContextManager[object] | None = None,
    outputs_can_die: bool = False,
    labels_of: LabelsOf = "actors",
) -> Validation:
    """What is found on one epoch of the batches, on all processes together and the same on each.

    Raises:
        RangeError: a process has no clip, or no actor does any of the actions.
    """
    outputs: list[ModelOutput] = []
    labels: list[Tensor] = []
    with evaluating(model):
        for batch in batches:
            if batch.num_clips:
                here = batch.to(device)
                with precision or nullcontext():
                    said = model(here.pixels, scene_boxes(here))
                outputs.append(said_of(said, labels_of))
                labels.append(labels_in(here, labels_of))
    batches.close()
    if not over_ranks(float(len(outputs)), device, least=True):
        raise RangeError(
            "every process must have clips to validate on; one has none. Use more clips or fewer processes."
        )
    evidence = Evidence(
        positive=gathered(torch.cat([each.evidence.positive for each in outputs])),
        negative=gathered(torch.cat([each.evidence.negative for each in outputs])),
    )
    raw = gathered(torch.cat([each.outputs for each in outputs]))
    everyones_labels = gathered(torch.cat(labels))
    return validation_of(raw, evidence, everyones_labels, outputs_can_die=outputs_can_die)
