"""Detections of another library, as `supervision.Detections` holds them: boxes, confidences, classes and track ids.

Anything with the same four attributes will do; supervision itself is not needed here.
"""

from typing import Any

import numpy as np
import torch
from jaxtyping import Int
from torch import Tensor

from mule.core.errors import DetectorError
from mule.detection.cards import COCO_CLASSES
from mule.detection.detections import PERSON, Detections
from mule.detection.tracks import NO_TRACK

PERSON_NAME = COCO_CLASSES[PERSON]


def detections_from_supervision(
    found: Any,  # noqa: ANN401 - whatever has the attributes
    class_names: list[str],
) -> tuple[Detections, Int[Tensor, " boxes"] | None]:
    """Return the detections of one frame, and the track id of each box if a tracker has given some (−1 for objects).

    Persons are boxes whose `data["class_name"]` is `person`; without class names those of class 0, as in COCO; without
    classes all of them.

    Args:
        found: has `xyxy`, and may have `confidence`, `class_id`, `tracker_id` and `data`, as `supervision.Detections`.
        class_names: names by class index, `person` first; a name that is new is added at the end.

    Raises:
        DetectorError: the boxes cannot be used.

    >>> from types import SimpleNamespace
    >>> found = SimpleNamespace(xyxy=np.array([[10, 20, 50, 90]]), class_id=np.array([0]), tracker_id=np.array([7]))
    >>> detections, track_ids = detections_from_supervision(found, ["person"])
    >>> len(detections), track_ids
    (1, tensor([7]))
    """
    try:
        boxes = np.asarray(found.xyxy, dtype=np.float32).reshape(-1, 4)
    except (AttributeError, TypeError, ValueError) as error:
        raise DetectorError(
            f"a function that detects must return supervision.Detections, or what has its xyxy; got {type(found).__name__}."
        ) from error
    num = len(boxes)
    scores = _column(found, "confidence", num, np.float32, otherwise=1)
    if not ((scores >= 0) & (scores <= 1)).all():
        raise DetectorError(
            f"confidences must lie between 0 and 1; got {scores.min():g} to {scores.max():g}."
        )
    detections = Detections(
        torch.from_numpy(boxes),
        torch.from_numpy(scores),
        torch.tensor([_index(name, class_names) for name in _names(found, num)], dtype=torch.int64),
        torch.zeros(num, dtype=torch.int64),
        num_images=1,
    )
    if getattr(found, "tracker_id", None) is None:
        return detections, None
    track_ids = torch.from_numpy(_column(found, "tracker_id", num, np.int64, otherwise=NO_TRACK))
    track_ids[detections.class_index != PERSON] = NO_TRACK
    people = track_ids[track_ids != NO_TRACK].tolist()
    if len(set(people)) != len(people):
        raise DetectorError(
            f"a tracker must give every person of a frame an id of their own; got {sorted(people)}."
        )
    return detections, track_ids


def _column(found: object, name: str, num: int, kind: type, *, otherwise: float | int) -> np.ndarray:
    values = getattr(found, name, None)
    column = np.full(num, otherwise, dtype=kind) if values is None else np.array(values, dtype=kind)
    if column.shape != (num,):
        raise DetectorError(f"{name} must have one number per box; got {column.shape} for {num} boxes.")
    return column


def _names(found: object, num: int) -> list[str]:
    named = (getattr(found, "data", None) or {}).get("class_name")
    if named is not None and len(named) == num:
        return [str(name) for name in named]
    numbers = _column(found, "class_id", num, np.int64, otherwise=PERSON).tolist()
    return [COCO_CLASSES[each] if 0 <= each < len(COCO_CLASSES) else f"object {each}" for each in numbers]


def _index(name: str, class_names: list[str]) -> int:
    if name not in class_names:
        class_names.append(name)
    return class_names.index(name)
