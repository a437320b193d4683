"""`mule stage`: a plain data set others can use, and a picture to look at."""

import csv
import json
import shutil
from contextlib import suppress
from pathlib import Path

import av
import numpy as np
import pytest
from typer.testing import CliRunner

from mule.cli.main import app
from mule.core.errors import FileError, RangeError
from mule.data.table.reading import read_actor_table, read_object_table
from mule.stage.benchmark import StageSet
from mule.stage.export import Export, key_frames_of, write_dataset
from mule.stage.takes import action_sheet
from mule.video.encode import VideoWriter

TINY = ["--clips", "2", "--size", "48x64", "--workers", "1"]


def run(*arguments):
    return CliRunner().invoke(app, ["stage", *[str(argument) for argument in arguments]])


def rows_of(path):
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def frames_of(path):
    with av.open(str(path)) as container:
        return np.stack([frame.to_ndarray(format="rgb24") for frame in container.decode(video=0)])


def test_clips_are_written_with_their_tables_and_description(tmp_path):
    out = tmp_path / "out"
    outcome = run("render", out, *TINY, "--role", "test", "--seed", 3)
    assert outcome.exit_code == 0, outcome.output
    assert sorted(path.name for path in out.iterdir()) == [
        "actors.csv",
        "objects.csv",
        "stage.json",
        "tracks.csv",
        "videos",
    ]
    clips = StageSet(role="test", num_clips=2, size=(48, 64), seed=3)
    for index in range(2):
        clip = clips.clip(index)
        frames = frames_of(out / "videos" / f"clip_{index:06d}.mp4")
        assert frames.shape == clip.frames.shape
        assert np.abs((frames.astype(float) - clip.frames).mean(axis=-1)).mean() < 4  # the noise, mostly
        rows = [row for row in rows_of(out / "actors.csv") if row["video"] == f"clip_{index:06d}"]
        assert {row["time_s"] for row in rows} == {"1"}
        expected = dict(zip(map(str, clip.track_ids), clip.labels(16), strict=True))
        assert all(row["actions"].split(";") == list(expected[row["actor_id"]]) for row in rows)
        number = int(rows[0]["actor_id"])
        box = [float(rows[0][name]) for name in ("x1", "y1", "x2", "y2")]
        np.testing.assert_allclose(box, clip.actor_boxes_xyxy_unit[16, number], atol=1e-6)
        tracks = [row for row in rows_of(out / "tracks.csv") if row["video"] == f"clip_{index:06d}"]
        assert len({(row["frame"], row["actor_id"]) for row in tracks}) == len(tracks)
        assert {int(row["frame"]) for row in tracks} == set(range(32))
    description = json.loads((out / "stage.json").read_text())
    assert description["version"] == "stage-1"
    assert description["parameters"]["seed"] == 3
    assert len(description["z1"] + description["z2"] + description["z3"]) == 21
    assert len(description["frames_sha256"]) == 64


def test_the_tables_are_those_every_data_set_has(tmp_path):
    out = tmp_path / "out"
    write_dataset(Export(StageSet(num_clips=3, size=(48, 64), num_frames=8)), out, workers=1)
    actors, objects = read_actor_table(out / "actors.csv"), read_object_table(out / "objects.csv")
    assert set(actors.videos) == {"clip_000000", "clip_000001", "clip_000002"}
    assert set(actors.time_s) == {0.25}
    assert set(objects.classes) <= {"ball", "box"}


def test_lossless_videos_decode_to_the_same_bytes(tmp_path):
    clips = StageSet(num_clips=1, size=(35, 47), num_frames=5)
    write_dataset(Export(clips, lossless=True), tmp_path / "out", workers=1)
    frames = frames_of(tmp_path / "out" / "videos" / "clip_000000.mp4")
    np.testing.assert_array_equal(frames, clips.clip(0).frames)


def test_longer_takes_have_a_key_time_every_second_and_actors_with_one_number(tmp_path):
    out = tmp_path / "out"
    write_dataset(Export(StageSet(num_clips=1, size=(32, 48)), seconds=5.0), out, workers=1)
    assert len(frames_of(out / "videos" / "clip_000000.mp4")) == 80
    times = {float(row["time_s"]) for row in rows_of(out / "actors.csv")}
    assert times <= {1.0, 2.0, 3.0, 4.0}
    known = StageSet().classes.known
    assert {name for row in rows_of(out / "actors.csv") for name in row["actions"].split(";")} <= set(known)


@pytest.mark.parametrize(
    ("num_frames", "expected"),
    [(1, [0]), (8, [4]), (32, [16]), (33, [16]), (47, [16]), (48, [16, 32]), (80, [16, 32, 48, 64])],
)
def test_key_frames_are_whole_seconds_with_a_second_on_either_side(num_frames, expected):
    assert key_frames_of(num_frames) == expected


@pytest.mark.slow
def test_one_worker_and_two_write_the_same_files(tmp_path):
    wanted = Export(StageSet(num_clips=3, size=(32, 48), num_frames=4))
    for workers in (1, 2):
        write_dataset(wanted, tmp_path / str(workers), workers=workers)
    for path in sorted((tmp_path / "1").rglob("*")):
        if path.is_file():
            other = tmp_path / "2" / path.relative_to(tmp_path / "1")
            assert path.read_bytes() == other.read_bytes(), path.name


