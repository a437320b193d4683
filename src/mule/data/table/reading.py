"""Read tables of actors and objects from CSV or Parquet. All problems of a file are reported together, by line."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np
from jaxtyping import Bool, Float, Int

from mule.core.errors import AnnotationError
from mule.core.text_rows import (
    NamedColumns,
    Problems,
    finite_numbers,
    numbered,
    numbers,
    read_named_columns,
    shown,
)
from mule.data.table.ava_boxes import is_ava_boxes, persons_of, read_ava_boxes
from mule.data.table.table import (
    ACTION_SEPARATOR,
    ACTOR_COLUMNS,
    BOX_COLUMNS,
    OBJECT_COLUMNS,
    REQUIRED_ACTOR_COLUMNS,
    ActorTable,
    ObjectTable,
    TableRows,
    distinct_rows,
    pyarrow_modules,
    require_table_suffix,
    spelled_twice,
)

ROUNDING_UNIT = 1e-4
"""Rounding may put a corner this far outside the frame; it is moved to the border."""
ROWS_PER_PART = 65_536
MOST_CLASSES = 2000
"""Classes of a table of actors."""
AFTER_THE_END_S = 0.5
"""Containers round their length, so a key time may be this far beyond it."""

VideoEnds = Mapping[str, float | None]
"""Length of each existing video in seconds; None if it is unknown."""

FindVideoEnds = Callable[[Sequence[str]], VideoEnds | None]
"""Given the videos that a table names, returns the lengths of the existing ones, or None to check no row."""


def read_actor_table(
    path: Path,
    *,
    video_ends_s: FindVideoEnds | None = None,
    allow_unlabelled: bool = False,
    most_shown: int = 5,
) -> ActorTable:
    """Read a table of actors.

    Args:
        path: a `.csv` or `.parquet` file with the columns `video` and `actions`. The other `ACTOR_COLUMNS` are
            optional; a missing one equals empty cells. Further columns are ignored.
        video_ends_s: called with the named videos; a row must name one it returns, and a time before its end.
        allow_unlabelled: whether rows may have no action.
        most_shown: describe at most this many problems; the others are counted.

    Raises:
        RowProblems: all problems of the rows, by line.
        AnnotationError: the file is not such a table.
    """
    problems = _problems(path, most_shown)
    places = _PlaceReader(problems, needs_place=False)
    actions = _ActionReader(problems, allow_unlabelled)
    actor_id: list[str] = []
    for columns in _columns(path, ACTOR_COLUMNS, REQUIRED_ACTOR_COLUMNS, problems):
        places.read(columns)
        actions.read(columns)
        actor_id += [text.strip() for text in columns.texts["actor_id"]]
    actions.require_few_classes(path)
    rows = places.rows()
    _note_beyond_videos(rows, None if video_ends_s is None else video_ends_s(rows.videos), problems)
    _note_spelled_twice("an action", actions.first_line, problems)
    _note_repeated(rows, actor_id, problems)
    problems.raise_if_any()
    classes, labels = actions.labels()
    return ActorTable(
        rows.videos, classes, rows.video_index, rows.time_s, rows.boxes, labels, tuple(actor_id)
    )


def read_object_table(
    path: Path, *, video_ends_s: FindVideoEnds | None = None, most_shown: int = 5
) -> ObjectTable:
    """Read a table of objects with the columns `OBJECT_COLUMNS`; problems are reported as for actors.

    A header alone is a table without objects. Published person boxes of AVA are read as they are (`ava_boxes`).
    """
    problems = _problems(path, most_shown)
    if path.suffix.lower() == ".csv" and is_ava_boxes(path):
        rows, score = read_ava_boxes(path, problems)
        _note_beyond_videos(rows, None if video_ends_s is None else video_ends_s(rows.videos), problems)
        problems.raise_if_any()
        return persons_of(rows, score)
    places = _PlaceReader(problems, needs_place=True)
    class_number: dict[str, int] = {}
    first_line: dict[str, int] = {}
    parts: list[tuple[np.ndarray, np.ndarray]] = []
    for columns in _columns(path, OBJECT_COLUMNS, OBJECT_COLUMNS, problems, may_be_empty=True):
        places.read(columns)
        names = _named(columns, "object_class", problems)
        class_index = numbered(names, class_number)
        for at in np.unique(class_index, return_index=True)[1].tolist():
            first_line.setdefault(names[at], columns.lines[at])
        score = finite_numbers(columns.texts["score"], "the score", columns.lines, problems)
        parts.append((class_index, score))
    rows = places.rows()
    _note_beyond_videos(rows, None if video_ends_s is None else video_ends_s(rows.videos), problems)
    _note_spelled_twice("an object class", first_line, problems)
    problems.raise_if_any()
    class_index, score = (np.concatenate(column) for column in zip(*parts, strict=True))
    return ObjectTable(
        rows.videos, tuple(class_number), rows.video_index, rows.time_s, rows.boxes, class_index, score
    )


def holds_objects(path: Path) -> bool:
    """Whether a table has a column of object classes, or AVA's person boxes, so that `read_object_table` reads it."""
    if path.suffix.lower() == ".csv" and is_ava_boxes(path):
        return True
    name = "object_class"
    return name in next(_parts(path, ("video",), (name,), _problems(path, 1), may_be_empty=True)).texts


