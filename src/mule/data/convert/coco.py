"""COCO JSON with frames of videos as its images: plain COCO, KWCOCO and CocoVID, and AIA's AVA files.

An image says of which video it is by `movie`, `video`, `video_id` (into `videos`) or the folder of `file_name`; when
it is by `time_s` or `time`, with `movie` by `timestamp`, in seconds; else by `frame_index`, `frame_id`, `frame` or
the last number in `file_name`, counted at a frame rate. The first of these that is there is taken.
"""

import json
import math
import re
from collections.abc import Mapping
from fractions import Fraction
from pathlib import Path, PurePosixPath
from typing import Any, NamedTuple, NoReturn, TypeGuard

from mule.core.errors import AnnotationError
from mule.core.text_rows import read_lines, shown
from mule.data.convert.conversion import (
    BoxSettings,
    ConversionReport,
    PlacedProblems,
    Sighting,
    Sightings,
    SizePx,
    table_and_report,
)
from mule.data.table.table import ActorTable

Json = Any

_FRAME_KEYS = ("frame_index", "frame_id", "frame")
_RATE_KEYS = ("fps", "frame_rate", "framerate")
_ATTRIBUTE_KEYS = ("attributes", "dive_track_attributes", "dive_detection_attributes")
_LAST_NUMBER = re.compile(r"(\d{1,15})(?!.*\d)")


class _Image(NamedTuple):
    video: str
    when: int | float
    frame_rate: Fraction | None
    size_px: SizePx


def actors_from_coco(
    path: Path, settings: BoxSettings, *, first_frame: int = 0
) -> tuple[ActorTable, ConversionReport]:
    """The actors of a COCO file: one row per actor and frame, annotations of one actor joined.

    An actor is told apart by `track_id` or `instance_id`; without, annotations with the same box in the same image
    are one actor. Crowds and annotations without a box are left out.

    Args:
        path: the file.
        settings: what is wanted of it, and what it leaves open.
        first_frame: the number that the first frame bears in file names.

    Raises:
        AnnotationError: all that is wrong with the file, by place in the document.
    """
    content = _read_document(path)
    sightings = Sightings(path, settings)
    images = _images(content, settings, first_frame, sightings.problems)
    categories = _categories(content, sightings.problems)
    for at, annotation in enumerate(_list(content, "annotations", sightings.problems)):
        _add(f"annotations[{at}]", annotation, (images, categories), sightings)
    return table_and_report([(path, sightings)], "annotations")


def _add(
    place: str,
    annotation: Json,
    known: tuple[Mapping[Json, _Image | None], Mapping[Json, str]],
    sightings: Sightings,
) -> None:
    images, categories = known
    problems = sightings.problems
    if not isinstance(annotation, dict):
        problems.add(place, f"must be an object; got {_shown(annotation)}")
    elif annotation.get("iscrowd"):
        sightings.drop("crowd")
    elif annotation.get("bbox") is None:
        sightings.drop("without_a_box")
    elif _key(annotation.get("image_id")) not in images:
        problems.add(
            f"{place}.image_id", f"must be among the images; got {_shown(annotation.get('image_id'))}"
        )
    elif not _is_box(annotation["bbox"]):
        problems.add(
            f"{place}.bbox",
            f"must be [x, y, width, height] in pixels; got {_shown(annotation['bbox'])}",
        )
    else:
        image = images[_key(annotation["image_id"])]
        category = _category(place, annotation, categories, problems)
        if image is not None and category is not None:
            x, y, width, height = map(float, annotation["bbox"])
            sighting = Sighting(
                place,
                image.video,
                image.when,
                (x, y, x + width, y + height),
                category,
                _attributes(place, annotation, problems),
                _actor(annotation),
            )
            sightings.add(sighting, image.size_px, image.frame_rate)


def _category(
    place: str, annotation: dict[str, Json], categories: Mapping[Json, str], problems: PlacedProblems
) -> tuple[str, ...] | None:
    number = annotation.get("category_id")
    if number is None:
        return ()
    if _key(number) not in categories:
        problems.add(f"{place}.category_id", f"must be among the categories; got {_shown(number)}")
        return None
    return (categories[_key(number)],)


def _attributes(place: str, annotation: dict[str, Json], problems: PlacedProblems) -> dict[str, Json]:
    """All attributes of an annotation; a list of names is as many attributes that are true."""
    joined: dict[str, Json] = {}
    for key in _ATTRIBUTE_KEYS:
        value = annotation.get(key)
        if isinstance(value, list):
            joined |= {name: True for name in value if isinstance(name, str)}
        elif isinstance(value, dict):
            joined |= value
        elif value is not None:
            problems.add(
                f"{place}.{key}", f"must be an object of attributes or a list of names; got {_shown(value)}"
            )
    return joined


def _actor(annotation: dict[str, Json]) -> str:
    number = annotation.get("track_id", annotation.get("instance_id"))
    return "" if number is None else str(number)


def _images(
    content: Json, settings: BoxSettings, first_frame: int, problems: PlacedProblems
) -> dict[Json, _Image | None]:
    """The images by id; None for one that is noted as a problem."""
    videos = _by_id(content, "videos", problems)
    images: dict[Json, _Image | None] = {}
    for number, (place, image) in _by_id(content, "images", problems).items():
        place_of_video, video = videos.get(_key(image.get("video_id")), ("", {}))
        if image.get("video_id") is not None and not place_of_video:
            problems.add(f"{place}.video_id", f"must be among the videos; got {_shown(image['video_id'])}")
        found = _image(image, video, settings, first_frame)
        if isinstance(found, str):
            problems.add(place, found)
        images[number] = None if isinstance(found, str) else found
    return images


