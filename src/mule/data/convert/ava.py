"""Convert AVA v2.2: the official folder of annotations, and files of predicted boxes.

A time in AVA is a second s of the whole film. Most copies of the videos start at second 900, and so do folders of
frames: 30 per second, `{video}_%06d.jpg` from 1 on, with second s at index (s − 900) · 30. For both, the time in the
table is s − 900. Rows about the same person at the same time and place become one actor.
"""

from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, NamedTuple

import numpy as np
import torch
from jaxtyping import Bool, Float, Int

from mule.core.errors import AnnotationError
from mule.core.text_rows import (
    Chunk,
    Problems,
    numbered,
    read_chunks,
    times_s,
    with_width,
)
from mule.data.convert.ava_files import (
    AVA_60,
    AVA_80,
    WHOLE,
    FrameNumbers,
    boxes_in_frame,
    person_scores,
    read_action_ids,
    read_frames,
    read_label_map,
    read_rows,
    videos_and_times_s,
)
from mule.data.convert.conversion import ConversionReport, require_rows
from mule.data.table.table import ActorTable, ObjectTable, distinct_rows
from mule.detection.boxes import iou_matrix

SAME_BOX_IOU = 0.9
"""Boxes of one person at one time with at least this overlap are the same box, drawn twice."""


class Actors(NamedTuple):
    """The actors of some rows, in the order of their first rows."""

    first_row: Int[np.ndarray, " actors"]
    of_row: Int[np.ndarray, " rows"]
    names: list[str]


def actors_of(
    frame: Int[np.ndarray, " rows"],
    persons: list[str],
    boxes: Float[np.ndarray, "rows 4"],
    noted: Counter[str],
) -> Actors:
    """Group rows into actors by frame number, person (empty if unknown) and box; count unusual cases.

    Boxes of one person in one frame that overlap by at least `SAME_BOX_IOU` are replaced by the first. A person in two
    places in one frame becomes two actors, `17 (1)` and `17 (2)`. Two persons in one box are two actors. If the person
    is unknown, equal boxes in one frame are one actor.
    """
    columns = np.column_stack([frame, numbered(persons, {}), boxes])
    distinct, first, number = distinct_rows(columns)
    names = [persons[i] for i in first.tolist()]
    leader = np.arange(len(distinct))
    is_new = (distinct[1:, :2] != distinct[:-1, :2]).any(axis=1)
    for group in np.split(np.arange(len(distinct)), np.flatnonzero(is_new) + 1):
        if len(group) > 1 and names[group[0]]:
            group = group[np.argsort(first[group])]
            leader[group] = group[_leaders(distinct[group, 2:])]
            places = list(dict.fromkeys(leader[group].tolist()))
            if len(places) > 1:
                noted["persons_in_two_places_at_one_time"] += 1
                for at, place in enumerate(places, start=1):
                    names[place] += f" ({at})"
    noted["boxes_moved_to_the_first_of_the_person"] = int((leader[number] != number).sum())
    leaders = np.unique(leader)
    leaders = leaders[np.argsort(first[leaders])]
    num_places = len(distinct_rows(distinct[leaders][:, [0, 2, 3, 4, 5]])[0])
    noted["boxes_shared_by_two_persons"] = len(leaders) - num_places
    rank = np.zeros(len(distinct), dtype=np.int64)
    rank[leaders] = np.arange(len(leaders))
    return Actors(first[leaders], rank[leader[number]], [names[i] for i in leaders.tolist()])


def _leaders(boxes: Float[np.ndarray, "boxes 4"]) -> list[int]:
    """Return for each box the first box that it repeats, possibly itself."""
    iou = iou_matrix(torch.from_numpy(boxes), torch.from_numpy(boxes)).numpy()
    leader: list[int] = []
    for at in range(len(boxes)):
        earlier = [i for i in range(at) if leader[i] == i and iou[at, i] >= SAME_BOX_IOU]
        leader.append(earlier[0] if earlier else at)
    return leader


AvaPart = Literal["train", "val"]
VideoCut = Literal["full", "cut-900"]

CUT_AT_S = {"full": 0.0, "cut-900": 900.0}

_LABEL_MAPS = {
    60: (AVA_60, "ava_action_list_v2.2_for_activitynet_2019.pbtxt"),
    80: (AVA_80, "ava_action_list_v2.2.pbtxt"),
}


