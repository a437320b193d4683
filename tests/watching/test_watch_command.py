"""`mule watch` and `mule bundle` as people use them: what is printed, what is written, how they end."""

import os
import shutil
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest
import typer
from tiny_bundles import MadeUpBoxes, grey_video, stays
from typer.testing import CliRunner

from mule.cli.bundle import bundle as bundle_command
from mule.cli.main import _Commands  # pyright: ignore[reportPrivateUsage] - exit codes are its work
from mule.cli.watch import watch_videos
from mule.core.signals import take_sigterm_for_ctrl_c
from mule.memory.files import read_memory, write_memory
from mule.watching.engine import bundle as reading
from mule.watching.engine import watch as engine
from mule.watching.engine.bundle_card import WatchedFigures
from mule.watching.outputs import results
from mule.watching.outputs.moments_file import MomentsFile

app = typer.Typer(cls=_Commands)
app.command("watch")(watch_videos)
app.command()(bundle_command)

FILES = {"moments.jsonl", "ava.csv", "annotated.mp4", "report.html", "summary.txt"}


def mule(*arguments):
    return CliRunner().invoke(app, [*map(str, arguments)])


def test_a_take_is_watched_and_everything_is_there(take, bundle_dir, tmp_path):
    out = tmp_path / "result"
    outcome = mule(
        "watch", take, "--model", bundle_dir, "--out", out, "--export", "coco", "--threshold", "0.1"
    )
    assert outcome.exit_code == 0, outcome.output
    assert {path.name for path in out.iterdir()} >= FILES | {"coco.json"}
    for words in (
        "who did what, most novel first",
        "seconds of video per second",
        "held-out known actors passed",
        "calibration: on labelled moments, not by watching",
    ):
        assert words in outcome.stdout
    assert str(out / "report.html") in outcome.stdout
    assert len(list(MomentsFile(out / "moments.jsonl"))) == 4


def test_it_says_what_the_calibration_by_watching_found(take, bundle, bundle_dir, tmp_path, monkeypatch):
    figures = WatchedFigures(num_videos=8, num_known_people=40, num_novel_people=10, num_novel_flagged=6)
    calibrated = replace(bundle, card=bundle.card.model_copy(update={"watched": figures}))
    monkeypatch.setattr(reading, "read_bundle", lambda _: calibrated)
    outcome = mule(
        "watch", take, "--model", bundle_dir, "--out", tmp_path / "r", "--no-video", "--every", "3"
    )
    assert f"calibration: {figures.in_words()}" in outcome.stdout


def test_a_folder_of_videos_gives_a_folder_each_and_one_that_fails_does_not_stop_the_rest(
    bundle_dir, tmp_path, monkeypatch
):
    videos = tmp_path / "videos"
    videos.mkdir()
    for name in ("a.mp4", "c.mp4", "d.mp4", "e.mp4"):
        grey_video(videos / name, seconds=0.5)
    (videos / "b.mp4").write_bytes(b"no video")
    boxes = {"d.mp4": (), "c.mp4": (lambda _: None,)}
    opened, recorded = engine.open_watch, results.recorded

    def with_boxes(video, bundle, **more):
        paths = boxes.get(Path(video).name, (stays((0.1, 0.1, 0.5, 0.9)),))
        return opened(video, bundle, **{**more, "detector": MadeUpBoxes(*paths)})

    def without_moments(watching, *folder, **more):
        return recorded(watching, *folder, **more) if watching.header.source.video != "d" else (_ for _ in ())

    monkeypatch.setattr(engine, "named_detector", lambda *_: None)
    monkeypatch.setattr(engine, "open_watch", with_boxes)
    monkeypatch.setattr(results, "recorded", without_moments)
    outcome = mule("watch", videos, "--model", bundle_dir, "--out", tmp_path / "r", "--no-video")
    assert outcome.exit_code == 2
    assert "d.mp4: a video must show something at a key time" in outcome.stderr
    assert "5 items: 2 done; 1 no person (c.mp4); 2 damaged (b.mp4, d.mp4)" in outcome.stderr
    assert sorted(path.name for path in (tmp_path / "r").iterdir()) == ["a.mp4", "c.mp4", "e.mp4"]
    assert (tmp_path / "r" / "c.mp4" / "report.html").exists()


def test_ctrl_c_leaves_a_complete_result_that_can_be_resumed(bundle_dir, tmp_path, monkeypatch):
    video = grey_video(tmp_path / "v.mp4", seconds=4.0)
    person = stays((0.1, 0.1, 0.5, 0.9))
    stopped = MadeUpBoxes(person, fails_at_s=2.0, error=KeyboardInterrupt())
    monkeypatch.setattr(engine, "named_detector", lambda *_: stopped)
    out = tmp_path / "r"
    outcome = mule("watch", video, "--model", bundle_dir, "--out", out)
    assert outcome.exit_code == 130
    assert "stopped at 1 s; --resume continues from there" in outcome.stderr
    assert {path.name for path in out.iterdir()} >= FILES
    assert len(list(MomentsFile(out / "moments.jsonl"))) == 2
    monkeypatch.setattr(engine, "named_detector", lambda *_: MadeUpBoxes(person))
    outcome = mule("watch", video, "--model", bundle_dir, "--out", out, "--resume")
    assert outcome.exit_code == 0, outcome.output
    assert [moment.key_time_s for moment in MomentsFile(out / "moments.jsonl")] == [0, 1, 2, 3]