class _PlaceReader:
    """Collects video, time and box of each row."""

    def __init__(self, problems: Problems, *, needs_place: bool) -> None:
        self._problems = problems
        self._needs_place = needs_place
        self._number_of_video: dict[str, int] = {}
        self._lines: list[int] = []
        self._parts: list[tuple[np.ndarray, np.ndarray, np.ndarray]] = []

    def read(self, columns: NamedColumns) -> None:
        video_index = numbered(_named(columns, "video", self._problems), self._number_of_video)
        is_timed, time_s = self._times(columns)
        boxes = self._boxes(columns, is_timed)
        self._parts.append((video_index, time_s, boxes))
        self._lines += columns.lines

    def rows(self) -> TableRows:
        video_index, time_s, boxes = (np.concatenate(column) for column in zip(*self._parts, strict=True))
        return TableRows(self._lines, tuple(self._number_of_video), video_index, time_s, boxes)

    def _times(self, columns: NamedColumns) -> tuple[Bool[np.ndarray, " rows"], Float[np.ndarray, " rows"]]:
        texts = columns.texts["time_s"]
        time_s, is_timed = _numbers_where_filled(texts)
        may_be_empty = "" if self._needs_place else ", or empty for the whole video"
        self._problems.add_where(
            (is_timed | self._needs_place) & ~(np.isfinite(time_s) & (time_s >= 0)),
            columns.lines,
            lambda i: f"time_s must be 0 or later{may_be_empty}; got {shown(texts[i])}",
        )
        return is_timed, time_s

    def _boxes(
        self, columns: NamedColumns, is_timed: Bool[np.ndarray, " rows"]
    ) -> Float[np.ndarray, "rows 4"]:
        texts = [columns.texts[name] for name in BOX_COLUMNS]
        corners = [_numbers_where_filled(cells) for cells in texts]
        boxes = np.stack([values for values, _ in corners], axis=1)
        is_given = np.any([is_filled for _, is_filled in corners], axis=0)
        low, high = boxes[:, :2], boxes[:, 2:]
        is_box = (low >= -ROUNDING_UNIT) & (high <= 1 + ROUNDING_UNIT) & (low < high)
        may_be_empty = "" if self._needs_place else ", or all empty for the whole frame"

        def got(i: int) -> str:
            return ", ".join(cells[i].strip()[:40] or "nothing" for cells in texts)

        self._problems.add_where(
            (is_given | self._needs_place) & ~is_box.all(axis=1),
            columns.lines,
            lambda i: (
                "a box must have 0 <= x1 < x2 <= 1 and 0 <= y1 < y2 <= 1, in fractions of the frame"
                f"{may_be_empty}; got {got(i)}"
            ),
        )
        if not self._needs_place:
            self._problems.add_where(
                is_given & ~is_timed,
                columns.lines,
                lambda i: f"a row of the whole video (without time_s) must leave the box empty; got {got(i)}",
            )
        return boxes.clip(0, 1)


