"""How commands end: exit codes, sentences on stderr, crash reports, and what became of each item of many.

    2     wrong input, or a file, folder or disk that cannot be used: one sentence
    70    a fault of MULE: one sentence, which names the crash report
    130   Ctrl-C or SIGTERM

A crash report holds versions, the command and the traceback, without secrets and without the path of the user's home.
"""

import errno
import os
import platform
import sys
import traceback
from collections import Counter
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from importlib.metadata import distributions
from pathlib import Path
from typing import Literal, NoReturn

import typer

from mule.core.errors import MuleError, VideoError
from mule.core.files import cache_folder, os_reason, write_file
from mule.core.printable import printable, printable_address, without_secrets

WRONG_INPUT, CRASHED, STOPPED = 2, 70, 130
CRASHES = "crashes"
"""The folder of crash reports, in the cache folder."""
MOST_REPORTS = 20
"""Older crash reports are removed."""
_LONGEST_REASON = 300


def told(error: BaseException, *, shows_traceback: bool = False) -> int | None:
    """Say on stderr why a command ends, and return its exit code; None if the error is typer's, who tells it itself.

    Args:
        error: what ended the command.
        shows_traceback: whether to show the traceback of an error that is not about the input.
    """
    if isinstance(error, SystemExit | GeneratorExit | typer.Abort) or hasattr(error, "exit_code"):
        return None
    if isinstance(error, KeyboardInterrupt):
        typer.echo(f"mule: {str(error) or 'stopped'}", err=True)
        return STOPPED
    if isinstance(error, MuleError):
        typer.echo(f"mule: {error}", err=True)
        return WRONG_INPUT
    if isinstance(error, OSError) and error.errno == errno.EPIPE:
        return None  # nobody reads any more; typer ends quietly
    if shows_traceback:
        typer.echo(without_secrets(_traceback(error), sys.argv), err=True, nl=False)
    if isinstance(error, OSError):
        typer.echo(f"mule: {_os_sentence(error)}", err=True)
        return WRONG_INPUT
    typer.echo(f"mule: {crash_sentence(error)}", err=True)
    return CRASHED


def _os_sentence(error: OSError) -> str:
    """The system's own words, with the file they are about."""
    place = "" if error.filename is None else f"{printable_address(str(error.filename))}: "
    return without_secrets(
        f"{place}this file, folder or device must be usable; {os_reason(error)}. What was finished before is kept.",
        sys.argv,
    )


def crash_sentence(error: BaseException) -> str:
    """Save a crash report, and return a sentence that names it."""
    what = "".join(traceback.format_exception_only(error)).strip().partition("\n")[0]
    what = printable(without_secrets(what, sys.argv))[:_LONGEST_REASON]
    try:
        place = f"{save_crash_report(error)} has the details for a report"
    except OSError as problem:
        place = f"the details cannot be saved ({os_reason(problem)})"
    return f"a fault of MULE ended this ({what}); {place}, and `mule --traceback` shows them."


def save_crash_report(error: BaseException) -> Path:
    """Write versions, the command and the traceback into the cache folder, and return the file.

    Raises:
        FileError: the cache folder cannot be written.
    """
    folder = cache_folder() / CRASHES
    now = datetime.now(UTC)
    packages = sorted({f"{each.name} {each.version}" for each in distributions() if each.name})
    text = "\n".join(
        [
            f"time: {now.isoformat(timespec='seconds')}",
            f"python: {platform.python_version()} on {platform.platform()}",
            f"command: {' '.join([Path(sys.argv[0]).name, *sys.argv[1:]])}",
            "",
            _traceback(error),
            "packages:",
            *packages,
        ]
    )
    path = folder / f"{now:%Y%m%d-%H%M%S-%f}-{os.getpid()}.txt"
    write_file(path, without_home(without_secrets(text, sys.argv)) + "\n")
    for old in sorted(folder.glob("*.txt"))[:-MOST_REPORTS]:
        old.unlink(missing_ok=True)
    return path


