"""Who and what is in a frame, and who is who: a detector, or boxes from a file, linked over time.

a detector           see `detection/named.py`                 persons, objects; linked by `Tracker`
FILE.csv, FILE.json  precomputed boxes (AVA, COCO, by frame)  persons, objects; linked by `Tracker`
FOLDER               actors.csv or tracks.csv, objects.csv    persons with their own ids, objects
a function           of a frame, returns supervision's boxes  persons, objects; with ids of your tracker, if it has some

    sights ─▶ boxes in the frame ─▶ tracker ─▶ `Scene` at each key time
"""

from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

import numpy as np
import torch
from jaxtyping import Bool, Float, Int, Shaped
from torch import Tensor

from mule.core.errors import AnnotationError, DetectorError, ShapeError
from mule.core.tensors import require_tensors
from mule.core.text_rows import Problems, finite_numbers, numbered, read_named_columns, times_s
from mule.data.table.reading import read_actor_table, read_object_table
from mule.detection.boxes import clip_to_image, has_area
from mule.detection.cards import COCO_CLASSES
from mule.detection.detections import PERSON, Detections, frame_key, split_actors_and_objects
from mule.detection.detector import Detector
from mule.detection.files import load_boxes
from mule.detection.named import UNKNOWN_ACTOR_SCORE, load_detector
from mule.detection.outside import PERSON_NAME, detections_from_supervision
from mule.detection.tracks import NO_TRACK, Tracker
from mule.stage.export import TRACK_HEADER
from mule.video.transforms import px_from_unit
from mule.watching.engine.key_times import Rhythm, Sight

ACTORS, TRACKS, OBJECTS = "actors.csv", "tracks.csv", "objects.csv"
MOST_ACTORS = 1000
"""Persons at one moment."""
MOST_HIDDEN_S = 5.0
"""A track that stays unseen for longer is over; a person who comes back later gets a new number."""
BOX_STAYS_S = 0.1
"""A box in a table counts for key times up to this long after it."""
_SAME_INSTANT_S = 0.0005


@dataclass(frozen=True)
class FoundBoxes:
    """Persons and objects in one frame, in its pixels."""

    detections: Detections
    """Of one image; class 0 is the person."""
    track_ids: Int[Tensor, " boxes"] | None = None
    """Who is who, if the file of boxes says so; −1 for objects. None leaves it to the tracker."""


@dataclass(frozen=True)
class Scene:
    """A key time with the actors and objects in view, in pixels of the source."""

    sight: Sight
    boxes_xyxy_px: Float[Tensor, "actors 4"]
    scores: Float[Tensor, " actors"]
    track_ids: Int[Tensor, " actors"]
    """Rising."""
    objects_xyxy_px: Float[Tensor, "objects 4"]
    object_names: tuple[str, ...]
    tracker: Mapping[str, Tensor]
    """The tracker's state after this frame; a resumed watch starts from it."""

    def only(
        self, is_actor_kept: Bool[Tensor, " actors"], is_object_kept: Bool[Tensor, " objects"]
    ) -> "Scene":
        """The scene with some of its actors and objects."""
        return Scene(
            sight=self.sight,
            boxes_xyxy_px=self.boxes_xyxy_px[is_actor_kept],
            scores=self.scores[is_actor_kept],
            track_ids=self.track_ids[is_actor_kept],
            objects_xyxy_px=self.objects_xyxy_px[is_object_kept],
            object_names=tuple(
                name
                for name, is_kept in zip(self.object_names, is_object_kept.tolist(), strict=True)
                if is_kept
            ),
            tracker=self.tracker,
        )


@runtime_checkable
class BoxFinder(Protocol):
    """Finds the persons and objects of one video."""

    @property
    def class_names(self) -> Sequence[str]:
        """Names by class index; a class without a name is an `object`."""
        ...

    @property
    def actor_score(self) -> float:
        """The least score at which a person counts as an actor."""
        ...

    @property
    def links_between(self) -> bool:
        """Whether frames between key times help to tell who is who."""
        ...

    def __call__(self, frame: Shaped[Tensor, "3 rows cols"], *, key_time_s: float) -> FoundBoxes:
        """Find the boxes in the frame on screen at that time."""
        ...


DetectingFunction = Callable[[np.ndarray], Any]
"""Takes a frame and returns what `detections_from_supervision` reads."""


