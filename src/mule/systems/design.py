"""What a system is made of: the sizes of everything after the backbone, and what it minimises.

Sizes are as published, or small enough for a few clips. A system minimises the Beta loss or cross-entropy, with or without
the debiasing constraint, or a loss of its own.
"""

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Literal, Protocol, runtime_checkable

import torch
import torch.nn.functional as F
from jaxtyping import Float, Shaped
from torch import Tensor

from mule.core.errors import RangeError
from mule.evidence.head import EvidenceFunction, Parameterisation
from mule.features.pooling import DETECTION_HEAD, RoiSampling
from mule.model import ModelOutput
from mule.objective.beta_loss import expected_cross_entropy, reduce_over_actors
from mule.objective.contrast import contrast_loss
from mule.objective.hsic import Bandwidth, Estimator, static_bias
from mule.objective.primal_dual import Objective
from mule.relations.maps import PUBLISHED, RelationSettings


@dataclass(frozen=True)
class HeadOptions:
    """What an experiment changes in the evidence head; None keeps the system's own."""

    parameterisation: Parameterisation | None = None
    function: EvidenceFunction | None = None
    bias: bool | None = None

    def given(self) -> dict[str, Any]:
        """Return the options that are given, as arguments of a head."""
        return {name: value for name, value in asdict(self).items() if value is not None}


@dataclass(frozen=True)
class Sizes:
    """The sizes of everything after the backbone; the defaults are the published ones."""

    channels: int
    """Channels of the backbone's maps, all pathways together."""
    num_classes: int
    reduced: int | None = 1024
    """Channels after the 1×1 convolution that precedes relations; None leaves the convolution out."""
    relations: RelationSettings = PUBLISHED
    width: int = 1024
    """Width of AIA's layers; AFAC and DEAR's branches have half of it."""
    dropout: float = 0.5
    """Dropout probability before the last layer of rivals without relations."""
    sampling: RoiSampling = DETECTION_HEAD
    aco_r: Literal["grid", "factored"] | None = None
    """The form of actor-context-object relations, in systems that have them; None keeps each system's own."""
    head: HeadOptions = field(default_factory=HeadOptions)


def acar_r101_sizes(channels: int, num_classes: int) -> Sizes:
    """Return ACAR's sizes with R-101: one relation block instead of two, whose last convolution is 1×1."""
    return Sizes(channels, num_classes, relations=replace(PUBLISHED, depth=1, last_kernel_size=1))


def tiny_sizes(channels: int, num_classes: int) -> Sizes:
    """Return sizes for the rendered benchmark, whose maps have 12 × 16 cells."""
    relations = RelationSettings(width=32, padding=1, is_downsampled=False, block_dropout=0.0)
    return Sizes(
        channels, num_classes, reduced=None, relations=relations, width=64, dropout=0.1,
        sampling=RoiSampling(bins=4, samples=2),
    )  # fmt: skip


def small_sizes(channels: int, num_classes: int) -> Sizes:
    """Return sizes for about a hundred clips with a frozen backbone: as tiny, with dropout 0.5."""
    tiny = tiny_sizes(channels, num_classes)
    return replace(tiny, relations=replace(tiny.relations, dropout=0.5), dropout=0.5)


def medium_sizes(channels: int, num_classes: int) -> Sizes:
    """Return sizes for several hundred clips with a frozen backbone: as small, three times as wide, down-sampled."""
    small = small_sizes(channels, num_classes)
    return replace(small, relations=replace(small.relations, width=96, is_downsampled=True))


SIZES: Mapping[str, Callable[[int, int], Sizes]] = {
    "published": Sizes,
    "acar-r101": acar_r101_sizes,
    "tiny": tiny_sizes,
    "small": small_sizes,
    "medium": medium_sizes,
}


Targets = Shaped[Tensor, "actors classes"]
LossReduction = Literal["mean", "sum", "class_mean"]
"""How a loss per actor and class becomes one number:

* ``"mean"``: sum over classes, mean over actors;
* ``"sum"``: sum over both, as the paper prints Eq. 2 and 3;
* ``"class_mean"``: mean over both, as in the released code and in SlowFast, ACAR and AIA. Published learning rates of these
  belong to it.
"""
PRINTED_REDUCTION: LossReduction = "sum"
"""Eq. 2 and 3."""
PRINTED_BASE_RATE = 1.0
"""a of Eq. 1."""
STATIC_BIAS = "static_bias"
CONTRAST_WEIGHT = 0.5


@dataclass(frozen=True)
class ObjectiveOptions:
    """What an experiment changes in a system's objective; None keeps the system's own."""

    reduction: LossReduction | None = None
    estimator: Estimator | None = None
    bandwidth: Bandwidth | None = None
    within_clips: bool | None = None

    def of_loss(self) -> dict[str, Any]:
        """Return what is given for the loss."""
        return {} if self.reduction is None else {"reduction": self.reduction}

    def of_constraint(self) -> dict[str, Any]:
        """Return what is given for the constraint."""
        options = {
            "estimator": self.estimator, "bandwidth": self.bandwidth, "within_clips": self.within_clips
        }  # fmt: skip
        return {name: value for name, value in options.items() if value is not None}

    def require_none(self, options: dict[str, Any], why: str) -> None:
        """Require that none of these options is given.

        Raises:
            RangeError: some are; the message names them.
        """
        if options:
            named = ", ".join(f"objective.{name}" for name in options)
            raise RangeError(f"{named} must not be set: {why}. Remove it, or choose another system.")


