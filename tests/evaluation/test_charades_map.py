import numpy as np
import pytest
from sklearn.metrics import average_precision_score

from mule.core.errors import AnnotationError, RangeError, ShapeError
from mule.evaluation.charades import (
    evaluate_charades_files,
    evaluate_charades_official,
    evaluate_charades_plain,
    read_charades_ground_truth,
    read_scores,
)

HEADER = "id,subject,scene,quality,relevance,verified,script,objects,descriptions,actions,length\n"


def written(tmp_path, content, name="file"):
    path = tmp_path / name
    path.write_text(content)
    return path


def row(video, actions, script="A person sits."):
    return f'{video},S1,Kitchen,6,7,Yes,"{script}",chair,"d; e",{actions},30.5\n'


def random_submission(seed, num_videos=60, num_classes=9):
    generator = np.random.default_rng(seed)
    scores = generator.normal(size=(num_videos, num_classes)).round(1)
    targets = generator.random((num_videos, num_classes)) < 0.15
    targets[generator.random(num_videos) < 0.2] = False
    targets[:, 4] = False
    return scores, targets, generator.random(num_videos) < 0.9


def loop_official(scores, targets, is_submitted):
    """Fill a table of −∞, look up each labelled video's scores, rank each column, average the precisions."""
    table = np.full(scores.shape, -np.inf)
    for video in range(len(scores)):
        if targets[video].any() and is_submitted[video]:
            table[video] = scores[video]
    aps, weights = [], []
    for at in range(scores.shape[1]):
        order = sorted(range(len(scores)), key=lambda video, at=at: -table[video, at])
        found, total = 0, 0.0
        for rank, video in enumerate(order, start=1):
            if targets[video, at]:
                found += 1
                total += found / rank
        if found:
            aps.append(total / found)
            weights.append(found)
    return np.mean(aps), np.average(aps, weights=weights)


@pytest.mark.parametrize("evaluate", [evaluate_charades_official, evaluate_charades_plain])
@pytest.mark.parametrize("num_videos", [0, 3], ids=["no videos", "no labels"])
def test_without_labels_there_is_no_mean(evaluate, num_videos):
    empty = np.zeros((num_videos, 2))
    with pytest.raises(RangeError, match="none of the 2 classes has one"):
        evaluate(empty, empty.astype(bool), np.ones(num_videos, dtype=bool))


@pytest.mark.parametrize("seed", range(8))
def test_the_official_rule_equals_the_walk_down_each_column(seed):
    scores, targets, is_submitted = random_submission(seed)
    result = evaluate_charades_official(scores, targets, is_submitted)
    expected = loop_official(scores, targets, is_submitted)
    assert (result.map, result.weighted_map) == pytest.approx(expected, abs=1e-12)
    assert result.per_class["c004"] is None
    assert result.num_classes == 8


@pytest.mark.parametrize("seed", range(8))
def test_the_plain_rule_equals_scikit_learn_on_what_was_submitted(seed):
    scores, targets, is_submitted = random_submission(seed)
    result = evaluate_charades_plain(scores, targets, is_submitted)
    s, t = scores[is_submitted], targets[is_submitted]
    used = np.flatnonzero(t.any(axis=0))
    expected = [average_precision_score(t[:, at], s[:, at]) for at in used]
    assert result.map == pytest.approx(np.mean(expected), abs=1e-12)
    assert result.weighted_map == pytest.approx(
        np.average(expected, weights=t[:, used].sum(axis=0)), abs=1e-12
    )


def test_an_unlabelled_video_is_a_false_alarm_by_the_plain_rule_only():
    scores = np.array([[0.9], [0.5]])
    targets = np.array([[False], [True]])
    submitted = np.array([True, True])
    assert evaluate_charades_official(scores, targets, submitted).map == 1.0
    assert evaluate_charades_plain(scores, targets, submitted).map == 0.5


def test_a_labelled_video_that_was_not_submitted_still_counts_by_the_official_rule():
    scores = np.array([[0.9, 0.0], [0.0, 0.0], [0.5, 0.9]])
    targets = np.array([[True, False], [True, False], [False, True]])
    submitted = np.array([True, False, True])
    assert evaluate_charades_official(scores, targets, submitted).per_class["c000"] == pytest.approx(
        (1 + 2 / 3) / 2
    )
    assert evaluate_charades_plain(scores, targets, submitted).per_class["c000"] == 1.0
    assert evaluate_charades_official(scores, targets, submitted).counts["videos_not_submitted"] == 1


