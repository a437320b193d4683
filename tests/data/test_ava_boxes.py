"""Published person boxes of AVA in the place of a table of objects: every format as it is, or a reason by line."""

import csv
import io

import numpy as np
import pytest

from mule.core.errors import AnnotationError
from mule.core.text_rows import RowProblems
from mule.data.convert.ava import boxes_from_ava
from mule.data.table.reading import read_object_table
from mule.data.table.table import OBJECT_COLUMNS
from mule.data.table.writing import join_files

VAL = """1j20qq1JyX4,0902,0.036,0.098,0.550,0.979,,0.995518
1j20qq1JyX4,0902,0.443,0.040,0.991,0.977,,0.996966
1j20qq1JyX4,0905,0.005,0.116,1.001,0.977,,0.131
5BDj0ow5hnA,1798,0.000,-0.001,0.331,0.992,,1.0
"""
"""ava_val_predicted_boxes.csv, ava_detection_val_boxes_and_labels.csv: empty labels, times of four digits, rounding."""

TRAIN = """-5KQ66BBWC4,0902,0.077,0.151,0.283,0.811,80,0.983126
-5KQ66BBWC4,0902,0.077,0.151,0.283,0.811,9,0.983126
-5KQ66BBWC4,0902,0.226,0.032,0.366,0.497,,0.912000
-5KQ66BBWC4,0902,0.332,0.194,0.481,0.891,-1,0.986452
"""
"""ava_detection_train_boxes_and_labels_include_negative_v2.2.csv: a row per label, negatives without one."""

TIMES = """2bxKkUgcqpk,0902.0000,0.1,0.2,0.3,0.4,12,0.91
2bxKkUgcqpk,902.5,0.1,0.2,0.3,0.4,12,0.92
"""
"""Detections as ActivityNet's evaluation takes them: a time need not be whole."""


def saved(tmp_path, text, name="boxes.csv"):
    (tmp_path / name).write_text(text)
    return tmp_path / name


def by_hand(text):
    """The distinct boxes of a file with their best score, row by row."""
    best = {}
    for video, time, *box, _, score in csv.reader(io.StringIO(text)):
        key = (video, float(time), *(min(max(float(each), 0.0), 1.0) for each in box))
        best[key] = max(best.get(key, 0.0), float(score))
    return [(*key, score) for key, score in best.items()]


def rows_of(table):
    columns = (table.video_index.tolist(), table.time_s.tolist(), table.boxes_xyxy_unit.tolist())
    return [
        (table.videos[video], time_s, *box, score)
        for video, time_s, box, score in zip(*columns, table.score.tolist(), strict=True)
    ]


@pytest.mark.parametrize("text", [VAL, TRAIN, TIMES], ids=["val", "train", "times"])
def test_a_published_file_is_a_table_of_persons_as_a_loop_over_its_rows_has_it(tmp_path, text):
    table = read_object_table(saved(tmp_path, text))
    assert table.classes == ("person",)
    assert set(table.class_index.tolist()) == {0}
    assert rows_of(table) == by_hand(text)


def test_a_box_with_two_labels_is_one_person_and_a_negative_is_one_too(tmp_path):
    table = read_object_table(saved(tmp_path, TRAIN))
    assert table.score.tolist() == [0.983126, 0.912, 0.986452]


def test_the_file_means_what_from_ava_makes_of_it(tmp_path):
    (tmp_path / "ava_included_timestamps_v2.2.txt").write_text(
        "\n".join(f"{s:04d}" for s in range(902, 1799))
    )
    (tmp_path / "ava_val_excluded_timestamps_v2.2.csv").write_text("nobody,0902\n")
    path = saved(tmp_path, VAL)
    converted, _ = boxes_from_ava(path, tmp_path, "val")
    read = read_object_table(path)
    assert rows_of(read) == rows_of(converted)


def test_the_files_of_both_parts_are_joined_to_one_table(tmp_path):
    parts = [saved(tmp_path, VAL, "val.csv"), saved(tmp_path, TRAIN, "train.csv")]
    assert join_files(parts, tmp_path / "persons.csv") == 7
    assert rows_of(read_object_table(tmp_path / "persons.csv")) == by_hand(VAL + TRAIN)


@pytest.mark.parametrize(
    ("row", "words"),
    [
        (
            "v,0903,0.1,0.2,0.3,0.4,12,37",
            "line 5: the score must lie within 0..1; got 37. Are these annotations",
        ),
        ("v,0903,0.1,0.2,0.3,0.4,12", "line 5: a row must have 8 columns; got 7"),
        (
            "v,0903,0.1,0.2,0.3,0.4,walk,0.9",
            "line 5: the label must be an action id, -1 or empty; got 'walk'",
        ),
        ("v,0903,0.3,0.2,0.1,0.4,,0.9", "line 5: x2 must be above x1"),
        ("v,0903,31,20,120,240,,0.9", "line 5: a box must be inside the frame, in fractions of it"),
        ("v,-3,0.1,0.2,0.3,0.4,,0.9", "line 5: the time must be a number of seconds"),
        (",0903,0.1,0.2,0.3,0.4,,0.9", "line 5: the video must have a name"),
        ("v,0903,0.1,0.2,0.3,0.4,,nan", "line 5: the score must be a finite number; got 'nan'"),
    ],
)
def test_a_row_of_another_shape_is_named_by_line(tmp_path, row, words):
    with pytest.raises(RowProblems, match=words):
        read_object_table(saved(tmp_path, VAL + row + "\n"))


@pytest.mark.parametrize(
    "first",
    [
        "v,0902,0.1,0.2,0.3,0.4,0.9",  # seven cells: an action, or a score?
        "v,0902",
        "v,0902,0.1,0.2,0.3,0.4,cup,0.9",
        "v,0902,0.1,0.2,0.3,0.4,0.5,0.9",
    ],
)
def test_other_rows_without_a_header_are_not_taken_for_avas(tmp_path, first):
    with pytest.raises(AnnotationError, match="line 1: the header must name the columns"):
        read_object_table(saved(tmp_path, first + "\n"))


def test_videos_and_their_ends_are_checked_as_for_any_table(tmp_path):
    path = saved(tmp_path, VAL)
    with pytest.raises(RowProblems, match="there is no video '5BDj0ow5hnA'"):
        read_object_table(path, video_ends_s=lambda _: {"1j20qq1JyX4": 1800.0})
    with pytest.raises(RowProblems, match="time_s must lie before the end of the video, 900 s; got 902"):
        read_object_table(path, video_ends_s=lambda names: dict.fromkeys(names, 900.0))


@pytest.mark.parametrize("suffix", [".csv", ".parquet"])
def test_a_table_may_say_that_nothing_was_found(tmp_path, suffix):
    from mule.data.table.table import ObjectTable
    from mule.data.table.writing import write_object_table

    if suffix == ".parquet":
        pytest.importorskip("pyarrow")
    none = np.zeros(0, dtype=np.int64)
    nothing = ObjectTable((), (), none, np.zeros(0), np.zeros((0, 4)), none, np.zeros(0))
    path = tmp_path / f"none{suffix}"
    write_object_table(nothing, path)
    if suffix == ".csv":
        assert path.read_text() == ",".join(OBJECT_COLUMNS) + "\n"
    assert len(read_object_table(path)) == 0
