"""Detected persons for a table of whole frames: every one has the labels of its clip; nobody found, the frame acts."""

import numpy as np
import pytest
import torch
from clock_videos import clock_video, frame_number
from small_tables import BOX, NAN, table_of
from typer.testing import CliRunner

from mule.cli.data import app
from mule.core.errors import RangeError
from mule.data.convert.detected import detected_actors
from mule.data.table.reading import read_actor_table
from mule.data.table.writing import write_actor_table
from mule.detection.detections import Detections, no_detections

FRAME_PX = (32, 48)


@pytest.fixture(scope="module")
def videos(tmp_path_factory):
    folder = tmp_path_factory.mktemp("videos")
    return {name: clock_video(folder / f"{name}.mp4", level=level) for name, level in (("a", 60), ("b", 220))}


def table():
    return table_of([(0, 0.5, None, [0], ""), (0, 1.0, None, [1], ""), (1, 0.5, None, [0, 1], "")])


def seen(frame):
    """Nobody in video b; in a two persons, one of them hardly seen, and a chair."""
    assert tuple(frame.shape) == (3, *FRAME_PX)
    if float(frame[:, 4:12].float().mean()) > 200:
        return no_detections(1)
    at = frame_number(frame.permute(1, 2, 0).numpy())  # boxes tell which frame was looked at
    boxes = torch.tensor([[0.0, 0.0, 12.0, 16.0], [24.0, 8.0, 48.0, 32.0], [0.0, at, 48.0, 32.0]])
    return Detections(boxes, torch.tensor([0.5, 0.9, 0.2]), torch.tensor([0, 0, 0]), torch.zeros(3).long(), 1)


def test_each_person_has_what_is_done_in_its_clip_and_where_nobody_is_the_frame_acts(videos):
    told = []
    found = detected_actors(table(), videos, seen, actor_score=0.3, on_progress=lambda *at: told.append(at))
    assert (found.num_clips, found.num_without) == (3, 1)
    assert told == [(1, 3), (2, 3), (3, 3)]
    actors = found.actors
    assert actors.video_names == ["a", "a", "a", "a", "b"]
    assert actors.time_s.tolist() == [0.5, 0.5, 1.0, 1.0, 0.5]
    names = [actors.action_names(row) for row in range(5)]
    assert names == [("sit",), ("sit",), ("walk",), ("walk",), ("sit", "walk")]
    assert actors.has_box.tolist() == [True] * 4 + [False]
    np.testing.assert_allclose(
        actors.boxes_xyxy_unit[:2], [[0.5, 0.25, 1, 1], [0, 0, 0.25, 0.5]]
    )  # best first


def test_the_frame_at_the_key_time_is_looked_at(videos):
    found = detected_actors(table(), videos, seen, actor_score=0.1)
    lowest = found.actors.boxes_xyxy_unit[[2, 5], 1] * FRAME_PX[0]
    np.testing.assert_allclose(lowest, [5, 10], atol=0.45)  # at 0.5 s and at 1 s, ten frames a second


def test_rows_with_boxes_and_rows_of_whole_videos_are_refused(videos):
    with pytest.raises(RangeError, match="have a box already"):
        detected_actors(table_of([(0, 0.5, BOX, [0], "")]), videos, seen, actor_score=0.3)
    with pytest.raises(RangeError, match="describe whole videos"):
        detected_actors(table_of([(0, NAN, None, [0], "")]), videos, seen, actor_score=0.3)


def test_the_command_finds_people_in_real_video(shared_data, tmp_path):
    write_actor_table(table_of([(0, 0.5, None, [0], "")], videos=("cam01.mp4",)), tmp_path / "clips.csv")
    command = ["detect", str(tmp_path / "clips.csv"), "--out", str(tmp_path / "actors.csv")]
    command += ["--videos", str(shared_data / "videos" / "pose2sim_multiperson")]
    detector = shared_data / "detectors" / "yolox_nano_coco_416.onnx"
    outcome = CliRunner().invoke(app, [*command, "--detector", str(detector)])
    assert outcome.exit_code == 0, outcome.output
    assert len(read_actor_table(tmp_path / "actors.csv")) == 3
    assert CliRunner().invoke(app, [*command, "--detector", str(tmp_path / "boxes.csv")]).exit_code == 2