@runtime_checkable
class SystemObjective(Protocol):
    """Returns loss and constraints from a network's output, the targets, and the share of training that is done."""

    def __call__(self, output: ModelOutput, targets: Targets, progress: float, /) -> Objective:
        """Return loss and constraints."""
        ...

    def altered(self, options: ObjectiveOptions) -> "SystemObjective":
        """Return the objective with these options.

        Raises:
            RangeError: an option is given that this objective does not have.
        """
        ...


def reduced(
    per_class: Float[Tensor, "actors classes"], reduction: LossReduction = "mean"
) -> Float[Tensor, ""]:
    """Return the loss of a batch; without actors it is zero."""
    if reduction == "class_mean":
        return reduce_over_actors(per_class.mean(dim=-1), "mean")
    return reduce_over_actors(per_class.sum(dim=-1), reduction)


def binary_cross_entropy(output: ModelOutput, targets: Targets) -> Float[Tensor, "actors classes"]:
    """Sigmoid cross-entropy of each action of each actor."""
    return F.binary_cross_entropy_with_logits(output.outputs, targets.to(output.outputs), reduction="none")


@dataclass(frozen=True)
class Fitted:
    """Minimise the Beta loss, or sigmoid cross-entropy, without constraints."""

    of_logits: bool = False
    """Whether the loss is sigmoid cross-entropy instead of the Beta loss."""
    reduction: LossReduction = "mean"

    def __call__(self, output: ModelOutput, targets: Targets, _: float, /) -> Objective:
        """Return the loss."""
        return Objective(self.loss(output, targets))

    def loss(self, output: ModelOutput, targets: Targets) -> Float[Tensor, ""]:
        """Return the loss of a batch."""
        per_class = (
            binary_cross_entropy(output, targets)
            if self.of_logits
            else expected_cross_entropy(output.evidence, targets)
        )
        return reduced(per_class, self.reduction)

    def altered(self, options: ObjectiveOptions) -> "Fitted":
        """Return the objective with these options."""
        options.require_none(options.of_constraint(), "this system has no constraint")
        return replace(self, **options.of_loss())


@dataclass(frozen=True)
class Dependence:
    """How HSIC(h, σ(X)) is estimated."""

    estimator: Estimator = "unbiased"
    bandwidth: Bandwidth = "median"
    within_clips: bool = False
    """Whether pairs of actors of one clip count, although they share their scene."""


@dataclass(frozen=True)
class Debiased:
    """Minimise the Beta loss, or cross-entropy, subject to HSIC(h, σ(X)) ≤ γ (Eq. 4 and 5)."""

    fitted: Fitted = field(default_factory=Fitted)
    given_labels: bool = False
    """Whether the constraint is on h given the actor's labels (`static_bias`)."""
    dependence: Dependence = field(default_factory=Dependence)

    def __call__(self, output: ModelOutput, targets: Targets, _: float, /) -> Objective:
        """Return the loss and the value of the constraint."""
        scene, clip_index = output.context, output.actor_clip_index
        if self.dependence.within_clips:  # every actor counts as a clip of its own
            scene = scene[clip_index]
            clip_index = torch.arange(len(clip_index), device=clip_index.device)
        bias = static_bias(
            output.outputs,
            scene,
            clip_index,
            given=targets if self.given_labels else None,
            estimator=self.dependence.estimator,
            bandwidth=self.dependence.bandwidth,
        )
        return Objective(self.fitted.loss(output, targets), {STATIC_BIAS: bias})

    def altered(self, options: ObjectiveOptions) -> "Debiased":
        """Return the objective with these options."""
        fitted = replace(self.fitted, **options.of_loss())
        return replace(self, fitted=fitted, dependence=replace(self.dependence, **options.of_constraint()))


@dataclass(frozen=True)
class Contrasted:
    """Minimise an objective and, in addition, draw together the features of actors that share actions."""

    objective: SystemObjective

    def __call__(self, output: ModelOutput, targets: Targets, progress: float, /) -> Objective:
        """Return the objective with the contrastive loss added."""
        own = self.objective(output, targets, progress)
        return replace(own, loss=own.loss + CONTRAST_WEIGHT * contrast_loss(output.features, targets))

    def altered(self, options: ObjectiveOptions) -> "Contrasted":
        """Return the same around the altered objective."""
        return replace(self, objective=self.objective.altered(options))


@dataclass(frozen=True)
class OwnLoss:
    """Minimise the loss that a rival published, without constraints."""

    loss: Callable[[ModelOutput, Targets, float], Float[Tensor, ""]]

    def __call__(self, output: ModelOutput, targets: Targets, progress: float, /) -> Objective:
        """Return the loss."""
        return Objective(self.loss(output, targets, progress))

    def altered(self, options: ObjectiveOptions) -> "OwnLoss":
        """Return the objective itself; it has no options."""
        options.require_none(
            {**options.of_loss(), **options.of_constraint()}, "this system has a loss of its own"
        )
        return self