def _image(
    image: dict[str, Json], video: dict[str, Json], settings: BoxSettings, first_frame: int
) -> _Image | str:
    name = settings.video or _video_name(image, video)
    when = _when(image, first_frame)
    rate = settings.frame_rate or _rate(video) or _rate(image)
    size = settings.size_px or _size(image) or _size(video)
    if not name:
        return f"must say of which video it is; got {_shown(image)}. Say it for the whole file with --video"
    if when is None or when < 0:
        return f"must have a frame number or a time, 0 or later; got {_shown(image)}"
    if isinstance(when, int) and rate is None:
        return f"frame {when} has no time: its video must have 'fps', or give the frame rate with --fps"
    if size is None:
        return f"must have a width and a height above 0; got {_shown(image)}. Give them with --size"
    return _Image(name, when, None if isinstance(when, float) else rate, size)


def _video_name(image: dict[str, Json], video: dict[str, Json]) -> str:
    for value in (image.get("movie"), image.get("video"), video.get("name"), video.get("file_name")):
        if isinstance(value, str) and value.strip():
            return value.strip()
    file_name = image.get("file_name")
    if not isinstance(file_name, str):
        return ""
    folder = PurePosixPath(file_name.replace("\\", "/")).parent.as_posix()
    if folder not in (".", "/"):
        return folder
    return file_name if _stated_time(image) is not None else ""


def _stated_time(image: dict[str, Json]) -> float | None:
    for key in ("time_s", "time", *(["timestamp"] if "movie" in image else [])):
        if _is_number(image.get(key)):
            return float(image[key])
    return None


def _when(image: dict[str, Json], first_frame: int) -> int | float | None:
    time_s = _stated_time(image)
    if time_s is not None:
        return time_s
    for value in filter(lambda value: value is not None, map(image.get, _FRAME_KEYS)):
        return int(value) if _is_number(value) and value == int(value) else None
    file_name = image.get("file_name")
    number = _LAST_NUMBER.search(PurePosixPath(file_name).stem) if isinstance(file_name, str) else None
    return None if number is None else int(number[1]) - first_frame


def _rate(entry: dict[str, Json]) -> Fraction | None:
    for key in _RATE_KEYS:
        if _is_number(entry.get(key)) and entry[key] > 0:
            return Fraction(str(entry[key]))
    return None


def _size(entry: dict[str, Json]) -> SizePx | None:
    width, height = entry.get("width"), entry.get("height")
    if _is_number(width) and _is_number(height) and width > 0 and height > 0:
        return width, height
    return None


def _categories(content: Json, problems: PlacedProblems) -> dict[Json, str]:
    names: dict[Json, str] = {}
    for number, (place, category) in _by_id(content, "categories", problems).items():
        name = category.get("name")
        if not isinstance(name, str) or not name.strip():
            problems.add(f"{place}.name", f"a category must have a name; got {_shown(name)}")
        names[number] = str(name).strip()
    return names


def _by_id(content: Json, key: str, problems: PlacedProblems) -> dict[Json, tuple[str, dict[str, Json]]]:
    """The entries of a list by their id, each with its place."""
    entries: dict[Json, tuple[str, dict[str, Json]]] = {}
    for at, entry in enumerate(_list(content, key, problems)):
        number = _key(entry.get("id")) if isinstance(entry, dict) else None
        if number is None or number in entries:
            problems.add(f"{key}[{at}]", f"must be an object with an id of its own; got {_shown(entry)}")
        else:
            entries[number] = (f"{key}[{at}]", entry)
    return entries


def _list(content: Json, key: str, problems: PlacedProblems) -> list[Json]:
    value = content.get(key, [] if key in ("videos", "categories") else None)
    if isinstance(value, list):
        return value
    problems.add(key, f"must be a list; got {_shown(value)}")
    return []


def _key(number: Json) -> int | str | None:
    return number if type(number) is int or isinstance(number, str) else None


def _is_number(value: Json) -> TypeGuard[float]:
    if isinstance(value, float):
        return math.isfinite(value)
    return type(value) is int and abs(value) < 2**53  # not bool, no overflow


def _is_box(value: Json) -> bool:
    return isinstance(value, list) and len(value) == 4 and all(map(_is_number, value))


def _read_document(path: Path) -> dict[str, Json]:
    text = "".join(read_lines(path))
    try:
        content = json.loads(text, parse_constant=_refuse)
    except json.JSONDecodeError as error:
        raise AnnotationError(
            f"{path}, line {error.lineno}, column {error.colno}: must be JSON; {error.msg}. Is the file complete?"
        ) from None
    except (ValueError, RecursionError) as error:
        raise AnnotationError(f"{path}: must be JSON that can be read; {error}.") from None
    if not isinstance(content, dict):
        raise AnnotationError(
            f"{path}: must be an object with 'images', 'annotations' and 'categories'; got {_shown(content)}."
        )
    return content


def _refuse(constant: str) -> NoReturn:
    raise ValueError(f"numbers must be finite; got {constant}")


def _shown(value: Json) -> str:
    return "nothing" if value is None else shown(str(value)) if isinstance(value, str) else shown(repr(value))
