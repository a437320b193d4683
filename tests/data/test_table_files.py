"""Tables on disk: what is written reads back the same, whatever is wrong is said by line."""

import re
import time

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mule.core.errors import AnnotationError
from mule.core.text_rows import RowProblems
from mule.data.table.reading import read_actor_table, read_object_table
from mule.data.table.table import ACTOR_COLUMNS, OBJECT_COLUMNS, ActorTable, ObjectTable, spelling
from mule.data.table.writing import write_actor_table, write_object_table

pytest.importorskip("pyarrow")

HEADER = ",".join(ACTOR_COLUMNS)
SOUND = "film,1.5,0.1,0.2,0.3,0.4,sit;talk,ann"
KINDS = pytest.mark.parametrize("suffix", [".csv", ".parquet"])

names = st.text(
    st.characters(exclude_categories=["Cs", "Cc"], exclude_characters=";"), min_size=1, max_size=8
).filter(lambda name: name == name.strip() and name)


@st.composite
def columns_of_tables(draw):
    """What makes a table as one is read: videos in order of appearance, classes sorted and in use, no actor twice."""
    videos = draw(st.lists(names, min_size=1, max_size=3, unique=True))
    classes = sorted(draw(st.lists(names, min_size=1, max_size=4, unique_by=spelling)))
    times = st.one_of(st.just(float("nan")), st.floats(0, 1e5))
    boxes, time_s, video_index, labels, actors = [], [], [], [], []
    for number in range(draw(st.integers(1, 6))):
        video_index.append(min(draw(st.integers(0, len(videos) - 1)), max(video_index, default=-1) + 1))
        time_s.append(draw(times))
        low, high = sorted(draw(st.lists(st.floats(0, 1), min_size=2, max_size=2, unique=True)))
        is_whole = np.isnan(time_s[-1]) or draw(st.booleans())
        boxes.append([float("nan")] * 4 if is_whole else [low, low, high, high])
        labels.append(draw(st.lists(st.booleans(), min_size=len(classes), max_size=len(classes))))
        labels[-1][number % len(classes)] = True
        actors.append(f"{number}{draw(st.sampled_from(['', 'é', ',', chr(34)]))}")
    used = np.array(labels).any(axis=0)
    return (
        tuple(videos[: max(video_index) + 1]),
        tuple(np.array(classes, dtype=object)[used].tolist()),
        np.array(video_index),
        np.array(time_s),
        np.array(boxes),
        np.array(labels)[:, used],
        tuple(actors),
    )


def assert_same(found, expected):
    for name, value in vars(expected).items():
        if isinstance(value, np.ndarray):
            np.testing.assert_array_equal(getattr(found, name), value, err_msg=name)
        else:
            assert getattr(found, name) == value, name


@KINDS
@settings(max_examples=30)
@given(columns=columns_of_tables())
def test_what_is_written_reads_back_exactly(tmp_path_factory, suffix, columns):
    table = ActorTable(*columns)
    path = tmp_path_factory.mktemp("table") / f"t{suffix}"
    write_actor_table(table, path)
    assert_same(read_actor_table(path), table)


def test_labels_of_whole_clips_need_two_columns_only(tmp_path):
    path = tmp_path / "labels.csv"
    path.write_text("actions,video\npush;hug,a.mp4\nkick,b.mp4\n")
    table = read_actor_table(path)
    assert (table.videos, table.classes) == (("a.mp4", "b.mp4"), ("hug", "kick", "push"))
    assert table.action_names(0) == ("hug", "push")
    assert not table.has_time.any()
    assert not table.has_box.any()
    assert table.actor_id == ("", "")


def test_a_parquet_table_needs_two_columns_only(tmp_path):
    arrow = pytest.importorskip("pyarrow")
    pytest.importorskip("pyarrow.parquet")
    columns = {"video": ["a.mp4"], "actions": ["hug"], "time_s": [1.5]}
    arrow.parquet.write_table(arrow.table(columns), tmp_path / "labels.parquet")
    table = read_actor_table(tmp_path / "labels.parquet")
    assert (table.time_s.tolist(), table.classes) == ([1.5], ("hug",))
    assert not table.has_box.any()


