"""`mule data check` and `stats`: what is printed, what is written, and the exit codes."""

import json
import re
import subprocess
import sys

import pytest
from clock_videos import clock_video
from typer.testing import CliRunner

from mule.cli.data import app
from mule.core.errors import MuleError
from mule.data.table.reading import read_actor_table, read_object_table

HEADER = "video,time_s,x1,y1,x2,y2,actions,actor_id"
ROWS = [
    "walk/ann,0.5,0.1,0.2,0.5,0.9,walk;talk,ann",
    "walk/ann,1,0.1,0.2,0.5,0.9,walk,ann",
    "bob,1,,,,,sit,bob",
    "carol.mp4,1,0.3,0.2,0.7,0.9,sit;talk,",
]


def written(path, *rows, header=HEADER):
    path.write_text("\n".join([header, *rows, ""]))
    return path


@pytest.fixture
def table(tmp_path):
    return written(tmp_path / "table.csv", *ROWS)


@pytest.fixture
def videos(tmp_path):
    folder = tmp_path / "videos"
    clock_video(folder / "walk" / "ann.mp4", 20, level=60)
    clock_video(folder / "bob.mkv", 20, level=140)
    clock_video(folder / "carol.mp4", 20, level=220)
    return folder


def run(*arguments):
    outcome = CliRunner().invoke(app, [str(argument) for argument in arguments])
    if outcome.exception is not None and not isinstance(outcome.exception, SystemExit | MuleError):
        raise outcome.exception
    return outcome


def test_a_sound_table_is_summed_up_in_a_line(table, videos):
    outcome = run("check", table)
    lines = outcome.stdout.splitlines()
    assert (outcome.exit_code, lines[0]) == (0, f"{table}: 4 rows, 3 videos, 3 classes")
    assert lines[1:] == [
        "1 row has no box: `mule train --data` looks for the people",
        "novelty will be calibrated on about 3 people (85 % of the rows): at least 25 are needed, so label at least 26 more",
        "fewer than 5 rows, too few to learn: sit (2), talk (2), walk (2)",
        "do the rows name everybody at their times? Then train with --set data.complete=true: others there teach who is idle",
    ]
    outcome = run("check", table, "--videos", videos)
    assert outcome.stdout.splitlines() == [f"{table}: 4 rows, 3 videos, 3 classes, 0.00 hours", *lines[1:]]
    assert outcome.exit_code == 0


def test_a_table_of_whole_clips_is_sound_and_what_it_lacks_is_said(tmp_path):
    rows = [f"film{number},{'kick' if number % 2 else 'wave'}" for number in range(40)]
    outcome = run("check", written(tmp_path / "labels.csv", *rows, header="video,actions"))
    assert outcome.exit_code == 0
    assert "40 rows have no time: the actions are those of the whole video" in outcome.stdout
    assert "about 34 people (85 % of the rows): at least 25 are needed, enough" in outcome.stdout
    assert "too few to learn" not in outcome.stdout
    assert "data.complete" not in outcome.stdout


def test_it_asks_whether_a_table_with_times_names_everybody(table):
    assert "do the rows name everybody at their times?" in run("check", table).stdout


