"""What was seen, in the formats of other tools: AVA's CSV, COCO and KWCOCO, VIAME (DIVE) and CVAT for video, and tables.

An actor's labels come from the judgement that decides: the track so far, or the key time alone, as the threshold says. A
novel actor has the label `novel` beside its known actions, if any; any other actor without an action is a `person`. Frames
are those on screen at the key times.
"""

import csv
import json
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import chain
from pathlib import Path, PurePath
from typing import Any, NamedTuple
from xml.etree import ElementTree
from xml.etree.ElementTree import Element, SubElement

from mule.core.errors import RangeError, did_you_mean
from mule.core.files import write_file
from mule.core.text_rows import write_csv
from mule.data.convert.ava_files import AVA_80
from mule.video.clips import SAME_INSTANT_S, exact
from mule.watching.exchange import write_moments_csv, write_moments_parquet
from mule.watching.moments import Box, Header, Moment, SeenActor, novelty_of

PERSON_LABEL = "person"


class Label(NamedTuple):
    """A class and its confidence."""

    name: str
    confidence: float


def novel_label(header: Header) -> str:
    """Return the label of novel actors: `novel`, with a star if a known class has that name."""
    name = "novel"
    while name in header.classes:
        name += "*"
    return name


def export_labels(actor: SeenActor, header: Header) -> tuple[Label, ...]:
    """Return the labels of an actor, at least one: its known actions, and `novel` with its novelty if it is novel."""
    actions = actor.judged(header.threshold.view).actions
    labels = [Label(each.action, each.probability) for each in actions]
    if actor.is_novel:
        labels.append(Label(novel_label(header), novelty_of(actor, header.threshold)))
    return tuple(labels) or (Label(PERSON_LABEL, actor.detection_score),)


def frame_number(key_time_s: float, header: Header) -> int:
    """Return the number of the frame on screen at a key time, from 0, at the source's frame rate."""
    return math.floor((exact(key_time_s) + SAME_INSTANT_S) * header.source.rate)


def write_ava(path: Path, header: Header, moments: Iterable[Moment]) -> None:
    """Write rows `video,time,x1,y1,x2,y2,action,score`: one per actor and reported action.

    Boxes are fractions of the frame's size, and the score is the probability by the judgement that decides. A key time
    without such a row appears as `video,time` alone.
    """
    action_id = action_ids(header)

    def write(unfinished: Path) -> None:
        with unfinished.open("w", encoding="utf-8", newline="") as file:
            rows = csv.writer(file, lineterminator="\n")
            for moment in moments:
                rows.writerows(_rows(moment, header, action_id) or [[moment.video, _time(moment)]])

    write_file(path, write)


def action_ids(header: Header) -> dict[str, int]:
    """Return the id of each class: AVA's own if all classes are AVA's, else its place in the header, from 1."""
    published = {name: number for number, name in AVA_80.items()}
    if published.keys() >= set(header.classes):
        return {name: published[name] for name in header.classes}
    return {name: number for number, name in enumerate(header.classes, start=1)}


def write_label_map(path: Path, header: Header) -> None:
    """Write the header's classes and their ids in AVA's label map format (.pbtxt)."""
    entries = [
        f"item {{\n  name: {_quoted(name)}\n  id: {number}\n}}\n"
        for name, number in action_ids(header).items()
    ]
    write_file(path, "".join(entries))


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
    """Quote the name with the quotation marks it does not contain; a text protocol buffer takes both kinds."""
    escaped = name.replace("\\", "\\\\")
    return f"'{escaped}'" if '"' in name and "'" not in name else '"' + escaped.replace('"', '\\"') + '"'


class _Place(NamedTuple):
    frame: int
    box_px: Box
    actor: SeenActor | None
    """None ends the track: the actor has left."""


