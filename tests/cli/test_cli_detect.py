"""`mule data detect` as people use it: what it prints, what it writes, how it ends, and how it continues."""

import pytest
import torch
from clock_videos import clock_video
from small_tables import BOX, table_of
from typer.testing import CliRunner

from mule.cli.main import app
from mule.core.errors import DetectorError
from mule.core.locks import only_writer
from mule.data.table.reading import read_actor_table, read_object_table
from mule.data.table.writing import write_actor_table
from mule.detection import named
from mule.detection.detections import Detections, split_actors_and_objects
from mule.detection.detector import YoloxDetector
from mule.video.reading import frames_at, video_facts


class StillLife:
    """A person and a cup in every frame; nobody in bright ones. It may break at some call."""

    class_names = ("person", "cup")
    actor_score = 0.25

    def __init__(self):
        self.num_calls = 0
        self.breaks_at: int | None = None
        self.error: BaseException = DetectorError("the detector broke.")

    def __call__(self, frames):
        self.num_calls += 1
        if self.num_calls == self.breaks_at:
            raise self.error
        n = len(frames)
        is_dark = frames[:, :, 4:12].float().mean(dim=(1, 2, 3)) < 210
        boxes = torch.tensor([[4.0, 4.0, 12.0, 28.0], [24.0, 8.0, 48.0, 32.0]]).repeat(n, 1)
        found = Detections(
            boxes,
            torch.tensor([0.5, 0.4]).repeat(n),
            torch.tensor([0, 1]).repeat(n),
            torch.arange(n).repeat_interleave(2),
            n,
        )
        return found.select(is_dark.repeat_interleave(2) | (found.class_index == 1))


@pytest.fixture
def still(monkeypatch):
    still = StillLife()
    monkeypatch.setattr(named, "load_detector", lambda *_, **__: still)
    return still


@pytest.fixture
def place(tmp_path):
    """A folder with three videos, one of them without people, and a file that stands for the detector's."""
    for name, level in (("a", 60), ("b", 220), ("c", 100)):
        clock_video(tmp_path / "videos" / f"{name}.mp4", level=level)
    (tmp_path / "net.onnx").write_bytes(b"weights")
    return tmp_path


def mule(*arguments):
    return CliRunner().invoke(app, ["data", "detect", *map(str, arguments)])


def arguments(place, *more):
    return (
        place / "videos",
        "--detector",
        place / "net.onnx",
        "--persons",
        place / "persons.csv",
        "--objects",
        place / "objects.csv",
        *more,
    )


@pytest.mark.usefixtures("still")
def test_people_and_objects_of_a_folder_are_written_and_counted(place):
    outcome = mule(*arguments(place, "--every", "0.5"))
    assert outcome.exit_code == 0, outcome.output
    assert "3 videos, 12 frames: 8 persons of score 0.25 or more, 12 objects of 1 class" in outcome.stdout
    assert "4 frames have no person: b at 0 s, b at 0.5 s, b at 1 s, b at 1.5 s" in outcome.stdout
    assert len(read_object_table(place / "persons.csv")) == 8
    assert read_object_table(place / "objects.csv").classes == ("cup",)
    assert {path.name for path in place.iterdir()} == {"videos", "net.onnx", "persons.csv", "objects.csv"}


def test_a_command_that_was_killed_continues_and_writes_the_same(place, still):
    mule(*arguments(place))
    files = [place / "persons.csv", place / "objects.csv"]
    whole = [path.read_bytes() for path in files]
    for path in files:
        path.unlink()
    still.num_calls, still.breaks_at, still.error = 0, 3, KeyboardInterrupt()
    assert mule(*arguments(place)).exit_code == 130
    assert not any(path.exists() for path in files)
    still.breaks_at, still.num_calls = None, 0
    outcome = mule(*arguments(place))
    assert outcome.exit_code == 0
    assert f"continuing from {place / 'persons.csv.partial'}: 2 of 3 videos are finished" in outcome.stdout
    assert still.num_calls == 1
    assert [path.read_bytes() for path in files] == whole
    assert not (place / "persons.csv.partial").exists()


