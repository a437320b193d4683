"""Everything that MULE reads, each with a good file and the call that reads it.

A hostile file takes the place of the good one. The law: the call returns, or raises one MuleError whose message names the
file. It raises nothing else, is done in seconds, runs no code of the file, and leaves the folder as it was.
"""

import resource
import shutil
import signal
import time
from collections.abc import Callable, Generator, Iterable, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import FrameType

from mule.core.errors import MuleError
from tests.hostile.mutations import Mutate

SECONDS, MEGABYTES = 10.0, 700
"""What one file may cost."""
CANARY = "code was run"
"""A file that hostile pickles try to make."""


@dataclass(frozen=True)
class Reader:
    """One kind of file."""

    name: str
    kind: str
    """The row of the table in docs/RELIABILITY.md."""
    file: str
    """The file to replace, within the folder that `prepare` fills."""
    prepare: Callable[[Path], object]
    read: Callable[[Path], object]
    mutate: Mutate
    cases: int = 20
    sign: Callable[[Path], object] = lambda _: None
    """Renews the checksums that vouch for the file, so that readers look behind them."""
    names: tuple[str, ...] = ()
    """Files that a message may name instead."""
    repairs: bool = False
    """Whether the reader cuts a last line that was not written to its end."""


class _OutOfTime(BaseException):
    pass


def broken_law(reader: Reader, folder: Path, content: bytes) -> str | None:
    """Read hostile content in place of the good file; return which part of the law is broken, or None."""
    file = folder / reader.file
    good, began = file.read_bytes(), time.monotonic()
    peak_mb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
    file.write_bytes(content)
    try:
        reader.sign(folder)
        before = _listing(folder)
        problem = _problem(reader, folder)
        after = _listing(folder)
        changed = [name for name in {**before, **after} if before.get(name) != after.get(name)]
        if problem is None and changed and not (reader.repairs and changed == [reader.file]):
            problem = f"changed {', '.join(changed)}"
    finally:
        file.write_bytes(good)
        reader.sign(folder)
    grown_mb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024 - peak_mb
    if problem is None and grown_mb > MEGABYTES:
        problem = f"took {grown_mb} MB"
    if problem is None and (took_s := time.monotonic() - began) > SECONDS:
        problem = f"took {took_s:.0f} s"
    if (folder / CANARY).exists():
        problem = "ran code of the file"
    return problem


def _problem(reader: Reader, folder: Path) -> str | None:
    try:
        with _time_limit():
            reader.read(folder)
    except MuleError as error:
        named = (Path(reader.file).name, *reader.names)
        if not any(name in str(error) for name in named):
            return f"a message names no file: {str(error)[:300]}"
        if len(str(error)) > 4000:
            return f"a message of {len(str(error))} letters"
    except _OutOfTime:
        return f"took more than {SECONDS:g} s"
    except BaseException as error:
        return f"{type(error).__name__}: {str(error)[:300]}"
    return None


@contextmanager
def _time_limit() -> Generator[None]:
    def stop(_signal: int, _frame: FrameType | None) -> None:
        raise _OutOfTime

    earlier = signal.signal(signal.SIGALRM, stop)
    signal.setitimer(signal.ITIMER_REAL, 2 * SECONDS)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, earlier)


def _listing(folder: Path) -> Mapping[str, bytes]:
    return {
        str(path.relative_to(folder)): path.read_bytes() if path.stat().st_size < 100_000 else b"large"
        for path in folder.rglob("*")
        if path.is_file()
    }


def copied(source: Path, names: Iterable[str]) -> Callable[[Path], None]:
    """Return a function that copies files into a folder."""

    def prepare(folder: Path) -> None:
        for name in names:
            shutil.copyfile(source / name, folder / name)

    return prepare
