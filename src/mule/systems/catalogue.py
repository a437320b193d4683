"""Every recogniser by name: MULE, MULE without one of its parts, and each rival of the paper.

A system sees feature maps and boxes and says something of each actor (`build`); it is trained by what `objective`
makes of that. All share backbones, boxes, batches and scores, so that a comparison compares nothing else.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Literal, cast

import torch.nn.functional as F
from jaxtyping import Float, Shaped
from torch import Tensor, nn

from mule.baselines.acar import AcarRelations
from mule.baselines.afac import AfacModel
from mule.baselines.aia import AiaRelations, Structure
from mule.baselines.dear import DearModel, DearOutput, dear_loss
from mule.baselines.enn import DirichletHead, enn_loss
from mule.errors import RangeError
from mule.evidence.head import EvidenceFunction, EvidenceHead, Parameterisation
from mule.features.pooling import DETECTION_HEAD, RoiSampling
from mule.model import ModelOutput, PooledActors, RelationModel, Relations
from mule.objective.beta_loss import beta_loss, reduce_over_actors
from mule.objective.hsic import static_bias
from mule.objective.primal_dual import Constraint, Objective
from mule.relations.aco import GridRelations
from mule.relations.factored import FactoredRelations
from mule.relations.maps import PUBLISHED, RelationSettings

Targets = Shaped[Tensor, "actors classes"]

STATIC_BIAS = "static_bias"


@dataclass(frozen=True)
class Sizes:
    """How large the parts right of the backbone are; the defaults are the published ones."""

    channels: int
    """Of the backbone's maps, all pathways together."""
    num_classes: int
    reduced: int | None = 1024
    """Channels after the 1×1 convolution before relations; None leaves it out."""
    relations: RelationSettings = PUBLISHED
    width: int = 1024
    """Of the layers of AIA; AFAC and DEAR's branches have half of it."""
    dropout: float = 0.5
    """Before the last layer of rivals that have no relations."""
    sampling: RoiSampling = DETECTION_HEAD
    aco_r: Literal["grid", "factored"] | None = None
    """The form of actor-context-object relations, in systems that have them; None is each system's own."""


def tiny_sizes(channels: int, num_classes: int) -> Sizes:
    """Sizes for the rendered benchmark, whose maps have 12 × 16 cells."""
    relations = RelationSettings(width=32, padding=1, is_downsampled=False, block_dropout=0.0)
    return Sizes(
        channels, num_classes, reduced=None, relations=relations, width=64, dropout=0.1,
        sampling=RoiSampling(bins=4, samples=2),
    )  # fmt: skip


def small_sizes(channels: int, num_classes: int) -> Sizes:
    """Sizes for a few hundred clips seen by a frozen backbone: as tiny, with half of each actor's feature dropped."""
    tiny = tiny_sizes(channels, num_classes)
    return replace(tiny, relations=replace(tiny.relations, dropout=0.5), dropout=0.5)


SIZES: Mapping[str, Callable[[int, int], Sizes]] = {
    "published": Sizes,
    "tiny": tiny_sizes,
    "small": small_sizes,
}


@dataclass(frozen=True)
class System:
    """One recogniser: how it is built, and what is minimised to train it."""

    name: str
    source: str
    """Where it was published, and how ours is to be read."""
    build: Callable[[Sizes], nn.Module]
    """A module that makes a `ModelOutput` of feature maps and boxes."""
    objective: Callable[[ModelOutput, Targets, float], Objective]
    """The loss and constraints for an output, the targets, and the share of the training that is done."""
    constraints: Mapping[str, Constraint] = field(default_factory=dict)
    backbone: str = "slowfast"
    """The backbone it was published with."""


def find_system(name: str) -> System:
    """The system of that name."""
    if name not in SYSTEMS:
        raise RangeError(f"system must be one of {', '.join(SYSTEMS)}; got {name!r}.")
    return SYSTEMS[name]


def without_relations(sizes: Sizes) -> Relations:
    """The actor's pooled feature alone."""
    return PooledActors(sizes.channels, dropout=sizes.dropout)


def grid_relations(sizes: Sizes) -> Relations:
    """The paper's ACO-R."""
    return GridRelations(sizes.reduced or sizes.channels, sizes.relations)


def factored_relations(sizes: Sizes) -> Relations:
    """ACO-R at the cost of N + M maps."""
    return FactoredRelations(sizes.reduced or sizes.channels, sizes.relations)


def acar_relations(sizes: Sizes) -> Relations:
    """Actor-context-actor relations."""
    return AcarRelations(sizes.reduced or sizes.channels, sizes.relations)


ACO_R = {"grid": grid_relations, "factored": factored_relations}
REDUCED = (grid_relations, factored_relations, acar_relations)
"""Relations that see maps after a 1×1 convolution; AIA has layers of its own for it, the others see what there is."""


def aia_relations(structure: Structure) -> Callable[[Sizes], Relations]:
    """Interactions with persons and objects, in the given structure."""
    return lambda sizes: AiaRelations(
        sizes.channels,
        width=sizes.width,
        structure=structure,
        dropout=min(sizes.dropout, 0.2),
    )


def _relation_model(
    relations: Callable[[Sizes], Relations],
    *,
    parameterisation: Parameterisation = "tied",
    function: EvidenceFunction = "relu",
) -> Callable[[Sizes], nn.Module]:
    def build(sizes: Sizes) -> nn.Module:
        related = (ACO_R[sizes.aco_r] if sizes.aco_r and relations in ACO_R.values() else relations)(sizes)
        head = EvidenceHead(
            related.dim, sizes.num_classes, parameterisation=parameterisation, function=function
        )
        reduction = _reduction(sizes) if relations in REDUCED else None
        return RelationModel(related, head, reduction=reduction, sampling=sizes.sampling)

    return build


