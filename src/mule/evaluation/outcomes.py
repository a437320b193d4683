"""What trials gave, and what they say together: mean, deviation, paired differences, which values are best.

    Outcome, Outcome, …  ─▶  Comparison  ─▶  Summary of a (method, score, measure)
    one number of one trial                  Difference between two of them, on the trials both have

A trial is a class split and a seed. Seeds of one split share its classes and its test actors, so where there are
several splits the split is the unit of a difference and its seeds are averaged first.
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
    """One number that one trial of one method gave; NaN where the measure is undefined."""

    method: str
    measure: str
    value: float
    trial: Trial
    score: str = ""
    """The novelty score it was measured on; empty for what needs none, such as closed-set mAP."""
    interval: tuple[float, float] | None = None
    """Its confidence interval within this trial, as a bootstrap over actors gives it."""


@dataclass(frozen=True)
class Measure:
    """A column: which number, under which title, and which way is up."""

    key: str
    title: str
    better: Literal["higher", "lower", "neither"]
    has_scores: bool = True
    """Whether there is one value per novelty score, or one for the method."""
    scale: float = 100.0
    decimals: int = 2

    def shown(self, value: float) -> str:
        """The value as it is printed; a dash where it is undefined."""
        return f"{self.scale * value:.{self.decimals}f}".replace("-", "−") if isfinite(value) else "–"


PAPER_MEASURES: tuple[Measure, ...] = (
    Measure("detection_error", "Error", "lower"),
    Measure("auroc", "AUROC", "higher"),
    Measure("aupr_novel", "AUPR", "higher"),
    Measure("fpr_at_95_tpr", "FPR at 95 % TPR", "lower"),
    Measure("map", "Closed-set mAP", "higher", has_scores=False),
)
OTHER_POSITIVE_MEASURES: tuple[Measure, ...] = (
    Measure("aupr_known", "AUPR, known positive", "higher"),
    Measure("fpr_at_95_tpr_novel", "FPR at 95 % TPR, novel positive", "lower"),
    Measure("min_detection_error", "Least error", "lower"),
)


@dataclass(frozen=True)
class MethodRow:
    """How a method is listed: what stands beside its name, in which block, and whether it is our own."""

    method: str
    facts: tuple[str, ...] = ()
    block: str = ""
    is_ours: bool = False


@dataclass(frozen=True)
class Summary:
    """Mean over the trials in which a value is defined; the deviation is NaN with fewer than two."""

    mean: float
    deviation: float
    num_trials: int
    interval: tuple[float, float] | None
    """Of the only trial, where there is one trial and it came with an interval."""


class Difference(NamedTuple):
    """Mean of paired differences and its confidence interval, NaN where fewer than two units are paired."""

    mean: float
    low: float
    high: float
    num_units: int
    unit: Literal["split", "seed"]

    @property
    def is_clear(self) -> bool:
        """Whether the interval exists and leaves zero out."""
        return self.low > 0 or self.high < 0


@dataclass(frozen=True)
class Comparison:
    """Methods in the order they are listed, and what each trial gave for them."""

    rows: tuple[MethodRow, ...]
    measures: tuple[Measure, ...]
    outcomes: tuple[Outcome, ...]
    fact_titles: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        problems = [*_row_problems(self.rows, self.fact_titles), *_outcome_problems(self.rows, self.outcomes)]
        if problems:
            more = f"; and {len(problems) - _PROBLEMS_SHOWN} more" if len(problems) > _PROBLEMS_SHOWN else ""
            raise RangeError(
                f"the comparison cannot be listed: {'; '.join(problems[:_PROBLEMS_SHOWN])}{more}."
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
        """The novelty scores of a method, in the order in which they came."""
        return tuple(
            dict.fromkeys(each.score for each in self.outcomes if each.method == method and each.score)
        )

    def contenders(self, measure: Measure) -> tuple[Contender, ...]:
        """Who has a value in this column: each method, or each of its scores."""
        if not measure.has_scores:
            return tuple(Contender(row.method, "") for row in self.rows)
        return tuple(Contender(row.method, score) for row in self.rows for score in self.scores(row.method))

    def values(self, contender: Contender, measure: Measure) -> dict[Trial, float]:
        """What each trial gave, where it is defined."""
        outcomes = self._by_place.get((contender, measure.key), {})
        return {trial: each.value for trial, each in sorted(outcomes.items()) if isfinite(each.value)}

    def summary(self, contender: Contender, measure: Measure) -> Summary:
        """Mean and deviation over trials."""
        values = list(self.values(contender, measure).values())
        mean = float(np.mean(values)) if values else nan
        deviation = float(np.std(values, ddof=1)) if len(values) > 1 else nan
        outcomes = self._by_place.get((contender, measure.key), {})
        only = next(iter(outcomes.values())) if len(outcomes) == 1 and len(values) == 1 else None
        return Summary(mean, deviation, len(values), only.interval if only else None)

    def best(self, contenders: Iterable[Contender], measure: Measure) -> frozenset[Contender]:
        """The best mean and every value that cannot be told from it; nobody where that is everybody.

        Only contenders with every trial that any of them has take part. A value cannot be told from the best one
        if it is printed alike, if the interval of their paired difference contains zero, or, with a single trial,
        if it lies in the best value's own interval.
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

    The units are the class splits, seeds averaged within each; with one split they are its seeds, and the interval
    says nothing about other classes.

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


def _row_problems(rows: tuple[MethodRow, ...], fact_titles: tuple[str, ...]) -> list[str]:
    methods = [row.method for row in rows]
    twice = [f"method {name!r} has two rows" for name in dict.fromkeys(methods) if methods.count(name) > 1]
    uneven = [
        f"method {row.method!r} must have {len(fact_titles)} facts, one per title; got {len(row.facts)}"
        for row in rows
        if len(row.facts) != len(fact_titles)
    ]
    return twice + uneven


def _outcome_problems(rows: tuple[MethodRow, ...], outcomes: tuple[Outcome, ...]) -> list[str]:
    listed = {row.method for row in rows}
    unlisted = dict.fromkeys(each.method for each in outcomes if each.method not in listed)
    problems = [f"method {name!r} has outcomes and no row" for name in unlisted]
    seen = set[tuple[str, str, str, Trial]]()
    for each in outcomes:
        place = (each.method, each.score, each.measure, each.trial)
        if place in seen:
            problems.append(
                f"{each.measure} of {each.method!r} ({each.score or 'no score'}) is given twice for {tuple(each.trial)}"
            )
        seen.add(place)
    return problems
