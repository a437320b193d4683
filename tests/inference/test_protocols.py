"""Both protocols of the paper: detected persons against true boxes, views of a video, and the official files of a run."""

import json

import numpy as np
import pytest
import torch
from made_films import FOUR, SIDES, WALK_RUN_FLY, persons_of, settings_on, two_in_each_film, write_films
from tiny_rows import silent, tiny_experiment
from typer.testing import CliRunner

from mule.cli.main import app
from mule.core.config import ConfigError
from mule.core.errors import RangeError
from mule.core.settings import TableData
from mule.data.convert.origin import Origin, write_origin
from mule.data.split.splits import ClassSets, Rules
from mule.data.table.table import ActorTable, ObjectTable, joined_tables
from mule.data.table.writing import write_object_table
from mule.evaluation.ava import evaluate_ava_files
from mule.evaluation.charades import evaluate_charades_files
from mule.inference import running
from mule.inference.judging import Judging, judge_run
from mule.inference.results import kept_outputs, read_novelties, read_result
from mule.training.build import run_experiment
from mule.training.data import table_sides

NUMBERS = {"walk": 14, "run": 10, "fly": 80}
PE = Judging(scores=("PE",), dropout_passes=0, resamples=20, looks_at_least=True)


class Silent:
    def stepped(self, step, num_steps, values):
        pass

    def validated(self, step, epoch, found):
        pass

    def noted(self, sentence):
        pass


def at_rows(persons, rows):
    columns = ("video_index", "time_s", "boxes_xyxy_unit", "class_index", "score")
    chosen = {name: getattr(persons, name)[rows] for name in columns}
    return ObjectTable(persons.videos, persons.classes, **chosen)


@pytest.fixture(scope="module")
def films(tmp_path_factory):
    """Four films with two actors at each of two times; AVA's numbers of the classes are beside the table."""
    root = write_films(tmp_path_factory.mktemp("films"), two_in_each_film(), rules=Rules(z1_at_test="known"))
    write_origin(Origin(dataset="ava", class_numbers=NUMBERS, starts_at_s=900.0), root / "actors.csv")
    table = two_in_each_film()
    write_object_table(persons_of(table), root / "perfect.csv")
    return root


def experiment_on(root, **data):
    data = {"persons": "perfect.csv", **data}
    return tiny_experiment(root, data={**settings_on(root), **data}, training__batch_clips=2)


