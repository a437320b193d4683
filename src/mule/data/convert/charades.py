"""Charades: videos with the intervals in which each action lasts, as rows of whole videos or of moments."""

import math
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from fractions import Fraction
from pathlib import Path
from typing import Literal, NamedTuple

from mule.core.errors import AnnotationError
from mule.core.text_rows import Problems, numbers, read_lines, read_named_columns, shown
from mule.data.convert.conversion import (
    WHOLE_FRAME,
    WHOLE_VIDEO_S,
    ConversionReport,
    TableRow,
    actor_table,
    problem_of_action,
    require_rows,
)
from mule.data.table.table import ActorTable
from mule.video.clips import CHARADES_CLIP, CHARADES_FRAME_RATE, ClipShape, clip_window, key_times

NUM_CLASSES = 157
NUM_LOCALISATION_TIMES = 25
LONGEST_VIDEO_S = 86_400.0

_ACTION = re.compile(r"c(\d{3})\s+(\S+)\s+(\S+)")
_CLASS = re.compile(r"c(\d{3})\s+(\S.*)")
_ROUNDING_FRAMES = 1e-6


class Interval(NamedTuple):
    """From when to when an action lasts."""

    class_number: int
    start_s: float
    end_s: float
    text: str
    """As the file has it."""


class AnnotatedVideo(NamedTuple):
    """A row of a Charades file: a video, its actions, its length."""

    name: str
    intervals: list[Interval]
    length_s: float

    def classes_at(self, time_s: float) -> set[int]:
        """The actions that last at this moment, ends included."""
        return {each.class_number for each in self.intervals if each.start_s <= time_s <= each.end_s}


Moments = Callable[[AnnotatedVideo], Iterable[tuple[float, set[int]]]]
"""Which times of a video become rows, and the classes of each."""


def whole_video(video: AnnotatedVideo) -> Iterator[tuple[float, set[int]]]:
    """The video as one row, with every class any interval names: what Charades classification is scored on."""
    yield WHOLE_VIDEO_S, {each.class_number for each in video.intervals}


def localisation_times(video: AnnotatedVideo) -> Iterator[tuple[float, set[int]]]:
    """The 25 times (j − 1)/25 · length at which Charades localisation is scored; start ≤ t ≤ end is active."""
    for j in range(NUM_LOCALISATION_TIMES):
        time_s = j / NUM_LOCALISATION_TIMES * video.length_s
        yield time_s, video.classes_at(time_s)


def rows_of(rows: Literal["video", "clips", "localisation"], clips: Moments) -> Moments:
    """Return the times that become rows: the whole video, clips at these times, or those of the localisation task."""
    return {"video": whole_video, "clips": clips, "localisation": localisation_times}[rows]


def clip_times(
    period_s: Fraction, *, shape: ClipShape = CHARADES_CLIP, frame_rate: Fraction = CHARADES_FRAME_RATE
) -> Moments:
    """Key times 0, S, 2S, … before the end; each has the classes of the frames of its clip.

    The frames are all those of the grid from the clip's first to its last, also the ones a stride leaves out, as
    far as they lie in the video. A frame has a class if start ≤ its time ≤ end.
    """

    def moments(video: AnnotatedVideo) -> Iterator[tuple[float, set[int]]]:
        for key_time_s in key_times(0, video.length_s, period_s=period_s):
            times_s = clip_window(key_time_s, shape, frame_rate).times_s
            first, last = max(int(times_s[0] * frame_rate), 0), int(times_s[-1] * frame_rate)
            yield float(key_time_s), _classes_of_frames(video, first, last, float(frame_rate))

    return moments


def actors_from_charades(
    path: Path,
    moments: Moments = whole_video,
    *,
    class_names: Mapping[int, str] | None = None,
    keep_unlabelled: bool = False,
) -> tuple[ActorTable, ConversionReport]:
    """The videos of a Charades file as rows without boxes.

    Args:
        path: a file with the columns `id`, `actions` and `length`, in any order and among any others.
        moments: `whole_video`, `localisation_times`, or what `clip_times` gives.
        class_names: names by number, from `read_class_names`; without, a class is called by its code, `c008`.
        keep_unlabelled: whether videos and moments without an action become rows too.
    """
    problems = Problems(path)
    dropped: Counter[str] = Counter()
    noted: Counter[str] = Counter()
    rows: list[TableRow] = []
    num_read = 0
    for video, line in _read_videos(path, problems):
        num_read += 1
        names = _names_of(video, class_names, line, problems)
        if not 0 < video.length_s <= LONGEST_VIDEO_S:
            continue  # a problem, noted
        if not video.intervals and not keep_unlabelled:
            dropped["without_labels"] += 1
            continue
        within = video._replace(intervals=_clipped(video, noted))
        for time_s, classes in moments(within):
            if classes or keep_unlabelled:
                actions = frozenset(names[number] for number in classes)
                rows.append(TableRow(video.name, time_s, WHOLE_FRAME, actions, ""))
            else:
                noted["moments_without_labels_left_out"] += 1
    problems.raise_if_any()
    table = actor_table(rows)
    report = ConversionReport("videos", num_read, len(table), dropped, noted)
    require_rows(report, path)
    return table, report


