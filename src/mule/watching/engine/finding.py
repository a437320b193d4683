"""Who and what is in a key frame: a detector that looks, or boxes that were written down before.

FILE.onnx            a YOLOX detector                         persons, objects; linked by `Tracker`
FILE.safetensors     a centre detector, as the built-in one   persons, objects; linked by `Tracker`
FILE.csv, FILE.json  precomputed boxes (AVA, COCO, by frame)  persons, objects; linked by `Tracker`
FOLDER               actors.csv or tracks.csv, objects.csv    persons with their own ids, objects
"""

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol, runtime_checkable

import numpy as np
import torch
from jaxtyping import Float, Int, Shaped
from torch import Tensor

from mule.core.errors import AnnotationError, DetectorError
from mule.core.files import sha256_of
from mule.core.text_rows import Problems, finite_numbers, numbered, read_named_columns, times_s
from mule.data.table.reading import read_actor_table, read_object_table
from mule.detection.boxes import px_from_unit
from mule.detection.cards import COCO_CLASSES, YOLOX_CARDS, DetectorCard
from mule.detection.centres import read_centre_detector
from mule.detection.detections import PERSON, Detections, frame_key
from mule.detection.detector import Detector, YoloxDetector
from mule.detection.files import load_boxes
from mule.detection.tracks import NO_TRACK
from mule.stage.export import TRACK_HEADER

ACTORS, TRACKS, OBJECTS = "actors.csv", "tracks.csv", "objects.csv"
SAME_LOOK_S = 0.1
"""Boxes of a table count for key times up to so long after them."""
_SAME_INSTANT_S = 0.0005
UNKNOWN_ACTOR_SCORE = 0.3
"""From which score a person is an actor, for a detector file without a card; small detectors are unsure."""


@dataclass(frozen=True)
class Found:
    """What is in one frame, in pixels of it."""

    detections: Detections
    """Of one image; class 0 is the person."""
    track_ids: Int[Tensor, " boxes"] | None = None
    """Who is who, where whoever wrote the boxes down knew; −1 for objects."""


@runtime_checkable
class BoxFinder(Protocol):
    """Finds persons and objects of one video."""

    @property
    def class_names(self) -> Sequence[str]:
        """Names by class index; one that is missing is an `object`."""
        ...

    @property
    def actor_score(self) -> float:
        """Score from which a person counts as an actor."""
        ...

    @property
    def links_between(self) -> bool:
        """Whether looking at frames between key times helps to tell who is who."""
        ...

    def __call__(self, frame: Shaped[Tensor, "3 rows cols"], *, key_time_s: float) -> Found:
        """What is in the frame on screen at that time."""
        ...


def box_finder(
    detector: "str | Path | Detector | BoxFinder", video: str, *, actor_score: float | None = None
) -> BoxFinder:
    """What finds the boxes of a video.

    Args:
        detector: a file, a folder, a detector, or a finder, which is returned as it is.
        video: the name under which tables know the video.
        actor_score: score from which a person is an actor; None is what the detector's card says.

    Raises:
        DetectorError: a detector file cannot be used, or the extra that runs it is missing.
        AnnotationError: a file of boxes cannot be read.
    """
    if isinstance(detector, BoxFinder):
        return detector
    if not isinstance(detector, str | Path):
        return DetectedBoxes(detector)
    path = Path(detector)
    if path.is_dir():
        return _folder(path, video)
    if path.suffix.lower() == ".onnx":
        return DetectedBoxes(
            YoloxDetector(
                path, actor_score=_actor_score(path) if actor_score is None else actor_score, threads=1
            )
        )
    if path.suffix.lower() == ".safetensors":
        return DetectedBoxes(read_centre_detector(path))
    if path.suffix.lower() in (".csv", ".json"):
        return FrameBoxes(
            path, video, actor_score=UNKNOWN_ACTOR_SCORE if actor_score is None else actor_score
        )
    raise DetectorError(
        f"{path}: a detector must be a YOLOX file (.onnx), a centre detector (.safetensors), boxes in .csv or .json, or a "
        f"folder with {ACTORS} or {TRACKS}; this is none of them."
    )


