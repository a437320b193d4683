"""Deep evidential action recognition (Bao, Yu and Kong, ICCV 2021), on the bounding volume of each actor.

    maps ── RoIAlign frame by frame ──▶ volume ─┬─ mean ─ linear ─ exp ─▶ Dirichlet evidence, u = K/S
                                                │
                              training only:    ├─ f:  3 × 3 × 3 ─────────────────────▶ evidence
                                                ├─ h₁: 3 × 3 × 3 of shuffled frames ──▶ evidence
                                                └─ h₂: 1 × 3 × 3 ─────────────────────▶ evidence

Contrastive evidence debiasing: f, which sees motion, learns to be independent (HSIC) of h₁ and h₂, which
cannot see it, while these learn to depend on f. With features without a time axis (a pooled or cached map),
h₁ sees what f sees, and DEAR is reduced to its evidential head and calibration.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import cast

import torch
import torch.nn.functional as F
from jaxtyping import Float, Shaped
from torch import Tensor, nn

from mule.core.records import Evidence, at_least_single
from mule.evidence.fusion import of_strongest, strongest_actors
from mule.evidence.head import exp_evidence
from mule.features.pooling import DETECTION_HEAD, FeatureMaps, RoiSampling, box_volumes, context_map
from mule.model import ModelOutput, SceneBoxes, per_box
from mule.objective.dirichlet_loss import (
    accuracy_versus_uncertainty_loss,
    dirichlet_log_loss,
    exponential_annealing,
)
from mule.objective.hsic import biased_hsic, rbf_kernel

FEWEST_FOR_HSIC = 4
Branches = tuple[Float[Tensor, "actors classes"], ...]


@dataclass(frozen=True)
class DearOutput(ModelOutput):
    """`outputs` are the main head's; `branches`, while training, those of f, h₁ and h₂."""

    branches: Branches | None = None

    def of_clips(self) -> "DearOutput":
        """The output of each clip; each branch takes its own strongest actors."""
        output = cast(DearOutput, ModelOutput.of_clips(replace(self, branches=None)))
        if self.branches is None:
            return output
        num_classes = self.outputs.shape[1]
        return replace(
            output,
            branches=tuple(
                of_strongest(each, strongest_actors(each, self.actor_clip_index, num_classes=num_classes))
                for each in self.branches
            ),
        )


class ConvBranch(nn.Module):
    """A convolution of the volume, its mean, a linear layer."""

    def __init__(self, channels: int, width: int, num_classes: int, *, kernel: tuple[int, int, int]) -> None:
        super().__init__()
        self.conv = nn.Conv3d(channels, width, kernel, padding=(kernel[0] // 2, 1, 1), bias=False)
        self.linear = nn.Linear(width, num_classes)

    def forward(
        self, volume: Float[Tensor, "actors channels frames rows cols"]
    ) -> Float[Tensor, "actors classes"]:
        """The raw outputs."""
        return self.linear(F.relu(self._convolved(volume)).mean(dim=(2, 3, 4)))

    def _convolved(
        self, volume: Float[Tensor, "actors channels frames rows cols"]
    ) -> Float[Tensor, "actors width frames rows cols"]:
        if volume.shape[2] > 1:
            return self.conv(volume)
        middle = self.conv.weight[:, :, self.conv.kernel_size[0] // 2]  # the rest meets padding alone
        return F.conv2d(volume.squeeze(2), middle, padding=1).unsqueeze(2)


class DearModel(nn.Module):
    """Dirichlet evidence for each actor from its bounding volume, with the debiasing branches beside it.

    Without `sees_time` the volume is averaged over frames first: DEAR on the pooled actor feature.
    """

    def __init__(
        self,
        channels: int,
        num_classes: int,
        *,
        width: int = 512,
        dropout: float = 0.5,
        sees_time: bool = True,
        sampling: RoiSampling = DETECTION_HEAD,
    ) -> None:
        super().__init__()
        self.sees_time = sees_time
        self.sampling = sampling
        self.dropout = nn.Dropout(dropout)
        self.linear = nn.Linear(channels, num_classes)
        self.motion = ConvBranch(channels, width, num_classes, kernel=(3, 3, 3))
        self.shuffled = ConvBranch(channels, width, num_classes, kernel=(3, 3, 3))
        self.still = ConvBranch(channels, width, num_classes, kernel=(1, 3, 3))

    def forward(self, features: Sequence[FeatureMaps], boxes: SceneBoxes) -> DearOutput:
        """Evidence for each action; a Dirichlet has no evidence against one."""

        def volumes(part: int, boxes_xyxy_px: Tensor, clip_index: Tensor) -> Tensor:
            maps = features[part] if self.sees_time else features[part].without_time()
            return box_volumes(maps, boxes_xyxy_px, clip_index, sampling=self.sampling)

        volume = per_box(features, boxes.actors_xyxy_px, boxes.actor_clip_index, volumes)
        pooled = self.dropout(volume.mean(dim=(2, 3, 4)))
        outputs = self.linear(pooled)
        evidence = exp_evidence(at_least_single(outputs))
        return DearOutput(
            outputs=outputs,
            evidence=Evidence(positive=evidence, negative=torch.zeros_like(evidence)),
            features=pooled,
            context=torch.cat([context_map(each).mean(dim=(2, 3)) for each in features]),
            actor_clip_index=boxes.actor_clip_index,
            branches=self._branches(volume) if self.training else None,
        )

    def _branches(self, volume: Float[Tensor, "actors channels frames rows cols"]) -> Branches:
        order = torch.randperm(volume.shape[2], device=volume.device)
        return self.motion(volume), self.shuffled(volume[:, :, order]), self.still(volume)


def dear_loss(
    output: DearOutput,
    targets: Shaped[Tensor, "actors classes"],
    *,
    progress: float,
    debiasing: float = 0.1,
) -> Float[Tensor, ""]:
    """Evidential loss, calibration (AvU) and, weighted by `debiasing`, the debiasing branches.

    Mean over actors.

    `progress` runs from 0 to 1 over the training: calibration first makes wrong answers unsure, later right
    answers sure.
    """
    evidence = exp_evidence(output.outputs)
    weight = exponential_annealing(progress, num_epochs=1.0)
    loss = dirichlet_log_loss(evidence, targets) + accuracy_versus_uncertainty_loss(
        evidence, targets, weight=weight
    )
    total = loss.mean() if len(targets) else output.outputs.sum()
    if output.branches is None or len(targets) == 0:
        return total
    return total + debiasing * debiasing_loss(output.branches, targets)


def debiasing_loss(branches: Branches, targets: Shaped[Tensor, "actors classes"]) -> Float[Tensor, ""]:
    """Each branch learns the actions; f moves away from h₁ and h₂ (+HSIC), which follow f (−HSIC).

    RBF kernels of α with σ = √K, the biased estimate, skipped below four actors. Each side treats the other
    as constant, which does the alternation of the paper in one step.
    """
    evidence = [exp_evidence(each) for each in branches]
    loss = torch.stack([dirichlet_log_loss(each, targets).mean() for each in evidence]).sum()
    if len(targets) < FEWEST_FOR_HSIC:
        return loss
    motion, *static = evidence
    sigma = motion.shape[1] ** 0.5
    for other in static:
        leaving = biased_hsic(
            rbf_kernel(motion, bandwidth=sigma), rbf_kernel(other.detach(), bandwidth=sigma)
        )
        following = biased_hsic(
            rbf_kernel(motion.detach(), bandwidth=sigma), rbf_kernel(other, bandwidth=sigma)
        )
        loss = loss + leaving - following
    return loss
