"""Write Stage as a plain data set: videos, three tables and a description.

    OUT/videos/clip_000000.mp4 …
    OUT/actors.csv    video,time_s,x1,y1,x2,y2,actions,actor_id        one row per actor and key time
    OUT/objects.csv   video,time_s,x1,y1,x2,y2,object_class,score      the objects at the same times
    OUT/tracks.csv    video,frame,time_s,actor_id,x1,y1,x2,y2          every actor on every frame
    OUT/stage.json    version, parameters, class lists, digest of all frames

Key times are whole seconds with a second before and after them; a clip of two seconds has one, in its middle. An
unfinished data set is in the folder OUT.parts; an interrupted run continues there.
"""

import hashlib
import json
import logging
import shutil
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from mule.core.documents import json_of
from mule.core.errors import FileError, MuleError, RangeError
from mule.core.files import os_reason, write_file
from mule.core.locks import only_writer
from mule.core.signals import without_ctrl_c
from mule.core.text_rows import write_csv
from mule.data.table.table import ACTOR_COLUMNS, OBJECT_COLUMNS
from mule.stage.benchmark import OnRendered, StageSet
from mule.stage.classes import STAGE_VERSION, stage_split
from mule.stage.plans import FRAME_RATE, Plan
from mule.stage.rendering import StageClip, render_chunks
from mule.stage.takes import TakeRecipe, plan_take
from mule.video.encode import VideoWriter

DESCRIPTION, MARK = "stage.json", "parameters.json"
"""What says that a data set is complete, and what it is made of; what an unfinished one is made of."""

Item = TypeVar("Item")


def do_all(
    work: Callable[[Item], int],
    items: Sequence[Item],
    *,
    workers: int,
    on_progress: OnRendered,
    num_done: int,
    num_all: int,
) -> None:
    """Call `work` on every item, in any order; it returns how much it did. One worker starts no process.

    Processes are spawned, so `work` must be a function of a module or a partial of one. When one is killed, the items that
    are not finished are tried again, unless none was finished since the last time.

    Raises:
        WorkerKilled: processes are killed again and again.
    """
    if workers < 1:
        raise RangeError(f"workers must be at least 1; got {workers}.")
    on_progress(num_done, num_all)
    if workers == 1 or len(items) < 2:
        for item in items:
            num_done += work(item)
            on_progress(num_done, num_all)
        return
    missing, may_try_again = list(items), True
    while missing:
        num_missing = len(missing)
        try:
            for item, amount in _in_pool(work, list(missing), workers=workers):
                missing.remove(item)
                num_done += amount
                on_progress(num_done, num_all)
        except BrokenProcessPool:
            if not may_try_again and len(missing) == num_missing:
                raise WorkerKilled(
                    f"processes must live as long as their work; they were killed twice, {num_done} of {num_all} clips "
                    "are finished. Most often memory ran out: use fewer workers. The same command continues."
                ) from None
            logging.getLogger("mule").warning(
                f"a process was killed, most often because memory ran out; trying {len(missing)} pieces again"
            )
            may_try_again = False


def _in_pool(
    work: Callable[[Item], int], items: Sequence[Item], *, workers: int
) -> Iterator[tuple[Item, int]]:
    """Yield each item when it is finished, and how much was done. Only this process answers Ctrl-C."""
    with ProcessPoolExecutor(min(workers, len(items)), mp_context=get_context("spawn")) as pool:
        with without_ctrl_c():
            waiting = {pool.submit(work, item): item for item in items}
        try:
            for future in as_completed(waiting):
                yield waiting[future], future.result()
        except BaseException:
            pool.shutdown(wait=True, cancel_futures=True)
            raise


class WorkerKilled(MuleError, RuntimeError):  # noqa: N818 - names the fact, as the messages do
    """Processes of a pool are killed again and again."""


LEAST_VISIBILITY = 0.1
"""Actors with a smaller visible share at a key time are in tracks.csv but not in actors.csv."""

TRACK_HEADER = ("video", "frame", "time_s", "actor_id", "x1", "y1", "x2", "y2")


