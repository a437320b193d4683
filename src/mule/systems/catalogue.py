"""Every recogniser by name: MULE, MULE without one of its parts, and each rival of the paper.

A system builds a network that turns feature maps and boxes into a `ModelOutput`, and states how that network is trained
(`objective`) and read (`evidence`, `readout`). All systems share backbones, boxes, batches and scores, so a comparison
compares nothing else.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Literal, cast

from torch import Tensor, nn

from mule.core.defaults import BASE_RATE
from mule.core.errors import RangeError, did_you_mean
from mule.core.records import Evidence
from mule.evidence.head import EvidenceFunction, EvidenceHead, Parameterisation
from mule.features.weights.card import BackboneName
from mule.model import Head, ModelOutput, PooledActors, RelationModel, Relations
from mule.novelty.combining import DECIDING_SCORE
from mule.objective.primal_dual import Constraint
from mule.relations.aco import FactoredRelations, GridRelations
from mule.rivals.networks.acar import AcarRelations
from mule.rivals.networks.acar_bank import AcarBankRelations
from mule.rivals.networks.afac import AfacModel
from mule.rivals.networks.aia import AiaRelations, AiaSettings, Structure
from mule.rivals.networks.aia_memory import AiaMemoryRelations
from mule.rivals.networks.dear import DearModel, DearOutput, dear_loss
from mule.rivals.networks.enn import DirichletHead, enn_loss
from mule.systems.design import (
    STATIC_BIAS,
    Contrasted,
    Debiased,
    Fitted,
    HeadOptions,
    ObjectiveOptions,
    OwnLoss,
    Sizes,
    SystemObjective,
    Targets,
)

EvidenceKind = Literal["tied", "independent", "dirichlet", "read"]
"""Where a network's evidence comes from:

* ``"tied"``: Beta evidence from one signed output per action;
* ``"independent"``: Beta evidence from two outputs per action, one for and one against it;
* ``"dirichlet"``: one Dirichlet shared by all actions;
* ``"read"``: no evidence is learned; it is read off the logits of a sigmoid.
"""
HeadForm = Callable[..., Head]
"""Makes a head from the length of a feature, the number of classes, and the given `HeadOptions`."""
FeatureLayer = Literal["head.linear", "linear"]
"""The path, within a network, of the linear layer that turns an actor's feature into outputs."""


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
    function: EvidenceFunction = "relu"
    """The function that turns outputs into Beta evidence, or by which it is read off logits."""
    constraints: Mapping[str, Constraint] = field(default_factory=dict)
    readout: FeatureLayer | None = "head.linear"
    """The last linear layer; None where each action has a feature of its own."""
    pools_once: bool = True
    """Whether the network is a `RelationModel`, which drops no units before or during pooling. Passes with dropout then
    share one pooled scene."""
    backbone: BackboneName | None = None
    """The only family of backbones it is built on, where the system is that backbone; None allows any."""
    averages_steps: bool = False
    """Whether several steps per batch are averaged although there is no constraint: MULE without M-EDC keeps its m."""
    trained_as: str | None = None
    """The system with the same network, bit for bit, where this one adds a memory of the training actors."""
    base_rate: float = BASE_RATE
    """a of Eq. 1, in the Belief score."""
    is_as_printed: bool = False
    """Whether training starts with the paper's summed loss and its base rate of 1, unless the experiment sets others."""
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
        return self.evidence == "independent" and self.function == "relu"

    @property
    def takes_one_step(self) -> bool:
        """Whether training takes one optimiser step per batch: only MULE averages several, with or without its constraint."""
        return not (self.constraints or self.averages_steps)

    def adapted(self, head: HeadOptions, objective: ObjectiveOptions) -> "System":
        """Return the system with what an experiment changes in its head and its objective.

        Raises:
            RangeError: the system does not have what is to be changed; the message names the key.
        """
        given = head.given()
        if given and (self.evidence == "dirichlet" or not self.pools_once):
            raise RangeError(
                f"evidence.{next(iter(given))} must not be set: {self.name} has a head of its own. Remove it, or choose "
                "another system."
            )
        if head.parameterisation is not None and not self.learns_evidence:
            raise RangeError(
                f"evidence.parameterisation must not be set: {self.name} has one logit per action. Remove it, or choose "
                "a system that learns evidence."
            )
        try:
            altered = self.objective.altered(objective)
        except RangeError as error:
            raise RangeError(f"system {self.name}: {error}") from None
        return replace(
            self,
            build=partial(_built, self.build, head) if given else self.build,
            objective=altered,
            evidence=head.parameterisation or self.evidence,
            function=head.function or self.function,
        )

    def readout_layer(self, network: nn.Module) -> nn.Linear | None:
        """Return the last linear layer of a network that `build` made, if all actions share one feature."""
        return None if self.readout is None else cast(nn.Linear, network.get_submodule(self.readout))

    def pair_evidence(self, network: nn.Module) -> Callable[[Tensor], Evidence] | None:
        """Return how the network turns two outputs per action into evidence; None where an action has one logit."""
        return cast(RelationModel, network).head.evidence_from if self.evidence == "independent" else None


def _built(build: Callable[[Sizes], nn.Module], head: HeadOptions, sizes: Sizes) -> nn.Module:
    return build(replace(sizes, head=head))


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
    return AiaMemoryRelations(sizes.channels, _aia_settings(sizes))


