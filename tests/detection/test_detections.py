"""The record of what was found, and its split into actors and objects."""

import pytest
import torch

from mule.core.errors import NotFinite, RangeError, ShapeError
from mule.detection.detections import (
    PERSON,
    Detections,
    concatenate,
    no_detections,
    split_actors_and_objects,
)

CAR = 2


def detections(*rows, num_images=1):
    """Rows are (image, class, score); each box sits at its row number."""
    start = torch.arange(len(rows), dtype=torch.float32)
    return Detections(
        boxes_xyxy_px=torch.stack([start, start, start + 5, start + 5], dim=1).reshape(-1, 4),
        scores=torch.tensor([float(score) for _, _, score in rows]),
        class_index=torch.tensor([kind for _, kind, _ in rows], dtype=torch.int64),
        image_index=torch.tensor([image for image, _, _ in rows], dtype=torch.int64),
        num_images=num_images,
    )


@pytest.mark.parametrize("num_images", [0, 1, 3])
def test_images_without_boxes_are_ordinary(num_images):
    actors, objects = split_actors_and_objects(no_detections(num_images))
    assert (len(actors), len(objects), actors.num_images, objects.num_images) == (
        0,
        0,
        num_images,
        num_images,
    )
    assert len(concatenate([no_detections(num_images), no_detections(1)])) == 0


def test_actors_are_sure_persons_and_objects_are_everything_else():
    found = detections((0, PERSON, 0.9), (0, PERSON, 0.5), (0, CAR, 0.2), (0, PERSON, 0.85))
    actors, objects = split_actors_and_objects(found)
    assert actors.scores.tolist() == pytest.approx([0.9, 0.85])
    assert objects.class_index.tolist() == [CAR]
    actors, _ = split_actors_and_objects(found, actor_score=0.3)
    assert actors.scores.tolist() == pytest.approx([0.9, 0.85, 0.5])


@pytest.mark.parametrize("max_objects", [0, 1, 2, 10])
def test_objects_kept_are_the_best_of_each_image_as_a_sort_per_image_says(max_objects):
    random = torch.Generator().manual_seed(0)
    rows = [
        (
            int(torch.randint(0, 4, (1,), generator=random)),
            CAR,
            round(float(torch.rand(1, generator=random)), 1),
        )
        for _ in range(30)
    ]
    found = detections(*rows, num_images=5)
    _, objects = split_actors_and_objects(found, max_objects=max_objects)
    for image in range(5):
        mine = [i for i, row in enumerate(rows) if row[0] == image]
        best = sorted(mine, key=lambda i: (-rows[i][2], i))[:max_objects]
        assert objects.of_image(image).boxes_xyxy_px[:, 0].tolist() == best
    assert objects.num_images == 5


def test_joined_batches_keep_each_image_apart():
    joined = concatenate(
        [
            detections((0, PERSON, 0.5)),
            no_detections(2),
            detections((1, CAR, 0.7), (0, CAR, 0.6), num_images=2),
        ]
    )
    assert joined.num_images == 5
    assert joined.image_index.tolist() == [0, 4, 3]
    assert joined.of_image(4).scores.tolist() == pytest.approx([0.7])
    assert len(joined.of_image(1)) == 0


@pytest.mark.parametrize(
    ("box", "score", "error", "says"),
    [
        ([float("nan"), 0, 1, 1], 0.5, NotFinite, "first row 1"),
        ([0, 0, float("inf"), 1], 0.5, NotFinite, "must be finite"),
        ([0, 0, 1, 1], float("nan"), NotFinite, "score nan"),
        ([5, 0, 1, 1], 0.5, RangeError, "x2 > x1"),
        ([0, 0, 4, 0], 0.5, RangeError, "xyxy_from_xywh"),
    ],
)
def test_boxes_that_are_no_boxes_are_refused_with_their_row(box, score, error, says):
    with pytest.raises(error, match=says):
        Detections(
            boxes_xyxy_px=torch.tensor([[0.0, 0.0, 1.0, 1.0], box]),
            scores=torch.tensor([0.5, score]),
            class_index=torch.tensor([0, 0]),
            image_index=torch.tensor([0, 0]),
            num_images=1,
        )


@pytest.mark.parametrize("image", [-1, 1])
def test_a_row_of_an_image_that_is_not_there_is_refused(image):
    with pytest.raises(RangeError, match=r"image_index must lie in 0\.\.0"):
        detections((image, PERSON, 0.5))


def test_lengths_that_differ_are_refused():
    # under pytest the annotations are checked too; the record must not depend on that
    found = detections((0, PERSON, 0.5), (0, PERSON, 0.6))
    object.__setattr__(found, "scores", torch.zeros(3))
    with pytest.raises(ShapeError, match="2, 4\\) boxes, 3 scores"):
        found.__post_init__()
