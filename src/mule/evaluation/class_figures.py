"""Novelty class by class: which known actions look novel, and which novel ones pass for known."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from jaxtyping import Bool, Float, Int

from mule.core.errors import NotFinite, ShapeError
from mule.evaluation.drawing import (
    FAINT_PT,
    INK,
    KNOWN,
    NOVEL,
    SMALL_PT,
    TEXT_PT,
    dress,
    new_figure,
    plain,
    top_legend,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_FEW = 40
_WHISKERS = (5, 25, 50, 75, 95)


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
    """The place of each actor among all, from 0 (most familiar) to 100 (most novel); ties share their mean place.

    >>> novelty_percentiles(np.array([3.0, 1.0, 1.0, 9.0, 5.0])).tolist()
    [50.0, 12.5, 12.5, 100.0, 75.0]
    """
    _, inverse, counts = np.unique(novelty, return_inverse=True, return_counts=True)
    places = np.cumsum(counts) - (counts + 1) / 2
    return 100 * places[inverse] / max(len(novelty) - 1, 1)


def class_novelty_figure(scores: ClassScores) -> "Figure":
    """Where the actors of each action stand among all actors, most novel action first; novel actions are marked.

    An actor with several actions counts for each. A box spans the middle half, its whiskers the middle 90 %; with
    fewer than 40 actors each is a dot of its own. Actions nobody does are listed last, empty.
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
