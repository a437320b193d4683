"""One step of training: a batch through the model, the objective of the whole batch, and its gradient.

The batch may lie on several ranks. Loss and constraints are then those of the whole batch, the same number on every
rank, and gradients averaged over ranks are those of one process that had seen it all.
"""

import math
from collections.abc import Callable, Generator, Iterable, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, replace

import torch
from jaxtyping import Bool, Float, Shaped
from torch import Tensor, nn

from mule.core.config import LabelsOf
from mule.core.errors import NotFinite
from mule.data.batches.batches import ActorBatch
from mule.model import ModelOutput, SceneBoxes
from mule.objective.primal_dual import Objective
from mule.objective.ranks import gather_actors
from mule.training.distributed import average_gradients, over_ranks

Targets = Shaped[Tensor, "actors classes"]
Forward = Callable[[Sequence[Tensor], SceneBoxes], ModelOutput]
SystemObjective = Callable[[ModelOutput, Targets, float], Objective]


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
