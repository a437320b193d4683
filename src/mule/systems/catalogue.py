"""What is minimised to train each system, from what it says of actors and what they do.

Every recogniser by name: MULE, MULE without one of its parts, and each rival of the paper.

A system sees feature maps and boxes and says something of each actor (`build`); it is trained by what `objective`
makes of that. All share backbones, boxes, batches and scores, so that a comparison compares nothing else.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Literal, cast

import torch.nn.functional as F
from jaxtyping import Float, Shaped
from torch import Tensor, nn

from mule.core.errors import RangeError
from mule.core.records import Evidence
from mule.evidence.head import EvidenceFunction, EvidenceHead, Parameterisation
from mule.features.pooling import DETECTION_HEAD, RoiSampling
from mule.model import ModelOutput, PooledActors, RelationModel, Relations
from mule.novelty.combining import DECIDING_SCORE
from mule.objective.beta_loss import beta_loss, reduce_over_actors
from mule.objective.contrast import contrast_loss
from mule.objective.hsic import static_bias
from mule.objective.primal_dual import Constraint, Objective
from mule.relations.aco import FactoredRelations, GridRelations
from mule.relations.maps import PUBLISHED, RelationSettings
from mule.rivals.networks.acar import AcarRelations
from mule.rivals.networks.afac import AfacModel
from mule.rivals.networks.aia import AiaRelations, Structure
from mule.rivals.networks.dear import DearModel, DearOutput, dear_loss
from mule.rivals.networks.enn import DirichletHead, enn_loss

Targets = Shaped[Tensor, "actors classes"]
Loss = Callable[[ModelOutput, Targets], Float[Tensor, ""]]
SystemObjective = Callable[[ModelOutput, Targets, float], Objective]
"""The loss and constraints for an output, the targets, and the share of the training that is done."""

EvidenceKind = Literal["tied", "independent", "dirichlet", "read"]
"""Where a network's evidence comes from:

* ``"tied"``: Beta evidence from one signed output per action;
* ``"independent"``: Beta evidence from two outputs per action, one for and one against it;
* ``"dirichlet"``: one Dirichlet shared by all actions;
* ``"read"``: no evidence is learned; it is read off the logits of a sigmoid.
"""
FeatureLayer = Literal["head.linear", "linear"]
"""The path, within a network, of the linear layer that turns an actor's feature into outputs."""

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
    """Sizes for a hundred clips seen by a frozen backbone: as tiny, with half of each actor's feature dropped."""
    tiny = tiny_sizes(channels, num_classes)
    return replace(tiny, relations=replace(tiny.relations, dropout=0.5), dropout=0.5)


def medium_sizes(channels: int, num_classes: int) -> Sizes:
    """Sizes for several hundred clips seen by a frozen backbone: as small, three times as wide, and down-sampled."""
    small = small_sizes(channels, num_classes)
    return replace(small, relations=replace(small.relations, width=96, is_downsampled=True))


SIZES: Mapping[str, Callable[[int, int], Sizes]] = {
    "published": Sizes,
    "tiny": tiny_sizes,
    "small": small_sizes,
    "medium": medium_sizes,
}


@dataclass(frozen=True)
class System:
    """One recogniser: how it is built, and what is minimised to train it."""

    name: str
    source: str
    """Where it was published, and how ours is to be read."""
    build: Callable[[Sizes], nn.Module]
    """A module that makes a `ModelOutput` of feature maps and boxes."""
    objective: SystemObjective
    evidence: EvidenceKind
    constraints: Mapping[str, Constraint] = field(default_factory=dict)
    readout: FeatureLayer | None = "head.linear"
    """The last linear layer; None where each action has a feature of its own."""
    pools_once: bool = True
    """Whether the network is a `RelationModel`, which drops no units before or during pooling. Passes with dropout then
    share one pooled scene."""
    backbone: str = "slowfast"
    """The backbone it was published with."""
    trained_as: str | None = None
    """The system that is trained alike, to the last bit: a memory of the training actors then speaks with its network."""
    decides_by: str | None = None
    """The novelty score that decides; None is the one that its kind of evidence is judged by."""

    @property
    def has_memory(self) -> bool:
        """Whether evidence of a memory is added to the network's, and its trust takes part in what is novel."""
        return self.trained_as is not None

    @property
    def learns_evidence(self) -> bool:
        """Whether training shapes the evidence itself."""
        return self.evidence != "read"

    @property
    def outputs_can_die(self) -> bool:
        """Whether outputs pass a ReLU that can leave them without a gradient: the paper's two outputs per action do."""
        return self.evidence == "independent"

    def readout_layer(self, network: nn.Module) -> nn.Linear | None:
        """Return the last linear layer of a network that `build` made, if all actions share one feature."""
        return None if self.readout is None else cast(nn.Linear, network.get_submodule(self.readout))

    def pair_evidence(self, network: nn.Module) -> Callable[[Tensor], Evidence] | None:
        """Return how the network turns two outputs per action into evidence; None where an action has one logit."""
        return cast(RelationModel, network).head.evidence_from if self.evidence == "independent" else None


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


