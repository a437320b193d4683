from fractions import Fraction

import pytest
from from_files import assert_refused, assert_same, assert_survives_the_file, run, table_of, written

from mule.core.errors import VideoError
from mule.data.convert.conversion import ActionRule, BoxSettings
from mule.data.convert.viame import actors_from_viame, size_of_video
from mule.data.table.reading import read_actor_table

HEADER = (
    "# 1: Detection or Track-id,2: Video or Image Identifier,3: Unique Frame Identifier,4-7: Img-bbox(TL_x,TL_y,BR_x,"
    "BR_y),8: Detection or Length Confidence,9: Target Length (0 or -1 if invalid),10-11+: Repeated Species,"
    "Confidence Pairs or Attributes\n"
)
RATE = '# metadata,fps: 5,"exported_by: ""dive:python""","exported_time: ""Mon Aug  1 12:00:00 2022"""\n'
ROWS = (
    "0,00:00:00.000000,0,10,20,110,70,1.0,-1,walk,1.0,talk,0.75,sit,0.1,(atr) mood happy,(trk-atr) waves true\n"
    "0,00:00:00.200000,1,12,20,112,70,1.0,-1,walk,1.0,(kp) head 4 5,(atr) waves false,(poly) 1 1 5 5 9 9\n"
    '1,00:00:01.000000,5,0,0,201,100,0.9,-1,sit,0.9,"(atr) note on a chair, ""alone""",(note) first row\n'
    "-1,00:00:01.000000,5,0,0,50,50,1.0,-1,walk,1.0\n"
    "2,00:00:01.000000,5,0,0,50,50,0.3,-1,walk,0.3\n"
)
SIZE = (200, 100)


def converted(tmp_path, content=HEADER + RATE + ROWS, settings=None, **others):
    path = written(tmp_path, "lobby.csv", content)
    return actors_from_viame([path], settings or BoxSettings(size_px=SIZE), **others)


@pytest.mark.parametrize(
    "encoded", [str.encode, lambda text: b"\xef\xbb\xbf" + text.replace("\n", "\r\n").encode()]
)
def test_rows_of_dive_become_the_expected_table(tmp_path, encoded):
    table, report = converted(tmp_path, encoded(HEADER + RATE + ROWS))
    expected = table_of(
        ("lobby", 0, (0.05, 0.2, 0.55, 0.7), "talk;walk", "0"),
        ("lobby", 0.2, (0.06, 0.2, 0.56, 0.7), "walk", "0"),
        ("lobby", 1, (0, 0, 1, 1), "sit", "1"),
        ("lobby", 1, (0, 0, 0.25, 0.5), "walk", ""),
    )
    assert_same(table, expected)
    assert_survives_the_file(table, tmp_path)
    assert (report.unit, report.num_read, report.num_kept) == ("boxes", 5, 4)
    assert report.dropped == {"without_an_action": 1}
    assert report.noted["classes_below_the_confidence"] == 2
    assert report.noted["boxes_cut_at_the_edge_of_the_frame"] == 1


def test_attributes_of_boxes_and_tracks_name_actions(tmp_path):
    settings = BoxSettings(ActionRule(from_class=False, from_attributes=True), size_px=SIZE)
    table, report = converted(tmp_path, settings=settings)
    assert [table.action_names(row) for row in range(len(table))] == [
        ("happy", "waves"),
        ('on a chair, "alone"',),
    ]
    assert report.dropped["without_an_action"] == 3


def test_a_lower_confidence_lets_more_classes_in(tmp_path):
    table, report = converted(tmp_path, min_confidence=0.0)
    assert table.action_names(0) == ("sit", "talk", "walk")
    assert report.num_kept == 5


@pytest.mark.parametrize(
    ("comment", "rate"),
    [
        ("# metadata,fps: 5\n", 5),
        ('# metadata - fps: "5"\n', 5),
        ("# metadata - fps: 5\n# Written on Mon Aug  1 12:00:00 2022 by: dive:python\n", 5),
        ("#meta fps=10\n", 10),
        ("# metadata,Fps: 2.5\n", 2.5),
        ('# metadata,fps: 23.976,"dataset_info: {""fps_note"": ""x""}"\n', 23.976),
    ],
)
def test_the_frame_rate_is_read_in_every_form_it_was_written(tmp_path, comment, rate):
    table, _ = converted(tmp_path, comment + "0,,10,0,0,100,50,1,-1,walk,1\n")
    assert table.time_s.tolist() == pytest.approx([10 / rate], rel=1e-12)


