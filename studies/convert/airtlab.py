"""AIRTLab: staged scenes of two to four people, each filmed by two cameras, with the actions of the whole clip.

    labels.csv   video, scene, camera, actions        actions are separated by `;`, a scene reads like violent-12
    clips/       the videos

Nobody said who does what, so rows are without boxes: the whole frame acts, as in Charades. A scene must not lie on two
sides of a split. Takes of one action were filmed in a row, so scenes with near numbers are alike in more than their
action; blocks of consecutive scenes that stay together keep this from telling known from novel.
"""

import csv
import re
from collections.abc import Iterable, Sequence
from fractions import Fraction
from pathlib import Path
from typing import Literal, NamedTuple

from mule.core.errors import VideoError
from mule.core.files import write_file
from mule.core.text_rows import Problems, read_named_columns, shown
from mule.data.convert.conversion import (
    WHOLE_FRAME,
    WHOLE_VIDEO_S,
    ConversionReport,
    TableRow,
    actor_table,
    require_rows,
)
from mule.data.split.splits import NAMES_SHOWN
from mule.data.table.table import ACTION_SEPARATOR, ActorTable
from mule.data.table.videos import find_videos, probe_videos
from mule.video.clips import key_times

LABELS, CLIPS = "labels.csv", "clips"
BLOCK_SCENES = 5

_COLUMNS = ("video", "scene", "camera", "actions")
_SCENE = re.compile(r"([a-z][a-z-]*)-(\d{1,6})")

Rows = Literal["video", "middle", "clips"]


class Take(NamedTuple):
    """One clip: a scene as one camera saw it."""

    video: str
    kind: str
    """What comes before the number of the scene: violent or non-violent."""
    scene: int
    camera: str
    actions: frozenset[str]


def actors_from_airtlab(
    folder: Path, rows: Rows = "video", *, period_s: Fraction = Fraction(1)
) -> tuple[ActorTable, ConversionReport]:
    """The clips as rows without boxes; every row of a clip has all its actions.

    Args:
        folder: with `labels.csv` and, unless rows are of whole videos, `clips`.
        rows: `video` is a row without a time, from which training draws clips; `middle` the moment in the middle, as a
            frozen backbone needs it; `clips` key times S, 2S, … before the end, or the middle if there are none.
        period_s: S.

    Raises:
        AnnotationError: all that is wrong with the file, by line.
        VideoError: videos are missing, cannot be read, or do not state their length.
    """
    takes = read_takes(folder / LABELS)
    length_s = {} if rows == "video" else lengths_s(folder / CLIPS, [take.video for take in takes])
    table = actor_table(
        TableRow(take.video, time_s, WHOLE_FRAME, take.actions, "")
        for take in takes
        for time_s in _moments(rows, length_s.get(take.video, Fraction(0)), period_s)
    )
    noted = {"scenes": len({(take.kind, take.scene) for take in takes})}
    report = ConversionReport("videos", len(takes), len(table), {}, noted)
    require_rows(report, folder / LABELS)
    return table, report


def read_takes(path: Path) -> list[Take]:
    """The rows of `labels.csv`."""
    problems = Problems(path)
    takes: list[Take] = []
    line_of: dict[str, int] = {}
    for columns in read_named_columns(path, _COLUMNS, problems):
        cells = zip(*(columns.texts[name] for name in _COLUMNS), strict=True)
        for line, (video, scene, camera, actions) in zip(columns.lines, cells, strict=True):
            take = _take(video.strip(), scene.strip(), camera.strip(), actions, line, problems)
            if take is not None:
                takes.append(take)
            if line_of.setdefault(video.strip(), line) != line:
                problems.add(
                    line, f"a video must have one row; {shown(video)} is in line {line_of[video.strip()]}"
                )
    problems.raise_if_any()
    return takes


def write_takes(path: Path, takes: Iterable[Take], *, block_scenes: int = BLOCK_SCENES) -> None:
    """What splits go by, as `video, scene, camera, block`: a block is so many scene numbers in a row."""

    def write(unfinished: Path) -> None:
        with unfinished.open("w", encoding="utf-8", newline="") as file:
            writer = csv.writer(file, lineterminator="\n")
            writer.writerow(("video", "scene", "camera", "block"))
            for take in takes:
                block = f"{take.kind}-block-{(take.scene - 1) // block_scenes + 1}"
                writer.writerow((take.video, f"{take.kind}-{take.scene}", take.camera, block))

    write_file(path, write)


def _take(video: str, scene: str, camera: str, actions: str, line: int, problems: Problems) -> Take | None:
    names = [name.strip() for name in actions.split(ACTION_SEPARATOR)]
    found = _SCENE.fullmatch(scene)
    wrong: list[str] = []
    if not video or not camera:
        wrong.append("video and camera must not be empty")
    if found is None or not int(found[2]):
        wrong.append(f"scene must read like 'violent-12', numbers from 1; got {shown(scene)}")
    if "" in names or len(set(names)) < len(names):
        wrong.append(f"actions must be names, each once, between semicolons; got {shown(actions)}")
    for what in wrong:
        problems.add(line, what)
    return None if wrong or found is None else Take(video, found[1], int(found[2]), camera, frozenset(names))


def lengths_s(folder: Path, videos: Sequence[str]) -> dict[str, Fraction]:
    """The length of each video in the folder.

    Raises:
        VideoError: some are missing, cannot be read, or do not state their length.
    """
    found = find_videos(videos, folder)
    probed = probe_videos(found.paths)
    unstated = [name for name, video in probed.readable.items() if video.length_s is None]
    wrong = {
        **dict.fromkeys(found.missing, "is not there"),
        **found.refused,
        **probed.unreadable,
        **dict.fromkeys(unstated, "does not state its length"),
    }
    if wrong:
        told = "; ".join(
            f"{name}: {why.removesuffix('.')}" for name, why in list(wrong.items())[:NAMES_SHOWN]
        )
        raise VideoError(
            f"{folder}: to choose moments inside videos the length of each must be known; of {len(videos)} videos "
            f"{len(wrong)} have none ({told}). Fetch them, or take whole videos (--rows video)."
        )
    return {
        name: Fraction(video.length_s or 0).limit_denominator(1_000_000)
        for name, video in probed.readable.items()
    }


def _moments(rows: Rows, length_s: Fraction, period_s: Fraction) -> list[float]:
    if rows == "video":
        return [WHOLE_VIDEO_S]
    within = list(key_times(period_s, length_s, period_s=period_s)) if rows == "clips" else []
    return [float(time_s) for time_s in within or [length_s / 2]]
