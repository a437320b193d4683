"""Detections: boxes, scores and classes of a batch of images, and tables of precomputed boxes by frame."""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from mule.core.defaults import PAPER_ACTOR_SCORE
from mule.core.errors import AnnotationError, NotFinite, RangeError, ShapeError
from mule.core.text_rows import PROBLEMS_SHOWN
from mule.detection.boxes import has_area
from mule.video.transforms import px_from_unit

PERSON = 0
"""Class index of a person. Persons are actors, all other classes are objects."""

DEFAULT_MAX_OBJECTS = 5
"""M, the number of objects kept per image. The paper gives none; AIA, which it compares with, keeps five."""


@dataclass(frozen=True)
class Detections:
    """Boxes in a batch of images. Row i is in image `image_index[i]`; images may have no boxes."""

    boxes_xyxy_px: Float[Tensor, "boxes 4"]
    scores: Float[Tensor, " boxes"]
    class_index: Int[Tensor, " boxes"]
    image_index: Int[Tensor, " boxes"]
    num_images: int

    def __post_init__(self) -> None:
        rows = {len(self.boxes_xyxy_px), len(self.scores), len(self.class_index), len(self.image_index)}
        if len(rows) != 1 or self.boxes_xyxy_px.ndim != 2 or self.boxes_xyxy_px.shape[1] != 4:
            raise ShapeError(
                "detections must have one box (x1, y1, x2, y2), score, class and image per row; got "
                f"{tuple(self.boxes_xyxy_px.shape)} boxes, {len(self.scores)} scores, {len(self.class_index)} "
                f"classes and {len(self.image_index)} images."
            )
        self._require_finite()
        self._require_in_range()

    def _require_finite(self) -> None:
        bad = ~(torch.isfinite(self.boxes_xyxy_px).all(dim=1) & torch.isfinite(self.scores))
        if bad.any():
            row = int(torch.nonzero(bad)[0])
            raise NotFinite(
                f"boxes and scores must be finite; {int(bad.sum())} of {len(bad)} are not, first row {row}: box "
                f"{self.boxes_xyxy_px[row].tolist()}, score {self.scores[row].item()}. Leave such rows out."
            )

    def _require_in_range(self) -> None:
        flat = ~has_area(self.boxes_xyxy_px)
        if flat.any():
            row = int(torch.nonzero(flat)[0])
            raise RangeError(
                f"a box must have x2 > x1 and y2 > y1; {int(flat.sum())} of {len(flat)} do not, first row {row}: "
                f"{self.boxes_xyxy_px[row].tolist()}. Boxes by width and height go through xyxy_from_xywh first."
            )
        outside = (self.image_index < 0) | (self.image_index >= self.num_images)
        if outside.any():
            row = int(torch.nonzero(outside)[0])
            raise RangeError(
                f"image_index must lie in 0..{self.num_images - 1} ({self.num_images} images); row {row} has "
                f"{int(self.image_index[row])}."
            )

    def __len__(self) -> int:
        return len(self.scores)

    def select(self, rows: Bool[Tensor, " boxes"] | Int[Tensor, " chosen"]) -> "Detections":
        """Return the rows of a mask, or the given rows in that order; the number of images stays."""
        return Detections(
            boxes_xyxy_px=self.boxes_xyxy_px[rows],
            scores=self.scores[rows],
            class_index=self.class_index[rows],
            image_index=self.image_index[rows],
            num_images=self.num_images,
        )

    def of_image(self, image_index: int) -> "Detections":
        """Return the detections of one image, as a batch of that image alone."""
        rows = self.select(self.image_index == image_index)
        return replace(rows, image_index=torch.zeros_like(rows.image_index), num_images=1)


def no_detections(num_images: int) -> Detections:
    """Return a batch of images without detections."""
    none = torch.zeros(0, dtype=torch.int64)
    return Detections(torch.zeros(0, 4), torch.zeros(0), none, none, num_images)


def concatenate(batches: Sequence[Detections]) -> Detections:
    """Join batches into one, with their images in order."""
    if not batches:
        return no_detections(0)
    first_image, total = [], 0
    for batch in batches:
        first_image.append(total)
        total += batch.num_images
    return Detections(
        boxes_xyxy_px=torch.cat([batch.boxes_xyxy_px for batch in batches]),
        scores=torch.cat([batch.scores for batch in batches]),
        class_index=torch.cat([batch.class_index for batch in batches]),
        image_index=torch.cat(
            [batch.image_index + start for batch, start in zip(batches, first_image, strict=True)]
        ),
        num_images=total,
    )


def split_actors_and_objects(
    detections: Detections, *, actor_score: float = PAPER_ACTOR_SCORE, max_objects: int = DEFAULT_MAX_OBJECTS
) -> tuple[Detections, Detections]:
    """Return the persons of at least `actor_score`, and the `max_objects` best other boxes per image.

    Both are ordered by image, then best score first; of equal scores the earlier row comes first.
    """
    is_person = detections.class_index == PERSON
    actors = _best_first(detections.select(is_person & (detections.scores >= actor_score)))
    objects = _best_first(detections.select(~is_person))
    return actors, objects.select(_rank_in_image(objects) < max_objects)


def _best_first(detections: Detections) -> Detections:
    by_score = torch.argsort(detections.scores, descending=True, stable=True)
    by_image = torch.argsort(detections.image_index[by_score], stable=True)
    return detections.select(by_score[by_image])


def _rank_in_image(detections: Detections) -> Int[Tensor, " boxes"]:
    per_image = torch.bincount(detections.image_index, minlength=detections.num_images)
    first_row = per_image.cumsum(0) - per_image  # rows are ordered by image
    return torch.arange(len(detections)) - first_row[detections.image_index]


