"""Boxes to train and test on: ground truth, and detections with the labels of the boxes they overlap.

The paper trains on ground truth and predicted persons together and tests on detected persons. In training a detection
takes the labels of the ground-truth box it overlaps most, if the IoU is at least 0.5; `take="all"` gives it the labels of
every box with that IoU. At test one detection stands for one person: see `boxes_for_testing`.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
import torch
from jaxtyping import Bool, Float, Int

from mule.core.defaults import PAPER_ACTOR_SCORE
from mule.core.errors import RangeError
from mule.data.table.table import ActorTable, ObjectTable, RowChoice, joined_tables
from mule.detection.boxes import iou_matrix

MATCH_IOU = 0.5
TRAINING_SCORE = 0.9
"""Least score of a predicted person in training, as in ACAR, whose protocol the paper follows."""
PERSON_CLASS = "person"
_BOXES_AT_ONCE = 64
_TIME_DECIMALS = 3

NOBODY = -1
"""The ground-truth row of a detection that matches none."""

MatchRule = Literal["best", "all"]


@dataclass(frozen=True)
class MatchCounts:
    """Counts of matched and unmatched detections and ground-truth boxes."""

    detections: int
    """Detections of class `person`; other classes are not actors."""
    below_score: int
    matched: int
    unmatched: int
    """Detections at or above the score that match no ground truth."""
    ground_truth: int
    ground_truth_without_box: int
    """Rows about a whole frame or video, which no detection can match."""
    ground_truth_found: int
    """Boxes that at least one detection matches."""


@dataclass(frozen=True)
class ActorBoxes:
    """Actors to train or test on; each row comes from ground truth or from a detector."""

    actors: ActorTable
    """A detection without a match has no label. Detections are not tracked, so their `actor_id` is empty."""
    is_detected: Bool[np.ndarray, " actors"]
    score: Float[np.ndarray, " actors"]
    """Detector score; 1 for ground truth."""
    iou: Float[np.ndarray, " actors"]
    """IoU with the best ground-truth box; 1 for ground truth itself."""
    counts: MatchCounts


@dataclass(frozen=True)
class DetectedPersons:
    """Detected persons in annotated frames, each with the true actor it matches."""

    actors: ActorTable
    """The persons, with the labels and the actor_id of their match; without a match they have neither. Videos, classes
    and times are those of the ground truth."""
    truth_row: Int[np.ndarray, " persons"]
    """The ground-truth row that each person matches, or `NOBODY`; no row occurs twice."""
    score: Float[np.ndarray, " persons"]


def labels_from_ground_truth(
    detections: ObjectTable, ground_truth: ActorTable, *, min_iou: float = MATCH_IOU, take: MatchRule = "best"
) -> ActorBoxes:
    """Give every detection the labels of the ground truth it overlaps in its own frame.

    Two rows are in one frame if they have the same video and the same time to the millisecond. Of equal overlaps the
    earlier ground-truth row counts.

    Args:
        detections: boxes of any class; the caller keeps only persons.
        ground_truth: labelled actors; the result has their classes.
        min_iou: least overlap of a match.
        take: take the labels of the best match, or of all matches.
    """
    if not 0 < min_iou <= 1:
        raise RangeError(f"min_iou must be above 0 and at most 1; got {min_iou}.")
    with_box = np.flatnonzero(ground_truth.has_box)
    frame, truth_frame = _frames(detections, ground_truth, with_box)
    most = np.zeros(len(detections))
    pairs = [np.zeros((2, 0), dtype=np.int64)]
    is_found = np.zeros(len(with_box), dtype=bool)
    for rows, truths in _chunks(frame, truth_frame):
        overlap = _overlap(detections.boxes_xyxy_unit[rows], ground_truth.boxes_xyxy_unit[with_box[truths]])
        overlap *= frame[rows][:, None] == truth_frame[truths][None, :]
        most[rows] = overlap.max(axis=1)
        is_enough = overlap >= min_iou
        is_found[truths] |= is_enough.any(axis=0)
        if take == "best":
            is_enough &= np.arange(len(truths)) == overlap.argmax(axis=1)[:, None]
        row, truth = np.nonzero(is_enough)
        pairs.append(np.stack([rows[row], with_box[truths[truth]]]))
    labels = _labels_of_pairs(np.concatenate(pairs, axis=1), len(detections), ground_truth.labels)
    num_matched = int(np.count_nonzero(most >= min_iou))
    return ActorBoxes(
        ActorTable(
            detections.videos,
            ground_truth.classes,
            detections.video_index,
            detections.time_s,
            detections.boxes_xyxy_unit,
            labels,
            ("",) * len(detections),
        ),
        is_detected=np.ones(len(detections), dtype=bool),
        score=detections.score,
        iou=most,
        counts=MatchCounts(
            detections=len(detections),
            below_score=0,
            matched=num_matched,
            unmatched=len(detections) - num_matched,
            ground_truth=len(ground_truth),
            ground_truth_without_box=len(ground_truth) - len(with_box),
            ground_truth_found=int(np.count_nonzero(is_found)),
        ),
    )


def boxes_for_training(
    ground_truth: ActorTable,
    predicted: ObjectTable,
    *,
    min_score: float = TRAINING_SCORE,
    min_iou: float = MATCH_IOU,
    take: MatchRule = "best",
) -> ActorBoxes:
    """Return the ground truth followed by the predicted persons that match it; the others are only counted."""
    is_person, is_kept = _persons(predicted, min_score)
    persons = labels_from_ground_truth(_at(predicted, is_kept), ground_truth, min_iou=min_iou, take=take)
    num_persons = int(np.count_nonzero(is_person))
    is_matched = persons.iou >= min_iou
    num_true = len(ground_truth)
    return ActorBoxes(
        joined_tables([ground_truth, persons.actors.at(is_matched)]),
        is_detected=np.arange(num_true + np.count_nonzero(is_matched)) >= num_true,
        score=np.concatenate([np.ones(num_true), persons.score[is_matched]]),
        iou=np.concatenate([np.ones(num_true), persons.iou[is_matched]]),
        counts=replace(
            persons.counts,
            detections=num_persons,
            below_score=num_persons - int(np.count_nonzero(is_kept)),
        ),
    )


def boxes_for_testing(
    ground_truth: ActorTable,
    detections: ObjectTable,
    *,
    min_score: float = PAPER_ACTOR_SCORE,
    min_iou: float = MATCH_IOU,
) -> DetectedPersons:
    """Return the detected persons in the frames of the ground truth, matched one to one.

    The rule is that of AVA's evaluation program, so a person who has a truth here is one who can be right there: in the
    order of their scores, persons claim the box they overlap most. A person matches nobody if that IoU is below
    `min_iou` or the box is taken already. Of equal scores the earlier detection comes first, of equal overlaps the
    earlier ground-truth row. Frames without any row of ground truth are not annotated, so persons there are left out.
    """
    persons = persons_of_score(detections, min_score)
    frame, truth_frame = _frames(persons, ground_truth, np.arange(len(ground_truth)))
    annotated, first_row = np.unique(truth_frame, return_index=True)
    is_annotated = np.isin(frame, annotated)
    persons, frame = _at(persons, is_annotated), frame[is_annotated]
    place = first_row[np.searchsorted(annotated, frame)]
    truth_row = _first_claims(_claims(persons, frame, ground_truth, truth_frame, min_iou), persons.score)
    is_matched = truth_row != NOBODY
    labels = np.zeros((len(persons), len(ground_truth.classes)), dtype=bool)
    labels[is_matched] = ground_truth.labels[truth_row[is_matched]]
    actors = ActorTable(
        ground_truth.videos,
        ground_truth.classes,
        ground_truth.video_index[place],
        ground_truth.time_s[place],
        persons.boxes_xyxy_unit,
        labels,
        tuple("" if row == NOBODY else ground_truth.actor_id[row] for row in truth_row.tolist()),
    )
    return DetectedPersons(actors, truth_row, persons.score)


def persons_of_score(detections: ObjectTable, min_score: float) -> ObjectTable:
    """Return the persons with at least this score."""
    return _at(detections, _persons(detections, min_score)[1])


def _persons(
    detections: ObjectTable, min_score: float
) -> tuple[Bool[np.ndarray, " rows"], Bool[np.ndarray, " rows"]]:
    """Return which rows are persons, and which of them have at least the score."""
    if PERSON_CLASS not in detections.classes:
        raise RangeError(
            f"detections must include the class {PERSON_CLASS!r}; got {', '.join(detections.classes)}."
        )
    is_person = detections.class_index == detections.classes.index(PERSON_CLASS)
    return is_person, is_person & (detections.score >= min_score)


def _claims(
    persons: ObjectTable,
    frame: Int[np.ndarray, " persons"],
    ground_truth: ActorTable,
    truth_frame: Int[np.ndarray, " truths"],
    min_iou: float,
) -> Int[np.ndarray, " persons"]:
    """Return the row of the box that each person overlaps most, or `NOBODY` where that overlap is too small."""
    claimed = np.full(len(persons), NOBODY)
    with_box = np.flatnonzero(ground_truth.has_box)
    for rows, truths in _chunks(frame, truth_frame[with_box]):
        overlap = _overlap(persons.boxes_xyxy_unit[rows], ground_truth.boxes_xyxy_unit[with_box[truths]])
        overlap *= frame[rows][:, None] == truth_frame[with_box[truths]][None, :]
        best = overlap.argmax(axis=1)
        is_enough = overlap[np.arange(len(rows)), best] >= min_iou
        claimed[rows] = np.where(is_enough, with_box[truths[best]], NOBODY)
    return claimed


def _first_claims(
    claimed: Int[np.ndarray, " persons"], score: Float[np.ndarray, " persons"]
) -> Int[np.ndarray, " persons"]:
    """Leave each claimed row to the person with the best score; the others match nobody."""
    order = np.argsort(-score, kind="stable")
    _, first = np.unique(claimed[order], return_index=True)
    winners = order[first]
    matched = np.full(len(claimed), NOBODY)
    matched[winners] = claimed[winners]
    return matched


def persons_in_clips(
    clips: ActorTable, detections: ObjectTable, *, min_score: float
) -> tuple[ActorTable, Int[np.ndarray, " rows"]]:
    """Replace rows about a frame by its detected persons, best first; a frame without any stays as it is.

    For labels of clips: every person has the labels of its frame. Rows with a box, and those about a whole video, stay.

    Returns:
        The rows, and the row of `clips` that each comes from.
    """
    persons = persons_of_score(detections, min_score)
    persons = _at(persons, np.argsort(-persons.score, kind="stable"))
    is_frame = clips.has_time & ~clips.has_box
    frame, clip_frame = _frames(persons, clips, np.arange(len(clips)))
    order = np.argsort(frame, kind="stable")
    ends = np.searchsorted(frame[order], np.stack([clip_frame, clip_frame + 1]))
    found = [
        order[start:end] if asks else order[:0] for asks, start, end in zip(is_frame, *ends, strict=True)
    ]
    rows = np.repeat(np.arange(len(clips)), [max(len(each), 1) for each in found])
    boxes = [
        persons.boxes_xyxy_unit[each] if len(each) else clips.boxes_xyxy_unit[row : row + 1]
        for row, each in enumerate(found)
    ]
    return replace(clips.at(rows), boxes_xyxy_unit=np.concatenate([np.zeros((0, 4)), *boxes])), rows


def _at(table: ObjectTable, rows: RowChoice) -> ObjectTable:
    return ObjectTable(
        table.videos,
        table.classes,
        table.video_index[rows],
        table.time_s[rows],
        table.boxes_xyxy_unit[rows],
        table.class_index[rows],
        table.score[rows],
    )


def _labels_of_pairs(
    pairs: Int[np.ndarray, "2 pairs"], num_rows: int, truth_labels: Bool[np.ndarray, "truths classes"]
) -> Bool[np.ndarray, "rows classes"]:
    """Return each row's labels: all labels of all ground truth it is paired with."""
    labels = np.zeros((num_rows, truth_labels.shape[1]), dtype=bool)
    pair, label = np.nonzero(truth_labels[pairs[1]])
    labels[pairs[0][pair], label] = True
    return labels


