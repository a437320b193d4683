"""Files: written whole or not at all, known by their checksum, kept in one cache folder.

A file grows beside its place under a hidden name and takes its place by one rename.
"""

import hashlib
import os
import secrets
from collections.abc import Callable, Generator
from contextlib import contextmanager
from functools import lru_cache
from pathlib import Path

from mule.core.errors import FileError


@contextmanager
def growing_file(path: Path) -> Generator[Path]:
    """A hidden path beside `path` to write to. It replaces `path` at the end, and is removed after an error."""
    growing = path.with_name(f".{path.name}.{secrets.token_hex(8)}")
    try:
        yield growing
        growing.replace(path)
    finally:
        growing.unlink(missing_ok=True)


def write_to_disk(path: Path, content: bytes) -> None:
    """Writes a file and waits until the disk has it."""
    with path.open("wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())


def sync_folder(folder: Path) -> None:
    """Makes new names in a folder survive a power cut, where the system supports it."""
    if os.name != "posix":
        return
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def write_file(path: Path, content: bytes | str | Callable[[Path], object]) -> Path:
    """Writes a whole file, or leaves what was there.

    Args:
        path: where the file goes; missing folders are made.
        content: bytes, text, or a function that writes to the path it is given.

    Raises:
        FileError: the disk is full, or the file may not be written.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with growing_file(path) as growing:
            if callable(content):
                content(growing)
            else:
                write_to_disk(growing, content.encode() if isinstance(content, str) else content)
        sync_folder(path.parent)
    except OSError as error:
        raise FileError(
            f"{path}: cannot be written: {os_reason(error)}. Any earlier version is unchanged."
        ) from error
    return path


def os_reason(error: BaseException) -> str:
    """What the system says went wrong, in lower case: "no space left on device"."""
    if isinstance(error, OSError) and error.strerror:
        return error.strerror.lower()
    return str(error).partition("\n")[0] or type(error).__name__


def sha256_of(path: Path) -> str:
    """The SHA-256 checksum of a file, as 64 hexadecimal digits."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def file_stamp(path: Path) -> tuple[int, int, int]:
    """Size, time of change and inode: while these stay, so does the content.

    Raises:
        OSError: the file cannot be inspected.
    """
    found = path.stat()
    return found.st_size, found.st_mtime_ns, found.st_ino


def sha256_while_unchanged(path: Path) -> str:
    """The checksum of a file, computed once per process while its stamp stays the same."""
    return _sha256_once(path, file_stamp(path))


@lru_cache(maxsize=4096)
def _sha256_once(path: Path, _: object) -> str:
    return sha256_of(path)


def cache_folder() -> Path:
    """The default folder for downloads and computed files: `mule` in $XDG_CACHE_HOME or ~/.cache."""
    base = os.environ.get("XDG_CACHE_HOME", "")
    return (Path(base) if Path(base).is_absolute() else Path.home() / ".cache") / "mule"