@dataclass(frozen=True)
class _Rows:
    """The rows of a file that have a box, as columns."""

    videos: list[str]
    time_s: Float[np.ndarray, " rows"]
    frame: Int[np.ndarray, " rows"]
    boxes: Float[np.ndarray, "rows 4"]
    is_clipped: Bool[np.ndarray, " rows"]
    action: Int[np.ndarray, " rows"]
    """Action id; 0 in a file of predicted boxes."""
    persons: list[str]
    """Empty if unknown."""
    score: Float[np.ndarray, " rows"]
    """1 in a file of annotations."""

    def __len__(self) -> int:
        return len(self.videos)

    def at(self, rows: Int[np.ndarray, " chosen"]) -> "_Rows":
        """Return the chosen rows in the chosen order."""
        return _Rows(
            [self.videos[i] for i in rows.tolist()],
            self.time_s[rows],
            self.frame[rows],
            self.boxes[rows],
            self.is_clipped[rows],
            self.action[rows],
            [self.persons[i] for i in rows.tolist()],
            self.score[rows],
        )


def actors_from_ava(
    folder: Path, split: AvaPart, *, num_classes: Literal[60, 80] = 60, videos: VideoCut = "full"
) -> tuple[ActorTable, ConversionReport]:
    """Convert the annotated actors of a split: one row per person, box and time, with all its actions.

    Leaves out rows at times that are not included or are excluded, frames without boxes, actions outside the list of
    classes, and actors without any action left. Boxes of one person at one time that overlap by at least 0.9 are
    replaced by the first. A person in two places at one time becomes two actors, `17 (1)` and `17 (2)`. Two persons in
    one box are two actors.

    Args:
        folder: folder with the official files under their official names.
        split: training or validation.
        num_classes: the 60 evaluated classes, or all 80.
        videos: whether the videos start at the beginning of the film or at second 900.
    """
    class_names = _class_names(folder, num_classes)
    path = folder / f"ava_{split}_v2.2.csv"
    rows, dropped = _rows_in_time(path, folder, split, are_predicted=False)
    num_read = len(rows) + sum(dropped.values())
    is_listed = np.isin(rows.action, list(class_names))
    dropped[f"action_not_among_the_{num_classes}_classes"] = int((~is_listed).sum())
    noted = Counter(boxes_cut_at_the_edge_of_the_frame=int(rows.is_clipped.sum()))
    actors = actors_of(rows.frame, rows.persons, rows.boxes, noted)
    table = _table(rows, actors, class_names, CUT_AT_S[videos])
    noted["actors_left_without_an_action"] = len(actors.names) - len(table)
    noted["actions_repeated"] = int(is_listed.sum() - table.labels.sum())
    report = ConversionReport("rows", num_read, len(table), dropped, noted)
    require_rows(report, path)
    return table, report


def boxes_from_ava(
    path: Path, folder: Path, split: AvaPart, *, videos: VideoCut = "full"
) -> tuple[ObjectTable, ConversionReport]:
    """Convert predicted boxes, `video,time,x1,y1,x2,y2,label-or-empty,score`, to objects of the class `person`.

    Labels are ignored; the score is the last column, with or without a label before it. A box that the file repeats for
    each label becomes one box with the best score.

    Args:
        path: the file of boxes.
        folder: folder with the official files that list included and excluded times.
        split: the split whose excluded times apply.
        videos: as in `actors_from_ava`.
    """
    rows, dropped = _rows_in_time(path, folder, split, are_predicted=True)
    table = _distinct_boxes(rows, CUT_AT_S[videos])
    noted = Counter(
        boxes_cut_at_the_edge_of_the_frame=int(rows.is_clipped.sum()),
        boxes_joined_to_the_same_one=len(rows) - len(table),
    )
    report = ConversionReport("rows", len(rows) + sum(dropped.values()), len(table), dropped, noted)
    require_rows(report, path)
    return table, report


def _distinct_boxes(rows: _Rows, cut_at_s: float) -> ObjectTable:
    """Return each box of each frame once, with its best score, in the order of the first rows."""
    distinct, first, number = distinct_rows(np.column_stack([rows.frame, rows.boxes]))
    best = np.zeros(len(distinct))
    np.maximum.at(best, number, rows.score)
    order = np.argsort(first)
    boxes = rows.at(first[order])
    video_number: dict[str, int] = {}
    video_index = numbered(boxes.videos, video_number)
    return ObjectTable(
        tuple(video_number),
        ("person",),
        video_index,
        boxes.time_s - cut_at_s,
        boxes.boxes,
        class_index=np.zeros(len(boxes), dtype=np.int64),
        score=best[order],
    )


