"""Shared parts of the converters: rows of the new table, and a report of what was left out.

COCO, VIAME and CVAT files hold boxes over time; `Sightings` turns them into rows, one per actor and key time.
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from pathlib import Path
from typing import Literal, NamedTuple

import numpy as np

from mule.core.errors import AnnotationError, RangeError
from mule.core.text_rows import Problems, numbered, shown
from mule.data.table.table import ACTION_SEPARATOR, ActorTable
from mule.video.clips import SAME_INSTANT_S

Corners = tuple[float, float, float, float]
"""x1, y1, x2, y2 of a box, in pixels or in fractions of the frame."""
SizePx = tuple[int | float, int | float]
"""Width and height of a frame."""

EMPTY_BOX: Corners = (np.nan, np.nan, np.nan, np.nan)
"""Box of a row that describes the whole frame."""
WHOLE_VIDEO_S = np.nan
"""Time of a row that describes the whole video."""
MAX_DRAWN_OVERHANG_UNIT = 0.05
"""Annotators draw a little over the edge; a box further out belongs to a frame of another size."""


@dataclass(frozen=True)
class ConversionReport:
    """How the entries of a file were used: every entry that was read and not dropped is in the table."""

    unit: str
    """What an entry is: a row, a video, an annotation or a box (plural)."""
    num_read: int
    num_table_rows: int
    dropped: Mapping[str, int] = field(default_factory=dict)
    """Number of dropped entries by reason."""
    noted: Mapping[str, int] = field(default_factory=dict)
    """Number of other changes by name, such as joined or clipped boxes."""

    @property
    def num_kept(self) -> int:
        """Entries in the table, alone or joined with others."""
        return self.num_read - sum(self.dropped.values())


class TableRow(NamedTuple):
    """One row of the new table."""

    video: str
    time_s: float
    box_xyxy_unit: Corners
    actions: frozenset[str]
    actor: str


def actor_table(rows: Iterable[TableRow]) -> ActorTable:
    """Build a table; videos are numbered in order of appearance, classes alphabetically."""
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
    """Raise an AnnotationError with the reasons if no row is left."""
    if not report.num_table_rows:
        reasons = ", ".join(
            f"{count} {reason.replace('_', ' ')}" for reason, count in report.dropped.items() if count
        )
        raise AnnotationError(
            f"{path}: must hold something for the table; of {report.num_read} {report.unit} none is left"
            f"{f' ({reasons})' if reasons else ''}."
        )


def problem_of_action(name: str) -> str | None:
    """Return the reason why a name cannot be an action of a table, or None."""
    if ACTION_SEPARATOR in name:
        return f"an action must not contain {ACTION_SEPARATOR!r}, which separates actions; got {shown(name)}"
    return None


def unit_box(corners_px: Corners, size_px: SizePx) -> Corners | str:
    """Return the part of a box inside the frame in fractions of it, or the problem with the box."""
    width, height = size_px
    x1, y1, x2, y2 = corners_px
    box = (x1 / width, y1 / height, x2 / width, y2 / height)
    if not (min(box[:2]) >= -MAX_DRAWN_OVERHANG_UNIT and max(box[2:]) <= 1 + MAX_DRAWN_OVERHANG_UNIT):
        return (
            f"a box must lie in the frame of {width:g} x {height:g} pixels; got {x1:g}, {y1:g} to {x2:g}, {y2:g}. "
            "Is this the size the boxes were drawn at?"
        )
    inside = (max(box[0], 0.0), max(box[1], 0.0), min(box[2], 1.0), min(box[3], 1.0))
    if not (inside[0] < inside[2] and inside[1] < inside[3]):
        return f"a box must have a width and a height inside the frame; got {x1:g}, {y1:g} to {x2:g}, {y2:g}"
    return inside


def is_key_frame(frame: int, frame_rate: Fraction, every_s: Fraction | None) -> bool:
    """Whether a frame is the nearest to a multiple of `every_s` (the later of two); True if that is None.

    >>> [frame for frame in range(31) if is_key_frame(frame, Fraction(25), Fraction(1, 2))]
    [0, 13, 25]
    """
    if every_s is None:
        return True
    step, per = (every_s * frame_rate).as_integer_ratio()
    multiple = -((1 - 2 * frame) * per // (2 * step))  # the first multiple at or after half a frame before
    return 2 * multiple * step < (2 * frame + 1) * per


def is_key_time(time_s: float, every_s: Fraction | None) -> bool:
    """Whether a time is a multiple of `every_s`, to half a millisecond; True if that is None."""
    if every_s is None:
        return True
    return abs(time_s - round(time_s / float(every_s)) * float(every_s)) <= SAME_INSTANT_S


NO_ACTION = frozenset({"", "__undefined__", "false", "none"})
SAME_PLACE_UNIT = 1e-6
_MOST_DIGITS = 15

_OF_THE_TOOL = frozenset({"keyframe", "occluded", "outside", "rotation", "userCreated", "userModified"})


@dataclass(frozen=True)
class ActionRule:
    """Where the actions of a box come from: its class, its attributes, or both.

    An attribute with the value true is an action; for a text or a list of texts, the texts are actions. A number,
    false, an empty text, `none` and `__undefined__` are no actions.
    """

    from_class: bool = True
    from_attributes: bool = False
    attributes: frozenset[str] | None = None
    """Attributes to use; None for all except those that annotation tools set themselves (`occluded`, …)."""

    @classmethod
    def named_by(
        cls, source: Literal["class", "attributes", "both"], attributes: Iterable[str] = ()
    ) -> "ActionRule":
        """Return the rule for actions named by the class of a box, by these attributes (none: by all), or by both.

        Raises:
            RangeError: attributes are given, but only the class counts.
        """
        only = frozenset(attributes)
        if only and source == "class":
            raise RangeError("--attribute: needs --actions attributes or both.")
        return cls(
            from_class=source != "attributes", from_attributes=source != "class", attributes=only or None
        )

    def names(self, classes: Iterable[str], attributes: Mapping[str, object]) -> frozenset[str]:
        """Return the actions of a box."""
        named = {name.strip() for name in classes} if self.from_class else set()
        if self.from_attributes:
            chosen = {key: value for key, value in attributes.items() if self._counts(key)}
            named |= {
                _named_by(key, each)
                for key, value in chosen.items()
                for each in (value if isinstance(value, list) else [value])
            }
        return frozenset(name for name in named if name)

    def _counts(self, attribute: str) -> bool:
        return attribute not in _OF_THE_TOOL if self.attributes is None else attribute in self.attributes


@dataclass(frozen=True)
class BoxSettings:
    """What to take from a file of boxes, and what to assume if the file does not state it."""

    actions: ActionRule = field(default_factory=ActionRule)
    every_s: Fraction | None = None
    """Keep the frame nearest to each multiple of this many seconds; None keeps every frame."""
    only_classes: frozenset[str] | None = None
    """Classes whose boxes are actors; None for all."""
    keep_unlabelled: bool = False
    """Whether to keep boxes without an action."""
    frame_rate: Fraction | None = None
    """Frame rate of the frame numbers; None to read it from the file."""
    video: str | None = None
    """Name of the video; None to read it from the file."""
    size_px: SizePx | None = None
    """Size of the frames; None to read it from the file."""


class SeenBox(NamedTuple):
    """One box as it is in the file."""

    place: str
    video: str
    when: int | float
    """A frame number (int) or a time in seconds (float)."""
    corners_px: Corners
    classes: tuple[str, ...]
    attributes: Mapping[str, object]
    actor: str = ""


class Sightings:
    """Turns the boxes of one file into rows; counts dropped and joined boxes and collects problems."""

    def __init__(self, path: Path, settings: BoxSettings) -> None:
        self.problems = Problems(path)
        self.dropped: Counter[str] = Counter()
        self.noted: Counter[str] = Counter()
        self.num_read = 0
        self._path = path
        self._settings = settings
        self._rows: dict[tuple[str, float, str, Corners | None], TableRow] = {}
        self._attributes: set[str] = set()

    def drop(self, reason: str) -> None:
        """Count a box that does not become a row."""
        self.num_read += 1
        self.dropped[reason] += 1

    def add(self, sighting: SeenBox, size_px: SizePx, frame_rate: Fraction | None) -> None:
        """Turn a box into a row or add its actions to one; otherwise count the reason."""
        self._attributes |= sighting.attributes.keys()
        time_s = self._key_time_s(sighting, frame_rate)
        actions = self._settings.actions.names(sighting.classes, sighting.attributes)
        if not self._is_actor(sighting):
            self.drop("of_another_class")
        elif time_s is None:
            self.drop("between_key_times")
        elif not actions and not self._settings.keep_unlabelled:
            self.drop("without_an_action")
        else:
            self.num_read += 1
            box = unit_box(sighting.corners_px, size_px)
            for problem in (*map(problem_of_action, sorted(actions)), box):
                if isinstance(problem, str):
                    self.problems.add(sighting.place, problem)
            if not isinstance(box, str):
                self.noted["boxes_cut_at_the_edge_of_the_frame"] += _reaches_out(sighting.corners_px, size_px)
                self._join(sighting, TableRow(sighting.video, time_s, box, actions, sighting.actor))

    def finish(self) -> list[TableRow]:
        """Return the rows, one per actor and key time.

        Raises:
            AnnotationError: the file has problems; the message lists them.
        """
        self.problems.raise_if_any()
        missing = sorted((self._settings.actions.attributes or frozenset()) - self._attributes)
        if missing:
            present = ", ".join(sorted(self._attributes)) or "none"
            raise AnnotationError(
                f"{self._path}: the given attributes must occur; {', '.join(missing)} do not. The file has: {present}."
            )
        return list(self._rows.values())

    def _is_actor(self, sighting: SeenBox) -> bool:
        only = self._settings.only_classes
        return only is None or not only.isdisjoint(sighting.classes)

    def _key_time_s(self, sighting: SeenBox, frame_rate: Fraction | None) -> float | None:
        when, every_s = sighting.when, self._settings.every_s
        if isinstance(when, float) or frame_rate is None:
            return float(when) if is_key_time(float(when), every_s) else None
        return float(when / frame_rate) if is_key_frame(when, frame_rate, every_s) else None

    def _join(self, sighting: SeenBox, row: TableRow) -> None:
        key = (row.video, row.time_s, row.actor, None if row.actor else row.box_xyxy_unit)
        first = self._rows.setdefault(key, row)
        if first is row:
            return
        moved = max(abs(a - b) for a, b in zip(first.box_xyxy_unit, row.box_xyxy_unit, strict=True))
        if moved > SAME_PLACE_UNIT:
            self.problems.add(
                sighting.place,
                f"an actor must be in one place at a time; actor {row.actor!r} has another box at {row.time_s:g} s",
            )
        self.noted["boxes_joined_to_one_of_the_same_actor"] += 1
        self._rows[key] = first._replace(actions=first.actions | row.actions)


def table_and_report(
    files: Iterable[tuple[Path, Sightings]], unit: str
) -> tuple[ActorTable, ConversionReport]:
    """Join the rows of all files into one table, and report how their boxes were used."""
    rows: list[TableRow] = []
    file_of: dict[str, Path] = {}
    num_read, dropped, noted = 0, Counter[str](), Counter[str]()
    path = Path()
    for path, sightings in files:
        added = sightings.finish()
        for video in {row.video for row in added}:
            other = file_of.setdefault(video, path)
            if other is not path:
                raise AnnotationError(f"{path}: a video must be in one file; {video!r} is in {other} too.")
        rows += added
        num_read += sightings.num_read
        dropped += sightings.dropped
        noted += sightings.noted
    table = actor_table(rows)
    report = ConversionReport(unit, num_read, len(table), dropped, noted)
    require_rows(report, path)
    return table, report


def is_frame_number(text: str) -> bool:
    """Whether a text is a whole number from 0 that can be a frame number."""
    return text.isdecimal() and len(text) <= _MOST_DIGITS


def _named_by(attribute: str, value: object) -> str:
    """Return the action that an attribute names, or an empty text."""
    if isinstance(value, bool):
        return attribute.strip() if value else ""
    text = value.strip() if isinstance(value, str) else ""
    if text.casefold() == "true":
        return attribute.strip()
    return "" if text.casefold() in NO_ACTION or _is_number(text) else text


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def _reaches_out(corners_px: Corners, size_px: SizePx) -> bool:
    return min(corners_px[:2]) < 0 or corners_px[2] > size_px[0] or corners_px[3] > size_px[1]
