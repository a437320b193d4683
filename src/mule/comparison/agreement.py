"""Which novelty scores do well in one world and in others: finished comparisons beside each other.

outcomes of one ────┬─▶ network by network: AUROC of every score in all, its place in each ─▶ Spearman's ρ
outcomes of others ─╯
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import isfinite
from pathlib import Path

import numpy as np
from scipy.stats import rankdata

from mule.core.errors import AnnotationError, RangeError
from mule.evaluation.formats import read_outcomes
from mule.evaluation.tables import Line, LineGroup, Sheet, TableNumber

FEWEST_SCORES = 3
"""An order of two is a coin's."""

Aurocs = Mapping[str, Mapping[str, float]]
"""By network, then by score."""


@dataclass(frozen=True)
class Agreement:
    """One network's scores in several worlds."""

    network: str
    scores: tuple[str, ...]
    """Those judged in all of them, by the sum of their places."""
    auroc: tuple[tuple[float, ...], ...]
    """Of each score, world by world."""
    place: tuple[tuple[float, ...], ...]
    """1 is the best; scores that do equally well share a place."""

    def correlation(self, other: int) -> float:
        """Spearman's ρ of the first world and another: 1 where both put the scores in one order; NaN where one knows no order."""
        first, second = np.array(self.place)[:, [0, other]].T
        if np.ptp(first) == 0 or np.ptp(second) == 0:
            return float("nan")
        return float(np.corrcoef(first, second)[0, 1])


def read_aurocs(path: Path) -> Aurocs:
    """The mean AUROC over trials of every network by every score, from the outcomes that a comparison wrote.

    Raises:
        AnnotationError: the file cannot be read, or is no such file; the message names it and the line.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise AnnotationError(
            f"{path}: must be outcomes of a comparison; {error}. Give OUT/outcomes-SIDE.csv of `mule compare --out OUT`."
        ) from None
    trials: dict[str, dict[str, list[float]]] = {}
    for each in read_outcomes(text, name=str(path)):
        if each.measure == "auroc" and isfinite(each.value):
            trials.setdefault(each.method, {}).setdefault(each.score, []).append(each.value)
    return {
        network: {score: float(np.mean(values)) for score, values in scores.items()}
        for network, scores in trials.items()
    }


def agreements(*worlds: Aurocs) -> list[Agreement]:
    """Every network that all worlds judged by the same three scores or more.

    Raises:
        RangeError: there is none.
    """
    shared = [name for name in worlds[0] if all(name in world for world in worlds)]
    judged = [_agreement(name, [world[name] for world in worlds]) for name in shared]
    found = [each for each in judged if len(each.scores) >= FEWEST_SCORES]
    if not found:
        networks = "; ".join(", ".join(world) or "none" for world in worlds)
        raise RangeError(
            f"comparisons must share a network with {FEWEST_SCORES} scores; their networks are {networks}."
        )
    return found


def agreement_sheets(found: Sequence[Agreement], worlds: Sequence[str]) -> dict[str, Sheet]:
    """A table for each network, and before them one of how far the worlds agree."""
    titles = (
        "Network",
        "Scores",
        *(f"ρ of {worlds[0]} and {other}" for other in worlds[1:]),
        *(f"Best on {world}" for world in worlds),
    )
    lines = tuple(
        Line(
            (
                each.network,
                str(len(each.scores)),
                *(f"{each.correlation(other):.2f}" for other in range(1, len(worlds))),
                *(_best(each, world) for world in range(len(worlds))),
            )
        )
        for each in found
    )
    note = (
        "Spearman's ρ of the places of all scores: 1 where both put them in one order, 0 where neither says anything of "
        "the other."
    )
    return {"": Sheet(titles, (LineGroup("", lines),), notes=(note,))} | {
        each.network: agreement_sheet(each, worlds) for each in found
    }


def _agreement(network: str, worlds: Sequence[Mapping[str, float]]) -> Agreement:
    scores = [name for name in worlds[0] if all(name in world for world in worlds)]
    auroc = np.array([[world[name] for world in worlds] for name in scores]).reshape(-1, len(worlds))
    place = np.stack([rankdata(-column) for column in auroc.T], axis=1)
    order = np.argsort(place.sum(axis=1), kind="stable")
    return Agreement(
        network,
        tuple(scores[at] for at in order),
        tuple(tuple(row) for row in auroc[order].tolist()),
        tuple(tuple(row) for row in place[order].tolist()),
    )


def _best(each: Agreement, world: int) -> str:
    at = int(np.argmax([pair[world] for pair in each.auroc]))
    return f"{each.scores[at]} ({100 * each.auroc[at][world]:.2f})"


def agreement_sheet(each: Agreement, worlds: Sequence[str], *, judged: str = "Score") -> Sheet:
    """Every score of a network with its AUROC and its place in each world; `judged` is the title of what has them."""
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
        judged,
        *(f"AUROC on {world} ↑" for world in worlds),
        *(f"place on {world}" for world in worlds),
    )
    return Sheet(titles, (LineGroup("", lines),))
