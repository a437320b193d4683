"""What every converter shares: rows on their way to the table, and a report of what did not arrive."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from pathlib import Path
from typing import NamedTuple

import numpy as np

from mule.core.errors import AnnotationError
from mule.core.text_rows import PROBLEMS_SHOWN, numbered, shown
from mule.data.table.table import ACTION_SEPARATOR, ActorTable
from mule.video.clips import SAME_INSTANT_S

UnitBox = tuple[float, float, float, float]
SizePx = tuple[int | float, int | float]
"""Width and height of a frame."""

WHOLE_FRAME: UnitBox = (np.nan, np.nan, np.nan, np.nan)
WHOLE_VIDEO_S = np.nan
MAX_OVERHANG_UNIT = 0.05
"""People draw a little over the edge; a box further out was measured in a frame of another size."""


@dataclass(frozen=True)
class ConversionReport:
    """What became of the entries of a file: what was read and not dropped is in the table."""

    unit: str
    """What the file consists of: rows, videos, annotations, boxes."""
    num_read: int
    num_table_rows: int
    dropped: Mapping[str, int] = field(default_factory=dict)
    """Entries left out, by reason; each is counted once."""
    noted: Mapping[str, int] = field(default_factory=dict)
    """What else a rule decided, by name: what was joined, moved or given up."""

    @property
    def num_kept(self) -> int:
        """Entries that reached the table, alone or joined to others."""
        return self.num_read - sum(self.dropped.values())


class TableRow(NamedTuple):
    """One row of the table to be."""

    video: str
    time_s: float
    box_xyxy_unit: UnitBox
    actions: frozenset[str]
    actor: str


class PlacedProblems:
    """What is wrong with one file whose places have names, not lines: the first few in words, and how many."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._all: list[str] = []

    def add(self, place: str, what: str) -> None:
        """Note one problem; `what` says what must hold and what was found."""
        self._all.append(f"{place}: {what}")

    def raise_if_any(self) -> None:
        """Stop if anything was noted, naming the file and the first places."""
        if self._all:
            more = len(self._all) - PROBLEMS_SHOWN
            text = "; ".join(self._all[:PROBLEMS_SHOWN])
            raise AnnotationError(
                f"{self._path}, {text}{f'; and {more} more like these' if more > 0 else ''}."
            )


def actor_table(rows: Iterable[TableRow]) -> ActorTable:
    """The rows as a table; videos are numbered as they appear, classes in alphabetical order."""
    kept = list(rows)
    classes = tuple(sorted(set().union(*(row.actions for row in kept))))
    column = {name: at for at, name in enumerate(classes)}
    labels = np.zeros((len(kept), len(classes)), dtype=bool)
    for at, row in enumerate(kept):
        labels[at, [column[name] for name in row.actions]] = True
    videos: dict[str, int] = {}
    video_index = numbered([row.video for row in kept], videos)
    return ActorTable(
        tuple(videos),
        classes,
        video_index,
        np.array([row.time_s for row in kept], dtype=np.float64),
        np.array([row.box_xyxy_unit for row in kept], dtype=np.float64).reshape(-1, 4),
        labels,
        tuple(row.actor for row in kept),
    )


def require_rows(report: ConversionReport, path: Path) -> None:
    """Stop where nothing is left for the table, saying why."""
    if not report.num_table_rows:
        reasons = ", ".join(
            f"{count} {reason.replace('_', ' ')}" for reason, count in report.dropped.items() if count
        )
        raise AnnotationError(
            f"{path}: must hold something for the table; of {report.num_read} {report.unit} none is left"
            f"{f' ({reasons})' if reasons else ''}."
        )


def problem_of_action(name: str) -> str | None:
    """What keeps a name from being written into the table, if anything does."""
    if ACTION_SEPARATOR in name:
        return f"an action must not contain {ACTION_SEPARATOR!r}, which separates actions; got {shown(name)}"
    return None


def unit_box(corners_px: UnitBox, size_px: SizePx) -> UnitBox | str:
    """The part of a box inside the frame as fractions of it, or what is wrong with the box."""
    width, height = size_px
    x1, y1, x2, y2 = corners_px
    box = (x1 / width, y1 / height, x2 / width, y2 / height)
    if not (min(box[:2]) >= -MAX_OVERHANG_UNIT and max(box[2:]) <= 1 + MAX_OVERHANG_UNIT):
        return (
            f"a box must lie in the frame of {width:g} x {height:g} pixels; got {x1:g}, {y1:g} to {x2:g}, {y2:g}. "
            "Is this the size the boxes were drawn at?"
        )
    inside = (max(box[0], 0.0), max(box[1], 0.0), min(box[2], 1.0), min(box[3], 1.0))
    if not (inside[0] < inside[2] and inside[1] < inside[3]):
        return f"a box must have a width and a height inside the frame; got {x1:g}, {y1:g} to {x2:g}, {y2:g}"
    return inside


def is_key_frame(frame: int, frame_rate: Fraction, every_s: Fraction | None) -> bool:
    """Whether a frame is the nearest one to a multiple of `every_s` (the later of two); always, if that is None.

    >>> [frame for frame in range(31) if is_key_frame(frame, Fraction(25), Fraction(1, 2))]
    [0, 13, 25]
    """
    if every_s is None:
        return True
    step, per = (every_s * frame_rate).as_integer_ratio()
    multiple = -((1 - 2 * frame) * per // (2 * step))  # the first one not before half a frame earlier
    return 2 * multiple * step < (2 * frame + 1) * per


def is_key_time(time_s: float, every_s: Fraction | None) -> bool:
    """Whether a time is a multiple of `every_s`, to half a millisecond; always, if that is None."""
    if every_s is None:
        return True
    return abs(time_s - round(time_s / float(every_s)) * float(every_s)) <= SAME_INSTANT_S
