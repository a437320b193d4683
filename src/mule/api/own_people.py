"""The people of a table: where rows have no time or no box, people are looked for.

rows without a time ─▶ key times spread over the clip
rows without a box  ─▶ people that the detector finds there ─▶ the main ones have the clip's actions
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from mule.core.errors import TooFewActors, VideoError
from mule.core.files import sha256_while_unchanged
from mule.core.progress import advance
from mule.data.convert.conversion import EMPTY_BOX, TableRow, actor_table
from mule.data.convert.detected import detected_actors, detected_boxes
from mule.data.convert.detecting import SeenBoxes, VideoBoxes, key_times_by_video
from mule.data.convert.partial_boxes import PartialBoxes
from mule.data.table.table import ActorTable, joined_tables
from mule.data.table.videos import VideoOnDisk, find_videos, probe_videos
from mule.detection.named import detector_place, load_detector

MOMENT_EVERY_S, MOST_MOMENTS = 2.0, 8
"""A label of a whole clip counts at a moment every two seconds, at most eight of them, spread evenly."""
LEAST_HEIGHT = 0.5
"""Of the people found in a clip, those at least this tall beside the tallest have its actions; others stand in the background."""
_FRAMES_PER_CALL = 8


@dataclass(frozen=True)
class People:
    """The actors to train on, and how they came about."""

    actors: ActorTable
    sentences: tuple[str, ...] = ()


def require_readable(table: ActorTable, folder: Path) -> Mapping[str, VideoOnDisk]:
    """Open every video that the table names.

    Raises:
        VideoError: some are missing or cannot be read.
    """
    found = find_videos(sorted(set(table.video_names)), folder)
    opened = probe_videos(found.paths, on_progress=lambda *count: advance("opening videos", *count))
    lacking = {**dict.fromkeys(found.missing, "missing"), **found.refused, **opened.unreadable}
    if lacking:
        shown = ", ".join(f"{name} ({why})" for name, why in list(lacking.items())[:5])
        raise VideoError(
            f"{folder}: every video of the table must be here and readable; {len(lacking)} are not: {shown}"
            f"{', …' if len(lacking) > 5 else ''}. Remove their rows: `mule data check TABLE --videos {folder} "
            "--leave-out-missing KEPT.csv`."
        )
    return opened.readable


def people_with_boxes(
    table: ActorTable, videos: Mapping[str, VideoOnDisk], *, detector: str, partial: Path
) -> People:
    """Return the table with a time and a box in every row; people are looked for where it has no box.

    Args:
        table: rows with or without time and box.
        videos: its videos.
        detector: file or name of the detector, needed if a row has no box.
        partial: file that keeps what was found, so that an interrupted search continues.

    Raises:
        TooFewActors: nobody was found.
    """
    if table.has_box.all():
        return People(table)
    whole = _timed(table.at(~table.has_box), videos)
    boxes, num_before = _found(whole, videos, detector, partial)
    people = detected_actors(whole, [_main_people(each) for each in boxes])
    found = people.actors.at(people.actors.has_box)
    if not len(found):
        raise TooFewActors(
            f"at least one person must be found in the clips; {detector} found none in {people.num_clips}. Try another "
            "detector, or give boxes in the table."
        )
    sentences = (
        f"people: {len(found)} found by {Path(detector).name} at {people.num_clips} moments of {len(boxes)} videos, "
        f"{_source(num_before, len(boxes), partial)}; everybody at least half as tall as the tallest there has the clip's actions",
        *(
            [f"{people.num_without} moments are left out: nobody was found there"]
            if people.num_without
            else []
        ),
    )
    given = table.at(table.has_box)
    return People(joined_tables([given, found]) if len(given) else found, sentences)


def _source(num_before: int, num_videos: int, partial: Path) -> str:
    if not num_before:
        return "searched now"
    return f"{num_before} read from {partial}, {num_videos - num_before} searched now"


def moments_of(length_s: float | None) -> list[float]:
    """Return the key times that stand for a whole clip.

    >>> moments_of(1.2), moments_of(5.0), len(moments_of(600.0))
    ([0.6], [1.25, 3.75], 8)
    """
    length_s = length_s or 0.0
    number = min(max(1, int(length_s / MOMENT_EVERY_S)), MOST_MOMENTS)
    return [round((at + 0.5) * length_s / number, 3) for at in range(number)]


def _timed(table: ActorTable, videos: Mapping[str, VideoOnDisk]) -> ActorTable:
    rows: list[TableRow] = []
    for row, (video, time_s) in enumerate(zip(table.video_names, table.time_s.tolist(), strict=True)):
        times = moments_of(videos[video].length_s) if np.isnan(time_s) else [time_s]
        actions = frozenset(table.action_names(row))
        rows += [TableRow(video, each, EMPTY_BOX, actions, "") for each in times]
    return actor_table(rows)


def _found(
    table: ActorTable, videos: Mapping[str, VideoOnDisk], detector: str, partial: Path
) -> tuple[Sequence[VideoBoxes], int]:
    """Return the boxes of each video, and how many videos were searched before."""
    place = detector_place(detector)
    times = key_times_by_video(table.videos, table.video_index, table.time_s)
    named = {name: videos[name] for name in table.videos}
    kept = PartialBoxes(partial, {"detector": f"{place.name} ({sha256_while_unchanged(place)[:12]})"})
    num_before = len(kept.finished(named.values())[0])
    loaded = load_detector(place)
    found = detected_boxes(
        named,
        times,
        [SeenBoxes(loaded, loaded.actor_score, object_score=1.0)],
        kept,
        batch_frames=_FRAMES_PER_CALL,
        on_progress=lambda *count: advance("finding people", *count),
    )
    if found.unreadable:
        name, why = next(iter(found.unreadable.items()))
        raise VideoError(
            f"{named[name].path}: every video must be readable; {why}. Remove its rows from the table."
        )
    return found.videos, num_before


def _main_people(boxes: VideoBoxes) -> VideoBoxes:
    """Keep the people who are at least half as tall as the tallest of their frame."""
    height = boxes.boxes_xyxy_unit[:, 3] - boxes.boxes_xyxy_unit[:, 1]
    tallest = np.zeros(len(boxes.times_s))
    np.maximum.at(tallest, boxes.frame_index, np.where(boxes.is_person, height, 0.0))
    kept = boxes.is_person & (height >= LEAST_HEIGHT * tallest[boxes.frame_index])
    return replace(
        boxes,
        frame_index=boxes.frame_index[kept],
        class_names=tuple(boxes.class_names[at] for at in np.flatnonzero(kept).tolist()),
        scores=boxes.scores[kept],
        boxes_xyxy_unit=boxes.boxes_xyxy_unit[kept],
    )
