"""What a detector found: boxes, scores and classes of a batch of images, flat, each row knowing its image."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from mule.core.errors import NotFinite, RangeError, ShapeError
from mule.detection.boxes import has_area

PERSON = 0
"""Class index of a person, who is an actor; every other class is an object."""

PAPER_ACTOR_SCORE = 0.85
"""Score from which the paper takes a detected person for an actor (Faster R-CNN, ResNeXt-101-FPN)."""

DEFAULT_MAX_OBJECTS = 5
"""M, the objects kept per image. The paper gives no number; five is what AIA, which it compares with, keeps."""


@dataclass(frozen=True)
class Detections:
    """Boxes in a batch of images. Row i lies in image `image_index[i]`; images without boxes are ordinary."""

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
        """The rows of a mask, or the rows named and in that order; the images stay all there."""
        return Detections(
            boxes_xyxy_px=self.boxes_xyxy_px[rows],
            scores=self.scores[rows],
            class_index=self.class_index[rows],
            image_index=self.image_index[rows],
            num_images=self.num_images,
        )

    def of_image(self, image_index: int) -> "Detections":
        """What was found in one image, as a batch of that image alone."""
        rows = self.image_index == image_index
        return Detections(
            boxes_xyxy_px=self.boxes_xyxy_px[rows],
            scores=self.scores[rows],
            class_index=self.class_index[rows],
            image_index=torch.zeros_like(self.image_index[rows]),
            num_images=1,
        )


def no_detections(num_images: int) -> Detections:
    """A batch of images in which nothing was found."""
    none = torch.zeros(0, dtype=torch.int64)
    return Detections(torch.zeros(0, 4), torch.zeros(0), none, none, num_images)


def concatenate(batches: Sequence[Detections]) -> Detections:
    """One batch holding the images of all batches, in their order."""
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
    """Persons of at least `actor_score`, and the `max_objects` best boxes of any other class per image.

    Both come ordered by image, best score first; of equal scores the earlier row goes first.
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
