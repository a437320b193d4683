"""Work spread over processes, done in any order, reported as it gets done.

Stage as a plain data set for anybody: videos, three tables and a description.

    OUT/videos/clip_000000.mp4 …
    OUT/actors.csv    video,time_s,x1,y1,x2,y2,actions,actor_id        one row per actor and key time
    OUT/objects.csv   video,time_s,x1,y1,x2,y2,object_class,score      the objects at the same times
    OUT/tracks.csv    video,frame,time_s,actor_id,x1,y1,x2,y2          every actor on every frame
    OUT/stage.json    version, parameters, class lists, digest of all frames

Key times are whole seconds with a second before and after them; a clip of two seconds has one, in its middle.
Until all videos are there the folder is called OUT.parts; writing that was stopped goes on there.
"""

import csv
import hashlib
import json
import shutil
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from mule.core.errors import RangeError, VideoError
from mule.core.files import growing_file
from mule.stage.benchmark import StageSet
from mule.stage.classes import VERSION, stage_split
from mule.stage.plans import FRAME_RATE, Plan
from mule.stage.rendering import StageClip, render_chunks
from mule.stage.takes import TakeRecipe, plan_take
from mule.video.encode import VideoWriter

Item = TypeVar("Item")
OnProgress = Callable[[int, int], None]


def silent(num_done: int, num_all: int) -> None:
    """Progress nobody asked for."""


def do_all(
    work: Callable[[Item], int], items: Sequence[Item], *, workers: int, report: Callable[[int], None]
) -> None:
    """Calls `work` on every item; `report` hears how much each did. With one worker no process is started.

    Processes are started afresh (spawn), so `work` must be a function of a module or a partial of one.

    Raises:
        RangeError: there must be a worker.
    """
    if workers < 1:
        raise RangeError(f"workers must be at least 1; got {workers}.")
    if workers == 1 or len(items) < 2:
        for item in items:
            report(work(item))
        return
    with ProcessPoolExecutor(min(workers, len(items)), mp_context=get_context("spawn")) as pool:
        waiting = [pool.submit(work, item) for item in items]
        try:
            for future in as_completed(waiting):
                report(future.result())
        except BaseException:
            pool.shutdown(wait=True, cancel_futures=True)
            raise


LEAST_VISIBILITY = 0.1
"""Actors of whom less is seen at a key time have no row in actors.csv; they keep theirs in tracks.csv."""

ACTOR_HEADER = ("video", "time_s", "x1", "y1", "x2", "y2", "actions", "actor_id")
OBJECT_HEADER = ("video", "time_s", "x1", "y1", "x2", "y2", "object_class", "score")
TRACK_HEADER = ("video", "frame", "time_s", "actor_id", "x1", "y1", "x2", "y2")


@dataclass(frozen=True)
class Export:
    """What to write: clips of the benchmark, or longer takes with the actions of the same role."""

    clips: StageSet
    seconds: float | None = None
    """None writes the benchmark's clips; else takes of this length."""
    lossless: bool = False

    def __post_init__(self) -> None:
        if self.seconds is not None:
            _ = self._takes
        if not self.lossless and any(side % 2 for side in self.clips.size):
            raise RangeError(
                f"rows and columns of a video must be even; got {self.clips.size[0]} × {self.clips.size[1]}. Change "
                "the size, or write lossless."
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
        """All that the files depend on."""
        return {**self.clips.parameters, "seconds": self.seconds, "lossless": self.lossless}

    def plan(self, index: int) -> Plan:
        """What is to be seen in a video."""
        return self.clips.plan(index) if self.seconds is None else plan_take(self._takes, index)


def write_dataset(
    export: Export, out: Path, *, workers: int = 2, overwrite: bool = False, on_progress: OnProgress = silent
) -> None:
    """Writes all files; the folder bears its name once everything is in it.

    Raises:
        RangeError: the folder exists already, or another unfinished data set is in its place.
        VideoError: it cannot be written.
    """
    parts = out.with_name(f"{out.name}.parts")
    if out.exists() and not overwrite:
        raise RangeError(f"{out}: must not exist yet; it does. Choose another name, or say --overwrite.")
    try:
        _begin(export, parts, overwrite=overwrite)
        names = [f"clip_{index:06d}" for index in range(len(export.clips))]
        missing = [
            index for index, name in enumerate(names) if not (parts / "rows" / f"{name}.json").exists()
        ]
        done = len(names) - len(missing)

        def report(count: int) -> None:
            nonlocal done
            done += count
            on_progress(done, len(names))

        on_progress(done, len(names))
        do_all(partial(_write_video, export, parts), missing, workers=workers, report=report)
        _finish(export, parts, names)
        if out.is_dir():
            shutil.rmtree(out)
        parts.rename(out)
    except OSError as error:
        raise VideoError(f"{out}: a data set must be written; {error.strerror or error}.") from error


def _begin(export: Export, parts: Path, *, overwrite: bool) -> None:
    """A folder for what is not finished; what is there must be the beginning of the same data set."""
    mark = parts / "parameters.json"
    if parts.exists() and (not mark.exists() or json.loads(mark.read_text()) != export.parameters):
        if not overwrite:
            raise RangeError(
                f"{parts}: must be the beginning of the same data set; it is of another one. Remove it, or say "
                "--overwrite."
            )
        shutil.rmtree(parts)
    for folder in ("videos", "rows"):
        (parts / folder).mkdir(parents=True, exist_ok=True)
    mark.write_text(json.dumps(export.parameters, indent=2) + "\n")


def _write_video(export: Export, parts: Path, index: int) -> int:
    """One video, then the rows that say it is whole."""
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
    with growing_file(parts / "rows" / f"{name}.json") as growing:
        growing.write_text(json.dumps(rows))
    return 1


def key_frames_of(num_frames: int) -> list[int]:
    """Frames at whole seconds with a second before and after them; of shorter clips the middle."""
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
    found = zip(clip.track_ids, boxes, visibility, clip.labels(frame), strict=True)
    return [
        [name, _number(clip.times_s[frame]), *_corners(box), ";".join(actions), actor_id]
        for actor_id, box, share, actions in found
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
    """The tables of all videos, in order, and the description."""
    found = [json.loads((parts / "rows" / f"{name}.json").read_text()) for name in names]
    tables = (("actors", ACTOR_HEADER), ("objects", OBJECT_HEADER), ("tracks", TRACK_HEADER))
    for table, header in tables:
        with (parts / f"{table}.csv").open("w", encoding="utf-8", newline="") as file:
            writer = csv.writer(file, lineterminator="\n")
            writer.writerow(header)
            for rows in found:
                writer.writerows(rows[table])
    digest = hashlib.sha256("".join(rows["digest"] for rows in found).encode()).hexdigest()
    split = stage_split(export.clips.split)
    description = {
        "version": VERSION,
        "parameters": export.parameters,
        "frame_rate": FRAME_RATE,
        "least_visibility": LEAST_VISIBILITY,
        "codec": "H.264, RGB, lossless" if export.lossless else "H.264, 4:2:0, CRF 10",
        "frames_sha256": digest,
        "z1": split.z1,
        "z2": split.z2,
        "z3": split.z3,
    }
    (parts / "stage.json").write_text(json.dumps(description, indent=2) + "\n")
    shutil.rmtree(parts / "rows")
    (parts / "parameters.json").unlink()
