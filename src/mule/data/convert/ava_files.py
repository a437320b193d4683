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
    times_s,
    whole_numbers,
    with_width,
)

AVA_80: Mapping[int, str] = {
    1: "bend/bow (at the waist)",
    2: "crawl",
    3: "crouch/kneel",
    4: "dance",
    5: "fall down",
    6: "get up",
    7: "jump/leap",
    8: "lie/sleep",
    9: "martial art",
    10: "run/jog",
    11: "sit",
    12: "stand",
    13: "swim",
    14: "walk",
    15: "answer phone",
    16: "brush teeth",
    17: "carry/hold (an object)",
    18: "catch (an object)",
    19: "chop",
    20: "climb (e.g., a mountain)",
    21: "clink glass",
    22: "close (e.g., a door, a box)",
    23: "cook",
    24: "cut",
    25: "dig",
    26: "dress/put on clothing",
    27: "drink",
    28: "drive (e.g., a car, a truck)",
    29: "eat",
    30: "enter",
    31: "exit",
    32: "extract",
    33: "fishing",
    34: "hit (an object)",
    35: "kick (an object)",
    36: "lift/pick up",
    37: "listen (e.g., to music)",
    38: "open (e.g., a window, a car door)",
    39: "paint",
    40: "play board game",
    41: "play musical instrument",
    42: "play with pets",
    43: "point to (an object)",
    44: "press",
    45: "pull (an object)",
    46: "push (an object)",
    47: "put down",
    48: "read",
    49: "ride (e.g., a bike, a car, a horse)",
    50: "row boat",
    51: "sail boat",
    52: "shoot",
    53: "shovel",
    54: "smoke",
    55: "stir",
    56: "take a photo",
    57: "text on/look at a cellphone",
    58: "throw",
    59: "touch (an object)",
    60: "turn (e.g., a screwdriver)",
    61: "watch (e.g., TV)",
    62: "work on a computer",
    63: "write",
    64: "fight/hit (a person)",
    65: "give/serve (an object) to (a person)",
    66: "grab (a person)",
    67: "hand clap",
    68: "hand shake",
    69: "hand wave",
    70: "hug (a person)",
    71: "kick (a person)",
    72: "kiss (a person)",
    73: "lift (a person)",
    74: "listen to (a person)",
    75: "play with kids",
    76: "push (another person)",
    77: "sing to (e.g., self, a person, a group)",
    78: "take (an object) from (a person)",
    79: "talk to (e.g., self, a person, a group)",
    80: "watch (a person)",
}
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
    if not name or not number.isdecimal() or int(number) < 1:
        problems.add(line, f"a class must have a name and an id of at least 1; got {block or 'neither'}")
    elif int(number) in names or name in names.values():
        problems.add(line, f"a class must be named once; got {name!r} with id {number} again")
    else:
        names[int(number)] = name


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
