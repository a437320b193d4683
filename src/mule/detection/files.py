"""Read precomputed boxes: AVA predicted-box CSV, boxes by frame in JSON, COCO and AIA JSON. Never pickles.

Every reader returns a `BoxTable` in fractions of the image, which fits frames of any size. All problems of a file are
reported together, each with its line or entry.
"""

import csv
import math
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from mule.core.errors import AnnotationError
from mule.core.text_rows import Json, is_number, read_json, read_lines, shown
from mule.detection.cards import CLASS_INDEX_BY_CATEGORY_ID, COCO_CLASSES, OTHER_OBJECT
from mule.detection.detections import BoxRow, BoxTable, FrameKey, frame_key, table_from_rows

AVA_COLUMNS = ("video", "timestamp", "x1", "y1", "x2", "y2", "action", "score")


def load_boxes(path: str | Path, *, images_path: str | Path | None = None) -> BoxTable:
    """Read boxes from a file of any supported format.

    Args:
        path: A `.csv` for `load_ava_csv`, or a `.json`. JSON is either persons by frame in fractions of the image,
            `{"video,timestamp": [[x1, y1, x2, y2, score], ...], ...}`, or COCO's in pixels (x, y, width, height):
            annotations, or results with `images_path`. Of COCO, images with `movie` and `timestamp` (AIA's AVA files,
            also `ava_*_det_object_bbox.json`) are frames of videos, others are identified by `file_name`, and crowds
            (`iscrowd`) are left out.
        images_path: COCO annotations that describe the images, needed for COCO results.
    """
    path = Path(path)
    if path.suffix == ".csv":
        return load_ava_csv(path)
    if path.suffix != ".json":
        raise AnnotationError(
            f"{path}: a file of boxes must end in .csv or .json. Pickles can run code and are not opened; save them "
            'as JSON {"video,timestamp": [[x1, y1, x2, y2, score], ...]}.'
        )
    content = read_json(path)
    if isinstance(content, dict) and not {"images", "annotations"} & content.keys():
        return table_from_rows(path, _rows_by_frame(content))
    return table_from_rows(path, _coco_rows(content, _described(images_path, content)))


def load_ava_csv(path: str | Path) -> BoxTable:
    """Read persons from AVA's CSV: `video,timestamp,x1,y1,x2,y2,action-or-empty,score`, in fractions of the image.

    A row of seven columns has score 1; a row of two (`video,timestamp`) is a frame without boxes. A header is allowed;
    if it names the seventh column `label`, that column holds a COCO class or `object` instead of an action. In a table
    of objects (`object_class`) it holds any name; one that COCO does not have is another object.
    """
    path = Path(path)
    try:
        return table_from_rows(path, _ava_rows(path))
    except csv.Error as bad:
        raise AnnotationError(f"{path}: not a CSV file: {bad}.") from bad


def _ava_rows(path: Path) -> Iterator[BoxRow | str]:
    columns = AVA_COLUMNS
    for line, values in enumerate(csv.reader(read_lines(path)), start=1):
        if line == 1 and [name.strip() for name in values[2:6]] == list(AVA_COLUMNS[2:6]):
            columns = tuple(name.strip() for name in values)
        elif values and len(values) not in (2, 7, 8):
            yield f"line {line}: must have 2, 7 or 8 columns ({','.join(columns)}); got {len(values)}."
        elif values:
            yield _ava_row(f"line {line}", values, label=_label(columns, values))


def _label(columns: tuple[str, ...], values: list[str]) -> str:
    if columns[6:7] == ("object_class",) and len(values) > 6:
        return values[6] if values[6] in COCO_CLASSES else "object"
    return values[6] if columns[6:7] == ("label",) else "person"


def _ava_row(where: str, values: list[str], *, label: str) -> BoxRow | str:
    if not all(_is_number(value) for value in (values[1], *values[2:6], *values[7:8])):
        return f"{where}: timestamp, x1, y1, x2, y2 and score must be finite numbers; got {','.join(each[:40] for each in values)}."
    frame = frame_key(values[0], float(values[1]))
    if len(values) == 2:
        return BoxRow(where, frame)
    if label != "object" and label not in COCO_CLASSES:
        return f"{where}: column 'label' must be 'person', 'object' or a COCO class; got {shown(label)}."
    score = float(values[7]) if len(values) == 8 else 1.0
    if score > 1:
        return (
            f"{where}: column 8 must be a score within 0..1; got {values[7]}. Is this AVA's ground truth, where "
            "column 8 is the person's id?"
        )
    x1, y1, x2, y2 = map(float, values[2:6])
    return BoxRow(where, frame, (x1, y1, x2, y2), score, _class_index(label))


