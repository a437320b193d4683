import heapq
from time import process_time

import numpy as np
import pytest
from strategies import unchecked

from mule.core.errors import NotFinite, RangeError, ShapeError
from mule.evaluation import ava
from mule.evaluation.ava import ActionBoxes, ScoredActionBoxes, evaluate_ava

NAMES = {1: "sit", 3: "walk", 7: "talk"}
BOX = [0.1, 0.1, 0.5, 0.5]


def born(kind, **fields):
    """Boxes as users make them: with their own checks, not the test-time shape checker's."""
    boxes = object.__new__(kind)
    for name, value in fields.items():
        object.__setattr__(boxes, name, value)
    unchecked(kind.__post_init__)(boxes)


def truth_of(*rows):
    frame, action, boxes = zip(*rows, strict=True)
    return ActionBoxes(np.array(frame), np.array(boxes, dtype=float), np.array(action))


def found_of(*rows):
    frame, action, boxes, score = zip(*rows, strict=True)
    return ScoredActionBoxes(np.array(frame), np.array(boxes, dtype=float), np.array(action), np.array(score))


def no_detections():
    none = np.zeros(0, dtype=int)
    return ScoredActionBoxes(none, np.zeros((0, 4)), none, np.zeros(0))


def loop_overlap(a, b):
    width, height = min(a[2], b[2]) - max(a[0], b[0]), min(a[3], b[3]) - max(a[1], b[1])
    shared = max(width, 0.0) * max(height, 0.0)
    return shared / ((a[2] - a[0]) * (a[3] - a[1]) + (b[2] - b[0]) * (b[3] - b[1]) - shared)


def loop_average_precision(truth, found, action, frames):
    """One class: walk down the ranking, then add up the envelope between recalls."""
    boxes = {frame: [] for frame in frames}
    for frame, box, of in zip(truth.frame.tolist(), truth.boxes_xyxy.tolist(), truth.action_id, strict=True):
        if frame in frames and of == action:
            boxes[frame].append(box)
    num_truth = sum(map(len, boxes.values()))
    if num_truth == 0:
        return None
    rows = [i for i in range(len(found.frame)) if found.action_id[i] == action and found.frame[i] in frames]
    rows.sort(key=lambda i: -found.score[i])
    taken, precisions, recalls = set(), [], []
    for rank, i in enumerate(rows, start=1):
        overlaps = [loop_overlap(found.boxes_xyxy[i].tolist(), b) for b in boxes[found.frame[i]]]
        best = int(np.argmax(overlaps)) if overlaps else None
        if best is not None and overlaps[best] >= 0.5:
            taken.add((found.frame[i], best))
        precisions.append(len(taken) / rank)
        recalls.append(len(taken) / num_truth)
    area, best_below = 0.0, 0.0
    for recall, before, precision in reversed(list(zip(recalls, [0.0, *recalls], precisions, strict=False))):
        best_below = max(best_below, precision)
        area += (recall - before) * best_below
    return area


def loop_keep_top(found, keep_top):
    kept = []
    for frame in set(found.frame.tolist()):
        heap = []
        for i in np.flatnonzero(found.frame == frame).tolist():
            x1, y1, x2, y2 = found.boxes_xyxy[i]
            entry = (found.score[i], found.action_id[i], y1, x1, y2, x2, i)
            if len(heap) < keep_top:
                heapq.heappush(heap, entry)
            elif entry[0] > heap[0][0]:
                heapq.heapreplace(heap, entry)
        kept += [entry[-1] for entry in heap]
    rows = np.array(sorted(kept))
    return ScoredActionBoxes(
        found.frame[rows], found.boxes_xyxy[rows], found.action_id[rows], found.score[rows]
    )


