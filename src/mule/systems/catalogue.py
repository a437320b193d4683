"""Every recogniser by name: MULE, MULE without one of its parts, and each rival of the paper.

A system builds a network that turns feature maps and boxes into a `ModelOutput`, and states how that network is trained
(`objective`) and read (`evidence`, `readout`). All systems share backbones, boxes, batches and scores, so a comparison
compares nothing else.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Literal, cast

import torch.nn.functional as F
from jaxtyping import Float, Shaped
from torch import Tensor, nn

from mule.core.errors import RangeError, did_you_mean
from mule.core.records import Evidence
from mule.evidence.head import EvidenceHead
from mule.features.pooling import DETECTION_HEAD, RoiSampling
from mule.model import Head, ModelOutput, PooledActors, RelationModel, Relations
from mule.novelty.combining import DECIDING_SCORE
from mule.objective.beta_loss import beta_loss, reduce_over_actors
from mule.objective.contrast import contrast_loss
from mule.objective.hsic import static_bias
from mule.objective.primal_dual import Constraint, Objective
from mule.relations.aco import FactoredRelations, GridRelations
from mule.relations.maps import PUBLISHED, RelationSettings
from mule.rivals.networks.acar import AcarRelations
from mule.rivals.networks.acar_bank import AcarBankRelations
from mule.rivals.networks.afac import AfacModel
from mule.rivals.networks.aia import AiaRelations, Structure
from mule.rivals.networks.aia_memory import AiaMemoryRelations
from mule.rivals.networks.dear import DearModel, DearOutput, dear_loss
from mule.rivals.networks.enn import DirichletHead, enn_loss

Targets = Shaped[Tensor, "actors classes"]
SystemObjective = Callable[[ModelOutput, Targets, float], Objective]
"""Returns loss and constraints from a network's output, the targets, and the share of training that is done."""

EvidenceKind = Literal["tied", "independent", "dirichlet", "read"]
"""Where a network's evidence comes from:

* ``"tied"``: Beta evidence from one signed output per action;
* ``"independent"``: Beta evidence from two outputs per action, one for and one against it;
* ``"dirichlet"``: one Dirichlet shared by all actions;
* ``"read"``: no evidence is learned; it is read off the logits of a sigmoid.
"""
HeadForm = Callable[[int, int], Head]
"""Makes a head from the length of a feature and the number of classes."""
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
    """Minimise sigmoid cross-entropy, without constraints."""
    return Objective(binary_cross_entropy(output, targets))


def minimise_beta(output: ModelOutput, targets: Targets, _: float) -> Objective:
    """Minimise the Beta loss, without constraints."""
    return Objective(beta_loss(output.evidence, targets))


def minimise_enn(output: ModelOutput, targets: Targets, progress: float) -> Objective:
    """Minimise ENN's loss."""
    return Objective(enn_loss(output, targets, progress=progress))


def minimise_dear(output: ModelOutput, targets: Targets, progress: float) -> Objective:
    """Minimise DEAR's loss."""
    return Objective(dear_loss(cast(DearOutput, output), targets, progress=progress))


@dataclass(frozen=True)
class Debiased:
    """Minimise the Beta loss, or cross-entropy, subject to HSIC(h, σ(X)) ≤ γ (Eq. 4 and 5)."""

    of_logits: bool = False
    """Whether the loss is sigmoid cross-entropy instead of the Beta loss."""
    given_labels: bool = False
    """Whether the constraint is on h given the actor's labels (`static_bias`)."""

    def __call__(self, output: ModelOutput, targets: Targets, _: float) -> Objective:
        """Return the loss and the value of the constraint."""
        given = targets if self.given_labels else None
        bias = static_bias(output.outputs, output.context, output.actor_clip_index, given=given)
        loss = (
            binary_cross_entropy(output, targets) if self.of_logits else beta_loss(output.evidence, targets)
        )
        return Objective(loss, {STATIC_BIAS: bias})


@dataclass(frozen=True)
class Contrasted:
    """Minimise an objective and, in addition, draw together the features of actors that share actions."""

    objective: SystemObjective

    def __call__(self, output: ModelOutput, targets: Targets, progress: float) -> Objective:
        """Return the objective with the contrastive loss added."""
        own = self.objective(output, targets, progress)
        return replace(own, loss=own.loss + CONTRAST_WEIGHT * contrast_loss(output.features, targets))


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
    "tiny": tiny_sizes,
    "small": small_sizes,
    "medium": medium_sizes,
}


