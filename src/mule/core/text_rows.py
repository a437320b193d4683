"""Read and write text files: rows in chunks, names, pairs and JSON; problems are reported together, by line.

Files are UTF-8, with or without a byte-order mark, with any line ending. Blank lines are skipped. Each column of a
chunk is converted at once, and cell by cell only if that fails.
"""

import csv
import io
import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any, Literal, TypeGuard

import numpy as np
from jaxtyping import Bool, Float, Int

from mule.core.documents import DocumentError, json_of
from mule.core.errors import AnnotationError
from mule.core.files import os_reason, write_file

BLOCK_BYTES = 1 << 18
ROWS_PER_CHUNK = 4_000
PROBLEMS_SHOWN = 5
MOST_COLUMNS = 10_000
"""Cells of a row."""
MOST_CELL_LETTERS = csv.field_size_limit()
"""Letters of a cell: Python's own limit."""

Json = Any
"""Content of a JSON file."""


class RowProblems(AnnotationError):  # noqa: N818 - names the fact, as the messages do
    """Rows of one file cannot be used. `each` names file, line and problem, in order of lines."""

    def __init__(self, message: str, each: tuple[str, ...], *, num_more: int) -> None:
        super().__init__(message)
        self.each = each
        self.num_more = num_more
        """Number of further problems that were only counted."""


class Problems:
    """Collects the problems of one file; describes the first few and counts the others."""

    def __init__(
        self, path: Path, *, most_shown: int = PROBLEMS_SHOWN, counted: Literal["line", "row"] = "line"
    ) -> None:
        self._path = path
        self._most_shown = most_shown
        self.counted = counted
        self._first: list[tuple[int, str]] = []
        self._count = 0

    def add(self, place: int | str, what: str) -> None:
        """Add a problem at a line or a named place; `what` states what must hold and what was found."""
        order, name = (self._count, place) if isinstance(place, str) else (place, f"{self.counted} {place}")
        self._first.append((order, f"{name}: {what}"))
        self._count += 1

    def add_where(
        self, is_wrong: Bool[np.ndarray, " rows"], lines: Sequence[int], describe: Callable[[int], str]
    ) -> None:
        """Add a problem for each marked row; `describe` returns the problem of row i."""
        wrong = np.flatnonzero(is_wrong)
        self._first.extend(
            (lines[i], f"{self.counted} {lines[i]}: {describe(i)}")
            for i in wrong[: self._most_shown].tolist()
        )
        self._count += len(wrong)

    def raise_if_any(self) -> None:
        """Raise RowProblems with the first problems, if there are any."""
        if not self._count:
            return
        in_order = sorted(self._first, key=lambda problem: problem[0])[: self._most_shown]
        described = [text for _, text in in_order]
        num_more = self._count - len(described)
        more = f"; and {num_more} more like these" if num_more else ""
        raise RowProblems(
            f"{self._path}, {'; '.join(described)}{more}.",
            tuple(f"{self._path}, {problem}" for problem in described),
            num_more=num_more,
        )


@dataclass(frozen=True)
class Chunk:
    """Some consecutive rows of a table: their cells, and the line on which each row starts (from 1)."""

    rows: list[list[str]]
    lines: list[int]

    def column(self, position: int) -> list[str]:
        """Return the cells at one position."""
        return [row[position] for row in self.rows]

    def having(self, widths: set[int]) -> "Chunk":
        """Return only the rows with one of these numbers of cells."""
        if widths.issuperset(map(len, self.rows)):
            return self
        kept = [i for i, row in enumerate(self.rows) if len(row) in widths]
        return Chunk([self.rows[i] for i in kept], [self.lines[i] for i in kept])


@dataclass(frozen=True)
class NamedColumns:
    """Some columns of consecutive rows as text, and the line on which each row starts."""

    texts: dict[str, list[str]]
    lines: list[int]


def read_lines(path: Path) -> Iterator[str]:
    """Yield the lines of a text file with their line ends.

    Raises:
        AnnotationError: the file cannot be read or is not UTF-8.
    """
    line = 1
    try:
        with path.open("rb") as file:
            for block in iter(lambda: file.readlines(BLOCK_BYTES), []):
                text = _decoded(b"".join(block), path, line)
                yield from io.StringIO(text, newline="")
                line += len(block)
    except OSError as error:
        raise AnnotationError(f"{path}: must be a readable file; {_reason(error)}.") from None


