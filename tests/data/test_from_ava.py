import shutil
from collections import defaultdict

import numpy as np
import pytest
from from_files import assert_refused, assert_same, assert_survives_the_file, run, table_of, written

from mule.core.errors import AnnotationError
from mule.data.convert.ava import actors_from_ava, boxes_from_ava
from mule.data.convert.ava_files import AVA_60, AVA_80, read_label_map
from mule.data.convert.origin import read_origin
from mule.data.table.reading import read_actor_table, read_object_table
from mule.data.table.writing import write_object_table

STAND, SIT, TALK, CRAWL = "stand", "sit", "talk to (e.g., self, a person, a group)", "crawl"
ANNOTATIONS = (
    "1j20qq1JyX4,0902,0.002,0.118,0.714,0.977,12,1\n"
    "1j20qq1JyX4,0902,0.002,0.118,0.714,0.977,79,1\n"
    "1j20qq1JyX4,0902,0.444,0.054,0.992,0.990,11,0\n"
    "1j20qq1JyX4,0903\n"
    "-5KQ66BBWC4,1000,0.1,0.2,0.3,0.4,2,7\n"
    "-5KQ66BBWC4,1000,0.1,0.2,0.3,0.4,12,7\n"
    "-5KQ66BBWC4,1001,0.1,0.2,0.3,0.4,2,7\n"
    "-5KQ66BBWC4,1002,0.1,0.2,0.3,0.4,12,7\n"
    "-5KQ66BBWC4,0900,0.1,0.2,0.3,0.4,12,7\n"
    "-5KQ66BBWC4,1799,0.1,0.2,0.3,0.4,12,7\n"
)


def ava_folder(folder, content=ANNOTATIONS, *, split="val", excluded="-5KQ66BBWC4,1002\n"):
    written(folder, f"ava_{split}_v2.2.csv", content)
    written(folder, f"ava_{split}_excluded_timestamps_v2.2.csv", excluded)
    included = "".join(f"{second:04d}\n" for second in range(902, 1799))
    written(folder, "ava_included_timestamps_v2.2.txt", included)
    return folder


@pytest.fixture
def one_row(tmp_path):
    def convert(content):
        return actors_from_ava(ava_folder(tmp_path, content), "val")

    return convert


def test_our_lists_of_classes_are_the_published_ones_and_the_paper_splits_at_their_positions(shared_data):
    folder = shared_data / "annotations" / "ava_v2.2"
    assert read_label_map(folder / "ava_action_list_v2.2_for_activitynet_2019.pbtxt") == AVA_60
    assert read_label_map(folder / "ava_action_list_v2.2.pbtxt") == AVA_80
    assert (len(AVA_60), len(AVA_80)) == (60, 80)
    ids = list(AVA_60)
    assert ids == sorted(ids)
    assert [ids[at] for at in (0, 13, 19, 20, 39, 40, 45, 59)] == [1, 15, 27, 28, 58, 59, 64, 80]


def test_the_published_times_and_label_maps_are_respected(shared_data, tmp_path):
    published = shared_data / "annotations" / "ava_v2.2"
    for path in published.iterdir():
        shutil.copy(path, tmp_path)
    assert len((tmp_path / "ava_included_timestamps_v2.2.txt").read_text().split()) == 897
    box = "0.1,0.2,0.3,0.4,12,1"
    times = ("0901", "0902", "1037", "1038", "1058", "1798", "1799")
    written(tmp_path, "ava_val_v2.2.csv", "".join(f"5BDj0ow5hnA,{time},{box}\n" for time in times))
    for num_classes in (60, 80):
        table, report = actors_from_ava(tmp_path, "val", num_classes=num_classes)
        assert table.time_s.tolist() == [902, 1037, 1798]
        assert report.dropped["time_not_included"] == 2
        assert report.dropped["time_excluded"] == 2


@pytest.mark.parametrize(
    "encoded", [str.encode, lambda text: b"\xef\xbb\xbf" + text.replace("\n", "\r\n").encode()]
)
def test_the_official_rows_become_the_expected_table(tmp_path, encoded):
    table, report = actors_from_ava(ava_folder(tmp_path, encoded(ANNOTATIONS)), "val")
    expected = table_of(
        ("1j20qq1JyX4", 902, (0.002, 0.118, 0.714, 0.977), f"{STAND};{TALK}", "1"),
        ("1j20qq1JyX4", 902, (0.444, 0.054, 0.992, 0.990), SIT, "0"),
        ("-5KQ66BBWC4", 1000, (0.1, 0.2, 0.3, 0.4), STAND, "7"),
    )
    assert_same(table, expected)
    assert_survives_the_file(table, tmp_path)
    assert (report.num_read, report.num_kept, report.num_table_rows) == (10, 4, 3)
    assert report.dropped == {
        "frame_without_boxes": 1,
        "time_not_included": 2,
        "time_excluded": 1,
        "action_not_among_the_60_classes": 2,
    }
    assert report.noted["actors_left_without_an_action"] == 1


