"""What is minimised to train each system, from what it says of actors and what they do."""

from collections.abc import Callable
from dataclasses import replace
from typing import cast

import torch.nn.functional as F
from jaxtyping import Float, Shaped
from torch import Tensor

from mule.model import ModelOutput
from mule.objective.beta_loss import beta_loss, reduce_over_actors
from mule.objective.contrast import contrast_loss
from mule.objective.hsic import static_bias
from mule.objective.primal_dual import Objective
from mule.rivals.networks.dear import DearOutput, dear_loss
from mule.rivals.networks.enn import enn_loss

Targets = Shaped[Tensor, "actors classes"]
Loss = Callable[[ModelOutput, Targets], Float[Tensor, ""]]
SystemObjective = Callable[[ModelOutput, Targets, float], Objective]
"""The loss and constraints for an output, the targets, and the share of the training that is done."""

STATIC_BIAS = "static_bias"
CONTRAST_WEIGHT = 0.5


def binary_cross_entropy(output: ModelOutput, targets: Targets) -> Float[Tensor, ""]:
    """Sigmoid cross-entropy of each action, summed over classes, mean over actors."""
    per_class = F.binary_cross_entropy_with_logits(
        output.outputs, targets.to(output.outputs), reduction="none"
    )
    return reduce_over_actors(per_class.sum(dim=-1), "mean")


def minimise_bce(output: ModelOutput, targets: Targets, _: float) -> Objective:
    """Cross-entropy of sigmoids."""
    return Objective(binary_cross_entropy(output, targets))


def minimise_beta(output: ModelOutput, targets: Targets, _: float) -> Objective:
    """Cross-entropy expected under the Beta, without constraints."""
    return Objective(expected_cross_entropy(output, targets))


def minimise_enn(output: ModelOutput, targets: Targets, progress: float) -> Objective:
    """ENN's loss."""
    return Objective(enn_loss(output, targets, progress=progress))


def minimise_dear(output: ModelOutput, targets: Targets, progress: float) -> Objective:
    """DEAR's loss."""
    return Objective(dear_loss(cast(DearOutput, output), targets, progress=progress))


def debiased(loss: Loss, *, given_labels: bool = False) -> SystemObjective:
    """The loss, subject to HSIC(h, σ(X)) ≤ γ (Eq. 4 and 5); with `given_labels`, of h beside what the actor does."""

    def objective(output: ModelOutput, targets: Targets, _: float) -> Objective:
        given = targets if given_labels else None
        bias = static_bias(output.outputs, output.context, output.actor_clip_index, given=given)
        return Objective(loss(output, targets), {STATIC_BIAS: bias})

    return objective


def expected_cross_entropy(output: ModelOutput, targets: Targets) -> Float[Tensor, ""]:
    """Cross-entropy expected under the Beta (Eq. 2 and 3)."""
    return beta_loss(output.evidence, targets)


def contrasted(objective: SystemObjective) -> SystemObjective:
    """The same, and features of actors that share actions are drawn together besides."""

    def both(output: ModelOutput, targets: Targets, progress: float) -> Objective:
        found = objective(output, targets, progress)
        return replace(found, loss=found.loss + CONTRAST_WEIGHT * contrast_loss(output.features, targets))

    return both
