"""Novelty scores that do well on several data sets: finished comparisons side by side.

outcomes on one data set ─┬─▶ per network: AUROC and place of every score on each data set ─▶ Spearman's ρ
outcomes on others ───────╯
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import isfinite
from pathlib import Path

import numpy as np
from scipy.stats import rankdata

from mule.core.errors import AnnotationError, RangeError
from mule.evaluation.tables import Line, Sheet, TableNumber
from studies.outcomes import read_outcomes

FEWEST_SCORES = 3
"""Two scores are in the same order half of the time by chance."""

Aurocs = Mapping[str, Mapping[str, float]]
"""The mean AUROC by network, then by score."""


@dataclass(frozen=True)
class Agreement:
    """The scores of one network on several data sets."""

    network: str
    scores: tuple[str, ...]
    """Scores that all data sets have, ordered by the sum of their places."""
    auroc: tuple[tuple[float, ...], ...]
    """For each score, its AUROC on every data set."""
    place: tuple[tuple[float, ...], ...]
    """For each score, its place on every data set: 1 is the best, equal scores share a place."""

    def correlation(self, other: int) -> float:
        """Return Spearman's ρ of the first data set and another; NaN where all scores of one are equal."""
        first, second = np.array(self.place)[:, [0, other]].T
        if np.ptp(first) == 0 or np.ptp(second) == 0:
            return float("nan")
        return float(np.corrcoef(first, second)[0, 1])


def read_aurocs(path: Path) -> Aurocs:
    """Read the mean AUROC of every network by every score from the outcomes of a comparison.

    Raises:
        AnnotationError: the file cannot be read, or a line is wrong; the message names both.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise AnnotationError(
            f"{path}: must be outcomes of a comparison; {error}. Give OUT/outcomes-SIDE.csv of "
            "`mule compare --out OUT`."
        ) from None
    trials: dict[str, dict[str, list[float]]] = {}
    for each in read_outcomes(text, name=str(path)):
        if each.measure == "auroc" and isfinite(each.value):
            trials.setdefault(each.method, {}).setdefault(each.score, []).append(each.value)
    return {
        network: {score: float(np.mean(values)) for score, values in scores.items()}
        for network, scores in trials.items()
    }


def agreements(*data_sets: Aurocs) -> list[Agreement]:
    """Return the agreement of every network that has at least three scores on all data sets.

    Raises:
        RangeError: there is no such network.
    """
    shared = [name for name in data_sets[0] if all(name in each for each in data_sets)]
    judged = [_agreement(name, [each[name] for each in data_sets]) for name in shared]
    comparable = [each for each in judged if len(each.scores) >= FEWEST_SCORES]
    if not comparable:
        networks = "; ".join(", ".join(each) or "none" for each in data_sets)
        raise RangeError(
            f"comparisons must share a network with {FEWEST_SCORES} scores; their networks are {networks}."
        )
    return comparable


def agreement_sheets(found: Sequence[Agreement], data_sets: Sequence[str]) -> dict[str, Sheet]:
    """Return a table of how far the data sets agree, and one for each network."""
    titles = (
        "Network",
        "Scores",
        *(f"ρ of {data_sets[0]} and {other}" for other in data_sets[1:]),
        *(f"Best on {data_set}" for data_set in data_sets),
    )
    lines = tuple(
        Line(
            (
                each.network,
                str(len(each.scores)),
                *(f"{each.correlation(other):.2f}" for other in range(1, len(data_sets))),
                *(_best(each, data_set) for data_set in range(len(data_sets))),
            )
        )
        for each in found
    )
    note = (
        "Spearman's ρ of the places of all scores: 1 if both data sets order them alike, 0 if one order "
        "says nothing about the other."
    )
    return {"": Sheet(titles, lines, notes=(note,))} | {
        each.network: agreement_sheet(each, data_sets) for each in found
    }


def _agreement(network: str, data_sets: Sequence[Mapping[str, float]]) -> Agreement:
    scores = [name for name in data_sets[0] if all(name in data_set for data_set in data_sets)]
    auroc = np.array([[data_set[name] for data_set in data_sets] for name in scores]).reshape(
        -1, len(data_sets)
    )
    place = np.stack([rankdata(-column) for column in auroc.T], axis=1)
    order = np.argsort(place.sum(axis=1), kind="stable")
    return Agreement(
        network,
        tuple(scores[at] for at in order),
        tuple(tuple(row) for row in auroc[order].tolist()),
        tuple(tuple(row) for row in place[order].tolist()),
    )


def _best(each: Agreement, data_set: int) -> str:
    at = int(np.argmax([pair[data_set] for pair in each.auroc]))
    return f"{each.scores[at]} ({100 * each.auroc[at][data_set]:.2f})"


def agreement_sheet(each: Agreement, data_sets: Sequence[str]) -> Sheet:
    """Return every score of a network with its AUROC and its place on each data set."""
    best = np.max(each.auroc, axis=0)
    lines = tuple(
        Line(
            (
                score,
                *(
                    (TableNumber(f"{100 * value:.2f}", is_marked=bool(value == most)),)
                    for value, most in zip(auroc, best, strict=True)
                ),
                *(f"{number:g}" for number in place),
            )
        )
        for score, auroc, place in zip(each.scores, each.auroc, each.place, strict=True)
    )
    titles = (
        "Score",
        *(f"AUROC on {data_set} ↑" for data_set in data_sets),
        *(f"place on {data_set}" for data_set in data_sets),
    )
    return Sheet(titles, lines)