def test_sigterm_leaves_a_complete_result_too(bundle_dir, tmp_path, monkeypatch):
    class Terminated(MadeUpBoxes):
        def __call__(self, frame, *, key_time_s):
            if key_time_s == 7:  # detecting runs ahead
                os.kill(os.getpid(), signal.SIGTERM)
            return super().__call__(frame, key_time_s=key_time_s)

    video = grey_video(tmp_path / "v.mp4", seconds=12.0)
    monkeypatch.setattr(engine, "named_detector", lambda *_: Terminated(stays((0.1, 0.1, 0.5, 0.9))))
    before = signal.getsignal(signal.SIGTERM)
    try:
        take_sigterm_for_ctrl_c()
        outcome = mule("watch", video, "--model", bundle_dir, "--out", tmp_path / "r")
    finally:
        signal.signal(signal.SIGTERM, before)
    assert outcome.exit_code == 130
    assert "--resume continues from there" in outcome.stderr
    assert {path.name for path in (tmp_path / "r").iterdir()} >= FILES


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("gopher://host/film",), "must begin with one of"),
        (("nothing.mp4",), "nothing is there"),
        (("{take}", "--detector", "yolox_giant"), "a detector must be a file, a folder or one of"),
        (("{take}", "--detector", "{tmp}/boxes.onnx"), "a detector must be a file, a folder or one of"),
        (("{take}", "--threshold", "sure"), "a threshold must be a promise such as known-95"),
        (("{take}", "--export", "xls"), "--export must be one of coco, viame, cvat"),
        (("{take}", "--every", "0"), "every_s must lie between"),
    ],
)
def test_wrong_input_is_one_sentence_exit_code_2_and_nothing_written(
    arguments, message, take, bundle_dir, tmp_path
):
    words = [word.format(take=take, tmp=tmp_path) for word in arguments]
    outcome = mule("watch", *words, "--model", bundle_dir, "--out", tmp_path / "r")
    assert outcome.exit_code == 2
    assert message in outcome.stderr
    assert not (tmp_path / "r").exists()


def test_a_model_that_is_none_or_does_not_fit_together_is_exit_code_2(take, bundle_dir, tmp_path):
    assert mule("watch", take, "--model", tmp_path / "no", "--out", tmp_path / "r").exit_code == 2
    copy = shutil.copytree(bundle_dir, tmp_path / "copy")
    from dataclasses import replace

    content = read_memory(copy / "memory.safetensors")
    other = replace(content, memory=replace(content.memory, model="0" * 64), held_out=None)
    write_memory(copy / "memory.safetensors", other)
    outcome = mule("watch", take, "--model", copy, "--out", tmp_path / "r")
    assert outcome.exit_code == 2
    assert "must be a memory of this model" in outcome.stderr
    assert not (tmp_path / "r").exists()


def test_a_missing_extra_is_named(take, bundle_dir, tmp_path, monkeypatch):
    onnx = tmp_path / "yolox.onnx"
    onnx.write_bytes(b"not looked into")
    monkeypatch.setitem(sys.modules, "onnxruntime", None)
    outcome = mule("watch", take, "--model", bundle_dir, "--detector", onnx, "--out", tmp_path / "r")
    assert outcome.exit_code == 2
    assert "pip install 'mule-actions[onnx]'" in outcome.stderr
    assert not (tmp_path / "r").exists()


def test_help_is_quick_and_names_what_matters():
    outcome = mule("watch", "--help")
    assert outcome.exit_code == 0
    for word in ("--model", "--detector", "--threshold", "--live", "--resume", "--export"):
        assert word in outcome.stdout


SLOWLY = """
import sys, time
from mule.watching.engine import finding
scene = finding._scene
def slow(*parts):
    time.sleep(0.2)
    return scene(*parts)
finding._scene = slow
import typer
from mule.cli.watch import watch_videos
typer.run(watch_videos)
"""


@pytest.mark.slow
def test_a_kill_loses_at_most_one_moment_and_resume_writes_the_same_file(take, bundle_dir, tmp_path):
    arguments = ("watch", take, "--model", bundle_dir, "--every", "0.25", "--no-video")
    outcome = mule(*arguments, "--out", tmp_path / "whole")
    assert outcome.exit_code == 0, outcome.output
    command = [sys.executable, "-c", SLOWLY, *map(str, arguments[1:]), "--out", str(tmp_path / "r")]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    path = tmp_path / "r" / "moments.jsonl"
    while not path.exists() or path.read_bytes().count(b"\n") < 4:
        time.sleep(0.05)
        assert process.poll() is None
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    seen = list(MomentsFile(path))
    assert 2 <= len(seen) < 16
    outcome = mule(*arguments, "--out", tmp_path / "r", "--resume")
    assert outcome.exit_code == 0, outcome.output
    assert path.read_bytes() == (tmp_path / "whole" / "moments.jsonl").read_bytes()
