"""Counts of a table: rows per class, labels per actor, actors per clip and co-occurring classes; as files and a picture.

A row is one actor at one key time. An actor is identified by video and name; a row without a name is an actor of its
own. Rows of one video and key time are a clip. Drawing needs matplotlib (extra `mule-actions[plots]`):

    summary │ labels per actor │ actors per clip
    rows of each class         │ co-occurring classes

Both lower parts show one class per line, most frequent first. All lengths are in inches.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass, fields
from itertools import combinations
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import numpy as np
from jaxtyping import Bool, Float, Int

from mule.core.errors import MuleError
from mule.core.files import write_file
from mule.core.text_rows import write_csv
from mule.data.table.table import ActorTable

_ROWS_AT_A_TIME = 1 << 16


@dataclass(frozen=True)
class ClassCounts:
    """Counts of one class."""

    name: str
    num_rows: int
    num_actors: int
    num_videos: int


@dataclass(frozen=True)
class ClassPair:
    """Two classes of one actor at one time."""

    first: str
    second: str
    num_rows: int
    share_of_first: float
    """Share of the rows with the first class that also have the second."""
    share_of_second: float


@dataclass(frozen=True)
class TableStats:
    """Counts of one table; classes are in its order."""

    num_rows: int
    num_actors: int
    num_clips: int
    num_videos: int
    num_whole_frame: int
    """Rows without a box."""
    num_whole_video: int
    """Rows without a time."""
    classes: tuple[ClassCounts, ...]
    rows_with_labels: dict[int, int]
    """Number of rows by number of labels."""
    clips_with_actors: dict[int, int]
    """Number of clips by number of rows."""
    together: Int[np.ndarray, "classes classes"]
    """Number of rows with both classes; on the diagonal, rows with the class."""

    @property
    def labels_per_row(self) -> float:
        """Mean number of labels of an actor at a key time."""
        return _mean(self.rows_with_labels)

    @property
    def actors_per_clip(self) -> float:
        """Mean number of rows of a clip."""
        return _mean(self.clips_with_actors)

    def pairs(self) -> list[ClassPair]:
        """Return the pairs of co-occurring classes, most frequent first."""
        names = [each.name for each in self.classes]
        alone = self.together.diagonal()
        pairs = [
            ClassPair(names[i], names[j], n, n / int(alone[i]), n / int(alone[j]))
            for i, j in combinations(range(len(names)), 2)
            if (n := int(self.together[i, j]))
        ]
        return sorted(pairs, key=lambda pair: -pair.num_rows)


def table_stats(table: ActorTable) -> TableStats:
    """Count a table."""
    actor = _actors(table)
    first, clip = table.clips()
    return TableStats(
        num_rows=len(table),
        num_actors=len(np.unique(actor)),
        num_clips=len(first),
        num_videos=len(np.unique(table.video_index)),
        num_whole_frame=int((~table.has_box).sum()),
        num_whole_video=int((~table.has_time).sum()),
        classes=tuple(
            ClassCounts(
                name,
                int(has_class.sum()),
                len(np.unique(actor[has_class])),
                len(np.unique(table.video_index[has_class])),
            )
            for name, has_class in zip(table.classes, table.labels.T, strict=True)
        ),
        rows_with_labels=_histogram(table.labels.sum(axis=1)),
        clips_with_actors=_histogram(np.bincount(clip, minlength=len(first))),
        together=_together(table.labels),
    )


def write_stats(stats: TableStats, folder: Path) -> list[Path]:
    """Write all counts to `stats.json`, and `classes.csv` and `pairs.csv` for a spreadsheet.

    Raises:
        FileError: a file cannot be written.
    """
    return [
        write_file(folder / "stats.json", _json(stats)),
        _write_records(folder / "classes.csv", ClassCounts, stats.classes),
        _write_records(folder / "pairs.csv", ClassPair, stats.pairs()),
    ]


def _actors(table: ActorTable) -> Int[np.ndarray, " rows"]:
    """Return a number for the actor of each row."""
    numbers: dict[tuple[int, str | int], int] = {}
    rows = enumerate(zip(table.video_index.tolist(), table.actor_id, strict=True))
    keys = ((video, name or row) for row, (video, name) in rows)
    return np.array([numbers.setdefault(key, len(numbers)) for key in keys], dtype=np.int64)


def _together(labels: Bool[np.ndarray, "rows classes"]) -> Int[np.ndarray, "classes classes"]:
    counts = np.zeros((labels.shape[1], labels.shape[1]))
    for begin in range(0, len(labels), _ROWS_AT_A_TIME):
        part = labels[begin : begin + _ROWS_AT_A_TIME].astype(np.float32)  # exact up to 2^24
        counts += part.T @ part
    return counts.astype(np.int64)


def _histogram(counts: Int[np.ndarray, " things"]) -> dict[int, int]:
    values, how_many = np.unique(counts, return_counts=True)
    return dict(zip(values.tolist(), how_many.tolist(), strict=True))


def _mean(histogram: dict[int, int]) -> float:
    total = sum(histogram.values())
    return sum(value * count for value, count in histogram.items()) / total if total else 0.0


def _json(stats: TableStats) -> str:
    counts = {name: value for name, value in vars(stats).items() if name not in ("classes", "together")}
    counts |= {"labels_per_row": stats.labels_per_row, "actors_per_clip": stats.actors_per_clip}
    counts["classes"] = [vars(each) for each in stats.classes]
    counts["pairs"] = [vars(each) for each in stats.pairs()]
    return json.dumps(counts, indent=2, ensure_ascii=False) + "\n"


def _write_records(
    path: Path, kind: type[ClassCounts | ClassPair], rows: Sequence[ClassCounts | ClassPair]
) -> Path:
    return write_csv(path, (field.name for field in fields(kind)), (vars(row).values() for row in rows))


if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_DPI, _MOST_PX = 120, 8000
_INK, _BAR, _DOT, _PALE = "#222222", "#4477aa", "#ffb347", "#cfcfcf"
_TOP, _STRIP, _GAP, _MARGIN, _BARS = 0.55, 1.7, 0.6, 0.3, 3.6
_LONGEST_NAME = 38
_WIDE_RANGE = 30


def draw_stats(stats: TableStats, path: Path, *, title: str) -> None:
    """Draw the counts as a PNG file.

    Raises:
        MuleError: matplotlib is not installed.
        FileError: the file cannot be written.
    """
    try:
        from matplotlib.figure import Figure
    except ImportError:
        raise MuleError("drawing needs matplotlib: pip install 'mule-actions[plots]'.") from None
    sheet = _sheet(stats)
    figure = Figure(
        figsize=(sheet.width, sheet.height),
        dpi=min(_DPI, _MOST_PX / max(sheet.width, sheet.height)),
        facecolor="white",
    )
    page = _Page(figure, sheet)
    figure.text(
        _MARGIN / sheet.width, 1 - 0.32 / sheet.height, title, size=13, weight="bold", color=_INK, va="center"
    )
    _draw_summary(page, stats)
    _draw_histograms(page, stats)
    if stats.classes:
        order = np.argsort([-each.num_rows for each in stats.classes], kind="stable")
        _draw_bars(page, stats, order)
        _draw_matrix(page, stats, order)
    write_file(path, lambda unfinished: figure.savefig(unfinished, format="png"))


@dataclass(frozen=True)
class _Sheet:
    """Sizes that give every class name its own line, for 5 classes as for 157."""

    width: float
    height: float
    side: float
    """Side of the square matrix."""
    font_pt: float
    names_width: float


class _Page:
    """Places axes in inches from the left and the bottom."""

    def __init__(self, figure: "Figure", sheet: _Sheet) -> None:
        self.figure = figure
        self.sheet = sheet
        self.strip_bottom = sheet.height - _TOP - _STRIP

    def axes(self, left: float, bottom: float, width: float, height: float) -> "Axes":
        w, h = self.sheet.width, self.sheet.height
        axes = self.figure.add_axes((left / w, bottom / h, width / w, height / h))
        axes.spines[["top", "right"]].set_visible(False)
        axes.tick_params(labelsize=8, length=2, colors=_INK)
        return axes


def _sheet(stats: TableStats) -> _Sheet:
    num_classes = max(len(stats.classes), 1)
    side = max(4.6, 0.125 * num_classes)
    font_pt = min(9.0, 0.78 * 72 * side / num_classes)
    names_width = (
        0.3 + max((len(_short(each.name)) for each in stats.classes), default=0) * font_pt * 0.56 / 72
    )
    width = _MARGIN + names_width + _BARS + 0.35 + side + 1.1
    height = _TOP + _STRIP + _GAP + side + names_width + 0.2
    return _Sheet(max(width, 11.0), height, side, font_pt, names_width)


def _draw_summary(page: _Page, stats: TableStats) -> None:
    lines = [
        f"{stats.num_rows:,} rows, {stats.num_clips:,} clips",
        f"{stats.num_actors:,} actors in {stats.num_videos:,} videos",
        f"{len(stats.classes)} classes",
        f"{stats.labels_per_row:.2f} labels per actor and key time",
        f"{stats.actors_per_clip:.2f} actors per clip",
    ]
    if stats.num_whole_frame:
        lines.append(f"{stats.num_whole_frame:,} rows without a box")
    if stats.num_whole_video:
        lines.append(f"{stats.num_whole_video:,} rows of a whole video")
    x = _MARGIN / page.sheet.width
    y = (page.strip_bottom + _STRIP) / page.sheet.height
    page.figure.text(x, y, "\n".join(lines), size=9.5, color=_INK, va="top", linespacing=1.5)


def _draw_histograms(page: _Page, stats: TableStats) -> None:
    from matplotlib.ticker import MaxNLocator

    left = _MARGIN + 3.4
    width = (page.sheet.width - left - 0.5) / 2 - 0.4
    drawn = [("labels per actor and key time", stats.rows_with_labels, "rows")]
    drawn += [("actors per clip", stats.clips_with_actors, "clips")]
    for at, (name, histogram, unit) in enumerate(drawn):
        axes = page.axes(left + 0.35 + at * (width + 0.6), page.strip_bottom + 0.25, width, _STRIP - 0.5)
        axes.bar(list(histogram), list(histogram.values()), color=_BAR, width=0.8)
        axes.set_title(name, size=9.5, loc="left", color=_INK)
        axes.set_ylabel(unit, size=8)
        axes.xaxis.set_major_locator(MaxNLocator(integer=True, min_n_ticks=1))
        axes.set_xlim(-0.6 if 0 in histogram else 0.4, max([4, *histogram]) + 0.6)
        _spread(axes, "y", np.array(list(histogram.values()) or [1]))


def _draw_bars(page: _Page, stats: TableStats, order: Int[np.ndarray, " classes"]) -> None:
    sheet, classes = page.sheet, [stats.classes[i] for i in order.tolist()]
    axes = page.axes(_MARGIN + sheet.names_width, page.strip_bottom - _GAP - sheet.side, _BARS, sheet.side)
    lines = np.arange(len(classes))
    num_rows = np.array([each.num_rows for each in classes])
    axes.barh(lines, num_rows, color=_BAR, height=0.78, label="rows")
    num_videos = [each.num_videos for each in classes]
    axes.plot(num_videos, lines, ".", color=_DOT, markersize=min(7.0, sheet.font_pt), label="videos")
    axes.set_ylim(len(classes) - 0.5, -0.5)
    axes.set_yticks(lines, [_short(each.name) for each in classes], size=sheet.font_pt)
    axes.tick_params(axis="y", length=0)
    _spread(axes, "x", np.concatenate([num_rows, num_videos]))
    axes.xaxis.tick_top()
    axes.spines["bottom"].set_visible(False)
    axes.spines["top"].set_visible(True)
    axes.legend(loc="lower right", fontsize=8, frameon=False)
    axes.set_title("rows and videos per class", size=9.5, loc="left", color=_INK, pad=22)


def _draw_matrix(page: _Page, stats: TableStats, order: Int[np.ndarray, " classes"]) -> None:
    sheet = page.sheet
    bottom = page.strip_bottom - _GAP - sheet.side
    left = _MARGIN + sheet.names_width + _BARS + 0.35
    share = _share_that_also(stats.together[np.ix_(order, order)])
    axes = page.axes(left, bottom, sheet.side, sheet.side)
    axes.set_facecolor(_PALE)
    largest = float(np.nanmax(share, initial=0.0)) or 1.0
    image = axes.imshow(share, cmap="Blues", vmin=0, vmax=largest, aspect="auto", interpolation="nearest")
    names = [_short(stats.classes[i].name) for i in order.tolist()]
    axes.set_xticks(range(len(names)), names, rotation=90, size=sheet.font_pt)
    axes.set_yticks([])
    axes.tick_params(length=0)
    axes.spines[:].set_visible(False)
    axes.set_title("share of the left class's rows that also have the class below", size=9.5, loc="left",
                   color=_INK, pad=8)  # fmt: skip
    bar = page.axes(left + sheet.side + 0.2, bottom, 0.15, min(sheet.side, 4.6))
    page.figure.colorbar(image, cax=bar, format=lambda value, _: f"{100 * value:.3g} %")
    bar.tick_params(labelsize=8, length=2)


FEWEST_CALIBRATING = 25
"""People in training and validation, for `mule train --data` to calibrate on."""
FEWEST_OF_ACTION = 5
_TRAINED_SHARE = 0.85
_COMPLETE = "do the rows name everybody at their times? Then train with --set data.complete=true: others there teach who is idle"


def training_needs(table: ActorTable) -> list[str]:
    """Return what training and calibration will need, beside what the table has.

    Examples:
        >>> from mule.data.table.table import ActorTable
        >>> table = ActorTable(("a",), ("kick",), np.zeros(2, int), np.array([0.5, np.nan]), np.full((2, 4), np.nan),
        ...                    np.ones((2, 1), bool), ("", ""))
        >>> for sentence in training_needs(table):
        ...     print(sentence)
        2 rows have no box: `mule train --data` looks for the people
        1 row has no time: the actions are those of the whole video
        novelty will be calibrated on about 2 people (85 % of the rows): at least 25 are needed, so label at least 28 more
        fewer than 5 rows, too few to learn: kick (2)
        do the rows name everybody at their times? Then train with --set data.complete=true: others there teach who is idle
    """
    num_boxless, num_timeless = (int(np.count_nonzero(~each)) for each in (table.has_box, table.has_time))
    sentences: list[str] = []
    if num_boxless:
        sentences.append(
            f"{_rows(num_boxless, 'have', 'has')} no box: `mule train --data` looks for the people"
        )
    if num_timeless:
        sentences.append(
            f"{_rows(num_timeless, 'have', 'has')} no time: the actions are those of the whole video"
        )
    num_calibrating = round(_TRAINED_SHARE * len(table))
    lacking = int(np.ceil(FEWEST_CALIBRATING / _TRAINED_SHARE)) - len(table)
    enough = "enough" if lacking <= 0 else f"so label at least {lacking} more"
    sentences.append(
        f"novelty will be calibrated on about {num_calibrating} people ({_TRAINED_SHARE:.0%} of the rows): at least "
        f"{FEWEST_CALIBRATING} are needed, {enough}".replace("%", " %")
    )
    counts = zip(table.classes, table.labels.sum(axis=0).tolist(), strict=True)
    rare = [f"{name} ({count})" for name, count in counts if count < FEWEST_OF_ACTION]
    if rare:
        sentences.append(f"fewer than {FEWEST_OF_ACTION} rows, too few to learn: {', '.join(rare)}")
    return sentences if num_timeless == len(table) else [*sentences, _COMPLETE]


def _rows(number: int, many: str, one: str) -> str:
    return f"1 row {one}" if number == 1 else f"{number} rows {many}"


def _share_that_also(together: Int[np.ndarray, "classes classes"]) -> Float[np.ndarray, "classes classes"]:
    """Return the share of each class's rows that have each other class; NaN on the diagonal."""
    share = together / np.maximum(together.diagonal(), 1)[:, None]
    np.fill_diagonal(share, np.nan)
    return share


def _spread(axes: "Axes", axis: Literal["x", "y"], counts: Int[np.ndarray, " things"]) -> None:
    """Scale an axis from zero, or logarithmically if the counts span a wide range."""
    largest = int(counts.max())
    is_wide = largest > _WIDE_RANGE * max(int(counts.min()), 1)
    limits = (0.7, largest * 1.6) if is_wide else (0, max(largest, 1) * 1.08)
    axes.set(**{f"{axis}scale": "log" if is_wide else "linear", f"{axis}lim": limits})
    ruler = axes.xaxis if axis == "x" else axes.yaxis
    ruler.set_major_formatter(lambda value, _: f"{value:,.0f}" if value == round(value) else "")
    ruler.set_minor_formatter(lambda _value, _: "")


def _short(name: str) -> str:
    return name if len(name) <= _LONGEST_NAME else f"{name[: _LONGEST_NAME - 1]}…"