def read_class_names(path: Path) -> dict[int, str]:
    """The name of each class by its number, from lines like `c008 Opening a door`."""
    problems = Problems(path)
    names: dict[int, str] = {}
    for line, text in enumerate(read_lines(path), start=1):
        if not text.strip():
            continue
        parts = _CLASS.fullmatch(text.strip())
        if parts is None:
            problems.add(line, f"a class must read like 'c008 Opening a door'; got {shown(text.strip())}")
            continue
        problem = problem_of_action(parts[2])
        if problem:
            problems.add(line, problem)
        if int(parts[1]) in names or parts[2] in names.values():
            problems.add(line, f"a class must be named once; got {shown(text.strip())}")
        names[int(parts[1])] = parts[2]
    problems.raise_if_any()
    if not names:
        raise AnnotationError(
            f"{path}, line 1: must hold classes like 'c008 Opening a door'; the file is empty."
        )
    return names


def read_intervals(actions: str, line: int, problems: Problems) -> list[Interval]:
    """The intervals of a cell like `c092 11.90 21.20;c147 0.00 12.60`; an empty cell has none."""
    intervals: list[Interval] = []
    for action in filter(None, map(str.strip, actions.split(";"))):
        parts = _ACTION.fullmatch(action)
        if parts is None:
            problems.add(line, f"an action must read like 'c092 11.90 21.20'; got {shown(action)}")
            continue
        start_s, end_s = numbers([parts[2], parts[3]]).tolist()
        if math.isfinite(start_s) and math.isfinite(end_s):
            intervals.append(Interval(int(parts[1]), start_s, end_s, action))
        else:
            problems.add(line, f"an action must start and end at a time in seconds; got {shown(action)}")
    return intervals


def _read_videos(path: Path, problems: Problems) -> Iterator[tuple[AnnotatedVideo, int]]:
    seen: set[str] = set()
    for columns in read_named_columns(path, ("id", "actions", "length"), problems):
        lengths = numbers(columns.texts["length"])
        problems.add_where(
            ~((lengths > 0) & (lengths <= LONGEST_VIDEO_S)),
            columns.lines,
            lambda i, texts=columns.texts["length"]: (
                f"the length must be a number of seconds above 0, at most a day; got {shown(texts[i])}"
            ),
        )
        cells = zip(columns.texts["id"], columns.texts["actions"], lengths, columns.lines, strict=True)
        for name, actions, length_s, line in cells:
            if name.strip() in seen or not name.strip():
                problems.add(line, f"the id must name a video that has no row yet; got {shown(name)}")
            seen.add(name.strip())
            yield AnnotatedVideo(name.strip(), read_intervals(actions, line, problems), float(length_s)), line


def _names_of(
    video: AnnotatedVideo, class_names: Mapping[int, str] | None, line: int, problems: Problems
) -> dict[int, str]:
    names: dict[int, str] = {}
    for each in video.intervals:
        if each.class_number >= NUM_CLASSES:
            problems.add(line, f"a class must be one of c000 to c{NUM_CLASSES - 1}; got {shown(each.text)}")
        elif class_names is not None and each.class_number not in class_names:
            problems.add(line, f"a class must be in the list of classes; got {shown(each.text)}")
        code = f"c{each.class_number:03d}"
        names[each.class_number] = code if class_names is None else class_names.get(each.class_number, code)
    return names


def _clipped(video: AnnotatedVideo, noted: Counter[str]) -> list[Interval]:
    """The intervals with no end behind the video's; what lasts at no moment of it is only counted."""
    for each in video.intervals:
        noted["actions"] += 1
        noted["ends_moved_to_the_end_of_the_video"] += each.end_s > video.length_s
        noted["actions_that_start_after_the_end_of_the_video"] += each.start_s > video.length_s
        noted["actions_that_end_before_they_start"] += each.end_s < each.start_s
    return [each._replace(end_s=min(each.end_s, video.length_s)) for each in video.intervals]


def _classes_of_frames(video: AnnotatedVideo, first: int, last: int, frame_rate: float) -> set[int]:
    return {
        each.class_number
        for each in video.intervals
        if max(first, math.ceil(each.start_s * frame_rate - _ROUNDING_FRAMES))
        <= min(last, math.floor(each.end_s * frame_rate + _ROUNDING_FRAMES))
    }
