"""What a training is made of, and how far it is."""

from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

import torch
from torch import nn

from mule.core.config import LabelsOf
from mule.data.batches.batches import ActorBatch
from mule.data.batches.sampling import ClipSampler
from mule.objective.primal_dual import Constraint, MeasuresWith
from mule.training.monitor import Validation, Watched
from mule.training.schedule import Schedule
from mule.training.step import SystemObjective


@runtime_checkable
class Batches(Protocol):
    """What hands out batches, epoch by epoch, and can go on where another one stopped (`ClipLoader`)."""

    sampler: ClipSampler

    @property
    def epoch(self) -> int:
        """The epoch of the next batch."""
        ...

    def __len__(self) -> int:
        """Batches that are left of this epoch."""
        ...

    def __iter__(self) -> Iterator[ActorBatch]:
        """These."""
        ...

    def close(self) -> None:
        """Ends whoever reads ahead."""
        ...

    def state_dict(self) -> dict[str, Any]:
        """Where the next batch comes from."""
        ...

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Goes on there."""
        ...


@runtime_checkable
class Listener(Protocol):
    """Who is told how training goes."""

    def stepped(self, step: int, num_steps: int, values: Mapping[str, Any]) -> None:
        """A step was made; `values` are those of its line in the metrics."""
        ...

    def validated(self, step: int, epoch: int, found: Validation) -> None:
        """The model was validated after so many epochs."""
        ...

    def noted(self, sentence: str) -> None:
        """Something that people should read: a warning, or what is not available."""
        ...


class Silence:
    """Nobody listens."""

    def stepped(self, step: int, num_steps: int, values: Mapping[str, Any]) -> None:
        """Nothing."""

    def validated(self, step: int, epoch: int, found: Validation) -> None:
        """Nothing."""

    def noted(self, sentence: str) -> None:
        """Nothing."""


@dataclass(frozen=True)
class Parts:
    """What a training is made of, on this process."""

    model: nn.Module
    objective: SystemObjective
    constraints: Mapping[str, Constraint]
    optimizer: torch.optim.Optimizer
    schedule: Schedule
    train: Batches
    val: Batches
    watched: Watched
    device: torch.device
    seed: int
    inner_steps: int = 1
    measures_with: MeasuresWith = "own_pass"
    clip_norm: float | None = None
    freezes_norms: bool = False
    precision: AbstractContextManager[object] | None = None
    labels_of: LabelsOf = "actors"


@dataclass(frozen=True)
class Progress:
    """How far a training is."""

    step: int = 0
    best_step: int | None = None
    best_mean_ap: float | None = None
    epochs_since_best: int = 0
    num_empty: int = 0
    """Batches that were left out because on some process nothing of them could be read."""
