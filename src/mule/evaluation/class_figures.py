"""Figures by class: whether probabilities hold (reliability), and which actions look novel.

A reliability diagram counts all (actor, class) pairs. Novelty by class shows known actions that look novel,
and novel actions that pass for known.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from jaxtyping import Bool, Float, Int
from scipy.stats import rankdata

from mule.core.errors import NotFinite, RangeError, ShapeError
from mule.evaluation.drawing import (
    FAINT_PT,
    GRID_COLOUR,
    INK,
    KNOWN,
    NOVEL,
    PALE,
    SMALL_PT,
    TEXT_PT,
    MethodStyle,
    dress,
    name_left,
    new_figure,
    panels,
    plain,
    style_of,
    title,
    top_legend,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_Z = 1.959964  # 97.5 % of the normal distribution
_FLOOR = -0.2
_FEW = 40
_WHISKERS = (5, 25, 50, 75, 95)


@dataclass(frozen=True)
class Reliability:
    """Observed frequency of classes among the pairs in each probability bin of equal width."""

    predicted: Float[np.ndarray, " bins"]
    """Mean probability of the pairs in the bin; NaN where there are none."""
    observed: Float[np.ndarray, " bins"]
    """Share of these pairs in which the actor does the class; NaN where there are none."""
    counts: Int[np.ndarray, " bins"]
    expected_error: float
    """ECE: |observed − predicted|, averaged over pairs."""


def reliability(
    probabilities: Float[np.ndarray, "actors classes"],
    targets: Bool[np.ndarray, "actors classes"],
    *,
    num_bins: int = 15,
) -> Reliability:
    """Count every (actor, class) pair in bins of equal width; the last bin includes probability 1.

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
    """Draw observed frequency against probability, one panel per method.

    Bars below zero show how many pairs each bin holds, on a logarithmic scale. Vertical lines are 95 % intervals of
    the frequency (Wilson); pairs of one actor depend on each other, so they are too narrow.
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
    axes.stairs(
        _FLOOR - 0.8 * _FLOOR * height, edges, baseline=_FLOOR, fill=True, color=GRID_COLOUR, zorder=1
    )
    axes.stairs(_FLOOR - 0.8 * _FLOOR * height, edges, baseline=_FLOOR, color=PALE, linewidth=0.6, zorder=2)
    axes.axhline(0, color=INK, linewidth=0.5, zorder=1)


def _wilson(
    share: Float[np.ndarray, " bins"], counts: Int[np.ndarray, " bins"]
) -> tuple[Float[np.ndarray, " bins"], Float[np.ndarray, " bins"]]:
    centre = (share + _Z**2 / (2 * counts)) / (1 + _Z**2 / counts)
    half = _Z * np.sqrt(share * (1 - share) / counts + _Z**2 / (4 * counts**2)) / (1 + _Z**2 / counts)
    return centre - half, centre + half


@dataclass(frozen=True)
class ClassScores:
    """Novelty of every actor under one method, which actions each does, and which actions are novel."""

    method: str
    class_names: tuple[str, ...]
    is_novel_class: Bool[np.ndarray, " classes"]
    novelty: Float[np.ndarray, " actors"]
    labels: Bool[np.ndarray, "actors classes"]

    def __post_init__(self) -> None:
        expected = (len(self.novelty), len(self.class_names))
        if self.labels.shape != expected or len(self.is_novel_class) != expected[1]:
            raise ShapeError(
                f"labels must be (actors, classes) = {expected} and is_novel_class must have {expected[1]} entries; "
                f"got {self.labels.shape} and {len(self.is_novel_class)}."
            )
        wrong = np.count_nonzero(~np.isfinite(self.novelty))
        if wrong:
            raise NotFinite(f"novelty must be finite; {wrong} of {len(self.novelty)} actors are not.")


def novelty_percentiles(novelty: Float[np.ndarray, " actors"]) -> Float[np.ndarray, " actors"]:
    """Return the place of each actor among all, from 0 (most familiar) to 100 (most novel); ties share their mean.

    >>> novelty_percentiles(np.array([3.0, 1.0, 1.0, 9.0, 5.0])).tolist()
    [50.0, 12.5, 12.5, 100.0, 75.0]
    """
    return 100 * (rankdata(novelty) - 1) / max(len(novelty) - 1, 1)


def class_novelty_figure(scores: ClassScores) -> "Figure":
    """Draw where the actors of each action stand among all actors, most novel action first; novel ones are marked.

    An actor with several actions counts for each. A box spans the middle half, its whiskers the middle 90 %;
    with fewer than 40 actors each is a dot of its own. Actions nobody does are listed last, empty.
    """
    figure = new_figure(5.8, 1.0)
    from matplotlib.patches import Rectangle

    places = novelty_percentiles(scores.novelty)
    by_class = [places[scores.labels[:, at]] for at in range(len(scores.class_names))]
    medians = [float(np.median(its)) if len(its) else -1.0 for its in by_class]
    order = np.argsort(-np.array(medians), kind="stable")
    line_in = 0.21 if len(order) <= 30 else 0.155
    figure.set_figheight(1.0 + line_in * max(len(order), 3))
    axes = figure.subplots()
    dress(axes)
    for line, at in enumerate(order.tolist()):
        _draw_class(axes, line, by_class[at], NOVEL if scores.is_novel_class[at] else KNOWN)
    _name_lines(axes, scores, order)
    axes.set_xlim(-1, 101)
    axes.set_xlabel("place among all actors by novelty (%)", fontsize=TEXT_PT, color=INK)
    axes.set_title(plain(scores.method), fontsize=TEXT_PT, loc="left", color=INK, weight="bold")
    handles = [Rectangle((0, 0), 1, 1, color=colour, alpha=0.55) for colour in (KNOWN, NOVEL)]
    top_legend(figure, handles, ["known action", "▸ novel action"])
    return figure


def _draw_class(axes: "Axes", line: int, places: Float[np.ndarray, " members"], colour: str) -> None:
    if not len(places):
        return
    if len(places) < _FEW:
        spread = 0.22 * np.sin(
            2.4 * np.arange(len(places))
        )  # golden-angle steps: dots beside, not upon, each other
        axes.plot(
            places, line + spread, "o", color=colour, markersize=2.6, alpha=0.75, markeredgewidth=0, zorder=3
        )
        middle = float(np.median(places))
    else:
        low, first, middle, third, high = np.percentile(places, _WHISKERS)
        axes.hlines(line, low, high, color=colour, linewidth=1.1, zorder=2)
        axes.barh([line], [third - first], left=first, height=0.62, color=colour, alpha=0.55, zorder=3)
    axes.vlines(middle, line - 0.36, line + 0.36, color=INK, linewidth=1.5, zorder=4)


def _name_lines(axes: "Axes", scores: ClassScores, order: Int[np.ndarray, " classes"]) -> None:
    names = [
        f"{'▸ ' if scores.is_novel_class[at] else ''}{plain(scores.class_names[at])}" for at in order.tolist()
    ]
    size = SMALL_PT if len(order) <= 30 else FAINT_PT
    axes.set_yticks(range(len(order)), names, fontsize=size)
    axes.set_ylim(max(len(order), 1) - 0.4, -0.6)
    axes.tick_params(axis="y", length=0)
    axes.grid(False, axis="y")
    for label, at in zip(axes.get_yticklabels(), order.tolist(), strict=True):
        if scores.is_novel_class[at]:
            label.set(color="#a86400", weight="bold")
    counts = scores.labels.sum(axis=0)
    for line, at in enumerate(order.tolist()):
        axes.annotate(f"{counts[at]:,}", (1, line), (4, 0), xycoords=axes.get_yaxis_transform(),
                      textcoords="offset points", fontsize=FAINT_PT, color="#666666", va="center")  # fmt: skip
    axes.annotate("actors", (1, -0.6), (4, 3), xycoords=axes.get_yaxis_transform(), textcoords="offset points",
                  fontsize=FAINT_PT, color="#666666", va="bottom")  # fmt: skip
