"""What must hold between the rows of a table, and between them and the videos: one note for each that breaks it.

Tables as Parquet files. The only module of data sets that uses pyarrow, which is an extra: mule[parquet].
"""

import difflib
import re
import unicodedata
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType

import numpy as np
from jaxtyping import Float, Int, Shaped

from mule.core.errors import AnnotationError
from mule.core.text_rows import NamedColumns, Problems, numbered, shown

AFTER_THE_END_S = 0.5
"""Containers round their length; a key time may lie this far behind it."""

VideoEnds = Mapping[str, float | None]
"""The length of each video there is, in seconds; None where it is not known."""

_BETWEEN_WORDS = re.compile(r"(?<=[^\W_])[\s_/-]+(?=[^\W_])")


@dataclass(frozen=True)
class TableRows:
    """Where and when, row by row; `lines` says where each row stands in the file."""

    lines: list[int]
    videos: tuple[str, ...]
    video_index: Int[np.ndarray, " rows"]
    time_s: Float[np.ndarray, " rows"]
    boxes: Float[np.ndarray, "rows 4"]


def note_beyond_videos(rows: TableRows, video_ends_s: VideoEnds, problems: Problems) -> None:
    """A row names a video there is, and a time before its end."""
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
    """A class has one spelling; `first_line` says where each name appears first."""
    for earlier, name in spelled_twice(list(first_line)):
        problems.add(
            first_line[name], f"{what} must be spelled one way; got {name!r} here and {earlier!r} before"
        )


def note_repeated(rows: TableRows, actor_id: list[str], problems: Problems) -> None:
    """An actor has one row per key time. Where it has no name, it is known by its box."""
    actor = numbered(actor_id, {"": 0})
    box = np.where((actor == 0)[:, None], np.nan_to_num(rows.boxes, nan=-1.0), 0.0)
    time_s = np.nan_to_num(rows.time_s, nan=-1.0)
    first = _first_equal([rows.video_index, time_s, actor, *box.T])

    def describe(i: int) -> str:
        who = f"actor {shown(actor_id[i])}" if actor_id[i] else "an actor without actor_id, known by its box,"
        when = "for the whole video" if np.isnan(rows.time_s[i]) else f"at {rows.time_s[i]:g} s"
        return (
            f"{who} must have one row {when}; the one of {problems.counted} {rows.lines[first[i]]} is there "
            "already (put all its actions into one row)"
        )

    problems.add_where(first != np.arange(len(first)), rows.lines, describe)


def _first_equal(columns: Sequence[Shaped[np.ndarray, " rows"]]) -> Int[np.ndarray, " rows"]:
    """For each row the first one that equals it in all columns: itself, if there is none before."""
    order = np.lexsort(columns)  # stable: equal rows keep their order
    is_new = np.ones(len(order), dtype=bool)
    is_new[1:] = np.any([column[order][1:] != column[order][:-1] for column in columns], axis=0)
    first = np.empty(len(order), dtype=np.int64)
    first[order] = order[is_new][np.cumsum(is_new) - 1]
    return first


def spelling(name: str) -> str:
    """What a name is but for its spelling: small letters, and nothing between words.

    >>> spelling("Brush_Hair") == spelling("brush hair"), spelling("grade a+") == spelling("grade a-")
    (True, False)
    """
    return _BETWEEN_WORDS.sub("", unicodedata.normalize("NFKC", name).casefold().strip())


def spelled_twice(names: Sequence[str]) -> list[tuple[str, str]]:
    """Names that differ from an earlier one in spelling alone, each after that one."""
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


ROWS_PER_PART = 65_536


def read_parquet_columns(path: Path, names: Sequence[str]) -> Iterator[NamedColumns]:
    """The named columns as text, some ten thousand rows at a time; rows are counted from 1. An empty cell is ''."""
    arrow = _arrow()
    num_before = 0
    try:
        with arrow.parquet.ParquetFile(path) as file:
            _require_columns(path, file.schema_arrow.names, names, file.metadata.num_rows)
            for batch in file.iter_batches(ROWS_PER_PART, columns=list(names)):
                texts = {name: _texts(batch.column(name), arrow) for name in names}
                yield NamedColumns(texts, list(range(num_before + 1, num_before + len(batch) + 1)))
                num_before += len(batch)
    except (OSError, arrow.ArrowException) as error:
        reason = "there is no such file" if isinstance(error, FileNotFoundError) else str(error).rstrip(".")
        raise AnnotationError(
            f"{path}: must be a Parquet file whose cells are text or numbers; {reason}."
        ) from None


def write_parquet(path: Path, columns: Mapping[str, Sequence[str] | Shaped[np.ndarray, " rows"]]) -> None:
    """One Parquet column per entry, numbers as numbers; NaN becomes an empty cell."""
    arrow = _arrow()
    arrays = [
        arrow.array(cells, arrow.float64(), from_pandas=True)
        if isinstance(cells, np.ndarray)
        else arrow.array(cells, arrow.string())
        for cells in columns.values()
    ]
    arrow.parquet.write_table(arrow.table(arrays, names=list(columns)), path)


def _require_columns(path: Path, found: Sequence[str], names: Sequence[str], num_rows: int) -> None:
    if any(found.count(name) != 1 for name in names) or not num_rows:
        raise AnnotationError(
            f"{path}: must hold rows and the columns {', '.join(names)}, once each; got {num_rows} rows and "
            f"{', '.join(found) or 'no columns'}."
        )


def _texts(column, arrow: ModuleType) -> list[str]:  # noqa: ANN001 - a type of a package that may be missing
    return arrow.compute.fill_null(column.cast(arrow.string()), "").to_pylist()


def _arrow() -> ModuleType:
    try:
        import pyarrow
        import pyarrow.compute
        import pyarrow.parquet
    except ImportError:
        raise AnnotationError(
            "reading or writing .parquet needs pyarrow: pip install 'mule[parquet]', or use a .csv file."
        ) from None
    return pyarrow