def random_scene(seed, num_found, score_digits=12):
    """A few frames in which detections sit on or near the ground truth, of the right class or another."""
    generator = np.random.default_rng(seed)
    num_truth, ids = 40, np.array([1, 3, 7, 9])
    corner, size = generator.random((num_truth, 2)), 0.2 + generator.random((num_truth, 2))
    boxes = np.hstack([corner, corner + size]).round(2)
    truth = ActionBoxes(generator.integers(0, 8, num_truth), boxes, generator.choice(ids[1:], num_truth))
    source = generator.integers(0, num_truth, num_found)
    moved = boxes[source] + generator.normal(0, 0.06, (num_found, 4))
    moved[:, 2:] = np.maximum(moved[:, 2:], moved[:, :2] + 0.05)
    frame = np.where(
        generator.random(num_found) < 0.8, truth.frame[source], generator.integers(0, 10, num_found)
    )
    action = np.where(
        generator.random(num_found) < 0.7, truth.action_id[source], generator.choice(ids, num_found)
    )
    return truth, ScoredActionBoxes(frame, moved, action, generator.random(num_found).round(score_digits))


def test_without_detections_every_class_with_ground_truth_scores_zero():
    result = evaluate_ava(truth_of((0, 1, BOX)), no_detections(), NAMES)
    assert (result.map, result.per_class) == (0.0, {"sit": 0.0, "walk": None, "talk": None})
    assert result.num_classes == 1
    assert evaluate_ava(truth_of((0, 1, BOX)), no_detections(), NAMES, keep_top=3).map == 0.0


@pytest.mark.parametrize(
    ("truth", "excluded"), [(truth_of((0, 2, BOX)), None), (truth_of((5, 1, BOX)), np.array([5]))]
)
def test_no_ground_truth_left_is_an_error_that_says_where_it_went(truth, excluded):
    with pytest.raises(RangeError, match="no ground truth is left to evaluate; of 1 rows"):
        evaluate_ava(truth, no_detections(), NAMES, excluded_frames=excluded)


def test_ground_truth_given_back_as_detections_is_perfect():
    truth, _ = random_scene(0, 1)
    found = ScoredActionBoxes(truth.frame, truth.boxes_xyxy, truth.action_id, np.ones(len(truth.frame)))
    assert evaluate_ava(truth, found, NAMES).map == pytest.approx(1.0)


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("num_found", [0, 1, 30, 400])
def test_average_precision_of_each_class_equals_the_walk_down_the_ranking(seed, num_found):
    truth, found = random_scene(seed, num_found)
    result = evaluate_ava(truth, found, NAMES, excluded_frames=np.array([2, 77]))
    frames = set(truth.frame.tolist()) - {2}
    for action, name in NAMES.items():
        expected = loop_average_precision(truth, found, action, frames)
        assert result.per_class[name] == (None if expected is None else pytest.approx(expected, abs=1e-12))
    assert result.map == pytest.approx(np.mean([ap for ap in result.per_class.values() if ap is not None]))


@pytest.mark.parametrize("rows_at_once", [1, 7, 100])
def test_working_in_parts_changes_nothing(monkeypatch, rows_at_once):
    truth, found = random_scene(1, 300)
    whole = evaluate_ava(truth, found, NAMES)
    monkeypatch.setattr(ava, "_ROWS_AT_ONCE", rows_at_once)
    assert evaluate_ava(truth, found, NAMES) == whole


@pytest.mark.parametrize("score_digits", [12, 1, 0], ids=["no ties", "ties", "all tied"])
@pytest.mark.parametrize("keep_top", [1, 5, 50])
def test_keeping_the_top_equals_the_official_heap(score_digits, keep_top):
    truth, found = random_scene(2, 400, score_digits)
    listed = np.isin(found.frame, truth.frame) & np.isin(found.action_id, list(NAMES))
    found = ScoredActionBoxes(
        found.frame[listed], found.boxes_xyxy[listed], found.action_id[listed], found.score[listed]
    )
    ours = evaluate_ava(truth, found, NAMES, keep_top=keep_top)
    expected = evaluate_ava(truth, loop_keep_top(found, keep_top), NAMES)
    assert ours.per_class == expected.per_class
    assert ours.counts == expected.counts
    assert ours.ignored["detections_beyond_keep_top"] == len(found.frame) - expected.counts["detections"]


