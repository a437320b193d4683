"""Which novelty scores do well in one world and in another: two finished comparisons beside each other.

outcomes of one ─┬─▶ network by network: AUROC of every score in both, its place in both ─▶ Spearman's ρ
outcomes of two ─╯
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import isfinite
from pathlib import Path

import numpy as np
from scipy.stats import rankdata

from mule.errors import AnnotationError, RangeError
from mule.report.formats import read_outcomes
from mule.report.tables import Block, Line, Number, Sheet

FEWEST_SCORES = 3
"""An order of two is a coin's."""

Aurocs = Mapping[str, Mapping[str, float]]
"""By network, then by score."""


@dataclass(frozen=True)
class Agreement:
    """One network's scores in two worlds."""

    network: str
    scores: tuple[str, ...]
    """Those judged in both, by the sum of their places."""
    auroc: tuple[tuple[float, float], ...]
    place: tuple[tuple[float, float], ...]
    """1 is the best; scores that do equally well share a place."""

    @property
    def correlation(self) -> float:
        """Spearman's ρ: 1 where both worlds put the scores in one order; NaN where one knows no order."""
        first, second = np.array(self.place).T
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


def agreements(first: Aurocs, second: Aurocs) -> list[Agreement]:
    """Every network that both worlds judged by the same three scores or more.

    Raises:
        RangeError: there is none.
    """
    found = [
        _agreement(name, first[name], second[name])
        for name in first
        if name in second and len(first[name].keys() & second[name].keys()) >= FEWEST_SCORES
    ]
    if not found:
        raise RangeError(
            f"two comparisons must share a network with {FEWEST_SCORES} scores; one has {', '.join(first) or 'none'}, "
            f"the other {', '.join(second) or 'none'}."
        )
    return found


def agreement_sheets(found: Sequence[Agreement], worlds: tuple[str, str]) -> dict[str, Sheet]:
    """A table for each network, and before them one of how far the two worlds agree."""
    titles = ("Network", "Scores", "Spearman's ρ", f"Best on {worlds[0]}", f"Best on {worlds[1]}")
    lines = tuple(
        Line((each.network, str(len(each.scores)), f"{each.correlation:.2f}", _best(each, 0), _best(each, 1)))
        for each in found
    )
    note = "ρ of the places of all scores: 1 where both put them in one order, 0 where neither says anything of the other."
    return {"": Sheet(titles, (Block("", lines),), notes=(note,))} | {
        each.network: _sheet(each, worlds) for each in found
    }


def _agreement(network: str, first: Mapping[str, float], second: Mapping[str, float]) -> Agreement:
    scores = [name for name in first if name in second]
    auroc = np.array([(first[name], second[name]) for name in scores])
    place = np.stack([rankdata(-column) for column in auroc.T], axis=1)
    order = np.argsort(place.sum(axis=1), kind="stable")
    return Agreement(
        network,
        tuple(scores[at] for at in order),
        tuple((float(one), float(two)) for one, two in auroc[order]),
        tuple((float(one), float(two)) for one, two in place[order]),
    )


def _best(each: Agreement, world: int) -> str:
    at = int(np.argmax([pair[world] for pair in each.auroc]))
    return f"{each.scores[at]} ({100 * each.auroc[at][world]:.2f})"


def _sheet(each: Agreement, worlds: tuple[str, str]) -> Sheet:
    best = np.max(each.auroc, axis=0)
    lines = tuple(
        Line(
            (
                score,
                *(
                    (Number(f"{100 * value:.2f}", is_marked=bool(value == most)),)
                    for value, most in zip(auroc, best, strict=True)
                ),
                *(f"{number:g}" for number in place),
            )
        )
        for score, auroc, place in zip(each.scores, each.auroc, each.place, strict=True)
    )
    titles = (
        "Score",
        *(f"AUROC on {world} ↑" for world in worlds),
        *(f"place on {world}" for world in worlds),
    )
    return Sheet(titles, (Block("", lines),))
