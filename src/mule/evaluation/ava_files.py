"""AVA files: ground truth, detections, excluded frames and label map, evaluated."""

from pathlib import Path

import numpy as np
from jaxtyping import Int

from mule.core.errors import AnnotationError, RangeError
from mule.core.text_rows import Chunk, Problems
from mule.data.convert.ava_classes import read_label_map
from mule.data.convert.ava_rows import (
    FrameNumbers,
    action_ids,
    corners,
    read_frames,
    read_rows,
    scores,
    videos_and_times_s,
)
from mule.evaluation.ava import ActionBoxes, ScoredActionBoxes, evaluate_ava
from mule.evaluation.results import MeanApResult


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
    truth, empty_frames = read_ground_truth(ground_truth, frames)
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


def read_ground_truth(path: Path, frames: FrameNumbers) -> tuple[ActionBoxes, Int[np.ndarray, " frames"]]:
    """Annotated boxes, and the frames annotated as holding none.

    A row is `video,time,x1,y1,x2,y2,action`, with or without an eighth column that names the person and is not
    used, or just `video,time`: a frame without boxes.
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
    """Detected boxes. The eighth column is the score, 1 where it is missing; `video,time` alone holds no box."""
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
    return frame, corners(rows, problems), action_ids(rows, problems)


def _joined(parts: list[tuple[np.ndarray, ...]]) -> tuple[np.ndarray, ...]:
    return tuple(np.concatenate(columns) for columns in zip(*parts, strict=True))