@pytest.mark.usefixtures("still")
def test_a_second_search_for_the_same_table_is_refused(place):
    with only_writer(place / "persons.csv", beside=True):
        outcome = mule(*arguments(place))
    assert outcome.exit_code == 2
    assert "persons.csv: only one process may write here at a time" in outcome.stderr
    assert not list(place.glob("*.partial"))


def test_a_video_that_breaks_the_detector_is_left_out_and_the_others_are_written(place, still):
    still.breaks_at = 2
    outcome = mule(*arguments(place))
    assert outcome.exit_code == 2
    assert "the detector broke" in outcome.stderr
    assert "3 items: " in outcome.stdout
    assert "1 damaged (" in outcome.stdout
    assert (place / "persons.csv").exists()


def test_ctrl_c_says_how_to_continue(place, still):
    still.breaks_at, still.error = 2, KeyboardInterrupt()
    outcome = mule(*arguments(place))
    assert outcome.exit_code == 130
    assert f"the same command continues from {place / 'persons.csv.partial'}" in outcome.stderr


@pytest.mark.parametrize(
    ("more", "words"),
    [
        (("--score", "0.4"), "was begun with --score 0.25; it is 0.4 now"),
        (("--every", "0.5"), "was begun with --every 1; it is 1/2 now"),
        (("--object-score", "0.2"), "was begun with --object-score 0; it is 0.2 now"),
        (("--detector", "builtin"), r"was begun with --detector net.onnx"),
    ],
)
def test_other_options_than_before_are_refused(place, still, more, words):
    still.breaks_at = 3
    mule(*arguments(place))
    outcome = mule(*arguments(place, *more))
    assert outcome.exit_code == 2
    assert words in outcome.stderr


@pytest.mark.usefixtures("still")
def test_what_cannot_be_looked_at_is_named_and_looked_at_later(place):
    times = [(0, 0.5), (0, 7.0), (1, 0.5), (2, 0.5), (3, 0.5)]
    rows = [(video, time_s, BOX, [0], "") for video, time_s in times]
    write_actor_table(table_of(rows, videos=("a", "b", "gone", "torn")), place / "actors.csv")
    (place / "videos" / "torn.mp4").write_bytes(b"no video")
    command = arguments(place, "--table", place / "actors.csv")
    outcome = mule(*command)
    assert outcome.exit_code == 2
    assert "2 videos, 2 frames: 1 person " in outcome.stdout
    assert "2 videos are left out: gone (missing), torn (" in outcome.stderr
    assert "1 key time lies after the end of the video: a at 7 s." in outcome.stderr
    assert len(read_object_table(place / "persons.csv")) == 1
    for name in ("gone", "torn"):
        clock_video(place / "videos" / f"{name}.mp4", level=60)
    outcome = mule(*command)
    assert "2 of 4 videos are finished" in outcome.stdout
    assert len(read_object_table(place / "persons.csv")) == 3
    assert not (place / "persons.csv.partial").exists()


@pytest.mark.usefixtures("still")
def test_labels_of_whole_clips_become_those_of_people(place):
    write_actor_table(table_of([(0, 0.5, None, [0], ""), (1, 0.5, None, [1], "")]), place / "clips.csv")
    outcome = mule(
        place / "videos",
        "--detector",
        place / "net.onnx",
        "--table",
        place / "clips.csv",
        "--out",
        place / "actors.csv",
    )
    assert outcome.exit_code == 0, outcome.output
    assert "1 of 2 clips have no person and keep the whole frame" in outcome.stdout
    actors = read_actor_table(place / "actors.csv")
    assert actors.has_box.tolist() == [True, False]
    assert [actors.action_names(row) for row in range(2)] == [("sit",), ("walk",)]


@pytest.mark.usefixtures("still")
def test_one_video_is_enough(place):
    write_actor_table(table_of([(0, 0.5, BOX, [0], ""), (1, 0.5, BOX, [1], "")]), place / "actors.csv")
    one = (place / "videos" / "a.mp4", *arguments(place)[1:])
    assert mule(*one, "--table", place / "actors.csv").exit_code == 0
    assert read_object_table(place / "persons.csv").videos == ("a",)
    assert "1 video, 2 frames" in mule(*one).stdout


