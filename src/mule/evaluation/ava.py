"""AVA frame-mAP at IoU 0.5, by the definition of the official program, in array arithmetic.

A *cell* is one class in one frame. Rows that the official program ignores belong to no cell. Within a cell
each detection claims the ground truth it overlaps most; the best ranked claim on a box is a hit, every other
detection is a miss. Ground truth, detections, excluded frames and the label map come from files in AVA's
format.
"""

import heapq
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float, Int

from mule.core.errors import AnnotationError, NotFinite, RangeError, ShapeError
from mule.core.text_rows import Chunk, Problems
from mule.data.convert.ava_files import (
    FrameNumbers,
    corners,
    read_action_ids,
    read_frames,
    read_label_map,
    read_rows,
    scores,
    videos_and_times_s,
)
from mule.evaluation.mean_ap import mean_over_classes
from mule.evaluation.open_set import MeanApResult

_MIN_IOU = 0.5
_ROWS_AT_ONCE = 250_000
_NOBODY = -1

AVA_CONVENTION = (
    "AVA frame-mAP at IoU 0.5 as in the official program: a detection claims the ground-truth box of its own class "
    "and frame that it overlaps most (the first in file order where overlaps are equal); it is right if that "
    "overlap is at least 0.5 and no detection ranked above it was right on that box. Detections of a class rank by "
    "score over all frames, equal scores in file order. Average precision is the whole area under the precision "
    "envelope (Pascal VOC, all points); map is the plain mean over the classes that have ground truth. Classes "
    "outside the label map, excluded frames and frames that the ground truth does not list are left out of ground "
    "truth and detections before anything is counted. "
)

_Rows = Int[np.ndarray, " rows"]
_Boxes = Float[np.ndarray, "rows 4"]
Excluded = Int[np.ndarray, " excluded"]


@dataclass(frozen=True)
class ActionBoxes:
    """Boxes with one action each. Boxes in one frame share a frame number; which number does not matter."""

    frame: _Rows
    boxes_xyxy: _Boxes
    action_id: _Rows

    def __post_init__(self) -> None:
        num_rows = len(self.frame)
        shapes = (self.frame.shape, self.boxes_xyxy.shape, self.action_id.shape)
        if shapes != ((num_rows,), (num_rows, 4), (num_rows,)):
            raise ShapeError(
                f"frame, boxes_xyxy and action_id must have one row per box; got shapes {shapes}."
            )
        if not np.isfinite(self.boxes_xyxy).all():
            raise NotFinite("boxes_xyxy must be finite; some are NaN or infinite.")
        wrong = np.flatnonzero((self.boxes_xyxy[:, 2:] <= self.boxes_xyxy[:, :2]).any(axis=1))
        if len(wrong):
            raise RangeError(
                f"boxes must have x1 < x2 and y1 < y2; {len(wrong)} have not, the first is row {wrong[0]}: "
                f"{self.boxes_xyxy[wrong[0]].tolist()}."
            )


@dataclass(frozen=True)
class ScoredActionBoxes(ActionBoxes):
    """Detected boxes with one action each and its score."""

    score: Float[np.ndarray, " rows"]

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.score.shape != self.frame.shape:
            raise ShapeError(
                f"score must have one entry per box; got {self.score.shape} and {self.frame.shape}."
            )
        if not np.isfinite(self.score).all():
            raise NotFinite("score must be finite; some are NaN or infinite.")


class _Cells(NamedTuple):
    """The rows that take part, with the cell and class of each."""

    rows: _Rows
    cell: _Rows
    class_at: _Rows

    def take(self, positions: Int[np.ndarray, " taken"]) -> "_Cells":
        return _Cells(self.rows[positions], self.cell[positions], self.class_at[positions])


