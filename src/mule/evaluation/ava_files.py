"""AVA files: ground truth, detections, excluded frames and label map, read and evaluated."""

import re
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from jaxtyping import Float, Int

from mule.errors import AnnotationError, RangeError
from mule.evaluation.ava import ActionBoxes, ScoredActionBoxes, evaluate_ava
from mule.evaluation.results import MeanApResult
from mule.text_rows import (
    Chunk,
    Problems,
    finite_numbers,
    numbered,
    read_chunks,
    read_lines,
    times_s,
    whole_numbers,
    with_width,
)

FRAME_ONLY = 2
WITHOUT_SCORE = 7
WITH_SCORE = 8
TIMES_PER_VIDEO = 1 << 32

_LABEL_MAP_TOKEN = re.compile(r"""#[^\n]*|[{}]|(\w+)\s*:\s*("[^"\n]*"|'[^'\n]*'|[\w.+-]+)""")


class FrameNumbers:
    """One number for each (video, time to a millionth of a second), the same in every file of an evaluation."""

    def __init__(self) -> None:
        self._videos: dict[str, int] = {}
        self._times: dict[str, int] = {}

    def of(self, videos: list[str], key_times_s: Float[np.ndarray, " rows"]) -> Int[np.ndarray, " rows"]:
        """The number of each frame."""
        distinct, at = np.unique(key_times_s, return_inverse=True)
        time = numbered([f"{key_time_s:.6f}" for key_time_s in distinct.tolist()], self._times)
        return numbered(videos, self._videos) * TIMES_PER_VIDEO + time[at]


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
    for rows in _box_rows(path, problems):
        empty.append(_frames(rows.having({FRAME_ONLY}), frames, problems))
        parts.append(_boxes(rows.having({WITHOUT_SCORE, WITH_SCORE}), frames, problems))
    problems.raise_if_any()
    return ActionBoxes(*_joined(parts)), np.concatenate(empty)


def read_detections(path: Path, frames: FrameNumbers) -> ScoredActionBoxes:
    """Detected boxes. The eighth column is the score, 1 where it is missing; `video,time` alone holds no box."""
    problems = Problems(path)
    parts: list[tuple[np.ndarray, ...]] = []
    for rows in _box_rows(path, problems):
        _frames(rows.having({FRAME_ONLY}), frames, problems)
        boxed = rows.having({WITHOUT_SCORE, WITH_SCORE})
        scores = [row[7] if len(row) == WITH_SCORE else "1" for row in boxed.rows]
        score = finite_numbers(scores, "the score", boxed.lines, problems)
        parts.append((*_boxes(boxed, frames, problems), score))
    problems.raise_if_any()
    return ScoredActionBoxes(*_joined(parts))


def read_frames(path: Path, frames: FrameNumbers) -> Int[np.ndarray, " frames"]:
    """The frames of a file with rows `video,time`."""
    problems = Problems(path)
    numbers = [_frames(with_width(c, {FRAME_ONLY}, problems), frames, problems) for c in read_chunks(path)]
    problems.raise_if_any()
    return np.concatenate(numbers)


def read_label_map(path: Path) -> dict[int, str]:
    """Name of each class by id, from blocks with a `name` and an `id` or `label_id` (text protocol buffer)."""
    text = "".join(read_lines(path))
    problems = Problems(path)
    names: dict[int, str] = {}
    block: dict[str, str] = {}
    for token in _LABEL_MAP_TOKEN.finditer(text):
        if token[1]:
            block["id" if token[1] == "label_id" else token[1]] = token[2].strip("\"'")
        elif token[0] == "}":
            _add_class(block, names, text.count("\n", 0, token.start()) + 1, problems)
            block = {}
    problems.raise_if_any()
    if not names:
        raise AnnotationError(f"{path}, line 1: must hold blocks with a name and an id; there are none.")
    return names


def _box_rows(path: Path, problems: Problems) -> Iterator[Chunk]:
    for chunk in read_chunks(path):
        yield with_width(chunk, {FRAME_ONLY, WITHOUT_SCORE, WITH_SCORE}, problems)


def _joined(parts: list[tuple[np.ndarray, ...]]) -> tuple[np.ndarray, ...]:
    return tuple(np.concatenate(columns) for columns in zip(*parts, strict=True))


def _add_class(block: dict[str, str], names: dict[int, str], line: int, problems: Problems) -> None:
    name, number = block.get("name"), block.get("id", "")
    if not name or not number.isdecimal() or int(number) < 1:
        problems.add(line, f"a class must have a name and an id of at least 1; got {block or 'neither'}")
    elif int(number) in names or name in names.values():
        problems.add(line, f"a class must be named once; got {name!r} with id {number} again")
    else:
        names[int(number)] = name


def _frames(rows: Chunk, frames: FrameNumbers, problems: Problems) -> Int[np.ndarray, " rows"]:
    videos = rows.column(0)
    problems.add_where(
        np.array([not video for video in videos], dtype=bool),
        rows.lines,
        lambda _: "the video must have a name",
    )
    return frames.of(videos, times_s(rows.column(1), rows.lines, problems))


def _boxes(rows: Chunk, frames: FrameNumbers, problems: Problems) -> tuple[np.ndarray, ...]:
    frame = _frames(rows, frames, problems)
    corners = [
        finite_numbers(rows.column(2 + at), name, rows.lines, problems)
        for at, name in enumerate(("x1", "y1", "x2", "y2"))
    ]
    for low, high, axis in ((corners[0], corners[2], "x"), (corners[1], corners[3], "y")):
        problems.add_where(
            high <= low,
            rows.lines,
            lambda i, low=low, high=high, axis=axis: (
                f"{axis}2 must be above {axis}1; got {axis}1 = {low[i]:g} and {axis}2 = {high[i]:g}"
            ),
        )
    action_id = whole_numbers(rows.column(6), "the action id", rows.lines, problems)
    return frame, np.stack(corners, axis=1), action_id
