"""How good a novelty is on the tested actors of class splits, and how sure that is."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float, Int

from mule.evaluation.outcomes import Outcome
from mule.metrics import auroc, fpr_at_tpr

ALARM_RATE = 0.05
NUM_DRAWS = 500


class Judged(NamedTuple):
    """The novelty of the tested actors of one class split, by one method."""

    seed: int
    novelty: Float[np.ndarray, " actors"]
    is_novel: Bool[np.ndarray, " actors"]
    action: Int[np.ndarray, " actors"]
    film: Int[np.ndarray, " actors"]
    is_named: Bool[np.ndarray, " actors"]
    p_value: Float[np.ndarray, " actors"] | None = None
    """Where a method promises a rate of false alarms."""


SYSTEMS: Mapping[str, tuple[str, str]] = {
    "slowfast": ("cross-entropy", "joint-energy"),
    "bce-aco-r": ("cross-entropy, relations", "joint-energy"),
    "mule-without-aco-r": ("evidence, constraint", "PE of log"),
    "mule-without-m-edc": ("evidence, relations", "PE of log"),
    "mule": ("evidence, relations, constraint", "PE of log"),
    "mule-literal": ("all three as printed", "PE"),
}
"""What each network has, and the score that was registered for it."""
MEASURES = (
    "auroc",
    "auroc_named",
    "auroc_unnamed",
    "fpr95",
    "novel_flagged",
    "known_flagged",
    "novel_flagged_promised",
)


def measured(judged: Judged) -> dict[str, float]:
    """Return every measure of one class split, in percent; NaN where a split has no such actors."""
    novelty, is_novel = judged.novelty, judged.is_novel
    fpr = fpr_at_tpr(novelty, is_novel)
    found = {
        "auroc": auroc(novelty, is_novel),
        "auroc_named": _against_known(judged, judged.is_named),
        "auroc_unnamed": _against_known(judged, np.logical_not(judged.is_named)),
        "fpr95": fpr,
        "novel_flagged": 1 - fpr,
    }
    if judged.p_value is not None:
        is_flagged = judged.p_value <= ALARM_RATE
        found |= {
            "known_flagged": float(is_flagged[~is_novel].mean()),
            "novel_flagged_promised": float(is_flagged[is_novel].mean()),
        }
    return {name: 100 * value for name, value in found.items()}


def _against_known(judged: Judged, chosen: Bool[np.ndarray, " actors"]) -> float:
    kept = ~judged.is_novel | chosen
    if not (judged.is_novel & chosen).any():
        return float("nan")
    return auroc(judged.novelty[kept], judged.is_novel[kept])


def mean_of(rows: Sequence[Mapping[str, float]]) -> dict[str, float]:
    """Return the mean of every measure over the class splits that have it."""
    return {
        name: float(np.nanmean([row[name] for row in rows]))
        for name in MEASURES
        if any(name in row and not np.isnan(row[name]) for row in rows)
    }


def weighted_auroc(
    novelty: Float[np.ndarray, " actors"],
    is_novel: Bool[np.ndarray, " actors"],
    weight: Float[np.ndarray, "draws actors"],
) -> Float[np.ndarray, " draws"]:
    """Return AUROC where actors count as often as drawn, draw by draw; NaN where one side is empty."""
    values, place = np.unique(novelty, return_inverse=True)
    order = np.argsort(place, kind="stable")
    starts = np.searchsorted(place[order], np.arange(len(values)))
    known, novel = (
        np.add.reduceat((weight * chosen)[:, order], starts, axis=1) for chosen in (~is_novel, is_novel)
    )
    won = (novel * (known.cumsum(axis=1) - known / 2)).sum(axis=1)
    total = known.sum(axis=1) * novel.sum(axis=1)
    return np.where(total > 0, won / np.where(total > 0, total, 1), np.nan)


def interval(
    ours: Sequence[Judged],
    theirs: Sequence[Judged] | None = None,
    *,
    unnamed_only: bool = False,
    num_draws: int = NUM_DRAWS,
    seed: int = 0,
) -> tuple[float, float]:
    """Return the 95 % interval of the mean AUROC, or of a paired difference, in percent.

    Class splits, actions and films are drawn with replacement together.
    """
    draw = np.random.default_rng(seed)
    num_films = 1 + max(int(each.film.max()) for each in ours)
    num_actions = 1 + max(int(each.action.max()) for each in ours)
    films = draw.multinomial(num_films, np.full(num_films, 1 / num_films), size=num_draws)
    actions = draw.multinomial(num_actions, np.full(num_actions, 1 / num_actions), size=num_draws)
    splits = draw.multinomial(len(ours), np.full(len(ours), 1 / len(ours)), size=num_draws)
    values = np.empty((num_draws, len(ours)))
    for at, each in enumerate(ours):
        weight = films[:, each.film] * actions[:, each.action].astype(float)
        if unnamed_only:
            weight = weight * (~each.is_novel | ~each.is_named)
        values[:, at] = weighted_auroc(each.novelty, each.is_novel, weight)
        if theirs is not None:
            values[:, at] -= weighted_auroc(theirs[at].novelty, theirs[at].is_novel, weight)
    counted = splits * ~np.isnan(values)
    totals = counted.sum(axis=1)  # 0 where no split that was drawn has both known and novel actors left
    sums = np.where(np.isnan(values), 0, values * splits).sum(axis=1)
    low, high = np.quantile(100 * sums[totals > 0] / totals[totals > 0], [0.025, 0.975])
    return float(low), float(high)


def systems_beside(
    outcomes: Sequence[Outcome], *, num_draws: int = NUM_DRAWS, seed: int = 0
) -> list[dict[str, str]]:
    """Return the AUROC of each network by its own score, and the closed form minus it on the same people.

    Intervals resample class splits only.
    """
    by_trial = {
        (each.method, each.score, each.trial): 100 * each.value
        for each in outcomes
        if each.measure == "auroc"
    }
    draw = np.random.default_rng(seed)
    rows: list[dict[str, str]] = []
    for name, (parts, score) in SYSTEMS.items():
        trials = sorted({trial for method, _, trial in by_trial if method == name})
        own = np.array([by_trial[name, score, trial] for trial in trials])
        closed = np.array([by_trial[name, "seen", trial] for trial in trials])
        drawn = draw.integers(len(trials), size=(num_draws, len(trials)))
        low, high = np.quantile((closed - own)[drawn].mean(axis=1), [0.025, 0.975])
        rows.append(
            {
                "system": name,
                "parts": parts,
                "score": score,
                "splits": str(len(trials)),
                "auroc": f"{own.mean():.2f}",
                "closed_form": f"{closed.mean():.2f}",
                "closed_minus": f"{(closed - own).mean():.2f}",
                "low": f"{low:.2f}",
                "high": f"{high:.2f}",
            }
        )
    return rows
