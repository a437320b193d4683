"""A data set as one plain table: a row per actor and key time.

    video, time_s, x1, y1, x2, y2, actions, actor_id

Boxes are fractions of the frame, actions are separated by `;`. A row without a box describes the whole frame, a row
without a time the whole video. Only `video` and `actions` are required: a missing column equals empty cells. Objects
are in a second table with the columns `object_class, score` in place of the last two, all of them required.
"""

import re
import unicodedata
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from types import ModuleType

import numpy as np
from jaxtyping import Bool, Float, Int, Shaped

from mule.core.errors import AnnotationError, NotFinite, RangeError, ShapeError

ACTION_SEPARATOR = ";"
BOX_COLUMNS = ("x1", "y1", "x2", "y2")
REQUIRED_ACTOR_COLUMNS = ("video", "actions")
ACTOR_COLUMNS = ("video", "time_s", *BOX_COLUMNS, "actions", "actor_id")
OBJECT_COLUMNS = ("video", "time_s", *BOX_COLUMNS, "object_class", "score")

RowChoice = Int[np.ndarray, " chosen"] | Bool[np.ndarray, " rows"] | slice


@dataclass(frozen=True)
class ActorTable:
    """Who does what, where and when: columns with one entry per row, and the names of videos and classes."""

    videos: tuple[str, ...]
    classes: tuple[str, ...]
    video_index: Int[np.ndarray, " rows"]
    time_s: Float[np.ndarray, " rows"]
    """NaN if the row describes the whole video."""
    boxes_xyxy_unit: Float[np.ndarray, "rows 4"]
    """NaN if the row describes the whole frame."""
    labels: Bool[np.ndarray, "rows classes"]
    actor_id: tuple[str, ...]
    """Identifies an actor within a video; empty if actors are not tracked."""

    def __post_init__(self) -> None:
        _require_rows(
            (self.video_index, self.time_s, self.boxes_xyxy_unit, self.labels, self.actor_id),
            (self.video_index, self.videos),
        )
        if self.labels.shape[1] != len(set(self.classes)):
            raise ShapeError(
                "the labels of a table must have one column per class, each class once; got "
                f"{self.labels.shape[1]} columns for {len(set(self.classes))} classes."
            )
        is_empty = np.isnan(self.boxes_xyxy_unit)
        if (is_empty.any(axis=1) != is_empty.all(axis=1)).any():
            raise NotFinite("a box must have four corners or none; some rows have NaN in only some of them.")

    def __len__(self) -> int:
        return len(self.video_index)

    @property
    def has_box(self) -> Bool[np.ndarray, " rows"]:
        """Whether a row has a box; otherwise it describes the whole frame."""
        return ~np.isnan(self.boxes_xyxy_unit[:, 0])

    @property
    def has_time(self) -> Bool[np.ndarray, " rows"]:
        """Whether a row has a time; otherwise it describes the whole video."""
        return ~np.isnan(self.time_s)

    @property
    def video_names(self) -> list[str]:
        """The video of each row."""
        return [self.videos[i] for i in self.video_index.tolist()]

    def action_names(self, row: int) -> tuple[str, ...]:
        """Return the actions of one row, in the order of `classes`."""
        return tuple(self.classes[i] for i in np.flatnonzero(self.labels[row]).tolist())

    def at(self, rows: RowChoice) -> "ActorTable":
        """Return the chosen rows in the chosen order. Videos and classes keep their numbers."""
        chosen = np.arange(len(self))[rows]
        return ActorTable(
            self.videos,
            self.classes,
            self.video_index[chosen],
            self.time_s[chosen],
            self.boxes_xyxy_unit[chosen],
            self.labels[chosen],
            tuple(self.actor_id[i] for i in chosen.tolist()),
        )

    def labels_of(self, classes: Sequence[str]) -> Bool[np.ndarray, "rows classes"]:
        """Return the labels of the given classes, in the given order.

        Raises:
            RangeError: the table has no such class.
        """
        unknown = sorted(set(classes) - set(self.classes))
        if unknown:
            raise RangeError(
                f"classes must be among the {len(self.classes)} of the table; {', '.join(map(repr, unknown[:5]))} "
                "are not. `mule data stats` lists the classes."
            )
        return self.labels[:, [self.classes.index(name) for name in classes]]

    def with_classes(self, classes: Sequence[str]) -> "ActorTable":
        """Return the table with a column for each of these classes; nobody does an action that it did not name."""
        missing = [name for name in classes if name not in self.classes]
        labels = np.pad(self.labels, ((0, 0), (0, len(missing))))
        return replace(self, classes=(*self.classes, *missing), labels=labels)

    def clips(self) -> tuple[Int[np.ndarray, " clips"], Int[np.ndarray, " rows"]]:
        """Group rows of one video and key time into clips; return each clip's first row and each row's clip.

        Clips are numbered by video, then by time; rows of the whole video come last.
        """
        times, time_number = np.unique(self.time_s, return_inverse=True)
        _, first, number = np.unique(
            self.video_index.astype(np.int64) * (len(times) + 1) + time_number,
            return_index=True,
            return_inverse=True,
        )
        return first, number


