"""Add detected persons to a table of whole frames; each person gets the labels of its clip.

It is unknown which person does which action, so training and evaluation pool the actors of a clip
(`labels_of = "clips"`). A clip without a detected person keeps its row for the whole frame.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from jaxtyping import Float, Shaped
from torch import Tensor

from mule.core.errors import RangeError
from mule.data.convert.conversion import EMPTY_BOX, Corners, TableRow, actor_table
from mule.data.table.table import ActorTable
from mule.detection.boxes import unit_from_px
from mule.detection.detections import Detections, split_actors_and_objects
from mule.video.reading import frames_at

Find = Callable[[Shaped[Tensor, "3 rows cols"]], Detections]


@dataclass(frozen=True)
class DetectedActors:
    """A table with detected boxes."""

    actors: ActorTable
    num_clips: int
    num_without: int
    """Clips without a detected person; they keep the whole frame."""


def detected_actors(
    table: ActorTable,
    videos: Mapping[str, Path],
    find: Find,
    *,
    actor_score: float,
    on_progress: Callable[[int, int], None] = lambda *_: None,
) -> DetectedActors:
    """Return a row for each person in the key frame of each clip, best score first, with the actions of the clip.

    Args:
        table: rows with a time and without a box.
        videos: path of each video.
        find: detects persons in a frame.
        actor_score: least score of an actor.
        on_progress: called with the number of finished clips and of all clips.

    Raises:
        RangeError: a row already has a box, or describes a whole video.
        VideoError: a video cannot be read.
    """
    if table.has_box.any():
        raise RangeError(
            "rows must describe whole frames to add detected persons; some rows have a box already."
        )
    if not table.has_time.all():
        raise RangeError(
            "rows must have a time to add detected persons; some rows describe whole videos. Write one row per key time."
        )
    first, clip_of_row = table.clips()
    rows: list[TableRow] = []
    num_without = 0
    for clip, row in enumerate(first.tolist()):
        video, time_s = table.videos[table.video_index[row]], float(table.time_s[row])
        boxes = _persons(videos[video], time_s, find, actor_score)
        num_without += not len(boxes)
        does = np.flatnonzero(table.labels[clip_of_row == clip].any(axis=0)).tolist()
        actions = frozenset(table.classes[at] for at in does)
        rows += [TableRow(video, time_s, box, actions, "") for box in _or_whole(boxes)]
        on_progress(clip + 1, len(first))
    return DetectedActors(actor_table(rows), len(first), num_without)


def _persons(path: Path, time_s: float, find: Find, actor_score: float) -> Float[np.ndarray, "persons 4"]:
    frame = frames_at(path, [time_s])[0]
    persons, _ = split_actors_and_objects(find(frame), actor_score=actor_score)
    boxes = unit_from_px(persons.boxes_xyxy_px, width_px=frame.shape[2], height_px=frame.shape[1])
    return boxes.double().clamp(0, 1).numpy()


def _or_whole(boxes: Float[np.ndarray, "persons 4"]) -> list[Corners]:
    return [(x1, y1, x2, y2) for x1, y1, x2, y2 in boxes.tolist()] or [EMPTY_BOX]
