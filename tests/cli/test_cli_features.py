"""`mule features extract`: what is printed, what is kept, and what happens when some of it fails."""

import re
import sys
from importlib.util import find_spec

import pytest
import torch
from safetensors.torch import load_file
from tiny_extraction import render, render_images, tiny_backbone, tiny_recipe
from typer.testing import CliRunner

from mule.cli.main import app
from mule.features import extraction as frozen
from mule.features.backbones.x3d import X3D
from mule.features.extraction import FrozenBackbone
from mule.features.weights.cards import WEIGHT_CARDS


@pytest.fixture
def requested(monkeypatch):
    """The tiny backbone in the place of any weights; what was requested of it."""
    settings = {}

    def build(path, card, *, short_side_px, frame_rate, half, device):
        settings.update(path=str(path), card=card, device=device)
        return tiny_backbone(short_side_px=short_side_px or 16, frame_rate=frame_rate, half=half)

    monkeypatch.setattr(frozen, "frozen_backbone", build)
    return settings


@pytest.fixture
def folder(tmp_path):
    videos = tmp_path / "videos"
    videos.mkdir()
    render(videos / "clip10.mp4", 20)
    render(videos / "clip9.mp4", 30, seed=1)
    (videos / "notes.txt").write_text("not a video")
    return videos


def extract(*arguments):
    words = [str(argument) for argument in arguments]
    return CliRunner().invoke(app, ["features", "extract", "--weights", "w.pt", *words])


@pytest.mark.usefixtures("requested")
def test_each_video_has_a_line_and_a_file_and_is_cached_the_second_time(tmp_path, folder):
    out = tmp_path / "out"
    first, again = extract(folder, "--out", out), extract(folder, "--out", out)
    assert (first.exit_code, again.exit_code) == (0, 0)
    lines = first.stdout.splitlines()
    pattern = r"{}: {} clips, \d+\.\d s, {}, (.*/out/{}-[0-9a-f]{{16}}\.safetensors)"
    for line, (name, num_clips) in zip(lines, [("clip9", 3), ("clip10", 2)], strict=True):
        assert re.fullmatch(pattern.format(f"{name}.mp4", num_clips, "computed", name), line)
    assert [line.split(", ")[2] for line in again.stdout.splitlines()] == ["cached", "cached"]
    assert len(list(out.iterdir())) == 2


@pytest.mark.usefixtures("requested")
def test_settings_reach_the_clips_and_the_files(tmp_path, folder):
    video, out = folder / "clip10.mp4", tmp_path / "out"
    settings = ["--every", "0.25", "--half", "--batch", "3", "--short-side", "32", "--rate", "30000/1001"]
    outcome = extract(video, "--out", out, *settings)
    assert "clip10.mp4: 8 clips" in outcome.stdout
    assert "computed" in extract(video, "--out", out, *settings[:-2]).stdout
    assert "cached" in extract(video, "--out", out, *settings).stdout
    assert len(list(out.iterdir())) == 2


@pytest.mark.usefixtures("requested")
def test_a_folder_of_frames_is_one_video(tmp_path):
    outcome = extract(render_images(tmp_path / "frames"), "--out", tmp_path / "out")
    assert outcome.stdout.startswith("frames: 1 clip, ")


@pytest.mark.usefixtures("requested")
def test_one_video_that_fails_does_not_stop_the_others(tmp_path, folder):
    (folder / "clip1.mp4").write_bytes(b"")
    outcome = extract(folder, tmp_path / "absent.mp4", "--out", tmp_path / "out")
    assert outcome.exit_code == 2
    assert len(outcome.stdout.splitlines()) == 2
    errors = outcome.stderr.splitlines()
    assert "clip1.mp4: a video must hold frames" in errors[0]
    assert "absent.mp4" in errors[1]
    assert errors[2].startswith("mule: 4 items: 2 done; 2 damaged (")
    assert len(list((tmp_path / "out").iterdir())) == 2


@pytest.mark.usefixtures("requested")
def test_a_damaged_file_is_replaced_and_the_line_says_so(tmp_path, folder):
    video, out = folder / "clip9.mp4", tmp_path / "out"
    extract(video, "--out", out)
    (path,) = out.iterdir()
    path.write_bytes(path.read_bytes()[:-1])
    lines = extract(video, "--out", out).stdout.splitlines()
    assert "computed" in lines[0]
    assert lines[1].startswith(f"  not used: {path}: damaged")


