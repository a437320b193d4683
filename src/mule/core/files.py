"""Write files atomically, compute checksums, and find the cache folder.

A file is written under a hidden name in the same folder and then renamed.
"""

import hashlib
import os
import re
import secrets
from collections.abc import Callable, Generator
from contextlib import contextmanager
from functools import lru_cache
from pathlib import Path

from mule.core.errors import FileError


@contextmanager
def growing_file(path: Path) -> Generator[Path]:
    """Yield a hidden path to write to; it replaces `path` at the end and is removed after an error."""
    growing = path.with_name(f".{path.name}.{secrets.token_hex(8)}")
    try:
        yield growing
        growing.replace(path)
    finally:
        growing.unlink(missing_ok=True)


_LEFT_OVER = re.compile(r"\.(.+\.[0-9a-f]{16}|\d+\..+)")
"""Names of unfinished files: of `growing_file`, and of videos."""


def sweep(folder: Path) -> None:
    """Remove the unfinished files that killed processes have left. No other process may write into the folder now."""
    for path in folder.iterdir():
        if _LEFT_OVER.fullmatch(path.name) and path.is_file():
            path.unlink(missing_ok=True)


def write_to_disk(path: Path, content: bytes) -> None:
    """Write a file and wait until it is on disk."""
    with path.open("wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())


def _sync(path: Path) -> None:
    with path.open("rb+") as file:
        os.fsync(file.fileno())


def sync_folder(folder: Path) -> None:
    """Write a folder's entries to disk, if the system supports it."""
    if os.name != "posix":
        return
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def write_file(path: Path, content: bytes | str | Callable[[Path], object]) -> Path:
    """Write a file completely, or leave the earlier version unchanged.

    Args:
        path: the file; missing folders are created.
        content: bytes, text, or a function that writes to a given path.

    Raises:
        FileError: the disk is full, or the file is not writable.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with growing_file(path) as growing:
            if callable(content):
                content(growing)
                _sync(growing)
            else:
                write_to_disk(growing, content.encode() if isinstance(content, str) else content)
        sync_folder(path.parent)
    except OSError as error:
        raise FileError(
            f"{path}: cannot be written: {os_reason(error)}. Any earlier version is unchanged."
        ) from error
    return path


def os_reason(error: BaseException) -> str:
    """Return the system's reason in lower case, such as "no space left on device"."""
    if isinstance(error, OSError) and error.strerror:
        return error.strerror.lower()
    return str(error).partition("\n")[0] or type(error).__name__


def sha256_of(path: Path) -> str:
    """Return the SHA-256 checksum of a file as 64 hexadecimal digits."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def file_stamp(path: Path) -> tuple[int, int, int]:
    """Return size, modification time and inode; while these stay the same, so does the content.

    Raises:
        OSError: the file cannot be inspected.
    """
    status = path.stat()
    return status.st_size, status.st_mtime_ns, status.st_ino


def sha256_while_unchanged(path: Path) -> str:
    """Return the checksum of a file, computed once per process while its stamp stays the same."""
    return _sha256_once(path, file_stamp(path))


@lru_cache(maxsize=4096)
def _sha256_once(path: Path, _: object) -> str:
    return sha256_of(path)


def cache_folder() -> Path:
    """Return the default folder for downloads and computed files: `mule` in $XDG_CACHE_HOME or ~/.cache."""
    base = os.environ.get("XDG_CACHE_HOME", "")
    return (Path(base) if Path(base).is_absolute() else Path.home() / ".cache") / "mule"