@dataclass(frozen=True)
class ObjectTable:
    """Objects in the frames: boxes with a class and a score, from annotators or a detector."""

    videos: tuple[str, ...]
    classes: tuple[str, ...]
    video_index: Int[np.ndarray, " rows"]
    time_s: Float[np.ndarray, " rows"]
    boxes_xyxy_unit: Float[np.ndarray, "rows 4"]
    class_index: Int[np.ndarray, " rows"]
    score: Float[np.ndarray, " rows"]

    def __post_init__(self) -> None:
        columns = (self.video_index, self.time_s, self.boxes_xyxy_unit, self.class_index, self.score)
        _require_rows(columns, (self.video_index, self.videos), (self.class_index, self.classes))

    def __len__(self) -> int:
        return len(self.video_index)


Column = Shaped[np.ndarray, "rows ..."] | tuple[str, ...]


def _require_rows(
    columns: Sequence[Column], *numbered: tuple[Int[np.ndarray, " rows"], tuple[str, ...]]
) -> None:
    if len({len(column) for column in columns}) > 1:
        raise ShapeError(
            f"the columns of a table must have one entry per row; got {[len(column) for column in columns]}."
        )
    for index, names in numbered:
        if len(index) and not 0 <= index.min() <= index.max() < len(names):
            raise RangeError(
                f"rows must name one of {len(names)} videos or classes by its number; got numbers from "
                f"{index.min()} to {index.max()}."
            )


def require_table_suffix(path: Path) -> None:
    """Check that a table's file name ends in `.csv` or `.parquet`."""
    if path.suffix.lower() not in (".csv", ".parquet"):
        raise AnnotationError(f"{path}: a table must be a .csv or a .parquet file; got {path.suffix!r}.")


def pyarrow_modules() -> ModuleType:
    """Import pyarrow, which only Parquet tables need.

    Raises:
        AnnotationError: it is not installed.
    """
    try:
        import pyarrow
        import pyarrow.compute
        import pyarrow.parquet
    except ImportError:
        raise AnnotationError(
            "reading or writing .parquet needs pyarrow: pip install 'mule-actions[parquet]', or use a .csv file."
        ) from None
    return pyarrow


def joined_tables(tables: Sequence[ActorTable]) -> ActorTable:
    """Join the rows of all tables in order. Videos and classes are matched by name and renumbered."""
    videos = tuple(dict.fromkeys(video for table in tables for video in table.videos))
    classes = tuple(sorted({name for table in tables for name in table.classes}))
    class_at = {name: at for at, name in enumerate(classes)}
    labels = np.zeros((sum(map(len, tables)), len(classes)), dtype=bool)
    video_index, start = [np.zeros(0, dtype=np.int64)], 0
    for table in tables:
        labels[start : start + len(table), [class_at[name] for name in table.classes]] = table.labels
        start += len(table)
        video_index.append(_renumbered(table.video_index, table.videos, videos))
    return ActorTable(
        videos,
        classes,
        np.concatenate(video_index),
        np.concatenate([np.zeros(0), *(table.time_s for table in tables)]),
        np.concatenate([np.zeros((0, 4)), *(table.boxes_xyxy_unit for table in tables)]),
        labels,
        tuple(actor_id for table in tables for actor_id in table.actor_id),
    )


