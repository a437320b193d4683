"""AIRTLab: staged scenes of two to four people, filmed by two cameras, labelled per clip.

    labels.csv   video, scene (such as violent-12), camera, actions (separated by `;`)
    clips/       the videos

Labels do not say who does what, so rows have no boxes: the whole frame acts, as in Charades. A scene must
stay on one side of a split. Takes of one action were filmed in a row, so scenes with close numbers share more
than their action. Keep blocks of consecutive scenes together, so that this does not separate known from
novel.
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
from mule.data.batches.video_clips import find_videos
from mule.data.convert.conversion import (
    EMPTY_BOX,
    WHOLE_VIDEO_S,
    ConversionReport,
    TableRow,
    actor_table,
    require_rows,
)
from mule.data.split.splits import NAMES_SHOWN
from mule.data.table.table import ACTION_SEPARATOR, ActorTable
from mule.data.table.videos import probe_videos
from mule.video.clips import key_times

LABELS, CLIPS = "labels.csv", "clips"
BLOCK_SCENES = 5

_COLUMNS = ("video", "scene", "camera", "actions")
_SCENE = re.compile(r"([a-z][a-z-]*)-(\d{1,6})")

Rows = Literal["video", "middle", "clips"]


class Take(NamedTuple):
    """One clip: a scene filmed by one camera."""

    video: str
    kind: str
    """The part of the scene's name before its number: violent or non-violent."""
    scene: int
    camera: str
    actions: frozenset[str]


def actors_from_airtlab(
    folder: Path, rows: Rows = "video", *, period_s: Fraction = Fraction(1)
) -> tuple[ActorTable, ConversionReport]:
    """Return the clips as rows without boxes; every row of a clip has all actions of the clip.

    Args:
        folder: a folder with `labels.csv` and, unless rows stand for whole videos, `clips`.
        rows: `video` gives a row without a time, from which training draws clips; `middle` a row for the
            middle of the video, as a frozen backbone needs; `clips` rows at times S, 2S, … before the end, or
            the middle if there are none.
        period_s: S.

    Raises:
        AnnotationError: the file has problems; the message names all of them by line.
        VideoError: a video is missing, cannot be read, or does not state its length.
    """
    takes = read_takes(folder / LABELS)
    length_s = {} if rows == "video" else lengths_s(folder / CLIPS, [take.video for take in takes])
    table = actor_table(
        TableRow(take.video, time_s, EMPTY_BOX, take.actions, "")
        for take in takes
        for time_s in _moments(rows, length_s.get(take.video, Fraction(0)), period_s)
    )
    noted = {"scenes": len({(take.kind, take.scene) for take in takes})}
    report = ConversionReport("videos", len(takes), len(table), {}, noted)
    require_rows(report, folder / LABELS)
    return table, report


def read_takes(path: Path) -> list[Take]:
    """Read the rows of `labels.csv`."""
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
                    line,
                    f"a video must have one row; {shown(video)} is also in line {line_of[video.strip()]}",
                )
    problems.raise_if_any()
    return takes


def write_takes(path: Path, takes: Iterable[Take], *, block_scenes: int = BLOCK_SCENES) -> None:
    """Write the groups of each video: scene, camera and block, which spans `block_scenes` scene numbers."""

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
        wrong.append(f"scene must be named like 'violent-12', with a number from 1; got {shown(scene)}")
    if "" in names or len(set(names)) < len(names):
        wrong.append(f"actions must be distinct names separated by semicolons; got {shown(actions)}")
    for what in wrong:
        problems.add(line, what)
    return None if wrong or found is None else Take(video, found[1], int(found[2]), camera, frozenset(names))


def lengths_s(folder: Path, videos: Sequence[str]) -> dict[str, Fraction]:
    """Return the length of each video in the folder.

    Raises:
        VideoError: a video is missing, cannot be read, or does not state its length.
    """
    found = find_videos(videos, folder)
    probed = probe_videos(found.paths)
    unstated = [name for name, video in probed.readable.items() if video.length_s is None]
    wrong = {
        **dict.fromkeys(found.missing, "is missing"),
        **found.refused,
        **probed.unreadable,
        **dict.fromkeys(unstated, "does not state its length"),
    }
    if wrong:
        reasons = "; ".join(
            f"{name}: {why.removesuffix('.')}" for name, why in list(wrong.items())[:NAMES_SHOWN]
        )
        raise VideoError(
            f"{folder}: the length of every video must be known to place rows within it; {len(wrong)} of "
            f"{len(videos)} videos have none ({reasons}). Add the videos, or use whole videos (--rows video)."
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