def _reduction(sizes: Sizes) -> nn.Conv2d | None:
    return None if sizes.reduced is None else nn.Conv2d(sizes.channels, sizes.reduced, 1, bias=False)


def _enn(sizes: Sizes) -> nn.Module:
    related = without_relations(sizes)
    head = DirichletHead(related.dim, sizes.num_classes)
    return RelationModel(related, head, sampling=sizes.sampling)


def _afac(sizes: Sizes) -> nn.Module:
    return AfacModel(sizes.channels, sizes.num_classes, width=sizes.width // 2, sampling=sizes.sampling)


def _dear(*, sees_time: bool) -> Callable[[Sizes], nn.Module]:
    return lambda sizes: DearModel(
        sizes.channels,
        sizes.num_classes,
        width=sizes.width // 2,
        dropout=sizes.dropout,
        sees_time=sees_time,
        sampling=sizes.sampling,
    )


def binary_cross_entropy(output: ModelOutput, targets: Targets) -> Float[Tensor, ""]:
    """Sigmoid cross-entropy of each action, summed over classes, mean over actors."""
    per_class = F.binary_cross_entropy_with_logits(
        output.outputs, targets.to(output.outputs), reduction="none"
    )
    return reduce_over_actors(per_class.sum(dim=-1), "mean")


def _minimise_bce(output: ModelOutput, targets: Targets, _: float) -> Objective:
    return Objective(binary_cross_entropy(output, targets))


def _minimise_beta(output: ModelOutput, targets: Targets, _: float) -> Objective:
    return Objective(_beta(output, targets))


def _minimise_enn(output: ModelOutput, targets: Targets, progress: float) -> Objective:
    return Objective(enn_loss(output, targets, progress=progress))


def _minimise_dear(output: ModelOutput, targets: Targets, progress: float) -> Objective:
    return Objective(dear_loss(cast(DearOutput, output), targets, progress=progress))


def _debiased(
    loss: Callable[[ModelOutput, Targets], Float[Tensor, ""]],
) -> Callable[[ModelOutput, Targets, float], Objective]:
    """The loss, subject to HSIC(h, σ(X)) ≤ γ (Eq. 4 and 5)."""

    def objective(output: ModelOutput, targets: Targets, _: float) -> Objective:
        bias = static_bias(output.outputs, output.context, output.actor_clip_index)
        return Objective(loss(output, targets), {STATIC_BIAS: bias})

    return objective


def _beta(output: ModelOutput, targets: Targets) -> Float[Tensor, ""]:
    return beta_loss(output.evidence, targets)


_M_EDC = {STATIC_BIAS: Constraint()}
_PAPER = "Zhao et al., CVPR 2023"


def _mule(
    name: str, reading: str, relations: Callable[[Sizes], Relations], function: EvidenceFunction
) -> list[System]:
    """A variant of MULE, and the same without each of its parts (Table 2)."""
    kind: Parameterisation = "independent" if function == "relu" else "tied"
    whole = _relation_model(relations, parameterisation=kind, function=function)
    alone = _relation_model(without_relations, parameterisation=kind, function=function)
    sigmoid = _relation_model(relations)
    source = f"{_PAPER}; {reading}"
    return [
        System(name, source, whole, _debiased(_beta), _M_EDC),
        System(f"{name}-without-aco-r", f"{source}, Table 2", alone, _debiased(_beta), _M_EDC),
        System(f"{name}-without-beta-enn", f"{source}, Table 2: sigmoid and BCE, evidence = ReLU(h)", sigmoid,
               _debiased(binary_cross_entropy), _M_EDC),
        System(f"{name}-without-m-edc", f"{source}, Table 2", whole, _minimise_beta),
    ]  # fmt: skip


def _plain(
    name: str, source: str, relations: Callable[[Sizes], Relations], backbone: str = "slowfast"
) -> System:
    return System(name, source, _relation_model(relations), _minimise_bce, backbone=backbone)


SYSTEMS: Mapping[str, System] = {
    system.name: system
    for system in (
        *_mule("mule", "tied exponential evidence", factored_relations, "exp"),
        *_mule("mule-literal", "as printed", grid_relations, "relu"),
        _plain(
            "bce-aco-r", "sigmoid and BCE on ACO-R, the twin of MULE without evidence", factored_relations
        ),
        _plain(
            "slowfast", "Feichtenhofer et al., ICCV 2019; RoI feature and a linear layer", without_relations
        ),
        _plain("x3d", "Feichtenhofer, CVPR 2020; RoI feature and a linear layer", without_relations, "x3d"),
        _plain("csn", "Tran et al., ICCV 2019; RoI feature and a linear layer", without_relations, "csn"),
        _plain(
            "acar", "Pan et al., CVPR 2021; without the feature bank, which was not released", acar_relations
        ),
        _plain("aia-serial", "Tang et al., ECCV 2020; without memory", aia_relations("serial")),
        _plain("aia-dense-serial", "Tang et al., ECCV 2020; without memory", aia_relations("dense_serial")),
        _plain("aia-parallel", "Tang et al., ECCV 2020; without memory", aia_relations("parallel")),
        System(
            "afac",
            "Zhang et al., CVPR 2021; re-implemented from the paper's description",
            _afac,
            _minimise_bce,
        ),
        System(
            "dear",
            "Bao et al., ICCV 2021; on the bounding volume of each actor",
            _dear(sees_time=True),
            _minimise_dear,
        ),
        System(
            "dear-pooled",
            "Bao et al., ICCV 2021; on the pooled actor feature",
            _dear(sees_time=False),
            _minimise_dear,
        ),
        System("enn", "Sensoy et al., NeurIPS 2018; on the pooled actor feature", _enn, _minimise_enn),
    )
}