ACO_R = {"grid": grid_relations, "factored": factored_relations}
REDUCED = (grid_relations, factored_relations, acar_relations, acar_bank_relations)
"""Relations that see maps after a 1×1 convolution; AIA has its own layers for that."""

LOGITS: HeadForm = partial(EvidenceHead, function="relu")
"""One logit per action; evidence is read off it as ReLU(h) and ReLU(−h), the paper's rule for rivals."""


def aia_relations(structure: Structure) -> Callable[[Sizes], Relations]:
    """AIA's interactions with persons and objects, in the given structure."""
    return lambda sizes: AiaRelations(sizes.channels, _aia_settings(sizes, structure))


def _aia_settings(sizes: Sizes, structure: Structure = "dense_serial") -> AiaSettings:
    return AiaSettings(width=sizes.width, structure=structure, dropout=min(sizes.dropout, 0.2))


def _relation_model(relations: Callable[[Sizes], Relations], head: HeadForm) -> Callable[[Sizes], nn.Module]:
    def build(sizes: Sizes) -> nn.Module:
        chosen = ACO_R[sizes.aco_r] if sizes.aco_r and relations in ACO_R.values() else relations
        related = chosen(sizes)
        outputs = head(related.dim, sizes.num_classes, **sizes.head.given())
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
    return System(name, source, build, OwnLoss(_dear_loss), "dirichlet", readout="linear", pools_once=False)


def _dear_loss(output: ModelOutput, targets: Targets, progress: float) -> Tensor:
    return dear_loss(cast(DearOutput, output), targets, progress=progress)


def _enn_loss(output: ModelOutput, targets: Targets, progress: float) -> Tensor:
    return enn_loss(output, targets, progress=progress)


_M_EDC = {STATIC_BIAS: Constraint()}
_PAPER = "Zhao et al., CVPR 2023"


def _mule(
    name: str,
    reading: str,
    evidence: Parameterisation,
    function: EvidenceFunction,
    *,
    is_as_printed: bool = False,
) -> list[System]:
    """A variant of MULE, and the same without each of its parts (Table 2)."""
    head = partial(EvidenceHead, parameterisation=evidence, function=function)
    whole, alone = _relation_model(grid_relations, head), _relation_model(without_relations, head)
    sigmoid = _relation_model(grid_relations, LOGITS)
    source, row = f"{_PAPER}; {reading}", f"{_PAPER}; {reading}, Table 2"
    beta, bce = Debiased(), Debiased(Fitted(of_logits=True))
    systems = [
        System(name, source, whole, beta, evidence, function, _M_EDC),
        System(f"{name}-without-aco-r", row, alone, beta, evidence, function, _M_EDC),
        System(
            f"{name}-without-beta-enn", f"{row}: BCE, evidence = ReLU(h)", sigmoid, bce, "read",
            constraints=_M_EDC,
        ),
        System(f"{name}-without-m-edc", row, whole, Fitted(), evidence, function, averages_steps=True),
    ]  # fmt: skip
    return [replace(system, is_as_printed=is_as_printed) for system in systems]


def with_memory(network: System) -> System:
    """Add an evidence memory of its training actors to a network; every system gets the same recipe."""
    return replace(
        network,
        name=f"{network.name}-memory",
        source=f"{network.name} with an evidence memory; novelty from both by Fisher's rule",
        trained_as=network.name,
        decides_by=DECIDING_SCORE,
    )


def _given_labels(network: System) -> System:
    """Constrain the outputs of a network not to depend on the scene, given the labels."""
    return replace(
        network,
        name=f"{network.name}-given-labels",
        source=f"{network.name}, debiased given the labels",
        objective=Debiased(Fitted(of_logits=not network.learns_evidence), given_labels=True),
        constraints=_M_EDC,
    )


def _contrasted(network: System) -> System:
    """Add a contrastive loss on the features of a network."""
    name = f"{network.name}-contrast"
    source = f"{network.name}, and features by SupCon (Khosla et al., NeurIPS 2020) with Jaccard weights"
    return replace(network, name=name, source=source, objective=Contrasted(network.objective))


def _plain(
    name: str, source: str, relations: Callable[[Sizes], Relations], backbone: BackboneName | None = None
) -> System:
    build = _relation_model(relations, LOGITS)
    return System(name, source, build, Fitted(of_logits=True), "read", backbone=backbone)


_MULE = _mule("mule", "tied exponential evidence", "tied", "exp")
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
        *_mule(
            "mule-literal",
            "as printed: two ReLU outputs per action, a summed loss, a base rate of 1",
            "independent",
            "relu",
            is_as_printed=True,
        ),
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
            Fitted(of_logits=True),
            "read",
            readout=None,
            pools_once=False,
        ),
        _dear("dear", "Bao et al., ICCV 2021; on the bounding volume of each actor", sees_time=True),
        _dear("dear-pooled", "Bao et al., ICCV 2021; on the pooled actor feature", sees_time=False),
        System(
            "enn",
            "Sensoy et al., NeurIPS 2018; on the pooled actor feature",
            _ENN,
            OwnLoss(_enn_loss),
            "dirichlet",
        ),
    )
}
