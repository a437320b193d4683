"""Boxes of finished videos in a partial file beside the table to write, so that an interrupted search continues.

Its first line says what the boxes depend on, every further line holds one video. A line counts once it is complete, so a
search that is killed loses at most the video it was looking at. Nothing exists under the final name until the end.
"""

import hashlib
import json
import os
from collections.abc import Iterable, Mapping
from pathlib import Path

import numpy as np

from mule.core.documents import json_of
from mule.core.errors import FileError
from mule.core.files import os_reason
from mule.core.text_rows import Json
from mule.data.convert.detecting import VideoBoxes
from mule.data.table.videos import VideoOnDisk
from mule.features.cache import video_stamp

Work = Mapping[str, str]
"""What the boxes depend on, by the name of each option."""


def partial_path(table: Path) -> Path:
    """Return the partial file of a table."""
    return table.with_name(f"{table.name}.partial")


class PartialBoxes:
    """The boxes of finished videos, in memory and on disk."""

    def __init__(self, path: Path, work: Work) -> None:
        """Read the file if there is one; a line that was cut off is dropped, and a file without a video begins anew.

        Raises:
            FileError: it was begun with other options, or cannot be read or written.
        """
        self.path = path
        self._finished: dict[str, tuple[str, VideoBoxes]] = {}
        try:
            header, *entries = map(json_of, self._complete_lines() or [b"null"])
            if entries:
                self._require_same(header, work)
            for entry in entries:
                self._keep(entry)
            if not entries:
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_bytes(b"")
                self._append({"work": dict(work)})
        except (ValueError, KeyError, TypeError) as error:
            raise FileError(
                f"{path}: must hold boxes of finished videos; {error}. Delete it to start again."
            ) from None
        except OSError as error:
            if isinstance(error, FileError):
                raise
            raise FileError(f"{path}: cannot be used: {os_reason(error)}.") from error

    def find(self, video: VideoOnDisk) -> VideoBoxes | None:
        """Return the boxes of a video that was finished before and has not changed since."""
        stamp, boxes = self._finished.get(video.name, ("", None))
        return boxes if boxes is not None and stamp == _stamp(video) else None

    def finished(self, videos: Iterable[VideoOnDisk]) -> tuple[list[str], list[str]]:
        """Return the videos that were finished before, and those that were but have changed since."""
        begun = [video for video in videos if video.name in self._finished]
        is_kept = {video.name: self.find(video) is not None for video in begun}
        return [name for name in is_kept if is_kept[name]], [name for name in is_kept if not is_kept[name]]

    def add(self, video: VideoOnDisk, boxes: VideoBoxes) -> None:
        """Append a finished video, and wait until it is on disk.

        Raises:
            FileError: the disk is full, or the file is not writable.
        """
        try:
            self._append(_entry(_stamp(video), boxes))
        except OSError as error:
            raise FileError(
                f"{self.path}: cannot be written: {os_reason(error)}. Finished videos are kept; the same command continues."
            ) from error

    def remove(self) -> None:
        """Delete the file, once the tables are written."""
        self.path.unlink(missing_ok=True)

    def _complete_lines(self) -> list[bytes]:
        """Return the lines that end; a rest without an end is cut off the file."""
        if not self.path.exists():
            return []
        content = self.path.read_bytes()
        length = content.rfind(b"\n") + 1
        if length < len(content):
            os.truncate(self.path, length)
        return content[:length].splitlines()

    def _require_same(self, header: Json, work: Work) -> None:
        begun: Mapping[str, str] = header["work"]
        differing = [name for name in {**begun, **work} if begun.get(name) != work.get(name)]
        if differing:
            name = differing[0]
            raise FileError(
                f"{self.path}: was begun with {name} {begun.get(name, 'not given')}; it is {work.get(name, 'not given')} now. "
                "Repeat the earlier command, or delete the file to start again."
            )

    def _keep(self, entry: Json) -> None:
        boxes = _boxes(entry)
        self._finished[boxes.video] = (entry["stamp"], boxes)

    def _append(self, entry: Json) -> None:
        with self.path.open("ab") as file:
            file.write(json.dumps(entry, ensure_ascii=False, separators=(",", ":")).encode() + b"\n")
            file.flush()
            os.fsync(file.fileno())


def _stamp(video: VideoOnDisk) -> str:
    return hashlib.sha256(repr(video_stamp(video.source)).encode()).hexdigest()[:16]


def _entry(stamp: str, boxes: VideoBoxes) -> dict[str, Json]:
    columns = (boxes.frame_index, boxes.scores, boxes.boxes_xyxy_unit)
    return {
        "video": boxes.video,
        "stamp": stamp,
        "times_s": boxes.times_s.tolist(),
        "after_end_s": list(boxes.after_end_s),
        "stopped_by": boxes.stopped_by,
        "boxes": list(zip(*(column.tolist() for column in columns), boxes.class_names, strict=True)),
    }


def _boxes(entry: Json) -> VideoBoxes:
    frames, scores, corners, names = zip(*entry["boxes"], strict=True) if entry["boxes"] else ((),) * 4
    return VideoBoxes(
        entry["video"],
        np.array(entry["times_s"], dtype=np.float64),
        tuple(entry["after_end_s"]),
        np.array(frames, dtype=np.int64),
        tuple(names),
        np.array(scores, dtype=np.float64),
        np.array(corners, dtype=np.float64).reshape(-1, 4),
        entry["stopped_by"],
    )
