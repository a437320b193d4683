"""What every converter shares: rows on their way to the table, and a report of what did not arrive.

Boxes followed over time, as COCO, VIAME and CVAT files have them: where their actions are, how they are joined.
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from pathlib import Path
from typing import Literal, NamedTuple

import numpy as np

from mule.core.errors import AnnotationError, RangeError
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


NO_ACTION = frozenset({"", "__undefined__", "false", "none"})
SAME_PLACE_UNIT = 1e-6
MOST_DIGITS = 15

_OF_THE_TOOL = frozenset({"keyframe", "occluded", "outside", "rotation", "userCreated", "userModified"})


@dataclass(frozen=True)
class ActionRule:
    """Where actions are named: by the class of a box, by its attributes, or by both.

    An attribute that is true names an action itself; one with a text, or a list of texts, names actions by them.
    A number, false, an empty text, `none` and `__undefined__` name no action.
    """

    from_class: bool = True
    from_attributes: bool = False
    attributes: frozenset[str] | None = None
    """The only attributes that count; None for all but those an annotation tool sets of itself (`occluded`, …)."""

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
        """The actions of a box."""
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
    """What is wanted of a file of boxes, and what the file itself may leave open."""

    actions: ActionRule = field(default_factory=ActionRule)
    every_s: Fraction | None = None
    """Seconds from one key time to the next: the frame nearest to each multiple is kept; None for every frame."""
    only_classes: frozenset[str] | None = None
    """The classes whose boxes are actors; None for all."""
    keep_unlabelled: bool = False
    """Whether a box without an action is an actor too."""
    frame_rate: Fraction | None = None
    """Frames per second by which frames are numbered; None for what the file says."""
    video: str | None = None
    """The name of the video; None for what the file says."""
    size_px: SizePx | None = None
    """Of the frames; None for what the file says."""


class Sighting(NamedTuple):
    """One box as a file has it."""

    place: str
    video: str
    when: int | float
    """A frame number, whole, or a time in seconds."""
    corners_px: UnitBox
    classes: tuple[str, ...]
    attributes: Mapping[str, object]
    actor: str = ""


class Sightings:
    """The boxes of one file on their way to rows. What is dropped or joined is counted, what is wrong noted."""

    def __init__(self, path: Path, settings: BoxSettings) -> None:
        self.problems = PlacedProblems(path)
        self.dropped: Counter[str] = Counter()
        self.noted: Counter[str] = Counter()
        self.num_read = 0
        self._path = path
        self._settings = settings
        self._rows: dict[tuple[str, float, str, UnitBox | None], TableRow] = {}
        self._attributes: set[str] = set()

    def drop(self, reason: str) -> None:
        """Count a box that will not become a row."""
        self.num_read += 1
        self.dropped[reason] += 1

    def add(self, sighting: Sighting, size_px: SizePx, frame_rate: Fraction | None) -> None:
        """Make a box a row, or a further action of one, or say why not."""
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
        """The rows, one per actor and key time.

        Raises:
            AnnotationError: all that is wrong with the file.
        """
        self.problems.raise_if_any()
        missing = sorted((self._settings.actions.attributes or frozenset()) - self._attributes)
        if missing:
            found = ", ".join(sorted(self._attributes)) or "none"
            raise AnnotationError(
                f"{self._path}: attributes asked for must occur; {', '.join(missing)} do not. There are: {found}."
            )
        return list(self._rows.values())

    def _is_actor(self, sighting: Sighting) -> bool:
        only = self._settings.only_classes
        return only is None or not only.isdisjoint(sighting.classes)

    def _key_time_s(self, sighting: Sighting, frame_rate: Fraction | None) -> float | None:
        when, every_s = sighting.when, self._settings.every_s
        if isinstance(when, float) or frame_rate is None:
            return float(when) if is_key_time(float(when), every_s) else None
        return float(when / frame_rate) if is_key_frame(when, frame_rate, every_s) else None

    def _join(self, sighting: Sighting, row: TableRow) -> None:
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
    """The rows of all files as one table, and what became of their boxes."""
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
    """Whether a text is a whole number, 0 or more, that can count the frames of a video."""
    return text.isdecimal() and len(text) <= MOST_DIGITS


def _named_by(attribute: str, value: object) -> str:
    """The action an attribute names, or nothing."""
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


def _reaches_out(corners_px: UnitBox, size_px: SizePx) -> bool:
    return min(corners_px[:2]) < 0 or corners_px[2] > size_px[0] or corners_px[3] > size_px[1]