@pytest.mark.usefixtures("requested")
def test_damage_in_a_video_is_reported(tmp_path):
    video = render(tmp_path / "video.avi", 60)
    content = bytearray(video.read_bytes())
    middle = len(content) // 2
    content[middle : middle + 400] = bytes(400)
    video.write_bytes(content)
    outcome = extract(video, "--out", tmp_path / "out")
    assert outcome.exit_code == 0
    assert re.search(r"^  read: \d+ decoded; .*(damaged|concealed|missing)", outcome.stdout, re.MULTILINE)


@pytest.mark.usefixtures("requested")
def test_a_place_that_cannot_be_written_is_told_of_every_video(tmp_path, folder):
    (tmp_path / "out").write_text("a file")
    outcome = extract(folder, "--out", tmp_path / "out")
    assert outcome.exit_code == 2
    assert "the folder cannot be made" in outcome.stderr
    assert outcome.stderr.count("the folder cannot be made") == 2
    assert "2 items: 2 failed" in outcome.stderr


@pytest.mark.usefixtures("requested")
@pytest.mark.parametrize(
    "setting", [("--every", "0"), ("--every", "often"), ("--rate", "1/0"), ("--batch", "0")]
)
def test_settings_without_meaning_are_refused(tmp_path, folder, setting):
    outcome = extract(folder, "--out", tmp_path / "out", *setting)
    assert outcome.exit_code == 2
    assert setting[0] in outcome.stderr
    assert not (tmp_path / "out").exists()


def test_weights_are_a_file_or_a_card_that_was_pulled(tmp_path, folder, requested, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    run = ["features", "extract", str(folder / "clip9.mp4"), "--out", str(tmp_path / "out"), "--weights"]
    name = "pytorchvideo_x3d_s"
    outcome = CliRunner().invoke(app, [*run, name])
    assert outcome.exit_code == 2
    assert f"Run `mule weights pull {name}`" in outcome.stderr
    (tmp_path / "mule").mkdir()
    (tmp_path / "mule" / f"{name}.pyth").write_bytes(b"weights")
    assert CliRunner().invoke(app, [*run, name]).exit_code == 0
    assert (requested["path"], requested["card"]) == (
        str(tmp_path / "mule" / f"{name}.pyth"),
        WEIGHT_CARDS[name],
    )
    outcome = CliRunner().invoke(app, [*run, "w.pt", "--card", name, "--device", "meta"])
    assert outcome.exit_code == 0
    assert requested == {"path": "w.pt", "card": WEIGHT_CARDS[name], "device": "meta"}


def test_weights_that_are_not_there_are_named(tmp_path, folder):
    outcome = extract(folder, "--out", tmp_path / "out")
    assert outcome.exit_code == 2
    assert outcome.stderr == "mule: w.pt: must be a file of weights; there is no such file.\n"


def test_a_runtime_that_is_not_installed_is_named(tmp_path, folder, monkeypatch):
    backbone = FrozenBackbone(X3D((1.0, 1.0)).eval(), tiny_recipe())
    monkeypatch.setattr(frozen, "frozen_backbone", lambda *_, **__: backbone)
    monkeypatch.setitem(sys.modules, "openvino", None)
    outcome = extract(folder, "--out", tmp_path / "out", "--runtime", "openvino")
    assert outcome.exit_code == 2
    assert outcome.stderr.startswith(
        "mule: Compiled backbones need OpenVINO: pip install 'mule-actions[openvino]'"
    )
    assert not (tmp_path / "out").exists()
    assert extract(folder, "--out", tmp_path / "out", "--runtime", "abacus").exit_code == 2


@pytest.mark.slow
def test_real_weights_make_the_same_features_of_real_videos_in_either_runtime(tmp_path, shared_data):
    video = shared_data / "videos" / "jhmdb"
    weights = shared_data / "backbones" / "i3d_rgb_kinetics400_fp16.pt"
    (first, *_) = sorted(video.rglob("*.mp4")) + sorted(video.rglob("*.avi"))
    settings = ["--weights", str(weights), "--out", str(tmp_path), "--short-side", "64"]
    contexts = []
    for runtime in ("torch", "openvino"):
        if find_spec(runtime) is None:
            pytest.skip(f"needs {runtime}")
        outcome = CliRunner().invoke(
            app, ["features", "extract", str(first), *settings, "--runtime", runtime]
        )
        assert outcome.exit_code == 0, outcome.stderr
        assert "computed" in outcome.stdout
        contexts.append(load_file(outcome.stdout.strip().rpartition(", ")[2])["context"])
    by_torch, by_openvino = contexts
    assert by_torch.abs().max() > 0.1
    torch.testing.assert_close(by_openvino, by_torch, rtol=1e-4, atol=1e-4)