def test_only_one_detection_of_a_box_is_right_and_it_is_the_best_ranked():
    truth = truth_of((0, 1, BOX), (0, 1, [0.6, 0.6, 0.9, 0.9]))
    found = found_of((0, 1, BOX, 0.2), (0, 1, BOX, 0.9), (0, 1, BOX, 0.5))
    assert evaluate_ava(truth, found, NAMES).map == pytest.approx(0.5 * 1.0)


def test_a_detection_never_falls_back_on_its_second_best_box():
    near, other = [0.0, 0.0, 0.4, 0.4], [0.0, 0.0, 0.4, 0.5]
    found = found_of((0, 1, near, 0.9), (0, 1, near, 0.8))
    assert evaluate_ava(truth_of((0, 1, near), (0, 1, other)), found, NAMES).map == pytest.approx(0.5)


def test_an_overlap_of_exactly_a_half_is_enough():
    truth = truth_of((0, 1, [0.0, 0.0, 1.0, 1.0]))
    assert evaluate_ava(truth, found_of((0, 1, [0.0, 0.0, 1.0, 0.5], 0.9)), NAMES).map == 1.0
    assert evaluate_ava(truth, found_of((0, 1, [0.0, 0.0, 1.0, 0.4999], 0.9)), NAMES).map == 0.0


def test_other_frames_and_other_classes_do_not_match():
    truth = truth_of((0, 1, BOX), (1, 3, BOX))
    result = evaluate_ava(truth, found_of((1, 1, BOX, 0.9), (0, 3, BOX, 0.9)), NAMES)
    assert result.per_class == {"sit": 0.0, "walk": 0.0, "talk": None}


def test_equal_scores_rank_in_the_order_given():
    truth = truth_of((0, 1, BOX))
    right, wrong = (0, 1, BOX, 0.5), (0, 1, [0.6, 0.6, 0.9, 0.9], 0.5)
    assert evaluate_ava(truth, found_of(right, wrong), NAMES).map == 1.0
    assert evaluate_ava(truth, found_of(wrong, right), NAMES).map == 0.5


def test_rows_left_out_are_counted_by_reason():
    truth = truth_of((0, 1, BOX), (1, 2, BOX), (2, 1, BOX))
    found = found_of((0, 1, BOX, 0.9), (0, 2, BOX, 0.9), (1, 1, BOX, 0.8), (2, 1, BOX, 0.9), (9, 1, BOX, 0.9))
    result = evaluate_ava(truth, found, NAMES, excluded_frames=np.array([2]))
    assert result.ignored == {
        "ground_truth_class_outside_label_map": 1,
        "ground_truth_frame_not_listed": 0,
        "ground_truth_frame_excluded": 1,
        "detections_class_outside_label_map": 1,
        "detections_frame_not_listed": 1,
        "detections_frame_excluded": 1,
        "detections_beyond_keep_top": 0,
    }
    assert result.counts == {"frames": 2, "ground_truth_boxes": 1, "detections": 2}


@pytest.mark.parametrize("empty_frames", [None, np.array([4])])
def test_a_detection_counts_as_a_miss_only_in_a_listed_frame(empty_frames):
    found = found_of((4, 1, BOX, 0.9), (0, 1, BOX, 0.5))
    result = evaluate_ava(truth_of((0, 1, BOX)), found, NAMES, empty_frames=empty_frames)
    assert result.map == (1.0 if empty_frames is None else 0.5)


def test_a_frame_is_listed_by_a_box_of_any_class():
    truth = truth_of((0, 1, BOX), (4, 2, BOX))
    assert evaluate_ava(truth, found_of((4, 1, BOX, 0.9), (0, 1, BOX, 0.5)), NAMES).map == 0.5


