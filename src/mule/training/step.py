"""The learning rate over time: a number for every step, and nothing to remember.

What a training is made of, and how far it is.

One step of training: a batch through the model, the objective of the whole batch, and its gradient.

The batch may lie on several ranks. Loss and constraints are then those of the whole batch, the same number on every
rank, and gradients averaged over ranks are those of one process that had seen it all.
"""

import math
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, replace
from typing import Any, Literal, Protocol, runtime_checkable

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from mule.core.config import LabelsOf
from mule.core.errors import NotFinite, RangeError
from mule.core.processes import average_gradients, gather_actors, over_ranks
from mule.data.batches.batches import ActorBatch
from mule.data.batches.sampling import ClipSampler
from mule.model import ModelOutput, SceneBoxes
from mule.objective.primal_dual import Constraint, MeasuresWith, Objective
from mule.systems.catalogue import SystemObjective
from mule.training.monitor import Validation, Watched


@dataclass(frozen=True)
class Schedule:
    """A linear rise, then a constant rate, one that falls at milestones, or a cosine. Lengths are in steps."""

    lr: float
    num_steps: int
    """Of the whole training, the rise included."""
    kind: Literal["constant", "step", "cosine"] = "constant"
    warmup_steps: int = 0
    warmup_lr: float = 0.0
    """Of the first step, if there is a rise (Goyal et al. 2017)."""
    milestones: tuple[int, ...] = ()
    """Steps from which on the rate is multiplied by `factor` once more."""
    factor: float = 0.1
    final_share: float = 0.0
    """What is left of the rate at the end of a cosine."""

    def __post_init__(self) -> None:
        if not 0 <= self.warmup_steps <= self.num_steps:
            raise RangeError(
                f"the rise must end within the training; it takes {self.warmup_steps} of {self.num_steps} steps. Lower "
                "schedule.warmup_epochs, or train longer."
            )

    def rate(self, step: int) -> float:
        """The learning rate of a step, counted from 0."""
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


Forward = Callable[[Sequence[Tensor], SceneBoxes], ModelOutput]


def scene_boxes(batch: ActorBatch) -> SceneBoxes:
    """Where the actors and objects of a batch are, as a model asks for them."""
    return SceneBoxes(
        batch.actor_boxes_xyxy_px,
        batch.actor_clip_index,
        batch.object_boxes_xyxy_px,
        batch.object_clip_index,
    )


def said_of(output: ModelOutput, labels_of: LabelsOf) -> ModelOutput:
    """What a model says of whoever labels are of, fit for losses: its actors, or the clips that they speak for."""
    single = in_single(output)
    return single.of_clips() if labels_of == "clips" else single


def labels_in(batch: ActorBatch, labels_of: LabelsOf) -> Bool[Tensor, "rows classes"]:
    """The labels of a batch in the rows of `said_of`. A clip does what is written of any of its actors."""
    if labels_of == "actors":
        return batch.labels
    clips, clip = batch.actor_clip_index.unique(return_inverse=True)
    counts = torch.zeros(len(clips), batch.labels.shape[1], device=batch.labels.device)
    return counts.index_add(0, clip, batch.labels.to(counts)) > 0


def batch_objective(
    model: Forward,
    batch: ActorBatch,
    objective: SystemObjective,
    *,
    progress: float,
    precision: AbstractContextManager[object] | None = None,
    labels_of: LabelsOf = "actors",
) -> Callable[[], Objective]:
    """What `PrimalDual` minimises on this batch: each call is one forward pass.

    A system's loss is the mean over the actors, or clips, it is shown. The mean over those of all ranks weighs each rank
    by how many it has; constraints are about the whole batch already.
    """
    boxes, targets = scene_boxes(batch), labels_in(batch, labels_of).float()
    num_everywhere = over_ranks(float(len(targets)), targets.device)
    share = len(targets) / max(num_everywhere, 1.0)

    def found() -> Objective:
        with precision or nullcontext():
            output = model(batch.pixels, boxes)
        own = objective(said_of(output, labels_of), targets, progress)
        return replace(own, loss=gather_actors((own.loss * share)[None]).sum())

    return found


def in_single(output: ModelOutput) -> ModelOutput:
    """The same output, fit for losses: mixed precision ends at the last layer."""
    tensors = {name: getattr(output, name) for name in ("outputs", "features", "context")}
    if all(tensor.dtype not in (torch.bfloat16, torch.float16) for tensor in tensors.values()):
        return output
    return replace(output, **{name: tensor.float() for name, tensor in tensors.items()})


@dataclass
class Backward:
    """Gradients of the whole batch, no longer than allowed: what `PrimalDual` calls to go backwards."""

    parameters: Sequence[Tensor]
    clip_norm: float | None = None
    norm: float = math.nan
    """The length of the last gradient before it was shortened."""

    def __call__(self, total: Float[Tensor, ""]) -> None:
        """Fills in the gradients."""
        total.backward()
        average_gradients(self.parameters)
        gradients = [parameter.grad for parameter in self.parameters if parameter.grad is not None]
        norm = nn.utils.get_total_norm(gradients)
        self.norm = norm.item()
        if not math.isfinite(self.norm):
            raise NotFinite(
                f"the length of the gradient must be finite; it is {self.norm} though the loss is {total.item():.6g}. "
                "The parameters are untouched by this step."
            )
        if self.clip_norm is not None:
            nn.utils.clip_grads_with_norm_(self.parameters, self.clip_norm, norm)


def trained_parameters(model: nn.Module) -> list[nn.Parameter]:
    """The parameters that training moves."""
    return [parameter for parameter in model.parameters() if parameter.requires_grad]


@contextmanager
def evaluating(model: nn.Module) -> Generator[None]:
    """No chance, no gradients, and batch statistics as they were learned; every part is then as it was before."""
    modes = [(module, module.training) for module in model.modules()]
    model.eval()
    try:
        with torch.no_grad():
            yield
    finally:
        for module, mode in modes:
            module.training = mode


def freeze_norms(modules: Iterable[nn.Module]) -> None:
    """Batch norms use the statistics they have; their scales and shifts go on being trained."""
    for module in modules:
        if isinstance(module, nn.modules.batchnorm._BatchNorm):  # pyright: ignore[reportPrivateUsage] - all of them
            module.eval()


def mixed_precision(device: torch.device) -> tuple[torch.autocast | None, str]:
    """Autocast to bfloat16 where a GPU multiplies in it, and else a sentence that says why not.

    Processors are left out, whatever they claim: without instructions of their own they imitate it many times slower,
    and virtual machines announce instructions (AMX) that end the process when torch uses them.
    """
    if device.type != "cuda":
        return None, "bfloat16 is not used: it is for GPUs that multiply in it. Training is in float32."
    if not torch.cuda.is_bf16_supported(including_emulation=False):
        return None, "bfloat16 is not used: this GPU does not multiply in it. Training is in float32."
    return torch.autocast("cuda", dtype=torch.bfloat16), ""
