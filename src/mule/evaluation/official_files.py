"""Files as the official programs of AVA and Charades read them. Numbers are written so that reading gives them back exactly."""

import csv
import io
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float, Int

from mule.data.convert.ava_files import FrameNumbers
from mule.evaluation.ava import ActionBoxes, ScoredActionBoxes


class AvaFrames(NamedTuple):
    """The video and the published time of each row."""

    videos: Sequence[str]
    time_s: Float[np.ndarray, " rows"]

    def numbers(self, frames: FrameNumbers) -> Int[np.ndarray, " rows"]:
        """Return the number of each row's frame."""
        return frames.of(list(self.videos), self.time_s)

    @property
    def texts(self) -> list[str]:
        """`video,time` of each row; whole seconds have four digits, as published."""
        return [
            f"{video},{_time(time_s)}"
            for video, time_s in zip(self.videos, self.time_s.tolist(), strict=True)
        ]


class AvaDetections(NamedTuple):
    """Boxes with a score for each of some classes."""

    frames: AvaFrames
    boxes_xyxy_unit: Float[np.ndarray, "rows 4"]
    scores: Float[np.ndarray, "rows classes"]
    class_numbers: Sequence[int]

    def boxes(self, frames: FrameNumbers) -> ScoredActionBoxes:
        """Return a scored box for each row and class, in the order of the file."""
        num = len(self.class_numbers)
        return ScoredActionBoxes(
            np.repeat(self.frames.numbers(frames), num),
            np.repeat(self.boxes_xyxy_unit, num, axis=0),
            np.tile(np.array(self.class_numbers, dtype=np.int64), len(self.scores)),
            self.scores.reshape(-1),
        )

    def text(self) -> str:
        """Return rows `video,time,x1,y1,x2,y2,action,score`."""
        rows = zip(self.frames.texts, self.boxes_xyxy_unit.tolist(), self.scores.tolist(), strict=True)
        return "".join(
            f"{place},{_corners(box)},{number},{score!r}\n"
            for place, box, scores in rows
            for number, score in zip(self.class_numbers, scores, strict=True)
        )


class AvaTruth(NamedTuple):
    """Annotated boxes with the numbers of their actions."""

    frames: AvaFrames
    boxes_xyxy_unit: Float[np.ndarray, "rows 4"]
    labels: Bool[np.ndarray, "rows classes"]
    class_numbers: Sequence[int]

    def boxes(self, frames: FrameNumbers) -> ActionBoxes:
        """Return a box for each row and action of it."""
        row, column = np.nonzero(self.labels)
        numbers = np.array(self.class_numbers, dtype=np.int64)
        return ActionBoxes(self.frames.numbers(frames)[row], self.boxes_xyxy_unit[row], numbers[column])

    def text(self) -> str:
        """Return rows `video,time,x1,y1,x2,y2,action`, or `video,time` for a box without an action."""
        lines: list[str] = []
        for place, box, does in zip(
            self.frames.texts, self.boxes_xyxy_unit.tolist(), self.labels, strict=True
        ):
            numbers = [self.class_numbers[at] for at in np.flatnonzero(does).tolist()]
            lines += [f"{place},{_corners(box)},{number}\n" for number in numbers] or [f"{place}\n"]
        return "".join(lines)


def label_map_text(class_names: Mapping[int, str]) -> str:
    """Return a label map of these classes."""
    return "".join(
        f'item {{\n  name: "{name}"\n  id: {number}\n}}\n' for number, name in sorted(class_names.items())
    )


def charades_scores_text(videos: Sequence[str], scores: Float[np.ndarray, "videos classes"]) -> str:
    """Return a line `id s0 s1 …` for each video; `nan` where a class was not scored."""
    rows = zip(videos, scores.tolist(), strict=True)
    return "".join(f"{video} {' '.join(map(repr, values))}\n" for video, values in rows)


def charades_truth_text(videos: Sequence[str], targets: Bool[np.ndarray, "videos classes"]) -> str:
    """Return a file with the columns `id` and `actions`; intervals are empty, because only their classes count."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(("id", "actions"))
    for video, shows in zip(videos, targets, strict=True):
        writer.writerow(
            (video, ";".join(f"c{number:03d} 0.00 0.00" for number in np.flatnonzero(shows).tolist()))
        )
    return text.getvalue()


def _time(time_s: float) -> str:
    return f"{int(time_s):04d}" if time_s == int(time_s) else f"{time_s:.6f}"


def _corners(box: Sequence[float]) -> str:
    return ",".join(map(repr, box))