class _ActionReader:
    """Collects the actions of each row. Cells repeat, so each distinct text is split once."""

    def __init__(self, problems: Problems, allow_unlabelled: bool) -> None:
        self.first_line: dict[str, int] = {}
        """First line of each class, in order of appearance."""
        self._problems = problems
        self._allow_unlabelled = allow_unlabelled
        self._number_of_cell: dict[str, int] = {}
        self._names: list[list[str]] = []
        self._empty_cells: list[int] = []
        self._wrong_cells: list[int] = []
        self._parts: list[Int[np.ndarray, " rows"]] = []

    def read(self, columns: NamedColumns) -> None:
        texts, lines = columns.texts["actions"], columns.lines
        num_before = len(self._names)
        cells = numbered(texts, self._number_of_cell)
        for cell, at in zip(*(each.tolist() for each in np.unique(cells, return_index=True)), strict=True):
            if cell >= num_before:
                self._split(texts[at], lines[at])
        if not self._allow_unlabelled:
            self._problems.add_where(
                np.isin(cells, self._empty_cells),
                lines,
                lambda _: "actions must name at least one action; the cell is empty",
            )
        self._problems.add_where(
            np.isin(cells, self._wrong_cells),
            lines,
            lambda i: f"actions must be names, each once, between semicolons; got {shown(texts[i])}",
        )
        self._parts.append(cells)

    def require_few_classes(self, path: Path) -> None:
        """Refuse a table whose labels would fill the memory: every row has a column per class."""
        if len(self.first_line) > MOST_CLASSES:
            raise AnnotationError(
                f"{path}: a table must have at most {MOST_CLASSES} classes; this one has {len(self.first_line)}. Are actions "
                "described freely? Give each a name of a short list first."
            )

    def labels(self) -> tuple[tuple[str, ...], Bool[np.ndarray, "rows classes"]]:
        classes = tuple(sorted(self.first_line))
        number = {name: at for at, name in enumerate(classes)}
        labels_of_cell = np.zeros((len(self._names), len(classes)), dtype=bool)
        for cell, names in enumerate(self._names):
            labels_of_cell[cell, [number[name] for name in names]] = True
        return classes, labels_of_cell[np.concatenate(self._parts)]

    def _split(self, text: str, line: int) -> None:
        cell, names = len(self._names), [name.strip() for name in text.split(ACTION_SEPARATOR)]
        if names == [""]:
            names = []
            self._empty_cells.append(cell)
        elif "" in names or len(set(names)) < len(names):
            self._wrong_cells.append(cell)
        self._names.append(names)
        for name in filter(None, names):
            self.first_line.setdefault(name, line)


def _note_beyond_videos(rows: TableRows, video_ends_s: VideoEnds | None, problems: Problems) -> None:
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


def _note_spelled_twice(what: str, first_line: Mapping[str, int], problems: Problems) -> None:
    """Check that each class has one spelling; `first_line` is the line where each name appears first."""
    for earlier, name in spelled_twice(list(first_line)):
        problems.add(
            first_line[name], f"{what} must be spelled one way; got {name!r} here and {earlier!r} before"
        )


