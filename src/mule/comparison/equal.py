"""Fair budgets: every row takes the same number of gradient steps, the same number of epochs, or the same time.

A step of the primal-dual average is `inner_steps` gradient steps on one batch, so steps are counted as
epochs × batches × max(m, 1).
"""

import json
from collections.abc import Mapping, Sequence
from math import lcm
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import Annotated

import torch
from pydantic import BaseModel, ConfigDict, Field

from mule.comparison.rows import Contestant, batches_per_epoch, gradient_steps
from mule.core.config import ConfigError
from mule.core.files import write_file
from mule.core.settings import Experiment
from mule.objective.primal_dual import PrimalDual
from mule.training.build import build_parts
from mule.training.data import Noted
from mule.training.step import BatchObjective, Silence

WARM_UP, TIMED = 2, 5
TIMES = "equal_time.json"


def require_equal_steps(contestants: Sequence[Contestant]) -> None:
    """Require that every experiment takes the same number of gradient steps.

    Raises:
        ConfigError: they differ; the message lists the number of each.
    """
    _require_no_patience(contestants)
    steps = {each.name: gradient_steps(each.experiment) for each in contestants}
    if len(set(steps.values())) > 1:
        listed = ", ".join(f"{name} {number}" for name, number in steps.items())
        raise ConfigError(
            f"rows must take equally many gradient steps (epochs × batches × inner steps); got {listed}. Change "
            "training.epochs, or compare at equal epochs or time (--equal epochs|time)."
        )


def require_equal_epochs(contestants: Sequence[Contestant]) -> None:
    """Require that every experiment sees its data equally often, as in the paper's Table 1.

    Raises:
        ConfigError: the epochs differ, or a row may stop early; the message lists the epochs of each.
    """
    _require_no_patience(contestants)
    epochs = {each.name: each.experiment.training.epochs for each in contestants}
    if len(set(epochs.values())) > 1:
        listed = ", ".join(f"{name} {number}" for name, number in epochs.items())
        raise ConfigError(
            f"rows must train for equally many epochs; got {listed}. Change training.epochs, or compare at equal steps or "
            "time (--equal)."
        )


def _require_no_patience(contestants: Sequence[Contestant]) -> None:
    patient = [each.name for each in contestants if each.experiment.training.patience_epochs is not None]
    if patient:
        raise ConfigError(
            "rows must not stop early, or their gradient steps would differ; training.patience_epochs is set in "
            f"{', '.join(patient)}. Remove it (--set training.patience_epochs=)."
        )


def with_steps(contestants: Sequence[Contestant], steps: int) -> tuple[Contestant, ...]:
    """The experiments with the epochs that give this many gradient steps, their schedules stretched accordingly.

    Raises:
        ConfigError: it is not a whole number of epochs for some of them.
    """
    of_epoch = {each.name: gradient_steps(stretched(each.experiment, 1)) for each in contestants}
    together = lcm(*of_epoch.values())
    if steps < 1 or steps % together:
        listed = ", ".join(f"{name} {number}" for name, number in of_epoch.items())
        raise ConfigError(
            f"--steps must be a whole number of epochs for every row; got {steps}, and the gradient steps per epoch are "
            f"{listed}. Choose a multiple of {together}."
        )
    return tuple(
        Contestant(each.name, stretched(each.experiment, steps // of_epoch[each.name]))
        for each in contestants
    )


def at_equal_time(contestants: Sequence[Contestant], out: Path, *, noted: Noted) -> tuple[Contestant, ...]:
    """The experiments with the epochs that take as long as those of the first, their schedules stretched accordingly.

    Steps are timed once, in turns, in this process. The times are saved in `out`, so a resumed comparison
    uses the same epochs.
    """
    path = out / TIMES
    timed = {each.name: each.experiment.model_dump_json(exclude={"loading"}) for each in contestants}
    epoch_s = read_times(path, timed)
    if not epoch_s:
        noted(f"timing {TIMED} steps of each of {len(contestants)} experiments")
        epoch_s = dict(epoch_seconds(contestants))
        out.mkdir(parents=True, exist_ok=True)
        write_file(path, json.dumps({"experiments": timed, "epoch_s": epoch_s}, indent=2) + "\n")
    first = contestants[0]
    budget_s = first.experiment.training.epochs * epoch_s[first.name]
    fitted = [
        Contestant(each.name, stretched(each.experiment, max(round(budget_s / epoch_s[each.name]), 1)))
        for each in contestants
    ]
    for before, after in zip(contestants, fitted, strict=True):
        noted(
            f"{after.name}: {epoch_s[after.name]:.1f} s per epoch, so {after.experiment.training.epochs} epochs instead of "
            f"{before.experiment.training.epochs}"
        )
    return tuple(fitted)


def read_times(path: Path, timed: Mapping[str, str]) -> dict[str, float]:
    """Return the seconds per epoch that were measured of these experiments; empty if there are none that can be used."""
    try:
        kept = _Times.model_validate_json(path.read_bytes())
    except (OSError, ValueError):
        return {}
    return kept.epoch_s if kept.experiments == timed and kept.epoch_s.keys() == timed.keys() else {}


class _Times(BaseModel):
    """What was measured, and of what."""

    model_config = ConfigDict(strict=True)

    experiments: dict[str, str]
    epoch_s: dict[str, Annotated[float, Field(gt=0, allow_inf_nan=False)]]


def stretched(experiment: Experiment, epochs: int) -> Experiment:
    """The same experiment with another number of epochs; warm-up and milestones scale with it."""
    share = epochs / experiment.training.epochs
    schedule = experiment.schedule
    moved = schedule.model_copy(
        update={
            "warmup_epochs": schedule.warmup_epochs * share,
            "milestones": tuple(each * share for each in schedule.milestones),
        }
    )
    training = experiment.training.model_copy(update={"epochs": epochs})
    return experiment.model_copy(update={"schedule": moved, "training": training})


def epoch_seconds(contestants: Sequence[Contestant]) -> Mapping[str, float]:
    """Seconds per epoch of each experiment, from the median of a few steps taken in turns."""
    timed = {each.name: _TimedSteps(each.experiment) for each in contestants}
    taken: dict[str, list[float]] = {name: [] for name in timed}
    for _ in range(WARM_UP + TIMED):
        for name, steps in timed.items():
            taken[name].append(steps.take())
    return {
        each.name: median(taken[each.name][WARM_UP:]) * batches_per_epoch(each.experiment)
        for each in contestants
    }


class _TimedSteps:
    """A training that only times steps; nothing is saved."""

    def __init__(self, experiment: Experiment) -> None:
        alone = experiment.model_copy(
            update={"loading": experiment.loading.model_copy(update={"workers": 0})}
        )
        self.parts, _ = build_parts(alone, device=torch.device("cpu"), listener=Silence())
        self.parts.model.train()
        self.primal_dual = PrimalDual(
            self.parts.model,
            self.parts.optimizer,
            self.parts.constraints,
            inner_steps=self.parts.inner_steps,
            measures_with=self.parts.measures_with,
        )
        self.batches = iter(self.parts.train)

    def take(self) -> float:
        """Take one more step and return its seconds, without the time to read the batch."""
        batch = next(self.batches, None)
        if batch is None:
            self.batches = iter(self.parts.train)
            batch = next(self.batches)
        started_at = perf_counter()
        parts = self.parts
        self.primal_dual.step(
            BatchObjective(parts.model, batch, parts.objective, progress=0.0, labels_of=parts.labels_of)
        )
        return perf_counter() - started_at
