"""Rules between the rows of a table, and between rows and videos. Each check notes every row that breaks a rule."""

import difflib
import re
import unicodedata
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float, Int, Shaped

from mule.core.text_rows import Problems, numbered, shown

AFTER_THE_END_S = 0.5
"""Containers round their length, so a key time may be this far beyond it."""

VideoEnds = Mapping[str, float | None]
"""Length of each existing video in seconds; None if it is unknown."""

_BETWEEN_WORDS = re.compile(r"(?<=[^\W_])[\s_/-]+(?=[^\W_])")


@dataclass(frozen=True)
class TableRows:
    """Video, time and box of each row; `lines` holds each row's line in the file."""

    lines: list[int]
    videos: tuple[str, ...]
    video_index: Int[np.ndarray, " rows"]
    time_s: Float[np.ndarray, " rows"]
    boxes: Float[np.ndarray, "rows 4"]


def note_beyond_videos(rows: TableRows, video_ends_s: VideoEnds | None, problems: Problems) -> None:
    """Check that each row names an existing video and a time before its end."""
    if video_ends_s is None:
        return
    # Videos are numbered in order of appearance, so their first rows come in the order of their numbers.
    _, first_row, num_rows = np.unique(rows.video_index, return_index=True, return_counts=True)
    problems.add_where(
        np.array([bool(video) and video not in video_ends_s for video in rows.videos], dtype=bool),
        [rows.lines[row] for row in first_row.tolist()],
        lambda i: f"there is no video {shown(rows.videos[i])} (rows that name it: {num_rows[i]})",
    )
    ends = [video_ends_s.get(video) for video in rows.videos]
    end_s = np.array([np.inf if end is None else end for end in ends], dtype=np.float64)[rows.video_index]
    problems.add_where(
        rows.time_s > end_s + AFTER_THE_END_S,
        rows.lines,
        lambda i: f"time_s must lie before the end of the video, {end_s[i]:g} s; got {rows.time_s[i]:g}",
    )


def note_spelled_twice(what: str, first_line: Mapping[str, int], problems: Problems) -> None:
    """Check that each class has one spelling; `first_line` is the line where each name appears first."""
    for earlier, name in spelled_twice(list(first_line)):
        problems.add(
            first_line[name], f"{what} must be spelled one way; got {name!r} here and {earlier!r} before"
        )


def note_repeated(rows: TableRows, actor_id: list[str], problems: Problems) -> None:
    """Check that an actor has one row per key time. An actor without `actor_id` is identified by its box."""
    actor = numbered(actor_id, {"": 0})
    box = np.where((actor == 0)[:, None], np.nan_to_num(rows.boxes, nan=-1.0), 0.0)
    time_s = np.nan_to_num(rows.time_s, nan=-1.0)
    first = _first_equal([rows.video_index, time_s, actor, *box.T])

    def describe(i: int) -> str:
        who = (
            f"actor {shown(actor_id[i])}"
            if actor_id[i]
            else "an actor without actor_id, identified by its box,"
        )
        when = "for the whole video" if np.isnan(rows.time_s[i]) else f"at {rows.time_s[i]:g} s"
        return (
            f"{who} must have one row {when}; {problems.counted} {rows.lines[first[i]]} is one already (put all its actions "
            "into that row)"
        )

    problems.add_where(first != np.arange(len(first)), rows.lines, describe)


def _first_equal(columns: Sequence[Shaped[np.ndarray, " rows"]]) -> Int[np.ndarray, " rows"]:
    """Return for each row the first row that equals it in all columns, possibly itself."""
    order = np.lexsort(columns)  # stable: equal rows keep their order
    is_new = np.ones(len(order), dtype=bool)
    is_new[1:] = np.any([column[order][1:] != column[order][:-1] for column in columns], axis=0)
    first = np.empty(len(order), dtype=np.int64)
    first[order] = order[is_new][np.cumsum(is_new) - 1]
    return first


def spelling(name: str) -> str:
    """Return a name in lower case without separators, to compare names regardless of their spelling.

    >>> spelling("Brush_Hair") == spelling("brush hair"), spelling("grade a+") == spelling("grade a-")
    (True, False)
    """
    return _BETWEEN_WORDS.sub("", unicodedata.normalize("NFKC", name).casefold().strip())


def spelled_twice(names: Sequence[str]) -> list[tuple[str, str]]:
    """Return the pairs of an earlier name and a name that differs from it only in spelling."""
    first: dict[str, str] = {}
    pairs = [(first.setdefault(spelling(name), name), name) for name in names]
    return [(earlier, name) for earlier, name in pairs if earlier != name]


RARE_ROWS = 2
COMMON_FACTOR = 10
CLOSE_SPELLING = 0.8


def likely_misspellings(rows_of: Mapping[str, int]) -> list[str]:
    """Report actions of one or two rows that are spelt almost like one that is at least ten times as frequent.

    Args:
        rows_of: the number of rows of each action.

    Examples:
        >>> likely_misspellings({"punch": 240, "pnch": 1, "kick": 180})
        ["'pnch' occurs once; did you mean 'punch' (240 rows)?"]
    """
    warnings: list[str] = []
    for name, count in rows_of.items():
        if not 0 < count <= RARE_ROWS:
            continue
        common = [other for other, rows in rows_of.items() if rows >= COMMON_FACTOR * count]
        near = difflib.get_close_matches(name, common, n=1, cutoff=CLOSE_SPELLING)
        if near:
            times = "once" if count == 1 else "twice"
            warnings.append(f"{name!r} occurs {times}; did you mean {near[0]!r} ({rows_of[near[0]]} rows)?")
    return warnings