def test_a_box_needs_all_of_its_columns(tmp_path):
    path = tmp_path / "labels.csv"
    path.write_text("video,time_s,x1,y1,x2,actions\na.mp4,1,0,0,1,hug\n")
    with pytest.raises(AnnotationError, match=r"line 2: a box must have .* got 0, 0, 1, nothing"):
        read_actor_table(path)


def test_lengths_are_asked_for_once_with_the_videos_that_the_table_names(tmp_path):
    path = tmp_path / "labels.csv"
    path.write_text("video,actions\na.mp4,hug\nb.mp4,kick\nc.mp4,kick\n")
    asked = []
    read_actor_table(path, video_ends_s=lambda names: asked.append(tuple(names)))
    assert asked == [("a.mp4", "b.mp4", "c.mp4")]


@KINDS
@settings(max_examples=15)
@given(scores=st.lists(st.floats(-1e9, 1e9), min_size=1, max_size=5), data=st.data())
def test_objects_read_back_exactly(tmp_path_factory, suffix, scores, data):
    index = np.array(data.draw(st.lists(st.integers(0, 1), min_size=len(scores), max_size=len(scores))))
    index[0] = 0
    used = tuple(("cup", "a, b")[: index.max() + 1])
    boxes = np.tile([0.1, 0.2, 1 / 3, 0.9], (len(scores), 1))
    table = ObjectTable(used, used, index, np.array(scores) ** 2, boxes, index, np.array(scores))
    path = tmp_path_factory.mktemp("objects") / f"o{suffix}"
    write_object_table(table, path)
    assert_same(read_object_table(path), table)


def written(tmp_path, *rows, header=HEADER):
    path = tmp_path / "table.csv"
    path.write_text("\n".join([header, *rows, ""]), encoding="utf-8")
    return path


def problems_of(path, **options):
    with pytest.raises(RowProblems) as caught:
        read_actor_table(path, **options)
    return [each.removeprefix(f"{path}, ") for each in caught.value.each]


@pytest.mark.parametrize(
    ("row", "words"),
    [
        (",1,0,0,1,1,sit,x", "line 3: video must not be empty"),
        (" ,1,0,0,1,1,sit,x", "line 3: video must not be empty"),
        (
            "film,-1,0,0,1,1,sit,x",
            "line 3: time_s must be 0 or later, or empty for the whole video; got '-1'",
        ),
        ("film,nan,0,0,1,1,sit,x", "line 3: time_s must be 0 or later, .* got 'nan'"),
        ("film,inf,0,0,1,1,sit,x", "line 3: time_s must be 0 or later, .* got 'inf'"),
        ("film,soon,0,0,1,1,sit,x", "line 3: time_s must be 0 or later, .* got 'soon'"),
        ("film,1,0,0,1.2,1,sit,x", r"line 3: a box must have 0 <= x1 < x2 <= 1 .* got 0, 0, 1\.2, 1"),
        (
            "film,1,10,20,64,48,sit,x",
            "line 3: a box must .* in fractions of the frame, .* got 10, 20, 64, 48",
        ),
        ("film,1,0.5,0,0.5,1,sit,x", "line 3: a box must"),
        ("film,1,0,0,nan,1,sit,x", "line 3: a box must .* got 0, 0, nan, 1"),
        ("film,1,0,0,1,inf,sit,x", "line 3: a box must .* got 0, 0, 1, inf"),
        (
            "film,1,0,0,1,,sit,x",
            "line 3: a box must .* or all empty for the whole frame; got 0, 0, 1, nothing",
        ),
        (
            "film,,0,0,1,1,sit,x",
            r"line 3: a row of the whole video \(without time_s\) must leave the box empty",
        ),
        ("film,1,0,0,1,1,,x", "line 3: actions must name at least one action; the cell is empty"),
        ("film,1,0,0,1,1, ,x", "line 3: actions must name at least one action; the cell is empty"),
        ("film,1,0,0,1,1,sit;,x", "line 3: actions must be names, each once, between semicolons; got 'sit;'"),
        ("film,1,0,0,1,1,sit; sit,x", "line 3: actions must be names, each once"),
        (
            "film,1,0,0,1,1,Sit,x",
            "line 3: an action must be spelled one way; got 'Sit' here and 'sit' before",
        ),
        ("film,1.5,0,0,1,1,sit,ann", "line 3: actor 'ann' must have one row at 1.5 s; line 2 is one already"),
        ("film,1,0,0,1,1,sit", "line 3: a row must have 8 columns; got 7"),
        ("film,1,0,0,1,1,sit,x,y", "line 3: a row must have 8 columns; got 9"),
    ],
)
def test_each_problem_is_named_by_line(tmp_path, row, words):
    (problem,) = problems_of(written(tmp_path, SOUND, row))
    assert re.match(words, problem), problem


