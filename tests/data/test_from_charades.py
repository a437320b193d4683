from fractions import Fraction

import numpy as np
import pytest
from from_files import (
    NOWHERE,
    assert_refused,
    assert_same,
    assert_survives_the_file,
    run,
    table_of,
    written,
)
from hypothesis import given
from hypothesis import strategies as st

from mule.core.errors import AnnotationError
from mule.data.convert.charades import (
    ActionInterval,
    AnnotatedVideo,
    actors_from_charades,
    clip_times,
    localisation_times,
    read_class_names,
    whole_video,
)
from mule.data.table.reading import read_actor_table
from mule.video.clips import ClipShape

HEADER = "id,subject,scene,quality,relevance,verified,script,objects,descriptions,actions,length\n"
VIDEOS = (
    '46GP8,HR43,Kitchen,6,7,Yes,"A person, cooking, says ""hm, good"".\nThen eats.",food;stove,"A person cooks, then eats.",'
    "c092 11.90 21.20;c147 0.00 12.60,24.83\n"
    "N11GT,0KZ7,Stairs,7,7,Yes,walks,,,c098 8.60 40.00;c075 0.00 5.00;c098 0.00 1.00,18.33\n"
    "0IH69,6RE8,Bedroom,5,7,No,sleeps,,,,30.33\n"
)
CLASSES = "c075 Tidying up a blanket/s\nc092 Watching a laptop, or so\n\nc098 Holding a picture\nc147 Someone is cooking something\n"


@pytest.mark.parametrize(
    "encoded", [str.encode, lambda text: b"\xef\xbb\xbf" + text.replace("\n", "\r\n").encode()]
)
def test_whole_videos_have_the_union_of_their_labels(tmp_path, encoded):
    path = written(tmp_path, "Charades_v1_train.csv", encoded(HEADER + VIDEOS))
    table, report = actors_from_charades(path)
    expected = table_of(
        ("46GP8", np.nan, NOWHERE, "c092;c147", ""), ("N11GT", np.nan, NOWHERE, "c075;c098", "")
    )
    assert_same(table, expected)
    assert_survives_the_file(table, tmp_path)
    assert (report.unit, report.num_read, report.num_kept) == ("videos", 3, 2)
    assert report.dropped == {"without_labels": 1}
    assert report.noted["actions"] == 5
    assert report.noted["ends_moved_to_the_end_of_the_video"] == 1


def test_classes_are_called_by_name_where_the_list_is_given(tmp_path):
    path = written(tmp_path, "train.csv", HEADER + VIDEOS)
    names = read_class_names(written(tmp_path, "Charades_v1_classes.txt", CLASSES))
    assert names[75] == "Tidying up a blanket/s"
    table, _ = actors_from_charades(path, class_names=names)
    assert table.action_names(0) == ("Someone is cooking something", "Watching a laptop, or so")
    assert_survives_the_file(table, tmp_path)


def test_unlabelled_videos_are_kept_on_demand(tmp_path):
    path = written(tmp_path, "test.csv", HEADER + VIDEOS)
    table, report = actors_from_charades(path, keep_unlabelled=True)
    assert table.videos == ("46GP8", "N11GT", "0IH69")
    assert not table.labels[2].any()
    assert report.num_kept == 3
    assert_survives_the_file(table, tmp_path, allow_unlabelled=True)


def test_localisation_has_25_times_and_ends_are_included(tmp_path):
    row = "A,c000 0.00 1.00;c001 4.00 99.00,10\n"
    path = written(tmp_path, "test.csv", "id,actions,length\n" + row)
    table, report = actors_from_charades(path, localisation_times, keep_unlabelled=True)
    np.testing.assert_allclose(table.time_s, np.arange(25) * 0.4)
    shown = {name: table.time_s[table.labels_of([name])[:, 0]] for name in table.classes}
    np.testing.assert_allclose(shown["c000"], [0, 0.4, 0.8])
    np.testing.assert_allclose(shown["c001"], np.arange(10, 25) * 0.4)
    labelled, report = actors_from_charades(path, localisation_times)
    assert len(labelled) == 18
    assert report.noted["moments_without_labels_left_out"] == 7


def test_a_clip_has_the_labels_of_its_frames(tmp_path):
    # 8 frames at 4 a second, one apart: key time t sees the frames from t - 1 s to t + 3/4 s.
    shape = ClipShape(num_frames=8, stride_frames=1, num_slow_frames=1)
    row = "A,c000 0.75 0.75;c001 3.90 3.99;c002 0 1;c003 4.75 9,5.5\n"
    path = written(tmp_path, "test.csv", "id,actions,length\n" + row)
    table, _ = actors_from_charades(
        path, clip_times(Fraction(2), shape=shape, frame_rate=Fraction(4)), keep_unlabelled=True
    )
    expected = table_of(
        ("A", 0, NOWHERE, "c000;c002", ""),  # the frame at 0.75 s is the last of the clip
        ("A", 2, NOWHERE, "c002", ""),  # the frame at 1 s is its first
        ("A", 4, NOWHERE, "c003", ""),  # c001 lies between the frames of 3.75 s and 4 s
    )
    assert_same(table, expected)