@dataclass(frozen=True)
class System:
    """One recogniser: how it is built, how it is trained, and how its outputs are read."""

    name: str
    source: str
    """Where it was published, and how this implementation differs."""
    build: Callable[[Sizes], nn.Module]
    """Builds a module that turns feature maps and boxes into a `ModelOutput`."""
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
    """The system with the same network, bit for bit, where this one adds a memory of the training actors."""
    decides_by: str | None = None
    """The novelty score that decides; None uses the default score of its evidence kind."""

    @property
    def has_memory(self) -> bool:
        """Whether a memory of the training actors adds its evidence and takes part in novelty."""
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
    """Return the system of that name.

    Raises:
        RangeError: there is no such system.
    """
    if name not in SYSTEMS:
        raise RangeError(
            f"system must be one of {', '.join(SYSTEMS)}; got {name!r}.{did_you_mean(name, SYSTEMS)}"
        )
    return SYSTEMS[name]


def without_relations(sizes: Sizes) -> Relations:
    """No relations: the actor's pooled feature alone."""
    return PooledActors(sizes.channels, dropout=sizes.dropout)


def grid_relations(sizes: Sizes) -> Relations:
    """The paper's ACO-R."""
    return GridRelations(sizes.reduced or sizes.channels, sizes.relations)


def factored_relations(sizes: Sizes) -> Relations:
    """ACO-R with N + M maps instead of N·M."""
    return FactoredRelations(sizes.reduced or sizes.channels, sizes.relations)


def acar_relations(sizes: Sizes) -> Relations:
    """Actor-context-actor relations."""
    return AcarRelations(sizes.reduced or sizes.channels, sizes.relations)


def acar_bank_relations(sizes: Sizes) -> Relations:
    """Actor-context-actor relations with the maps of neighbouring clips."""
    return AcarBankRelations(sizes.reduced or sizes.channels, sizes.relations)


def aia_memory_relations(sizes: Sizes) -> Relations:
    """AIA's interactions with persons, objects and memory, in its best structure."""
    return AiaMemoryRelations(sizes.channels, width=sizes.width, dropout=min(sizes.dropout, 0.2))


ACO_R = {"grid": grid_relations, "factored": factored_relations}
REDUCED = (grid_relations, factored_relations, acar_relations, acar_bank_relations)
"""Relations that see maps after a 1×1 convolution; AIA has its own layers for that."""

LOGITS: HeadForm = partial(EvidenceHead, function="relu")
"""One logit per action; evidence is read off it as ReLU(h) and ReLU(−h), the paper's rule for rivals."""
TIED_EXP: HeadForm = EvidenceHead
LITERAL: HeadForm = partial(EvidenceHead, parameterisation="independent", function="relu")
"""The head as printed: two ReLU outputs per action."""


def aia_relations(structure: Structure) -> Callable[[Sizes], Relations]:
    """AIA's interactions with persons and objects, in the given structure."""
    return lambda sizes: AiaRelations(
        sizes.channels,
        width=sizes.width,
        structure=structure,
        dropout=min(sizes.dropout, 0.2),
    )


def _relation_model(relations: Callable[[Sizes], Relations], head: HeadForm) -> Callable[[Sizes], nn.Module]:
    def build(sizes: Sizes) -> nn.Module:
        chosen = ACO_R[sizes.aco_r] if sizes.aco_r and relations in ACO_R.values() else relations
        related = chosen(sizes)
        outputs = head(related.dim, sizes.num_classes)
        reduction = None
        if relations in REDUCED and sizes.reduced is not None:
            reduction = nn.Conv2d(sizes.channels, sizes.reduced, 1, bias=False)
        return RelationModel(related, outputs, reduction=reduction, sampling=sizes.sampling)

    return build


_ENN = _relation_model(without_relations, DirichletHead)


