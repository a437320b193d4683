"""Rendered clips on disk, keyed by all their parameters, and as a data set for training.

    NAME/frames.npy       uint8 (clips, frames, rows, cols, 3)
    NAME/table.npz        boxes, labels, visibility (`ClipTable`)
    NAME/parameters.json  the parameters of NAME

Until everything is rendered, the folder is NAME.parts and holds a table for each finished block of clips; an
interrupted run continues with the missing blocks. A folder with its final name is complete.

A sample has the actors and objects of the middle frame. Actors that are hardly visible there are left out, as in the
tables that Stage writes.
"""

import json
import os
import shutil
from collections.abc import Sequence
from dataclasses import dataclass, fields
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from jaxtyping import Bool, Float, Int, UInt8

from mule.core.documents import json_of
from mule.core.errors import FileError, MuleError, RangeError, VideoError
from mule.core.files import growing_file, os_reason
from mule.data.batches.samples import ClipName, ClipSample
from mule.stage.benchmark import OnRendered, StageSet
from mule.stage.classes import ACTIONS
from mule.stage.export import LEAST_VISIBILITY, do_all
from mule.stage.plans import FRAME_RATE
from mule.stage.rendering import StageClip

OBJECT_CLASSES = ("ball", "box")


@dataclass(frozen=True)
class ClipTable:
    """Actors and objects of clips of equal length. Labels are of the middle frame, in the order of ACTIONS."""

    actor_clip: Int[np.ndarray, " actors"]
    actor_id: Int[np.ndarray, " actors"]
    actor_boxes_xyxy_unit: Float[np.ndarray, "actors frames 4"]
    visibility: Float[np.ndarray, "actors frames"]
    labels: Bool[np.ndarray, "actors classes"]
    object_clip: Int[np.ndarray, " objects"]
    object_class: Int[np.ndarray, " objects"]
    """Index into OBJECT_CLASSES."""
    object_boxes_xyxy_unit: Float[np.ndarray, "objects frames 4"]
    object_is_there: Bool[np.ndarray, "objects frames"]

    def arrays(self) -> dict[str, np.ndarray]:
        """Return the columns by name."""
        return {field.name: getattr(self, field.name) for field in fields(self)}


