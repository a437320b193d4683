"""`review.jsonl`: one line for each thing that a reviewer did, and what they add up to.

    line 1    a header: format, version, the network
    then      an entry: number, who, when, and an act

Nothing is ever changed or removed: who undoes an entry adds one that says so. Each entry is on disk before `add` returns. A kill
leaves at most a part of a line behind, which readers leave out and the next entry removes. Several people may add to one log:
`entries_after` tells what others did since.
"""

import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Literal

from pydantic import AwareDatetime, Field, ValidationError

from mule.core.errors import AnnotationError, FileError, RangeError
from mule.core.files import os_reason
from mule.core.locks import only_writer
from mule.core.settings import Count
from mule.watching.discovering.groups import FoundGroups, NovelAct
from mule.watching.moments import Amount, Name, Record
from mule.watching.outputs.moments_file import AnyRecord

LOG_FORMAT, LOG_VERSION = "mule.review", 1


class WatchedAct(Record):
    """A novel act, by where it begins; groups may be made anew, and it stays the same."""

    watched: str
    track_id: Annotated[int, Field(ge=0)]
    begin_s: Amount
    end_s: Amount

    @classmethod
    def of(cls, act: NovelAct) -> "WatchedAct":
        """Return the member that an act of a group is."""
        return cls(watched=act.watched, track_id=act.track_id, begin_s=act.begin_s, end_s=act.end_s)

    def __hash__(self) -> int:
        """Return a number by which members are found."""
        return hash((self.watched, self.track_id, self.begin_s, self.end_s))


Members = Annotated[tuple[WatchedAct, ...], Field(min_length=1)]
Mark = Literal["idle", "nobody", "ignore"]


class Named(Record):
    """These acts are this action, new or known; what was said of them before no longer counts."""

    kind: Literal["named"] = "named"
    members: Members
    action: Name


class Marked(Record):
    """These acts show somebody idle, nobody at all, or nothing that matters."""

    kind: Literal["marked"] = "marked"
    members: Members
    mark: Mark


class Cleared(Record):
    """These acts have no name and no mark any longer."""

    kind: Literal["cleared"] = "cleared"
    members: Members


class Undone(Record):
    """An earlier entry does not count; undone in turn, it counts again."""

    kind: Literal["undone"] = "undone"
    number: Count


ReviewAct = Annotated[Named | Marked | Cleared | Undone, Field(discriminator="kind")]


class Entry(Record):
    """One line of the log."""

    number: Count
    who: Name
    at: AwareDatetime
    act: ReviewAct


class LogHeader(Record):
    """The first line."""

    format: Literal["mule.review"] = LOG_FORMAT
    version: Literal[1] = LOG_VERSION
    fingerprint: Name
    """Of the network whose groups are reviewed."""


@dataclass(frozen=True)
class Review:
    """What all entries add up to."""

    actions: dict[WatchedAct, str] = field(default_factory=dict)
    """The action of each act that has one."""
    marks: dict[WatchedAct, Mark] = field(default_factory=dict)

    def named(self) -> dict[str, list[WatchedAct]]:
        """Return the acts of each action, in the order in which actions were named first."""
        found: dict[str, list[WatchedAct]] = {}
        for member, action in self.actions.items():
            found.setdefault(action, []).append(member)
        return found

    def marked(self, mark: Mark) -> list[WatchedAct]:
        """Return the acts with a mark."""
        return [member for member, each in self.marks.items() if each == mark]