@dataclass(frozen=True)
class Export:
    """A data set to write: clips of the benchmark, or longer takes with the actions of the same role."""

    clips: StageSet
    seconds: float | None = None
    """Length of takes; None writes the benchmark's clips."""
    lossless: bool = False

    def __post_init__(self) -> None:
        if self.seconds is not None:
            _ = self._takes
        if not self.lossless and any(side % 2 for side in self.clips.size):
            raise RangeError(
                f"rows and columns of a video must be even; got {self.clips.size[0]} × {self.clips.size[1]}. Change "
                "the size, or use --lossless."
            )

    @property
    def _takes(self) -> TakeRecipe:
        split = stage_split(self.clips.split)
        classes = split.z2 + split.z3 if self.clips.role == "test" else split.known
        rows, cols = self.clips.size
        return TakeRecipe(
            seconds=float(self.seconds or 0), classes=classes, seed=self.clips.seed, aspect=cols / rows
        )

    @property
    def parameters(self) -> dict[str, Any]:
        """Everything that the files depend on."""
        return {**self.clips.parameters, "seconds": self.seconds, "lossless": self.lossless}

    def plan(self, index: int) -> Plan:
        """Return the plan of a video."""
        return self.clips.plan(index) if self.seconds is None else plan_take(self._takes, index)


def write_dataset(
    export: Export,
    out: Path,
    *,
    workers: int = 2,
    overwrite: bool = False,
    on_progress: OnRendered = lambda *_: None,
) -> None:
    """Write all files; the folder gets its name once it is complete.

    Args:
        export: what to render.
        out: the folder.
        workers: rendering processes.
        overwrite: whether a data set of Stage that is there may be replaced; it stays until the new one is complete.
        on_progress: receives how many videos are done.

    Raises:
        RangeError: the folder exists, or an unfinished one of another data set does.
        FileError: the disk is full, or the place is not writable.
    """
    parts = out.with_name(f"{out.name}.parts")
    try:
        with only_writer(out, beside=True):
            _require_free(out, overwrite=overwrite)
            if _parameters_in(parts / DESCRIPTION) != export.parameters:
                _render(export, parts, workers=workers, overwrite=overwrite, on_progress=on_progress)
            shutil.rmtree(parts / "rows", ignore_errors=True)
            (parts / MARK).unlink(missing_ok=True)
            if out.is_dir():
                out.rename(_set_aside(out))
            parts.rename(out)
            shutil.rmtree(_set_aside(out), ignore_errors=True)
    except MuleError:
        raise
    except OSError as error:
        raise FileError(f"{out}: cannot be written: {os_reason(error)}.") from error


def _set_aside(out: Path) -> Path:
    """Where the old data set is while the new one takes its name."""
    return out.with_name(f".{out.name}.replaced")


def _require_free(out: Path, *, overwrite: bool) -> None:
    """Refuse a folder that must not be replaced; after a kill in the middle of replacing, give the old one its name back."""
    old = _set_aside(out)
    if old.exists() and not out.exists():
        old.rename(out)
    shutil.rmtree(old, ignore_errors=True)
    if not out.exists():
        return
    if not overwrite:
        raise RangeError(f"{out}: must not exist yet; it does. Choose another name, or use --overwrite.")
    if not (out / DESCRIPTION).is_file():
        raise RangeError(
            f"{out}: --overwrite replaces a data set of Stage, which has a {DESCRIPTION}; this has none. Choose another name."
        )


def _render(export: Export, parts: Path, *, workers: int, overwrite: bool, on_progress: OnRendered) -> None:
    """Render what is missing, and write the tables and the description."""
    _begin(export, parts, overwrite=overwrite)
    names = [f"clip_{index:06d}" for index in range(len(export.clips))]
    missing = [index for index, name in enumerate(names) if not (parts / "rows" / f"{name}.json").exists()]
    do_all(
        partial(_write_video, export, parts),
        missing,
        workers=workers,
        on_progress=on_progress,
        num_done=len(names) - len(missing),
        num_all=len(names),
    )
    _finish(export, parts, names)


def _parameters_in(file: Path) -> object:
    """What a data set is made of, by its mark or description; nothing if the file is missing or damaged."""
    try:
        found = json_of(file.read_bytes())
    except (FileNotFoundError, ValueError):
        return None
    return found.get("parameters") if file.name == DESCRIPTION and isinstance(found, dict) else found


def _begin(export: Export, parts: Path, *, overwrite: bool) -> None:
    """Make the folder of the unfinished data set; an existing one must belong to the same data set."""
    mark, videos = parts / MARK, parts / "videos"
    if videos.exists() and _parameters_in(mark) != export.parameters:
        if not overwrite:
            raise RangeError(
                f"{parts}: must belong to the same data set; it belongs to another one. Remove it, or use --overwrite."
            )
        shutil.rmtree(parts)
    write_file(mark, json.dumps(export.parameters, indent=2) + "\n")
    for folder in (parts / "rows", videos):
        folder.mkdir(exist_ok=True)