@pytest.fixture(scope="module")
def run_dir(films, tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs") / "run"
    run_experiment(experiment_on(films), folder, listener=Silent())
    return folder


def judged_on(run_dir, experiment, judging=PE, sides=("test",)):
    return judge_run(run_dir, experiment, sides=sides, judging=judging, noted=silent)["test"]


def test_perfect_detections_give_the_numbers_of_true_boxes(films, run_dir):
    true = judged_on(run_dir, experiment_on(films))
    novelty = read_novelties(run_dir, "test")["PE"]
    detected = judged_on(run_dir, experiment_on(films, test_boxes="detected"))
    assert detected.scores == true.scores
    assert (detected.mean_ap, detected.num_known, detected.num_novel) == (true.mean_ap, 3, 1)
    np.testing.assert_array_equal(read_novelties(run_dir, "test")["PE"], novelty)
    assert true.detected is None
    assert detected.detected is not None
    assert detected.detected.sentence == (
        "0 of 3 known and 0 of 1 novel actors were not detected; 0 of 4 detections match nobody."
    )
    assert true.official is not None
    assert detected.official is not None
    assert true.official.mean_ap == pytest.approx(detected.official.mean_ap)
    assert detected.official.name == "frame-mAP at IoU 0.5 over 2 known classes, detected boxes"


def test_lost_actors_and_strangers_are_counted_and_strangers_are_not_judged(films, run_dir):
    table = two_in_each_film()
    of_test = np.flatnonzero(np.array(table.video_names) == "film3")
    others = np.flatnonzero(np.array(table.video_names) == "film2")
    persons = persons_of(table)
    kept = np.concatenate([others, of_test[1:]])  # one known actor of the test is lost
    strangers = persons_of(table.at(of_test[:1]))
    boxes = np.concatenate([persons.boxes_xyxy_unit[kept], [[0.9, 0.0, 1.0, 0.1]]])
    made = ObjectTable(
        FOUR,
        ("person",),
        np.concatenate([persons.video_index[kept], strangers.video_index]),
        np.concatenate([persons.time_s[kept], strangers.time_s]),
        boxes,
        np.zeros(len(boxes), np.int64),
        np.full(len(boxes), 0.9),
    )
    write_object_table(made, films / "lossy.csv")
    result = judged_on(run_dir, experiment_on(films, persons="lossy.csv", test_boxes="detected"))
    assert (result.num_known, result.num_novel) == (2, 1)
    assert result.detected is not None
    assert result.detected.sentence == (
        "1 of 3 known and 0 of 1 novel actors were not detected; 1 of 4 detections match nobody."
    )
    assert kept_outputs(run_dir, "test").num_actors == 3
    rows = (run_dir / "results" / "ava_detections-test.csv").read_text().splitlines()
    assert len(rows) == 4 * 2  # the stranger is a detection of either class
    assert sum("0.9,0.0,1.0,0.1" in row for row in rows) == 2


def test_d9_the_official_files_of_a_run_are_read_again_to_the_same_frame_map(films, run_dir):
    result = judged_on(run_dir, experiment_on(films, test_boxes="detected"))
    assert result.official is not None
    folder = run_dir / "results"
    again = evaluate_ava_files(
        folder / "ava_ground_truth-test.csv",
        folder / "ava_detections-test.csv",
        folder / "ava_label_map-test.pbtxt",
    )
    assert again.map == result.official.mean_ap
    assert again.per_class == result.official.mean_ap_by_class
    assert (
        again.ignored["ground_truth_class_outside_label_map"] == 1
    )  # who flies is ground truth nobody asks for
    first = (folder / "ava_detections-test.csv").read_text().splitlines()[0]
    assert first.startswith("film3,900.500000,")


def test_d9_without_published_numbers_one_sentence_says_why_there_is_no_official_metric(films, run_dir):
    beside = films / "actors.origin.json"
    kept = beside.read_text()
    beside.unlink()
    try:
        result = judged_on(run_dir, experiment_on(films))
    finally:
        beside.write_text(kept)
    assert result.official is None
    assert "actors.origin.json would say which published classes the table has" in result.official_missing


def test_d7_a_score_that_learns_nothing_looks_at_the_asked_side_alone(films, run_dir, monkeypatch):
    looked = []
    on_all = running.OutputsOf.on_all
    monkeypatch.setattr(
        running.OutputsOf,
        "on_all",
        lambda self, side, *, noted: looked.append(side) or on_all(self, side, noted=noted),
    )
    for path in (run_dir / "outputs").glob("*"):
        path.unlink()
    (run_dir / "results" / "test.json").unlink(missing_ok=True)
    result = judged_on(run_dir, experiment_on(films))
    assert set(looked) == {"test"}
    assert sorted(path.stem for path in (run_dir / "outputs").glob("*.json")) == ["test"]
    score = result.scores["PE"]
    assert (score.threshold, score.known_flagged, score.novel_flagged) == (None, None, None)
    assert (result.mean_ap_val, result.dead_share) == (None, None)
    looked.clear()
    knn = judged_on(run_dir, experiment_on(films), Judging(scores=("knn",), resamples=0, looks_at_least=True))
    assert set(looked) == {"train", "test"}
    assert "knn" in {*knn.scores, *knn.left_out}
    looked.clear()
    both = judged_on(run_dir, experiment_on(films), sides=("val", "test"))
    assert set(looked) == {"val", "test"}
    assert both.scores["PE"].threshold is not None


def test_d7_the_command_leaves_the_shares_flagged_out(run_dir):
    outcome = CliRunner().invoke(
        app,
        [
            *("evaluate", "run", str(run_dir), "--split", "test", "--score", "PE", "--resamples", "0"),
            *("--set", "data.test_boxes=detected"),
        ],
    )
    assert outcome.exit_code == 0, outcome.output
    told = " ".join(outcome.stdout.split())
    assert "0 of 3 known and 0 of 1 novel actors were not detected; 0 of 4 detections match nobody." in told
    result = read_result(run_dir, "test")
    assert result is not None
    assert result.official is not None
    assert f"over 2 known classes, detected boxes: {result.official.mean_ap:.4f} (2 have ground truth" in told
    assert "would be flagged" not in told
    assert "score AUROC AUPR FPR95 ties" in told
    assert "Shares flagged need validation, which was not looked at; add --split val." in told


def test_old_results_without_the_new_fields_are_still_read(films, run_dir):
    judged_on(run_dir, experiment_on(films))
    path = run_dir / "results" / "test.json"
    old = {
        key: value
        for key, value in json.loads(path.read_text()).items()
        if not key.startswith(("official", "detected"))
    }
    path.write_text(json.dumps(old))
    result = read_result(run_dir, "test")
    assert result is not None
    assert (result.official, result.official_missing, result.detected) == (None, "", None)


def test_detected_boxes_need_a_table_of_persons_with_times_of_the_table(films, run_dir):
    with pytest.raises(ConfigError, match=r"data\.persons must name a table of detected persons"):
        judged_on(run_dir, experiment_on(films, persons=None, test_boxes="detected"))
    late = persons_of(two_in_each_film(times=(900.5, 901.0)))
    write_object_table(late, films / "late.csv")
    with pytest.raises(
        RangeError, match=r"late\.csv: some persons of score 0\.85 or more must be in the annotated frames"
    ):
        judged_on(run_dir, experiment_on(films, persons="late.csv", test_boxes="detected"))


@pytest.mark.parametrize("is_open", [True, False])
def test_persons_without_a_truth_under_the_split_are_seen_and_not_judged(tmp_path, is_open):
    """The last actor runs and flies: an open-set split leaves it out, a closed one does not; a stranger is never judged."""
    table = two_in_each_film()
    table.labels[-1, 1] = True
    classes = WALK_RUN_FLY if is_open else ClassSets((), ("walk", "run", "fly"), (), ())
    root = write_films(tmp_path, table, classes=classes, rules=Rules(z1_at_test="known"))
    persons = persons_of(joined_tables([table, stranger_in("film3")]))
    write_object_table(persons, root / "perfect.csv")
    data = experiment_on(root, num_known=None, test_boxes="detected").data
    assert isinstance(data, TableData)
    boxes = table_sides(data).boxes("test")
    assert len(boxes.actors) == 5
    assert boxes.is_judged.tolist() == [True, True, True, not is_open, False]
    assert not boxes.is_novel.any()
    assert len(boxes.annotated) == 4
    assert boxes.counts is not None
    assert (boxes.counts.num_known, boxes.counts.num_unmatched) == (3 if is_open else 4, 1)


def test_a_published_file_of_persons_is_read_as_it_is_in_seconds_of_the_film(films):
    table = two_in_each_film()
    rows = zip(table.video_names, table.time_s.tolist(), table.boxes_xyxy_unit.tolist(), strict=True)
    lines = [f"{video},{900 + time},{','.join(map(repr, box))},,0.95" for video, time, box in rows]
    (films / "ava_val_predicted_boxes.csv").write_text("\n".join(lines) + "\n")
    found = []
    for persons in ("ava_val_predicted_boxes.csv", "perfect.csv"):
        data = experiment_on(films, persons=persons, test_boxes="detected").data
        assert isinstance(data, TableData)
        found.append(table_sides(data).boxes("test"))
    assert found[0].counts == found[1].counts
    np.testing.assert_array_equal(found[0].actors.boxes_xyxy_unit, found[1].actors.boxes_xyxy_unit)
    np.testing.assert_array_equal(found[0].actors.time_s, found[1].actors.time_s)


def stranger_in(video):
    """A row where nobody of the table is."""
    box = np.array([[0.9, 0.0, 1.0, 0.1]])
    return ActorTable(
        (video,), (), np.zeros(1, np.int64), np.array([0.5]), box, np.zeros((1, 0), bool), ("",)
    )


def test_true_is_a_word_on_the_command_line(films):
    for value in ("true", True):
        data = experiment_on(films, test_boxes=value).data
        assert isinstance(data, TableData)
        assert data.test_boxes == "true"


def whole_videos():
    """Four videos without times: three show walking and running, the last flies too."""
    labels = np.array([[True, True, False], [True, False, False], [False, True, False], [True, False, False]])
    return ActorTable(
        FOUR,
        ("walk", "run", "fly"),
        np.arange(4),
        np.full(4, np.nan),
        np.full((4, 4), np.nan),
        labels,
        ("",) * 4,
    )


def test_views_and_squares_of_a_video_are_judged_together_and_its_official_scores_are_the_largest(tmp_path):
    """Charades: persons of the nearest frame are the actors, three clips a video, each whole or in three squares."""
    root = write_films(tmp_path, whole_videos(), sides=SIDES, rules=Rules(z1_at_test="known"))
    numbers = {f"c{number:03d}": number for number in range(157)} | {"walk": 3, "run": 5, "fly": 7}
    write_origin(Origin(dataset="charades", class_numbers=numbers), root / "actors.csv")
    persons = persons_of(two_in_each_film(times=(0.2, 0.4)))
    write_object_table(at_rows(persons, np.flatnonzero(persons.video_index != 1)), root / "persons.csv")
    settings = {"labels_of": "clips", "persons": "persons.csv", "test_boxes": "detected", "test_views": 3}
    run_dir = tmp_path / "run"
    run_experiment(experiment_on(root, **settings), run_dir, listener=Silent())
    for crops, num_shown in ({}, 3), ({"test_crops": 3}, 9):
        experiment = experiment_on(root, **settings, **crops)
        result = judged_on(run_dir, experiment)
        source = running.OutputsOf(run_dir, experiment)
        views, video = source.on_all("test", noted=silent), source.on("test", noted=silent)
        assert (views.num_actors, video.num_actors) == (num_shown, 1)
        # films are of one grey: squares differ where they show persons
        assert len(views.evidence.positive.unique(dim=0)) > num_shown // 2
        torch.testing.assert_close(video.evidence.positive[0], views.evidence.positive.mean(dim=0))
        torch.testing.assert_close(video.evidence.negative[0], views.evidence.negative.mean(dim=0))
        assert result.official is not None
        folder = run_dir / "results"
        lines = (folder / "charades_scores-test.txt").read_text().split()
        assert lines[0] == "film3"
        assert [float(lines[1 + number]) for number in (3, 5)] == views.probability.max(axis=0).tolist()
        assert lines[1 + 7] == "nan"
        again = evaluate_charades_files(
            folder / "charades_ground_truth-test.csv", folder / "charades_scores-test.txt"
        )
        assert again.map == result.official.mean_ap
        assert result.official.name.startswith("Charades mAP over 2 known classes")
