"""Rendered clips on disk: one memory-mapped array of frames and one table, found again by all their parameters.

    NAME/frames.npy       uint8 (clips, frames, rows, cols, 3)
    NAME/table.npz        boxes, labels, visibility (`ClipTable`)
    NAME/parameters.json  what NAME stands for

Until everything is rendered the folder is called NAME.parts, and each finished block of clips has its own table in
it; rendering that was stopped goes on with the blocks that are missing. What bears its final name is whole.
"""

import json
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import UInt8

from mule.core.errors import VideoError
from mule.core.files import growing_file
from mule.stage.clip_tables import ClipTable, joined, table_of
from mule.stage.stage_set import StageSet
from mule.stage.workers import OnProgress, do_all, silent

_BLOCK_CLIPS = 16


@dataclass(frozen=True)
class CachedClips:
    """A rendered data set: frames stay on disk until they are looked at."""

    clips: StageSet
    frames: UInt8[np.ndarray, "clips frames rows cols 3"]
    table: ClipTable


def render_to_cache(
    clips: StageSet, folder: Path, *, workers: int = 2, on_progress: OnProgress = silent
) -> CachedClips:
    """All clips of the set, rendered now or before.

    Args:
        clips: What to render.
        folder: Where rendered sets are kept; each has its own folder in it.
        workers: Processes that render. The bytes do not depend on it.
        on_progress: Hears how many clips are there, of how many.

    Raises:
        VideoError: the folder cannot be written, or what is there is not what its name says.
    """
    place, parts = folder / clips.name, folder / f"{clips.name}.parts"
    try:
        if not place.is_dir():
            _render_missing(clips, parts, workers=workers, on_progress=on_progress)
            _finish(clips, parts, place)
        on_progress(len(clips), len(clips))
        return _open(clips, place)
    except OSError as error:
        raise VideoError(
            f"{place}: rendered clips must be written and read; {error.strerror or error}. Remove it, or choose "
            "another folder."
        ) from error


def _render_missing(clips: StageSet, parts: Path, *, workers: int, on_progress: OnProgress) -> None:
    parts.mkdir(parents=True, exist_ok=True)
    frames = parts / "frames.npy"
    if not frames.exists():
        shape = (len(clips), clips.num_frames, *clips.size, 3)
        with growing_file(frames) as empty:
            np.lib.format.open_memmap(empty, mode="w+", dtype=np.uint8, shape=shape).flush()
    blocks = _blocks(clips)
    missing = [block for block in blocks if not _block_path(parts, block).exists()]
    done = len(clips) - sum(len(block) for block in missing)

    def report(num_rendered: int) -> None:
        nonlocal done
        done += num_rendered
        on_progress(done, len(clips))

    on_progress(done, len(clips))
    do_all(partial(_render_block, clips, parts), missing, workers=workers, report=report)


def _render_block(clips: StageSet, parts: Path, block: range) -> int:
    """Renders one block: frames into their place, then the table that says they are there."""
    frames = np.lib.format.open_memmap(parts / "frames.npy", mode="r+")
    tables = []
    for number in block:
        clip = clips.clip(number)
        frames[number] = clip.frames
        tables.append(table_of(clip, number))
    frames.flush()
    _write_table(_block_path(parts, block), joined(tables, clips.num_frames))
    return len(block)


def _blocks(clips: StageSet) -> list[range]:
    firsts = range(0, len(clips), _BLOCK_CLIPS)
    return [range(first, min(first + _BLOCK_CLIPS, len(clips))) for first in firsts]


def _block_path(parts: Path, block: range) -> Path:
    return parts / f"block-{block.start:08d}-{block.stop:08d}.npz"


def _finish(clips: StageSet, parts: Path, place: Path) -> None:
    """Makes one table of the blocks and gives the folder its name, unless another process has just done so."""
    blocks = [_block_path(parts, block) for block in _blocks(clips)]
    _write_table(parts / "table.npz", joined([_read_table(path) for path in blocks], clips.num_frames))
    (parts / "parameters.json").write_text(json.dumps(clips.parameters, indent=2) + "\n")
    for path in blocks:
        path.unlink()
    try:
        parts.rename(place)
    except OSError:
        if not place.is_dir():
            raise
        shutil.rmtree(parts, ignore_errors=True)


def _open(clips: StageSet, place: Path) -> CachedClips:
    found: Mapping[str, Any] = json.loads((place / "parameters.json").read_text())
    if dict(found) != clips.parameters:
        raise VideoError(f"{place}: must hold the clips its name stands for; it holds others. Remove it.")
    frames = np.load(place / "frames.npy", mmap_mode="r")
    return CachedClips(clips, frames, _read_table(place / "table.npz"))


def _write_table(path: Path, table: ClipTable) -> None:
    with growing_file(path) as growing, growing.open("wb") as file:
        columns: dict[str, Any] = dict(table.arrays())
        np.savez(file, **columns)


def _read_table(path: Path) -> ClipTable:
    with np.load(path) as columns:
        return ClipTable(**{name: columns[name] for name in columns.files})
