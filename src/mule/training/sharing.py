"""A batch that is shared out: in parts, one after the other, or among processes; and what then differs from one whole.

HSIC couples all actors of a batch, so the gradients of parts cannot simply be added. Each part runs forward without keeping
its activations; loss and constraints are computed from the outputs of all parts; in the backward pass each part runs again,
with the same dropped units, and passes the gradient of its outputs on. So the activations of one part are in memory at a
time, and the gradient is that of the whole batch.
"""

from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import fields, replace
from typing import Any, NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from mule.core.processes import num_ranks
from mule.core.records import Evidence
from mule.model import ModelOutput, SceneBoxes

Forward = Callable[[Sequence[Tensor], SceneBoxes], ModelOutput]


class Part(NamedTuple):
    """Consecutive clips of a batch, numbered from zero, and their boxes."""

    pixels: tuple[Float[Tensor, "_ channels frames _ _"], ...]
    boxes: SceneBoxes
    first_clip: int
    """The number of its first clip in the batch."""
    actor_rows: Int[Tensor, " actors"]
    """The rows of its actors in the batch."""


def in_parts(model: nn.Module, num_parts: int) -> Forward:
    """Return a forward pass that computes a batch in parts and returns the output of the whole.

    Batch norms in training normalise each part by itself; the second run of a part leaves running statistics alone.
    """

    def forward(pixels: Sequence[Tensor], boxes: SceneBoxes) -> ModelOutput:
        parts = list(parts_of(pixels, boxes, num_parts))
        outputs = [
            checkpoint(
                model,
                part.pixels,
                part.boxes,
                use_reentrant=False,
                context_fn=lambda: (nullcontext(), _same_buffers(model)),
            )
            for part in parts
        ]
        return whole_of(outputs, parts)

    return forward


def parts_of(pixels: Sequence[Tensor], boxes: SceneBoxes, num_parts: int) -> Iterator[Part]:
    """Yield consecutive clips of a batch in this many parts, equal to one clip; fewer if there are fewer clips."""
    num_clips = sum(map(len, pixels))
    num_parts = min(num_parts, num_clips)
    for number in range(num_parts):
        first, end = number * num_clips // num_parts, (number + 1) * num_clips // num_parts
        actor_rows = _rows_between(boxes.actor_clip_index, first, end)
        object_rows = _rows_between(boxes.object_clip_index, first, end)
        own = SceneBoxes(
            boxes.actors_xyxy_px[actor_rows],
            boxes.actor_clip_index[actor_rows] - first,
            boxes.objects_xyxy_px[object_rows],
            boxes.object_clip_index[object_rows] - first,
            tuple(
                replace(each, near_clip=each.near_clip - first)
                for each in boxes.remembered
                if first <= each.near_clip < end
            ),
        )
        yield Part(_clips_between(pixels, first, end), own, first, actor_rows)


def _rows_between(clip_index: Int[Tensor, " boxes"], first: int, end: int) -> Int[Tensor, " rows"]:
    return torch.nonzero((clip_index >= first) & (clip_index < end)).flatten()


def _clips_between(pixels: Sequence[Tensor], first: int, end: int) -> tuple[Tensor, ...]:
    found: list[Tensor] = []
    for stack in pixels:
        found.append(stack[max(first, 0) : max(end, 0)])
        first, end = first - len(stack), end - len(stack)
    return tuple(stack for stack in found if len(stack))


@contextmanager
def _same_buffers(model: nn.Module) -> Generator[None]:
    """Undo what a pass writes to buffers; behind the back of autograd, whose backward pass does not read them."""
    buffers = [(buffer, buffer.clone()) for buffer in model.buffers()]
    try:
        yield
    finally:
        for buffer, before in buffers:
            buffer.data.copy_(before)


def whole_of(outputs: Sequence[ModelOutput], parts: Sequence[Part]) -> ModelOutput:
    """Put the outputs of parts together, actors in the order of the batch."""
    of_batch = [
        replace(output, actor_clip_index=output.actor_clip_index + part.first_clip)
        for output, part in zip(outputs, parts, strict=True)
    ]
    order = torch.cat([part.actor_rows for part in parts]).argsort()
    names = [each.name for each in fields(of_batch[0]) if each.name != "to_remember"]
    values = {
        name: _joined([getattr(each, name) for each in of_batch], order=None if name == "context" else order)
        for name in names
    }
    to_remember = tuple(clip for output in outputs for clip in output.to_remember)
    return replace(of_batch[0], **values, to_remember=to_remember)


def _joined(values: Sequence[Any], *, order: Int[Tensor, " actors"] | None) -> Any:  # noqa: ANN401 - as the fields
    first = values[0]
    if isinstance(first, Tensor):
        together = torch.cat(list(values))
        return together if order is None else together[order]
    if isinstance(first, Evidence):
        sides = [[getattr(each, side) for each in values] for side in ("positive", "negative")]
        return Evidence(*(_joined(side, order=order) for side in sides))
    if isinstance(first, tuple):
        return tuple(_joined(each, order=order) for each in zip(*values, strict=True))
    return first


def what_differs(model: nn.Module, *, num_parts: int, freezes_norms: bool) -> list[str]:
    """Say why shared batches do not give the numbers of whole ones, and what to set; nothing if they do."""
    modules = list(model.modules())
    synchronised, norms = nn.SyncBatchNorm, nn.modules.batchnorm._BatchNorm  # pyright: ignore[reportPrivateUsage] - all of them
    drops = any(isinstance(m, nn.modules.dropout._DropoutNd) and m.p > 0 for m in modules)  # pyright: ignore[reportPrivateUsage]
    has_norms = not freezes_norms and any(isinstance(m, norms) for m in modules)
    is_synchronised = any(isinstance(m, synchronised) for m in modules)
    sentences: list[str] = []
    if num_ranks() > 1 and has_norms and not is_synchronised:
        sentences.append(
            f"each of the {num_ranks()} processes normalises by its own clips (backbone.norm = 'batch'), so the numbers differ "
            "from those of one process. Set backbone.norm to 'frozen', or on GPUs to 'synchronised'."
        )
    if num_ranks() > 1 and drops:
        sentences.append(
            f"each of the {num_ranks()} processes drops other units, so the numbers differ from those of one process as those "
            "of another seed do. Only one process repeats the numbers of one process."
        )
    if num_parts > 1 and has_norms:
        sentences.append(
            f"batch norms see one of {num_parts} parts at a time (training.accumulate_batches = {num_parts}), so the numbers "
            "differ from those of whole batches. Set backbone.norm to 'frozen'."
        )
    return sentences
