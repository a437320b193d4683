"""`moments.jsonl`: a header, then one line of JSON per key time, on the disk before the next is begun.

A kill loses at most the line under way. A last line without its end was cut off; readers leave it out and say so,
and whoever resumes cuts it away.
"""

import json
import os
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import IO, TypeVar

from pydantic import ValidationError

from mule.core.errors import AnnotationError, MuleError, RangeError
from mule.core.text_rows import shown
from mule.watching.moments import FORMAT, VERSION, Header, Moment, Record, problems_of

AnyRecord = TypeVar("AnyRecord", bound=Record)

_MOST_PROBLEMS = 5


class MomentsFile:
    """A file of moments, open for reading as often as wanted, one moment in memory at a time."""

    def __init__(self, path: Path) -> None:
        """Reads the header.

        Raises:
            AnnotationError: there is no such file, or it is none of moments, or of another version.
        """
        self.path = path
        self.cut_line: int | None = None
        """The number of a last line that was cut off and left out; known once the moments have been read."""
        lines = _whole_lines(self)
        _, first = next(lines, (1, None))
        lines.close()
        if first is None:
            raise AnnotationError(f"{path}, line 1: must be the header of a file of moments; there is none.")
        self.header = _header(path, first)

    def __iter__(self) -> Iterator[Moment]:
        lines = _whole_lines(self)
        next(lines)
        latest_s = -1.0
        for number, text in lines:
            moment = _parsed(Moment, self.path, number, text)
            problems = problems_of(moment, self.header)
            if moment.key_time_s <= latest_s:
                problems.append(f"key times must rise; {moment.key_time_s:g} s follows {latest_s:g} s")
            if problems:
                raise AnnotationError(f"{self.path}, line {number}: {_told(problems)}.")
            latest_s = moment.key_time_s
            yield moment


class MomentsWriter:
    """Moments on their way to a file, each on the disk when `write` returns."""

    def __init__(self, file: IO[bytes], header: Header, latest_s: float | None = None) -> None:
        """Goes on where the file ends; see `create_moments` and `resume_moments`."""
        self._file = file
        self._header = header
        self.latest_s = latest_s
        """The last key time in the file; None while there is none."""

    def __enter__(self) -> "MomentsWriter":
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()

    def write(self, moment: Moment) -> None:
        """Adds one moment.

        Raises:
            RangeError: it disagrees with the header, or does not come after the one before.
        """
        problems = problems_of(moment, self._header)
        if self.latest_s is not None and moment.key_time_s <= self.latest_s:
            problems.append(f"key times must rise; {moment.key_time_s:g} s follows {self.latest_s:g} s")
        if problems:
            raise RangeError(f"the moment at {moment.key_time_s:g} s: {_told(problems)}.")
        _append(self._file, moment)
        self.latest_s = moment.key_time_s


def create_moments(path: Path, header: Header) -> MomentsWriter:
    """A new file that holds the header.

    Raises:
        MuleError: there is a file already, or none can be written there.
    """
    try:
        file = path.open("xb")
        _append(file, header)
    except FileExistsError:
        raise MuleError(
            f"{path}: must not exist yet; it does. Resume it, or choose another folder for the result."
        ) from None
    except OSError as error:
        raise _unwritable(path, error) from None
    return MomentsWriter(file, header)


def resume_moments(path: Path, header: Header) -> MomentsWriter:
    """The file, open behind its last whole line; what was cut off there is gone. Where there is none, a new one.

    Raises:
        AnnotationError: what is in the file cannot be read, or was watched otherwise than the header says.
        MuleError: it cannot be written.
    """
    end = _end_of_whole_lines(path)
    if not end:
        path.unlink(missing_ok=True)
        return create_moments(path, header)
    there = MomentsFile(path)
    differing = [name for name in Header.model_fields if getattr(there.header, name) != getattr(header, name)]
    if differing:
        raise AnnotationError(
            f"{path}: must have been watched as it is to be resumed; {', '.join(differing)} differ. Choose another "
            "folder for the result."
        )
    latest_s = None
    for moment in there:
        latest_s = moment.key_time_s
    try:
        file = path.open("r+b")
        file.truncate(end)
        file.seek(end)
    except OSError as error:
        raise _unwritable(path, error) from None
    return MomentsWriter(file, header, latest_s)


def _append(file: IO[bytes], record: Record) -> None:
    file.write(record.model_dump_json().encode() + b"\n")
    file.flush()
    os.fsync(file.fileno())


def _whole_lines(file: MomentsFile) -> Generator[tuple[int, bytes], None, None]:
    file.cut_line = None
    try:
        with file.path.open("rb") as lines:
            for number, line in enumerate(lines, start=1):
                if not line.endswith(b"\n"):
                    file.cut_line = number
                    return
                yield number, line
    except OSError as error:
        reason = (error.strerror or str(error)).lower()
        raise AnnotationError(f"{file.path}: must be a file that can be read; {reason}.") from None


def _end_of_whole_lines(path: Path) -> int:
    """How many bytes of the file are whole lines; 0 where there is no file."""
    end = 0
    try:
        with path.open("rb") as lines:
            for line in lines:
                end += len(line) if line.endswith(b"\n") else 0
    except FileNotFoundError:
        return 0
    except OSError as error:
        raise _unwritable(path, error) from None
    return end


def _header(path: Path, text: bytes) -> Header:
    try:
        found = json.loads(text)
        kind, version = found["format"], found["version"]
    except (ValueError, RecursionError, LookupError, TypeError):
        kind, version = None, None
    if kind != FORMAT:
        raise AnnotationError(
            f"{path}, line 1: must be the header of a file of moments ('format': '{FORMAT}'); got "
            f"{shown(text.decode(errors='replace').strip())}."
        )
    if version != VERSION:
        raise AnnotationError(
            f"{path}, line 1: must be version {VERSION}; got version {version!r}. Read it with the release that wrote "
            "it, or watch again."
        )
    return _parsed(Header, path, 1, text)


def _parsed(kind: type[AnyRecord], path: Path, line: int, text: bytes) -> AnyRecord:
    try:
        return kind.model_validate_json(text)
    except ValidationError as error:
        problems = [
            f"{'.'.join(map(str, each['loc'])) or 'the line'}: {each['msg'].removesuffix('.')}"
            for each in error.errors(include_url=False)
        ]
        raise AnnotationError(f"{path}, line {line}: {_told(problems)}.") from None


def _told(problems: list[str]) -> str:
    more = len(problems) - _MOST_PROBLEMS
    return "; ".join(problems[:_MOST_PROBLEMS]) + (f"; and {more} more like these" if more > 0 else "")


def _unwritable(path: Path, error: OSError) -> MuleError:
    return MuleError(f"{path}: moments cannot be written; {(error.strerror or str(error)).lower()}.")