def write_cvat(path: Path, header: Header, moments: Iterable[Moment]) -> None:
    """CVAT for video 1.1: a track per actor with a box at each key time, which CVAT joins by straight motion.

    Every track is a `person`; each known class, and novel, is a tick box. A track ends, or pauses, one frame after
    the last key time in a row at which the actor was seen.
    """
    tracks: dict[int, list[_Place]] = {}
    seen_before: set[int] = set()
    last_frame = 0
    for moment in moments:
        frame = frame_number(moment.key_time_s, header)
        for actor in moment.actors:
            tracks.setdefault(actor.track_id, []).append(_Place(frame, actor.box_xyxy_px, actor))
        present = {actor.track_id for actor in moment.actors}
        for track in seen_before - present:
            _leave(tracks[track])
        seen_before, last_frame = present, frame
    duration_s = header.source.duration_s
    num_frames = max(
        last_frame + 1, 0 if duration_s is None else round(exact(duration_s) * header.source.rate)
    )
    for track in seen_before:
        if tracks[track][-1].frame + 1 < num_frames:
            _leave(tracks[track])
    tree = ElementTree.ElementTree(_annotations(header, tracks, num_frames))
    ElementTree.indent(tree)
    write_file(path, lambda unfinished: tree.write(unfinished, encoding="utf-8", xml_declaration=True))


def _leave(places: list[_Place]) -> None:
    places.append(_Place(places[-1].frame + 1, places[-1].box_px, None))


def _annotations(header: Header, tracks: Mapping[int, Sequence[_Place]], num_frames: int) -> Element:
    marks = (*header.classes, novel_label(header))
    root = Element("annotations")
    _add_text(root, "version", "1.1")
    _add_meta(root, header, marks, num_frames)
    for number, places in sorted(tracks.items()):
        track = SubElement(root, "track", id=str(number), label=PERSON_LABEL, source="auto")
        for place in places:
            _add_box(track, place, header, marks)
    return root


def _add_box(track: Element, place: _Place, header: Header, marks: Sequence[str]) -> None:
    names = set() if place.actor is None else {label.name for label in export_labels(place.actor, header)}
    corners = zip(("xtl", "ytl", "xbr", "ybr"), (f"{value:.3f}" for value in place.box_px), strict=True)
    state = {"keyframe": "1", "outside": "1" if place.actor is None else "0", "occluded": "0"}
    box = SubElement(track, "box", {"frame": str(place.frame), **state, **dict(corners), "z_order": "0"})
    for mark in marks:
        SubElement(box, "attribute", name=mark).text = "true" if mark in names else "false"


def _add_meta(root: Element, header: Header, marks: Sequence[str], num_frames: int) -> None:
    source = header.source
    task = SubElement(SubElement(root, "meta"), "task")
    _add_text(task, "name", source.video)
    _add_text(task, "size", str(num_frames))
    _add_text(task, "mode", "interpolation")
    _add_text(task, "start_frame", "0")
    _add_text(task, "stop_frame", str(num_frames - 1))
    label = SubElement(SubElement(task, "labels"), "label")
    _add_text(label, "name", PERSON_LABEL)
    attributes = SubElement(label, "attributes")
    for mark in marks:
        attribute = SubElement(attributes, "attribute")
        _add_text(attribute, "name", mark)
        _add_text(attribute, "mutable", "True")
        _add_text(attribute, "input_type", "checkbox")
        _add_text(attribute, "default_value", "false")
        _add_text(attribute, "values", "false")
    size = SubElement(task, "original_size")
    _add_text(size, "width", str(source.cols))
    _add_text(size, "height", str(source.rows))
    _add_text(task, "source", PurePath(source.address).name or source.video)


def _add_text(parent: Element, tag: str, text: str) -> None:
    SubElement(parent, tag).text = text


_VIAME_COLUMNS = (
    "# 1: Detection or Track-id",
    "2: Video or Image Identifier",
    "3: Unique Frame Identifier",
    "4-7: Img-bbox(TL_x",
    "TL_y",
    "BR_x",
    "BR_y)",
    "8: Detection or Length Confidence",
    "9: Target Length (0 or -1 if invalid)",
    "10-11+: Repeated Species",
    "Confidence Pairs or Attributes",
)