def _frames(
    detections: ObjectTable, ground_truth: ActorTable, with_box: Int[np.ndarray, " truths"]
) -> tuple[Int[np.ndarray, " detections"], Int[np.ndarray, " truths"]]:
    """Return a number per row, equal for rows of one video and time. A row without a time gets its video's own number."""
    number = {video: at for at, video in enumerate(dict.fromkeys((*ground_truth.videos, *detections.videos)))}
    video = np.concatenate(
        [
            np.array([number[name] for name in table.videos], dtype=np.int64)[table.video_index]
            for table in (detections, ground_truth)
        ]
    )
    time = np.concatenate([detections.time_s, ground_truth.time_s]).round(_TIME_DECIMALS)
    times, time_number = np.unique(time, return_inverse=True)
    frame = video * (len(times) + 1) + time_number
    return frame[: len(detections)], frame[len(detections) :][with_box]


def _chunks(
    frame: Int[np.ndarray, " detections"], truth_frame: Int[np.ndarray, " truths"]
) -> Iterator[tuple[Int[np.ndarray, " rows"], Int[np.ndarray, " truth_rows"]]]:
    """Yield some frames at a time: their detections, and their ground truth in row order."""
    rows = np.flatnonzero(np.isin(frame, truth_frame))
    rows = rows[np.argsort(frame[rows], kind="stable")]
    truths = np.flatnonzero(np.isin(truth_frame, frame))
    truths = truths[np.argsort(truth_frame[truths], kind="stable")]
    sorted_frames, sorted_truth_frames = frame[rows], truth_frame[truths]
    start = 0
    while start < len(rows):
        last = sorted_frames[min(start + _BOXES_AT_ONCE, len(rows)) - 1]
        stop = int(np.searchsorted(sorted_frames, last, side="right"))
        first_truth = np.searchsorted(sorted_truth_frames, sorted_frames[start])
        after_truth = np.searchsorted(sorted_truth_frames, last, side="right")
        yield rows[start:stop], truths[first_truth:after_truth]
        start = stop


def _overlap(
    boxes: Float[np.ndarray, "boxes 4"], others: Float[np.ndarray, "others 4"]
) -> Float[np.ndarray, "boxes others"]:
    return iou_matrix(torch.from_numpy(boxes), torch.from_numpy(others)).numpy()
