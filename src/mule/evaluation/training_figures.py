"""How training went and what it cost: curves over steps, evidence over steps, time and memory."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import isfinite
from typing import TYPE_CHECKING

import numpy as np
from jaxtyping import Float, Int

from mule.core.errors import ShapeError
from mule.evaluation.drawing import (
    FAINT_PT,
    INK,
    PALE,
    SMALL_PT,
    TEXT_PT,
    MethodStyle,
    draw_line,
    dress,
    name_left,
    new_figure,
    panels,
    plain,
    side_legend,
    style_of,
    title,
)

if TYPE_CHECKING:
    from matplotlib.artist import Artist
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_MANY_POINTS = 150
_SMOOTH_PARTS = 50
_MOST_PALE = 6


@dataclass(frozen=True)
class Curve:
    """A number followed over training steps; NaN leaves a gap."""

    steps: Int[np.ndarray, " points"]
    values: Float[np.ndarray, " points"]


@dataclass(frozen=True)
class RunCurves:
    """What one run recorded, by the name of the panel it belongs to (see `TRAINING_PANELS`)."""

    method: str
    curves: Mapping[str, Curve]


@dataclass(frozen=True)
class EvidenceHistory:
    """Histograms of evidence at some steps, over bins that do not change."""

    method: str
    steps: Int[np.ndarray, " points"]
    edges: Float[np.ndarray, " edges"]
    counts: Int[np.ndarray, "points bins"]

    def __post_init__(self) -> None:
        if self.counts.shape != (len(self.steps), len(self.edges) - 1):
            raise ShapeError(
                f"evidence of {self.method!r} must be counted per step and bin, "
                f"({len(self.steps)}, {len(self.edges) - 1}); got {self.counts.shape}."
            )


@dataclass(frozen=True)
class Cost:
    """What a method costs: seconds per step with their deviation (NaN if unknown), and peak memory in bytes."""

    method: str
    step_s: float
    step_deviation_s: float
    peak_memory_bytes: int


TRAINING_PANELS: Mapping[str, str] = {
    "loss": "loss",
    "map": "mAP on known classes",
    "hsic": "HSIC (static bias)",
    "multiplier": "multiplier λ",
    "dead": "share of dead outputs",
}


def training_figure(
    runs: Sequence[RunCurves], *, styles: dict[str, MethodStyle], tolerance: float | None = None
) -> "Figure":
    """One panel per recorded number, one line per run; the tolerance γ is drawn where HSIC is.

    A long curve is drawn as the median of each fiftieth of it, upon the curve itself, pale, where there are few runs.
    """
    shown = {key: name for key, name in TRAINING_PANELS.items() if any(key in run.curves for run in runs)}
    figure, grid = panels(len(shown), width_in=2.7, height_in=2.0)
    handles: dict[str, Artist] = {}
    longest = max(
        (int(curve.steps.max(initial=1)) for run in runs for curve in run.curves.values()), default=1
    )
    for axes, (key, name) in zip(grid, shown.items(), strict=True):
        title(axes, name)
        for run in runs:
            if key in run.curves:
                handles[run.method] = _draw_curve(
                    axes, run.curves[key], style_of(run.method, styles), is_crowded=len(runs) > _MOST_PALE
                )
        if key == "hsic" and tolerance is not None:
            axes.axhline(tolerance, color=PALE, linewidth=1, linestyle=(0, (3, 2)), zorder=1)
            axes.annotate("γ", (1, tolerance), (3, 0), xycoords=axes.get_yaxis_transform(),
                          textcoords="offset points", fontsize=TEXT_PT, color="#666666", va="center")  # fmt: skip
        axes.set_xlim(0, longest)
        if key == "dead":
            axes.set_ylim(bottom=0)
    figure.supxlabel("gradient steps", fontsize=TEXT_PT, color=INK)
    side_legend(figure, list(handles.values()), list(handles))
    return figure


def evidence_figure(runs: Sequence[EvidenceHistory]) -> "Figure":
    """How evidence spreads over training, one panel per run: darker where more outputs lie, in shares of each step."""
    figure, grid = panels(len(runs), width_in=2.8, height_in=2.1)
    image = None
    for axes, run in zip(grid, runs, strict=True):
        title(axes, run.method)
        axes.grid(False)
        share = 100 * run.counts / np.maximum(run.counts.sum(axis=1, keepdims=True), 1)
        if len(run.steps):
            image = axes.pcolormesh(
                _step_edges(run.steps),
                run.edges,
                np.ma.masked_equal(share.T, 0),
                cmap="magma_r",
                vmin=0,
                vmax=_ceiling(runs),
                rasterized=True,
            )
        if run.edges[-1] > 50 * max(float(run.edges[1]), 1e-9):
            axes.set_yscale("symlog", linthresh=max(float(run.edges[1]), 1e-9))
        name_left(axes, "evidence")
    figure.supxlabel("gradient steps", fontsize=TEXT_PT, color=INK)
    if image is not None:
        bar = figure.colorbar(image, ax=grid, shrink=0.9, aspect=25, extend="max")
        bar.set_label("share of outputs (%)", fontsize=SMALL_PT)
        bar.ax.tick_params(labelsize=SMALL_PT, length=2)
    return figure


def cost_figure(costs: Sequence[Cost], *, styles: dict[str, MethodStyle]) -> "Figure":
    """Time of a training step and peak memory, one bar per method, in the order given."""
    figure = new_figure(6.4, 0.75 + 0.23 * max(len(costs), 2))
    left, right = figure.subplots(1, 2, sharey=True)
    lines = np.arange(len(costs))
    colours = [style_of(cost.method, styles).colour for cost in costs]
    seconds = np.array([cost.step_s for cost in costs])
    gigabytes = np.array([cost.peak_memory_bytes / 1e9 for cost in costs])
    deviations = [cost.step_deviation_s if isfinite(cost.step_deviation_s) else 0.0 for cost in costs]
    for axes, values, name, spread in (
        (left, seconds, "time of a step (s)", deviations),
        (right, gigabytes, "peak memory (GB)", None),
    ):
        dress(axes)
        axes.grid(False, axis="y")
        axes.barh(lines, values, height=0.68, color=colours, alpha=0.75, xerr=spread,
                  error_kw={"ecolor": INK, "elinewidth": 0.9, "capsize": 1.5})  # fmt: skip
        ends = values + (spread if spread is not None else 0)
        for line, (value, end) in enumerate(zip(values, ends, strict=True)):
            axes.annotate(_three_digits(value), (end, line), (3, 0), textcoords="offset points", fontsize=FAINT_PT,
                          color=INK, va="center")  # fmt: skip
        axes.set_xlabel(name, fontsize=TEXT_PT, color=INK)
        axes.set_xlim(0, 1.15 * max([*ends.tolist(), 1e-9]))
    left.set_yticks(lines, [plain(cost.method) for cost in costs], fontsize=SMALL_PT)
    left.set_ylim(max(len(costs), 1) - 0.4, -0.6)
    left.tick_params(axis="y", length=0)
    right.tick_params(axis="y", length=0)
    return figure


def _draw_curve(axes: "Axes", curve: Curve, style: MethodStyle, *, is_crowded: bool) -> "Artist":
    if len(curve.steps) <= _MANY_POINTS:
        return draw_line(axes, curve.steps, curve.values, style)
    if not is_crowded:
        axes.plot(curve.steps, curve.values, color=style.colour, linewidth=0.5, alpha=0.22, zorder=2)
    parts = np.array_split(np.arange(len(curve.steps)), _SMOOTH_PARTS)
    steps = np.array([curve.steps[part].mean() for part in parts])
    medians = np.array([np.median(curve.values[part]) for part in parts])
    return draw_line(axes, steps, medians, style)


def _three_digits(value: float) -> str:
    return f"{value:#.3g}".rstrip(".")


def _step_edges(steps: Int[np.ndarray, " points"]) -> Float[np.ndarray, " edges"]:
    if len(steps) == 1:
        return np.array([steps[0] - 0.5, steps[0] + 0.5])
    middles = (steps[1:] + steps[:-1]) / 2
    return np.concatenate([[1.5 * steps[0] - 0.5 * steps[1]], middles, [1.5 * steps[-1] - 0.5 * steps[-2]]])


def _ceiling(runs: Sequence[EvidenceHistory]) -> float:
    """The share drawn darkest: most cells lie below it, so that one full bin does not hide the others."""
    shares = [100 * run.counts / np.maximum(run.counts.sum(axis=1, keepdims=True), 1) for run in runs]
    together = np.concatenate([share.ravel() for share in shares])
    occupied = together[together > 0]
    return float(np.percentile(occupied, 97)) if len(occupied) else 1.0
