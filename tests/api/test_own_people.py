"""A folder of one's own: what is found in it, who has a clip's actions, and what is refused quickly."""

import subprocess
import sys

import numpy as np
import pytest
from clock_videos import clock_video
from typer.testing import CliRunner

from mule.api import own_people
from mule.api.own_people import people_with_boxes, require_readable
from mule.api.own_videos import OwnVideosPlan, backbone_of, card_called
from mule.cli.main import app
from mule.core.errors import AnnotationError, DownloadError, TooFewActors, VideoError, WeightsError
from mule.data.convert.detecting import VideoBoxes
from mule.data.table.own_folder import own_folder
from mule.data.table.reading import read_actor_table


@pytest.fixture
def own(tmp_path):
    folder = tmp_path / "own"
    for name, level in (("a", 60), ("b", 140)):
        clock_video(folder / f"{name}.mp4", 20, level=level)
    (folder / "labels.csv").write_text("video,actions\na,kick\nb,wave\n")
    return folder


def test_the_one_table_with_the_columns_is_found_and_the_films_beside_it(own):
    (own / "videos.csv").write_text("video,film\na,one\nb,\n")
    found = own_folder(own)
    assert (found.table, found.videos, found.groups) == (own / "labels.csv", own, {"a": "one"})
    (own / "videos").mkdir()
    assert own_folder(own).videos == own / "videos"
    (own / "more.csv").write_text("video,actions\na,kick\n")
    with pytest.raises(
        AnnotationError, match=r"it has 2 \(labels.csv, more.csv\). Call the one to use actors.csv"
    ):
        own_folder(own)
    (own / "actors.csv").write_text("video,actions\na,kick\n")
    assert own_folder(own).table == own / "actors.csv"


def test_a_folder_without_a_table_says_which_columns_it_needs(tmp_path):
    (tmp_path / "notes.csv").write_text("who,what\n")
    with pytest.raises(AnnotationError, match=r"one table with the columns video and actions.*it has none"):
        own_folder(tmp_path)


def test_videos_that_are_missing_or_damaged_are_named_before_anything_else(own):
    (own / "b.mp4").write_bytes(b"nothing to see")
    (own / "labels.csv").write_text("video,actions\na,kick\nb,wave\nc,wave\n")
    with pytest.raises(VideoError, match=r"2 are not: c .missing., b .FFmpeg must be able"):
        require_readable(read_actor_table(own / "labels.csv"), own)


def boxes_of(heights, *, start=0.0):
    corners = np.array(
        [[0.1 * at, start, 0.1 * at + 0.1, start + height] for at, height in enumerate(heights)]
    )
    return corners.reshape(-1, 4)


@pytest.fixture
def finds(monkeypatch):
    """Give the heights of the people that a detector finds in each video, at its first moment."""

    def found_in(heights):
        def found(table, videos, detector, partial):  # noqa: ARG001 - as the function it stands for
            each = [
                VideoBoxes(
                    video,
                    np.unique(table.time_s[table.video_index == at]),
                    (),
                    np.zeros(len(heights[video]), dtype=np.int64),
                    ("person",) * len(heights[video]),
                    np.ones(len(heights[video])),
                    boxes_of(heights[video]),
                )
                for at, video in enumerate(table.videos)
            ]
            return each, 0

        monkeypatch.setattr(own_people, "_found", found)

    return found_in


def test_people_half_as_tall_as_the_tallest_have_the_clips_actions_and_others_do_not(own, finds, tmp_path):
    table = read_actor_table(own / "labels.csv")
    videos = require_readable(table, own)
    finds({"a": (0.8, 0.4, 0.39), "b": ()})
    people = people_with_boxes(table, videos, detector="d", partial=tmp_path / "p")
    assert [people.actors.action_names(row) for row in range(len(people.actors))] == [("kick",), ("kick",)]
    heights = people.actors.boxes_xyxy_unit[:, 3] - people.actors.boxes_xyxy_unit[:, 1]
    assert heights.tolist() == pytest.approx([0.8, 0.4])
    assert people.sentences[1] == "1 moments are left out: nobody was found there"
    finds({"a": (), "b": ()})
    with pytest.raises(TooFewActors, match="d found none in 2"):
        people_with_boxes(table, videos, detector="d", partial=tmp_path / "p")


def test_rows_with_a_box_stay_as_they_are_beside_those_that_are_looked_for(own, finds, tmp_path):
    (own / "labels.csv").write_text(
        "video,time_s,x1,y1,x2,y2,actions\na,0.2,0.5,0.1,0.9,0.9,kick\nb,,,,,,wave\n"
    )
    table = read_actor_table(own / "labels.csv")
    finds({"b": (0.5,)})
    actors = people_with_boxes(
        table, require_readable(table, own), detector="d", partial=tmp_path / "p"
    ).actors
    assert actors.video_names == ["a", "b"]
    assert actors.boxes_xyxy_unit[0].tolist() == [0.5, 0.1, 0.9, 0.9]
    assert actors.has_time.all()


def test_weights_are_named_by_their_beginning_and_a_wrong_name_is_refused(tmp_path, monkeypatch):
    assert card_called("i3d") == "i3d_rgb_kinetics400"
    with pytest.raises(WeightsError, match="several begin with it"):
        card_called("acar")
    with pytest.raises(WeightsError, match="none has that name"):
        card_called("nosuch")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setenv("MULE_OFFLINE", "1")
    with pytest.raises(DownloadError, match="x3d_m"):
        backbone_of(OwnVideosPlan(tmp_path, tmp_path, tmp_path, weights="pytorchvideo_x3d_m"))


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ((), "give --data DIR for your own videos, or an EXPERIMENT"),
        (("stage", "--data", "own"), "does not go with --data"),
        (("stage", "--weights", "i3d"), "goes with --data DIR"),
        (("--data", "none"), "none: must be a folder with videos and a table; there is no such folder"),
    ],
)
def test_options_that_do_not_go_together_and_wrong_folders_are_refused(
    arguments, words, tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    outcome = CliRunner().invoke(app, ["train", *arguments])
    assert outcome.exit_code == 2
    assert words in " ".join(outcome.stderr.split())


def test_a_model_is_made_beside_the_data_and_a_misspelt_novel_action_gets_a_suggestion(own, monkeypatch):
    monkeypatch.chdir(own.parent)
    plans = []

    def trained(plan, **_):
        plans.append(plan)
        raise KeyboardInterrupt

    monkeypatch.setattr("mule.api.own_videos.train_on_own_videos", trained)
    stopped = CliRunner().invoke(app, ["train", "--data", "own", "--novel", "kick"])
    assert stopped.exit_code == 130
    assert "the same command with --resume continues" in stopped.stderr
    (plan,) = plans
    assert (str(plan.out), str(plan.run_dir)) == ("runs/own", "runs/own.training/run")
    assert (plan.novel, plan.resumes) == (("kick",), False)
    monkeypatch.undo()
    wrong = CliRunner().invoke(app, ["train", "--data", str(own), "--novel", "kik", "--detector", "builtin"])
    assert wrong.exit_code == 2
    assert "Did you mean 'kick'?" in wrong.stderr


def test_a_wrong_folder_is_reported_before_torch_is_imported(tmp_path):
    script = (
        "import sys; from typer.testing import CliRunner; from mule.cli.main import app\n"
        "outcome = CliRunner().invoke(app, ['train', '--data', 'none'])\n"
        "assert outcome.exit_code == 2, outcome.output\n"
        "assert 'torch' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", script], check=True, cwd=tmp_path)
