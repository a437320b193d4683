"""Convert CVAT for video 1.1: an XML file with the tracks of one video, a box per frame and actions in attributes.

Frames count from 0 at the start of the video, even if only a part was annotated. The file gives the size of the frames
(`meta/task/original_size`) but not the frame rate. The file is read tag by tag, never as a whole.
"""

import math
from collections.abc import Sequence
from fractions import Fraction
from pathlib import Path
from typing import BinaryIO, NamedTuple, Protocol, runtime_checkable
from xml.parsers import expat

from mule.core.errors import AnnotationError
from mule.core.files import os_reason
from mule.core.text_rows import numbers, shown
from mule.data.convert.conversion import (
    BoxSettings,
    ConversionReport,
    Corners,
    SeenBox,
    Sightings,
    SizePx,
    is_frame_number,
    table_and_report,
)
from mule.data.table.table import ActorTable

XML_BLOCK_BYTES, MOST_TAG_BYTES = 1 << 16, 1 << 19
"""A tag with its attributes may have this many bytes."""


@runtime_checkable
class TagHandler(Protocol):
    """Receives the tags of a file while it is read; `outer` are the enclosing tags."""

    def started(self, tag: str, values: dict[str, str], outer: Sequence[str], line: int) -> None:
        """Handle the start of a tag."""
        ...

    def ended(self, tag: str, text: str, outer: Sequence[str]) -> None:
        """Handle the end of a tag; `text` is its text after the last inner tag."""
        ...


def read_xml(path: Path, handler: TagHandler, *, kind: str) -> None:
    """Read an XML file and pass every tag to the handler.

    Args:
        path: the file.
        handler: collects the content.
        kind: what the file must be, for error messages, such as "XML".

    Raises:
        AnnotationError: the file cannot be read, is not XML, or declares a document type.
    """
    parser = expat.ParserCreate()
    tags: list[str] = []
    text: list[str] = []

    def start(tag: str, values: dict[str, str]) -> None:
        handler.started(tag, values, tags, parser.CurrentLineNumber)
        tags.append(tag)
        text.clear()

    def end(tag: str) -> None:
        tags.pop()
        handler.ended(tag, "".join(text).strip(), tags)
        text.clear()

    def refuse(*_: object) -> None:
        raise AnnotationError(
            f"{path}, line {parser.CurrentLineNumber}: must not declare a document type (<!DOCTYPE …>), with which a "
            "small file can fill the memory; such files have none. Remove it."
        )

    parser.StartElementHandler = start
    parser.EndElementHandler = end
    parser.CharacterDataHandler = text.append
    parser.StartDoctypeDeclHandler = refuse
    try:
        with path.open("rb") as file:
            _feed(parser, file, path)
    except OSError as error:
        raise AnnotationError(f"{path}: must be a readable file; {os_reason(error)}.") from None
    except expat.ExpatError as error:
        raise AnnotationError(
            f"{path}, line {error.lineno}: must be {kind}; {expat.ErrorString(error.code)}."
        ) from None
    except AnnotationError:
        raise
    except (LookupError, ValueError) as error:  # unknown encodings
        raise AnnotationError(f"{path}: must be XML in UTF-8; {error}.") from None


def _feed(parser: expat.XMLParserType, file: BinaryIO, path: Path) -> None:
    """Parse a file block by block; expat would read a long tag again with every block."""
    fed = 0
    while block := file.read(XML_BLOCK_BYTES):
        parser.Parse(block, False)
        fed += len(block)
        if fed - parser.CurrentByteIndex > MOST_TAG_BYTES:
            raise AnnotationError(
                f"{path}, line {parser.CurrentLineNumber}: a tag with its attributes must have at most "
                f"{MOST_TAG_BYTES:,} bytes; one has more. Is the file damaged?"
            )
    parser.Parse(b"", True)


SHAPES = frozenset(
    {"box", "cuboid", "ellipse", "mask", "points", "polygon", "polyline", "rectangle", "skeleton"}
)

_CORNERS = ("xtl", "ytl", "xbr", "ybr")
_OF_A_TASK = frozenset({"frame_filter", "size", "source", "start_frame", "stop_frame"})


def actors_from_cvat(paths: Sequence[Path], settings: BoxSettings) -> tuple[ActorTable, ConversionReport]:
    """Convert CVAT files, one per video.

    The video is named by the settings, by the `source` of the file without its suffix, or by the XML file. Boxes where
    the track is `outside` and shapes other than boxes are left out. A rotated box becomes the upright box around it.

    Raises:
        AnnotationError: a file has problems; the message lists them by line.
    """
    if settings.frame_rate is None:
        raise AnnotationError(
            f"{paths[0]}: frames need a frame rate, which CVAT files do not contain. Give it with --fps."
        )
    return table_and_report(
        [(path, _sightings(path, settings, settings.frame_rate)) for path in paths], "boxes"
    )


class _Shape(NamedTuple):
    line: int
    kind: str
    track: dict[str, str]
    values: dict[str, str]
    attributes: dict[str, str]