_M_EDC = {STATIC_BIAS: Constraint()}
_PAPER = "Zhao et al., CVPR 2023"


def _mule(name: str, reading: str, function: EvidenceFunction) -> list[System]:
    """A variant of MULE, and the same without each of its parts (Table 2)."""
    kind: Parameterisation = "independent" if function == "relu" else "tied"
    whole = _relation_model(grid_relations, parameterisation=kind, function=function)
    alone = _relation_model(without_relations, parameterisation=kind, function=function)
    sigmoid = _relation_model(grid_relations)
    source = f"{_PAPER}; {reading}"
    return [
        System(name, source, whole, debiased(expected_cross_entropy), kind, _M_EDC),
        System(f"{name}-without-aco-r", f"{source}, Table 2", alone, debiased(expected_cross_entropy), kind, _M_EDC),
        System(f"{name}-without-beta-enn", f"{source}, Table 2: sigmoid and BCE, evidence = ReLU(h)", sigmoid,
               debiased(binary_cross_entropy), "read", _M_EDC),
        System(f"{name}-without-m-edc", f"{source}, Table 2", whole, minimise_beta, kind),
    ]  # fmt: skip


def with_memory(network: System) -> System:
    """The same network with an evidence memory of its training actors, by the recipe that is everybody's."""
    return replace(
        network,
        name=f"{network.name}-memory",
        source=f"{network.name} with an evidence memory; novelty by {DECIDING_SCORE}",
        trained_as=network.name,
        decides_by=DECIDING_SCORE,
    )


def _given_labels(network: System, loss: Loss) -> System:
    """The same network, whose outputs must not depend on the scene beside what the actor does."""
    return replace(
        network,
        name=f"{network.name}-given-labels",
        source=f"{network.name}, debiased given the labels",
        objective=debiased(loss, given_labels=True),
        constraints=_M_EDC,
    )


def _contrasted(network: System) -> System:
    """The same network, whose features of actors that share actions are drawn together besides."""
    name = f"{network.name}-contrast"
    source = f"{network.name}, and features by SupCon (Khosla et al., NeurIPS 2020) with Jaccard weights"
    return replace(network, name=name, source=source, objective=contrasted(network.objective))


def _plain(
    name: str, source: str, relations: Callable[[Sizes], Relations], backbone: str = "slowfast"
) -> System:
    return System(name, source, _relation_model(relations), minimise_bce, "read", backbone=backbone)


_MULE = _mule("mule", "tied exponential evidence", "exp")
_BCE = _plain("bce-aco-r", "sigmoid and BCE on ACO-R, the twin of MULE without evidence", grid_relations)
_VARIANTS = (
    _given_labels(_MULE[0], expected_cross_entropy),
    _given_labels(_BCE, binary_cross_entropy),
    _contrasted(_MULE[0]),
    _contrasted(_BCE),
)
"""Tried on the way to the default, each with its twin of cross-entropy."""

SYSTEMS: Mapping[str, System] = {
    system.name: system
    for system in (
        *_MULE,
        *_mule("mule-literal", "as printed", "relu"),
        _BCE,
        *_VARIANTS,
        *map(with_memory, (_MULE[0], _BCE, *_VARIANTS)),
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
            minimise_bce,
            "read",
            readout=None,
            pools_once=False,
        ),
        System(
            "dear",
            "Bao et al., ICCV 2021; on the bounding volume of each actor",
            _dear(sees_time=True),
            minimise_dear,
            "dirichlet",
            readout="linear",
            pools_once=False,
        ),
        System(
            "dear-pooled",
            "Bao et al., ICCV 2021; on the pooled actor feature",
            _dear(sees_time=False),
            minimise_dear,
            "dirichlet",
            readout="linear",
            pools_once=False,
        ),
        System(
            "enn", "Sensoy et al., NeurIPS 2018; on the pooled actor feature", _enn, minimise_enn, "dirichlet"
        ),
    )
}