def evaluate_ava(
    ground_truth: ActionBoxes,
    detections: ScoredActionBoxes,
    class_names: Mapping[int, str],
    *,
    empty_frames: Int[np.ndarray, " empty"] | None = None,
    excluded_frames: Excluded | None = None,
    keep_top: int | None = None,
) -> MeanApResult:
    """Frame-mAP of the detections, with the average precision of each class.

    Args:
        ground_truth: annotated boxes. Every frame that occurs here is listed, whatever its classes.
        detections: scored boxes, in the order that breaks ties between equal scores.
        class_names: name of each evaluated class, by its id.
        empty_frames: further listed frames, annotated as having no boxes; detections there are misses.
        excluded_frames: frames left out of ground truth and detections.
        keep_top: keep at most this many detections per frame (50 in the official program); None keeps all.

    Raises:
        RangeError: no ground truth is left, or `keep_top` is below 1.

    >>> frame, box, action = np.zeros(1, np.int64), np.array([[0.1, 0.1, 0.5, 0.9]]), np.array([12])
    >>> truth = ActionBoxes(frame, box, action)
    >>> evaluate_ava(truth, ScoredActionBoxes(frame, box, action, np.array([0.9])), {12: "stand"}).map
    1.0
    """
    if keep_top is not None and keep_top < 1:
        raise RangeError(f"keep_top must be at least 1, or None to keep all; got {keep_top}.")
    class_ids = np.array(sorted(class_names), dtype=np.int64)
    nothing = np.zeros(0, dtype=np.int64)
    listed = np.union1d(ground_truth.frame, nothing if empty_frames is None else empty_frames)
    excluded = np.unique(nothing if excluded_frames is None else excluded_frames)
    truth, truth_ignored = _cells(ground_truth, class_ids, listed, excluded)
    if not len(truth.rows):
        raise RangeError(
            f"no ground truth is left to evaluate; of {len(ground_truth.frame)} rows {_told(truth_ignored)}."
        )
    found, found_ignored = _cells(detections, class_ids, listed, excluded)
    kept = found if keep_top is None else _kept(found, detections, keep_top)
    hits, class_at = _ranked_hits(ground_truth, truth, detections, kept)
    num_truth = np.bincount(truth.class_at, minlength=len(class_ids))
    per_class = _envelope_areas(hits, class_at, num_truth)
    rule = (
        "all detections are kept" if keep_top is None else f"at most {keep_top} detections are kept per frame"
    )
    return MeanApResult(
        map=mean_over_classes(per_class),
        per_class={
            class_names[int(action_id)]: None if np.isnan(value) else float(value)
            for action_id, value in zip(class_ids, per_class, strict=True)
        },
        num_classes=int(np.count_nonzero(num_truth)),
        counts={
            "frames": len(np.setdiff1d(listed, excluded)),
            "ground_truth_boxes": len(truth.rows),
            "detections": len(kept.rows),
        },
        ignored={
            **{f"ground_truth_{reason}": count for reason, count in truth_ignored.items()},
            **{f"detections_{reason}": count for reason, count in found_ignored.items()},
            "detections_beyond_keep_top": len(found.rows) - len(kept.rows),
        },
        convention=f"{AVA_CONVENTION}Here {rule}.",
    )


def _cells(
    boxes: ActionBoxes,
    class_ids: Int[np.ndarray, " classes"],
    listed: Int[np.ndarray, " listed"],
    excluded: Excluded,
) -> tuple[_Cells, dict[str, int]]:
    """The rows that take part, and how many do not, by reason."""
    class_at, has_class = _position(class_ids, boxes.action_id)
    frame_at, is_listed = _position(listed, boxes.frame)
    _, is_excluded = _position(excluded, boxes.frame)
    rows = np.flatnonzero(has_class & is_listed & ~is_excluded)
    ignored = {
        "class_outside_label_map": int(np.count_nonzero(~has_class)),
        "frame_not_listed": int(np.count_nonzero(has_class & ~is_listed)),
        "frame_excluded": int(np.count_nonzero(has_class & is_listed & is_excluded)),
    }
    return _Cells(rows, frame_at[rows] * len(class_ids) + class_at[rows], class_at[rows]), ignored


def _position(among: Int[np.ndarray, " sorted"], values: _Rows) -> tuple[_Rows, Bool[np.ndarray, " rows"]]:
    """The position of each value in the sorted array, and whether it is there."""
    if not len(among):
        return np.zeros(len(values), dtype=np.int64), np.zeros(len(values), dtype=bool)
    at = np.minimum(np.searchsorted(among, values), len(among) - 1)
    return at, among[at] == values


