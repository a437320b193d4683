"""Outcomes of trials and their summary: mean, deviation, paired differences, which values are best.

    Outcome, Outcome, …  ─▶  Comparison  ─▶  TrialSummary of a (method, score, measure)
    one number of one trial                  Difference between two of them, on the trials both have

A trial is a class split and a seed. Seeds of one split share its classes and its test actors, so where there
are several splits the split is the unit of a difference and its seeds are averaged first.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from math import isfinite, isinf, nan
from typing import Literal, NamedTuple

import numpy as np
from scipy.special import stdtrit

from mule.core.errors import NotFinite, RangeError

LEVEL = 0.95
_PROBLEMS_SHOWN = 5


class Trial(NamedTuple):
    """One run of every method: the split of classes into known and novel, and the seed."""

    split: str
    seed: int


class Contender(NamedTuple):
    """A method read by one of its novelty scores; the score is empty where a measure needs none."""

    method: str
    score: str


@dataclass(frozen=True)
class Outcome:
    """One number from one trial of one method; NaN where the measure is undefined."""

    method: str
    measure: str
    value: float
    trial: Trial
    score: str = ""
    """The novelty score; empty for measures without one, such as closed-set mAP."""
    interval: tuple[float, float] | None = None
    """Its bootstrap confidence interval within this trial."""


@dataclass(frozen=True)
class Measure:
    """A column of a table: the measure, its title, and whether higher is better."""

    key: str
    title: str
    better: Literal["higher", "lower", "neither"]
    has_scores: bool = True
    """Whether there is one value per novelty score, or only one per method."""
    scale: float = 100.0
    decimals: int = 2

    def shown(self, value: float) -> str:
        """The value as printed; a dash if it is undefined."""
        return f"{self.scale * value:.{self.decimals}f}".replace("-", "−") if isfinite(value) else "–"


PAPER_MEASURES: tuple[Measure, ...] = (
    Measure("detection_error", "Error", "lower"),
    Measure("auroc", "AUROC", "higher"),
    Measure("aupr_novel", "AUPR", "higher"),
    Measure("fpr_at_95_tpr", "FPR at 95 % TPR", "lower"),
    Measure("map", "Closed-set mAP", "higher", has_scores=False),
)


@dataclass(frozen=True)
class MethodRow:
    """How a method is listed: its name, and whether it is ours."""

    method: str
    is_ours: bool = False


@dataclass(frozen=True)
class TrialSummary:
    """Mean over the trials in which a value is defined; the deviation is NaN with fewer than two."""

    mean: float
    deviation: float
    num_trials: int
    interval: tuple[float, float] | None
    """The interval of the only trial, if there is one."""


class Difference(NamedTuple):
    """Mean of paired differences and its confidence interval, NaN with fewer than two pairs."""

    mean: float
    low: float
    high: float
    num_units: int
    unit: Literal["split", "seed"]

    @property
    def is_clear(self) -> bool:
        """Whether the interval exists and excludes zero."""
        return self.low > 0 or self.high < 0


@dataclass(frozen=True)
class Comparison:
    """Methods in the order of the table, and their outcomes."""

    rows: tuple[MethodRow, ...]
    measures: tuple[Measure, ...]
    outcomes: tuple[Outcome, ...]

    def __post_init__(self) -> None:
        problems = _problems([row.method for row in self.rows], self.outcomes)
        if problems:
            more = f"; and {len(problems) - _PROBLEMS_SHOWN} more" if len(problems) > _PROBLEMS_SHOWN else ""
            raise RangeError(
                f"a comparison must have consistent rows and outcomes: {'; '.join(problems[:_PROBLEMS_SHOWN])}{more}."
            )
        infinite = [each for each in self.outcomes if isinf(each.value)]
        if infinite:
            first = infinite[0]
            raise NotFinite(
                f"an outcome must be a number, or NaN where it is undefined; {first.measure} of {first.method!r} is "
                f"{first.value} in trial {tuple(first.trial)}."
            )

    @cached_property
    def trials(self) -> tuple[Trial, ...]:
        """Every trial that any method has, in order."""
        return tuple(sorted({each.trial for each in self.outcomes}))

    @cached_property
    def _by_place(self) -> dict[tuple[Contender, str], dict[Trial, Outcome]]:
        places: dict[tuple[Contender, str], dict[Trial, Outcome]] = {}
        for each in self.outcomes:
            contender = Contender(each.method, each.score)
            places.setdefault((contender, each.measure), {})[each.trial] = each
        return places

    def scores(self, method: str) -> tuple[str, ...]:
        """The novelty scores of a method, in order of appearance."""
        return tuple(
            dict.fromkeys(each.score for each in self.outcomes if each.method == method and each.score)
        )

    def contenders(self, measure: Measure) -> tuple[Contender, ...]:
        """What has a value in this column: each method, or each of its scores."""
        if not measure.has_scores:
            return tuple(Contender(row.method, "") for row in self.rows)
        return tuple(Contender(row.method, score) for row in self.rows for score in self.scores(row.method))

    def values(self, contender: Contender, measure: Measure) -> dict[Trial, float]:
        """The value of each trial, where it is defined."""
        outcomes = self._by_place.get((contender, measure.key), {})
        return {trial: each.value for trial, each in sorted(outcomes.items()) if isfinite(each.value)}

    def summary(self, contender: Contender, measure: Measure) -> TrialSummary:
        """Mean and deviation over trials."""
        values = list(self.values(contender, measure).values())
        mean = float(np.mean(values)) if values else nan
        deviation = float(np.std(values, ddof=1)) if len(values) > 1 else nan
        outcomes = self._by_place.get((contender, measure.key), {})
        only = next(iter(outcomes.values())) if len(outcomes) == 1 and len(values) == 1 else None
        return TrialSummary(mean, deviation, len(values), only.interval if only else None)

    def best(self, contenders: Iterable[Contender], measure: Measure) -> frozenset[Contender]:
        """The best mean and every value indistinguishable from it; empty if that would be all.

        Only contenders that have every trial take part. A value is indistinguishable from the best if it is
        printed the same, if the interval of their paired difference contains zero, or, with a single trial,
        if it lies in the interval of the best value.
        """
        values = {each: self.values(each, measure) for each in contenders}
        every = set[Trial]().union(*values.values())
        complete = [each for each, its in values.items() if every and set(its) == every]
        if measure.better == "neither" or len(complete) < 2:
            return frozenset()
        sign = 1 if measure.better == "higher" else -1
        first = max(complete, key=lambda each: sign * self.summary(each, measure).mean)
        best = [each for each in complete if each == first or self._is_like(each, first, measure)]
        return frozenset(best if len(best) < len(complete) else ())

    def _is_like(self, other: Contender, first: Contender, measure: Measure) -> bool:
        theirs, best = self.summary(other, measure), self.summary(first, measure)
        if measure.shown(theirs.mean) == measure.shown(best.mean):
            return True
        if best.num_trials == 1:
            return best.interval is not None and best.interval[0] <= theirs.mean <= best.interval[1]
        return not paired_difference(self.values(other, measure), self.values(first, measure)).is_clear


def paired_difference(
    values: Mapping[Trial, float], others: Mapping[Trial, float], *, level: float = LEVEL
) -> Difference:
    """Mean of `values` − `others` over the trials both have, with Student's interval of that mean.

    The units are class splits, with seeds averaged within each. With one split the units are its seeds, and
    the interval does not cover other classes.

    >>> a = {Trial("A", 0): 0.5, Trial("A", 1): 0.7, Trial("A", 2): 0.6}
    >>> paired_difference(a, {trial: value - 0.1 for trial, value in a.items()}).mean.__round__(6)
    0.1
    """
    if not 0 < level < 1:
        raise RangeError(f"the confidence level must lie between 0 and 1; got {level}.")
    common = [trial for trial in values if trial in others]
    by_split: dict[str, list[float]] = {}
    for trial in common:
        by_split.setdefault(trial.split, []).append(values[trial] - others[trial])
    unit = "split" if len(by_split) > 1 else "seed"
    groups = [[float(np.mean(its))] if unit == "split" else its for its in by_split.values()]
    units = np.array([difference for group in groups for difference in group])
    mean = float(units.mean()) if len(units) else nan
    half = nan
    if len(units) > 1:
        half = float(stdtrit(len(units) - 1, 0.5 + level / 2) * units.std(ddof=1) / np.sqrt(len(units)))
    return Difference(mean, mean - half, mean + half, len(units), unit)


def _problems(methods: list[str], outcomes: tuple[Outcome, ...]) -> list[str]:
    twice = [name for name in dict.fromkeys(methods) if methods.count(name) > 1]
    unlisted = dict.fromkeys(each.method for each in outcomes if each.method not in methods)
    problems = [f"method {name!r} has two rows" for name in twice]
    problems += [f"method {name!r} has outcomes and no row" for name in unlisted]
    seen = set[tuple[str, str, str, Trial]]()
    for each in outcomes:
        place = (each.method, each.score, each.measure, each.trial)
        if place in seen:
            problems.append(
                f"{each.measure} of {each.method!r} ({each.score or 'no score'}) is given twice for {tuple(each.trial)}"
            )
        seen.add(place)
    return problems