def _note_repeated(rows: TableRows, actor_id: list[str], problems: Problems) -> None:
    """Check that an actor has one row per key time. An actor without `actor_id` is identified by its box."""
    actor = numbered(actor_id, {"": 0})
    box = np.where((actor == 0)[:, None], np.nan_to_num(rows.boxes, nan=-1.0), 0.0)
    time_s = np.nan_to_num(rows.time_s, nan=-1.0)
    _, first_of_number, number = distinct_rows(np.column_stack([rows.video_index, time_s, actor, box]))
    first = first_of_number[number]

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


def _problems(path: Path, most_shown: int) -> Problems:
    require_table_suffix(path)
    is_parquet = path.suffix.lower() == ".parquet"
    return Problems(path, most_shown=most_shown, counted="row" if is_parquet else "line")


def _columns(
    path: Path,
    names: Sequence[str],
    required: Sequence[str],
    problems: Problems,
    *,
    may_be_empty: bool = False,
) -> Iterator[NamedColumns]:
    """Yield the named columns, some thousand rows at a time; a missing optional column has empty cells."""
    optional = [name for name in names if name not in required]
    for part in _parts(path, required, optional, problems, may_be_empty=may_be_empty):
        empty = {name: [""] * len(part.lines) for name in names if name not in part.texts}
        yield NamedColumns({**part.texts, **empty}, part.lines)


def _parts(
    path: Path,
    required: Sequence[str],
    optional: Sequence[str],
    problems: Problems,
    *,
    may_be_empty: bool = False,
) -> Iterator[NamedColumns]:
    if path.suffix.lower() == ".parquet":
        return _read_parquet_columns(path, required, optional, may_be_empty=may_be_empty)
    return read_named_columns(path, required, problems, optional=optional, may_be_empty=may_be_empty)


def _read_parquet_columns(
    path: Path, required: Sequence[str], optional: Sequence[str], *, may_be_empty: bool
) -> Iterator[NamedColumns]:
    """Yield the columns of a Parquet file as text; rows are counted from 1, and an empty cell is ''."""
    arrow = pyarrow_modules()
    num_before = 0
    try:
        with arrow.parquet.ParquetFile(path) as file:
            header = file.schema_arrow.names
            names = [*required, *(name for name in optional if name in header)]
            has_rows = bool(file.metadata.num_rows)
            if any(header.count(name) != 1 for name in names) or not (has_rows or may_be_empty):
                raise AnnotationError(
                    f"{path}: must hold rows and the columns {', '.join(required)}, once each; got "
                    f"{file.metadata.num_rows} rows and {', '.join(header) or 'no columns'}."
                )
            if not has_rows:
                yield NamedColumns({name: [] for name in names}, [])
            for batch in file.iter_batches(ROWS_PER_PART, columns=names):
                texts = {
                    name: arrow.compute.fill_null(batch.column(name).cast(arrow.string()), "").to_pylist()
                    for name in names
                }
                yield NamedColumns(texts, list(range(num_before + 1, num_before + len(batch) + 1)))
                num_before += len(batch)
    except (OSError, arrow.ArrowException) as error:
        reason = "there is no such file" if isinstance(error, FileNotFoundError) else str(error).rstrip(".")
        raise AnnotationError(
            f"{path}: must be a Parquet file whose cells are text or numbers; {reason}."
        ) from None


def _numbers_where_filled(
    texts: list[str],
) -> tuple[Float[np.ndarray, " rows"], Bool[np.ndarray, " rows"]]:
    """Return a column as numbers (NaN if a cell is not one), and whether each cell is filled."""
    values = numbers(texts)
    is_filled = ~np.isnan(values)
    for row in np.flatnonzero(~is_filled).tolist():
        is_filled[row] = bool(texts[row].strip())
    return values, is_filled


def _named(columns: NamedColumns, name: str, problems: Problems) -> list[str]:
    texts = [text.strip() for text in columns.texts[name]]
    is_empty = np.array([not text for text in texts], dtype=bool)
    problems.add_where(is_empty, columns.lines, lambda _: f"{name} must not be empty")
    return texts