def test_which_numbers_stand_for_the_frames_does_not_matter():
    truth, found = random_scene(3, 200)
    names = np.array([90, 3, -4, 10**12, 0, 8, 7, 6, 5, 1])
    renamed = evaluate_ava(
        ActionBoxes(names[truth.frame], truth.boxes_xyxy, truth.action_id),
        ScoredActionBoxes(names[found.frame], found.boxes_xyxy, found.action_id, found.score),
        NAMES,
        keep_top=9,
    )
    assert renamed == evaluate_ava(truth, found, NAMES, keep_top=9)


def test_a_rising_function_of_the_score_changes_nothing():
    truth, found = random_scene(4, 300)
    raised = ScoredActionBoxes(found.frame, found.boxes_xyxy, found.action_id, np.exp(found.score) - 9)
    assert evaluate_ava(truth, raised, NAMES, keep_top=9) == evaluate_ava(truth, found, NAMES, keep_top=9)


@pytest.mark.parametrize(
    ("boxes", "score", "error", "words"),
    [
        ([[0.5, 0.1, 0.5, 0.2]], [1.0], RangeError, r"x1 < x2 and y1 < y2; 1 have not, the first is row 0"),
        ([[0.1, 0.3, 0.5, 0.2]], [1.0], RangeError, "y1 < y2"),
        ([[0.1, np.nan, 0.5, 0.2]], [1.0], NotFinite, "boxes_xyxy must be finite"),
        ([BOX], [np.nan], NotFinite, "score must be finite"),
    ],
)
def test_boxes_check_themselves(boxes, score, error, words):
    with pytest.raises(error, match=words):
        ScoredActionBoxes(np.array([0]), np.array(boxes), np.array([1]), np.array(score))


def test_lengths_that_differ_are_an_error():
    two, one = np.zeros(2, dtype=int), np.zeros(1, dtype=int)
    with pytest.raises(ShapeError, match="one row per box"):
        born(ActionBoxes, frame=two, boxes_xyxy=np.array([BOX]), action_id=two)
    with pytest.raises(ShapeError, match="one entry per box"):
        born(ScoredActionBoxes, frame=one, boxes_xyxy=np.array([BOX]), action_id=one, score=np.zeros(2))


def test_keeping_no_detections_is_an_error():
    with pytest.raises(RangeError, match="keep_top must be at least 1"):
        evaluate_ava(truth_of((0, 1, BOX)), no_detections(), NAMES, keep_top=0)


@pytest.mark.slow
def test_half_a_million_detections_take_less_than_a_tenth_of_the_walk_down_every_ranking():
    generator = np.random.default_rng(0)
    num_frames, num_truth, num_found, num_classes = 14_000, 45_000, 500_000, 60
    corner, size = generator.random((num_truth, 2)), 0.1 + generator.random((num_truth, 2))
    boxes = np.hstack([corner, corner + size])
    truth = ActionBoxes(
        generator.integers(0, num_frames, num_truth), boxes, generator.integers(1, 1 + num_classes, num_truth)
    )
    source = generator.integers(0, num_truth, num_found)
    found = ScoredActionBoxes(
        truth.frame[source],
        boxes[source] + generator.normal(0, 0.01, (num_found, 4)),
        np.where(generator.random(num_found) < 0.3, truth.action_id[source], 1 + source % num_classes),
        generator.random(num_found),
    )
    started_at = process_time()
    result = evaluate_ava(truth, found, {action: str(action) for action in range(1, 1 + num_classes)})
    ours_s = process_time() - started_at
    started_at = process_time()
    expected = loop_average_precision(truth, found, 1, set(truth.frame.tolist()))
    one_class_s = process_time() - started_at
    assert result.per_class["1"] == pytest.approx(expected, abs=1e-9)
    assert ours_s < one_class_s * num_classes / 10
