"""Fair budgets: as many gradient steps for every row, or as much time.

A step of the primal-dual average is `inner_steps` gradient steps on one batch, so steps are counted as
epochs × batches × max(m, 1).
"""

import json
from collections.abc import Mapping, Sequence
from math import lcm
from pathlib import Path
from statistics import median
from time import perf_counter

import torch

from mule.comparison.rows import Contestant
from mule.core.config import ConfigError, Experiment, StageData
from mule.core.files import write_file
from mule.objective.primal_dual import PrimalDual
from mule.training.build import build_parts
from mule.training.data import Noted, table_sides
from mule.training.step import BatchObjective, Silence

WARM_UP, TIMED = 2, 5
TIMES = "equal_time.json"


def gradient_steps(experiment: Experiment) -> int:
    """How many gradient steps a training takes to its end."""
    inner_steps = max(experiment.objective.inner_steps, 1)
    return experiment.training.epochs * batches_per_epoch(experiment) * inner_steps


def batches_per_epoch(experiment: Experiment) -> int:
    """Batches of an epoch; those of a table are counted in the table."""
    data = experiment.data
    if isinstance(data, StageData):
        return data.train_clips // experiment.training.batch_clips
    first, _ = table_sides(data).train_actors.clips()
    return len(first) // experiment.training.batch_clips


def require_equal_steps(contestants: Sequence[Contestant]) -> None:
    """Every experiment takes as many gradient steps as the others.

    Raises:
        ConfigError: they do not; each is named with its number.
    """
    patient = [each.name for each in contestants if each.experiment.training.patience_epochs is not None]
    if patient:
        raise ConfigError(
            "rows of a comparison must train to their end, or their steps would differ; training.patience_epochs is set "
            f"in {', '.join(patient)}. Take it away (--set training.patience_epochs=)."
        )
    steps = {each.name: gradient_steps(each.experiment) for each in contestants}
    if len(set(steps.values())) > 1:
        told = ", ".join(f"{name} {number}" for name, number in steps.items())
        raise ConfigError(
            f"rows must take equally many gradient steps (epochs × batches × inner steps); got {told}. Change "
            "training.epochs, or compare at equal time (--equal time)."
        )


def with_steps(contestants: Sequence[Contestant], steps: int) -> tuple[Contestant, ...]:
    """The experiments over as many epochs as make so many gradient steps, their schedules stretched alike.

    Raises:
        ConfigError: to some of them that is no whole number of epochs.
    """
    of_epoch = {each.name: gradient_steps(stretched(each.experiment, 1)) for each in contestants}
    together = lcm(*of_epoch.values())
    if steps < 1 or steps % together:
        told = ", ".join(f"{name} {number}" for name, number in of_epoch.items())
        raise ConfigError(
            f"--steps must be whole epochs of every row; got {steps}, and an epoch of gradient steps is {told}. Choose a "
            f"multiple of {together}."
        )
    return tuple(
        Contestant(each.name, stretched(each.experiment, steps // of_epoch[each.name]))
        for each in contestants
    )


def at_equal_time(contestants: Sequence[Contestant], out: Path, *, noted: Noted) -> tuple[Contestant, ...]:
    """The experiments with as many epochs as take the time of the first one's, its schedule stretched alike.

    Steps are timed in turns in this process, once; what was measured is kept in `out`, so that a comparison that goes
    on does so with the same epochs.
    """
    path, found = out / TIMES, dict[str, float]()
    asked = {each.name: each.experiment.model_dump_json(exclude={"loading"}) for each in contestants}
    if path.exists():
        kept = json.loads(path.read_text(encoding="utf-8"))
        found = kept["epoch_s"] if kept["experiments"] == asked else {}
    if not found:
        noted(f"timing {TIMED} steps of each of {len(contestants)} experiments")
        found = epoch_seconds(contestants)
        out.mkdir(parents=True, exist_ok=True)
        write_file(path, json.dumps({"experiments": asked, "epoch_s": found}, indent=2) + "\n")
    first = contestants[0]
    budget_s = first.experiment.training.epochs * found[first.name]
    fitted = [
        Contestant(each.name, stretched(each.experiment, max(round(budget_s / found[each.name]), 1)))
        for each in contestants
    ]
    for before, after in zip(contestants, fitted, strict=True):
        noted(
            f"{after.name}: {found[after.name]:.1f} s per epoch, so {after.experiment.training.epochs} epochs instead of "
            f"{before.experiment.training.epochs}"
        )
    return tuple(fitted)


def stretched(experiment: Experiment, epochs: int) -> Experiment:
    """The same experiment over another number of epochs: warm-up and milestones keep their share of it."""
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
    """Seconds of an epoch's steps of each experiment: the median of a few, taken in turns."""
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
    """A training of which only steps are taken, to time them; nothing of it is kept."""

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
        """Seconds of one more step; reading the batch does not count, others do that meanwhile."""
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
