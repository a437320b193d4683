"""Convert VIAME CSV, as DIVE writes it: tracked boxes of one video, with classes and attributes.

    track, video or image, frame, x1, y1, x2, y2, confidence, length, class, confidence, …, (atr) name value, …

Boxes are in pixels, frames count from 0. Lines that begin with `#` are comments; one of them gives the frame rate of
the frame numbers in one of the forms `# metadata,fps: 5`, `# metadata - fps: "5"` and `#meta fps=5`.
"""

import math
import re
from collections.abc import Sequence
from fractions import Fraction
from pathlib import Path

from mule.core.errors import AnnotationError, VideoError
from mule.core.text_rows import numbers, read_chunks, shown
from mule.data.convert.conversion import (
    BoxSettings,
    ConversionReport,
    SeenBox,
    Sightings,
    is_frame_number,
    table_and_report,
)
from mule.data.table.table import ActorTable

NUM_FIXED_COLUMNS = 9

_FRAME_RATE = re.compile(r"fps\s*[:=]\s*\"*(\d+(?:\.\d+)?|\.\d+)", re.IGNORECASE)
_ATTRIBUTE = re.compile(r"\((?:atr|trk-atr)\)\s+(\S+)\s+(.+)", re.DOTALL)
_OTHER_TOKEN = re.compile(r"\([\w-]+\)")


def actors_from_viame(
    paths: Sequence[Path],
    settings: BoxSettings,
    *,
    videos: Path | None = None,
    min_confidence: float = 0.5,
) -> tuple[ActorTable, ConversionReport]:
    """Convert VIAME files, one per video; a video is named by the settings or else by its file.

    Args:
        paths: the files.
        settings: what to take from them, and what to assume if they do not state it.
        videos: folder of the videos, to read the frame size from if the settings do not give it.
        min_confidence: least confidence of a class.

    Raises:
        AnnotationError: a file has problems; the message lists them by line.
    """
    return table_and_report(
        [(path, _sightings(path, settings, videos, min_confidence)) for path in paths], "boxes"
    )


def size_of_video(folder: Path, video: str) -> tuple[int, int]:
    """Return the width and height of the frames of a video in a folder."""
    from mule.data.table.videos import find_videos
    from mule.video.reading import video_facts

    found = find_videos([video], folder)
    if video not in found.paths:
        reason = found.refused.get(video, "nothing of this name is there")
        raise VideoError(f"{folder}: must hold the video {video!r}; {reason.removesuffix('.')}.")
    facts = video_facts(found.paths[video])
    return facts.cols, facts.rows


def _sightings(path: Path, settings: BoxSettings, videos: Path | None, min_confidence: float) -> Sightings:
    video = settings.video or path.stem
    rows = [
        (line, row) for chunk in read_chunks(path) for line, row in zip(chunk.lines, chunk.rows, strict=True)
    ]
    comments = [",".join(row) for _, row in rows if row[0].lstrip().startswith("#")]
    frame_rate = settings.frame_rate or _frame_rate(path, comments)
    size_px = settings.size_px or (size_of_video(videos, video) if videos is not None else None)
    if size_px is None:
        raise AnnotationError(
            f"{path}: boxes in pixels need the size of the frames, which the file does not give. Give it with --size "
            "WIDTHxHEIGHT, or the folder of the videos with --videos."
        )
    sightings = Sightings(path, settings)
    for line, row in rows:
        if not row[0].lstrip().startswith("#"):
            sighting = _sighting(f"line {line}", row, video, min_confidence, sightings)
            if sighting is not None:
                sightings.add(sighting, size_px, frame_rate)
    return sightings


def _sighting(
    place: str, row: list[str], video: str, min_confidence: float, sightings: Sightings
) -> SeenBox | None:
    if len(row) < NUM_FIXED_COLUMNS:
        sightings.problems.add(place, f"a row must have at least {NUM_FIXED_COLUMNS} columns; got {len(row)}")
        return None
    frame, corners = row[2].strip(), numbers(row[3:7]).tolist()
    if not is_frame_number(frame) or not all(map(math.isfinite, corners)):
        sightings.problems.add(
            place,
            "columns 3 to 7 must be a frame number, 0 or more, and a box x1, y1, x2, y2 in pixels; got "
            f"{shown(', '.join(row[2:7]))}",
        )
        return None
    classes, tokens = _classes(place, row[NUM_FIXED_COLUMNS:], min_confidence, sightings)
    x1, y1, x2, y2 = corners
    return SeenBox(
        place, video, int(frame), (x1, y1, x2, y2), classes, _attributes(tokens), _actor(row[0].strip())
    )


def _classes(
    place: str, cells: list[str], min_confidence: float, sightings: Sightings
) -> tuple[tuple[str, ...], list[str]]:
    """Return the classes with enough confidence, and the cells after the pairs of class and confidence."""
    classes: list[str] = []
    at = 0
    while at + 1 < len(cells) and cells[at].strip() and not _OTHER_TOKEN.match(cells[at].strip()):
        confidence = numbers([cells[at + 1]])[0]
        if not 0 <= confidence <= 1:
            sightings.problems.add(
                place,
                f"the class {shown(cells[at])} must be followed by a confidence within 0..1; "
                f"got {shown(cells[at + 1])}",
            )
        elif confidence >= min_confidence:
            classes.append(cells[at].strip())
        else:
            sightings.noted["classes_below_the_confidence"] += 1
        at += 2
    return tuple(classes), cells[at:]


def _attributes(tokens: list[str]) -> dict[str, str]:
    matches = (_ATTRIBUTE.fullmatch(token.strip()) for token in tokens)
    return {match[1]: match[2] for match in matches if match is not None}


def _actor(track: str) -> str:
    """Return the track; VIAME gives a box without a track a negative number or none."""
    return "" if track.startswith("-") else track


def _frame_rate(path: Path, comments: list[str]) -> Fraction:
    for comment in comments:
        match = _FRAME_RATE.search(comment)
        if match is not None and float(match[1]) > 0:
            return Fraction(match[1])
    raise AnnotationError(
        f"{path}: frames need a frame rate, which must be in a comment like '# metadata,fps: 5'; there is none. "
        "Give it with --fps."
    )
