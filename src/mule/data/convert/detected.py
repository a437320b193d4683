"""Tables from detected boxes: persons, objects, and actors of clips whose labels are of the whole frame.

It is unknown which person does which action, so training and evaluation pool the actors of a clip
(`labels_of = "clips"`). A clip without a detected person keeps its row for the whole frame.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from mule.core.errors import MuleError, RangeError
from mule.core.text_rows import numbered
from mule.data.convert.conversion import EMPTY_BOX, Corners, TableRow, actor_table
from mule.data.convert.detecting import (
    Finder,
    FrameTimes,
    VideoBoxes,
    boxes_in_video,
    num_frames_expected,
)
from mule.data.convert.partial_boxes import PartialBoxes
from mule.data.table.table import ActorTable, ObjectTable
from mule.data.table.videos import VideoOnDisk


@dataclass(frozen=True)
class SearchedVideos:
    """The boxes of videos, and what could not be looked at."""

    videos: tuple[VideoBoxes, ...]
    unreadable: Mapping[str, str]
    """Videos that could not be read, and why."""

    @property
    def num_frames(self) -> int:
        """Frames that were looked at."""
        return sum(len(video.times_s) for video in self.videos)

    @property
    def after_end(self) -> list[tuple[str, float]]:
        """Key times after the end of their video."""
        return [(video.video, time_s) for video in self.videos for time_s in video.after_end_s]

    @property
    def without_persons(self) -> list[tuple[str, float]]:
        """Frames without a person."""
        return [
            (video.video, float(video.times_s[frame]))
            for video in self.videos
            for frame in np.setdiff1d(
                np.arange(len(video.times_s)), video.frame_index[video.is_person]
            ).tolist()
        ]


def detected_boxes(
    videos: Mapping[str, VideoOnDisk],
    times: Mapping[str, FrameTimes],
    finders: Sequence[Finder],
    partial: PartialBoxes,
    *,
    batch_frames: int = 1,
    on_progress: Callable[[int, int], None] = lambda *_: None,
) -> SearchedVideos:
    """Return the boxes of all videos; those that the partial file holds are not looked at again.

    Args:
        videos: the videos to look at.
        times: the key times of each.
        finders: their boxes are joined.
        partial: finished videos are added to it.
        batch_frames: frames that a detector sees in one call.
        on_progress: called with the number of finished frames and of all frames to look at now.
    """
    found = {name: boxes for name, video in videos.items() if (boxes := partial.find(video)) is not None}
    todo = [video for name, video in videos.items() if name not in found]
    num_expected = sum(num_frames_expected(video, times[video.name]) for video in todo)
    unreadable: dict[str, str] = {}
    num_before = 0
    for video in todo:

        def on_frames(num_frames: int, before: int = num_before) -> None:
            on_progress(before + num_frames, max(num_expected, before + num_frames))

        try:
            boxes = boxes_in_video(
                video, times[video.name], finders, batch_frames=batch_frames, on_frames=on_frames
            )
        except (MuleError, OSError) as error:  # the other videos do not depend on it
            unreadable[video.name] = str(error)
            continue
        partial.add(video, boxes)
        found[video.name] = boxes
        num_before += len(boxes.times_s)
    return SearchedVideos(tuple(found[name] for name in videos if name in found), unreadable)


def persons_in(found: Sequence[VideoBoxes]) -> ObjectTable:
    """Return the detected persons as a table of objects of the class `person`."""
    return _object_table([(video, np.flatnonzero(video.is_person)) for video in found])


def objects_in(found: Sequence[VideoBoxes]) -> ObjectTable:
    """Return the detected objects, without persons."""
    return _object_table([(video, np.flatnonzero(~video.is_person)) for video in found])


def _object_table(chosen: Sequence[tuple[VideoBoxes, np.ndarray]]) -> ObjectTable:
    filled = [(video, rows) for video, rows in chosen if len(rows)]
    classes: dict[str, int] = {}
    names = [video.class_names[row] for video, rows in filled for row in rows.tolist()]
    class_index = numbered(names, classes)

    def joined(column: Callable[[VideoBoxes], np.ndarray], empty: np.ndarray) -> np.ndarray:
        return np.concatenate([empty, *(column(video)[rows] for video, rows in filled)])

    return ObjectTable(
        tuple(video.video for video, _ in filled),
        tuple(classes),
        np.repeat(np.arange(len(filled)), [len(rows) for _, rows in filled]),
        joined(lambda video: video.times_s[video.frame_index], np.zeros(0)),
        joined(lambda video: video.boxes_xyxy_unit, np.zeros((0, 4))),
        class_index,
        joined(lambda video: video.scores, np.zeros(0)),
    )


@dataclass(frozen=True)
class DetectedActors:
    """A table with detected boxes."""

    actors: ActorTable
    num_clips: int
    num_without: int
    """Clips without a detected person; they keep the whole frame."""
    num_unseen: int
    """Clips that could not be looked at; their rows are left out."""


def require_whole_frames(table: ActorTable) -> None:
    """Check that the rows describe whole frames, so that detected persons can be added.

    Raises:
        RangeError: a row already has a box, or describes a whole video.
    """
    if table.has_box.any():
        raise RangeError(
            "rows must describe whole frames to add detected persons; some rows have a box already."
        )
    if not table.has_time.all():
        raise RangeError(
            "rows must have a time to add detected persons; some rows describe whole videos. Write one row per key time."
        )


def detected_actors(table: ActorTable, found: Sequence[VideoBoxes]) -> DetectedActors:
    """Return a row for each person in the key frame of each clip, best score first, with the actions of the clip.

    Raises:
        RangeError: a row already has a box or describes a whole video, or no clip could be looked at.
    """
    require_whole_frames(table)
    persons = {key: boxes for video in found for key, boxes in _persons_by_frame(video).items()}
    first, clip_of_row = table.clips()
    rows: list[TableRow] = []
    num_without = num_seen = 0
    for clip, row in enumerate(first.tolist()):
        video, time_s = table.videos[table.video_index[row]], float(table.time_s[row])
        boxes = persons.get((video, time_s))
        if boxes is None:
            continue
        num_seen += 1
        num_without += not boxes
        does = np.flatnonzero(table.labels[clip_of_row == clip].any(axis=0)).tolist()
        actions = frozenset(table.classes[at] for at in does)
        rows += [TableRow(video, time_s, box, actions, "") for box in boxes or [EMPTY_BOX]]
    if not rows:
        raise RangeError(f"a table must hold rows; none of the {len(first)} clips could be looked at.")
    return DetectedActors(actor_table(rows), len(first), num_without, len(first) - num_seen)


def _persons_by_frame(video: VideoBoxes) -> dict[tuple[str, float], list[Corners]]:
    by_frame: dict[tuple[str, float], list[Corners]] = {
        (video.video, time_s): [] for time_s in video.times_s.tolist()
    }
    for row in np.flatnonzero(video.is_person).tolist():
        x1, y1, x2, y2 = video.boxes_xyxy_unit[row].tolist()
        by_frame[video.video, float(video.times_s[video.frame_index[row]])].append((x1, y1, x2, y2))
    return by_frame
