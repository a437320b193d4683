"""J-HMDB as one table: the person of each clip, films kept together."""

import csv

import numpy as np
import pytest
from study_commands import assert_refused, assert_same, assert_survives_the_file, run_study, table_of, written

from mule.core.errors import AnnotationError
from mule.data.table.reading import read_actor_table
from studies.convert.__main__ import app
from studies.convert.jhmdb import actors_from_jhmdb

LABEL_HEADER = "video,time_s,x1,y1,x2,y2,action,person_id\n"
LABELS = (
    "catch/Ball_0.mp4,0.667,0.2281,0.2000,0.7750,0.9875,catch,Ball_0\n"
    "wave/Hello_1.mp4,0.267,0.0000,0.0000,1.0000,1.0000,wave,Hello_1\n"
)
TAGS = (
    "catch/Ball_0.mp4,0.667,0.2281,0.2000,0.7750,0.9875,view:back,Ball_0\n"
    "wave/Hello_1.mp4,0.267,0.0000,0.0000,1.0000,1.0000,view:front,Hello_1\n"
    "catch/Ball_0.mp4,0.667,0.2281,0.2000,0.7750,0.9875,visible:upper,Ball_0\n"
)
VIDEO_HEADER = "video,action,frames,fps,w,h,persons_detected_auto,source_group,visible,camera_motion,n_people_tag,view,quality\n"
VIDEOS = (
    "catch/Ball_0.mp4,catch,40,30.000,320,240,3,Ball,upper,static,1,back,goo\n"
    "wave/Hello_1.mp4,wave,16,30.000,320,240,0,Hello,full,moving,1,front,med\n"
)
NOWHERE = (np.nan,) * 4


def folder_of(tmp_path, labels=LABELS, videos=VIDEOS, tags=LABELS + TAGS):
    written(tmp_path, "labels.csv", LABEL_HEADER + labels)
    written(tmp_path, "labels_multi.csv", LABEL_HEADER + tags)
    written(tmp_path, "videos.csv", VIDEO_HEADER + videos)
    return tmp_path


def test_a_clip_is_one_actor_and_without_a_detected_person_the_whole_frame(tmp_path):
    table, report = actors_from_jhmdb(folder_of(tmp_path))
    expected = table_of(
        ("catch/Ball_0.mp4", 0.667, (0.2281, 0.2, 0.775, 0.9875), "catch", "Ball_0"),
        ("wave/Hello_1.mp4", 0.267, NOWHERE, "wave", "Hello_1"),
    )
    assert_same(table, expected)
    assert_survives_the_file(table, tmp_path)
    assert (report.unit, report.num_read, report.num_kept) == ("rows", 2, 2)
    assert report.noted["clips_without_a_detected_person_use_the_whole_frame"] == 1
    assert report.noted["clips_with_several_people_use_the_largest"] == 1


def test_tags_are_further_actions_of_the_same_actor(tmp_path):
    table, report = actors_from_jhmdb(folder_of(tmp_path), with_tags=True)
    assert [table.action_names(row) for row in range(len(table))] == [
        ("catch", "view:back", "visible:upper"),
        ("view:front", "wave"),
    ]
    assert (report.num_read, report.num_table_rows) == (5, 2)