def write_coco(path: Path, header: Header, moments: Iterable[Moment]) -> None:
    """Write COCO with videos, as KWCOCO and CocoVID read it: an image per key time, an annotation per actor and label.

    Annotations of one actor share `track_id`; `score` is the action's probability, or the novelty.
    """
    source = header.source
    names = list(dict.fromkeys((*header.classes, novel_label(header), PERSON_LABEL)))
    category = {name: number for number, name in enumerate(names, start=1)}
    images: list[dict[str, Any]] = []
    annotations: list[dict[str, Any]] = []
    tracks: set[int] = set()
    for moment in moments:
        frame = frame_number(moment.key_time_s, header)
        image = {"id": len(images) + 1, "video_id": 1, "frame_index": frame, "time_s": moment.key_time_s}
        size = {"width": moment.cols, "height": moment.rows}
        images.append(image | size | {"name": f"frame {frame}", "file_name": None})
        for actor in moment.actors:
            tracks.add(actor.track_id)
            for label in export_labels(actor, header):
                number = {"id": len(annotations) + 1, "image_id": image["id"]}
                annotations.append(
                    number | {"category_id": category[label.name]} | _coco_actor(actor, header, label)
                )
    video = {"id": 1, "name": source.video, "file_name": source.address, "fps": float(source.rate)}
    content = {
        "info": {"description": f"{source.video}, watched with {header.model.name}"},
        "videos": [video | {"width": source.cols, "height": source.rows}],
        "categories": [{"id": number, "name": name} for name, number in category.items()],
        "tracks": [{"id": number, "name": f"actor {number}"} for number in sorted(tracks)],
        "images": images,
        "annotations": annotations,
    }
    write_file(path, json.dumps(content, ensure_ascii=False, indent=1, allow_nan=False) + "\n")


def _coco_actor(actor: SeenActor, header: Header, label: Label) -> dict[str, Any]:
    x1, y1, x2, y2 = actor.box_xyxy_px
    novelty = actor.judged(header.threshold.view).novelty
    return {
        "track_id": actor.track_id,
        "bbox": [x1, y1, x2 - x1, y2 - y1],
        "area": (x2 - x1) * (y2 - y1),
        "iscrowd": 0,
        "score": label.confidence,
        "decision": actor.decision,
        "novelty": novelty_of(actor, header.threshold),
        "p_value": novelty.p_value,
    }


def write_viame(path: Path, header: Header, moments: Iterable[Moment]) -> None:
    """Write VIAME CSV, which DIVE opens: a row per actor and key time, labels with confidences, novelty as attributes."""
    facts = ["# metadata", f"fps: {float(header.source.rate):.12g}", 'exported_by: "mule"']
    rows = (_viame_row(actor, moment, header) for moment in moments for actor in moment.actors)
    write_csv(path, _VIAME_COLUMNS, chain([facts], rows))


def _viame_row(actor: SeenActor, moment: Moment, header: Header) -> list[str]:
    labels = sorted(export_labels(actor, header), key=lambda label: -label.confidence)
    return [
        str(actor.track_id),
        moment.video,
        str(frame_number(moment.key_time_s, header)),
        *(f"{value:.3f}" for value in actor.box_xyxy_px),
        f"{actor.detection_score:.4f}",
        "-1",
        *(cell for label in labels for cell in (label.name, f"{label.confidence:.4f}")),
        f"(atr) decision {actor.decision}",
        f"(atr) novelty {novelty_of(actor, header.threshold):.6f}",
    ]


EXPORTS: dict[str, tuple[str, Callable[[Path, Header, Iterable[Moment]], None]]] = {
    "coco": ("coco.json", write_coco),
    "viame": ("viame.csv", write_viame),
    "cvat": ("cvat.xml", write_cvat),
    "csv": ("moments.csv", write_moments_csv),
    "parquet": ("moments.parquet", write_moments_parquet),
}
"""The file and its writer, by the name that `--export` takes."""


def require_exports(names: Iterable[str]) -> None:
    """Stop unless every name is an export format."""
    unknown = [name for name in names if name not in EXPORTS]
    if unknown:
        raise RangeError(
            f"--export must be one of {', '.join(EXPORTS)}; got {', '.join(unknown)}."
            + did_you_mean(unknown[0], EXPORTS)
        )
