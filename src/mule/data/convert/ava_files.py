"""Classes and files of AVA v2.2: its 80 classes, the 60 evaluated ones, label maps, and rows of annotations.

Rows are `video,time,x1,y1,x2,y2,action,person-or-score`; reading them collects every problem.
"""

import re
from collections.abc import Iterator, Mapping
from pathlib import Path

import numpy as np
from jaxtyping import Float, Int

from mule.core.errors import AnnotationError
from mule.core.text_rows import (
    Chunk,
    Problems,
    finite_numbers,
    numbered,
    read_chunks,
    read_lines,
    shown,
    times_s,
    whole_numbers,
    with_width,
)
from mule.data.convert.conversion import MAX_DRAWN_OVERHANG_UNIT

_AVA_NAMES = """
    bend/bow (at the waist)|crawl|crouch/kneel|dance|fall down|get up|jump/leap|lie/sleep|martial art|
    run/jog|sit|stand|swim|walk|answer phone|brush teeth|carry/hold (an object)|catch (an object)|chop|
    climb (e.g., a mountain)|clink glass|close (e.g., a door, a box)|cook|cut|dig|dress/put on clothing|
    drink|drive (e.g., a car, a truck)|eat|enter|exit|extract|fishing|hit (an object)|kick (an object)|
    lift/pick up|listen (e.g., to music)|open (e.g., a window, a car door)|paint|play board game|
    play musical instrument|play with pets|point to (an object)|press|pull (an object)|push (an object)|
    put down|read|ride (e.g., a bike, a car, a horse)|row boat|sail boat|shoot|shovel|smoke|stir|
    take a photo|text on/look at a cellphone|throw|touch (an object)|turn (e.g., a screwdriver)|
    watch (e.g., TV)|work on a computer|write|fight/hit (a person)|give/serve (an object) to (a person)|
    grab (a person)|hand clap|hand shake|hand wave|hug (a person)|kick (a person)|kiss (a person)|
    lift (a person)|listen to (a person)|play with kids|push (another person)|
    sing to (e.g., self, a person, a group)|take (an object) from (a person)|
    talk to (e.g., self, a person, a group)|watch (a person)"""

AVA_80: Mapping[int, str] = dict(enumerate(_AVA_NAMES.replace("\n    ", "").split("|"), start=1))
"""Poses 1–14, interactions with objects 15–63, interactions with people 64–80."""

_NOT_EVALUATED = {2, 16, 18, 19, 21, 23, 25, 31, 32, 33, 35, 39, 40, 42, 44, 50, 53, 55, 71, 75}

AVA_60: Mapping[int, str] = {number: name for number, name in AVA_80.items() if number not in _NOT_EVALUATED}
"""In the order of the published list, which is the class order of every 60-class experiment."""

_LABEL_MAP_TOKEN = re.compile(r"""#[^\n]*|[{}]|(\w+)\s*:\s*("[^"\n]*"|'[^'\n]*'|[\w.+-]+)""")


def read_label_map(path: Path) -> dict[int, str]:
    """Read class names by id from blocks with a `name` and an `id` or `label_id` (text protocol buffer)."""
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


def _add_class(block: dict[str, str], names: dict[int, str], line: int, problems: Problems) -> None:
    name, number = block.get("name"), block.get("id", "")
    if not name or not number.isdecimal() or len(number) > MOST_ID_DIGITS or int(number) < 1:
        got = shown(str(block)) if block else "neither"
        problems.add(line, f"a class must have a name and an id from 1 to {'9' * MOST_ID_DIGITS}; got {got}")
    elif int(number) in names or name in names.values():
        problems.add(line, f"a class must be named once; got {name!r} with id {number} again")
    else:
        names[int(number)] = name


MOST_ID_DIGITS = 9
"""Digits of a class number."""
FRAME_ONLY = 2
WITHOUT_LAST = 7
WHOLE = 8
TIMES_PER_VIDEO = 1 << 32


