"""Files that are whole or not there: they grow beside their place, under a hidden name, and take it by one rename."""

import os
import secrets
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def growing_file(path: Path) -> Generator[Path]:
    """A hidden path beside `path` to write to: what is there in the end takes its place; after an error, nothing does."""
    growing = path.with_name(f".{path.name}.{secrets.token_hex(8)}")
    try:
        yield growing
        growing.replace(path)
    finally:
        growing.unlink(missing_ok=True)


def write_to_disk(path: Path, content: bytes) -> None:
    """The content at `path`; when this returns it is on the disk, not only on its way there."""
    with path.open("wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
