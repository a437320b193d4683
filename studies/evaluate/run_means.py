"""Several runs of each system, judged on the same data: the mean AUROC of every score."""

from collections.abc import Mapping, Sequence

import numpy as np

from mule.evaluation.open_set import OpenSetMeasures
from mule.evaluation.tables import Line, Sheet, TableNumber
from mule.inference.results import SideResult

JudgedRun = Mapping[str, SideResult]
"""The results of a run by the title of their column."""


def mean_sheets(runs: Sequence[JudgedRun]) -> dict[str, Sheet]:
    """Return a table for each system, the best score of the first column first, closed-set mAP last.

    All runs must have the same columns.
    """
    by_system: dict[str, list[JudgedRun]] = {}
    for columns in runs:
        by_system.setdefault(next(iter(columns.values())).system, []).append(columns)
    return {system: _sheet(own_runs) for system, own_runs in by_system.items()}


def _sheet(runs: Sequence[JudgedRun]) -> Sheet:
    sides = tuple(runs[0])
    means = {
        name: tuple(_mean_auroc(runs, side, name) for side in sides) for name in runs[0][sides[0]].scores
    }
    best = [
        max((each[at] for each in means.values() if not np.isnan(each[at])), default=0.0)
        for at in range(len(sides))
    ]
    ordered = sorted(means.items(), key=lambda each: -np.nan_to_num(each[1][0]))
    lines = tuple(Line((name, *map(_number, values, best))) for name, values in ordered)
    mean_ap = [float(np.mean([each[side].mean_ap for each in runs])) for side in sides]
    below = Line(("closed-set mAP", *(_number(value, np.inf) for value in mean_ap)))
    note = (
        f"AUROC in percent, mean over {len(runs)} run{'s' if len(runs) > 1 else ''}; the largest of a column "
        "is bold. "
    ) + " ".join(f"{side}: {_counted(runs, side)}." for side in sides)
    return Sheet(("Score", *(f"{side} ↑" for side in sides)), (*lines, below), notes=(note,))


def _number(value: float, most: float) -> tuple[TableNumber, ...]:
    text = "–" if np.isnan(value) else f"{100 * value:.2f}"
    return (TableNumber(text, is_marked=bool(value == most)),)


def _mean_auroc(runs: Sequence[JudgedRun], side: str, score: str) -> float:
    """NaN if a run lacks this score or has no novel actors."""
    measures = [each[side].scores[score].measures if score in each[side].scores else None for each in runs]
    return float(np.mean([each.auroc if isinstance(each, OpenSetMeasures) else np.nan for each in measures]))


def _counted(runs: Sequence[JudgedRun], side: str) -> str:
    known, novel = [each[side].num_known for each in runs], [each[side].num_novel for each in runs]
    return f"{_span(known)} known and {_span(novel)} novel actors"


def _span(counts: Sequence[int]) -> str:
    low, high = min(counts), max(counts)
    return f"{low}" if low == high else f"{low} to {high}"
