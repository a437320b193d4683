"""Published person boxes of AVA, read as they are: rows without a header, with exactly eight cells.

    video,time,x1,y1,x2,y2,label,score        1j20qq1JyX4,0902,0.036,0.098,0.550,0.979,,0.995518

Boxes are fractions of the frame. The label is an action id, −1 or empty, and is not used: it belongs to a ground-truth
box that overlaps. Files of training boxes repeat a box for each of its labels.
"""

import csv
from pathlib import Path

import numpy as np
from jaxtyping import Float, Int

from mule.core.text_rows import Chunk, Problems, numbered, numbers, read_chunks, read_lines, shown, with_width
from mule.data.convert.ava_files import WHOLE, boxes_in_frame, person_scores, videos_and_times_s
from mule.data.table.table import ObjectTable, TableRows

NO_LABEL = -1


def is_ava_boxes(path: Path) -> bool:
    """Whether the first row has eight cells: a name, five numbers, a whole number or nothing, and a number.

    Raises:
        AnnotationError: the file cannot be read.
    """
    try:
        first = next(csv.reader(read_lines(path)), [])
    except csv.Error:
        return False  # whoever reads the rows reports it
    if len(first) != WHOLE:
        return False
    is_number = np.isfinite(numbers([*first[1:6], first[7]]))
    return bool(is_number.all()) and _is_label(first[6])


def read_ava_boxes(path: Path, problems: Problems) -> tuple[TableRows, Float[np.ndarray, " rows"]]:
    """Return the place and the score of each row; problems are collected.

    A box may reach out of the frame by 5 % of its side and is cut there.
    """
    videos: dict[str, int] = {}
    lines: list[int] = []
    parts: list[tuple[np.ndarray, ...]] = []
    for chunk in read_chunks(path):
        rows = with_width(chunk, {WHOLE}, problems)
        names, time_s = videos_and_times_s(rows, problems)
        parts.append(
            (numbered(names, videos), time_s, boxes_in_frame(rows, problems), _scores(rows, problems))
        )
        lines += rows.lines
    video_index, time_s, boxes, score = (np.concatenate(column) for column in zip(*parts, strict=True))
    return TableRows(lines, tuple(videos), video_index, time_s, boxes.clip(0, 1)), score


def persons_of(rows: TableRows, score: Float[np.ndarray, " rows"]) -> ObjectTable:
    """Return the boxes as persons, in the order of the file; equal boxes become one, with the best score."""
    places = np.column_stack([rows.video_index, rows.time_s, rows.boxes])
    _, first, number = np.unique(places, axis=0, return_index=True, return_inverse=True)
    best = np.full(len(first), -np.inf)
    np.maximum.at(best, number.reshape(-1), score)
    order: Int[np.ndarray, " boxes"] = np.argsort(first)
    kept = first[order]
    return ObjectTable(
        rows.videos,
        ("person",),
        rows.video_index[kept],
        rows.time_s[kept],
        rows.boxes[kept],
        class_index=np.zeros(len(kept), dtype=np.int64),
        score=best[order],
    )


def _is_label(text: str) -> bool:
    text = text.strip()
    return text in ("", str(NO_LABEL)) or text.isdecimal()


def _scores(rows: Chunk, problems: Problems) -> Float[np.ndarray, " rows"]:
    problems.add_where(
        np.array([not _is_label(row[6]) for row in rows.rows], dtype=bool),
        rows.lines,
        lambda i: f"the label must be an action id, {NO_LABEL} or empty; got {shown(rows.rows[i][6])}",
    )
    return person_scores(rows, problems)