def test_a_pipe_that_closes_early_does_not_lose_the_table(tmp_path, table, videos):
    (videos / "bob.mkv").unlink()
    kept = tmp_path / "kept.csv"
    command = [sys.executable, "-c", "from mule.cli.main import run; run()", "data", "check", str(table)]
    command += ["--videos", str(videos), "--leave-out-missing", str(kept)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    assert process.stdout is not None
    process.stdout.close()
    process.wait()
    assert len(read_actor_table(kept)) == 3


def test_an_action_that_may_be_misspelt_is_a_warning_not_a_problem(tmp_path):
    rows = [f"film,{time},,,,,punch,a" for time in range(12)]
    path = written(tmp_path / "t.csv", *rows, "film,12,,,,,pnuch,a", "film,13,,,,,kick,a")
    outcome = run("check", path)
    assert outcome.exit_code == 0
    assert outcome.stderr == f"{path}: warning: 'pnuch' occurs once; did you mean 'punch' (12 rows)?\n"
    few = written(tmp_path / "few.csv", *rows[:3], "film,12,,,,,pnch,a")
    assert run("check", few).stderr == ""
    some = written(tmp_path / "some.csv", *rows[:4], "film,12,,,,,pnuch,a")
    assert "did you mean 'punch' (4 rows)?" in run("check", some).stderr


def test_every_problem_has_a_line_and_the_exit_code_is_2(tmp_path, videos):
    rows = [ROWS[0], "walk/ann,9,,,,,sit,x", "gone,1,,,,,Sit,y", "bob,1,0,0,2,1,sit,z", "../bob,1,,,,,sit,z"]
    outcome = run("check", written(tmp_path / "bad.csv", *rows), "--videos", videos)
    assert outcome.exit_code == 2
    place = re.escape(str(tmp_path / "bad.csv"))
    expected = [
        r"video '\.\./bob': a video must be named by a path inside the folder of videos; got '\.\./bob'\.",
        f"{place}, line 3: time_s must lie before the end of the video, 2 s; got 9",
        rf"{place}, line 4: there is no video 'gone' \(rows that name it: 1\)",
        f"{place}, line 4: an action must be spelled one way; got 'Sit' here and 'sit' before",
        f"{place}, line 5: a box must have .* got 0, 0, 2, 1",
    ]
    lines = outcome.stdout.splitlines()
    assert len(lines) == len(expected)
    for line, words in zip(lines, expected, strict=True):
        assert re.fullmatch(words, line), line
    assert "1 of 4 videos are missing" in outcome.stderr
    assert "5 problems." in outcome.stderr


def test_what_is_no_table_is_one_error(tmp_path):
    outcome = run("check", written(tmp_path / "other.csv", "1,2", header="a,b"))
    assert isinstance(outcome.exception, MuleError)
    assert "the header must name the columns" in str(outcome.exception)


def test_many_problems_are_cut_short_unless_all_are_requested(tmp_path):
    path = written(
        tmp_path / "bad.csv", *["film,x,,,,,sit,"] * 1, *[f"film,-{i},,,,,sit,a{i}" for i in range(1, 150)]
    )
    short, whole = run("check", path), run("check", path, "--all")
    assert len(short.stdout.splitlines()) == 101
    assert short.stdout.splitlines()[-1] == "and 50 more like these; --all shows them"
    assert len(whole.stdout.splitlines()) == 150
    assert "150 problems." in short.stderr


def test_missing_and_damaged_videos_are_left_out_on_demand_and_never_silently(tmp_path, table, videos):
    (videos / "bob.mkv").unlink()
    (videos / "carol.mp4").write_bytes(b"nothing to see")
    refused = run("check", table, "--videos", videos)
    assert refused.exit_code == 2
    assert re.search(r"carol\.mp4: FFmpeg must be able to open it", refused.stdout)
    assert "line 4: there is no video 'bob' (rows that name it: 1)" in refused.stdout
    kept = tmp_path / "kept.csv"
    outcome = run("check", table, "--videos", videos, "--leave-out-missing", kept)
    assert outcome.exit_code == 0
    lines = outcome.stdout.splitlines()
    assert lines[-3] == "left out: bob: missing"
    assert lines[-2].startswith("left out: carol.mp4: FFmpeg must")
    assert lines[-1] == f"left out 2 rows of 2 videos; wrote 2 rows to {kept}"
    assert read_actor_table(kept).videos == ("walk/ann",)


def test_leaving_out_every_row_or_without_a_folder_is_an_error(tmp_path, table):
    (tmp_path / "empty").mkdir()
    outcome = run(
        "check", table, "--videos", tmp_path / "empty", "--leave-out-missing", tmp_path / "kept.csv"
    )
    assert "all 4 are of videos left out" in str(outcome.exception)
    outcome = run("check", table, "--leave-out-missing", tmp_path / "kept.csv")
    assert outcome.exit_code == 2
    assert not (tmp_path / "kept.csv").exists()


def test_a_table_with_problems_is_not_kept(tmp_path, videos):
    path = written(tmp_path / "bad.csv", *ROWS, "gone,1,,,,,,x")
    outcome = run("check", path, "--videos", videos, "--leave-out-missing", tmp_path / "kept.csv")
    assert outcome.exit_code == 2
    assert not (tmp_path / "kept.csv").exists()


def test_objects_are_checked_beside_the_actors(tmp_path, table, videos):
    header = "video,time_s,x1,y1,x2,y2,object_class,score"
    rows = ["bob,1,0,0,1,1,cup,0.9", "elsewhere,1,0,0,1,1,cup,0.9"]
    path = written(tmp_path / "objects.csv", *rows, header=header)
    outcome = run("check", table, "--objects", path, "--videos", videos)
    assert outcome.exit_code == 0
    assert f"{path}: 2 objects of 1 classes\n" in outcome.stdout
    assert "1 videos are not in the table of actors; their objects are not used" in outcome.stdout
    written(path, "bob,7,0,0,1,1,cup,high", header=header)
    outcome = run("check", table, "--objects", path, "--videos", videos)
    assert outcome.exit_code == 2
    assert "line 2: the score must be a finite number; got 'high'" in outcome.stdout
    assert "line 2: time_s must lie before the end" in outcome.stdout


def test_stats_are_shown_and_written(tmp_path, table):
    pytest.importorskip("matplotlib")
    shown = run("stats", table)
    assert shown.exit_code == 0
    cells = [[cell.strip() for cell in re.split("[│┃]", line)[1:-1]] for line in shown.stdout.splitlines()]
    assert ["talk", "2", "2", "2"] in cells
    assert ["sit", "talk", "1", "50.0 %", "50.0 %"] in cells
    assert "labels per actor and key time: 1.50 on average (rows with 1: 2, 2: 2)" in shown.stdout
    assert "wrote" not in shown.stdout
    outcome = run("stats", table, "--out", tmp_path / "stats")
    assert outcome.exit_code == 0
    assert sorted(path.name for path in (tmp_path / "stats").iterdir()) == [
        "classes.csv",
        "pairs.csv",
        "stats.json",
        "stats.png",
    ]
    assert json.loads((tmp_path / "stats" / "stats.json").read_text())["num_rows"] == 4


def test_help_loads_nothing_that_computes_and_checking_a_table_no_torch(table):
    import subprocess
    import sys

    script = (
        "import sys; from mule.cli import data\n"
        "assert not {'torch', 'numpy'} & set(sys.modules)\n"
        "from typer.testing import CliRunner\n"
        f"assert CliRunner().invoke(data.app, ['check', {str(table)!r}]).exit_code == 0\n"
        "assert 'torch' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", script], check=True)


