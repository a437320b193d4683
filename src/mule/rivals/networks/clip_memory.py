"""A memory of the actors of past clips, by video and key time; a clip reads those of its neighbours.

    step n:    read neighbours ─▶ network ─▶ loss ─▶ write the batch's own actors
    a side:    one pass that writes every clip ─▶ a second that reads neighbours and gives outputs

Features are kept without gradients, in half precision, in the memory of the CPU. Every process holds the same memory. What
is read depends on what was written alone, not on the order of clips within a batch or a side. A clip never reads itself.
A clip of a whole video has no key time, so it is neither remembered nor a neighbour. `mule watch` and `Model.predict`
have no memory of clips: there, each clip stands alone.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from itertools import zip_longest
from operator import itemgetter
from typing import Any, NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from mule.core.errors import ShapeError
from mule.core.processes import everyones
from mule.data.batches.samples import ClipName
from mule.relations.remembered import MemorySpan, RememberedClip


class _Entry(NamedTuple):
    """One clip, and the training loss when it was written; None outside training."""

    actors: Float[Tensor, "actors ..."]
    loss: float | None


_Written = tuple[ClipName, Float[Tensor, "_actors ..."]]


class ClipMemory:
    """The latest actors of every clip that was written."""

    def __init__(self, span: MemorySpan) -> None:
        self.span = span
        self._videos: dict[str, dict[float, _Entry]] = {}
        self._loss: float | None = None

    def __len__(self) -> int:
        """Return the number of clips."""
        return sum(map(len, self._videos.values()))

    def near(self, names: Sequence[ClipName], device: torch.device) -> tuple[RememberedClip, ...]:
        """Return the neighbours of each clip, from first to last key time."""
        return tuple(
            RememberedClip(
                number,
                round(time_s - name.key_time_s),
                entry.actors.to(device).float() * self._weight(entry),
            )
            for number, name in enumerate(names)
            for time_s, entry in self._neighbours(name)
        )

    def write(
        self,
        names: Sequence[ClipName],
        actors: Sequence[Float[Tensor, "_actors ..."]],
        *,
        loss: float | None = None,
    ) -> None:
        """Remember the actors of these clips, and of those that the other processes write; all must call this together.

        A clip that is written twice keeps the later actors, in the order of one process with the whole batch.

        Args:
            names: the clips.
            actors: for each clip one row per actor.
            loss: of the batch, in training.

        Raises:
            ShapeError: there are not as many names as clips.
        """
        if len(names) != len(actors):
            raise ShapeError(f"every clip must have a name; got {len(actors)} clips and {len(names)} names.")
        own = [(name, self._kept(each)) for name, each in zip(names, actors, strict=True)]
        for name, kept in _in_order_of_draws(everyones(own)):
            if not math.isnan(name.key_time_s):
                self._videos.setdefault(name.video, {})[name.key_time_s] = _Entry(kept, loss)
        self._loss = loss

    def state_dict(self) -> dict[str, Any]:
        """Return everything remembered, as plain values and tensors."""
        return {
            "loss": self._loss,
            "clips": [
                [video, time_s, entry.actors, entry.loss]
                for video, entries in self._videos.items()
                for time_s, entry in entries.items()
            ],
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Remember what another memory did, and nothing else."""
        self._loss, self._videos = state["loss"], {}
        for video, time_s, actors, loss in state["clips"]:
            self._videos.setdefault(video, {})[time_s] = _Entry(actors, loss)

    def _neighbours(self, name: ClipName) -> list[tuple[float, _Entry]]:
        entries = self._videos.get(name.video, {})
        near = (
            (time_s, entry)
            for time_s, entry in entries.items()
            if 0 < abs(time_s - name.key_time_s) <= self.span.seconds and len(entry.actors)
        )
        return sorted(near, key=itemgetter(0))

    def _weight(self, entry: _Entry) -> float:
        """AIA's penalty: the smaller of the losses then and now, divided by the larger."""
        if not self.span.fades or entry.loss is None or self._loss is None:
            return 1.0
        smaller, larger = sorted((entry.loss, self._loss))
        return smaller / larger if larger > 0 else 1.0

    def _kept(self, actors: Float[Tensor, "actors ..."]) -> Float[Tensor, "kept ..."]:
        return actors.detach()[: self.span.actors_per_clip].to("cpu", torch.float16, copy=True)


def _in_order_of_draws(of_ranks: Sequence[Sequence[_Written]]) -> Iterator[_Written]:
    """Draw d of a batch is number d // R of rank d mod R (`ClipSampler`)."""
    for together in zip_longest(*of_ranks):
        yield from (written for written in together if written is not None)