def test_the_switch_outranks_the_comment_and_key_times_thin_the_rows(tmp_path):
    settings = BoxSettings(every_s=Fraction(1, 2), frame_rate=Fraction(10), size_px=SIZE)
    table, report = converted(tmp_path, settings=settings)
    assert table.time_s.tolist() == [0, 0.5, 0.5]
    assert report.dropped["between_key_times"] == 1


def test_files_are_videos_of_one_table(tmp_path):
    paths = [written(tmp_path, f"{name}.csv", HEADER + RATE + ROWS) for name in ("hall", "yard")]
    table, report = actors_from_viame(paths, BoxSettings(size_px=SIZE))
    assert table.videos == ("hall", "yard")
    assert (len(table), report.num_read) == (8, 10)


def test_the_size_is_read_off_the_video(tmp_path, shared_data):
    videos = shared_data / "videos" / "caviar_lobby" / "videos"
    name = "Walk2_0011_0028"
    width, height = size_of_video(videos, name)
    path = written(tmp_path, f"{name}.csv", RATE + f"0,,0,0,0,{width},{height // 2},1,-1,walk,1\n")
    table, _ = actors_from_viame([path], BoxSettings(), videos=videos)
    assert table.boxes_xyxy_unit.tolist() == [[0, 0, 1, (height // 2) / height]]
    with pytest.raises(VideoError, match=r"must hold the video 'none\[1\]'; nothing of this name is there"):
        size_of_video(videos, "none[1]")


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("", "lobby.csv, line 1: must hold at least one row; the file is empty"),
        (HEADER + RATE, "of 0 boxes none is left"),
        (
            HEADER + ROWS,
            "lobby.csv: frames need a frame rate, which must be in a comment like '# metadata,fps: 5'",
        ),
        ("# metadata,fps: 0\n" + ROWS, "frames need a frame rate"),
        (RATE + "0,,0,1,1,5,5,1\n", "line 2: a row must have at least 9 columns; got 8"),
        (
            RATE + "0,,-1,1,1,5,5,1,-1,walk,1\n",
            "line 2: columns 3 to 7 must be a frame number, 0 or more, and a box",
        ),
        (RATE + "0,,0,1,1,nan,5,1,-1,walk,1\n", "line 2: columns 3 to 7 must be"),
        (
            RATE + "0,,0,1,1,5,5,1,-1,walk,sure\n",
            "line 2: the class 'walk' must be followed by a confidence within 0..1",
        ),
        (
            RATE + "0,,0,1,1,5,5,1,-1,walk,1\n0,,0,2,1,5,5,1,-1,sit,1\n",
            "line 3: an actor must be in one place",
        ),
        (RATE + "0,,0,1,1,900,5,1,-1,walk,1\n", "line 2: a box must lie in the frame of 200 x 100 pixels"),
        (RATE + '"0,,0', "lobby.csv, line 2"),
        (RATE + f"0,,{'9' * 5000},1,1,5,5,1,-1,walk,1\n", "line 2: columns 3 to 7 must be a frame number"),
    ],
)
def test_wrong_files_are_refused_by_line_and_nothing_is_written(tmp_path, content, words):
    out = tmp_path / "table.csv"
    path = written(tmp_path, "lobby.csv", content)
    assert_refused(run("from-viame", path, "--size", "200x100", "--out", out), words, out)


def test_what_the_file_leaves_open_is_asked_for(tmp_path):
    out = tmp_path / "table.csv"
    path = written(tmp_path, "lobby.csv", RATE + ROWS)
    other = written(tmp_path, "yard.csv", RATE + ROWS)
    assert_refused(run("from-viame", path, "--out", out), "Give it with --size", out)
    assert_refused(
        run("from-viame", path, "--videos", tmp_path / "x", "--out", out),
        "there is no such folder",
        out,
    )
    assert_refused(run("from-viame", path, other, "--video", "v", "--out", out), "names one video", out)


def test_the_command_writes_the_table(tmp_path):
    out = tmp_path / "table.csv"
    path = written(tmp_path, "lobby.csv", RATE + ROWS)
    outcome = run(
        "from-viame", path, "--size", "200x100", "--actions", "both", "--attribute", "waves", "--out", out
    )
    assert outcome.exit_code == 0, outcome.output
    table = read_actor_table(out)
    assert table.action_names(0) == ("talk", "walk", "waves")
    assert "left out: without an action" in outcome.stdout