def test_an_existing_folder_is_refused_unless_it_may_be_replaced(tmp_path):
    out = tmp_path / "out"
    out.mkdir()
    (out / "mine.txt").write_text("keep")
    refused = run("render", out, *TINY)
    assert refused.exit_code == 2
    assert "must not exist yet" in refused.output.replace("\n", " ")
    assert [path.name for path in tmp_path.iterdir()] == ["out"]
    assert (out / "mine.txt").exists()
    refused = run("render", out, *TINY, "--overwrite")
    assert refused.exit_code == 2
    assert "replaces a data set of Stage" in " ".join(refused.output.split())
    assert [path.name for path in out.iterdir()] == ["mine.txt"]
    (out / "stage.json").write_text("{}")
    assert run("render", out, *TINY, "--overwrite").exit_code == 0
    assert not (out / "mine.txt").exists()


@pytest.mark.parametrize("stage", range(4))
def test_a_kill_while_a_data_set_is_replaced_loses_neither_and_the_next_run_ends(
    tmp_path, monkeypatch, stage
):
    out, wanted = (
        tmp_path / "out",
        [Export(StageSet(num_clips=1, size=(32, 48), num_frames=4, seed=seed)) for seed in (0, 1)],
    )
    write_dataset(wanted[0], out, workers=1)
    old = (out / "stage.json").read_bytes()
    changes = []

    def changing(original):
        def change(*args, **more):
            if Path(args[0]).parent == tmp_path:
                changes.append(args[0])
                if len(changes) == stage + 1:
                    raise KeyboardInterrupt
            return original(*args, **more)

        return change

    with monkeypatch.context() as patched:
        patched.setattr(Path, "rename", changing(Path.rename))
        patched.setattr(shutil, "rmtree", changing(shutil.rmtree))
        with suppress(KeyboardInterrupt):
            write_dataset(wanted[1], out, workers=1, overwrite=True)
    complete = [path for path in tmp_path.glob("*/stage.json") if path.read_bytes() == old]
    assert complete or json.loads((out / "stage.json").read_text())["parameters"]["seed"] == 1
    write_dataset(wanted[1], out, workers=1, overwrite=True)
    assert json.loads((out / "stage.json").read_text())["parameters"]["seed"] == 1
    assert [path.name for path in tmp_path.iterdir()] == ["out"]


def test_writing_that_was_stopped_goes_on_and_another_beginning_is_refused(tmp_path, monkeypatch):
    wanted = Export(StageSet(num_clips=3, size=(32, 48), num_frames=4))

    def stop(done, _):
        if done == 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        write_dataset(wanted, tmp_path / "out", workers=1, on_progress=stop)
    assert [path.name for path in tmp_path.iterdir()] == ["out.parts"]
    other = Export(StageSet(num_clips=3, size=(32, 48), num_frames=4, seed=1))
    with pytest.raises(RangeError, match="must belong to the same data set"):
        write_dataset(other, tmp_path / "out", workers=1)
    written = []
    original = Export.plan
    monkeypatch.setattr(Export, "plan", lambda self, index: written.append(index) or original(self, index))
    write_dataset(wanted, tmp_path / "out", workers=1)
    assert written == [2]
    write_dataset(wanted, tmp_path / "whole", workers=1)
    for name in ("actors.csv", "tracks.csv", "objects.csv", "stage.json"):
        assert (tmp_path / "out" / name).read_bytes() == (tmp_path / "whole" / name).read_bytes()


@pytest.mark.parametrize(
    "words",
    [
        ["--split", "D"],
        ["--role", "dev"],
        ["--scenes", "fair"],
        ["--bias", "1.2"],
        ["--size", "96"],
        ["--size", "96xwide"],
        ["--size", "8x8"],
        ["--size", "47x64"],
        ["--seconds", "0"],
        ["--clips", "0"],
        ["--workers", "0"],
        ["--seed", "-1"],
    ],
)
def test_bad_values_end_in_exit_code_2_and_leave_nothing_behind(tmp_path, words):
    outcome = run("render", tmp_path / "out", *words)
    assert outcome.exit_code == 2
    assert list(tmp_path.iterdir()) == []


def test_the_sheet_is_a_png_with_a_row_for_each_action(tmp_path):
    path = tmp_path / "sheet.png"
    outcome = run("sheet", path, "--rows", "48")
    assert outcome.exit_code == 0
    assert "walk, squat" in outcome.output
    assert path.read_bytes()[:8] == b"\x89PNG\r\n\x1a\n"
    image = frames_of(path)[0]
    assert image.shape == (21 * 48, 8 * 64, 3)
    np.testing.assert_array_equal(image, action_sheet(48))


def test_a_sheet_that_cannot_be_written_is_named(tmp_path):
    (tmp_path / "file").write_text("")
    outcome = run("sheet", tmp_path / "file" / "sheet.png", "--rows", "48", "--scenes")
    assert outcome.exit_code == 2
    assert "sheet.png" in outcome.output


def test_a_video_that_failed_leaves_no_file(tmp_path):
    def fail():
        with VideoWriter(tmp_path / "a.mp4", (16, 16), 16) as video:
            video.write(np.zeros((2, 16, 16, 3), dtype=np.uint8))
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    assert list(tmp_path.iterdir()) == []


def test_frames_of_another_size_and_odd_sizes_are_refused(tmp_path):
    with pytest.raises(RangeError, match="must be even; got 15 × 16"):
        VideoWriter(tmp_path / "a.mp4", (15, 16), 16)
    with (
        pytest.raises(RangeError, match="frames must have"),
        VideoWriter(tmp_path / "a.mp4", (16, 16), 16) as video,
    ):
        video.write(np.zeros((1, 18, 16, 3), dtype=np.uint8))
    with pytest.raises(FileError, match=r"a\.mp4"):
        VideoWriter(tmp_path / "no" / "a.mp4", (16, 16), 16)
