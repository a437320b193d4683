"""What all figures share: a page without global state, colours that keep their meaning, files written whole.

Matplotlib is imported when something is drawn and not before; it comes with `mule[plots]`. Figures are made without
pyplot, so no figure stays open and no setting or backend of the caller's is changed.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from mule.core.errors import MuleError, RangeError
from mule.core.files import write_file

if TYPE_CHECKING:
    from matplotlib.artist import Artist
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from matplotlib.legend import Legend

DPI = 150
KNOWN, NOVEL = "#0e9bb5", "#e08e00"  # cyan and yellow, dark enough for white paper
INK, PALE, GRID = "#222222", "#9a9a9a", "#e6e6e6"
TITLE_PT, TEXT_PT, SMALL_PT, FAINT_PT = 9.0, 8.5, 7.5, 6.5
LONGEST_NAME, LONGEST_TITLE = 34, 26

# at least 25 CIELAB units apart, also as protanopes, deuteranopes and tritanopes see them
METHOD_COLOURS = ("#332288", "#dd7788", "#117733", "#77aadd", "#882255", "#999933", "#000000")
_DASHES = ((), (4.0, 1.5), (1.2, 1.2), (6.0, 1.5, 1.2, 1.5), (2.5, 1.0, 2.5, 3.0))


@dataclass(frozen=True)
class MethodStyle:
    """How a method is drawn in every figure: a colour, a pattern of dashes (none: solid), a width in points."""

    colour: str
    dashes: tuple[float, ...]
    width_pt: float
    order: int


def method_styles(methods: Sequence[str], *, ours: Iterable[str] = ()) -> dict[str, MethodStyle]:
    """One style per method, by its place in the list: first all colours solid, then dashed, dotted and so on.

    Give the same list for every figure of one comparison. Our own methods are drawn thicker.
    """
    names, own = list(dict.fromkeys(methods)), set(ours)
    most = len(METHOD_COLOURS) * len(_DASHES)
    if len(names) > most:
        raise RangeError(
            f"at most {most} methods can be told apart in one figure; got {len(names)}. Draw fewer."
        )
    return {
        name: MethodStyle(
            colour=METHOD_COLOURS[at % len(METHOD_COLOURS)],
            dashes=_DASHES[at // len(METHOD_COLOURS)],
            width_pt=2.4 if name in own else 1.4,
            order=at,
        )
        for at, name in enumerate(names)
    }


def style_of(name: str, styles: dict[str, MethodStyle]) -> MethodStyle:
    """The style of a method, which must have one."""
    if name not in styles:
        raise RangeError(f"every method drawn must have a style; {name!r} has none, {list(styles)} have.")
    return styles[name]


def new_figure(width_in: float, height_in: float, *, is_arranged: bool = True) -> "Figure":
    """An empty white figure that belongs to nobody else; its panels arrange themselves unless told not to."""
    try:
        from matplotlib.figure import Figure
    except ImportError:
        raise MuleError("drawing needs matplotlib: pip install 'mule[plots]'.") from None
    figure = Figure(figsize=(width_in, height_in), dpi=DPI, facecolor="white")
    figure.set_layout_engine("constrained" if is_arranged else "none")
    return figure


def write_figure(figure: "Figure", path: Path) -> None:
    """Writes the figure as a whole PNG file."""
    write_file(path, lambda unfinished: figure.savefig(unfinished, format="png", dpi=DPI))


def panels(num_panels: int, *, width_in: float, height_in: float) -> tuple["Figure", list["Axes"]]:
    """A figure of equal panels, read line by line: up to four beside each other, five when there are many."""
    widest = 3 if num_panels in (5, 6) else 4 if num_panels <= 12 else 5
    columns = max(min(num_panels, widest), 1)
    rows = max(-(-num_panels // columns), 1)
    figure = new_figure(columns * width_in, rows * height_in + 0.35)
    grid = figure.subplots(rows, columns, squeeze=False).ravel().tolist()
    for axes in grid[num_panels:]:
        axes.remove()
    for axes in grid[:num_panels]:
        dress(axes)
    return figure, grid[:num_panels]


def dress(axes: "Axes") -> None:
    """Thin spines on two sides, a pale grid behind, small ticks."""
    axes.spines[["top", "right"]].set_visible(False)
    axes.spines[["left", "bottom"]].set(color=INK, linewidth=0.7)
    axes.tick_params(labelsize=SMALL_PT, length=2.5, width=0.7, colors=INK)
    axes.grid(True, color=GRID, linewidth=0.6)
    axes.set_axisbelow(True)
    axes.set_facecolor("white")


def title(axes: "Axes", name: str, *, below: str = "") -> None:
    """A name above a panel, at its left, shortened to its width; under it, a line of our own."""
    lines = plain(name, longest=LONGEST_TITLE) + (f"\n{below}" if below else "")
    axes.set_title(lines, fontsize=TITLE_PT, loc="left", color=INK, linespacing=1.25)


def axis_names(axes: "Axes", x: str, y: str) -> None:
    """What the two axes measure."""
    axes.set_xlabel(x, fontsize=TEXT_PT, color=INK)
    axes.set_ylabel(y, fontsize=TEXT_PT, color=INK)


def name_left(axes: "Axes", text: str) -> None:
    """What the upright axis measures, said once per line of panels."""
    place = axes.get_subplotspec()
    if place is not None and place.is_first_col():
        axes.set_ylabel(text, fontsize=TEXT_PT, color=INK)


def side_legend(
    figure: "Figure",
    handles: Sequence["Artist"],
    names: Sequence[str],
    *,
    heading: str = "",
    at: tuple[float, float] | None = None,
) -> "Legend":
    """Names in the order given, at the right of everything, or with their upper left corner at a place of the figure."""
    placed: dict[str, Any] = {"loc": "outside right upper"}
    if at is not None:
        placed = {"loc": "upper left", "bbox_to_anchor": at, "borderaxespad": 0, "borderpad": 0}
    return figure.legend(
        handles,
        list(map(plain, names)),
        fontsize=SMALL_PT,
        title=heading,
        title_fontsize=SMALL_PT,
        frameon=False,
        handlelength=2.8,
        labelspacing=0.45,
        alignment="left",
        **placed,
    )


def top_legend(figure: "Figure", handles: Sequence["Artist"], names: Sequence[str]) -> "Legend":
    """Names in one line above everything."""
    return figure.legend(
        handles,
        list(map(plain, names)),
        loc="outside upper left",
        ncols=max(len(names), 1),
        fontsize=TEXT_PT,
        frameon=False,
        handlelength=1.8,
    )


def draw_line(
    axes: "Axes", x: np.ndarray, y: np.ndarray, style: MethodStyle, *, drawstyle: str = "default"
) -> "Artist":
    """A method's line in its style."""
    (line,) = axes.plot(x, y, color=style.colour, linewidth=style.width_pt, drawstyle=drawstyle, zorder=3)
    line.set_dashes(style.dashes) if style.dashes else line.set_linestyle("-")
    return line


def plain(name: str, *, longest: int = LONGEST_NAME) -> str:
    """The name on one line, shortened, and never read as mathematics."""
    short = " ".join(name.split())
    short = short if len(short) <= longest else f"{short[: longest - 1]}…"
    return short.replace("$", r"\$")
