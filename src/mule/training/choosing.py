"""From an experiment to its system: what the catalogue states, with what the experiment changes."""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path

from mule.core.config import ConfigError, load_experiment, systems_by_row
from mule.core.errors import did_you_mean
from mule.core.settings import BackboneSettings, Experiment
from mule.features.weights.card import BackboneName
from mule.features.weights.cards import WEIGHT_CARDS
from mule.systems.catalogue import SYSTEMS, System, find_system
from mule.systems.design import (
    PRINTED_BASE_RATE,
    PRINTED_REDUCTION,
    SIZES,
    HeadOptions,
    ObjectiveOptions,
    Sizes,
)

_INNER_STEPS = "objective.inner_steps"


def load_for_training(path: Path, settings: Sequence[str] = (), system: str | None = None) -> Experiment:
    """Load an experiment for a system, or a row, of the given name; by default for its own.

    Raises:
        ConfigError: the file cannot be read, no system or row has that name, or the system cannot take a setting.
    """
    named = [] if system is None else [f"system={system}"]
    return settled(load_experiment(path, [*settings, *named]), settings, rows=systems_by_row(path))


def settled(experiment: Experiment, settings: Sequence[str] = (), *, rows: Iterable[str] = ()) -> Experiment:
    """Return the experiment with what its system states: one step per batch without a constraint; the loss as printed.

    Args:
        experiment: as loaded.
        settings: what was set on top of its file; a number of steps that contradicts the system is refused.
        rows: names of the file's rows, for the message about an unknown name.

    Raises:
        ConfigError: there is no such system, or it cannot take a setting.
    """
    name = experiment.system
    if name not in SYSTEMS:
        known = [*rows, *(each for each in SYSTEMS if each not in rows)]
        raise ConfigError(
            f"system must be one of {', '.join(known)}; got {name!r}.{did_you_mean(name, known)}"
        )
    require_family(system_of(experiment), experiment.backbone)
    if SYSTEMS[name].is_as_printed:
        experiment = _as_printed(experiment)
    steps = experiment.objective.inner_steps
    if steps <= 1 or not SYSTEMS[name].takes_one_step:
        return experiment
    if any(each.partition("=")[0].strip() == _INNER_STEPS for each in settings):
        raise ConfigError(
            f"{_INNER_STEPS} must be 0 or 1 for {name}, which has no constraint and takes one step per batch; got {steps}. "
            f"Remove --set {_INNER_STEPS}."
        )
    return experiment.model_copy(
        update={"objective": experiment.objective.model_copy(update={"inner_steps": 1})}
    )


def _as_printed(experiment: Experiment) -> Experiment:
    """Return the experiment with a summed loss and a base rate of 1 where it sets neither.

    They are written into the experiment, not stated by the system: a run that was trained without them keeps its own.
    """
    evidence, objective = experiment.evidence, experiment.objective
    changed: dict[str, object] = {}
    if evidence.base_rate is None:
        changed["evidence"] = evidence.model_copy(update={"base_rate": PRINTED_BASE_RATE})
    if objective.reduction is None:
        changed["objective"] = objective.model_copy(update={"reduction": PRINTED_REDUCTION})
    return experiment.model_copy(update=changed)


def inner_steps_of(experiment: Experiment) -> int:
    """Return the optimiser steps per batch: those of the experiment, or one for a system without constraints."""
    steps = experiment.objective.inner_steps
    return min(steps, 1) if find_system(experiment.system).takes_one_step else steps


def system_of(experiment: Experiment) -> System:
    """Return the system of an experiment, with what the experiment changes in its head and its objective.

    Raises:
        RangeError: there is no such system, or it does not have what is to be changed.
    """
    head, objective = experiment.evidence, experiment.objective
    system = find_system(experiment.system).adapted(
        HeadOptions(head.parameterisation, head.function, head.bias),
        ObjectiveOptions(
            objective.reduction, objective.estimator, objective.bandwidth, objective.within_clips
        ),
    )
    return system if head.base_rate is None else replace(system, base_rate=head.base_rate)


def sizes_of(experiment: Experiment, *, channels: int, num_classes: int) -> Sizes:
    """Return the sizes of everything after the backbone."""
    sizes = SIZES[experiment.sizes](channels, num_classes)
    pooling = experiment.pooling.model_dump(exclude_none=True)
    return replace(sizes, aco_r=experiment.relations, sampling=replace(sizes.sampling, **pooling))


def family_of(settings: BackboneSettings) -> BackboneName | None:
    """Return the family of a backbone; None for the tiny one."""
    card = WEIGHT_CARDS.get(settings.name)
    return None if card is None else card.backbone


def require_family(system: System, settings: BackboneSettings) -> None:
    """Require that a system that is a backbone itself is built on that backbone.

    Raises:
        ConfigError: the experiment's backbone is of another family.
    """
    if system.backbone not in (None, family_of(settings)):
        fits = [name for name, card in WEIGHT_CARDS.items() if card.backbone == system.backbone]
        raise ConfigError(
            f"system {system.name} must see with a backbone of the family {system.backbone}; backbone.name is "
            f"{settings.name!r}. Set it to one of {', '.join(fits)}, or use --system slowfast, the same head on any backbone."
        )