def test_published_boxes_are_filtered_without_looking_at_a_frame(place):
    boxes = "a,0001,0.1,0.2,0.3,0.4,,0.995518\na,0001,0.1,0.2,0.3,0.5,12,0.2\nz,0001,0.1,0.2,0.3,0.4,,0.9\n"
    (place / "ava.csv").write_text(boxes)
    command = (place / "videos", "--detector", place / "ava.csv", "--persons", place / "persons.csv")
    assert mule(*command, "--score", "0.85").exit_code == 0
    table = read_object_table(place / "persons.csv")
    assert (table.videos, table.time_s.tolist(), table.score.tolist()) == (("a",), [1.0], [0.995518])
    assert mule(*command).exit_code == 0
    assert len(read_object_table(place / "persons.csv")) == 2


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda place: (place / "videos", "--detector", "builtin"), "give --persons, --objects or --out"),
        (lambda place: (*arguments(place), "--out", "x.csv"), "needs --table"),
        (
            lambda place: (*arguments(place), "--table", "none.csv"),
            "none.csv: must be a file that can be read",
        ),
        (
            lambda place: (place / "none", *arguments(place)[1:]),
            "none: must be a folder of videos or a video",
        ),
        (
            lambda place: arguments(place, "--detector", "yolox_giant"),
            "a detector must be a file, a folder or one of",
        ),
        (lambda place: arguments(place, "--detector", place), "it is a folder. Give a table in it"),
        (lambda place: arguments(place, "--persons", "p.txt"), "a table must be a .csv or a .parquet file"),
        (lambda place: arguments(place, "--objects", place / "persons.csv"), "must be different files"),
    ],
)
def test_wrong_input_is_one_message_and_writes_nothing(place, still, change, words):
    outcome = mule(*change(place))
    assert outcome.exit_code == 2
    assert words in " ".join(outcome.stderr.split()).replace("│ ", "")
    assert {path.name for path in place.iterdir()} == {"videos", "net.onnx"}
    assert not still.num_calls


def test_a_folder_without_a_video_is_refused(place, still):
    for path in (place / "videos").iterdir():
        path.unlink()
    outcome = mule(*arguments(place))
    assert (outcome.exit_code, still.num_calls) == (2, 0)
    assert "there is no video in it" in outcome.stderr
    (place / "videos" / "a.mp4").write_bytes(b"no video")
    outcome = mule(*arguments(place))
    assert outcome.exit_code == 2
    assert "at least one video must be readable; none of 1 is. a: " in outcome.stderr
    assert {path.name for path in place.iterdir()} == {"videos", "net.onnx"}


def test_real_clips_hold_what_yolox_finds_frame_by_frame(shared_data, tmp_path):
    weights = shared_data / "detectors" / "yolox_nano_coco_416.onnx"
    samples = shared_data / "videos" / "pose2sim_multiperson"
    videos = tmp_path / "videos"
    videos.mkdir()
    for name in ("cam01.mp4", "cam02.mp4"):
        (videos / name).write_bytes((samples / name).read_bytes())
    persons = tmp_path / "persons.csv"
    outcome = mule(videos, "--detector", weights, "--persons", persons, "--every", "1.5")
    assert outcome.exit_code == 0, outcome.output
    detector, expected = YoloxDetector(weights, actor_score=0.3), []
    for video in sorted(videos.iterdir()):
        facts, number = video_facts(video), 0
        assert facts.duration_s is not None
        while number * 1.5 < float(facts.duration_s) - 0.001:
            found, _ = split_actors_and_objects(detector(frames_at(video, [number * 1.5])), actor_score=0.3)
            size = torch.tensor([facts.cols, facts.rows, facts.cols, facts.rows])
            expected += [
                (video.stem, round(number * 1.5, 6), *box)
                for box in (found.boxes_xyxy_px.double() / size).tolist()
            ]
            number += 1
    table = read_object_table(persons)
    rows = zip(table.video_index.tolist(), table.time_s.tolist(), table.boxes_xyxy_unit.tolist(), strict=True)
    assert [(table.videos[video], round(time_s, 6)) for video, time_s, _ in rows] == [
        row[:2] for row in expected
    ]
    torch.testing.assert_close(
        torch.from_numpy(table.boxes_xyxy_unit),
        torch.tensor([row[2:] for row in expected], dtype=torch.float64),
    )
    assert len(expected) >= 2