def box_finder(detector: str | Path | Detector | BoxFinder | DetectingFunction, video: str) -> BoxFinder:
    """Return what finds the boxes of a video by this detector, or in the rows of this name; a finder is itself."""
    if isinstance(detector, BoxFinder):
        return detector
    if isinstance(detector, Detector):
        return DetectedBoxes(detector)
    if callable(detector):
        return CalledBoxes(detector)
    path = Path(detector)
    if path.is_dir():
        return _folder(path, video)
    if path.suffix.lower() in (".csv", ".json"):
        return FrameBoxes(path, video, actor_score=UNKNOWN_ACTOR_SCORE)
    return DetectedBoxes(load_detector(path, threads=1))


class DetectedBoxes:
    """Boxes from a detector that runs on every frame."""

    links_between = True

    def __init__(self, detector: Detector) -> None:
        self._detector = detector
        self.class_names = tuple(detector.class_names)
        self.actor_score = detector.actor_score

    def __call__(self, frame: Shaped[Tensor, "3 rows cols"], *, key_time_s: float) -> FoundBoxes:  # noqa: ARG002 - one call for all
        """Run the detector."""
        return FoundBoxes(self._detector(frame[None]))


class CalledBoxes:
    """Boxes from a function of a frame, an array of rows, columns and RGB, that returns `supervision.Detections`."""

    links_between = True
    actor_score = 0.0

    def __init__(self, function: "DetectingFunction") -> None:
        self._function = function
        self.class_names = [PERSON_NAME]

    def __call__(self, frame: Shaped[Tensor, "3 rows cols"], *, key_time_s: float) -> FoundBoxes:  # noqa: ARG002 - one call for all
        """Call the function."""
        found = self._function(np.ascontiguousarray(frame.permute(1, 2, 0).numpy()))
        return FoundBoxes(*detections_from_supervision(found, self.class_names))


class FrameBoxes:
    """Boxes from a file, by video and time to the millisecond; a time that is not in the file has no boxes."""

    links_between = False
    class_names = COCO_CLASSES

    def __init__(self, path: Path, video: str, *, actor_score: float) -> None:
        self._table = load_boxes(path)
        self.actor_score = actor_score
        self._video = video
        videos = {frame.video for frame in self._table.frames}
        if video not in videos:
            raise AnnotationError(_missing_video(path, video, sorted(videos)))

    def __call__(self, frame: Shaped[Tensor, "3 rows cols"], *, key_time_s: float) -> FoundBoxes:
        """Return the boxes in the file at that time."""
        key = frame_key(self._video, key_time_s)
        return FoundBoxes(self._table.detections([key], width_px=frame.shape[2], height_px=frame.shape[1]))


@dataclass(frozen=True)
class _Rows:
    """Boxes of one video by time."""

    time_s: Float[np.ndarray, " rows"]
    boxes_xyxy_unit: Float[np.ndarray, "rows 4"]
    class_index: Int[np.ndarray, " rows"]
    scores: Float[np.ndarray, " rows"]
    track_ids: Int[np.ndarray, " rows"]


class SceneTables:
    """Persons with their ids, and objects, from the tables of one video; a box stays for a tenth of a second."""

    links_between = False
    actor_score = 0.0

    def __init__(self, persons: _Rows, objects: _Rows, object_classes: Sequence[str]) -> None:
        self.class_names = ("person", *object_classes)
        self._parts = [(rows, sorted(set(rows.time_s.tolist()))) for rows in (persons, objects)]

    def __call__(self, frame: Shaped[Tensor, "3 rows cols"], *, key_time_s: float) -> FoundBoxes:
        """Return the boxes in the tables at that time."""
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
        return FoundBoxes(detections, torch.from_numpy(np.concatenate([rows.track_ids for rows in chosen])))


def _at(rows: _Rows, times_s: list[float], key_time_s: float) -> _Rows:
    place = bisect_right(times_s, key_time_s + _SAME_INSTANT_S) - 1
    is_shown = place >= 0 and times_s[place] > key_time_s - BOX_STAYS_S
    chosen = rows.time_s == times_s[place] if is_shown else np.zeros(len(rows.time_s), dtype=bool)
    return _Rows(*(getattr(rows, name)[chosen] for name in _Rows.__dataclass_fields__))


def _folder(folder: Path, video: str) -> SceneTables:
    if (folder / TRACKS).is_file():
        persons = _tracks(folder / TRACKS, video)
    elif (folder / ACTORS).is_file():
        persons = _actors(folder / ACTORS, video)
    else:
        raise AnnotationError(
            f"{folder}: a folder of boxes must hold {TRACKS} or {ACTORS}; it has neither. `mule stage render` and "
            "`mule data` write them."
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
            f"{path}: every row must have an actor_id, which says who is who; some rows have none. Write the boxes in "
            "AVA's CSV format instead, and the tracker links them."
        )
    return _persons(path, video, names, ids, table.time_s[is_placed], table.boxes_xyxy_unit[is_placed])