def test_equal_scores_rank_in_file_order_by_the_official_rule():
    scores, submitted = np.zeros((3, 2)), np.ones(3, dtype=bool)
    first = np.array([[True, False], [False, True], [False, True]])
    assert evaluate_charades_official(scores, first, submitted).per_class["c000"] == 1.0
    assert evaluate_charades_official(scores[::-1], first[::-1], submitted).per_class[
        "c000"
    ] == pytest.approx(1 / 3)


def test_shapes_that_differ_are_an_error():
    with pytest.raises(ShapeError, match=r"got shapes \(2, 3\), \(2, 3\) and \(3,\)"):
        evaluate_charades_official(np.zeros((2, 3)), np.zeros((2, 3), dtype=bool), np.zeros(3, dtype=bool))
    with pytest.raises(ShapeError, match="truth values; got int64 and bool"):
        evaluate_charades_plain(np.zeros((2, 3)), np.zeros((2, 3), dtype=np.int64), np.zeros(2, dtype=bool))


def test_ground_truth_is_read_by_column_name_whatever_the_script_says(tmp_path):
    path = written(
        tmp_path,
        HEADER
        + row(
            "AAAAA",
            "c001 0.00 12.60;c002 1.0 2.0;c001 14 15",
            script='Says ""hello"", then\nsits, and\nstands.',
        )
        + row("BBBBB", ""),
    )
    truth = read_charades_ground_truth(path, num_classes=3)
    assert truth.videos == ["AAAAA", "BBBBB"]
    assert truth.targets.tolist() == [[False, True, True], [False, False, False]]


def test_a_problem_below_a_long_script_is_named_by_its_own_line(tmp_path):
    path = written(tmp_path, HEADER + row("A", "", script="one\ntwo\nthree") + row("B", "c009 0 1"))
    with pytest.raises(
        AnnotationError, match=r"line 5: a class must have a score, c000 to c002; got 'c009 0 1'"
    ):
        read_charades_ground_truth(path, num_classes=3)


@pytest.mark.parametrize("separator", [" ", "\t", "   "])
def test_scores_are_separated_by_spaces_or_tabs(tmp_path, separator):
    path = written(tmp_path, f"A{separator}1{separator}-2e-1\r\n\r\nB{separator}0{separator}3\r\n")
    submitted = read_scores(path)
    assert submitted.row_of == {"A": 0, "B": 1}
    assert submitted.scores.tolist() == [[1.0, -0.2], [0.0, 3.0]]


@pytest.mark.parametrize(("rule", "expected"), [("official", 1.0), ("plain", 0.75)])
def test_files_are_matched_by_video_and_the_rest_counted(tmp_path, rule, expected):
    truth = HEADER + row("A", "c000 0 1") + row("B", "") + row("C", "c001 0 1") + row("D", "c001 0 1")
    scores = "Z 9 9\nD 0.1 0.6\nC 0.2 0.7\nB 0.8 0.1\nA 0.5 0.3\n"
    result = evaluate_charades_files(
        written(tmp_path, truth, "g.csv"), written(tmp_path, scores, "s.txt"), rule=rule
    )
    assert result.map == pytest.approx(expected)
    assert result.ignored == {"scores_video_not_in_ground_truth": 1}
    assert result.counts == {"videos": 4, "videos_without_labels": 1, "videos_not_submitted": 0}


@pytest.mark.parametrize("evaluate", [evaluate_charades_official, evaluate_charades_plain])
def test_a_class_that_was_not_scored_has_no_precision_and_changes_no_other(evaluate):
    scores, targets, is_submitted = random_submission(3)
    whole = evaluate(scores, targets, is_submitted)
    scores[:, [2, 6]] = np.nan
    part = evaluate(scores, targets, is_submitted)
    assert (part.per_class["c002"], part.per_class["c006"]) == (None, None)
    others = {name: value for name, value in whole.per_class.items() if name not in ("c002", "c006")}
    assert {name: part.per_class[name] for name in others} == others
    assert part.map == pytest.approx(np.mean([value for value in others.values() if value is not None]))
    assert part.num_classes == whole.num_classes - 2


def test_scores_of_a_class_are_all_there_or_none(tmp_path):
    submitted = read_scores(written(tmp_path, "A 1 nan\nB 2 nan\n"))
    assert np.isnan(submitted.scores[:, 1]).all()
    for text in ("A 1 nan\nB 2 3\n", "A 1 3\nB 2 nan\n"):
        with pytest.raises(
            AnnotationError, match=r"line 2: a class must be scored on every line, or on none"
        ):
            read_scores(written(tmp_path, text))