class DetectedBoxes:
    """A detector looks at every frame it is shown."""

    links_between = True

    def __init__(self, detector: Detector) -> None:
        self._detector = detector
        self.class_names = tuple(detector.class_names)
        self.actor_score = detector.actor_score

    def __call__(self, frame: Shaped[Tensor, "3 rows cols"], *, key_time_s: float) -> Found:  # noqa: ARG002 - one call for all
        """What the detector finds."""
        return Found(self._detector(frame[None]))


class FrameBoxes:
    """Boxes of a file by video and time to the millisecond; a time that the file leaves out has none."""

    links_between = False
    class_names = COCO_CLASSES

    def __init__(self, path: Path, video: str, *, actor_score: float) -> None:
        self._table = load_boxes(path)
        self.actor_score = actor_score
        self._video = video
        there = {frame.video for frame in self._table.frames}
        if video not in there:
            raise AnnotationError(_not_there(path, video, sorted(there)))

    def __call__(self, frame: Shaped[Tensor, "3 rows cols"], *, key_time_s: float) -> Found:
        """What the file says."""
        key = frame_key(self._video, key_time_s)
        return Found(self._table.detections([key], width_px=frame.shape[2], height_px=frame.shape[1]))


@dataclass(frozen=True)
class _Rows:
    """Boxes of one video by time."""

    time_s: Float[np.ndarray, " rows"]
    boxes_xyxy_unit: Float[np.ndarray, "rows 4"]
    class_index: Int[np.ndarray, " rows"]
    scores: Float[np.ndarray, " rows"]
    track_ids: Int[np.ndarray, " rows"]


class SceneTables:
    """Persons, who they are, and objects of one video, from tables; boxes stay for a tenth of a second."""

    links_between = False
    actor_score = 0.0

    def __init__(self, persons: _Rows, objects: _Rows, object_classes: Sequence[str]) -> None:
        self.class_names = ("person", *object_classes)
        self._parts = [(rows, sorted(set(rows.time_s.tolist()))) for rows in (persons, objects)]

    def __call__(self, frame: Shaped[Tensor, "3 rows cols"], *, key_time_s: float) -> Found:
        """What the tables say."""
        chosen = [_at(rows, times, key_time_s) for rows, times in self._parts]
        unit = torch.from_numpy(np.concatenate([rows.boxes_xyxy_unit for rows in chosen])).float()
        columns = [
            np.concatenate([getattr(rows, name) for rows in chosen]) for name in ("scores", "class_index")
        ]
        detections = Detections(
            px_from_unit(unit, width_px=frame.shape[2], height_px=frame.shape[1]),
            torch.from_numpy(columns[0]).float(),
            torch.from_numpy(columns[1]),
            torch.zeros(len(unit), dtype=torch.int64),
            num_images=1,
        )
        return Found(detections, torch.from_numpy(np.concatenate([rows.track_ids for rows in chosen])))


def _at(rows: _Rows, times_s: list[float], key_time_s: float) -> _Rows:
    place = bisect_right(times_s, key_time_s + _SAME_INSTANT_S) - 1
    is_shown = place >= 0 and times_s[place] > key_time_s - SAME_LOOK_S
    chosen = rows.time_s == times_s[place] if is_shown else np.zeros(len(rows.time_s), dtype=bool)
    return _Rows(*(getattr(rows, name)[chosen] for name in _Rows.__dataclass_fields__))


def _folder(folder: Path, video: str) -> SceneTables:
    if (folder / TRACKS).is_file():
        persons = _tracks(folder / TRACKS, video)
    elif (folder / ACTORS).is_file():
        persons = _actors(folder / ACTORS, video)
    else:
        raise AnnotationError(
            f"{folder}: a folder of boxes must hold {TRACKS} or {ACTORS}; it has neither. `mule stage render` and `mule "
            "data` write them."
        )
    return SceneTables(persons, *_objects(folder / OBJECTS, video))


