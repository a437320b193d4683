"""Hands the actors of neighbouring clips to networks that attend to them (`mule.rivals.networks.clip_memory`)."""

from collections.abc import Iterable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace

import torch
from torch import Tensor, nn

from mule.data.batches.batches import ActorBatch
from mule.model import ModelOutput, SceneBoxes
from mule.relations.remembered import MemorySpan
from mule.rivals.networks.clip_memory import ClipMemory
from mule.training.sharing import Forward
from mule.training.step import evaluating, scene_boxes


class Beside:
    """A model that sees a batch beside the neighbours its clips had before the step, and remembers the batch after it."""

    def __init__(self, model: Forward, batch: ActorBatch, memory: ClipMemory) -> None:
        self._model, self._names, self._memory = model, batch.clip_names, memory
        self._neighbours = boxes_beside(batch, memory).remembered
        self._to_remember: tuple[Tensor, ...] = ()

    def __call__(self, clips: Sequence[Tensor], boxes: SceneBoxes) -> ModelOutput:
        """Return the model's output."""
        output = self._model(clips, replace(boxes, remembered=self._neighbours))
        self._to_remember = output.to_remember
        return output

    def remember(self, *, loss: float) -> None:
        """Write what the last pass remembers of the batch; all processes must call this together."""
        self._memory.write(self._names, self._to_remember, loss=loss)


def boxes_beside(batch: ActorBatch, memory: ClipMemory) -> SceneBoxes:
    """Return the boxes of a batch with the neighbours of its clips."""
    boxes = scene_boxes(batch)
    return replace(boxes, remembered=memory.near(batch.clip_names, boxes.actors_xyxy_px.device))


def side_memory(
    model: nn.Module,
    span: MemorySpan,
    batches: Iterable[ActorBatch],
    *,
    device: torch.device,
    precision: AbstractContextManager[object] | None = None,
) -> ClipMemory:
    """Return what a model remembers of all clips of a side, after one pass over them.

    What a network remembers of a clip does not depend on its neighbours, so one pass is enough.
    """
    memory = ClipMemory(span)
    with evaluating(model):
        for batch in batches:
            here = batch.to(device)
            with precision or nullcontext():
                seen = model(here.pixels, scene_boxes(here)).to_remember if here.num_clips else ()
            memory.write(here.clip_names, seen)
    return memory
