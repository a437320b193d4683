"""What all figures share: styles, colours with a fixed meaning, panels, legends.

Matplotlib (`mule-actions[plots]`) is imported only when something is drawn. Figures are made without pyplot, so no
figure stays open and the caller's settings and backend do not change.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from mule.core.errors import MuleError, RangeError
from mule.core.files import write_file

if TYPE_CHECKING:
    from matplotlib.artist import Artist
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from matplotlib.legend import Legend

FIGURE_DPI = 150
KNOWN, NOVEL = "#0e9bb5", "#e08e00"  # cyan and yellow, dark enough for white paper
INK, PALE, GRID_COLOUR = "#222222", "#9a9a9a", "#e6e6e6"
TITLE_PT, TEXT_PT, SMALL_PT, FAINT_PT = 9.0, 8.5, 7.5, 6.5
LONGEST_METHOD_NAME, LONGEST_TITLE = 34, 26

# at least 25 CIELAB units apart, also as protanopes, deuteranopes and tritanopes see them
METHOD_COLOURS = ("#332288", "#dd7788", "#117733", "#77aadd", "#882255", "#999933", "#000000")
_DASHES = ((), (4.0, 1.5), (1.2, 1.2), (6.0, 1.5, 1.2, 1.5), (2.5, 1.0, 2.5, 3.0))


@dataclass(frozen=True)
class MethodStyle:
    """How a method is drawn in every figure: colour, dashes (none is solid), width in points."""

    colour: str
    dashes: tuple[float, ...]
    width_pt: float


def method_styles(methods: Sequence[str], *, ours: Iterable[str] = ()) -> dict[str, MethodStyle]:
    """Return one style per method, by its position in the list: first all colours solid, then dashed, and so on.

    Pass the same list for every figure of a comparison. Our methods are drawn thicker.
    """
    names, own = list(dict.fromkeys(methods)), set(ours)
    most = len(METHOD_COLOURS) * len(_DASHES)
    if len(names) > most:
        raise RangeError(f"a figure can show at most {most} methods; got {len(names)}. Draw fewer.")
    return {
        name: MethodStyle(
            colour=METHOD_COLOURS[at % len(METHOD_COLOURS)],
            dashes=_DASHES[at // len(METHOD_COLOURS)],
            width_pt=2.4 if name in own else 1.4,
        )
        for at, name in enumerate(names)
    }


def style_of(name: str, styles: dict[str, MethodStyle]) -> MethodStyle:
    """The style of a method."""
    if name not in styles:
        raise RangeError(
            f"every method of a figure must have a style; {name!r} has none, {list(styles)} have."
        )
    return styles[name]


def new_figure(width_in: float, height_in: float, *, is_arranged: bool = True) -> "Figure":
    """An empty white figure; `is_arranged` lays out its panels automatically."""
    try:
        from matplotlib.figure import Figure
    except ImportError:
        raise MuleError(
            "figures need matplotlib; it is not installed. Run `pip install 'mule-actions[plots]'`."
        ) from None
    figure = Figure(figsize=(width_in, height_in), dpi=FIGURE_DPI, facecolor="white")
    figure.set_layout_engine("constrained" if is_arranged else "none")
    return figure


def write_figure(figure: "Figure", path: Path) -> None:
    """Write the figure as a PNG file."""
    write_file(path, lambda unfinished: figure.savefig(unfinished, format="png", dpi=FIGURE_DPI))


def panels(num_panels: int, *, width_in: float, height_in: float) -> tuple["Figure", list["Axes"]]:
    """A figure with a grid of equal panels, three to five per row depending on their number."""
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
    """Style axes: thin spines on two sides, a pale grid, small ticks."""
    axes.spines[["top", "right"]].set_visible(False)
    axes.spines[["left", "bottom"]].set(color=INK, linewidth=0.7)
    axes.tick_params(labelsize=SMALL_PT, length=2.5, width=0.7, colors=INK)
    axes.grid(True, color=GRID_COLOUR, linewidth=0.6)
    axes.set_axisbelow(True)
    axes.set_facecolor("white")


def title(axes: "Axes", name: str, *, below: str = "") -> None:
    """Put a name above a panel at the left, shortened to fit; `below` adds a second line."""
    lines = plain(name, longest=LONGEST_TITLE) + (f"\n{below}" if below else "")
    axes.set_title(lines, fontsize=TITLE_PT, loc="left", color=INK, linespacing=1.25)


def axis_names(axes: "Axes", x: str, y: str) -> None:
    """Label the two axes."""
    axes.set_xlabel(x, fontsize=TEXT_PT, color=INK)
    axes.set_ylabel(y, fontsize=TEXT_PT, color=INK)


def name_left(axes: "Axes", text: str) -> None:
    """Label the vertical axis, once per row of panels."""
    place = axes.get_subplotspec()
    if place is not None and place.is_first_col():
        axes.set_ylabel(text, fontsize=TEXT_PT, color=INK)


def side_legend(
    figure: "Figure",
    handles: Sequence["Artist"],
    names: Sequence[str],
    *,
    heading: str,
    at: tuple[float, float],
) -> "Legend":
    """A legend with its upper left corner at `at`."""
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
        loc="upper left",
        bbox_to_anchor=at,
        borderaxespad=0,
        borderpad=0,
    )


def top_legend(figure: "Figure", handles: Sequence["Artist"], names: Sequence[str]) -> "Legend":
    """A legend in one line above the panels."""
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
    """Draw a line in the style of a method."""
    (line,) = axes.plot(x, y, color=style.colour, linewidth=style.width_pt, drawstyle=drawstyle, zorder=3)
    line.set_dashes(style.dashes) if style.dashes else line.set_linestyle("-")
    return line


def plain(name: str, *, longest: int = LONGEST_METHOD_NAME) -> str:
    """The name on one line, shortened, with dollar signs escaped."""
    short = " ".join(name.split())
    short = short if len(short) <= longest else f"{short[: longest - 1]}…"
    return short.replace("$", r"\$")