def test_all_problems_of_a_file_are_told_in_order_and_the_rest_is_counted(tmp_path):
    path = written(tmp_path, "film,x,0,0,1,1,sit,a", "film,1,0,0,1,2,,b", SOUND, *["short"] * 8)
    assert len(problems_of(path, most_shown=100)) == 11
    with pytest.raises(
        RowProblems, match=r"line 2: .*; line 3: .*; line 3: .*; and 7 more like these"
    ) as caught:
        read_actor_table(path, most_shown=4)
    assert (len(caught.value.each), caught.value.num_more) == (4, 7)


def test_a_missing_video_is_named_once_and_a_time_behind_the_end_by_row(tmp_path):
    path = written(
        tmp_path, SOUND, "gone,1,,,,,sit,", "gone,2,,,,,sit,", "film,9.4,,,,,sit,", "film,9.6,,,,,sit,"
    )
    assert problems_of(path, video_ends_s=lambda _: {"film": 9.0}) == [
        "line 3: there is no video 'gone' (rows that name it: 2)",
        "line 6: time_s must lie before the end of the video, 9 s; got 9.6",
    ]
    assert len(read_actor_table(path, video_ends_s=lambda _: {"film": None, "gone": 3.0, "other": 1.0})) == 5


@pytest.mark.parametrize("cells", ["1,0.1,0.2,0.3,0.4", "1,,,,", ",,,,"])
def test_an_actor_without_a_name_is_known_by_its_box(tmp_path, cells):
    other = f"film,{cells},walk,".replace("0.4", "0.5").replace("1,,", "2,,")
    same = written(tmp_path, f"film,{cells},sit,", other if other != f"film,{cells},walk," else SOUND)
    assert len(read_actor_table(same)) == 2
    (problem,) = problems_of(written(tmp_path, f"film,{cells},sit,", SOUND, f"film,{cells},walk,"))
    when = "for the whole video" if cells == ",,,," else "at 1 s"
    assert problem.startswith(
        "line 4: an actor without actor_id, identified by its box, must have one row " + when
    )


def test_two_actors_may_share_a_box_and_an_actor_may_come_again_later(tmp_path):
    rows = [SOUND, SOUND.replace("ann", "bob"), SOUND.replace("1.5", "2.5"), SOUND.replace("film", "other")]
    assert len(read_actor_table(written(tmp_path, *rows))) == 4


@pytest.mark.parametrize(
    ("one", "other", "is_same"),
    [
        ("brush hair", "Brush_Hair", True),
        ("push-up", "push up", True),
        ("phone/camera", "phone camera", True),
        ("ﬁght", "fight", True),
        ("A+", "A-", False),
        ("+", "-", False),
        ("run", "runs", False),
    ],
)
def test_spelling_is_what_a_name_is_but_for_case_and_gaps(one, other, is_same):
    assert (spelling(one) == spelling(other)) == is_same


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"", "line 1: must hold at least one row; the file is empty"),
        (SOUND.encode(), "line 1: the header must name the columns 'video' and 'actions'"),
        (HEADER.replace("actions", "action").encode() + b"\n", "line 1: the header must name"),
        (HEADER.encode() + b"\n", "line 2: must hold rows below the header"),
        (HEADER.encode() + b"\nfilm,1,,,,,sit,\nfilm,1,,,,,caf\xe9,x\n", "line 3: must be UTF-8 text"),
    ],
    ids=["empty", "no header", "another header", "no rows", "not UTF-8"],
)
def test_what_holds_no_table_is_an_error(tmp_path, content, words):
    path = tmp_path / "table.csv"
    path.write_bytes(content)
    with pytest.raises(AnnotationError, match=words):
        read_actor_table(path)


