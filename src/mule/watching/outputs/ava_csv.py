"""`ava.csv`: what was seen as detections in AVA's format, and the label map its action ids refer to."""

import csv
from collections.abc import Iterable
from pathlib import Path

from mule.data.convert.ava_classes import AVA_80
from mule.data.table.writing import write_whole
from mule.watching.moments import Header, Moment


def write_ava(path: Path, header: Header, moments: Iterable[Moment]) -> None:
    """Rows `video,time,x1,y1,x2,y2,action,score`: one per actor and known action above the least probability.

    Boxes are in parts of the frame, and the score is the probability by the judgement that decides. A key time
    without such a row is there as `video,time` alone.
    """
    action_id = action_ids(header)

    def write(unfinished: Path) -> None:
        with unfinished.open("w", encoding="utf-8", newline="") as file:
            rows = csv.writer(file, lineterminator="\n")
            for moment in moments:
                rows.writerows(_rows(moment, header, action_id) or [[moment.video, _time(moment)]])

    write_whole(path, write)


def action_ids(header: Header) -> dict[str, int]:
    """The id of each class: AVA's own where all classes are AVA's, else its place in the header, from 1."""
    published = {name: number for number, name in AVA_80.items()}
    if published.keys() >= set(header.classes):
        return {name: published[name] for name in header.classes}
    return {name: number for number, name in enumerate(header.classes, start=1)}


def write_label_map(path: Path, header: Header) -> None:
    """The header's classes and their ids as AVA lists classes (.pbtxt)."""
    entries = [
        f"item {{\n  name: {_quoted(name)}\n  id: {number}\n}}\n"
        for name, number in action_ids(header).items()
    ]
    text = "".join(entries)
    write_whole(path, lambda unfinished: unfinished.write_text(text, encoding="utf-8"))


def _rows(moment: Moment, header: Header, action_id: dict[str, int]) -> list[list[str]]:
    return [
        [
            moment.video,
            _time(moment),
            *(f"{value:.6f}" for value in actor.box_xyxy_unit),
            str(action_id[opinion.action]),
            f"{opinion.probability:.6f}",
        ]
        for actor in moment.actors
        for opinion in actor.judged(header.threshold.view).actions
    ]


def _time(moment: Moment) -> str:
    return f"{moment.key_time_s:.6f}".rstrip("0").rstrip(".")


def _quoted(name: str) -> str:
    """The name in the quotation marks it does not hold itself; in a text protocol buffer both kinds will do."""
    escaped = name.replace("\\", "\\\\")
    return f"'{escaped}'" if '"' in name and "'" not in name else '"' + escaped.replace('"', '\\"') + '"'