MAX_OVERHANG_UNIT = 0.05  # boxes further outside the image are an error
MIN_SIDE_UNIT = 1e-6  # thinner boxes have no area in single precision

UnitBox = tuple[float, float, float, float]


class FrameKey(NamedTuple):
    """A frame: its video (or image file) and its time to the millisecond; 0 for an image."""

    video: str
    key_time_s: float


class BoxRow(NamedTuple):
    """A box in a file; without a box, a frame that the file lists."""

    where: str
    frame: FrameKey
    box_xyxy_unit: UnitBox | None = None
    score: float = 1.0
    class_index: int = 0


def frame_key(video: str, key_time_s: int | float) -> FrameKey:
    """Return the key of a frame; times that differ by less than 0.5 ms have the same key."""
    return FrameKey(video, round(float(key_time_s), 3))


@dataclass(frozen=True)
class BoxTable:
    """The boxes of a file by frame; `num_clipped` and `num_repeated` count changes by `table_from_rows`."""

    frames: tuple[FrameKey, ...]
    boxes_xyxy_unit: Float[Tensor, "boxes 4"]
    scores: Float[Tensor, " boxes"]
    class_index: Int[Tensor, " boxes"]
    frame_index: Int[Tensor, " boxes"]
    num_clipped: int
    num_repeated: int

    @cached_property
    def _rows_by_frame(self) -> Mapping[FrameKey, Tensor]:
        order = torch.argsort(self.frame_index, stable=True)
        per_frame = torch.bincount(self.frame_index, minlength=len(self.frames))
        return dict(zip(self.frames, torch.split(order, per_frame.tolist()), strict=True))

    def detections(self, frames: Sequence[FrameKey], *, width_px: int, height_px: int) -> Detections:
        """Return the boxes of these frames in pixels, image i for `frames[i]`; none for a frame not in the file."""
        none = torch.zeros(0, dtype=torch.int64)
        parts = [self._rows_by_frame.get(frame_key(*frame), none) for frame in frames]
        rows = torch.cat([none, *parts])
        per_image = torch.tensor([len(part) for part in parts], dtype=torch.int64)
        return Detections(
            boxes_xyxy_px=px_from_unit(self.boxes_xyxy_unit[rows], width_px=width_px, height_px=height_px),
            scores=self.scores[rows],
            class_index=self.class_index[rows],
            image_index=torch.repeat_interleave(per_image),
            num_images=len(frames),
        )


def table_from_rows(path: Path, rows: Iterable[BoxRow | str]) -> BoxTable:
    """Check, clip and join rows; a string in `rows` is a problem that the reader found.

    A box may extend beyond the image by at most 5 % of its side and is clipped; more is an error, because it usually
    means that pixels and fractions are confused. Rows that repeat a box (AVA writes one per action) become one box
    with the best score. All problems are reported together.
    """
    problems: list[str] = []
    frames: dict[FrameKey, int] = {}
    best: dict[tuple[int, int, UnitBox], float] = {}  # (frame, class, box) to score, in the order of the file
    num_clipped = num_rows = 0
    for row in rows:
        problem = row if isinstance(row, str) else _problem_of(row)
        if problem is not None:
            problems.append(problem)
        elif isinstance(row, BoxRow):
            frame = frames.setdefault(row.frame, len(frames))
            if row.box_xyxy_unit is not None:
                x1, y1, x2, y2 = row.box_xyxy_unit
                box = (max(x1, 0.0), max(y1, 0.0), min(x2, 1.0), min(y2, 1.0))
                key = (frame, row.class_index, box)
                best[key] = max(row.score, best.get(key, 0.0))
                num_rows += 1
                num_clipped += box != row.box_xyxy_unit
    if problems:
        more = len(problems) - PROBLEMS_SHOWN
        shown = "\n  ".join(problems[:PROBLEMS_SHOWN])
        raise AnnotationError(f"{path}, {shown}" + (f"\n  and {more} more." if more > 0 else ""))
    return BoxTable(
        frames=tuple(frames),
        boxes_xyxy_unit=torch.tensor([box for _, _, box in best], dtype=torch.float32).reshape(-1, 4),
        scores=torch.tensor(list(best.values()), dtype=torch.float32),
        class_index=torch.tensor([class_index for _, class_index, _ in best], dtype=torch.int64),
        frame_index=torch.tensor([frame for frame, _, _ in best], dtype=torch.int64),
        num_clipped=num_clipped,
        num_repeated=num_rows - len(best),
    )


def _problem_of(row: BoxRow) -> str | None:
    if row.box_xyxy_unit is None:
        return None
    x1, y1, x2, y2 = row.box_xyxy_unit
    shown = f"({x1:.6g}, {y1:.6g}, {x2:.6g}, {y2:.6g})"
    if not all(map(math.isfinite, (x1, y1, x2, y2, row.score))):
        return f"{row.where}: box and score must be finite; got {shown} with score {row.score}."
    if not 0 <= row.score <= 1:
        return f"{row.where}: score must lie within 0..1; got {row.score:.6g}."
    if min(x1, y1) < -MAX_OVERHANG_UNIT or max(x2, y2) > 1 + MAX_OVERHANG_UNIT:
        return (
            f"{row.where}: box {shown}, in fractions of the image, is outside 0..1. Were pixels and fractions "
            "confused?"
        )
    if min(min(x2, 1) - max(x1, 0), min(y2, 1) - max(y1, 0)) < MIN_SIDE_UNIT:
        return f"{row.where}: box must have x2 > x1 and y2 > y1 inside the image; got {shown}, in fractions of it."
    return None
