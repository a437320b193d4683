"""One step of training: the learning rate, a batch through the model, its objective and its gradient.

A batch may be spread over several ranks. Loss and constraints are then those of the whole batch, the same number on
every rank, and the gradients averaged over ranks are those of a single process with the whole batch.
"""

import math
from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, fields, replace
from typing import Any, Literal, Protocol, runtime_checkable

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from mule.core.defaults import MILESTONE_FACTOR
from mule.core.errors import NotFinite, RangeError
from mule.core.processes import average_gradients, gather_actors, over_ranks
from mule.core.records import Evidence, at_least_single
from mule.core.settings import LabelsOf
from mule.data.batches.batches import ActorBatch, ClipSampler
from mule.model import ModelOutput, SceneBoxes
from mule.objective.primal_dual import Constraint, MeasuresWith, Objective
from mule.systems.catalogue import SystemObjective
from mule.training.monitor import Validation, Watched
from mule.training.sharing import Forward


@dataclass(frozen=True)
class Schedule:
    """The learning rate of every step: a linear warm-up, then constant, falling at milestones, or a cosine."""

    lr: float
    num_steps: int
    """Steps of the whole training, warm-up included."""
    kind: Literal["constant", "step", "cosine"] = "constant"
    warmup_steps: int = 0
    warmup_lr: float = 0.0
    """Rate of the first step, if there is a warm-up (Goyal et al. 2017)."""
    milestones: tuple[int, ...] = ()
    """At each of these steps the rate is multiplied by `factor`."""
    factor: float = MILESTONE_FACTOR
    final_share: float = 0.0
    """Share of the rate that is left at the end of a cosine."""

    def __post_init__(self) -> None:
        if not 0 <= self.warmup_steps <= self.num_steps:
            raise RangeError(
                f"warm-up must end before training does; it takes {self.warmup_steps} of {self.num_steps} steps. Lower "
                "schedule.warmup_epochs, or train longer."
            )

    def rate(self, step: int) -> float:
        """Return the learning rate of a step, counted from 0."""
        if step < self.warmup_steps:
            return self.warmup_lr + (self.lr - self.warmup_lr) * step / self.warmup_steps
        if self.kind == "step":
            return self.lr * self.factor ** sum(step >= milestone for milestone in self.milestones)
        if self.kind == "cosine":
            done = (step - self.warmup_steps) / max(self.num_steps - self.warmup_steps, 1)
            falling = (1 + math.cos(math.pi * min(done, 1.0))) / 2
            return self.lr * (self.final_share + (1 - self.final_share) * falling)
        return self.lr


