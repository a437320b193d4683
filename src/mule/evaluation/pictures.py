"""The paper's visual comparison: a grid of the same key frames under each method.

rows: key frames, chosen by `most_disputed`, not by hand        cyan box: called known      tick: right
columns: methods                                                yellow box: called novel    cross: wrong
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from jaxtyping import Bool, Float, UInt8

from mule.core.errors import RangeError, ShapeError
from mule.evaluation.drawing import FAINT_PT, INK, SMALL_PT, TITLE_PT, new_figure, plain

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from matplotlib.lines import Line2D

CYAN, YELLOW = "#19e3ff", "#ffd21a"
RIGHT_COLOUR, WRONG_COLOUR = "#12803c", "#c8102e"
_CELL_IN, _GAP_IN, _TOP_IN, _BOTTOM_IN, _LEFT_IN = 2.5, 0.06, 0.28, 0.32, 0.3
_MOST_COLUMNS = 6
_WRAPPED_COLUMNS = 5
_TALLEST, _WIDEST = 1.5, 0.4
_LONGEST_LABEL = 26
_MOST_LABELS = 3


@dataclass(frozen=True)
class Calls:
    """The calls of one method on the actors of a key frame: boxes, actions, known or novel, and whether it is right."""

    boxes_xyxy_unit: Float[np.ndarray, "actors 4"]
    labels: tuple[tuple[str, ...], ...]
    """The actions written beside each actor; if there are none, `known` or `novel`."""
    is_called_novel: Bool[np.ndarray, " actors"]
    is_right: Bool[np.ndarray, " actors"] | None = None
    """Whether the call is right; None draws neither tick nor cross, as for the truth itself."""

    def __post_init__(self) -> None:
        lengths = [len(self.boxes_xyxy_unit), len(self.labels), len(self.is_called_novel)]
        lengths += [] if self.is_right is None else [len(self.is_right)]
        if len(set(lengths)) > 1:
            raise ShapeError(f"boxes, labels and calls must have one entry per actor; got {lengths}.")
        if not ((self.boxes_xyxy_unit >= 0) & (self.boxes_xyxy_unit <= 1)).all():
            raise RangeError(
                "boxes must be in units of the frame, from 0 to 1; some are not. Divide them by the frame size."
            )


@dataclass(frozen=True)
class KeyFrame:
    """A frame of a video, and the calls of each method on its actors."""

    video: str
    key_time_s: float
    pixels: UInt8[np.ndarray, "rows cols 3"]
    calls: Mapping[str, Calls]


@dataclass(frozen=True)
class FrameDecisions:
    """Which actors of a key frame each method calls novel; the actors are the same for all methods."""

    video: str
    is_called_novel: Bool[np.ndarray, "methods actors"]


def dispute(decisions: FrameDecisions) -> float:
    """Return how far methods disagree on a key frame: the bits of entropy of their calls, mean over actors.

    0 if all methods agree on every actor, 1 if half of them say known and half say novel for every actor.

    >>> dispute(FrameDecisions("a", np.array([[True, False], [False, False]])))
    0.5
    """
    if 0 in decisions.is_called_novel.shape:
        return 0.0
    novel = decisions.is_called_novel.mean(axis=0)
    shares = np.stack([novel, 1 - novel])
    bits = -np.sum(shares * np.log2(shares, out=np.zeros_like(shares), where=shares > 0), axis=0)
    return float(bits.mean())


def most_disputed(decisions: Sequence[FrameDecisions], count: int) -> list[int]:
    """Positions of the `count` most disputed key frames, most disputed first, at most one per video.

    Among equally disputed key frames the first is taken. Key frames without actors, and those on which all
    methods agree, are never taken.
    """
    if count < 0:
        raise RangeError(f"the number of key frames must be at least 0; got {count}.")
    amounts = np.array([dispute(each) for each in decisions])
    chosen: list[int] = []
    videos = set[str]()
    for at in np.argsort(-amounts, kind="stable").tolist():
        if len(chosen) < count and amounts[at] > 0 and decisions[at].video not in videos:
            chosen.append(at)
            videos.add(decisions[at].video)
    return chosen


def picture_grid(frames: Sequence[KeyFrame], methods: Sequence[str]) -> "Figure":
    """Draw every key frame under every method: rows are frames, columns are methods; more than six methods wrap.

    Args:
        frames: with calls for each of the methods.
        methods: in the order of the columns; the truth may be one of them.
    """
    missing = [
        f"{frame.video} at {frame.key_time_s:g} s has none of {name!r}"
        for frame in frames
        for name in methods
        if name not in frame.calls
    ]
    if missing or not frames or not methods:
        raise RangeError(
            "a grid of pictures needs key frames, methods, and the calls of each method on each frame; "
            f"{'; '.join(missing[:5]) or f'got {len(frames)} frames and {len(methods)} methods'}."
        )
    columns = len(methods) if len(methods) <= _MOST_COLUMNS else _WRAPPED_COLUMNS
    lines = [methods[start : start + columns] for start in range(0, len(methods), columns)]
    heights = [_CELL_IN * _shape_ratio(frame) for frame in frames]
    title_in = [_TOP_IN if len(lines) > 1 or at == 0 else 0.0 for at in range(len(frames))]
    width = _LEFT_IN + columns * (_CELL_IN + _GAP_IN)
    height = _BOTTOM_IN + sum(len(lines) * (h + _GAP_IN + t) for h, t in zip(heights, title_in, strict=True))
    figure = new_figure(width, height, is_arranged=False)
    top = height
    for frame, tall, above in zip(frames, heights, title_in, strict=True):
        for line in lines:
            top -= above + tall
            for column, name in enumerate(line):
                left = _LEFT_IN + column * (_CELL_IN + _GAP_IN)
                axes = figure.add_axes((left / width, top / height, _CELL_IN / width, tall / height))
                _draw_cell(axes, frame, name, is_titled=above > 0)
            figure.text(0.1 / width, (top + tall / 2) / height, _place(frame), rotation=90, fontsize=FAINT_PT,
                        color=INK, ha="center", va="center", linespacing=1.3)  # fmt: skip
            top -= _GAP_IN
    _draw_key(figure)
    return figure


def _shape_ratio(frame: KeyFrame) -> float:
    rows, cols = frame.pixels.shape[:2]
    return min(max(rows / cols, _WIDEST), _TALLEST)


def _place(frame: KeyFrame) -> str:
    return f"{plain(frame.video, longest=24)}\n{frame.key_time_s:.1f} s"


def _draw_cell(axes: "Axes", frame: KeyFrame, name: str, *, is_titled: bool) -> None:
    rows, cols = frame.pixels.shape[:2]
    axes.imshow(frame.pixels, extent=(0, 1, rows / cols, 0), interpolation="antialiased")
    axes.set(xlim=(0, 1), ylim=(rows / cols, 0), xticks=[], yticks=[], facecolor="#222222")
    axes.spines[:].set_visible(False)
    if is_titled:
        axes.set_title(plain(name), fontsize=TITLE_PT, color=INK, pad=4)
    calls = frame.calls[name]
    inch = 1 / (_CELL_IN * min(1, _TALLEST * cols / rows))
    taken: list[_Area] = []
    boxes = calls.boxes_xyxy_unit * np.array([1, rows / cols, 1, rows / cols])
    verdicts = [None] * len(boxes) if calls.is_right is None else calls.is_right.tolist()
    for at in np.argsort(boxes[:, 1], kind="stable").tolist():
        is_novel = bool(calls.is_called_novel[at])
        _draw_box(axes, boxes[at], YELLOW if is_novel else CYAN)
        chip = _Chip(calls.labels[at] or ("novel" if is_novel else "known",), is_novel, verdicts[at])
        taken.append(_draw_chip(axes, boxes[at], chip, inch=inch, taken=taken))


class _Area(NamedTuple):
    left: float
    top: float
    right: float
    bottom: float

    def meets(self, other: "_Area") -> bool:
        return (self.left < other.right and other.left < self.right) and (
            self.top < other.bottom and other.top < self.bottom
        )


class _Chip(NamedTuple):
    """The text beside a box; `is_right` of None draws neither tick nor cross."""

    labels: tuple[str, ...]
    is_novel: bool
    is_right: bool | None

    def lines(self) -> list[str]:
        shown = [plain(label, longest=_LONGEST_LABEL) for label in self.labels[:_MOST_LABELS]]
        more = len(self.labels) - _MOST_LABELS
        return [*shown, f"+ {more} more"] if more > 0 else shown


def _draw_box(axes: "Axes", box: Float[np.ndarray, "4"], colour: str) -> None:
    from matplotlib.patches import Rectangle

    x, y, right, bottom = box.tolist()
    for edge, width in (("black", 3.2), (colour, 1.7)):
        axes.add_patch(Rectangle((x, y), right - x, bottom - y, fill=False, edgecolor=edge, linewidth=width,
                                 joinstyle="miter"))  # fmt: skip


def _draw_chip(
    axes: "Axes", box: Float[np.ndarray, "4"], chip: _Chip, *, inch: float, taken: list[_Area]
) -> _Area:
    """Black text on the box's colour, the verdict at its end; `inch` is an inch in units of the axes.

    The chip goes above the box if there is room, else inside it, and moves down past chips that are already
    there.
    """
    from matplotlib.patches import Rectangle

    lines = chip.lines()
    verdict = 0.17 * inch if chip.is_right is not None else 0.0
    wide = (1.05 * max(map(_text_in, lines)) + 0.07) * inch + verdict  # hinting at few dots widens letters
    high = max(1.25 * FAINT_PT / 72 * len(lines) + 0.04, 0.16 if verdict else 0.0) * inch
    x, y = _free_place(box, wide, high, floor=axes.get_ylim()[0], taken=taken)
    colour = YELLOW if chip.is_novel else CYAN
    axes.add_patch(
        Rectangle((x, y), wide, high, facecolor=colour, edgecolor="black", linewidth=0.6, zorder=5)
    )
    axes.text(x + 0.03 * inch, y + high / 2, "\n".join(lines), fontsize=FAINT_PT, color="black", va="center",
              linespacing=1.05, zorder=6)  # fmt: skip
    if chip.is_right is not None:
        for mark in _verdict_marks(chip.is_right, [x + wide - 0.095 * inch], [y + high / 2]):
            axes.add_line(mark)
    return _Area(x, y, x + wide, y + high)


def _text_in(text: str) -> float:
    """The width of the text in inches."""
    from matplotlib.textpath import TextPath

    return float(TextPath((0, 0), text, size=FAINT_PT).get_extents().width) / 72


def _free_place(
    box: Float[np.ndarray, "4"], wide: float, high: float, *, floor: float, taken: list[_Area]
) -> tuple[float, float]:
    x = float(np.clip(box[0], 0.0, max(1 - wide, 0.0)))
    y = float(box[1]) - high if box[1] >= high else float(box[1])
    lowest = max(floor - high, 0.0)
    for step in np.arange(y, lowest, 0.01).tolist():
        if not any(_Area(x, step, x + wide, step + high).meets(other) for other in taken):
            return x, step
    return x, min(y, lowest)


def _verdict_marks(is_right: bool, x: list[float], y: list[float]) -> list["Line2D"]:
    """A white tick on green or a white cross on red: the shape alone tells them apart."""
    from matplotlib.lines import Line2D
    from matplotlib.path import Path

    tick = Path([(-0.5, 0.0), (-0.15, -0.4), (0.5, 0.4)], [Path.MOVETO, Path.LINETO, Path.LINETO])
    cross = Path([(-0.4, -0.4), (0.4, 0.4), (-0.4, 0.4), (0.4, -0.4)], [Path.MOVETO, Path.LINETO] * 2)
    ground = RIGHT_COLOUR if is_right else WRONG_COLOUR
    disc = Line2D(x, y, marker="o", color="none", markerfacecolor=ground, markeredgecolor="white",
                  markersize=9, markeredgewidth=0.8, zorder=7)  # fmt: skip
    sign = Line2D(x, y, marker=tick if is_right else cross, color="none", markerfacecolor="none",
                  markeredgecolor="white", markersize=5, markeredgewidth=1.5, zorder=8)  # fmt: skip
    return [disc, sign]


def _draw_key(figure: "Figure") -> None:
    from matplotlib.legend_handler import HandlerTuple
    from matplotlib.patches import Rectangle

    boxes = [
        Rectangle((0, 0), 1, 1, facecolor=colour, edgecolor="black", linewidth=0.6)
        for colour in (CYAN, YELLOW)
    ]
    marks: list[Any] = [tuple(_verdict_marks(is_right, [], [])) for is_right in (True, False)]
    figure.legend(
        [*boxes, *marks],
        ["called known", "called novel", "right call", "wrong call"],
        loc="lower left",
        ncols=4,
        fontsize=SMALL_PT,
        frameon=False,
        borderpad=0.2,
        handler_map={tuple: HandlerTuple(ndivide=1)},
    )
