"""Figures of open-set performance: ROC and precision-recall curves, and histograms of novelty.

Each function takes counts and returns a figure; `drawing.write_figure` saves it. The positive class is
*novel*, and novelty is never flipped.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from jaxtyping import Float

from mule.core.errors import NotFinite
from mule.evaluation.drawing import (
    FAINT_PT,
    INK,
    KNOWN,
    LONGEST_METHOD_NAME,
    NOVEL,
    PALE,
    TEXT_PT,
    MethodStyle,
    axis_names,
    draw_line,
    dress,
    name_left,
    new_figure,
    panels,
    side_legend,
    style_of,
    title,
    top_legend,
)
from mule.metrics import OperatingCurve

if TYPE_CHECKING:
    from matplotlib.artist import Artist
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_Points = tuple[Float[np.ndarray, " points"], Float[np.ndarray, " points"]]

_FLAGGED_KNOWN = 0.05
_GRID = np.linspace(0, 1, 401)
_MOST_BANDS = 6
_NUM_BINS = 40
_MIDDLE = (0.5, 99.5)
_CROWDED = 8
_TICK_GAP = 0.16


def roc_points(curve: OperatingCurve) -> _Points:
    """Shares of known and of novel actors flagged, from none to all."""
    return (
        np.concatenate([[0.0], curve.known_flagged / curve.num_known]),
        np.concatenate([[0.0], curve.novel_flagged / curve.num_novel]),
    )


def precision_recall_points(curve: OperatingCurve) -> _Points:
    """Recall of novel actors and precision among flagged ones, from the highest threshold down.

    Thresholds that flag no novel actor add no area and are left out. The first point is at recall 0, so
    the area under steps drawn to the left is the average precision.
    """
    finds = curve.novel_flagged > 0
    novel, known = curve.novel_flagged[finds], curve.known_flagged[finds]
    recall, precision = novel / novel[-1], novel / (novel + known)
    return np.concatenate([[0.0], recall]), np.concatenate([precision[:1], precision])


@dataclass(frozen=True)
class MethodCurves:
    """The curve of one method in each trial, and the area under it (mean over trials)."""

    method: str
    trials: tuple[OperatingCurve, ...]
    area: float


@dataclass(frozen=True)
class ScoredActors:
    """Novelty of known and novel actors by one method, and its threshold, if any."""

    method: str
    known: Float[np.ndarray, " known"]
    novel: Float[np.ndarray, " novel"]
    threshold: float | None = None

    def __post_init__(self) -> None:
        for what, scores in (("known", self.known), ("novel", self.novel)):
            wrong = np.count_nonzero(~np.isfinite(scores))
            if wrong:
                raise NotFinite(
                    f"novelty must be finite; {wrong} of {len(scores)} {what} actors under {self.method!r} are not. "
                    "Use the rank of the score."
                )


def roc_figure(methods: Sequence[MethodCurves], *, styles: dict[str, MethodStyle]) -> "Figure":
    """Draw ROC curves, novel positive, best area first; trials are averaged at equal shares of known flagged.

    The vertical line marks where 95 % of known actors are accepted; the diagonal is chance.
    """

    def at_grid(curve: OperatingCurve) -> np.ndarray:
        return np.interp(_GRID, *roc_points(curve))

    figure, axes = _square(methods)
    axes.plot([0, 1], [0, 1], color=PALE, linewidth=0.8, linestyle=(0, (3, 2)), zorder=1)
    axes.axvline(_FLAGGED_KNOWN, color=PALE, linewidth=0.8, zorder=1)
    axes.annotate("95 % of known accepted", (_FLAGGED_KNOWN, 1), (-3, 5), textcoords="offset points",
                  fontsize=FAINT_PT, color="#666666", annotation_clip=False)  # fmt: skip
    handles = _draw_methods(axes, methods, styles, exact=roc_points, at_grid=at_grid)
    _areas_legend(figure, methods, handles, heading="AUROC (%)")
    axis_names(axes, "known actors flagged (false alarms)", "novel actors flagged")
    return figure


def precision_recall_figure(methods: Sequence[MethodCurves], *, styles: dict[str, MethodStyle]) -> "Figure":
    """Precision-recall steps, novel positive, best area first; several trials are averaged at equal recall.

    The horizontal line is chance: the share of novel actors.
    """

    def at_grid(curve: OperatingCurve) -> np.ndarray:
        recall, precision = precision_recall_points(curve)
        return precision[np.searchsorted(recall, _GRID).clip(max=len(recall) - 1)]

    figure, axes = _square(methods)
    handles = _draw_methods(
        axes, methods, styles, exact=precision_recall_points, at_grid=at_grid, drawstyle="steps-pre"
    )
    trials = [trial for method in methods for trial in method.trials]
    if trials:
        chance = float(np.mean([each.num_novel / (each.num_novel + each.num_known) for each in trials]))
        axes.axhline(chance, color=PALE, linewidth=0.8, linestyle=(0, (3, 2)), zorder=1)
        axes.annotate("chance", (0.99, chance), (0, -2), textcoords="offset points",
                      fontsize=FAINT_PT, color="#666666", ha="right", va="top")  # fmt: skip
    _areas_legend(figure, methods, handles, heading="AUPR (%)")
    axis_names(axes, "recall: novel actors flagged", "precision: flagged actors that are novel")
    return figure


def score_figure(methods: Sequence[ScoredActors]) -> "Figure":
    """Histograms of novelty, known against novel, one panel per method, each on the method's own scale.

    Bars are shares of the known and of the novel actors. The middle 99 % of all actors set the scale; the
    others are counted in the first and the last bin. Where most actors crowd into a small part of the scale,
    it is linear near zero and logarithmic beyond (asinh).
    """
    figure, grid = panels(len(methods), width_in=2.5, height_in=1.9)
    handles: list[Artist] = []
    for axes, method in zip(grid, methods, strict=True):
        handles = _draw_scores(axes, method)
        title(axes, method.method)
        name_left(axes, "share of actors (%)")
    figure.supxlabel("novelty", fontsize=TEXT_PT, color=INK)
    names = [
        f"known actors{_counted([len(each.known) for each in methods])}",
        f"novel actors{_counted([len(each.novel) for each in methods])}",
        "threshold",
    ]
    top_legend(figure, handles, names[: len(handles)])
    return figure


def _square(methods: Sequence[MethodCurves]) -> tuple["Figure", "Axes"]:
    """A square panel with room for a legend at its right; lengths are in inches."""
    left, bottom, top, letter = 0.6, 0.5, 0.28, 0.061
    side = max(2.7, 0.168 * (len(methods) + 1))
    longest = max((min(5 + len(each.method), LONGEST_METHOD_NAME) for each in methods), default=0)
    width, height = left + side + 0.7 + letter * max(longest, 12), bottom + side + top
    figure = new_figure(width, height, is_arranged=False)
    axes = figure.add_axes((left / width, bottom / height, side / width, side / height))
    dress(axes)
    axes.set(xlim=(-0.005, 1.005), ylim=(-0.005, 1.005))
    return figure, axes


def _draw_methods(
    axes: "Axes",
    methods: Sequence[MethodCurves],
    styles: dict[str, MethodStyle],
    *,
    exact: Callable[[OperatingCurve], _Points],
    at_grid: Callable[[OperatingCurve], np.ndarray],
    drawstyle: str = "default",
) -> list["Artist"]:
    """One line per method: the points of a single trial, or the mean over trials with one standard deviation."""
    handles: list[Artist] = []
    for method in methods:
        style = style_of(method.method, styles)
        if len(method.trials) == 1:
            handles.append(draw_line(axes, *exact(method.trials[0]), style, drawstyle=drawstyle))
            continue
        each = np.stack([at_grid(trial) for trial in method.trials])
        mean, deviation = each.mean(axis=0), each.std(axis=0, ddof=1)
        handles.append(draw_line(axes, _GRID, mean, style))
        if len(methods) <= _MOST_BANDS:
            low, high = (mean - deviation).clip(0, 1), (mean + deviation).clip(0, 1)
            axes.fill_between(_GRID, low, high, color=style.colour, alpha=0.14, linewidth=0, zorder=2)
    return handles


def _areas_legend(
    figure: "Figure", methods: Sequence[MethodCurves], handles: Sequence["Artist"], *, heading: str
) -> None:
    order = sorted(range(len(methods)), key=lambda at: -methods[at].area)
    names = [f"{100 * methods[at].area:.1f} {methods[at].method}" for at in order]
    box = figure.axes[0].get_position()
    place = (box.x1 + 0.15 / figure.get_figwidth(), box.y1)
    side_legend(figure, [handles[at] for at in order], names, heading=heading, at=place)


def _counted(counts: list[int]) -> str:
    """The number of actors, if it is the same in all panels."""
    return f" ({counts[0]:,})" if len(set(counts)) == 1 else ""


def _draw_scores(axes: "Axes", actors: ScoredActors) -> list["Artist"]:
    from matplotlib.ticker import NullLocator

    marks = [] if actors.threshold is None else [actors.threshold]
    linear_width, edges = _score_edges(np.concatenate([actors.known, actors.novel]), marks)
    handles: list[Artist] = []
    for scores, colour in ((actors.known, KNOWN), (actors.novel, NOVEL)):
        counts, _ = np.histogram(scores.clip(edges[0], edges[-1]), edges)
        share = 100 * counts / max(len(scores), 1)
        axes.stairs(share, edges, fill=True, color=colour, alpha=0.35, linewidth=0)
        handles.append(axes.stairs(share, edges, color=colour, linewidth=1.3))
    handles += [axes.axvline(mark, color=INK, linewidth=1, linestyle=(0, (3, 2))) for mark in marks]
    if linear_width is not None:
        axes.set_xscale("asinh", linear_width=linear_width)
        axes.xaxis.set_minor_locator(NullLocator())
        ticks = _spaced_ticks(edges, linear_width)
        axes.set_xticks(ticks, [f"{tick:g}".replace("-", "−") for tick in ticks])
    axes.set_xlim(edges[0], edges[-1])
    axes.set_ylim(bottom=0)
    return handles


def _score_edges(
    everybody: Float[np.ndarray, " actors"], marks: list[float]
) -> tuple[float | None, Float[np.ndarray, " edges"]]:
    """The width of the linear part of the scale (None if it is all linear), and bins of equal width on it."""
    if not len(everybody):
        return None, np.linspace(0, 1, _NUM_BINS + 1)
    low, high = np.percentile(everybody, _MIDDLE)
    low, high = min(low, *marks, low), max(high, *marks, high)
    first, third = np.percentile(everybody, (25, 75))
    if high <= low:
        return None, np.linspace(low - 0.5, low + 0.5, _NUM_BINS + 1)
    if (third - first) * _CROWDED > high - low:
        return None, np.linspace(low, high, _NUM_BINS + 1)
    linear_width = float(max(np.percentile(np.abs(everybody), 20), 1e-6 * (high - low)))
    start, end = np.arcsinh(np.array([low, high]) / linear_width)
    return linear_width, np.sinh(np.linspace(start, end, _NUM_BINS + 1)) * linear_width


def _spaced_ticks(edges: Float[np.ndarray, " edges"], linear_width: float) -> list[float]:
    """Zero and powers of ten within the scale, chosen from its ends inwards so that labels do not overlap."""
    powers = [sign * 10.0**power for power in range(12, -7, -1) for sign in (-1, 1)]
    start, end = np.arcsinh(edges[[0, -1]] / linear_width)
    kept: dict[float, float] = {}
    for tick in [*powers, 0.0]:
        place = float((np.arcsinh(tick / linear_width) - start) / (end - start))
        if 0 <= place <= 1 and all(abs(place - other) >= _TICK_GAP for other in kept.values()):
            kept[tick] = place
    return sorted(kept)
