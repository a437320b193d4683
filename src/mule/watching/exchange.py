"""Moments for other libraries: rows of pandas, CSV and Parquet, and the detections of supervision.

A row is one actor at one moment. Actions and p-value are those of the track so far; boxes are in pixels.
"""

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args

import numpy as np

from mule.core.errors import MuleError
from mule.core.files import write_file
from mule.core.text_rows import write_csv
from mule.data.table.table import pyarrow_modules
from mule.watching.moments import Decision, Header, Moment, SeenActor

if TYPE_CHECKING:
    from pandas import DataFrame
    from supervision import Detections

COLUMNS = (
    "video", "key_time_s", "track_id", "decision", "p_value", "actions", "probabilities", "num_looks", "detection_score",
    "x1", "y1", "x2", "y2",
)  # fmt: skip
DECISIONS: tuple[Decision, ...] = get_args(Decision)
"""The class ids of `moment_to_supervision`, in order."""


def moments_to_pandas(moments: Iterable[Moment]) -> "DataFrame":
    """Return a data frame with one row per actor and moment.

    `actions` is a list, likeliest first, and `probabilities` are theirs.
    """
    try:
        import pandas
    except ImportError as missing:
        raise MuleError(
            f"Data frames need pandas: pip install 'mule-actions[pandas]'. It could not be imported: {missing}"
        ) from missing
    return pandas.DataFrame(list(_rows(moments)), columns=list(COLUMNS))


def moment_to_supervision(moment: Moment) -> "Detections":
    """Return the actors of a moment as `supervision.Detections`, to be drawn, filtered and counted with that library.

    `class_id` is the decision (0 known, 1 novel, 2 idle, 3 unsure), so annotators colour by it. `data` holds `class_name`,
    the decision in words; `actions`, a tuple for each actor; `p_value`, not a number where the model has none; and `label`,
    a line to write beside the box.
    """
    try:
        from supervision import Detections
    except ImportError as missing:
        raise MuleError(
            f"Detections need supervision: pip install supervision. It could not be imported: {missing}"
        ) from missing
    actors = moment.actors
    actions = np.empty(len(actors), dtype=object)
    actions[:] = [tuple(each.action for each in actor.so_far.actions) for actor in actors]
    p_values = [actor.so_far.novelty.p_value for actor in actors]
    return Detections(
        xyxy=np.array([actor.box_xyxy_px for actor in actors], dtype=np.float32).reshape(-1, 4),
        confidence=np.array([actor.detection_score for actor in actors], dtype=np.float32),
        class_id=np.array([DECISIONS.index(actor.decision) for actor in actors], dtype=int),
        tracker_id=np.array([actor.track_id for actor in actors], dtype=int),
        data={
            "class_name": np.array([actor.decision for actor in actors], dtype=str),
            "actions": actions,
            "p_value": np.array([np.nan if each is None else each for each in p_values], dtype=float),
            "label": np.array([_label(actor) for actor in actors], dtype=str),
        },
    )


def write_moments_csv(path: Path, _header: Header, moments: Iterable[Moment]) -> None:
    """Write a row for each actor and moment; actions and probabilities are separated by semicolons."""
    rows = (
        [";".join(map(str, cell)) if isinstance(cell, list) else cell for cell in row]
        for row in _rows(moments)
    )
    write_csv(path, COLUMNS, rows)


def write_moments_parquet(path: Path, _header: Header, moments: Iterable[Moment]) -> None:
    """Write a row for each actor and moment; actions and probabilities are lists.

    Raises:
        AnnotationError: pyarrow is not installed.
    """
    arrow = pyarrow_modules()
    texts, numbers = arrow.string(), arrow.float64()
    kinds = [
        texts,
        numbers,
        arrow.int64(),
        texts,
        numbers,
        arrow.list_(texts),
        arrow.list_(numbers),
        arrow.int64(),
    ]
    kinds += [numbers] * (len(COLUMNS) - len(kinds))
    columns = zip(*_rows(moments), strict=True)
    arrays = [arrow.array(column, kind) for column, kind in zip(columns, kinds, strict=False)]
    schema = arrow.schema(list(zip(COLUMNS, kinds, strict=True)))
    table = arrow.Table.from_arrays(arrays, schema=schema) if arrays else schema.empty_table()
    write_file(path, lambda growing: arrow.parquet.write_table(table, growing))


def _rows(moments: Iterable[Moment]) -> Iterator[list[Any]]:
    for moment in moments:
        for actor in moment.actors:
            yield [
                moment.video,
                moment.key_time_s,
                actor.track_id,
                actor.decision,
                actor.so_far.novelty.p_value,
                [each.action for each in actor.so_far.actions],
                [each.probability for each in actor.so_far.actions],
                actor.num_looks,
                actor.detection_score,
                *actor.box_xyxy_px,
            ]


def _label(actor: SeenActor) -> str:
    named = ", ".join(f"{each.action} {each.probability:.0%}" for each in actor.so_far.actions)
    return " · ".join(
        filter(None, [f"#{actor.track_id}", named if actor.decision != "idle" else "", _answer(actor)])
    )


def _answer(actor: SeenActor) -> str:
    return "" if actor.decision == "known" else actor.decision
