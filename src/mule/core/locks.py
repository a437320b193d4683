"""One writer per folder: a lock that the system releases when its holder ends, however it ends.

    FOLDER/.mule.lock   locked by the writer; says which process it is, on which host, and since when

The lock is on an open file (`flock`, or `msvcrt` on Windows), so a kill releases it and no lock has to be broken by hand. The
file disappears with the lock; after a kill it stays behind, and the next writer takes it over. Forked processes do not hold the
lock of their parent. Disks that know no locks are written without one, and a note says so.
"""

import errno
import json
import os
import platform
import shutil
import sys
import time
from collections.abc import Generator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path
from weakref import WeakSet

from mule.core.errors import FileError, MuleError
from mule.core.files import os_reason

LOCK = ".mule.lock"
WAIT_S = 1.0
"""How long to wait for a writer that is just ending."""
_LOOK_EVERY_S = 0.05
_UNLOCKABLE = {errno.ENOSYS, errno.EOPNOTSUPP, errno.ENOLCK, errno.EINVAL}
_FAR = 1 << 30
"""Windows locks bytes instead of files; this one is behind the text, which others may then read."""


class FolderInUseError(MuleError, OSError):
    """Another process writes into a folder; the message says which and since when."""


class _Held:
    """An open and locked file."""

    def __init__(self, file: int) -> None:
        self.file = file

    def close(self) -> None:
        """Close the file, which releases the lock unless a fork still has it open."""
        file, self.file = self.file, -1
        if file >= 0:
            os.close(file)


_held: WeakSet[_Held] = WeakSet()


def _close_in_fork() -> None:
    for each in list(_held):
        each.close()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_close_in_fork)


@contextmanager
def only_writer(folder: Path, *, beside: bool = False) -> Generator[list[str]]:
    """Be the only process that writes into a folder, for the length of the context.

    The folder is made if it is missing, and removed again if it is still empty in the end.

    Args:
        folder: what is written.
        beside: keep the lock beside the folder, for one that appears only when it is complete.

    Yields:
        Sentences for people: that a killed writer was here, or that the disk has no locks.

    Raises:
        FolderInUseError: another process writes into it.
        FileError: the folder cannot be made or written.
    """
    path = folder.with_name(f".{folder.name}.lock") if beside else folder / LOCK
    made = _missing_folders(path.parent)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        held, notes = _taken(path, folder)
    except FolderInUseError:
        raise
    except OSError as error:
        raise FileError(f"{folder}: cannot be written: {os_reason(error)}. Choose another folder.") from error
    try:
        yield notes
    finally:
        _release(held, path)
        with suppress(OSError):  # something was written
            for each in made:
                each.rmdir()


@contextmanager
def new_folder(folder: Path) -> Generator[Path]:
    """Yield a hidden folder to write to; it gets its name at the end and is removed after an error.

    What a killed writer left half-written is removed first.

    Raises:
        FolderInUseError: another process writes a folder of this name.
        FileError: the folder exists, the disk is full, or the place is not writable.
    """
    parts = folder.with_name(f".{folder.name}.parts")
    with only_writer(folder, beside=True):
        try:
            if folder.exists():
                raise FileError(f"{folder}: must not exist yet; it does. Choose another name, or remove it.")
            shutil.rmtree(parts, ignore_errors=True)
            parts.mkdir()
            yield parts
            parts.rename(folder)
        except MuleError:
            raise
        except OSError as error:
            raise FileError(f"{folder}: cannot be written: {os_reason(error)}. Nothing was left.") from error
        finally:
            shutil.rmtree(parts, ignore_errors=True)


def _missing_folders(folder: Path) -> list[Path]:
    """Return the folders to be made, the innermost first."""
    return [each for each in (folder, *folder.parents) if not each.exists()]


def _taken(path: Path, folder: Path) -> tuple[_Held, list[str]]:
    until = time.monotonic() + WAIT_S
    while True:
        held = _Held(os.open(path, os.O_RDWR | os.O_CREAT, 0o666))
        try:
            _lock(held.file)
        except OSError as error:
            if error.errno in _UNLOCKABLE:
                _held.add(held)
                return held, [f"{folder}: this disk has no locks; make sure that nothing else writes here."]
            before = _read(held.file)
            held.close()
            if time.monotonic() > until:
                raise FolderInUseError(
                    f"{folder}: only one process may write here at a time; {_named(before)}. Wait until it ends, "
                    "or choose another folder."
                ) from None
            time.sleep(_LOOK_EVERY_S)
            continue
        if _is_at(path, held.file):  # else its last holder removed the file
            break
        held.close()
    _held.add(held)
    before = _read(held.file)
    _write(held.file)
    return held, [f"{folder}: {_named(before)} and was killed; continuing in its place."] if before else []


def _lock(file: int) -> None:
    if sys.platform == "win32":
        import msvcrt

        os.lseek(file, _FAR, os.SEEK_SET)
        msvcrt.locking(file, msvcrt.LK_NBLCK, 1)
    else:
        import fcntl

        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)


def _release(held: _Held, path: Path) -> None:
    """Remove the file while it is locked, so that whoever opened it meanwhile notices, and unlock it."""
    with suppress(OSError):
        if held.file >= 0 and _is_at(path, held.file):
            path.unlink()
    with suppress(OSError):
        held.close()


def _is_at(path: Path, file: int) -> bool:
    try:
        return os.path.samestat(path.stat(), os.fstat(file))
    except FileNotFoundError:
        return False


def _write(file: int) -> None:
    about = {
        "pid": os.getpid(),
        "host": platform.node(),
        "since": datetime.now(UTC).isoformat(sep=" ", timespec="seconds"),
    }
    with suppress(OSError):  # on a full disk the lock has no name, and what is written next says so
        os.ftruncate(file, 0)
        os.lseek(file, 0, os.SEEK_SET)
        os.write(file, json.dumps(about).encode())


def _read(file: int) -> dict[str, object]:
    """Return what the holder wrote; nothing if it has not come to that, or the text is damaged."""
    try:
        os.lseek(file, 0, os.SEEK_SET)
        about = json.loads(os.read(file, 4096))
    except (OSError, ValueError, RecursionError):
        return {}
    return about if isinstance(about, dict) else {}


def _named(about: dict[str, object]) -> str:
    if not about:
        return "another process does"
    return (
        f"process {about.get('pid')} on {about.get('host')} has been writing here since {about.get('since')}"
    )
