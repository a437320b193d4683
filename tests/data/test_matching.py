import numpy as np
import pytest
from made_tables import NO_BOX, actors_of, detections_of

from mule.core.errors import RangeError
from mule.data.split import matching
from mule.data.split.matching import boxes_for_training, labels_from_ground_truth
from mule.data.table.table import joined_tables

LEFT, RIGHT = (0.0, 0.0, 0.4, 1.0), (0.5, 0.0, 0.9, 1.0)


def shrunk(box, iou):
    """A box inside the given one that overlaps it by exactly this much."""
    x1, y1, x2, y2 = box
    return (x1, y1, x2, y1 + (y2 - y1) * iou)


def names(found):
    return [found.actors.action_names(row) for row in range(len(found.actors))]


def random_boxes(draw, count):
    corner = draw.random((count, 2)) * 0.6
    return np.concatenate([corner, corner + 0.1 + 0.3 * draw.random((count, 2))], axis=1).round(2)


def slow_iou(a, b):
    width = min(a[2], b[2]) - max(a[0], b[0])
    height = min(a[3], b[3]) - max(a[1], b[1])
    if width <= 0 or height <= 0:
        return 0.0
    union = (a[2] - a[0]) * (a[3] - a[1]) + (b[2] - b[0]) * (b[3] - b[1]) - width * height
    return width * height / union


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ((0, 0, 0.3, 0.3), (0.6, 0.6, 0.9, 0.9)),
        ((0, 0, 0.1, 0.1), (0.8, 0.8, 1, 1)),
        ((0, 0, 0.3, 1), (0.3, 0, 0.6, 1)),
    ],
)
def test_boxes_apart_do_not_match_though_the_released_overlap_says_they_do(first, second):
    truth = actors_of([("v", "a", 0.0, first)])
    found = labels_from_ground_truth(detections_of([("v", 0.0, second, "person", 1.0)]), truth)
    assert found.iou.tolist() == [0.0]
    assert names(found) == [()]


def test_without_detections_nothing_is_found():
    truth = actors_of([("v", "a", 0.0, LEFT)])
    found = labels_from_ground_truth(detections_of([]), truth)
    assert (len(found.actors), found.counts.matched, found.counts.ground_truth_found) == (0, 0, 0)


def test_without_ground_truth_in_its_frame_a_detection_has_no_label():
    truth = actors_of([("v", "a", 1.0, LEFT), ("w", "a", 0.0, LEFT), ("v", "a", 0.0, NO_BOX)])
    found = labels_from_ground_truth(detections_of([("v", 0.0, LEFT, "person", 1.0)]), truth)
    assert names(found) == [()]
    assert (found.counts.unmatched, found.counts.ground_truth_without_box) == (1, 1)


def test_the_frame_is_told_by_the_name_of_the_video_and_the_time_to_the_millisecond():
    truth = actors_of([("w", "b", 2.0, LEFT), ("v", "a", 1 / 3, LEFT)])
    found = labels_from_ground_truth(detections_of([("v", 0.3331, LEFT, "person", 1.0)]), truth)
    assert names(found) == [("a",)]


@pytest.mark.parametrize(("iou", "expected"), [(0.5, ("a",)), (0.499, ()), (1.0, ("a",))])
def test_half_is_enough(iou, expected):
    truth = actors_of([("v", "a", 0.0, (0.0, 0.0, 0.5, 1.0))])
    detections = detections_of([("v", 0.0, shrunk((0.0, 0.0, 0.5, 1.0), iou), "person", 1.0)])
    assert names(labels_from_ground_truth(detections, truth)) == [expected]


def test_a_detection_takes_the_labels_of_the_box_it_overlaps_most_or_of_all_when_asked():
    truth = actors_of(
        [("v", "a b", 0.0, shrunk(LEFT, 0.6)), ("v", "c", 0.0, shrunk(LEFT, 0.9)), ("v", "d", 0.0, RIGHT)]
    )
    detections = detections_of([("v", 0.0, LEFT, "person", 1.0)])
    assert names(labels_from_ground_truth(detections, truth)) == [("c",)]
    assert names(labels_from_ground_truth(detections, truth, take="all")) == [("a", "b", "c")]


def test_of_equal_overlaps_the_earlier_row_counts():
    truth = actors_of([("v", "a", 0.0, LEFT), ("v", "b", 0.0, LEFT)])
    assert names(labels_from_ground_truth(detections_of([("v", 0.0, LEFT, "person", 1.0)]), truth)) == [
        ("a",)
    ]


