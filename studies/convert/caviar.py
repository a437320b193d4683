"""CAVIAR: people in a lobby, tracked frame by frame, each with a movement, a role, a context and a situation.

    *.xml   the published ground truth (CVML), one file per sequence, boxes in pixels given by their centres
    *.csv   one row per box and label, as `action_rows` reads them, with labels like `movement:walking`

Several people are in view and each has several labels. Labels of a group apply to each of its members, as
`group_movement`, `group_role`, `group_context` and `group_situation`.
"""

import csv
import math
import re
from collections.abc import Iterable, Sequence
from fractions import Fraction
from pathlib import Path

from mule.core.errors import AnnotationError
from mule.core.files import write_file
from mule.core.text_rows import Problems, numbers, shown
from mule.data.convert.conversion import (
    NO_ACTION,
    BoxSettings,
    ConversionReport,
    Corners,
    SeenBox,
    Sightings,
    SizePx,
    is_frame_number,
    table_and_report,
)
from mule.data.convert.cvat import read_xml
from mule.data.table.table import ActorTable
from studies.convert.action_rows import read_action_rows

FRAME_RATE = Fraction(25)
SIZE_PX = (384, 288)
LABELS = ("movement", "role", "context", "situation")
KINDS = (*LABELS, *(f"group_{name}" for name in LABELS))
"""The kinds of labels of an actor, and of its group."""
KIND_MARK = ":"

_RUN = re.compile(r"(.+?)_\d+_\d+(\.\w+)?")
_BOX = ("xc", "yc", "w", "h")


def actors_from_caviar(paths: Sequence[Path], settings: BoxSettings) -> tuple[ActorTable, ConversionReport]:
    """Return the actors of CAVIAR files; an action is a label with its kind, such as `context:browsing`.

    Args:
        paths: `.xml` files, each a video named like the file unless the settings name it, or `.csv` files.
        settings: `actions.attributes` are the kinds to use. Frame rate and size default to those of CAVIAR.

    Raises:
        AnnotationError: a file has problems; the message names all of them by line.
    """
    return table_and_report([(path, _sightings(path, settings)) for path in paths], "boxes")


def sequence_of(video: str) -> str:
    """Return the sequence that a part was cut from; the names of parts end in their first and last frame.

    >>> sequence_of("Fight_OneManDown1_0234_0304.mp4"), sequence_of("Walk1.mpg")
    ('Fight_OneManDown1', 'Walk1')
    """
    found = _RUN.fullmatch(video)
    return found[1] if found else video.rpartition(".")[0] or video


def write_sequences(path: Path, videos: Iterable[str]) -> None:
    """Write the sequence of each video, `video, sequence`: parts of one sequence show the same people."""

    def write(unfinished: Path) -> None:
        with unfinished.open("w", encoding="utf-8", newline="") as file:
            writer = csv.writer(file, lineterminator="\n")
            writer.writerow(("video", "sequence"))
            writer.writerows((video, sequence_of(video)) for video in videos)

    write_file(path, write)


def _sightings(path: Path, settings: BoxSettings) -> Sightings:
    match path.suffix.lower():
        case ".csv":
            return _of_rows(path, settings)
        case ".xml":
            return _of_frames(path, settings)
        case other:
            raise AnnotationError(f"{path}: CAVIAR annotations must be a .xml or .csv file; got {other!r}.")


def _of_rows(path: Path, settings: BoxSettings) -> Sightings:
    problems = Problems(path)
    sightings = Sightings(path, settings)
    for line, row in read_action_rows(path, problems).actors:
        labels: dict[str, list[str]] = {}
        for action in sorted(row.actions):
            kind, mark, label = action.partition(KIND_MARK)
            if kind not in KINDS or not mark or not label:
                problems.add(line, f"a label must look like 'movement:walking'; got {shown(action)}")
            else:
                labels.setdefault(kind, []).append(action)
        sightings.add(
            SeenBox(f"line {line}", row.video, row.time_s, row.box_xyxy_unit, (), labels, row.actor),
            (1.0, 1.0),
            None,
        )
    problems.raise_if_any()
    return sightings