def _rows_by_frame(content: Json) -> Iterator[BoxRow | str]:
    if not isinstance(content, dict):
        yield 'file: must be an object {"video,timestamp": [[x1, y1, x2, y2, score], ...]}.'
        return
    for key, boxes in content.items():
        video, _, timestamp = key.rpartition(",")
        if not video or not _is_number(timestamp) or not isinstance(boxes, list):
            yield f"entry {key!r}: must be called 'video,timestamp' and hold a list of boxes."
            continue
        frame = frame_key(video, float(timestamp))
        yield BoxRow(f"entry {key!r}", frame)
        for number, box in enumerate(boxes):
            match box:
                case [x1, y1, x2, y2, *score] if len(score) <= 1 and _are_numbers(box):
                    yield BoxRow(f"entry {key!r}, box {number}", frame, (x1, y1, x2, y2), *score)
                case _:
                    yield (
                        f"entry {key!r}, box {number}: must be [x1, y1, x2, y2] or [x1, y1, x2, y2, score]; got "
                        f"{_shortened(box)}."
                    )


def _described(images_path: str | Path | None, content: Json) -> Json:
    return read_json(Path(images_path)) if images_path is not None else content


def _coco_rows(content: Json, described: Json) -> Iterator[BoxRow | str]:
    boxes = content.get("annotations") if isinstance(content, dict) else content
    if not isinstance(boxes, list):
        yield "file: must be a list of COCO results, or an object with a list 'annotations'."
    elif not isinstance(described, dict) or not isinstance(described.get("images"), list):
        yield (
            "file: the list 'images' is missing, so the size of the images is unknown. Give the COCO annotations that "
            "describe them as images_path."
        )
    else:
        images: dict[int | str, tuple[FrameKey, float, float]] = {}
        for number, image in enumerate(described["images"]):
            problem = _problem_of_image(image)
            if problem is not None:
                yield f"image {number}: {problem}"
                continue
            images[image["id"]] = (_frame_of_image(image), float(image["width"]), float(image["height"]))
            yield BoxRow(f"image {number}", images[image["id"]][0])
        class_by_category = _class_by_category(described.get("categories", []))
        for number, entry in enumerate(boxes):
            if not (isinstance(entry, dict) and entry.get("iscrowd")):
                yield _coco_row(f"entry {number}", entry, images, class_by_category)


def _coco_row(
    where: str,
    entry: Json,
    images: Mapping[int | str, tuple[FrameKey, float, float]],
    class_by_category: Mapping[int, int],
) -> BoxRow | str:
    match entry:
        case {"image_id": int() | str() as image_id, "bbox": [x, y, width, height]} if _are_numbers(
            [x, y, width, height, entry.get("score", 1.0)]
        ):
            if image_id not in images:
                return f"{where}: image_id {image_id!r} is not among the {len(images)} images described."
            frame, width_px, height_px = images[image_id]
            box = (x / width_px, y / height_px, (x + width) / width_px, (y + height) / height_px)
            category = entry.get("category_id")
            class_index = (
                class_by_category.get(category, OTHER_OBJECT) if _are_numbers([category]) else OTHER_OBJECT
            )
            return BoxRow(where, frame, box, entry.get("score", 1.0), class_index)
    return (
        f"{where}: must have 'image_id', 'bbox' [x, y, width, height] in pixels and, if any, a number 'score'; got "
        f"{_shortened(entry)}."
    )


def _problem_of_image(image: Json) -> str | None:
    match image:
        case {"id": int() | str(), "width": width, "height": height} if _are_numbers([width, height]):
            if not (0 < width < math.inf and 0 < height < math.inf):
                return f"width and height must be above 0; got {width} x {height}."
            if "file_name" in image or ("movie" in image and _are_numbers([image.get("timestamp")])):
                return None
    return (
        "must have 'id', 'width', 'height', and 'file_name' or 'movie' with a number 'timestamp'; got "
        f"{_shortened(image)}."
    )


def _frame_of_image(image: Mapping[str, Any]) -> FrameKey:
    if "movie" in image and _are_numbers([image.get("timestamp")]):
        return frame_key(str(image["movie"]), image["timestamp"])
    return frame_key(str(image["file_name"]), 0.0)


def _class_by_category(categories: Json) -> Mapping[int, int]:
    """Return class indices by category id: by name if the file names its categories, else by COCO's ids."""
    by_id = dict(CLASS_INDEX_BY_CATEGORY_ID)
    for category in categories if isinstance(categories, list) else []:
        match category:
            case {"id": int() as category_id, "name": str() as name}:
                by_id[category_id] = _class_index(name)
    return by_id


def _class_index(name: str) -> int:
    return COCO_CLASSES.index(name) if name in COCO_CLASSES else OTHER_OBJECT


def _is_number(text: str) -> bool:
    try:
        return math.isfinite(float(text))
    except ValueError:
        return False


def _are_numbers(values: Iterable[Json]) -> bool:
    return all(map(is_number, values))


def _shortened(value: Json) -> str:
    text = repr(value)
    return text if len(text) <= 120 else f"{text[:117]}..."