def read_chunks(path: Path) -> Iterator[Chunk]:
    """Yield the rows of a comma-separated file, some thousand at a time; a file without rows is an error."""
    reader = csv.reader(read_lines(path))
    chunk, ended, is_empty = Chunk([], []), 0, True
    try:
        for row in reader:
            if len(row) > MOST_COLUMNS:
                raise AnnotationError(
                    f"{path}, line {ended + 1}: a row must have at most {MOST_COLUMNS} columns; got {len(row)}. Is it a "
                    "table?"
                )
            if row and (len(row) > 1 or row[0].strip()):
                chunk.rows.append(row)
                chunk.lines.append(ended + 1)
            ended = reader.line_num
            if len(chunk.rows) == ROWS_PER_CHUNK:
                yield chunk
                chunk, is_empty = Chunk([], []), False
    except csv.Error as error:
        raise AnnotationError(
            f"{path}, line {ended + 1}: must be comma-separated text; {error}. Is a quotation mark left open?"
        ) from None
    if chunk.rows:
        yield chunk
    elif is_empty:
        raise AnnotationError(f"{path}, line 1: must hold at least one row; the file is empty.")


def read_named_columns(
    path: Path,
    required: Sequence[str],
    problems: Problems,
    *,
    optional: Sequence[str] = (),
    may_be_empty: bool = False,
) -> Iterator[NamedColumns]:
    """Yield the given columns of a comma-separated file with a header, some thousand rows at a time.

    Optional columns that the header does not name are left out. A header without rows is an error, unless the table may
    be empty.
    """
    chunks = read_chunks(path)
    first = next(chunks)
    header = [name.strip() for name in first.rows[0]]
    positions = _positions(header, required, optional, f"{path}, line {first.lines[0]}")
    below = Chunk(first.rows[1:], first.lines[1:])
    second = below if below.rows else next(chunks, None)
    if second is None and may_be_empty:
        yield NamedColumns({name: [] for name in positions}, [])
        return
    if second is None:
        raise AnnotationError(
            f"{path}, line {first.lines[0] + 1}: must hold rows below the header; there are none."
        )
    for chunk in chain([second], chunks):
        rows = with_width(chunk, {len(header)}, problems)
        columns = list(zip(*rows.rows, strict=True)) or [()] * len(header)
        yield NamedColumns({name: list(columns[at]) for name, at in positions.items()}, rows.lines)


def with_width(chunk: Chunk, widths: set[int], problems: Problems) -> Chunk:
    """Return the rows with an allowed number of columns; the others are problems."""
    kept = chunk.having(widths)
    if kept is not chunk:
        allowed = " or ".join(map(str, sorted(widths)))
        problems.add_where(
            np.array([len(row) not in widths for row in chunk.rows]),
            chunk.lines,
            lambda i: f"a row must have {allowed} columns; got {len(chunk.rows[i])}",
        )
    return kept


def numbers(texts: list[str]) -> Float[np.ndarray, " rows"]:
    """Convert texts to numbers; NaN if a text is not a number."""
    return _converted(texts, float, np.nan)


def finite_numbers(
    texts: list[str], name: str, lines: list[int], problems: Problems
) -> Float[np.ndarray, " rows"]:
    """Convert a column to numbers; a cell that is not a finite number is a problem."""
    values = numbers(texts)
    problems.add_where(
        ~np.isfinite(values), lines, lambda i: f"{name} must be a finite number; got {shown(texts[i])}"
    )
    return values


def whole_numbers(
    texts: list[str], name: str, lines: list[int], problems: Problems
) -> Int[np.ndarray, " rows"]:
    """Convert a column to whole numbers from 0; any other cell is a problem and becomes −1."""
    values = _converted(texts, int, -1)
    problems.add_where(values < 0, lines, lambda i: f"{name} must be a whole number; got {shown(texts[i])}")
    return values


def times_s(texts: list[str], lines: list[int], problems: Problems) -> Float[np.ndarray, " rows"]:
    """Convert a column to times in seconds; a cell that is not a number from 0 is a problem."""
    values = numbers(texts)
    problems.add_where(
        ~(np.isfinite(values) & (values >= 0)),
        lines,
        lambda i: f"the time must be a number of seconds, 0 or later; got {shown(texts[i])}",
    )
    return values


def shown(text: str) -> str:
    """Return a text in quotes, shortened if it is long."""
    return repr(text if len(text) <= 40 else f"{text[:40]}…")


def numbered(texts: list[str], numbers: dict[str, int]) -> Int[np.ndarray, " rows"]:
    """Number the texts in order of first appearance; `numbers` keeps the numbers between calls."""
    return np.array([numbers.setdefault(text, len(numbers)) for text in texts], dtype=np.int64)