class _Document:
    """Collects the shapes and the description of a file."""

    def __init__(self, path: Path) -> None:
        self.shapes: list[_Shape] = []
        self.meta: dict[str, str] = {}
        self.tasks: set[str] = set()
        self._path = path
        self._track: dict[str, str] = {}
        self._attribute = ""

    def started(self, tag: str, values: dict[str, str], outer: Sequence[str], line: int) -> None:
        """Collect tracks, shapes and names of attributes."""
        inside = outer[-1] if outer else ""
        if (not inside and tag != "annotations") or (inside == "annotations" and tag == "image"):
            raise AnnotationError(
                f"{self._path}, line {line}: must hold tracks, as 'CVAT for video 1.1' writes them; got <{tag}>. "
                "Export the task in that format."
            )
        if tag == "track":
            self._track = values
            self.tasks.add(values.get("task_id", ""))
        elif inside == "track" and tag in SHAPES:
            self.shapes.append(_Shape(line, tag, self._track, values, {}))
        elif tag == "attribute":
            self._attribute = values.get("name", "")

    def ended(self, tag: str, text: str, outer: Sequence[str]) -> None:
        """Collect values of attributes and facts about the task."""
        inside = outer[-1] if outer else ""
        if tag == "attribute" and inside in SHAPES and outer[-2] == "track":
            self.shapes[-1].attributes[self._attribute] = text
        elif inside == "original_size" or (inside in ("meta", "task") and tag in _OF_A_TASK):
            self.meta[tag] = text


def _sightings(path: Path, settings: BoxSettings, frame_rate: Fraction) -> Sightings:
    document = _Document(path)
    read_xml(path, document, kind="XML as 'CVAT for video 1.1' writes it, unpacked")
    if len(document.tasks) > 1:
        raise AnnotationError(
            f"{path}: must hold one task; got tracks of {len(document.tasks)}. Export each task by itself."
        )
    size_px = settings.size_px or _size(document.meta)
    if size_px is None:
        raise AnnotationError(
            f"{path}: must give the size of the frames in meta/task/original_size; it does not. Give it with --size."
        )
    video = settings.video or Path(document.meta.get("source", "")).stem or path.stem
    sightings = Sightings(path, settings)
    for shape in document.shapes:
        sighting = _sighting(shape, video, _last_frame(document.meta), sightings)
        if sighting is not None:
            sightings.add(sighting, size_px, frame_rate)
    return sightings


def _sighting(shape: _Shape, video: str, last_frame: int | None, sightings: Sightings) -> SeenBox | None:
    place, values = f"line {shape.line}", shape.values
    if shape.kind != "box":
        return sightings.drop("not_a_box")
    if values.get("outside") == "1":
        return sightings.drop("outside")
    frame = values.get("frame", "")
    corners = numbers([values.get(name, "") for name in _CORNERS]).tolist()
    rotation = float(numbers([values.get("rotation", "0")])[0])
    if not is_frame_number(frame) or not all(map(math.isfinite, (*corners, rotation))):
        got = ", ".join(f"{name}={shown(values.get(name, ''))}" for name in ("frame", *_CORNERS))
        sightings.problems.add(place, f"a box must have a frame and four corners in pixels; got {got}")
        return None
    if last_frame is not None and int(frame) > last_frame:
        sightings.problems.add(
            place, f"frame must be one of the video, whose last is {last_frame}; got {frame[:40]}"
        )
    if not shape.track.get("label", "").strip():
        sightings.problems.add(place, f"its track must have a label; got {shown(str(shape.track))}")
    sightings.noted["rotated_boxes_made_upright"] += rotation % 360 != 0
    x1, y1, x2, y2 = corners
    return SeenBox(
        place,
        video,
        int(frame),
        _upright((x1, y1, x2, y2), math.radians(rotation)),
        (shape.track.get("label", ""),),
        shape.attributes,
        shape.track.get("id", ""),
    )


def _upright(corners: Corners, rotation: float) -> Corners:
    """Return the upright box around a box that is rotated about its centre."""
    if not rotation:
        return corners
    x1, y1, x2, y2 = corners
    cos, sin = abs(math.cos(rotation)), abs(math.sin(rotation))
    half_width = ((x2 - x1) * cos + (y2 - y1) * sin) / 2
    half_height = ((x2 - x1) * sin + (y2 - y1) * cos) / 2
    x, y = (x1 + x2) / 2, (y1 + y2) / 2
    return x - half_width, y - half_height, x + half_width, y + half_height


def _size(meta: dict[str, str]) -> SizePx | None:
    width, height = numbers([meta.get("width", ""), meta.get("height", "")]).tolist()
    return (width, height) if 0 < width < math.inf and 0 < height < math.inf else None


def _last_frame(meta: dict[str, str]) -> int | None:
    """Return the last frame that can have a box, if the file states it."""
    if is_frame_number(meta.get("stop_frame", "")):
        return int(meta["stop_frame"])
    is_whole = not meta.get("frame_filter") and meta.get("start_frame", "0") == "0"
    return int(meta["size"]) - 1 if is_whole and is_frame_number(meta.get("size", "")) else None
