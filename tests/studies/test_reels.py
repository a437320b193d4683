"""Reels and scenes: what is drawn, what the truth says, and what the videos show."""

import csv
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
from clock_videos import clock_video, frame_number
from study_commands import run_study

from mule.core.errors import RangeError
from mule.data.split.splits import read_split
from mule.data.table.reading import read_actor_table
from mule.data.table.table import ActorTable
from mule.data.table.videos import VideoOnDisk
from mule.video.reading import frames_at
from studies.compose.composites import Source
from studies.reels.__main__ import app
from studies.reels.plans import (
    MOST_PANELS,
    RATE,
    Part,
    ReelPlan,
    Visit,
    draw_reels,
    num_act_frames,
    true_table,
)
from studies.reels.videos import write_reel

BOX = (0.25, 0.25, 0.5, 0.75)


NOWHERE = Path("clip.mp4")


def source(row, *, path=NOWHERE, length_s=Fraction(1), size=(240, 320)):
    video = VideoOnDisk(f"clip{row}", path, float(length_s), Fraction(30), *size)
    return Source(row, video, length_s / 2, length_s / 2, length_s / 2, f"film{row}")


def clips_table(num):
    labels = np.eye(num, dtype=bool)
    names = tuple(f"clip{i}" for i in range(num))
    actions = tuple(f"act{i}" for i in range(num))
    return ActorTable(
        names, actions, np.arange(num), np.full(num, 0.5), np.tile(BOX, (num, 1)), labels, ("",) * num
    )


def test_reels_need_clips_and_time():
    with pytest.raises(RangeError, match="got 0 clips and 1 minutes"):
        draw_reels([], minutes=1)
    with pytest.raises(RangeError, match="got 1 clips and 0 minutes"):
        draw_reels([source(0)], minutes=0)


def test_the_same_seed_draws_the_same_reels_of_the_wanted_length():
    sources = [source(row) for row in range(9)]
    reels = draw_reels(sources, minutes=4, seed=3)
    assert reels == draw_reels(sources, minutes=4, seed=3)
    assert reels != draw_reels(sources, minutes=4, seed=4)
    assert sum(reel.num_frames for reel in reels) == 4 * 60 * RATE
    assert {len(reel.panels) for reel in reels} <= set(range(1, MOST_PANELS + 1))


def test_in_a_panel_people_come_one_after_another_and_everybody_has_a_turn_before_a_second_one():
    sources = [source(row) for row in range(9)]
    reels = draw_reels(sources, minutes=3, seed=0)
    for reel in reels:
        for visits in reel.panels:
            ends = [0, *(visit.end for visit in visits)]
            assert all(visit.begin > end for visit, end in zip(visits, ends, strict=False))
            assert ends[-1] <= reel.num_frames
    turns = [visit.source.row for reel in reels for _, _, visit in reel.visits()]
    assert set(turns) == set(range(9))


def test_the_truth_is_that_of_a_slow_loop_over_visits():
    """A person enters, is idle, acts, is idle: in the second of two panels, in a clip half as high as wide."""
    parts = (Part("enter", 30), Part("still", 30), Part("act", 30), Part("still", 30, is_after=True))
    visit = Visit(source(0, size=(160, 320)), 15, parts)
    reel = ReelPlan("reel.mp4", 200, ((), (visit,)))
    table = true_table(clips_table(1), [reel], every_s=Fraction(1, 2))
    assert table.time_s.tolist() == [1.0, 1.5, 2.0, 2.5, 3.0, 3.5, 4.0]  # at 0.5 s nothing is in
    assert table.labels[:, 0].tolist() == [False] * 3 + [True] * 2 + [False] * 2
    x1, y1, x2, y2 = table.boxes_xyxy_unit[-1]
    assert (x1, x2) == (0.5 + 0.25 / 2, 0.75)
    assert (y1, y2) == pytest.approx(((40 + 0.25 * 160) / 240, (40 + 0.75 * 160) / 240))
    shifted = table.boxes_xyxy_unit[0]
    assert shifted.tolist() == pytest.approx([0.5 + 0.75 / 2, y1, 1.0, y2])  # half in
    assert set(table.actor_id) == {"person-1"}


def test_every_box_lies_in_its_panel_and_acts_last_as_long_as_drawn():
    sources = [source(row, length_s=Fraction(6 + row, 5)) for row in range(6)]
    reels = draw_reels(sources, minutes=3, seed=1)
    every_frame = true_table(clips_table(6), reels, every_s=1 / RATE)
    boxes = every_frame.boxes_xyxy_unit
    assert ((boxes >= 0) & (boxes <= 1)).all()
    assert (boxes[:, :2] < boxes[:, 2:]).all()
    for index, reel in enumerate(reels):
        for number, panel, visit in reel.visits():
            own = (every_frame.video_index == index) & (np.array(every_frame.actor_id) == f"person-{number}")
            low, high = panel / len(reel.panels), (panel + 1) / len(reel.panels)
            assert (boxes[own, 0] >= low).all()
            assert (boxes[own, 2] <= high + 1e-9).all()
            acts = sum(part.num_frames for part in visit.parts if part.kind == "act")
            assert every_frame.labels[own].sum() == acts
            assert acts % num_act_frames(visit.source) == 0