def _class_names(folder: Path, num_classes: Literal[60, 80]) -> dict[int, str]:
    """Return the published names; a label map in the folder must agree with them."""
    names, file_name = _LABEL_MAPS[num_classes]
    path = folder / file_name
    if path.is_file():
        in_file = read_label_map(path)
        other = sorted(
            number for number in in_file.keys() | names.keys() if in_file.get(number) != names.get(number)
        )
        if other:
            raise AnnotationError(
                f"{path}: must be the published list of {num_classes} classes; {len(other)} ids differ, first "
                f"{other[0]}: {in_file.get(other[0])!r} for {names.get(other[0])!r}."
            )
    return dict(names)


def _rows_in_time(
    path: Path, folder: Path, split: AvaPart, *, are_predicted: bool
) -> tuple[_Rows, Counter[str]]:
    """Return the rows at times that are included and not excluded, and the numbers of other rows."""
    frames = FrameNumbers()
    rows, num_frames_only = _read(path, frames, are_predicted=are_predicted)
    is_included = np.isin(rows.time_s, _included_times_s(folder / "ava_included_timestamps_v2.2.txt"))
    excluded = read_frames(folder / f"ava_{split}_excluded_timestamps_v2.2.csv", frames)
    is_excluded = np.isin(rows.frame, excluded)
    dropped = Counter(
        frame_without_boxes=num_frames_only,
        time_not_included=int((~is_included).sum()),
        time_excluded=int((is_included & is_excluded).sum()),
    )
    return rows.at(np.flatnonzero(is_included & ~is_excluded)), dropped


def _included_times_s(path: Path) -> Float[np.ndarray, " times"]:
    problems = Problems(path)
    times = [
        times_s(rows.column(0), rows.lines, problems)
        for rows in (with_width(chunk, {1}, problems) for chunk in read_chunks(path))
    ]
    problems.raise_if_any()
    return np.concatenate(times)


def _read(path: Path, frames: FrameNumbers, *, are_predicted: bool) -> tuple[_Rows, int]:
    """Return the rows with a box, and the number of rows without one."""
    problems = Problems(path)
    videos: list[str] = []
    persons: list[str] = []
    parts: list[tuple[np.ndarray, ...]] = []
    num_frames_only = 0
    for frame_rows, box_rows in read_rows(path, problems):
        num_frames_only += len(frame_rows.rows)
        videos_and_times_s(frame_rows, problems)
        video, time_s = videos_and_times_s(box_rows, problems)
        action = np.zeros(len(video), dtype=np.int64) if are_predicted else _actions(box_rows, problems)
        score = person_scores(box_rows, problems) if are_predicted else np.ones(len(video))
        parts.append((time_s, frames.of(video, time_s), boxes_in_frame(box_rows, problems), action, score))
        videos += video
        persons += ["" if are_predicted or len(row) < WHOLE else row[7].strip() for row in box_rows.rows]
    problems.raise_if_any()
    time_s, frame, boxes, action, score = (np.concatenate(column) for column in zip(*parts, strict=True))
    inside = boxes.clip(0, 1)
    is_clipped = np.any(inside != boxes, axis=1)
    return _Rows(videos, time_s, frame, inside, is_clipped, action, persons, score), num_frames_only


def _actions(rows: Chunk, problems: Problems) -> Int[np.ndarray, " rows"]:
    action = read_action_ids(rows, problems)
    problems.add_where(
        (action == 0) | (action > len(AVA_80)),
        rows.lines,
        lambda i: f"the action id must be one of AVA's, 1 to {len(AVA_80)}; got {action[i]}",
    )
    return action


def _table(rows: _Rows, actors: Actors, class_names: dict[int, str], cut_at_s: float) -> ActorTable:
    """Return the actors that do at least one of the classes."""
    is_listed = np.isin(rows.action, list(class_names))
    used = np.unique(rows.action[is_listed]).tolist()
    classes = tuple(sorted(class_names[number] for number in used))
    column_of_id = np.zeros(len(AVA_80) + 1, dtype=np.int64)
    column_of_id[used] = [classes.index(class_names[number]) for number in used]
    labels = np.zeros((len(actors.names), len(classes)), dtype=bool)
    labels[actors.of_row[is_listed], column_of_id[rows.action[is_listed]]] = True
    has_label = np.flatnonzero(labels.any(axis=1))
    first = rows.at(actors.first_row[has_label])
    video_number: dict[str, int] = {}
    video_index = numbered(first.videos, video_number)
    return ActorTable(
        tuple(video_number),
        classes,
        video_index,
        first.time_s - cut_at_s,
        first.boxes,
        labels[has_label],
        tuple(actors.names[i] for i in has_label.tolist()),
    )