@pytest.mark.parametrize(
    ("labels", "videos", "words"),
    [
        ("", VIDEOS, "labels.csv, line 2: must hold rows below the header; there are none"),
        (LABELS, "", "videos.csv, line 2: must hold rows below the header; there are none"),
        (LABELS.replace("0.667", "1.334"), VIDEOS, "line 2: time_s must be before the end of the clip, 1.33333 s"),
        (LABELS.replace("0.667", "-1"), VIDEOS, "line 2: the time must be a number of seconds, 0 or later; got '-1'"),
        (LABELS.replace("0.7750", "1.7750"), VIDEOS, "line 2: a box must have 0 <= x1 < x2 <= 1"),
        (LABELS.replace("0.7750", ""), VIDEOS, "in fractions of the frame; got '0.2281, 0.2000, , 0.9875'"),
        (LABELS.replace(",catch,", ",throw,"), VIDEOS, "the action must be the one in videos.csv, 'catch'; got 'throw'"),
        (LABELS.replace(",catch,", ",ca;tch,"), VIDEOS, "line 2: an action must not contain ';'"),
        (LABELS.replace(",Ball_0\n", ",\n"), VIDEOS, "line 2: person_id must not be empty"),
        (LABELS + LABELS, VIDEOS, "line 4: a person must have each action once; 'Ball_0' at 0.667 s"),
        (
            LABELS + LABELS.replace(",Ball_0\n", ",other\n").splitlines()[0] + "\n",
            VIDEOS,
            "line 4: a clip must have one actor at one time; 'catch/Ball_0.mp4' is also in line 2",
        ),
        (LABELS, VIDEOS.splitlines()[0] + "\n", "line 3: every clip must be listed in videos.csv; 'wave/Hello_1.mp4' is not"),
        (LABELS, VIDEOS + VIDEOS, "videos.csv, line 4: a clip must have one row; 'catch/Ball_0.mp4' has another one above"),
        (LABELS, VIDEOS.replace("40,30.000", "40,0"), "videos.csv, line 2: fps must be a number above 0; got '0'"),
        (LABELS, VIDEOS.replace(",40,", ",many,"), "videos.csv, line 2: frames must be a whole number; got 'many'"),
        (LABELS, VIDEOS.replace(",Ball,", ",,"), "line 2: video, action and source_group must not be empty"),
        (LABELS, "a,b\n", "videos.csv, line 2: a row must have 13 columns; got 2"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_said_by_file_and_line(tmp_path, labels, videos, words):
    with pytest.raises(AnnotationError) as raised:
        actors_from_jhmdb(folder_of(tmp_path, labels, videos))
    assert words in str(raised.value)


def test_a_person_has_one_box_at_a_time(tmp_path):
    folder = folder_of(tmp_path, tags=LABELS + TAGS.replace("0.2281", "0.3"))
    with pytest.raises(AnnotationError, match=r"line 4: a person must have one box at a time; .* in line 2"):
        actors_from_jhmdb(folder, with_tags=True)


def test_all_problems_are_said_at_once(tmp_path):
    labels = LABELS.replace("0.667", "9").replace("wave,Hello_1", "sit,Hello_1")
    with pytest.raises(AnnotationError, match=r"line 2: time_s must .*; line 3: the action must"):
        actors_from_jhmdb(folder_of(tmp_path, labels))


def test_the_command_writes_the_table_or_nothing(tmp_path):
    out = tmp_path / "out" / "actors.csv"
    outcome = run_study(app, "from-jhmdb", folder_of(tmp_path), "--tags", "--out", out)
    assert outcome.exit_code == 0, outcome.output
    assert "clips with several people use the largest" in outcome.stdout
    assert read_actor_table(out).action_names(0) == ("catch", "view:back", "visible:upper")
    bad = tmp_path / "bad.csv"
    folder_of(tmp_path, LABELS.replace("0.667", "x"))
    assert_refused(run_study(app, "from-jhmdb", tmp_path, "--out", bad), "labels.csv, line 2", bad)


def test_the_real_clips_are_928_actors_of_21_actions_in_410_films(shared_data):
    folder = shared_data / "videos" / "jhmdb"
    table, report = actors_from_jhmdb(folder)
    assert (len(table), len(table.classes), len(table.videos)) == (928, 21, 928)
    assert int((~table.has_box).sum()) == 24
    assert report.noted["clips_of_videos.csv_without_a_row"] == 0
    tagged, _ = actors_from_jhmdb(folder, with_tags=True)
    assert tagged.labels.sum(axis=1).tolist() == [3] * 928
    np.testing.assert_array_equal(tagged.labels_of(table.classes), table.labels)
    with (folder / "videos.csv").open(newline="") as file:
        assert len({row["source_group"] for row in csv.DictReader(file)}) == 410
