"""Rows of AVA's files, `video,time,x1,y1,x2,y2,action,person-or-score`, as columns with every problem noted."""

from collections.abc import Iterator
from pathlib import Path

import numpy as np
from jaxtyping import Float, Int

from mule.core.text_rows import (
    Chunk,
    Problems,
    finite_numbers,
    numbered,
    read_chunks,
    times_s,
    whole_numbers,
    with_width,
)

FRAME_ONLY = 2
WITHOUT_LAST = 7
WHOLE = 8
TIMES_PER_VIDEO = 1 << 32


class FrameNumbers:
    """One number for each (video, time to a millionth of a second), the same in every file it is asked about."""

    def __init__(self) -> None:
        self._videos: dict[str, int] = {}
        self._times: dict[str, int] = {}

    def of(self, videos: list[str], key_times_s: Float[np.ndarray, " rows"]) -> Int[np.ndarray, " rows"]:
        """The number of each frame."""
        distinct, at = np.unique(key_times_s, return_inverse=True)
        time = numbered([f"{key_time_s:.6f}" for key_time_s in distinct.tolist()], self._times)
        return numbered(videos, self._videos) * TIMES_PER_VIDEO + time[at]


def read_rows(path: Path, problems: Problems) -> Iterator[tuple[Chunk, Chunk]]:
    """Some thousand rows at a time: those of frames without boxes, `video,time`, and those of boxes."""
    for chunk in read_chunks(path):
        rows = with_width(chunk, {FRAME_ONLY, WITHOUT_LAST, WHOLE}, problems)
        yield rows.having({FRAME_ONLY}), rows.having({WITHOUT_LAST, WHOLE})


def read_frames(path: Path, frames: FrameNumbers) -> Int[np.ndarray, " frames"]:
    """The frames of a file with rows `video,time`."""
    problems = Problems(path)
    numbers = [
        frames.of(*videos_and_times_s(with_width(chunk, {FRAME_ONLY}, problems), problems))
        for chunk in read_chunks(path)
    ]
    problems.raise_if_any()
    return np.concatenate(numbers)


def videos_and_times_s(rows: Chunk, problems: Problems) -> tuple[list[str], Float[np.ndarray, " rows"]]:
    """The video and the time of each row."""
    videos = rows.column(0)
    problems.add_where(
        np.array([not video for video in videos], dtype=bool),
        rows.lines,
        lambda _: "the video must have a name",
    )
    return videos, times_s(rows.column(1), rows.lines, problems)


def corners(rows: Chunk, problems: Problems) -> Float[np.ndarray, "rows 4"]:
    """The box of each row by its corners; one without area is a problem."""
    x1, y1, x2, y2 = (
        finite_numbers(rows.column(2 + at), name, rows.lines, problems)
        for at, name in enumerate(("x1", "y1", "x2", "y2"))
    )
    for low, high, axis in ((x1, x2, "x"), (y1, y2, "y")):
        problems.add_where(
            high <= low,
            rows.lines,
            lambda i, low=low, high=high, axis=axis: (
                f"{axis}2 must be above {axis}1; got {axis}1 = {low[i]:g} and {axis}2 = {high[i]:g}"
            ),
        )
    return np.stack([x1, y1, x2, y2], axis=1)


def action_ids(rows: Chunk, problems: Problems) -> Int[np.ndarray, " rows"]:
    """The action of each row, by its published id."""
    return whole_numbers(rows.column(6), "the action id", rows.lines, problems)


def scores(rows: Chunk, problems: Problems) -> Float[np.ndarray, " rows"]:
    """The eighth column of each row as a score, 1 where it is missing."""
    texts = [row[7] if len(row) == WHOLE else "1" for row in rows.rows]
    return finite_numbers(texts, "the score", rows.lines, problems)