def _persons(
    path: Path, video: str, names: list[str], ids: list[str], time_s: np.ndarray, boxes: np.ndarray
) -> _Rows:
    """The rows of one video; actors are numbered in order of appearance."""
    chosen = np.flatnonzero(np.array([name == video for name in names], dtype=bool))
    if not len(chosen):
        raise AnnotationError(_missing_video(path, video, sorted(set(names))))
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


def _missing_video(path: Path, video: str, videos: Sequence[str]) -> str:
    shown = ", ".join(videos[:5]) + (", …" if len(videos) > 5 else "")
    return f"{path}: must have boxes of the video '{video}'; it has boxes of {shown or 'no video'}."


LATEST = "latest_s"
"""Beside a tracker's own state: the time of its last frame, as numerator and denominator."""


def restore_tracker(linking: Tracker, state: Mapping[str, Tensor]) -> Fraction:
    """Let a tracker continue from the state in a scene; return the time of its last frame.

    Raises:
        ShapeError: it is not such a state.
    """
    linking.restore({name: each for name, each in state.items() if name != LATEST})
    latest = {LATEST: state[LATEST]} if LATEST in state else {}
    require_tensors(latest, {LATEST: (torch.int64, (2,))})
    numerator, denominator = latest[LATEST].tolist()
    if denominator < 1 or numerator < 0:
        raise ShapeError(f"{LATEST} must be a time from 0 on, as a fraction; got {numerator}/{denominator}.")
    return Fraction(numerator, denominator)


def scenes(
    sights: Iterable[Sight], finder: BoxFinder, rhythm: Rhythm, *, tracker: Mapping[str, Tensor] | None = None
) -> Iterator[Scene]:
    """Find the boxes in every sight and link them over time; yield a scene at each key time."""
    step_s = rhythm.link_every_s
    max_hidden_steps = max(1, round(MOST_HIDDEN_S / float(step_s)))
    linking = Tracker(sure_score=finder.actor_score, max_hidden_steps=max_hidden_steps)
    latest_s = restore_tracker(linking, tracker) if tracker else None
    for sight in sights:
        found = _found(sight, finder)
        persons = found.detections.class_index == PERSON
        if found.track_ids is None:
            boxes_xyxy_px, scores = found.detections.boxes_xyxy_px[persons], found.detections.scores[persons]
            elapsed_s = step_s if latest_s is None else sight.key_time_s - latest_s
            track_ids = linking.update(boxes_xyxy_px, scores, steps=float(elapsed_s / step_s))
        else:
            track_ids = found.track_ids[persons]
        latest_s = sight.key_time_s
        if sight.is_key:
            now_s = torch.tensor([latest_s.numerator, latest_s.denominator])
            yield _scene(sight, finder, found.detections, track_ids, {**linking.state, LATEST: now_s})


def _found(sight: Sight, finder: BoxFinder) -> FoundBoxes:
    frame = sight.clip.key_frame
    if frame is None:
        raise AssertionError("key frames are kept")
    return finder(frame, key_time_s=float(sight.key_time_s))


def _scene(
    sight: Sight,
    finder: BoxFinder,
    detections: Detections,
    track_ids: Int[Tensor, " persons"],
    tracker: Mapping[str, Tensor],
) -> Scene:
    """Actors that have a track and lie in the frame, by track id, and the objects beside them."""
    persons = detections.class_index == PERSON
    rows, cols = sight.clip.source_size
    inside_px = clip_to_image(detections.boxes_xyxy_px[persons], width_px=cols, height_px=rows)
    kept = torch.nonzero((track_ids != NO_TRACK) & has_area(inside_px))[:, 0]
    if len(kept) > MOST_ACTORS:
        raise DetectorError(
            f"a moment must have at most {MOST_ACTORS} actors; at {float(sight.key_time_s):g} s there are {len(kept)}. Crop the "
            "video, or use a detector that finds fewer persons."
        )
    kept = kept[track_ids[kept].argsort()]
    _, objects = split_actors_and_objects(detections, actor_score=finder.actor_score)
    names = tuple(finder.class_names)
    return Scene(
        sight=sight,
        boxes_xyxy_px=inside_px[kept],
        scores=detections.scores[persons][kept],
        track_ids=track_ids[kept],
        objects_xyxy_px=objects.boxes_xyxy_px,
        object_names=tuple(
            names[number] if number < len(names) else "object" for number in objects.class_index.tolist()
        ),
        tracker=tracker,
    )