def read_names(path: Path, *, of: str) -> tuple[str, ...]:
    """Read the names in a text file, one per line.

    Raises:
        AnnotationError: the file is empty or repeats a name.
    """
    problems = Problems(path)
    names: dict[str, int] = {}
    for line, text in enumerate(read_lines(path), start=1):
        name = text.strip()
        if name and names.setdefault(name, line) != line:
            problems.add(line, f"a name must appear once; {shown(name)} is in line {names[name]} already")
    problems.raise_if_any()
    if not names:
        raise AnnotationError(f"{path}, line 1: must name {of}, one per line; the file is empty.")
    return tuple(names)


def read_pairs(path: Path, key: str, value: str) -> dict[str, str]:
    """Read two columns of a CSV file as a mapping; a key may be repeated with the same value.

    Raises:
        AnnotationError: a cell is empty, or a key has two values.
    """
    problems = Problems(path)
    pairs: dict[str, str] = {}
    for columns in read_named_columns(path, (key, value), problems):
        for name, word, line in zip(columns.texts[key], columns.texts[value], columns.lines, strict=True):
            if not name.strip() or not word.strip():
                problems.add(line, f"{key} and {value} must not be empty")
                continue
            known = pairs.setdefault(name.strip(), word.strip())
            if known != word.strip():
                problems.add(
                    line, f"{shown(name)} must have one {value}; got {shown(known)} and {shown(word)}"
                )
    problems.raise_if_any()
    return pairs


def write_csv(path: Path, header: Iterable[str], rows: Iterable[Iterable[object]]) -> Path:
    """Write a comma-separated file with a header.

    Raises:
        FileError: the file cannot be written.
    """

    def write(growing: Path) -> None:
        with growing.open("w", encoding="utf-8", newline="") as file:
            writer = csv.writer(file, lineterminator="\n")
            writer.writerow(header)
            writer.writerows(rows)

    return write_file(path, write)


def read_json(path: Path) -> Json:
    """Read a JSON file; NaN and infinite numbers are refused.

    Raises:
        AnnotationError: the file cannot be read or is not JSON.
    """
    try:
        return json_of("".join(read_lines(path)))
    except DocumentError as error:
        kind = "JSON" if error.place else "readable JSON"
        raise AnnotationError(
            f"{path}{error.place}: must be {kind}; {error}. Is the file complete?"
        ) from None


def is_number(value: Json) -> TypeGuard[float]:
    """Whether a JSON value is a finite number that a float can hold; true and false are not."""
    if isinstance(value, float):
        return math.isfinite(value)
    return type(value) is int and abs(value) < 2**53


def _positions(
    header: list[str], required: Sequence[str], optional: Sequence[str], place: str
) -> dict[str, int]:
    wanted = [*required, *(name for name in optional if name in header)]
    if any(header.count(name) != 1 for name in wanted):
        raise AnnotationError(
            f"{place}: the header must name the columns {' and '.join(map(repr, required))} once each; "
            f"got {shown(', '.join(header))}."
        )
    return {name: header.index(name) for name in wanted}


def _converted(texts: list[str], convert: type[float] | type[int], otherwise: float | int) -> np.ndarray:
    dtype = np.float64 if convert is float else np.int64
    try:
        return np.array([convert(text) for text in texts], dtype=dtype)
    except (ValueError, OverflowError):
        return np.array([_or_else(text, convert, otherwise) for text in texts], dtype=dtype)


def _or_else(text: str, convert: type[float] | type[int], otherwise: float | int) -> float | int:
    if not text:  # fast path: empty cells are common, and exceptions are slow
        return otherwise
    try:
        value = convert(text)
    except ValueError:
        return otherwise
    return otherwise if isinstance(value, int) and not -(2**63) <= value < 2**63 else value


def _decoded(block: bytes, path: Path, line: int) -> str:
    try:
        text = block.decode("utf-8")
    except UnicodeDecodeError as error:
        at = line + block.count(b"\n", 0, error.start)
        raise AnnotationError(
            f"{path}, line {at}: must be UTF-8 text; got the byte 0x{block[error.start]:02x}. Save the file as UTF-8."
        ) from None
    if "\0" in text:
        at = line + text.count("\n", 0, text.index("\0"))
        raise AnnotationError(
            f"{path}, line {at}: must be text without the character NUL; it has one. Save it anew."
        )
    return text.removeprefix("\ufeff") if line == 1 else text


def _reason(error: OSError) -> str:
    if isinstance(error, FileNotFoundError):
        return "there is no such file"
    if isinstance(error, IsADirectoryError):
        return "it is a directory"
    return os_reason(error)
