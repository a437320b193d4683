"""Bootstrap confidence intervals of the open-set metrics, at a cost that does not grow with the actors."""

from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Int

from mule.core.errors import RangeError
from mule.metrics import MEASURES, OperatingCurve

MAX_BINS = 20_000
COUNTS_AT_ONCE = 1 << 16  # small enough to stay in the cache


FEW_PER_BIN = 10  # below this, drawing the actors one by one is quicker than drawing their histogram


class Interval(NamedTuple):
    """Lower and upper end of a confidence interval."""

    low: float
    high: float


def bootstrap_intervals(
    curve: OperatingCurve, *, level: float = 0.95, resamples: int = 1000, seed: int = 0
) -> dict[str, Interval]:
    """Percentile bootstrap interval of every measure, by name.

    Known and novel actors are resampled separately, so their numbers stay fixed. Drawing n actors with
    replacement is drawing their histogram over the distinct scores from a multinomial; the quicker is done.
    With more than 20,000 distinct scores, neighbours are first put together into at most 20,000 bins of
    about equal count; the interval is then shifted by what this changed in the measure itself.

    Args:
        curve: from `operating_curve`.
        level: share of resamples between the two ends.
        resamples: how many times the actors are drawn again.
        seed: of the generator; the same seed gives the same interval.
    """
    if not 0 < level < 1:
        raise RangeError(f"the confidence level must lie between 0 and 1; got {level}.")
    if resamples < 1:
        raise RangeError(f"an interval needs at least one resample; got {resamples}.")
    coarse = coarsened(curve, MAX_BINS)
    draws = _resampled_measures(coarse, resamples, np.random.default_rng(seed))
    tails = (0.5 - level / 2, 0.5 + level / 2)
    intervals: dict[str, Interval] = {}
    for name, measure in MEASURES.items():
        shift = float(measure(curve)) - float(measure(coarse)) if coarse is not curve else 0.0
        low, high = np.clip(np.quantile(draws[name], tails) + shift, 0.0, 1.0)
        intervals[name] = Interval(float(low), float(high))
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
    """Counts at or above each threshold when as many actors are drawn again, with replacement."""
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
