"""`moments.jsonl`: a header, then one line of JSON per key time, on disk before the next begins.

A kill loses at most the line being written. A last line without its end was cut off; readers leave it out and report its
number, and resuming removes it.
"""

import json
import os
from collections.abc import Generator, Iterable, Iterator
from pathlib import Path
from typing import IO, TypeVar

from pydantic import ValidationError

from mule.core.errors import AnnotationError, FileError, MuleError, RangeError
from mule.core.files import os_reason, write_file
from mule.core.text_rows import shown
from mule.watching.moments import MOMENTS_FORMAT, VERSION, Header, Moment, Record, problems_of

MOMENTS = "moments.jsonl"
"""The name of the file in the folder of a result."""

AnyRecord = TypeVar("AnyRecord", bound=Record)

_MOST_PROBLEMS = 5
_MOST_LETTERS = 300


class MomentsFile:
    """A file of moments. Iterate over it as often as you like; one moment is in memory at a time."""

    def __init__(self, path: Path) -> None:
        """Read the header."""
        self.path = path
        self.cut_line: int | None = None
        """The number of a last line that was cut off; known once the moments have been read."""
        lines = _whole_lines(self)
        _, first = next(lines, (1, None))
        lines.close()
        if first is None:
            raise AnnotationError(
                f"{path}, line 1: must be the header of a file of moments; the file is empty."
            )
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
                raise AnnotationError(f"{self.path}, line {number}: {_joined(problems)}.")
            latest_s = moment.key_time_s
            yield moment


class MomentsWriter:
    """Writes moments to a file; each is on disk when `write` returns."""

    def __init__(self, file: IO[bytes], header: Header, latest_s: float | None = None) -> None:
        """Continue at the end of the file; see `create_moments` and `resume_moments`."""
        self._file = file
        self._header = header
        self.latest_s = latest_s
        """The last key time in the file; None if there is none yet."""

    def __enter__(self) -> "MomentsWriter":
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()

    def write(self, moment: Moment) -> None:
        """Add one moment."""
        problems = problems_of(moment, self._header)
        if self.latest_s is not None and moment.key_time_s <= self.latest_s:
            problems.append(f"key times must rise; {moment.key_time_s:g} s follows {self.latest_s:g} s")
        if problems:
            raise RangeError(f"the moment at {moment.key_time_s:g} s: {_joined(problems)}.")
        try:
            _append(self._file, moment)
        except OSError as error:
            raise _unwritable(Path(self._file.name), error) from None
        self.latest_s = moment.key_time_s


def create_moments(path: Path, header: Header) -> MomentsWriter:
    """Create a file with the header."""
    try:
        file = path.open("xb")
    except FileExistsError:
        raise MuleError(
            f"{path}: must not exist yet; it does. Resume it, or choose another folder for the result."
        ) from None
    except OSError as error:
        raise _unwritable(path, error) from None
    try:
        _append(file, header)
    except OSError as error:
        file.close()
        path.unlink(missing_ok=True)
        raise _unwritable(path, error) from None
    return MomentsWriter(file, header)


def resume_moments(path: Path, header: Header) -> MomentsWriter:
    """Open the file after its last whole line, and remove what was cut off there; create it if it is missing."""
    end = _end_of_whole_lines(path)
    if not end:
        path.unlink(missing_ok=True)
        return create_moments(path, header)
    earlier = MomentsFile(path)
    differing = [
        name for name in Header.model_fields if getattr(earlier.header, name) != getattr(header, name)
    ]
    if differing:
        raise AnnotationError(
            f"{path}: a result must be resumed with the settings it began with; {', '.join(differing)} differ. Use the "
            "same settings, or choose another folder."
        )
    latest_s = None
    for moment in earlier:
        latest_s = moment.key_time_s
    try:
        file = path.open("r+b")
        file.truncate(end)
        file.seek(end)
    except OSError as error:
        raise _unwritable(path, error) from None
    return MomentsWriter(file, header, latest_s)


def replace_moments(path: Path, header: Header, moments: Iterable[Moment]) -> None:
    """Write a whole file of moments in place of an earlier one, which stays until the new one is complete."""
    lines = [header.model_dump_json(), *(moment.model_dump_json() for moment in moments)]
    write_file(path, "".join(f"{line}\n" for line in lines))


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
        raise AnnotationError(f"{file.path}: cannot be read: {os_reason(error)}.") from None


def _end_of_whole_lines(path: Path) -> int:
    """How many bytes of the file are whole lines; 0 if there is no file."""
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
        header = json.loads(text)
        kind, version = header["format"], header["version"]
    except (ValueError, RecursionError, LookupError, TypeError):
        kind, version = None, None
    if kind != MOMENTS_FORMAT:
        raise AnnotationError(
            f"{path}, line 1: must be the header of a file of moments ('format': '{MOMENTS_FORMAT}'); got "
            f"{shown(text.decode(errors='replace').strip())}."
        )
    if version != VERSION:
        raise AnnotationError(
            f"{path}, line 1: must be version {VERSION}; got version {shown(str(version))}. Read it with the release that wrote "
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
        raise AnnotationError(f"{path}, line {line}: {_joined(problems)}.") from None


def _joined(problems: list[str]) -> str:
    more = len(problems) - _MOST_PROBLEMS
    shortened = [each if len(each) <= _MOST_LETTERS else f"{each[:_MOST_LETTERS]}…" for each in problems]
    return "; ".join(shortened[:_MOST_PROBLEMS]) + (f"; and {more} more like these" if more > 0 else "")


def _unwritable(path: Path, error: OSError) -> FileError:
    return FileError(f"{path}: cannot be written: {os_reason(error)}. Moments before this one are safe.")
