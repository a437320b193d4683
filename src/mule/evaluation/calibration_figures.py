"""Whether probabilities hold: the reliability diagram over all (actor, class) pairs, and its expected error."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from jaxtyping import Bool, Float, Int

from mule.core.errors import RangeError, ShapeError
from mule.evaluation.drawing import (
    GRID,
    INK,
    PALE,
    TEXT_PT,
    MethodStyle,
    name_left,
    panels,
    style_of,
    title,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_Z = 1.959964  # 97.5 % of the normal distribution
_FLOOR = -0.2


@dataclass(frozen=True)
class Reliability:
    """How often a class holds among the pairs whose probability fell into each bin of equal width."""

    predicted: Float[np.ndarray, " bins"]
    """Mean probability of the pairs in the bin; NaN where there are none."""
    observed: Float[np.ndarray, " bins"]
    """Share of them in which the actor does the class; NaN where there are none."""
    counts: Int[np.ndarray, " bins"]
    expected_error: float
    """ECE: |observed − predicted|, averaged over pairs."""


def reliability(
    probabilities: Float[np.ndarray, "actors classes"],
    targets: Bool[np.ndarray, "actors classes"],
    *,
    num_bins: int = 15,
) -> Reliability:
    """Every (actor, class) pair counted once, in bins of equal width; the last one holds probability 1 too.

    >>> found = reliability(np.array([[0.2, 0.4], [0.2, 0.8]]), np.array([[False, True], [False, True]]), num_bins=2)
    >>> found.counts.tolist(), found.observed.round(3).tolist(), round(found.expected_error, 3)
    ([3, 1], [0.333, 1.0], 0.1)
    """
    if probabilities.shape != targets.shape:
        raise ShapeError(
            f"probabilities and targets must have one entry per actor and class; got {probabilities.shape} and "
            f"{targets.shape}."
        )
    flat = probabilities.ravel().astype(np.float64)
    if not ((flat >= 0) & (flat <= 1)).all():
        raise RangeError(
            f"probabilities must lie between 0 and 1; {np.count_nonzero(~((flat >= 0) & (flat <= 1)))} do not."
        )
    bins = np.minimum((flat * num_bins).astype(np.int64), num_bins - 1)
    counts = np.bincount(bins, minlength=num_bins)
    sums = [
        np.bincount(bins, weights=each, minlength=num_bins) for each in (flat, targets.ravel().astype(float))
    ]
    predicted, observed = (
        np.divide(total, counts, out=np.full(num_bins, np.nan), where=counts > 0) for total in sums
    )
    error = float(np.nansum(counts * np.abs(observed - predicted)) / max(len(flat), 1))
    return Reliability(predicted, observed, counts, error)


def reliability_figure(
    methods: Sequence[tuple[str, Reliability]], *, styles: dict[str, MethodStyle]
) -> "Figure":
    """Observed frequency against probability, one panel per method; below zero, how many pairs each bin holds (log).

    Bars show a 95 % interval of the frequency (Wilson). Pairs of one actor depend on each other, so they are narrow.
    """
    figure, grid = panels(len(methods), width_in=2.35, height_in=2.75)
    for axes, (name, found) in zip(grid, methods, strict=True):
        _draw_reliability(axes, found, style_of(name, styles))
        title(axes, name, below=f"ECE {100 * found.expected_error:.2f} %, {found.counts.sum():,} pairs")
        name_left(axes, "observed frequency")
    figure.supxlabel("probability (all pairs of actor and class)", fontsize=TEXT_PT, color=INK)
    return figure


def _draw_reliability(axes: "Axes", found: Reliability, style: MethodStyle) -> None:
    axes.plot([0, 1], [0, 1], color=PALE, linewidth=0.8, linestyle=(0, (3, 2)), zorder=1)
    filled = found.counts > 0
    predicted, observed, counts = found.predicted[filled], found.observed[filled], found.counts[filled]
    axes.vlines(predicted, predicted, observed, color=style.colour, alpha=0.25, linewidth=4, zorder=2)
    low, high = _wilson(observed, counts)
    axes.vlines(predicted, low, high, color=style.colour, linewidth=0.9, zorder=3)
    axes.plot(
        predicted, observed, "o-", color=style.colour, markersize=3.2, linewidth=1.1, zorder=4, clip_on=False
    )
    _draw_counts(axes, found)
    axes.set(xlim=(0, 1), ylim=(_FLOOR, 1), xticks=[0, 0.5, 1], yticks=[0, 0.25, 0.5, 0.75, 1])
    axes.set_box_aspect(1 - _FLOOR)


def _draw_counts(axes: "Axes", found: Reliability) -> None:
    """Bars below zero, on a logarithmic scale of their own: most pairs have a probability near zero."""
    edges = np.linspace(0, 1, len(found.counts) + 1)
    height = np.log1p(found.counts) / max(float(np.log1p(found.counts.max(initial=1))), 1.0)
    axes.stairs(_FLOOR - 0.8 * _FLOOR * height, edges, baseline=_FLOOR, fill=True, color=GRID, zorder=1)
    axes.stairs(_FLOOR - 0.8 * _FLOOR * height, edges, baseline=_FLOOR, color=PALE, linewidth=0.6, zorder=2)
    axes.axhline(0, color=INK, linewidth=0.5, zorder=1)


def _wilson(
    share: Float[np.ndarray, " bins"], counts: Int[np.ndarray, " bins"]
) -> tuple[Float[np.ndarray, " bins"], Float[np.ndarray, " bins"]]:
    centre = (share + _Z**2 / (2 * counts)) / (1 + _Z**2 / counts)
    half = _Z * np.sqrt(share * (1 - share) / counts + _Z**2 / (4 * counts**2)) / (1 + _Z**2 / counts)
    return centre - half, centre + half
