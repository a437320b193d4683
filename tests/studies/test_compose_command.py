"""`python -m studies.compose`: what is printed, what is written, and the exit codes."""

import csv

import pytest
from clock_videos import clock_video
from study_commands import run_study

from mule.data.batches.video_clips import find_videos
from mule.data.table.reading import read_actor_table
from mule.data.table.videos import probe_videos
from studies.compose.__main__ import app

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


def compose(table, videos, out, *options):
    return run_study(app, "compose", table, "--videos", videos, "--out", out, "--tiles", "2", *options)


def test_composites_are_made_and_told(tmp_path, table, videos):
    outcome = compose(table, videos, tmp_path / "out", "--clips", 2, "--seed", 3)
    assert outcome.exit_code == 0, outcome.output
    assert "2 composites of 2 tiles" in outcome.stdout
    made = read_actor_table(tmp_path / "out" / "labels.csv")
    assert (len(made), len(made.videos)) == (4, 2)
    assert len(probe_videos(find_videos(made.videos, tmp_path / "out" / "videos").paths).readable) == 2
    again = compose(table, videos, tmp_path / "again", "--clips", 2, "--seed", 3)
    assert again.exit_code == 0
    for name in ("labels.csv", "sources.csv"):
        assert (tmp_path / "out" / name).read_text() == (tmp_path / "again" / name).read_text()
    refused = compose(table, videos, tmp_path / "out")
    assert refused.exit_code == 2
    assert "must be a new or empty folder" in refused.stderr


def test_a_side_of_a_split_and_groups_bound_what_stands_together(tmp_path, table, videos):
    only = tmp_path / "side.txt"
    only.write_text("bob\ncarol.mp4\n")
    outcome = compose(table, videos, tmp_path / "out", "--only", only, "--seconds", 1)
    assert "not used: 2 rows of videos that are not in --only" in outcome.stdout
    with (tmp_path / "out" / "sources.csv").open() as file:
        assert {row["source_video"] for row in csv.DictReader(file)} == {"bob", "carol.mp4"}
    groups = written(tmp_path / "groups.csv", "walk/ann,x", "bob,y", "carol.mp4,y", header="video,film")
    outcome = compose(table, videos, tmp_path / "apart", "--only", only, "--groups", f"{groups}:film")
    assert "2 clips give 0" in outcome.stderr
    outcome = compose(table, videos, tmp_path / "apart", "--groups", groups)
    assert outcome.exit_code == 2


def test_videos_that_cannot_be_used_are_named(tmp_path, table, videos):
    (videos / "bob.mkv").write_bytes(b"nothing to see")
    outcome = compose(table, videos, tmp_path / "out", "--clips", 1)
    assert outcome.exit_code == 0
    assert "not used: bob: FFmpeg must" in outcome.stderr
    assert "not used: 1 rows of videos that are missing or cannot be read" in outcome.stdout
    assert (
        run_study(
            app, "compose", table, "--videos", videos, "--out", tmp_path / "o", "--tiles", "4"
        ).exit_code
        == 2
    )
