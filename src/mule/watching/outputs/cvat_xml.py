"""CVAT for video 1.1: an XML file with a track per actor."""

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path, PurePath
from typing import NamedTuple
from xml.etree import ElementTree
from xml.etree.ElementTree import Element, SubElement

from mule.data.table.writing import write_whole
from mule.video.clips import exact
from mule.watching.moments import Box, Header, Moment, SeenActor
from mule.watching.outputs.labels import PERSON, frame_number, labels_of, novel_label


class _Place(NamedTuple):
    frame: int
    box_px: Box
    actor: SeenActor | None
    """None ends the track: the actor is no longer there."""


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
    write_whole(path, lambda unfinished: tree.write(unfinished, encoding="utf-8", xml_declaration=True))


def _leave(places: list[_Place]) -> None:
    places.append(_Place(places[-1].frame + 1, places[-1].box_px, None))


def _annotations(header: Header, tracks: Mapping[int, Sequence[_Place]], num_frames: int) -> Element:
    marks = (*header.classes, novel_label(header))
    root = Element("annotations")
    _add_text(root, "version", "1.1")
    _add_meta(root, header, marks, num_frames)
    for number, places in sorted(tracks.items()):
        track = SubElement(root, "track", id=str(number), label=PERSON, source="auto")
        for place in places:
            _add_box(track, place, header, marks)
    return root


def _add_box(track: Element, place: _Place, header: Header, marks: Sequence[str]) -> None:
    said = set() if place.actor is None else {label.name for label in labels_of(place.actor, header)}
    corners = zip(("xtl", "ytl", "xbr", "ybr"), (f"{value:.3f}" for value in place.box_px), strict=True)
    state = {"keyframe": "1", "outside": "1" if place.actor is None else "0", "occluded": "0"}
    box = SubElement(track, "box", {"frame": str(place.frame), **state, **dict(corners), "z_order": "0"})
    for mark in marks:
        SubElement(box, "attribute", name=mark).text = "true" if mark in said else "false"


def _add_meta(root: Element, header: Header, marks: Sequence[str], num_frames: int) -> None:
    source = header.source
    task = SubElement(SubElement(root, "meta"), "task")
    _add_text(task, "name", source.video)
    _add_text(task, "size", str(num_frames))
    _add_text(task, "mode", "interpolation")
    _add_text(task, "start_frame", "0")
    _add_text(task, "stop_frame", str(num_frames - 1))
    label = SubElement(SubElement(task, "labels"), "label")
    _add_text(label, "name", PERSON)
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