class FrameNumbers:
    """Numbers (video, time to a microsecond) pairs, with the same number in every file."""

    def __init__(self) -> None:
        self._videos: dict[str, int] = {}
        self._times: dict[str, int] = {}

    def of(self, videos: list[str], key_times_s: Float[np.ndarray, " rows"]) -> Int[np.ndarray, " rows"]:
        """Return the number of each frame."""
        distinct, at = np.unique(key_times_s, return_inverse=True)
        time = numbered([f"{key_time_s:.6f}" for key_time_s in distinct.tolist()], self._times)
        return numbered(videos, self._videos) * TIMES_PER_VIDEO + time[at]


def read_rows(path: Path, problems: Problems) -> Iterator[tuple[Chunk, Chunk]]:
    """Yield some thousand rows at a time: frames without boxes (`video,time`), and boxes."""
    for chunk in read_chunks(path):
        rows = with_width(chunk, {FRAME_ONLY, WITHOUT_LAST, WHOLE}, problems)
        yield rows.having({FRAME_ONLY}), rows.having({WITHOUT_LAST, WHOLE})


def read_frames(path: Path, frames: FrameNumbers) -> Int[np.ndarray, " frames"]:
    """Read the frame numbers of a file with rows `video,time`."""
    problems = Problems(path)
    numbers = [
        frames.of(*videos_and_times_s(with_width(chunk, {FRAME_ONLY}, problems), problems))
        for chunk in read_chunks(path)
    ]
    problems.raise_if_any()
    return np.concatenate(numbers)


def videos_and_times_s(rows: Chunk, problems: Problems) -> tuple[list[str], Float[np.ndarray, " rows"]]:
    """Return the video and the time of each row."""
    videos = rows.column(0)
    problems.add_where(
        np.array([not video for video in videos], dtype=bool),
        rows.lines,
        lambda _: "the video must have a name",
    )
    return videos, times_s(rows.column(1), rows.lines, problems)


def corners(rows: Chunk, problems: Problems) -> Float[np.ndarray, "rows 4"]:
    """Return the box of each row; a box without area is a problem."""
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


def read_action_ids(rows: Chunk, problems: Problems) -> Int[np.ndarray, " rows"]:
    """Return the published action id of each row."""
    return whole_numbers(rows.column(6), "the action id", rows.lines, problems)


def scores(rows: Chunk, problems: Problems) -> Float[np.ndarray, " rows"]:
    """Return the eighth column of each row as a score; 1 if it is missing."""
    texts = [row[7] if len(row) == WHOLE else "1" for row in rows.rows]
    return finite_numbers(texts, "the score", rows.lines, problems)


def boxes_in_frame(rows: Chunk, problems: Problems) -> Float[np.ndarray, "rows 4"]:
    """Return the box of each row, which may reach out of the frame by 5 % of its side."""
    boxes = corners(rows, problems)
    is_outside = (boxes < -MAX_DRAWN_OVERHANG_UNIT) | (boxes > 1 + MAX_DRAWN_OVERHANG_UNIT)
    has_nothing_inside = (boxes[:, :2] >= 1) | (boxes[:, 2:] <= 0)
    problems.add_where(
        np.any(np.concatenate([is_outside, has_nothing_inside], axis=1), axis=1),
        rows.lines,
        lambda i: f"a box must be inside the frame, in fractions of it; got {', '.join(rows.rows[i][2:6])}",
    )
    return boxes


def person_scores(rows: Chunk, problems: Problems) -> Float[np.ndarray, " rows"]:
    """Return the last column of each row as the score of a person."""
    score = finite_numbers([row[-1] for row in rows.rows], "the score", rows.lines, problems)
    problems.add_where(
        (score < 0) | (score > 1),
        rows.lines,
        lambda i: (
            f"the score must lie within 0..1; got {score[i]:g}. Are these annotations, with persons in column 8?"
        ),
    )
    return score