def _ranked_hits(
    ground_truth: ActionBoxes, truth: _Cells, detections: ScoredActionBoxes, found: _Cells
) -> tuple[Bool[np.ndarray, " rows"], _Rows]:
    """Whether each detection is a hit, and its class, class after class and by rank within."""
    truth = truth.take(np.argsort(truth.cell, kind="stable"))
    truth_boxes = ground_truth.boxes_xyxy[truth.rows]
    claimed = np.full(len(found.rows), _NOBODY)
    for start in range(0, len(claimed), _ROWS_AT_ONCE):
        part = slice(start, start + _ROWS_AT_ONCE)
        claimed[part] = _claims(
            truth_boxes, truth.cell, detections.boxes_xyxy[found.rows[part]], found.cell[part]
        )
    by_rank = np.lexsort((-detections.score[found.rows], found.class_at))
    claimed = claimed[by_rank]
    claims = np.flatnonzero(claimed != _NOBODY)
    _, best_ranked = np.unique(claimed[claims], return_index=True)
    hits = np.zeros(len(claimed), dtype=bool)
    hits[claims[best_ranked]] = True
    return hits, found.class_at[by_rank]


def _claims(
    truth_boxes: Float[np.ndarray, "truths 4"],
    truth_cell: Int[np.ndarray, " truths"],
    found_boxes: _Boxes,
    found_cell: _Rows,
) -> _Rows:
    """The position of the ground truth that each detection overlaps most in its cell, if the overlap suffices."""
    claimed = np.full(len(found_cell), _NOBODY)
    at, is_paired = _position(truth_cell, found_cell)
    paired = np.flatnonzero(is_paired)
    if not len(paired):
        return claimed
    first = at[paired]
    num_pairs = np.searchsorted(truth_cell, found_cell[paired], side="right") - first
    starts = np.cumsum(num_pairs) - num_pairs
    pair_truth = np.arange(num_pairs.sum()) + np.repeat(first - starts, num_pairs)
    overlap = _overlap(np.repeat(found_boxes[paired], num_pairs, axis=0), truth_boxes[pair_truth])
    most = np.maximum.reduceat(overlap, starts)
    is_most = overlap == np.repeat(most, num_pairs)
    first_most = np.minimum.reduceat(np.where(is_most, pair_truth, len(truth_cell)), starts)
    claimed[paired] = np.where(most >= _MIN_IOU, first_most, _NOBODY)
    return claimed


def _overlap(boxes: _Boxes, others: _Boxes) -> Float[np.ndarray, " rows"]:
    """Intersection over union of each box with the other in its row."""
    sides = np.minimum(boxes[:, 2:], others[:, 2:]) - np.maximum(boxes[:, :2], others[:, :2])
    shared = np.maximum(sides, 0).prod(axis=1)
    area, other_area = ((b[:, 2:] - b[:, :2]).prod(axis=1) for b in (boxes, others))
    union = area + other_area - shared
    return np.divide(shared, union, out=np.zeros(len(union)), where=union > 0)


def _envelope_areas(
    hits: Bool[np.ndarray, " rows"], class_at: _Rows, num_truth: Int[np.ndarray, " classes"]
) -> Float[np.ndarray, " classes"]:
    """Area under the precision envelope of each class, NaN where it has no ground truth."""
    bounds = np.searchsorted(class_at, np.arange(len(num_truth) + 1))
    areas = np.full(len(num_truth), np.nan)
    for at in np.flatnonzero(num_truth):
        ranked = hits[bounds[at] : bounds[at + 1]]
        precision = np.cumsum(ranked) / np.arange(1, len(ranked) + 1)
        envelope = np.maximum.accumulate(precision[::-1])[::-1]
        areas[at] = envelope[ranked].sum() / num_truth[at]
    return areas


def _kept(found: _Cells, detections: ScoredActionBoxes, keep_top: int) -> _Cells:
    """The `keep_top` best detections of each frame."""
    frame, score = detections.frame[found.rows], detections.score[found.rows]
    order = np.lexsort((-score, frame))
    frame, score, rows = frame[order], score[order], found.rows[order]
    starts = np.flatnonzero(np.diff(frame, prepend=frame[:1] - 1))
    sizes = np.diff(starts, append=len(order))
    stays = np.arange(len(order)) - np.repeat(starts, sizes) < keep_top
    is_crowded = sizes > keep_top
    cuts = starts[is_crowded] + keep_top
    is_tied = score[cuts] == score[cuts - 1]
    for start, size in zip(starts[is_crowded][is_tied], sizes[is_crowded][is_tied], strict=True):
        members = rows[start : start + size]
        stays[start : start + size] = np.isin(members, _heap_choice(detections, np.sort(members), keep_top))
    return found.take(np.sort(order[stays]))


