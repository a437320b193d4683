"""J-HMDB: short clips of one person who does one action.

    labels.csv         a row per clip: the box of its person at one time, and the action
    labels_multi.csv   the same, with the view and the visible body part as further rows, `view:front`
    videos.csv         video, action, frames, fps, persons_detected_auto, source_group, …

Clips of one film share a `source_group` and must stay on one side of a split:
`mule data split … --groups videos.csv:source_group`.
"""

from collections import Counter
from pathlib import Path
from typing import NamedTuple

import numpy as np

from mule.core.text_rows import Problems, numbers, read_named_columns, shown, whole_numbers
from mule.data.convert.conversion import WHOLE_FRAME, ConversionReport, TableRow, actor_table, require_rows
from mule.data.table.table import ActorTable
from studies.convert.action_rows import PlacedRow, read_action_rows

LABELS, TAGGED_LABELS, VIDEOS = "labels.csv", "labels_multi.csv", "videos.csv"
TAG_MARK = ":"

_VIDEO_COLUMNS = ("video", "action", "frames", "fps", "persons_detected_auto", "source_group")
_ALL_OF_IT = (0.0, 0.0, 1.0, 1.0)


class Clip(NamedTuple):
    """A clip as `videos.csv` describes it."""

    action: str
    length_s: float
    num_persons: int
    """People that the detector of the boxes found."""


def actors_from_jhmdb(folder: Path, *, with_tags: bool = False) -> tuple[ActorTable, ConversionReport]:
    """Return the person of each clip. Where no person was detected, the row covers the whole frame.

    Args:
        folder: a folder with the files above.
        with_tags: whether view and visible body part count as further actions.

    Raises:
        AnnotationError: a file has problems; the message names all of them by line.
    """
    path = folder / (TAGGED_LABELS if with_tags else LABELS)
    clips = _read_clips(folder / VIDEOS)
    problems = Problems(path)
    labels = read_action_rows(path, problems)
    noted: Counter[str] = Counter()
    line_of: dict[str, int] = {}
    rows: list[TableRow] = []
    for placed in labels.actors:
        line, row = placed
        if line_of.setdefault(row.video, line) != line:
            problems.add(
                line,
                f"a clip must have one actor at one time; {shown(row.video)} is also in line "
                f"{line_of[row.video]}",
            )
        clip = clips.get(row.video)
        if clip is None:
            problems.add(line, f"every clip must be listed in {VIDEOS}; {shown(row.video)} is not")
            continue
        _note_disagreements(placed, clip, problems, with_tags=with_tags)
        is_whole = row.box_xyxy_unit == _ALL_OF_IT
        noted["clips_without_a_detected_person_use_the_whole_frame"] += is_whole
        noted["clips_with_several_people_use_the_largest"] += clip.num_persons > 1
        rows.append(row._replace(box_xyxy_unit=WHOLE_FRAME) if is_whole else row)
    problems.raise_if_any()
    noted[f"clips_of_{VIDEOS}_without_a_row"] = len(clips) - len(rows)
    table = actor_table(rows)
    report = ConversionReport("rows", labels.num_read, len(table), {}, noted)
    require_rows(report, path)
    return table, report


def _note_disagreements(placed: PlacedRow, clip: Clip, problems: Problems, *, with_tags: bool) -> None:
    line, row = placed
    done = {action for action in row.actions if not (with_tags and TAG_MARK in action)}
    if done != {clip.action}:
        problems.add(
            line,
            f"the action must be the one in {VIDEOS}, {shown(clip.action)}; got "
            f"{shown('; '.join(sorted(done)))}",
        )
    if row.time_s >= clip.length_s:
        problems.add(
            line, f"time_s must be before the end of the clip, {clip.length_s:g} s; got {row.time_s:g}"
        )


def _read_clips(path: Path) -> dict[str, Clip]:
    problems = Problems(path)
    clips: dict[str, Clip] = {}
    for columns in read_named_columns(path, _VIDEO_COLUMNS, problems):
        texts, lines = columns.texts, columns.lines
        frames = whole_numbers(texts["frames"], "frames", lines, problems)
        persons = whole_numbers(
            texts["persons_detected_auto"], "persons_detected_auto", lines, problems
        ).tolist()
        rates = numbers(texts["fps"])
        problems.add_where(
            ~((rates > 0) & (rates < np.inf)),
            lines,
            lambda i, cells=texts["fps"]: f"fps must be a number above 0; got {shown(cells[i])}",
        )
        lengths_s = (frames / np.where(rates > 0, rates, 1.0)).tolist()
        names = zip(texts["video"], texts["action"], texts["source_group"], strict=True)
        for at, (video, action, group) in enumerate(names):
            if not video.strip() or not action.strip() or not group.strip():
                problems.add(lines[at], "video, action and source_group must not be empty")
            if video.strip() in clips:
                problems.add(lines[at], f"a clip must have one row; {shown(video)} has another one above")
            clips[video.strip()] = Clip(action.strip(), lengths_s[at], persons[at])
    problems.raise_if_any()
    return clips