@runtime_checkable
class Batches(Protocol):
    """Hands out batches, epoch by epoch, and can resume where another one stopped (`ClipLoader`)."""

    sampler: ClipSampler

    @property
    def epoch(self) -> int:
        """The epoch of the next batch."""
        ...

    def __len__(self) -> int:
        """Return how many batches are left in this epoch."""
        ...

    def __iter__(self) -> Iterator[ActorBatch]:
        """Yield the batches left in this epoch."""
        ...

    def close(self) -> None:
        """Stop the processes that read ahead."""
        ...

    def state_dict(self) -> dict[str, Any]:
        """Return the position of the next batch."""
        ...

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Resume from that position."""
        ...


@runtime_checkable
class Listener(Protocol):
    """Receives news of the training."""

    def stepped(self, step: int, num_steps: int, values: Mapping[str, Any]) -> None:
        """Called after a step; `values` are those of its line in the metrics."""
        ...

    def validated(self, step: int, epoch: int, found: Validation) -> None:
        """Called after each validation."""
        ...

    def noted(self, sentence: str) -> None:
        """Called with a sentence for people: a warning, or what is not available."""
        ...


class Silence:
    """A listener that ignores all news."""

    def stepped(self, step: int, num_steps: int, values: Mapping[str, Any]) -> None:
        """Nothing."""

    def validated(self, step: int, epoch: int, found: Validation) -> None:
        """Nothing."""

    def noted(self, sentence: str) -> None:
        """Nothing."""


@dataclass(frozen=True)
class Parts:
    """Everything a training needs, on this process."""

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
    inner_steps: int
    measures_with: MeasuresWith
    clip_norm: float | None
    freezes_norms: bool
    precision: AbstractContextManager[object] | None
    scaler: torch.amp.GradScaler | None
    labels_of: LabelsOf


@dataclass(frozen=True)
class Progress:
    """How far a training has come."""

    step: int = 0
    best_step: int | None = None
    best_mean_ap: float | None = None
    epochs_since_best: int = 0
    num_empty: int = 0
    """Batches skipped because some process could read none of their clips."""


def scene_boxes(batch: ActorBatch) -> SceneBoxes:
    """Return the boxes of a batch in the form a model takes."""
    return SceneBoxes(
        batch.actor_boxes_xyxy_px,
        batch.actor_clip_index,
        batch.object_boxes_xyxy_px,
        batch.object_clip_index,
    )


def labelled_output(output: ModelOutput, labels_of: LabelsOf) -> ModelOutput:
    """Return the output with one row per label row: per actor, or per clip. Tensors are in single precision or finer."""
    single = in_single(output)
    return single.of_clips() if labels_of == "clips" else single


def labels_in(batch: ActorBatch, labels_of: LabelsOf) -> Bool[Tensor, "rows classes"]:
    """Return the labels of a batch in the rows of `labelled_output`. A clip has every label of its actors."""
    if labels_of == "actors":
        return batch.labels
    clips, clip = batch.actor_clip_index.unique(return_inverse=True)
    counts = torch.zeros(len(clips), batch.labels.shape[1], device=batch.labels.device)
    return counts.index_add(0, clip, batch.labels.to(counts)) > 0


class BatchObjective:
    """What `PrimalDual` minimises on one batch: each call is one forward pass.

    A system's loss is the mean over the actors, or clips, of this rank. The mean over all ranks weighs each rank by how
    many it has; constraints are about the whole batch already.
    """

    def __init__(
        self,
        model: Forward,
        batch: ActorBatch,
        objective: SystemObjective,
        *,
        progress: float,
        precision: AbstractContextManager[object] | None = None,
        labels_of: LabelsOf = "actors",
    ) -> None:
        self._model, self._objective, self._pixels = model, objective, batch.pixels
        self._progress, self._precision = progress, precision
        self._labels_of: LabelsOf = labels_of
        self._boxes, self._targets = scene_boxes(batch), labels_in(batch, labels_of).float()
        num_everywhere = over_ranks(float(len(self._targets)), self._targets.device)
        self._share = len(self._targets) / max(num_everywhere, 1.0)

    def __call__(self) -> Objective:
        """Run the model forward, and return the loss and constraints of the batch on all ranks."""
        with self._precision or nullcontext():
            output = self._model(self._pixels, self._boxes)
        own = self._objective(labelled_output(output, self._labels_of), self._targets, self._progress)
        return replace(own, loss=gather_actors((own.loss * self._share)[None]).sum())


def in_single(output: ModelOutput) -> ModelOutput:
    """Return the output in single precision or finer: mixed precision ends at the last layer."""
    return replace(output, **{each.name: _in_single(getattr(output, each.name)) for each in fields(output)})


def _in_single(value: Any) -> Any:  # noqa: ANN401 - a tensor, several of them, evidence or nothing
    if isinstance(value, Evidence):
        return Evidence(at_least_single(value.positive), at_least_single(value.negative))
    if isinstance(value, tuple):
        return tuple(_in_single(each) for each in value)
    return at_least_single(value) if isinstance(value, Tensor) else value


@dataclass
class Backward:
    """Computes, averages and clips the gradients of a whole batch; `PrimalDual` calls it to go backwards.

    With a `scaler`, gradients pass float16 layers multiplied by a large number, because float16 has none below 6e-8; they
    are divided by it afterwards. Where one overflows, the step is left out and the number halved.
    """

    optimizer: torch.optim.Optimizer
    parameters: Sequence[Tensor]
    clip_norm: float | None = None
    scaler: torch.amp.GradScaler | None = None
    norm: float = math.nan
    """Norm of the last gradient before clipping."""

    def __call__(self, total: Float[Tensor, ""]) -> bool:
        """Fill in the gradients; return whether they can be used.

        Raises:
            NotFinite: the norm of the gradient is not finite, and a smaller scale would not help.
        """
        (total if self.scaler is None else self.scaler.scale(total)).backward()
        average_gradients(self.parameters)
        if self.scaler is not None:
            self.scaler.unscale_(self.optimizer)
        gradients = [parameter.grad for parameter in self.parameters if parameter.grad is not None]
        norm = nn.utils.get_total_norm(gradients)
        self.norm = norm.item()
        if not self._scale_was_too_large() and not math.isfinite(self.norm):
            raise NotFinite(
                f"the norm of the gradient must be finite; it is {self.norm} though the loss is {total.item():.6g}. "
                "This step left the parameters untouched."
            )
        if math.isfinite(self.norm) and self.clip_norm is not None:
            nn.utils.clip_grads_with_norm_(self.parameters, self.clip_norm, norm)
        return math.isfinite(self.norm)

    def _scale_was_too_large(self) -> bool:
        """Adapt the scale; return whether it was lowered, and has not come below one."""
        if self.scaler is None:
            return False
        before = self.scaler.get_scale()
        self.scaler.update()
        return 1 <= self.scaler.get_scale() < before


def trained_parameters(model: nn.Module) -> list[nn.Parameter]:
    """Return the parameters that training updates."""
    return [parameter for parameter in model.parameters() if parameter.requires_grad]


@contextmanager
def evaluating(model: nn.Module) -> Generator[None]:
    """Switch a model to evaluation without gradients; on leaving, every module gets its former mode back."""
    modes = [(module, module.training) for module in model.modules()]
    model.eval()
    try:
        with torch.no_grad():
            yield
    finally:
        for module, mode in modes:
            module.training = mode


def freeze_norms(modules: Iterable[nn.Module]) -> None:
    """Make batch norms use the statistics they have; their scales and shifts are still trained."""
    for module in modules:
        if isinstance(module, nn.modules.batchnorm._BatchNorm):  # pyright: ignore[reportPrivateUsage] - all of them
            module.eval()