def test_a_table_has_a_known_suffix_and_is_there(tmp_path):
    with pytest.raises(AnnotationError, match=r"must be a \.csv or a \.parquet file; got '\.xlsx'"):
        read_actor_table(tmp_path / "table.xlsx")
    for suffix in (".csv", ".parquet", ".CSV", ".PARQUET"):
        with pytest.raises(AnnotationError, match="there is no such file"):
            read_actor_table(tmp_path / f"nowhere{suffix}")


def test_unlabelled_actors_are_read_where_they_may_be_there(tmp_path):
    table = read_actor_table(written(tmp_path, SOUND, "film,2,0,0,1,1,,x"), allow_unlabelled=True)
    assert table.labels.sum(axis=1).tolist() == [2, 0]
    assert table.classes == ("sit", "talk")


def test_a_corner_may_overhang_by_rounding_and_is_moved_to_the_border(tmp_path):
    table = read_actor_table(written(tmp_path, "film,1,-0.00005,0,1.00005,1,sit,x"))
    assert table.boxes_xyxy_unit.tolist() == [[0, 0, 1, 1]]


@pytest.mark.parametrize(
    ("row", "words"),
    [
        ("film,1,0,0,1,1,,0.5", "line 2: object_class must not be empty"),
        ("film,1,0,0,1,1,cup,", "line 2: the score must be a finite number; got ''"),
        ("film,1,0,0,1,1,cup,inf", "line 2: the score must be a finite number"),
        ("film,,0,0,1,1,cup,1", "line 2: time_s must be 0 or later; got ''"),
        ("film,1,,,,,cup,1", "line 2: a box must have .* in fractions of the frame; got nothing, nothing"),
        ("film,9,0,0,1,1,cup,1", "line 2: time_s must lie before the end"),
        ("gone,1,0,0,1,1,cup,1", "line 2: there is no video 'gone'"),
        ("film,1,0,0,1,1,Cup,1\nfilm,2,0,0,1,1,cup,1", "line 3: an object class must be spelled one way"),
    ],
)
def test_problems_of_objects_are_named_by_line(tmp_path, row, words):
    path = written(tmp_path, row, header=",".join(OBJECT_COLUMNS))
    with pytest.raises(RowProblems, match=words):
        read_object_table(path, video_ends_s=lambda _: {"film": 2.0})


@pytest.mark.slow
@KINDS
def test_a_tenth_of_the_rows_of_ava_is_read_in_two_seconds(tmp_path, suffix):
    num_rows = 60_000
    rng = np.random.default_rng(0)
    low = rng.uniform(0, 0.5, (num_rows, 2)).round(3)
    label_sets = rng.random((2_000, 60)) < 0.03
    label_sets[:, 0] |= ~label_sets.any(axis=1)
    table = ActorTable(
        tuple(f"video{i:07d}" for i in range(235)),
        tuple(f"action {i:02d}" for i in range(60)),
        np.arange(num_rows) * 235 // num_rows,
        rng.integers(902, 1799, num_rows).astype(float),
        np.concatenate([low, low + 0.25], axis=1),
        label_sets[rng.integers(0, 2_000, num_rows)],
        tuple(map(str, range(num_rows))),
    )
    path = tmp_path / f"ava{suffix}"
    write_actor_table(table, path)
    started_at = time.process_time()
    found = read_actor_table(path)
    assert time.process_time() - started_at < 2
    assert_same(found, table)