def table_of(clip: StageClip, number: int) -> ClipTable:
    """Return the rows of one clip."""
    labels = clip.labels(len(clip.frames) // 2)
    num_actors, num_objects = len(clip.track_ids), len(clip.object_classes)
    return ClipTable(
        actor_clip=np.full(num_actors, number, dtype=np.int64),
        actor_id=np.array(clip.track_ids, dtype=np.int64),
        actor_boxes_xyxy_unit=clip.actor_boxes_xyxy_unit.transpose(1, 0, 2).astype(np.float32),
        visibility=clip.visibility.T.astype(np.float32),
        labels=np.array([[name in names for name in ACTIONS] for names in labels], dtype=bool).reshape(
            num_actors, len(ACTIONS)
        ),
        object_clip=np.full(num_objects, number, dtype=np.int64),
        object_class=np.array([OBJECT_CLASSES.index(kind) for kind in clip.object_classes], dtype=np.int64),
        object_boxes_xyxy_unit=clip.object_boxes_xyxy_unit.transpose(1, 0, 2).astype(np.float32),
        object_is_there=clip.object_is_there.T,
    )


def joined(tables: list[ClipTable], num_frames: int) -> ClipTable:
    """Join the rows of all tables, in order; without tables, return a table without rows."""
    empty = ClipTable(
        actor_clip=np.zeros(0, dtype=np.int64),
        actor_id=np.zeros(0, dtype=np.int64),
        actor_boxes_xyxy_unit=np.zeros((0, num_frames, 4), dtype=np.float32),
        visibility=np.zeros((0, num_frames), dtype=np.float32),
        labels=np.zeros((0, len(ACTIONS)), dtype=bool),
        object_clip=np.zeros(0, dtype=np.int64),
        object_class=np.zeros(0, dtype=np.int64),
        object_boxes_xyxy_unit=np.zeros((0, num_frames, 4), dtype=np.float32),
        object_is_there=np.zeros((0, num_frames), dtype=bool),
    )
    columns = [table.arrays() for table in (empty, *tables)]
    return ClipTable(**{name: np.concatenate([part[name] for part in columns]) for name in columns[0]})


_BLOCK_CLIPS = 16


@dataclass(frozen=True)
class CachedClips:
    """A rendered data set; frames are memory-mapped."""

    clips: StageSet
    frames: UInt8[np.ndarray, "clips frames rows cols 3"]
    table: ClipTable


def render_to_cache(
    clips: StageSet, folder: Path, *, workers: int = 2, on_progress: OnRendered = lambda *_: None
) -> CachedClips:
    """Return all clips of a set; render the missing ones. The bytes do not depend on the number of workers."""
    place, parts = folder / clips.name, folder / f"{clips.name}.parts"
    try:
        if not place.is_dir():
            _render_missing(clips, parts, workers=workers, on_progress=on_progress)
            _finish(clips, parts, place)
        on_progress(len(clips), len(clips))
        return _open(clips, place)
    except MuleError:
        raise
    except OSError as error:
        raise FileError(
            f"{place}: cannot be written or read: {os_reason(error)}. Remove it, or choose another folder."
        ) from error


def _render_missing(clips: StageSet, parts: Path, *, workers: int, on_progress: OnRendered) -> None:
    parts.mkdir(parents=True, exist_ok=True)
    frames = parts / "frames.npy"
    if not frames.exists():
        shape = (len(clips), clips.num_frames, *clips.size, 3)
        with growing_file(frames) as empty:
            np.lib.format.open_memmap(empty, mode="w+", dtype=np.uint8, shape=shape).flush()
            _reserve(empty)
    blocks = _blocks(clips)
    missing = [block for block in blocks if not _block_path(parts, block).exists()]
    do_all(
        partial(_render_block, clips, parts),
        missing,
        workers=workers,
        on_progress=on_progress,
        num_done=len(clips) - sum(map(len, missing)),
        num_all=len(clips),
    )


def _reserve(path: Path) -> None:
    """Take the disk space of a file now: where it runs out later, writing to mapped memory kills the process."""
    if hasattr(os, "posix_fallocate"):
        with path.open("r+b") as file:
            os.posix_fallocate(file.fileno(), 0, path.stat().st_size)


def _render_block(clips: StageSet, parts: Path, block: range) -> int:
    """Render a block: write its frames, then its table, which marks it as complete."""
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
    """Join the tables of the blocks and rename the folder, unless another process has just done so."""
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
    try:
        if json_of((place / "parameters.json").read_bytes()) != clips.parameters:
            raise VideoError(f"{place}: must hold the clips of its name; it holds others. Remove it.")
        frames = np.load(place / "frames.npy", mmap_mode="r")
        shape = (len(clips), clips.num_frames, *clips.size, 3)
        if frames.shape != shape or frames.dtype != np.uint8:
            raise ValueError(
                f"its frames must be bytes of the shape {shape}; got {frames.dtype} {frames.shape}"
            )
        return CachedClips(clips, frames, _read_table(place / "table.npz"))
    except MuleError:
        raise
    except Exception as error:  # a damaged file of arrays can raise nearly anything
        raise VideoError(
            f"{place}: must hold rendered clips; {os_reason(error)}. Remove it; they are then rendered again."
        ) from error


def _write_table(path: Path, table: ClipTable) -> None:
    with growing_file(path) as growing, growing.open("wb") as file:
        columns: dict[str, Any] = dict(table.arrays())
        np.savez(file, **columns)


def _read_table(path: Path) -> ClipTable:
    with path.open("rb") as file, np.load(file) as columns:
        return ClipTable(**{name: columns[name] for name in columns.files})


class StageClips:
    """A data set of rendered clips, in their order."""

    def __init__(self, rendered: CachedClips, *, classes: Sequence[str] | None = None) -> None:
        """Use rendered clips, with labels for the known actions of their split unless `classes` names others."""
        self.classes = tuple(rendered.clips.classes.known if classes is None else classes)
        unknown = sorted(set(self.classes) - set(ACTIONS))
        if unknown:
            raise RangeError(
                f"classes must be among Stage's {len(ACTIONS)} actions; got {', '.join(unknown)}."
            )
        table, key_frame = rendered.table, rendered.clips.num_frames // 2
        self._frames = rendered.frames
        self._name, self._size = rendered.clips.name, rendered.clips.size
        self._key_time_s = key_frame / FRAME_RATE
        self._actors = np.flatnonzero(table.visibility[:, key_frame] >= LEAST_VISIBILITY)
        self._actor_clip = table.actor_clip[self._actors]
        self._actor_boxes = table.actor_boxes_xyxy_unit[self._actors, key_frame]
        self._actor_id = table.actor_id[self._actors]
        self._labels = table.labels[self._actors][:, [list(ACTIONS).index(name) for name in self.classes]]
        is_there = table.object_is_there[:, key_frame]
        self._object_clip = table.object_clip[is_there]
        self._object_boxes = table.object_boxes_xyxy_unit[is_there, key_frame]
        self._object_class = table.object_class[is_there]

    def __len__(self) -> int:
        return len(self._frames)

    def name_of(self, position: int) -> ClipName:
        """Return the set's name with the number of the clip, and the time of the middle frame."""
        return ClipName(f"{self._name}/{position:06d}", self._key_time_s)

    def rows_of(self, position: int) -> Int[np.ndarray, " actors"]:
        """Return the rows of the clip's actors in the table of the rendered clips."""
        return self._actors[_rows(self._actor_clip, position)]

    def labelled_actors(self) -> tuple[Bool[np.ndarray, "actors classes"], Int[np.ndarray, " actors"]]:
        """Return the labels of all actors, and the position of each one's clip."""
        return self._labels, self._actor_clip

    def __getitem__(self, position: int) -> ClipSample:
        """Return the clip at a position; its objects have score 1."""
        if not 0 <= position < len(self):
            raise IndexError(f"clip must be from 0 to {len(self) - 1}; got {position}.")
        actors, objects = _rows(self._actor_clip, position), _rows(self._object_clip, position)
        frames = torch.from_numpy(np.array(self._frames[position])).permute(0, 3, 1, 2)
        return ClipSample(
            name=self.name_of(position),
            frames=frames,
            actor_boxes_xyxy_unit=torch.from_numpy(self._actor_boxes[actors]),
            labels=torch.from_numpy(self._labels[actors]),
            actor_ids=tuple(str(number) for number in self._actor_id[actors].tolist()),
            object_boxes_xyxy_unit=torch.from_numpy(self._object_boxes[objects]),
            object_class=torch.from_numpy(self._object_class[objects]),
            object_scores=torch.ones(objects.stop - objects.start),
            source_size=self._size,
        )

    def __getstate__(self) -> dict[str, Any]:
        """Leave out pixels that are in a file; another process opens it again."""
        state = dict(vars(self))
        if isinstance(self._frames, np.memmap):
            state["_frames"] = self._frames.filename
        return state

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state)
        if not isinstance(self._frames, np.ndarray):
            self._frames = np.load(self._frames, mmap_mode="r")


def _rows(clip_index: Int[np.ndarray, " rows"], position: int) -> slice:
    """Return the rows of a clip in columns that are sorted by clip."""
    start, end = np.searchsorted(clip_index, [position, position + 1])
    return slice(int(start), int(end))