OBJECTS = "video,time_s,x1,y1,x2,y2,object_class,score"


def test_joined_tables_hold_the_rows_of_each_in_order(tmp_path):
    first = written(tmp_path / "a.csv", "a,1,0.1,0.2,0.5,0.9,walk,p", "b,2,,,,,sit,")
    second = written(tmp_path / "b.csv", "c,0.5,,,,,run;sit,q")
    outcome = run("join", first, second, "--out", tmp_path / "all.csv")
    assert (outcome.exit_code, outcome.stdout) == (0, f"wrote 3 rows of 2 tables to {tmp_path / 'all.csv'}\n")
    table = read_actor_table(tmp_path / "all.csv")
    rows = [(table.videos[at], table.action_names(row)) for row, at in enumerate(table.video_index)]
    assert rows == [("a", ("walk",)), ("b", ("sit",)), ("c", ("run", "sit"))]


def test_joined_tables_of_objects_keep_classes_and_scores(tmp_path):
    first = written(tmp_path / "a.csv", "a,1,0.1,0.2,0.5,0.9,cup,0.5", header=OBJECTS)
    second = written(
        tmp_path / "b.csv", "b,1,0,0,1,1,person,0.9", "b,1,0.1,0.2,0.3,0.4,cup,0.25", header=OBJECTS
    )
    assert run("join", first, second, "--out", tmp_path / "all.csv").exit_code == 0
    table = read_object_table(tmp_path / "all.csv")
    rows = [
        (table.videos[video], table.classes[kind], score)
        for video, kind, score in zip(table.video_index, table.class_index, table.score, strict=True)
    ]
    assert rows == [("a", "cup", 0.5), ("b", "person", 0.9), ("b", "cup", 0.25)]


def test_tables_of_two_kinds_or_with_a_common_video_are_not_joined(tmp_path):
    actors = written(tmp_path / "a.csv", "a,1,,,,,walk,")
    again = written(tmp_path / "b.csv", "a,2,,,,,walk,")
    objects = written(tmp_path / "c.csv", "c,1,0,0,1,1,cup,0.5", header=OBJECTS)
    for tables, sentence in (
        ((actors, objects), f"{objects}: tables must be of one kind"),
        ((actors, again), f"{again}: a video must be in one of the tables; 'a' is in {actors} too"),
    ):
        outcome = run("join", *tables, "--out", tmp_path / "all.csv")
        assert str(outcome.exception).startswith(sentence)
        assert not (tmp_path / "all.csv").exists()