def test_eighty_classes_keep_what_sixty_leave_out(tmp_path):
    table, report = actors_from_ava(ava_folder(tmp_path), "val", num_classes=80)
    assert [table.action_names(row) for row in range(len(table))][2:] == [(CRAWL, STAND), (CRAWL,)]
    assert "action_not_among_the_80_classes" not in {name for name, count in report.dropped.items() if count}


def test_times_of_cut_videos_and_of_folders_of_frames_begin_at_second_900(tmp_path):
    folder = ava_folder(tmp_path)
    full, _ = actors_from_ava(folder, "val", videos="full")
    cut, _ = actors_from_ava(folder, "val", videos="cut-900")
    np.testing.assert_array_equal(cut.time_s, full.time_s - 900)
    frame_number = (cut.time_s * 30).round().astype(int) + 1
    assert frame_number[0] == 61  # the key frame of second 902 is image {video}_000061.jpg


def test_a_box_drawn_twice_is_one_and_a_person_in_two_places_is_two_actors(one_row):
    table, report = one_row(
        "a,0902,0.100,0.1,0.500,0.9,12,3\n"
        "a,0902,0.101,0.1,0.500,0.9,79,3\n"  # a little moved
        "a,0902,0.600,0.1,0.900,0.9,11,3\n"  # elsewhere
        "a,0902,0.100,0.1,0.500,0.9,79,4\n"  # another person, same box
        "a,0902,0.100,0.1,0.500,0.9,12,3\n"  # a repetition
    )
    box = (0.1, 0.1, 0.5, 0.9)
    assert_same(
        table,
        table_of(
            ("a", 902, box, f"{STAND};{TALK}", "3 (1)"),
            ("a", 902, (0.6, 0.1, 0.9, 0.9), SIT, "3 (2)"),
            ("a", 902, box, TALK, "4"),
        ),
    )
    assert {name: count for name, count in report.noted.items() if count} == {
        "persons_in_two_places_at_one_time": 1,
        "boxes_moved_to_the_first_of_the_person": 1,
        "boxes_shared_by_two_persons": 1,
        "actions_repeated": 1,
    }
    assert report.num_kept == 5


def test_without_persons_equal_boxes_are_one_actor(one_row):
    table, _ = one_row("a,902,0.1,0.1,0.5,0.9,12\na,902,0.1,0.1,0.5,0.9,11\na,902,0.1,0.1,0.5,0.8,11\n")
    assert table.actor_id == ("", "")
    assert table.labels.sum(axis=1).tolist() == [2, 1]


def test_a_corner_a_little_outside_is_moved_to_the_edge_and_counted(one_row):
    table, report = one_row("a,0902,-0.01,0.1,1.02,0.9,12,3\n")
    assert table.boxes_xyxy_unit.tolist() == [[0, 0.1, 1, 0.9]]
    assert report.noted["boxes_cut_at_the_edge_of_the_frame"] == 1


def test_many_rows_are_grouped_as_a_slow_loop_groups_them(one_row):
    generator = np.random.default_rng(5)
    lines, expected = [], defaultdict(set)
    ids = np.array(list(AVA_60))
    for _ in range(9_000):  # more than two chunks
        video, second, person = (
            f"v{generator.integers(4)}",
            generator.integers(902, 960),
            generator.integers(20),
        )
        box = ",".join(f"{value:.3f}" for value in (0.02 * person, 0.1, 0.02 * person + 0.3, 0.8))
        action = int(generator.choice(ids))
        lines.append(f"{video},{second:04d},{box},{action},{person}")
        expected[video, float(second), str(person), box].add(AVA_60[action])
    table, report = one_row("\n".join(lines))
    found = {
        (video, time, actor, ",".join(f"{value:.3f}" for value in box)): set(table.action_names(row))
        for row, (video, time, actor, box) in enumerate(
            zip(
                table.video_names,
                table.time_s.tolist(),
                table.actor_id,
                table.boxes_xyxy_unit.tolist(),
                strict=True,
            )
        )
    }
    assert found == expected
    assert list(found) == list(expected)  # rows keep the order of the file
    assert report.num_kept == len(lines) == table.labels.sum() + report.noted["actions_repeated"]


