"""Bootstrap confidence intervals of the open-set metrics, by resampling actors or clips.

`bootstrap_intervals` resamples actors; its cost does not grow with their number.

`draw_clips` resamples clips, because actors of one clip share a scene and are not independent. Clips of one
video are drawn together for the same reason; a rendered clip is a video of its own. A resample weighs every
actor by how often its clip was drawn. All scores of a comparison use the same resamples, so their differences
are paired.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float, Int

from mule.core.errors import RangeError
from mule.metrics import MEASURES, OperatingCurve, operating_curve

MAX_BINS = 20_000
COUNTS_AT_ONCE = 1 << 16  # small enough to stay in the cache
FEW_PER_BIN = 10  # below this, drawing the actors one by one is quicker than drawing their histogram


class ConfidenceInterval(NamedTuple):
    """Lower and upper end of a confidence interval."""

    low: float
    high: float


def bootstrap_intervals(
    curve: OperatingCurve, *, level: float = 0.95, resamples: int = 1000, seed: int = 0
) -> dict[str, ConfidenceInterval]:
    """Percentile bootstrap interval of every measure, by name.

    Known and novel actors are resampled separately, so their numbers stay fixed. Drawing n actors with
    replacement equals drawing their histogram over the distinct scores from a multinomial; the quicker way is
    taken. More than 20,000 distinct scores are first merged into at most 20,000 bins of about equal count;
    the interval is then shifted by how much that changed the measure itself.

    Args:
        curve: from `operating_curve`.
        level: share of resamples between the two ends.
        resamples: how many times to resample the actors.
        seed: of the generator; the same seed gives the same interval.
    """
    if not 0 < level < 1:
        raise RangeError(f"the confidence level must lie between 0 and 1; got {level}.")
    if resamples < 1:
        raise RangeError(f"an interval needs at least one resample; got {resamples}.")
    coarse = coarsened(curve, MAX_BINS)
    draws = _resampled_measures(coarse, resamples, np.random.default_rng(seed))
    tails = (0.5 - level / 2, 0.5 + level / 2)
    intervals: dict[str, ConfidenceInterval] = {}
    for name, measure in MEASURES.items():
        shift = float(measure(curve)) - float(measure(coarse)) if coarse is not curve else 0.0
        low, high = np.clip(np.quantile(draws[name], tails) + shift, 0.0, 1.0)
        intervals[name] = ConfidenceInterval(float(low), float(high))
    return intervals


def _resampled_measures(
    curve: OperatingCurve, resamples: int, generator: np.random.Generator
) -> dict[str, Float[np.ndarray, " resamples"]]:
    at_once = max(1, COUNTS_AT_ONCE // len(curve.thresholds))
    draws: dict[str, list[Float[np.ndarray, " resamples"]]] = {name: [] for name in MEASURES}
    for start in range(0, resamples, at_once):
        size = min(at_once, resamples - start)
        resampled = OperatingCurve(
            thresholds=curve.thresholds,
            novel_flagged=resampled_flags(curve.novel_flagged, size, generator),
            known_flagged=resampled_flags(curve.known_flagged, size, generator),
        )
        for name, measure in MEASURES.items():
            draws[name].append(np.asarray(measure(resampled)))
    return {name: np.concatenate(parts) for name, parts in draws.items()}


def resampled_flags(
    flagged: Int[np.ndarray, " thresholds"], size: int, generator: np.random.Generator
) -> Int[np.ndarray, "resamples thresholds"]:
    """Counts at or above each threshold after resampling the actors with replacement."""
    counts = np.diff(flagged, prepend=0)
    occupied = np.flatnonzero(counts)
    total = int(flagged[-1])
    redrawn = np.zeros((size, len(flagged)), dtype=np.int64)
    if total < FEW_PER_BIN * len(occupied):
        bins = np.repeat(np.arange(len(flagged)), counts)
        for row in redrawn:
            row += np.bincount(bins[generator.integers(0, total, total)], minlength=len(row))
    else:
        redrawn[:, occupied] = generator.multinomial(total, counts[occupied] / total, size=size)
    return np.cumsum(redrawn, axis=1, out=redrawn)


def coarsened(curve: OperatingCurve, max_bins: int) -> OperatingCurve:
    """The curve at no more than `max_bins` of its thresholds, with about equally many actors between them."""
    if len(curve.thresholds) <= max_bins:
        return curve
    flagged = curve.novel_flagged + curve.known_flagged
    bins = (flagged - 1) * max_bins // flagged[-1]
    ends = np.append(np.flatnonzero(np.diff(bins)), len(bins) - 1)
    return OperatingCurve(
        thresholds=curve.thresholds[ends],
        novel_flagged=curve.novel_flagged[ends],
        known_flagged=curve.known_flagged[ends],
    )


WEIGHTS_AT_ONCE = 1 << 21
_LEAST_SHARE = 0.9
"""Share of resamples that must have known and novel actors; otherwise there is no interval."""

PerDraw = Float[np.ndarray, " draws"]
_Weights = Float[np.ndarray, "draws actors"]


@dataclass(frozen=True)
class ClipDraws:
    """How often each resample has each clip, and the clip of each actor."""

    counts: Int[np.ndarray, "draws clips"]
    clip_of_actor: Int[np.ndarray, " actors"]
    """Clips are numbered from 0; clips without actors are drawn too."""
    seed: int

    def weights(self) -> Iterator[_Weights]:
        """The weight of each actor in each resample, a few resamples at a time."""
        at_once = max(1, WEIGHTS_AT_ONCE // max(len(self.clip_of_actor), 1))
        for start in range(0, len(self.counts), at_once):
            yield self.counts[start : start + at_once, self.clip_of_actor].astype(np.float64)


def draw_clips(
    clip_of_actor: Int[np.ndarray, " actors"], *, num_clips: int, resamples: int, seed: int = 0
) -> ClipDraws:
    """Resample the clips with replacement."""
    if resamples < 1 or num_clips < 1:
        raise RangeError(f"resampling needs at least 1 resample and 1 clip; got {resamples} and {num_clips}.")
    shares = np.full(num_clips, 1 / num_clips)
    counts = np.random.default_rng(seed).multinomial(num_clips, shares, size=resamples)
    return ClipDraws(counts.astype(np.int32), clip_of_actor, seed)


def drawn_measures(
    novelty: Float[np.ndarray, " actors"], is_novel: Bool[np.ndarray, " actors"], draws: ClipDraws
) -> dict[str, PerDraw]:
    """Every open-set measure in every resample; NaN in a resample without known or without novel actors."""
    parts = [weighted_measures(novelty, is_novel, weights) for weights in draws.weights()]
    return {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}


def drawn_auroc(
    novelty: Float[np.ndarray, " actors"], is_novel: Bool[np.ndarray, " actors"], draws: ClipDraws
) -> PerDraw:
    """AUROC in every resample, equal to that of `drawn_measures` but several times as fast.

    A novel actor counts the weight of the known actors below it, and half the weight of those equal to it.
    """
    operating_curve(novelty, is_novel)  # raises if they are not valid
    order = np.argsort(novelty, kind="stable")
    starts = np.append(0, np.flatnonzero(np.diff(novelty[order])) + 1)  # of runs of equal novelty
    parts: list[PerDraw] = []
    for weights in draws.weights():
        ordered = weights[:, order]
        known, novel = (
            np.add.reduceat(ordered * kind[order], starts, axis=1)
            for kind in (np.logical_not(is_novel), is_novel)
        )
        below = np.cumsum(known, axis=1) - known / 2
        with np.errstate(invalid="ignore"):
            parts.append((novel * below).sum(axis=1) / (novel.sum(axis=1) * known.sum(axis=1)))
    return np.concatenate(parts)


def weighted_measures(
    novelty: Float[np.ndarray, " actors"], is_novel: Bool[np.ndarray, " actors"], weights: _Weights
) -> dict[str, PerDraw]:
    """The measures of `mule.metrics` with weighted actors; NaN where no known or no novel actor has weight."""
    thresholds = operating_curve(novelty, is_novel).thresholds
    order = np.argsort(-novelty, kind="stable")
    ends = np.append(np.flatnonzero(np.diff(novelty[order])), len(order) - 1)
    ordered = weights[:, order]
    novel, known = (
        np.cumsum(ordered * kind[order], axis=1)[:, ends] for kind in (is_novel, np.logical_not(is_novel))
    )
    curve = OperatingCurve(thresholds, novel_flagged=novel, known_flagged=known)
    is_undefined = (novel[:, -1] == 0) | (known[:, -1] == 0)
    with np.errstate(invalid="ignore", divide="ignore"):
        measures = {name: measure(curve) for name, measure in MEASURES.items()}
    return {name: np.where(is_undefined, np.nan, values) for name, values in measures.items()}


def interval_of(draws: PerDraw, *, level: float = 0.95) -> ConfidenceInterval | None:
    """Return the interval that holds the middle `level` of the resamples; None if many are undefined."""
    defined = draws[~np.isnan(draws)]
    if len(defined) < _LEAST_SHARE * len(draws):
        return None
    low, high = np.quantile(defined, (0.5 - level / 2, 0.5 + level / 2))
    return ConfidenceInterval(float(low), float(high))


def intervals_of(
    measures: Mapping[str, PerDraw], *, level: float = 0.95
) -> dict[str, ConfidenceInterval] | None:
    """The interval of every measure; None if one has none."""
    intervals = {name: interval_of(draws, level=level) for name, draws in measures.items()}
    defined = {name: each for name, each in intervals.items() if each is not None}
    return defined if len(defined) == len(intervals) else None