class ReviewLog:
    """A log in a file, which may not exist yet."""

    def __init__(self, path: Path, *, fingerprint: str) -> None:
        """Check that the log belongs to the network.

        Raises:
            AnnotationError: it is no log, or belongs to another network.
        """
        self.path = path
        self._header = LogHeader(fingerprint=fingerprint)
        self.entries()

    def entries(self) -> list[Entry]:
        """Return all whole entries.

        Raises:
            AnnotationError: a line is damaged, or entries are not numbered one after another.
        """
        lines = self._lines()
        if not lines:
            return []
        header = self._parsed(LogHeader, 1, lines[0])
        if header != self._header:
            raise AnnotationError(
                f"{self.path}: must belong to the network {self._header.fingerprint}; it belongs to {header.fingerprint}. Review "
                "with the model that watched, or begin another log."
            )
        entries: list[Entry] = []
        for number, line in enumerate(lines[1:], start=2):
            entry = self._parsed(Entry, number, line)
            if entry.number != number - 1:
                raise AnnotationError(
                    f"{self.path}, line {number}: must be entry {number - 1}; it is entry {entry.number}. A line was removed or "
                    "moved; restore the file."
                )
            entries.append(entry)
        return entries

    def entries_after(self, number: int) -> list[Entry]:
        """Return what was added after an entry; 0 returns all."""
        return self.entries()[number:]

    def add(self, act: ReviewAct, *, who: str, at: datetime | None = None) -> Entry:
        """Add an entry; it is on disk when this returns.

        Raises:
            RangeError: it undoes an entry that does not exist.
            FileError: the file cannot be written.
        """
        try:
            with only_writer(self.path.parent):
                entries = self.entries()
                if isinstance(act, Undone) and act.number > len(entries):
                    raise RangeError(
                        f"{self.path}: only entries 1 to {len(entries)} can be undone; got {act.number}."
                    )
                entry = Entry(number=len(entries) + 1, who=who, at=at or datetime.now(UTC), act=act)
                self._append(entry)
        except OSError as error:
            raise FileError(f"{self.path}: cannot be written: {os_reason(error)}.") from None
        return entry

    def review(self) -> Review:
        """Return what the entries add up to."""
        return replayed(self.entries())

    def _append(self, entry: Entry) -> None:
        whole = sum(map(len, self._lines()))
        with self.path.open("r+b" if self.path.exists() else "w+b") as file:
            file.truncate(whole)
            file.seek(whole)
            if not whole:
                file.write(self._header.model_dump_json().encode() + b"\n")
            file.write(entry.model_dump_json().encode() + b"\n")
            file.flush()
            os.fsync(file.fileno())

    def _lines(self) -> list[bytes]:
        try:
            lines = self.path.read_bytes().splitlines(keepends=True)
        except FileNotFoundError:
            return []
        except OSError as error:
            raise AnnotationError(f"{self.path}: cannot be read: {os_reason(error)}.") from None
        return [line for line in lines if line.endswith(b"\n")]

    def _parsed(self, kind: type[AnyRecord], number: int, line: bytes) -> AnyRecord:
        try:
            return kind.model_validate_json(line)
        except ValidationError as error:
            first = error.errors(include_url=False)[0]
            place = ".".join(map(str, first["loc"])) or "the line"
            raise AnnotationError(
                f"{self.path}, line {number}: {place}: {first['msg'].removesuffix('.')}. Restore the line."
            ) from None


def replayed(entries: Sequence[Entry]) -> Review:
    """Return what entries add up to: the last thing said of an act counts, except what was undone."""
    undone: set[int] = set()
    for entry in reversed(entries):
        if isinstance(entry.act, Undone) and entry.number not in undone:
            undone.add(entry.act.number)
    review = Review()
    for entry in entries:
        if entry.number in undone or isinstance(entry.act, Undone):
            continue
        for member in entry.act.members:
            review.actions.pop(member, None)
            review.marks.pop(member, None)
            if isinstance(entry.act, Named):
                review.actions[member] = entry.act.action
            elif isinstance(entry.act, Marked):
                review.marks[member] = entry.act.mark
    return review


def members_of(groups: FoundGroups, number: int) -> tuple[WatchedAct, ...]:
    """Return the members of a group by its number.

    Raises:
        RangeError: there is no such group.
    """
    if not 1 <= number <= len(groups.groups):
        raise RangeError(f"a group must be one of 1 to {len(groups.groups)}; got {number}.")
    return tuple(map(WatchedAct.of, groups.groups[number - 1].members))