def test_a_reel_shows_stills_the_act_and_nobody(tmp_path):
    path = clock_video(tmp_path / "clip.mp4", 15, rate=30, size=(48, 64))
    clip = source(0, path=path, length_s=Fraction(1, 2), size=(48, 64))
    parts = (Part("still", 10), Part("act", 15), Part("still", 5, is_after=True))
    reel = ReelPlan("reel.mp4", 40, ((Visit(clip, 5, parts),), ()))
    write_reel(reel, tmp_path / reel.name)
    times = [Fraction(frame, 30) for frame in (2, 8, 14, 15, 22, 29, 33, 37)]
    frames = frames_at(tmp_path / reel.name, times)
    assert frames[0].shape == (3, 240, 640)
    lit = [frame[:, :, :320].permute(1, 2, 0).numpy() for frame in frames]
    shown = [round(frame_number(image)) for image in lit[1:7]]
    assert shown == [0, 0, 0, 7, 14, 14]
    for frame in (*frames[[0, 7]], *frames[:, :, :, 320:]):
        assert abs(float(frame.float().mean()) - 96) < 2
    before = (tmp_path / reel.name).read_bytes()
    write_reel(reel, tmp_path / reel.name)
    assert (tmp_path / reel.name).read_bytes() == before


@pytest.fixture
def clips(tmp_path):
    """A table of one-second clips of six films, and its split."""
    rows = ["video,time_s,x1,y1,x2,y2,actions,actor_id"]
    for number in range(6):
        clock_video(tmp_path / "videos" / f"film{number}.mp4", 20, rate=20)
        rows.append(f"film{number},0.5,0.2,0.2,0.8,0.9,{'wave' if number % 2 else 'walk'},")
    (tmp_path / "actors.csv").write_text("\n".join(rows) + "\n")
    from mule.cli.main import app as mule

    arguments = [
        "data",
        "split",
        tmp_path / "actors.csv",
        "--policy",
        "closed",
        "--out",
        tmp_path / "split.toml",
    ]
    arguments += ["--val-share", "0.2", "--test-share", "0.4"]
    outcome = run_study(mule, *arguments)
    assert outcome.exit_code == 0, outcome.output
    return tmp_path


def test_the_command_makes_reels_of_one_side_with_a_table_that_fits(clips):
    out = clips / "reels"
    options = ["--videos", clips / "videos", "--split", clips / "split.toml", "--minutes", "0.3"]
    outcome = run_study(app, "clips", clips / "actors.csv", *options, "--out", out)
    assert outcome.exit_code == 0, outcome.output
    assert outcome.stdout.startswith("1 reels, 0.3 minutes")
    table = read_actor_table(out / "people.csv", allow_unlabelled=True)
    assert (out / "videos" / table.videos[0]).is_file()
    with (out / "sources.csv").open() as sources:
        used = {row["source_video"] for row in csv.DictReader(sources)}
    assert used <= set(read_split(clips / "split.toml").videos.test)
    again = run_study(app, "clips", clips / "actors.csv", *options, "--out", out)
    assert again.exit_code == 2
    assert "must be a new or empty folder" in again.output


def test_the_command_keeps_scenes_that_are_long_enough(clips):
    rows = "video,time_s,x1,y1,x2,y2,actions,actor_id\n"
    rows += "film0,0,0.2,0.2,0.8,0.9,walk,a\nfilm0,0.9,0.2,0.2,0.8,0.9,,a\nfilm1,0,0.2,0.2,0.8,0.9,walk,a\n"
    (clips / "people.csv").write_text(rows)
    arguments = ["scenes", clips / "people.csv", "--videos", clips / "videos"]
    outcome = run_study(app, *arguments, "--least", "0.5", "--out", clips / "scenes")
    assert outcome.exit_code == 0, outcome.output
    assert outcome.stdout.startswith("1 scenes, 1 people, 2 rows")
    assert [path.name for path in (clips / "scenes" / "videos").iterdir()] == ["film0.mp4"]
    refused = run_study(app, *arguments, "--least", "9", "--out", clips / "none")
    assert refused.exit_code == 2
    assert "none has. Choose a smaller --least" in refused.output


def test_rendered_takes_have_a_table_of_who_does_what(tmp_path):
    outcome = run_study(app, "takes", "--out", tmp_path / "takes", "--takes", 1, "--seconds", 2)
    assert outcome.exit_code == 0, outcome.output
    people = read_actor_table(tmp_path / "takes" / "people.csv")
    assert people.videos == ("take_700_000.mp4",)
    assert people.has_box.all()
    assert all(people.actor_id)
    assert sorted(path.name for path in (tmp_path / "takes" / "videos").iterdir()) == ["take_700_000.mp4"]