def _write_video(export: Export, parts: Path, index: int) -> int:
    """Write a video, then its rows, which mark it as complete."""
    name = f"clip_{index:06d}"
    plan, size = export.plan(index), export.clips.size
    rows: dict[str, Any] = {"actors": [], "objects": [], "tracks": []}
    digest = hashlib.sha256()
    key_frames = key_frames_of(plan.num_frames)
    with VideoWriter(parts / "videos" / f"{name}.mp4", size, FRAME_RATE, lossless=export.lossless) as video:
        for chunk in render_chunks(plan, size):
            video.write(chunk.frames)
            digest.update(chunk.frames.tobytes())
            _add_rows(rows, name, chunk, key_frames)
    rows["digest"] = digest.hexdigest()
    write_file(parts / "rows" / f"{name}.json", json.dumps(rows))
    return 1


def key_frames_of(num_frames: int) -> list[int]:
    """Return the frames at whole seconds with a second before and after them; for shorter clips the middle."""
    if num_frames <= 2 * FRAME_RATE:
        return [num_frames // 2]
    return list(range(FRAME_RATE, num_frames - FRAME_RATE + 1, FRAME_RATE))


def _add_rows(rows: dict[str, Any], name: str, clip: StageClip, key_frames: Iterable[int]) -> None:
    for frame in range(len(clip.frames)):
        rows["tracks"] += _track_rows(name, clip, frame)
    for frame in (key - clip.first_frame for key in key_frames):
        if 0 <= frame < len(clip.frames):
            rows["actors"] += _actor_rows(name, clip, frame)
            rows["objects"] += _object_rows(name, clip, frame)


def _track_rows(name: str, clip: StageClip, frame: int) -> list[list[Any]]:
    time_s = _number(clip.times_s[frame])
    return [
        [name, clip.first_frame + frame, time_s, actor_id, *_corners(box)]
        for actor_id, box in zip(clip.track_ids, clip.actor_boxes_xyxy_unit[frame], strict=True)
        if box[2] > box[0] and box[3] > box[1]
    ]


def _actor_rows(name: str, clip: StageClip, frame: int) -> list[list[Any]]:
    boxes, visibility = clip.actor_boxes_xyxy_unit[frame], clip.visibility[frame]
    actors = zip(clip.track_ids, boxes, visibility, clip.labels(frame), strict=True)
    return [
        [name, _number(clip.times_s[frame]), *_corners(box), ";".join(actions), actor_id]
        for actor_id, box, share, actions in actors
        if share >= LEAST_VISIBILITY and actions
    ]


def _object_rows(name: str, clip: StageClip, frame: int) -> list[list[Any]]:
    boxes, is_there = clip.object_boxes_xyxy_unit[frame], clip.object_is_there[frame]
    return [
        [name, _number(clip.times_s[frame]), *_corners(box), kind, "1.0"]
        for kind, box, there in zip(clip.object_classes, boxes, is_there, strict=True)
        if there
    ]


def _number(value: float) -> str:
    return f"{value:.6f}".rstrip("0").rstrip(".")


def _corners(box: np.ndarray) -> list[str]:
    return [f"{value:.6f}" for value in box]


def _finish(export: Export, parts: Path, names: list[str]) -> None:
    """Write the tables of all videos, in order, and the description."""
    videos = [json.loads((parts / "rows" / f"{name}.json").read_text()) for name in names]
    tables = (("actors", ACTOR_COLUMNS), ("objects", OBJECT_COLUMNS), ("tracks", TRACK_HEADER))
    for table, header in tables:
        write_csv(parts / f"{table}.csv", header, (row for rows in videos for row in rows[table]))
    digest = hashlib.sha256("".join(rows["digest"] for rows in videos).encode()).hexdigest()
    split = stage_split(export.clips.split)
    description = {
        "version": STAGE_VERSION,
        "parameters": export.parameters,
        "frame_rate": FRAME_RATE,
        "least_visibility": LEAST_VISIBILITY,
        "codec": "H.264, RGB, lossless" if export.lossless else "H.264, 4:2:0, CRF 10",
        "frames_sha256": digest,
        "z1": split.z1,
        "z2": split.z2,
        "z3": split.z3,
    }
    write_file(parts / DESCRIPTION, json.dumps(description, indent=2) + "\n")
