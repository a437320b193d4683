"""AIRTLab as one table: whole frames with the actions of their clip, scenes kept together."""

from fractions import Fraction

import numpy as np
import pytest
from clock_videos import clock_video
from study_commands import assert_refused, assert_same, assert_survives_the_file, run_study, table_of, written

from mule.core.errors import AnnotationError, VideoError
from mule.data.table.name_files import read_pairs
from mule.data.table.reading import read_actor_table
from studies.convert.__main__ import app
from studies.convert.airtlab import actors_from_airtlab, read_takes, write_takes

HEADER = "video,scene,camera,actions\n"
ROWS = (
    "violent_cam1_1.mp4,violent-1,cam1,slap\n"
    "violent_cam2_1.mp4,violent-1,cam2,slap\n"
    "non-violent_cam1_7.mp4,non-violent-7,cam1,greet;friendly punch\n"
)
NOWHERE = (np.nan,) * 4


@pytest.fixture
def folder(tmp_path):
    written(tmp_path, "labels.csv", HEADER + ROWS)
    for line in ROWS.splitlines():
        clock_video(tmp_path / "clips" / line.split(",")[0], 30, level=100)
    return tmp_path


def test_a_clip_is_a_row_of_the_whole_frame_and_the_whole_video(tmp_path):
    written(tmp_path, "labels.csv", HEADER + ROWS)
    table, report = actors_from_airtlab(tmp_path)
    assert_same(
        table,
        table_of(
            ("violent_cam1_1.mp4", np.nan, NOWHERE, "slap", ""),
            ("violent_cam2_1.mp4", np.nan, NOWHERE, "slap", ""),
            ("non-violent_cam1_7.mp4", np.nan, NOWHERE, "greet;friendly punch", ""),
        ),
    )
    assert_survives_the_file(table, tmp_path)
    assert (report.unit, report.num_read, report.noted["scenes"]) == ("videos", 3, 2)


def test_moments_are_the_middle_or_a_period_apart_and_have_all_actions(folder):
    middle, _ = actors_from_airtlab(folder, "middle")
    assert middle.time_s.tolist() == [1.5, 1.5, 1.5]
    clips, _ = actors_from_airtlab(folder, "clips", period_s=Fraction(5, 4))
    assert clips.time_s.tolist() == [1.25, 2.5] * 3
    assert clips.action_names(5) == ("friendly punch", "greet")
    few, _ = actors_from_airtlab(folder, "clips", period_s=Fraction(9))
    assert few.time_s.tolist() == [1.5, 1.5, 1.5]


def test_scenes_with_near_numbers_share_a_block(tmp_path):
    rows = "".join(f"v{i}.mp4,violent-{i},cam1,slap\n" for i in (1, 5, 6, 12))
    takes = read_takes(written(tmp_path, "labels.csv", HEADER + rows + "n.mp4,non-violent-2,cam1,hug\n"))
    write_takes(tmp_path / "videos.csv", takes, block_scenes=5)
    assert read_pairs(tmp_path / "videos.csv", "video", "block") == {
        "v1.mp4": "violent-block-1",
        "v5.mp4": "violent-block-1",
        "v6.mp4": "violent-block-2",
        "v12.mp4": "violent-block-3",
        "n.mp4": "non-violent-block-1",
    }
    assert read_pairs(tmp_path / "videos.csv", "video", "scene")["v12.mp4"] == "violent-12"


@pytest.mark.parametrize(
    ("rows", "words"),
    [
        ("", "line 2: must hold rows below the header; there are none"),
        (ROWS.replace("violent-1,cam1", "violent,cam1"), "line 2: scene must be named like 'violent-12'"),
        (ROWS.replace("violent-1,cam2", "violent-0,cam2"), "line 3: scene must be named like 'violent-12'"),
        (ROWS.replace("cam2,slap", "cam2,"), "line 3: actions must be distinct names separated by semicolons; got ''"),
        (ROWS.replace("cam2,slap", "cam2,slap;slap"), "got 'slap;slap'"),
        (ROWS.replace(",cam2,", ",,"), "line 3: video and camera must not be empty"),
        (ROWS + ROWS, "line 5: a video must have one row; 'violent_cam1_1.mp4' is also in line 2"),
        (ROWS + "a,b\n", "line 5: a row must have 4 columns; got 2"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_said_by_file_and_line(tmp_path, rows, words):
    written(tmp_path, "labels.csv", HEADER + rows)
    with pytest.raises(AnnotationError) as raised:
        actors_from_airtlab(tmp_path)
    assert words in str(raised.value)


def test_videos_that_are_not_there_or_cannot_be_read_are_named_together(folder):
    (folder / "clips" / "violent_cam1_1.mp4").unlink()
    (folder / "clips" / "violent_cam2_1.mp4").write_bytes(b"nothing to see")
    with pytest.raises(
        VideoError, match=r"2 of 3 videos have none \(violent_cam1_1.mp4: is missing; violent_cam2"
    ):
        actors_from_airtlab(folder, "middle")
    table, _ = actors_from_airtlab(folder, "video")
    assert len(table) == 3


def test_the_command_writes_table_and_groups(folder, tmp_path):
    out, groups = tmp_path / "actors.csv", tmp_path / "videos.csv"
    outcome = run_study(app, "from-airtlab", folder, "--out", out, "--groups", groups, "--block", "1")
    assert outcome.exit_code == 0, outcome.output
    assert read_actor_table(out).time_s.tolist() == [1.5, 1.5, 1.5]
    assert read_pairs(groups, "video", "block")["non-violent_cam1_7.mp4"] == "non-violent-block-7"
    bad = tmp_path / "bad.csv"
    written(folder, "labels.csv", HEADER)
    assert_refused(run_study(app, "from-airtlab", folder, "--out", bad), "labels.csv, line 2", bad)


def test_the_real_clips_are_195_of_103_scenes(shared_data):
    table, report = actors_from_airtlab(shared_data / "videos" / "airtlab")
    assert (len(table), len(table.classes), report.noted["scenes"]) == (195, 17, 103)
    assert set(table.labels.sum(axis=1).tolist()) == {1, 2, 3}
