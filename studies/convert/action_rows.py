"""Files with one row per box and action: `video, time_s, x1, y1, x2, y2, action, person_id`.

Boxes are fractions of the frame. Rows of one person at one time form one actor with several actions.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np
from jaxtyping import Float

from mule.core.text_rows import NamedColumns, Problems, numbers, read_named_columns, shown, times_s
from mule.data.convert.conversion import TableRow, UnitBox, problem_of_action
from mule.data.table.table import BOX_COLUMNS

COLUMNS = ("video", "time_s", *BOX_COLUMNS, "action", "person_id")
_NAMES = ("video", "action", "person_id")


class PlacedRow(NamedTuple):
    """An actor at one time, and the line where it first appears."""

    line: int
    row: TableRow


class ActionRows(NamedTuple):
    """The actors of a file in order of appearance, and the number of rows they took."""

    actors: list[PlacedRow]
    num_read: int


def read_action_rows(path: Path, problems: Problems) -> ActionRows:
    """Read the actors of a file; rows with problems are reported to `problems` and left out."""
    joined: dict[tuple[str, float, str], PlacedRow] = {}
    num_read = 0
    for line, row in _sound_rows(path, problems):
        num_read += 1
        first = joined.setdefault((row.video, row.time_s, row.actor), PlacedRow(line, row))
        if first.line == line:
            continue
        problem = _problem_of_joining(first, row)
        if problem:
            problems.add(line, problem)
        actions = first.row.actions | row.actions
        joined[row.video, row.time_s, row.actor] = first._replace(row=first.row._replace(actions=actions))
    return ActionRows(list(joined.values()), num_read)


def _sound_rows(path: Path, problems: Problems) -> Iterator[tuple[int, TableRow]]:
    for columns in read_named_columns(path, COLUMNS, problems):
        texts = columns.texts
        seconds = times_s(texts["time_s"], columns.lines, problems)
        boxes = _boxes(columns, problems)
        is_sound = np.isfinite(seconds) & ~np.isnan(boxes[:, 0])
        names = [[text.strip() for text in texts[name]] for name in _NAMES]
        for at, (line, *words) in enumerate(zip(columns.lines, *names, strict=True)):
            video, action, person = words
            empty = [name for name, word in zip(_NAMES, words, strict=True) if not word]
            problem = f"{' and '.join(empty)} must not be empty" if empty else problem_of_action(action)
            if problem:
                problems.add(line, problem)
            elif is_sound[at]:
                box: UnitBox = tuple(boxes[at].tolist())
                yield line, TableRow(video, float(seconds[at]), box, frozenset({action}), person)


def _boxes(columns: NamedColumns, problems: Problems) -> Float[np.ndarray, "rows 4"]:
    """The boxes; an invalid one is reported and becomes NaN."""
    texts = [columns.texts[name] for name in BOX_COLUMNS]
    boxes = np.stack([numbers(each) for each in texts], axis=1)
    x1, y1, x2, y2 = boxes.T
    is_box = (x1 >= 0) & (x1 < x2) & (x2 <= 1) & (y1 >= 0) & (y1 < y2) & (y2 <= 1)  # False where one is NaN
    problems.add_where(
        ~is_box,
        columns.lines,
        lambda i: (
            "a box must have 0 <= x1 < x2 <= 1 and 0 <= y1 < y2 <= 1, in fractions of the frame; got "
            f"{shown(', '.join(each[i] for each in texts))}"
        ),
    )
    return np.where(is_box[:, None], boxes, np.nan)


def _problem_of_joining(first: PlacedRow, row: TableRow) -> str | None:
    who = f"{shown(row.actor)} at {row.time_s:g} s of {shown(row.video)}"
    if row.actions <= first.row.actions:
        return f"a person must have each action once; {who} has {shown(*row.actions)} twice"
    if row.box_xyxy_unit != first.row.box_xyxy_unit:
        return f"a person must have one box at a time; {who} has another box in line {first.line}"
    return None
