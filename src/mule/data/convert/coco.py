"""Convert COCO JSON whose images are frames of videos: plain COCO, KWCOCO, CocoVID, and AIA's AVA files.

The video of an image is its `movie`, `video`, `video_id` (into `videos`) or the folder of its `file_name`. Its time is
`time_s` or `time` (with `movie` also `timestamp`) in seconds, or else its frame number: `frame_index`, `frame_id`,
`frame` or the last number in `file_name`. The first field that exists is used.
"""

import re
from collections.abc import Mapping
from fractions import Fraction
from pathlib import Path, PurePosixPath
from typing import NamedTuple

from mule.core.errors import AnnotationError
from mule.core.text_rows import Json, Problems, is_number, read_json, shown
from mule.data.convert.conversion import (
    BoxSettings,
    ConversionReport,
    SeenBox,
    Sightings,
    SizePx,
    table_and_report,
)
from mule.data.table.table import ActorTable

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
    """Convert a COCO file: one row per actor and frame, with the annotations of an actor joined.

    Actors are identified by `track_id` or `instance_id`; without these, annotations with the same box in the same
    image are one actor. Crowds and annotations without a box are left out.

    Args:
        path: the file.
        settings: what to take from it, and what to assume if it does not state it.
        first_frame: number of the first frame in file names.

    Raises:
        AnnotationError: the file has problems; the message lists them by place in the document.
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
            sighting = SeenBox(
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
    place: str, annotation: dict[str, Json], categories: Mapping[Json, str], problems: Problems
) -> tuple[str, ...] | None:
    number = annotation.get("category_id")
    if number is None:
        return ()
    if _key(number) not in categories:
        problems.add(f"{place}.category_id", f"must be among the categories; got {_shown(number)}")
        return None
    return (categories[_key(number)],)


def _attributes(place: str, annotation: dict[str, Json], problems: Problems) -> dict[str, Json]:
    """Return all attributes of an annotation; each name of a list is an attribute with the value true."""
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
    content: Json, settings: BoxSettings, first_frame: int, problems: Problems
) -> dict[Json, _Image | None]:
    """Return the images by id; None for an image with a problem."""
    videos = _by_id(content, "videos", problems)
    images: dict[Json, _Image | None] = {}
    for number, (place, image) in _by_id(content, "images", problems).items():
        place_of_video, video = videos.get(_key(image.get("video_id")), ("", {}))
        if image.get("video_id") is not None and not place_of_video:
            problems.add(f"{place}.video_id", f"must be among the videos; got {_shown(image['video_id'])}")
        parsed = _image(image, video, settings, first_frame)
        if isinstance(parsed, str):
            problems.add(place, parsed)
        images[number] = None if isinstance(parsed, str) else parsed
    return images


def _image(
    image: dict[str, Json], video: dict[str, Json], settings: BoxSettings, first_frame: int
) -> _Image | str:
    name = settings.video or _video_name(image, video)
    when = _when(image, first_frame)
    rate = settings.frame_rate or _rate(video) or _rate(image)
    size = settings.size_px or _size(image) or _size(video)
    if not name:
        return f"must name its video; got {_shown(image)}. Name it for the whole file with --video"
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
        if is_number(image.get(key)):
            return float(image[key])
    return None


def _when(image: dict[str, Json], first_frame: int) -> int | float | None:
    time_s = _stated_time(image)
    if time_s is not None:
        return time_s
    for value in filter(lambda value: value is not None, map(image.get, _FRAME_KEYS)):
        return int(value) if is_number(value) and value == int(value) else None
    file_name = image.get("file_name")
    number = _LAST_NUMBER.search(PurePosixPath(file_name).stem) if isinstance(file_name, str) else None
    return None if number is None else int(number[1]) - first_frame


def _rate(entry: dict[str, Json]) -> Fraction | None:
    for key in _RATE_KEYS:
        if is_number(entry.get(key)) and entry[key] > 0:
            return Fraction(str(entry[key]))
    return None


def _size(entry: dict[str, Json]) -> SizePx | None:
    width, height = entry.get("width"), entry.get("height")
    if is_number(width) and is_number(height) and width > 0 and height > 0:
        return width, height
    return None


def _categories(content: Json, problems: Problems) -> dict[Json, str]:
    names: dict[Json, str] = {}
    for number, (place, category) in _by_id(content, "categories", problems).items():
        name = category.get("name")
        if not isinstance(name, str) or not name.strip():
            problems.add(f"{place}.name", f"a category must have a name; got {_shown(name)}")
        names[number] = str(name).strip()
    return names


def _by_id(content: Json, key: str, problems: Problems) -> dict[Json, tuple[str, dict[str, Json]]]:
    """Return the entries of a list by id, each with its place."""
    entries: dict[Json, tuple[str, dict[str, Json]]] = {}
    for at, entry in enumerate(_list(content, key, problems)):
        number = _key(entry.get("id")) if isinstance(entry, dict) else None
        if number is None or number in entries:
            problems.add(f"{key}[{at}]", f"must be an object with an id of its own; got {_shown(entry)}")
        else:
            entries[number] = (f"{key}[{at}]", entry)
    return entries


def _list(content: Json, key: str, problems: Problems) -> list[Json]:
    value = content.get(key, [] if key in ("videos", "categories") else None)
    if isinstance(value, list):
        return value
    problems.add(key, f"must be a list; got {_shown(value)}")
    return []


def _key(number: Json) -> int | str | None:
    return number if type(number) is int or isinstance(number, str) else None


def _is_box(value: Json) -> bool:
    return isinstance(value, list) and len(value) == 4 and all(map(is_number, value))


def _read_document(path: Path) -> dict[str, Json]:
    content = read_json(path)
    if not isinstance(content, dict):
        raise AnnotationError(
            f"{path}: must be an object with 'images', 'annotations' and 'categories'; got {_shown(content)}."
        )
    return content


def _shown(value: Json) -> str:
    return "nothing" if value is None else shown(str(value)) if isinstance(value, str) else shown(repr(value))