def _heap_choice(detections: ScoredActionBoxes, members: _Rows, keep_top: int) -> list[int]:
    """Which detections of a frame the official heap keeps when scores are equal at the cut.

    A newcomer replaces the least (score, action, y1, x1, y2, x2), and only if its score is strictly above.
    """
    heap: list[tuple[float, int, list[float], int]] = []
    for entry in zip(
        detections.score[members].tolist(),
        detections.action_id[members].tolist(),
        detections.boxes_xyxy[members][:, [1, 0, 3, 2]].tolist(),
        members.tolist(),
        strict=True,
    ):
        if len(heap) < keep_top:
            heapq.heappush(heap, entry)
        elif entry[0] > heap[0][0]:
            heapq.heapreplace(heap, entry)
    return [entry[-1] for entry in heap]


def _told(ignored: dict[str, int]) -> str:
    reasons = {
        "class_outside_label_map": "are of classes outside the label map",
        "frame_excluded": "are in excluded frames",
    }
    told = " and ".join(f"{ignored[reason]} {text}" for reason, text in reasons.items())
    return f"{told}. Check the label map and the excluded frames"


def evaluate_ava_files(
    ground_truth: Path,
    detections: Path,
    label_map: Path,
    *,
    excluded: Path | None = None,
    keep_top: int | None = None,
) -> MeanApResult:
    """Frame-mAP of a file of detections against a file of ground truth, both in the AVA format."""
    class_names = read_label_map(label_map)
    frames = FrameNumbers()
    excluded_frames = None if excluded is None else read_frames(excluded, frames)
    truth, empty_frames = read_ava_ground_truth(ground_truth, frames)
    found = read_detections(detections, frames)
    try:
        return evaluate_ava(
            truth,
            found,
            class_names,
            empty_frames=empty_frames,
            excluded_frames=excluded_frames,
            keep_top=keep_top,
        )
    except RangeError as error:
        raise AnnotationError(f"{ground_truth}: {error}") from None


def read_ava_ground_truth(path: Path, frames: FrameNumbers) -> tuple[ActionBoxes, Int[np.ndarray, " frames"]]:
    """Read annotated boxes, and the frames annotated as having none.

    A row is `video,time,x1,y1,x2,y2,action`, with or without an eighth column that names the person and is
    not used, or just `video,time`: a frame without boxes.
    """
    problems = Problems(path)
    empty: list[np.ndarray] = []
    parts: list[tuple[np.ndarray, ...]] = []
    for frame_rows, box_rows in read_rows(path, problems):
        empty.append(frames.of(*videos_and_times_s(frame_rows, problems)))
        parts.append(_boxes(box_rows, frames, problems))
    problems.raise_if_any()
    return ActionBoxes(*_joined(parts)), np.concatenate(empty)


def read_detections(path: Path, frames: FrameNumbers) -> ScoredActionBoxes:
    """Detected boxes. The eighth column is the score, 1 where it is missing.

    `video,time` alone holds no box.
    """
    problems = Problems(path)
    parts: list[tuple[np.ndarray, ...]] = []
    for frame_rows, box_rows in read_rows(path, problems):
        videos_and_times_s(frame_rows, problems)
        score = scores(box_rows, problems)
        parts.append((*_boxes(box_rows, frames, problems), score))
    problems.raise_if_any()
    return ScoredActionBoxes(*_joined(parts))


def _boxes(rows: Chunk, frames: FrameNumbers, problems: Problems) -> tuple[np.ndarray, ...]:
    frame = frames.of(*videos_and_times_s(rows, problems))
    return frame, corners(rows, problems), read_action_ids(rows, problems)


def _joined(parts: list[tuple[np.ndarray, ...]]) -> tuple[np.ndarray, ...]:
    return tuple(np.concatenate(columns) for columns in zip(*parts, strict=True))