def _tracks(path: Path, video: str) -> _Rows:
    problems = Problems(path)
    parts: list[tuple[np.ndarray, ...]] = []
    names: list[str] = []
    ids: list[str] = []
    for columns in read_named_columns(path, TRACK_HEADER, problems):
        corners = [
            finite_numbers(columns.texts[name], name, columns.lines, problems) for name in TRACK_HEADER[-4:]
        ]
        parts.append((times_s(columns.texts["time_s"], columns.lines, problems), np.stack(corners, axis=1)))
        names += columns.texts["video"]
        ids += columns.texts["actor_id"]
    problems.raise_if_any()
    time_s, boxes = (np.concatenate(column) for column in zip(*parts, strict=True))
    return _persons(path, video, names, ids, time_s, boxes)


def _actors(path: Path, video: str) -> _Rows:
    table = read_actor_table(path, allow_unlabelled=True)
    is_placed = table.has_box & table.has_time
    names = [name for name, is_kept in zip(table.video_names, is_placed.tolist(), strict=True) if is_kept]
    ids = [name for name, is_kept in zip(table.actor_id, is_placed.tolist(), strict=True) if is_kept]
    if any(not actor_id for actor_id in ids):
        raise AnnotationError(
            f"{path}: every row must have an actor_id, by which who is who is known; some have none. Write the boxes as "
            "AVA's CSV instead: then they are linked."
        )
    return _persons(path, video, names, ids, table.time_s[is_placed], table.boxes_xyxy_unit[is_placed])


def _persons(
    path: Path, video: str, names: list[str], ids: list[str], time_s: np.ndarray, boxes: np.ndarray
) -> _Rows:
    """The rows of one video; actors are numbered in the order in which they appear."""
    chosen = np.flatnonzero(np.array([name == video for name in names], dtype=bool))
    if not len(chosen):
        raise AnnotationError(_not_there(path, video, sorted(set(names))))
    chosen = chosen[np.argsort(time_s[chosen], kind="stable")]
    track_ids = numbered([ids[row] for row in chosen.tolist()], {})
    zeros = np.zeros(len(chosen))
    return _Rows(
        time_s[chosen], boxes[chosen].clip(0, 1), zeros.astype(np.int64) + PERSON, zeros + 1, track_ids
    )


def _objects(path: Path, video: str) -> tuple[_Rows, tuple[str, ...]]:
    if not path.is_file():
        none = np.zeros(0)
        return _Rows(none, np.zeros((0, 4)), none.astype(np.int64), none, none.astype(np.int64)), ()
    table = read_object_table(path)
    is_here = np.array([name == video for name in table.videos], dtype=bool)[table.video_index]
    is_here &= np.array([name != "person" for name in table.classes], dtype=bool)[table.class_index]
    rows = _Rows(
        table.time_s[is_here],
        table.boxes_xyxy_unit[is_here],
        table.class_index[is_here].astype(np.int64) + 1,
        table.score[is_here],
        np.full(int(is_here.sum()), NO_TRACK, dtype=np.int64),
    )
    return rows, table.classes


def _actor_score(path: Path) -> float:
    card = _card_of(path)
    return UNKNOWN_ACTOR_SCORE if card is None else card.actor_score


def _card_of(path: Path) -> DetectorCard | None:
    sha256 = sha256_of(path) if path.is_file() else ""
    return next((card for card in YOLOX_CARDS.values() if card.sha256 == sha256), None)


def _not_there(path: Path, video: str, there: Sequence[str]) -> str:
    shown = ", ".join(there[:5]) + (", …" if len(there) > 5 else "")
    return f"{path}: must have boxes of the video '{video}'; it has those of {shown or 'none'}."