def _of_frames(path: Path, settings: BoxSettings) -> Sightings:
    document = _Document(path, settings.video or path.stem)
    read_xml(path, document, kind="XML")
    sightings = Sightings(path, settings)
    size_px: SizePx = settings.size_px or SIZE_PX
    for place, problem in document.problems:
        sightings.problems.add(place, problem)
    for sighting in document.sightings:
        sightings.add(sighting, size_px, settings.frame_rate or FRAME_RATE)
    return sightings


class _Thing:
    """An object or a group in one frame."""

    def __init__(self, line: int, name: str) -> None:
        self.line, self.name = line, name
        self.box: dict[str, str] = {}
        self.members: list[str] = []
        self.labels: dict[str, str] = {}
        self.num_hypotheses = 0


class _Document:
    """Collects the objects of a file frame by frame while the parser reads it."""

    def __init__(self, path: Path, video: str) -> None:
        self.sightings: list[SeenBox] = []
        self.problems: list[tuple[str, str]] = []
        self._path, self._video = path, video
        self._frame = ""
        self._objects: list[_Thing] = []
        self._groups: list[_Thing] = []
        self._things = self._objects

    def started(self, tag: str, values: dict[str, str], outer: Sequence[str], line: int) -> None:
        """Collect frames, objects, groups and boxes."""
        if not outer and tag != "dataset":
            raise AnnotationError(
                f"{self._path}, line {line}: must be a <dataset> of frames, like CAVIAR's ground truth; got "
                f"<{tag}>."
            )
        if tag == "frame":
            self._frame = values.get("number", "")
            self._objects.clear()
            self._groups.clear()
        elif tag in ("object", "group"):
            self._things = self._objects if tag == "object" else self._groups
            self._things.append(_Thing(line, values.get("id", "").strip()))
        elif tag == "box" and outer[-1] in ("object", "group"):
            self._things[-1].box = values
        elif tag == "hypothesis" and self._things:
            self._things[-1].num_hypotheses += 1

    def ended(self, tag: str, text: str, outer: Sequence[str]) -> None:
        """Collect members and labels; the end of a frame completes it."""
        inside = outer[-1] if outer else ""
        if tag == "members" and inside == "group":
            self._groups[-1].members = [name.strip() for name in text.split(",") if name.strip()]
        elif inside == "hypothesis" and tag in LABELS and text.casefold() not in NO_ACTION:
            self._things[-1].labels[tag] = re.sub(r"\s+", "_", text)
        elif tag == "frame":
            self._finish_frame()

    def _finish_frame(self) -> None:
        names = {each.name for each in self._objects}
        for group in self._groups:
            unknown = [name for name in group.members if name not in names]
            if unknown:
                self._wrong(
                    group, f"members of a group must be objects in its frame; {', '.join(unknown)} are not"
                )
        for each in self._objects:
            corners = self._corners(each)
            if corners is None:
                continue
            labels: dict[str, object] = {kind: f"{kind}:{label}" for kind, label in each.labels.items()}
            for group in self._groups:
                if each.name in group.members:
                    labels |= {
                        f"group_{kind}": f"group_{kind}:{label}" for kind, label in group.labels.items()
                    }
            place = f"line {each.line}"
            self.sightings.append(
                SeenBox(place, self._video, int(self._frame), corners, (), labels, each.name)
            )

    def _corners(self, thing: _Thing) -> Corners | None:
        x, y, width, height = numbers([thing.box.get(name, "") for name in _BOX]).tolist()
        if not is_frame_number(self._frame) or not thing.name:
            self._wrong(
                thing,
                f"an object must have an id and be in a numbered frame; got {thing.name!r} in frame "
                f"{self._frame!r}",
            )
            return None
        if not all(map(math.isfinite, (x, y, width, height))):
            self._wrong(
                thing,
                f"an object must have a box with xc, yc, w and h in pixels; got {shown(str(thing.box))}",
            )
            return None
        if thing.num_hypotheses > 1:
            self._wrong(thing, f"an object must have one hypothesis; got {thing.num_hypotheses}")
        return x - width / 2, y - height / 2, x + width / 2, y + height / 2

    def _wrong(self, thing: _Thing, what: str) -> None:
        self.problems.append((f"line {thing.line}", what))