@pytest.mark.parametrize("take", ["best", "all"])
@pytest.mark.parametrize("seed", range(4))
def test_matching_equals_a_loop_over_all_pairs(seed, take):
    draw = np.random.default_rng(seed)
    boxes = random_boxes(draw, 150), random_boxes(draw, 400)
    classes = [f"a{i}" for i in range(6)]
    truth = actors_of(
        [
            (f"v{draw.integers(4)}", " ".join(draw.choice(classes, 2)), float(draw.integers(5)), tuple(box))
            for box in boxes[0]
        ],
        classes=classes,
    )
    rows = [(f"v{draw.integers(6)}", float(draw.integers(6)), tuple(box), "person", 1.0) for box in boxes[1]]
    found = labels_from_ground_truth(detections_of(rows), truth, take=take)
    others = list(zip(truth.video_names, truth.time_s.tolist(), truth.boxes_xyxy_unit.tolist(), strict=True))
    for at, (video, time, box, *_) in enumerate(rows):
        overlaps = [slow_iou(box, other[2]) if other[:2] == (video, time) else 0.0 for other in others]
        best = [int(np.argmax(overlaps))] if take == "best" else range(len(overlaps))
        expected = np.any(
            [truth.labels[i] for i in best if overlaps[i] >= 0.5] or [np.zeros(6, bool)], axis=0
        )
        assert found.actors.labels[at].tolist() == expected.tolist()
        assert found.iou[at] == pytest.approx(max(overlaps))


def test_training_uses_ground_truth_and_the_predicted_persons_that_overlap_it():
    truth = actors_of([("v", "a", 0.0, LEFT), ("v", "b", 1.0, RIGHT), ("w", "c", 0.0, NO_BOX)])
    predicted = detections_of(
        [
            ("v", 0.0, LEFT, "person", 0.95),
            ("v", 0.0, LEFT, "person", 0.9),
            ("v", 0.0, LEFT, "person", 0.89),
            ("v", 0.0, LEFT, "chair", 1.0),
            ("x", 0.0, RIGHT, "person", 0.99),
        ]
    )
    found = boxes_for_training(truth, predicted)
    assert names(found) == [("a",), ("b",), ("c",), ("a",), ("a",)]
    assert found.is_detected.tolist() == [False, False, False, True, True]
    assert found.score.tolist() == [1, 1, 1, 0.95, 0.9]
    assert found.actors.videos == ("v", "w", "x")
    assert vars(found.counts) == {
        "detections": 4,
        "below_score": 1,
        "matched": 2,
        "unmatched": 1,
        "ground_truth": 3,
        "ground_truth_without_box": 1,
        "ground_truth_found": 1,
    }


def test_testing_uses_detected_persons_from_the_papers_score_and_keeps_those_that_match_nothing():
    truth = actors_of([("v", "a", 0.0, LEFT)])
    detected = detections_of(
        [("v", 0.0, LEFT, "person", 0.85), ("v", 0.0, LEFT, "person", 0.84), ("v", 0.0, RIGHT, "person", 1.0)]
    )
    found = matching.boxes_for_testing(truth, detected)
    assert names(found) == [("a",), ()]
    assert found.truth_row.tolist() == [0, matching.NOBODY]


def slow_one_to_one(truth, persons, min_score):
    """The row each person matches, one after the other by score: its best box, if that is not taken."""
    others = list(zip(truth.video_names, truth.time_s.tolist(), truth.boxes_xyxy_unit.tolist(), strict=True))
    frames = {other[:2] for other in others}
    kept = [each for each in persons if each[4] >= min_score and each[:2] in frames]
    matched, taken = [-1] * len(kept), set()
    for at in sorted(range(len(kept)), key=lambda at: (-kept[at][4], at)):
        video, time, box, *_ = kept[at]
        overlaps = [slow_iou(box, other[2]) if other[:2] == (video, time) else 0.0 for other in others]
        best = int(np.argmax(overlaps))
        if overlaps[best] >= 0.5 and best not in taken:
            matched[at] = best
            taken.add(best)
    return kept, matched