def joined_objects(tables: Sequence[ObjectTable]) -> ObjectTable:
    """Join the rows of all tables in order. Videos and classes are matched by name and renumbered."""
    videos = tuple(dict.fromkeys(video for table in tables for video in table.videos))
    classes = tuple(dict.fromkeys(name for table in tables for name in table.classes))
    return ObjectTable(
        videos,
        classes,
        np.concatenate([_renumbered(table.video_index, table.videos, videos) for table in tables]),
        np.concatenate([table.time_s for table in tables]),
        np.concatenate([table.boxes_xyxy_unit for table in tables]),
        np.concatenate([_renumbered(table.class_index, table.classes, classes) for table in tables]),
        np.concatenate([table.score for table in tables]),
    )


def _renumbered(
    index: Int[np.ndarray, " rows"], names: Sequence[str], all_names: Sequence[str]
) -> Int[np.ndarray, " rows"]:
    """Return the numbers of the same names in another list of names."""
    number = {name: at for at, name in enumerate(all_names)}
    return np.array([number[name] for name in names], dtype=np.int64)[index]


@dataclass(frozen=True)
class TableRows:
    """Video, time and box of each row; `lines` holds each row's line in the file."""

    lines: list[int]
    videos: tuple[str, ...]
    video_index: Int[np.ndarray, " rows"]
    time_s: Float[np.ndarray, " rows"]
    boxes: Float[np.ndarray, "rows 4"]


_BETWEEN_WORDS = re.compile(r"(?<=[^\W_])[\s_/-]+(?=[^\W_])")


def distinct_rows(
    columns: Float[np.ndarray, "rows columns"],
) -> tuple[Float[np.ndarray, "distinct columns"], Int[np.ndarray, " distinct"], Int[np.ndarray, " rows"]]:
    """Return the distinct rows in sorted order, the first index of each, and the distinct row of each row."""
    order = np.lexsort(columns.T[::-1])  # stable: equal rows keep their order
    is_new = np.ones(len(order), dtype=bool)
    is_new[1:] = (columns[order][1:] != columns[order][:-1]).any(axis=1)
    number = np.empty(len(order), dtype=np.int64)
    number[order] = np.cumsum(is_new) - 1
    return columns[order[is_new]], order[is_new], number


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
COMMON_FACTOR = 4
CLOSE_SPELLING = 0.8
"""Two names are close if their edits are at most a fifth of their letters."""


def likely_misspellings(rows_of: Mapping[str, int]) -> list[str]:
    """Report actions of one or two rows that are spelt almost like one that is at least four times as frequent.

    Args:
        rows_of: the number of rows of each action.

    Examples:
        >>> likely_misspellings({"punch": 240, "pnch": 1, "kick": 180})
        ["'pnch' occurs once; did you mean 'punch' (240 rows)?"]
        >>> likely_misspellings({"pour": 8, "puor": 1})
        ["'puor' occurs once; did you mean 'pour' (8 rows)?"]
    """
    warnings: list[str] = []
    for name, count in rows_of.items():
        if not 0 < count <= RARE_ROWS:
            continue
        common = [other for other, rows in rows_of.items() if rows >= COMMON_FACTOR * count]
        closeness = {other: 1 - edits(name, other) / (len(name) + len(other)) for other in common}
        near = max(common, key=closeness.__getitem__, default=None)
        if near is not None and closeness[near] >= CLOSE_SPELLING:
            times = "once" if count == 1 else "twice"
            warnings.append(f"{name!r} occurs {times}; did you mean {near!r} ({rows_of[near]} rows)?")
    return warnings


def edits(first: str, second: str) -> int:
    """Count the fewest letters to insert, delete or swap with their neighbour to turn one word into the other.

    A letter replaced by another counts as two, because `walk` and `talk` are two actions but `puor` is a slip.

    Examples:
        >>> edits("punch", "pnch"), edits("pour", "puor"), edits("walk", "talk")
        (1, 1, 2)
    """
    rows = [list(range(len(second) + 1))]
    for i, letter in enumerate(first, start=1):
        row = [i]
        for j, other in enumerate(second, start=1):
            fewest = rows[-1][j - 1] if letter == other else 1 + min(rows[-1][j], row[-1])
            if i > 1 and j > 1 and (letter, first[i - 2]) == (second[j - 2], other):
                fewest = min(fewest, 1 + rows[-2][j - 2])
            row.append(fewest)
        rows.append(row)
    return rows[-1][-1]