def test_predicted_boxes_become_persons_with_their_best_score(tmp_path):
    folder = ava_folder(tmp_path)
    path = written(
        tmp_path,
        "boxes.csv",
        "1j20qq1JyX4,0902,0.036,0.098,0.550,0.979,,0.995518\n"
        "1j20qq1JyX4,902,0.036,0.098,0.550,0.979,12,0.5\n"
        "1j20qq1JyX4,0903,0.036,0.098,0.550,1.001,-1,0.7\n"
        "-5KQ66BBWC4,1002,0.1,0.2,0.3,0.4,,0.9\n"
        "-5KQ66BBWC4,0901,0.1,0.2,0.3,0.4,,0.9\n"
        "-5KQ66BBWC4,0904\n",
    )
    table, report = boxes_from_ava(path, folder, "val", videos="cut-900")
    assert (table.videos, table.classes) == (("1j20qq1JyX4",), ("person",))
    assert table.time_s.tolist() == [2, 3]
    assert table.score.tolist() == [0.995518, 0.7]
    assert table.boxes_xyxy_unit.tolist() == [[0.036, 0.098, 0.55, 0.979], [0.036, 0.098, 0.55, 1.0]]
    assert (report.num_read, report.num_kept) == (6, 3)
    assert report.noted == {"boxes_cut_at_the_edge_of_the_frame": 1, "boxes_joined_to_the_same_one": 1}
    write_object_table(table, tmp_path / "persons.csv")
    back = read_object_table(tmp_path / "persons.csv")
    np.testing.assert_array_equal(back.boxes_xyxy_unit, table.boxes_xyxy_unit)
    np.testing.assert_array_equal(back.score, table.score)


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("", "ava_val_v2.2.csv, line 1: must hold at least one row; the file is empty"),
        ("a,0902\n", "of 1 rows none is left (1 frame without boxes)"),
        ("a,0902,0.1,0.1,0.5,0.9,12,3,4\n", "line 1: a row must have 2 or 7 or 8 columns; got 9"),
        (
            "a,soon,0.1,0.1,0.5,0.9,12,3\n",
            "line 1: the time must be a number of seconds, 0 or later; got 'soon'",
        ),
        ("a,0902,0.1,0.1,0.5,0.9,81,3\n", "line 1: the action id must be one of AVA's, 1 to 80; got 81"),
        ("a,0902,0.1,0.1,0.5,0.9,x,3\n", "line 1: the action id must be a whole number; got 'x'"),
        (
            "a,0902,10,20,110,220,12,3\n",
            "line 1: a box must be inside the frame, in fractions of it; got 10, 20, 110",
        ),
        ("a,0902,0.5,0.1,0.1,0.9,12,3\n", "line 1: x2 must be above x1"),
        (",0902,0.5,0.1,0.1,0.9,12,3\n", "line 1: the video must have a name"),
        ("a,2,0.1,0.1,0.5,0.9,12,3\n", "of 1 rows none is left (1 time not included)"),
    ],
)
def test_wrong_annotations_are_refused_by_line_and_nothing_is_written(tmp_path, content, words):
    out = tmp_path / "table.csv"
    arguments = (
        "from-ava",
        ava_folder(tmp_path, content),
        "--split",
        "val",
        "--videos",
        "full",
        "--out",
        out,
    )
    assert_refused(run(*arguments), words, out)


def test_a_missing_file_a_wrong_label_map_and_persons_for_scores_are_named(tmp_path):
    folder = ava_folder(tmp_path)
    with pytest.raises(
        AnnotationError, match=r"ava_train_v2\.2\.csv: must be a readable file; there is no such file"
    ):
        actors_from_ava(folder, "train")
    with pytest.raises(
        AnnotationError, match=r"line 1: the score must lie within 0\.\.1; got 7\. Are these annot"
    ):
        boxes_from_ava(written(tmp_path, "b.csv", "a,0902,0.1,0.2,0.3,0.4,12,7\n"), folder, "val")
    written(
        tmp_path, "ava_action_list_v2.2_for_activitynet_2019.pbtxt", 'item {\n  name: "bend"\n  id: 1\n}\n'
    )
    with pytest.raises(
        AnnotationError, match="published list of 60 classes; 60 ids differ, first 1: 'bend' for"
    ):
        actors_from_ava(folder, "val")


def test_the_command_writes_the_table_and_says_what_it_left_out(tmp_path):
    out = tmp_path / "table.csv"
    folder = ava_folder(tmp_path)
    outcome = run(
        "from-ava", folder, "--split", "val", "--classes", "80", "--videos", "cut-900", "--out", out
    )
    assert outcome.exit_code == 0, outcome.output
    for words in ("4 rows", "left out: time excluded", "left out: frame without boxes", "kept"):
        assert words in outcome.stdout
    assert_same(read_actor_table(out), actors_from_ava(folder, "val", num_classes=80, videos="cut-900")[0])
    boxes = written(tmp_path, "boxes.csv", "a,0902,0.1,0.2,0.3,0.4,,0.9\n")
    outcome = run(
        *(
            "from-ava",
            folder,
            "--split",
            "val",
            "--videos",
            "full",
            "--boxes",
            boxes,
            "--out",
            tmp_path / "b.csv",
        )
    )
    assert outcome.exit_code == 0, outcome.output
    assert read_object_table(tmp_path / "b.csv").score.tolist() == [0.9]


def test_the_command_keeps_the_origin_beside_the_table_and_a_damaged_one_is_named(tmp_path):
    out, folder = tmp_path / "table.csv", ava_folder(tmp_path)
    assert read_origin(out) is None
    run("from-ava", folder, "--split", "val", "--videos", "cut-900", "--out", out)
    origin = read_origin(out)
    assert origin is not None
    assert (origin.dataset, origin.starts_at_s) == ("ava", 900)
    assert origin.class_numbers == {name: number for number, name in AVA_60.items()}
    (tmp_path / "table.origin.json").write_text('{"dataset": "avaa"}')
    with pytest.raises(AnnotationError, match=r"table\.origin\.json: must be the origin of a table"):
        read_origin(out)