@given(
    intervals=st.lists(
        st.tuples(st.integers(0, 5), st.integers(0, 300), st.integers(0, 300)).map(
            lambda each: ActionInterval(each[0], each[1] / 20, each[2] / 20, "")
        ),
        max_size=6,
    ),
    length=st.integers(1, 300).map(lambda tick: tick / 20),
    num_frames=st.integers(1, 12),
    stride=st.integers(1, 3),
)
def test_clip_labels_are_those_of_a_slow_loop_over_frames(intervals, length, num_frames, stride):
    shape = ClipShape(num_frames, stride, num_slow_frames=1)
    video = AnnotatedVideo("A", intervals, length)
    for key_time, classes in clip_times(Fraction(3, 4), shape=shape, frame_rate=Fraction(24))(video):
        key = int(key_time * 24 + 1e-6)
        first = key - num_frames * stride // 2
        frames = [f for f in range(first, first + (num_frames - 1) * stride + 1) if f >= 0]
        active = {each[0] for each in intervals for f in frames if each[1] - 1e-9 <= f / 24 <= each[2] + 1e-9}
        assert classes == active
    assert [found for _, found in whole_video(video)] == [{each[0] for each in intervals}]


def test_intervals_that_last_at_no_moment_are_counted_and_stay_labels_of_the_video(tmp_path):
    row = "A,c000 12.00 14.00;c001 3.00 2.00;c002 0.00 1.00,10\n"
    path = written(tmp_path, "test.csv", "id,actions,length\n" + row)
    whole, report = actors_from_charades(path)
    assert whole.action_names(0) == ("c000", "c001", "c002")
    assert report.noted["actions_that_start_after_the_end_of_the_video"] == 1
    assert report.noted["actions_that_end_before_they_start"] == 1
    moments, _ = actors_from_charades(path, clip_times(Fraction(1)))
    assert moments.classes == ("c002",)


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("", "train.csv, line 1: must hold at least one row; the file is empty"),
        ("id,actions,length\n", "train.csv, line 2: must hold rows below the header"),
        ("id,actions\nA,\n", "line 1: the header must name the columns 'id' and 'actions' and 'length'"),
        (
            "id,actions,length\nA,c000 0 1,long\n",
            "line 2: the length must be a number of seconds above 0, at most a day; got 'long'",
        ),
        (
            "id,actions,length\nA,c000 0 1,0\n",
            "line 2: the length must be a number of seconds above 0, at most a day; got '0'",
        ),
        (
            "id,actions,length\nA,c000 0 1,9e9\n",
            "line 2: the length must be a number of seconds above 0, at most a day",
        ),
        ("id,actions,length\nA,c157 0 1,5\n", "line 2: a class must be one of c000 to c156; got 'c157 0 1'"),
        (
            "id,actions,length\nA,c000 0,5\n",
            "line 2: an action must read like 'c092 11.90 21.20'; got 'c000 0'",
        ),
        ("id,actions,length\nA,c000 0 x,5\n", "line 2: an action must start and end at a time in seconds"),
        ("id,actions,length\nA,c000 0 1,5\n A,,5\n", "line 3: the id must name a video that has no row yet"),
        ("id,actions,length\nA,,5\nB,,6\n", "of 2 videos none is left (2 without labels)"),
        (b"id,actions,length\nA,c000 0 1,5\n\xff,,6\n", "line 3: must be UTF-8 text"),
    ],
)
@pytest.mark.parametrize("rows", ["video", "clips", "localisation"])
def test_wrong_files_are_refused_by_line_and_nothing_is_written(tmp_path, content, words, rows):
    out = tmp_path / "table.csv"
    outcome = run("from-charades", written(tmp_path, "train.csv", content), "--rows", rows, "--out", out)
    assert_refused(outcome, words, out)


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("", "line 1: must hold classes like 'c008 Opening a door'; the file is empty"),
        ("c000 a\nopening\n", "line 2: a class must read like 'c008 Opening a door'; got 'opening'"),
        ("c000 a\nc000 b\n", "line 2: a class must be named once; got 'c000 b'"),
        ("c000 a\nc001 a\n", "line 2: a class must be named once; got 'c001 a'"),
        ("c000 a; b\n", "line 1: an action must not contain ';'"),
    ],
)
def test_lists_of_classes_that_do_not_name_them_once_are_errors(tmp_path, content, words):
    with pytest.raises(AnnotationError, match=words):
        read_class_names(written(tmp_path, "classes.txt", content))


def test_a_class_outside_the_list_is_named(tmp_path):
    path = written(tmp_path, "train.csv", HEADER + VIDEOS)
    with pytest.raises(
        AnnotationError, match=r"line 2: a class must be in the list of classes; got 'c092 11\.90"
    ):
        actors_from_charades(path, class_names={147: "cooking", 75: "tidying", 98: "holding"})


def test_the_command_writes_what_it_counts(tmp_path):
    path = written(tmp_path, "train.csv", HEADER + VIDEOS)
    classes = written(tmp_path, "classes.txt", CLASSES)
    out = tmp_path / "clips.csv"
    outcome = run(
        "from-charades", path, "--classes", classes, "--rows", "clips", "--every", "0.5", "--out", out
    )
    assert outcome.exit_code == 0, outcome.output
    assert "left out: without labels" in outcome.stdout
    expected, _ = actors_from_charades(
        path, clip_times(Fraction(1, 2)), class_names=read_class_names(classes)
    )
    assert_same(read_actor_table(out), expected)
    outcome = run("from-charades", path, "--every", "0", "--out", out)
    assert outcome.exit_code == 2
    assert "above zero" in outcome.stderr