def without_home(text: str) -> str:
    """Return a text in which ~ stands for the user's home, as typed and as the system resolves it."""
    try:
        home = Path.home()
    except RuntimeError:  # nobody knows it
        return text
    for place in sorted({str(home), str(home.resolve())}, key=len, reverse=True):
        if len(Path(place).parts) > 1:  # a home of / is part of every path
            text = text.replace(place, "~")
    return text


def _traceback(error: BaseException) -> str:
    return "".join(traceback.format_exception(error))


Status = Literal["done", "no person", "damaged", "failed", "interrupted"]


class Items:
    """What becomes of each item of a command that takes many: one that fails never stops the others.

    >>> items = Items(["a.mp4", "b.mp4"])
    >>> for name in ("a.mp4", "b.mp4"):
    ...     with items.of(name):
    ...         if name == "a.mp4":
    ...             raise VideoError("a.mp4: no video")
    >>> items.statuses
    {'a.mp4': 'damaged', 'b.mp4': 'done'}
    """

    def __init__(self, names: Sequence[str]) -> None:
        self._names = list(names)
        self.statuses: dict[str, Status] = {}
        self._reasons: dict[str, str] = {}
        self._code = 0

    @contextmanager
    def of(self, name: str) -> Generator[None]:
        """Do one item. Its errors end here, except Ctrl-C; they count when the command ends."""
        try:
            yield
        except KeyboardInterrupt as stop:
            self.note(name, "interrupted", str(stop))
            raise
        except (MuleError, OSError) as error:
            is_damaged = isinstance(error, VideoError)
            reason = str(error) if isinstance(error, MuleError) else _os_sentence(error)
            self.note(name, "damaged" if is_damaged else "failed", reason)
        except Exception as error:  # the other items do not depend on it
            self.note(name, "failed", crash_sentence(error))
            self._code = CRASHED
        else:
            self.statuses.setdefault(name, "done")

    def note(self, name: str, status: Status, reason: str = "") -> None:
        """Give an item its status; only "done" and "no person" are no failure."""
        self.statuses[name] = status
        if reason:
            self._reasons[name] = reason
        if status == "interrupted":
            self._code = STOPPED
        elif status not in ("done", "no person"):
            self._code = self._code or WRONG_INPUT

    def end(self) -> None:
        """Print why items failed and how many have which status, and end with the exit code if it is not 0."""
        for reason in self._reasons.values():
            typer.echo(f"mule: {reason}", err=True)
        if len(self._names) > 1:
            typer.echo(f"mule: {self.summary()}", err=True)
        if self._code:
            raise typer.Exit(self._code)

    def summary(self) -> str:
        """Return the number of items with each status, with the names of those that are not done.

        >>> items = Items(["a.mp4", "b.mp4", "c.mp4"])
        >>> items.note("a.mp4", "done"), items.note("b.mp4", "damaged")
        (None, None)
        >>> items.summary()
        '3 items: 1 done; 1 damaged (b.mp4); 1 not begun (c.mp4)'
        """
        statuses = {name: self.statuses.get(name, "not begun") for name in self._names}
        counts = Counter(statuses.values())
        parts = [f"{counts['done']} done"] if counts["done"] else []
        for status in ("no person", "damaged", "failed", "interrupted", "not begun"):
            names = [printable_address(name) for name, own in statuses.items() if own == status]
            if names:
                more = f" and {len(names) - MOST_NAMED} more" if len(names) > MOST_NAMED else ""
                parts.append(f"{len(names)} {status} ({', '.join(names[:MOST_NAMED])}{more})")
        return f"{len(statuses)} items: {'; '.join(parts)}"


MOST_NAMED = 5


def leave(code: int) -> NoReturn:
    """End the process at once, after what was printed is out.

    An interrupted command can leave threads behind: a read from a network may hang, and a decoder or network finishes what
    it has begun. Neither is waited for, and the interpreter is not taken down under them.
    """
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except (OSError, ValueError):
            continue
    os._exit(code)