@pytest.mark.parametrize("seed", range(6))
def test_matching_for_testing_equals_a_loop_that_takes_persons_by_score(seed):
    draw = np.random.default_rng(seed)
    boxes = random_boxes(draw, 120), random_boxes(draw, 300)
    classes = [f"a{i}" for i in range(6)]
    truth = actors_of(
        [
            (f"v{draw.integers(4)}", " ".join(draw.choice(classes, 2)), float(draw.integers(5)), tuple(box))
            for box in boxes[0]
        ],
        classes=classes,
    )
    scores = draw.integers(80, 100, len(boxes[1])) / 100  # with ties
    rows = [
        (f"v{draw.integers(6)}", float(draw.integers(6)), tuple(box), "person", score)
        for box, score in zip(boxes[1], scores.tolist(), strict=True)
    ]
    found = matching.boxes_for_testing(truth, detections_of(rows), min_score=0.85)
    kept, matched = slow_one_to_one(truth, rows, 0.85)
    assert found.truth_row.tolist() == matched
    assert len(set(matched) - {-1}) == sum(row >= 0 for row in matched) > 5
    np.testing.assert_allclose(found.actors.boxes_xyxy_unit, [each[2] for each in kept])
    assert found.actors.video_names == [each[0] for each in kept]
    assert found.actors.time_s.tolist() == [each[1] for each in kept]
    for at, row in enumerate(matched):
        assert found.actors.labels[at].tolist() == (truth.labels[row].tolist() if row >= 0 else [False] * 6)


def test_detected_persons_take_the_time_and_the_actor_of_the_ground_truth():
    truth = actors_of([("w", "b", 2.0, LEFT), ("v", "a", 1 / 3, LEFT), ("v", "b", 5.0, NO_BOX)])
    rows = [
        ("v", 0.3331, LEFT, "person", 0.9),
        ("v", 5.0, LEFT, "person", 1.0),
        ("v", 7.0, LEFT, "person", 1.0),
    ]
    found = matching.boxes_for_testing(truth, detections_of(rows))
    assert found.actors.time_s.tolist() == [1 / 3, 5.0]
    assert found.actors.video_names == ["v", "v"]
    assert found.truth_row.tolist() == [1, matching.NOBODY]
    assert found.actors.actor_id == (truth.actor_id[1], "")


def test_the_actors_of_a_clip_are_its_detected_persons_or_the_frame():
    clips = actors_of(
        [
            ("v", "a", 0.0, NO_BOX),
            ("v", "b", 1.0, NO_BOX),
            ("w", "c", float("nan"), NO_BOX),
            ("w", "d", 3.0, LEFT),
        ]
    )
    rows = [
        ("v", 0.0, LEFT, "person", 0.9),
        ("v", 0.0, RIGHT, "person", 0.95),
        ("v", 0.0, RIGHT, "person", 0.5),
        ("v", 1.0, LEFT, "chair", 1.0),
        ("w", 3.0, RIGHT, "person", 1.0),
    ]
    found, row = matching.persons_in_clips(clips, detections_of(rows), min_score=0.85)
    assert row.tolist() == [0, 0, 1, 2, 3]
    np.testing.assert_allclose(found.boxes_xyxy_unit[[0, 1, 4]], [RIGHT, LEFT, LEFT])
    assert not found.has_box[2:4].any()
    assert [found.action_names(at) for at in range(5)] == [("a",), ("a",), ("b",), ("c",), ("d",)]


def test_detections_without_persons_are_refused():
    truth = actors_of([("v", "a", 0.0, LEFT)])
    with pytest.raises(RangeError, match=r"detections must include the class 'person'; got chair"):
        boxes_for_training(truth, detections_of([("v", 0.0, LEFT, "chair", 1.0)], classes=("chair",)))


@pytest.mark.parametrize("min_iou", [0.0, 1.5])
def test_an_overlap_that_means_nothing_is_refused(min_iou):
    truth = actors_of([("v", "a", 0.0, LEFT)])
    with pytest.raises(RangeError, match="min_iou must be above 0 and at most 1"):
        labels_from_ground_truth(detections_of([]), truth, min_iou=min_iou)


def test_joined_tables_hold_every_row_with_its_own_video_and_actions():
    first = actors_of([("v", "b"), ("w", "a b")])
    second = actors_of([("x", "c"), ("v", "a")])
    both = joined_tables([first, second])
    assert both.video_names == [*first.video_names, *second.video_names]
    rows = [each.action_names(row) for each in (first, second) for row in range(2)]
    assert [both.action_names(row) for row in range(4)] == rows
    assert both.videos == ("v", "w", "x")
    assert len(joined_tables([])) == 0