def _afac(sizes: Sizes) -> nn.Module:
    return AfacModel(sizes.channels, sizes.num_classes, width=sizes.width // 2, sampling=sizes.sampling)


def _dear_model(sizes: Sizes, *, sees_time: bool) -> nn.Module:
    return DearModel(
        sizes.channels,
        sizes.num_classes,
        width=sizes.width // 2,
        dropout=sizes.dropout,
        sees_time=sees_time,
        sampling=sizes.sampling,
    )


def _dear(name: str, source: str, *, sees_time: bool) -> System:
    build = partial(_dear_model, sees_time=sees_time)
    return System(name, source, build, minimise_dear, "dirichlet", readout="linear", pools_once=False)


_M_EDC = {STATIC_BIAS: Constraint()}
_PAPER = "Zhao et al., CVPR 2023"


def _mule(name: str, reading: str, head: HeadForm, evidence: EvidenceKind) -> list[System]:
    """A variant of MULE, and the same without each of its parts (Table 2)."""
    whole, alone = _relation_model(grid_relations, head), _relation_model(without_relations, head)
    sigmoid = _relation_model(grid_relations, LOGITS)
    source, row = f"{_PAPER}; {reading}", f"{_PAPER}; {reading}, Table 2"
    beta, bce = Debiased(), Debiased(of_logits=True)
    return [
        System(name, source, whole, beta, evidence, _M_EDC),
        System(f"{name}-without-aco-r", row, alone, beta, evidence, _M_EDC),
        System(f"{name}-without-beta-enn", f"{row}: BCE, evidence = ReLU(h)", sigmoid, bce, "read", _M_EDC),
        System(f"{name}-without-m-edc", row, whole, minimise_beta, evidence),
    ]


def with_memory(network: System) -> System:
    """Add an evidence memory of its training actors to a network; every system gets the same recipe."""
    return replace(
        network,
        name=f"{network.name}-memory",
        source=f"{network.name} with an evidence memory; novelty by {DECIDING_SCORE}",
        trained_as=network.name,
        decides_by=DECIDING_SCORE,
    )


def _given_labels(network: System) -> System:
    """Constrain the outputs of a network not to depend on the scene, given the labels."""
    return replace(
        network,
        name=f"{network.name}-given-labels",
        source=f"{network.name}, debiased given the labels",
        objective=Debiased(of_logits=not network.learns_evidence, given_labels=True),
        constraints=_M_EDC,
    )


def _contrasted(network: System) -> System:
    """Add a contrastive loss on the features of a network."""
    name = f"{network.name}-contrast"
    source = f"{network.name}, and features by SupCon (Khosla et al., NeurIPS 2020) with Jaccard weights"
    return replace(network, name=name, source=source, objective=Contrasted(network.objective))


def _plain(
    name: str, source: str, relations: Callable[[Sizes], Relations], backbone: str = "slowfast"
) -> System:
    return System(name, source, _relation_model(relations, LOGITS), minimise_bce, "read", backbone=backbone)


_MULE = _mule("mule", "tied exponential evidence", TIED_EXP, "tied")
_BCE = _plain("bce-aco-r", "sigmoid and BCE on ACO-R, the twin of MULE without evidence", grid_relations)
_VARIANTS = (
    _given_labels(_MULE[0]),
    _given_labels(_BCE),
    _contrasted(_MULE[0]),
    _contrasted(_BCE),
)
"""Variants tried before the default was chosen, each beside the same network with cross-entropy."""

SYSTEMS: Mapping[str, System] = {
    system.name: system
    for system in (
        *_MULE,
        *_mule("mule-literal", "as printed", LITERAL, "independent"),
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
        _plain(
            "acar-bank",
            "Pan et al., CVPR 2021; with the feature bank, which the network fills itself",
            acar_bank_relations,
        ),
        _plain(
            "aia",
            "Tang et al., ECCV 2020; dense serial, with the asynchronous memory",
            aia_memory_relations,
        ),
        _plain("aia-serial", "Tang et al., ECCV 2020; without memory", aia_relations("serial")),
        _plain("aia-dense-serial", "Tang et al., ECCV 2020; without memory", aia_relations("dense_serial")),
        _plain("aia-parallel", "Tang et al., ECCV 2020; without memory", aia_relations("parallel")),
        System(
            "afac",
            "Zhang et al., CVPR 2021; re-implemented",
            _afac,
            minimise_bce,
            "read",
            readout=None,
            pools_once=False,
        ),
        _dear("dear", "Bao et al., ICCV 2021; on the bounding volume of each actor", sees_time=True),
        _dear("dear-pooled", "Bao et al., ICCV 2021; on the pooled actor feature", sees_time=False),
        System(
            "enn", "Sensoy et al., NeurIPS 2018; on the pooled actor feature", _ENN, minimise_enn, "dirichlet"
        ),
    )
}
