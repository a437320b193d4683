"""Who is in the clips of a table that speaks of whole frames: detected persons, each with the labels of its clip.

Nobody said who of them does it, so the actors of a clip are trained and judged together (`labels_of = "clips"`). A clip
in which nobody is found keeps its row: the whole frame acts.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from jaxtyping import Float, Shaped
from torch import Tensor

from mule.core.errors import RangeError
from mule.data.convert.conversion import WHOLE_FRAME, TableRow, UnitBox, actor_table
from mule.data.table.table import ActorTable
from mule.detection.boxes import unit_from_px
from mule.detection.detections import Detections, split_actors_and_objects
from mule.video.reading import frames_at

Find = Callable[[Shaped[Tensor, "3 rows cols"]], Detections]


@dataclass(frozen=True)
class DetectedActors:
    """A table with the boxes that were found."""

    actors: ActorTable
    num_clips: int
    num_without: int
    """Clips in which nobody was found; they keep the whole frame."""


def detected_actors(
    table: ActorTable,
    videos: Mapping[str, Path],
    find: Find,
    *,
    actor_score: float,
    on_progress: Callable[[int, int], None] = lambda *_: None,
) -> DetectedActors:
    """A row for each person in the key frame of each clip, best score first, with what is done in the clip.

    Args:
        table: rows of moments without boxes.
        videos: where each lies.
        find: what finds persons in a frame.
        actor_score: score from which a person is an actor.
        on_progress: is told how many clips are done, of how many.

    Raises:
        RangeError: a row has a box already, or speaks of a whole video.
        VideoError: a video cannot be read.
    """
    if table.has_box.any():
        raise RangeError(
            "persons are looked for where a table speaks of whole frames; some rows have a box already."
        )
    if not table.has_time.all():
        raise RangeError(
            "persons are looked for at a moment; some rows speak of whole videos. Write one row per key time (`mule data "
            "from-airtlab --rows middle`)."
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


def _or_whole(boxes: Float[np.ndarray, "persons 4"]) -> list[UnitBox]:
    return [(x1, y1, x2, y2) for x1, y1, x2, y2 in boxes.tolist()] or [WHOLE_FRAME]
