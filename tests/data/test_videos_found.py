"""Names of videos in a folder: what each stands for, what is refused, and what opening the videos tells."""

import os
import threading
from fractions import Fraction

import pytest
from clock_videos import clock_frames, clock_video

from mule.core.errors import VideoError
from mule.data.table import videos
from mule.data.table.videos import find_videos, probe_videos


@pytest.fixture
def folder(tmp_path):
    """Empty files with names of videos: finding opens nothing."""
    root = tmp_path / "videos"
    for name in ("a.mp4", "B.MKV", "deep/er/c.webm", "two.avi", "two.mp4", "notes.txt", "v1.2.mp4", "plain"):
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).touch()
    for name in ("frames/000001.jpg", "no_frames/readme.txt", "both/1.png"):
        (root / name).parent.mkdir()
        (root / name).touch()
    (root / "both.mov").touch()
    return root


def test_no_names_find_nothing_and_a_folder_must_be_there(folder):
    found = find_videos([], folder)
    assert (found.paths, found.missing, found.refused) == ({}, (), {})
    with pytest.raises(VideoError, match="there is no such folder"):
        find_videos(["a"], folder / "nowhere")


@pytest.mark.parametrize(
    ("name", "path"),
    [
        ("a.mp4", "a.mp4"),
        ("a", "a.mp4"),
        ("B", "B.MKV"),
        ("deep/er/c", "deep/er/c.webm"),
        ("deep/er/c.webm", "deep/er/c.webm"),
        ("two.avi", "two.avi"),
        ("v1.2", "v1.2.mp4"),
        ("frames", "frames"),
        ("plain", "plain"),
        ("both.mov", "both.mov"),
        ("./a", "a.mp4"),
    ],
)
def test_a_name_is_a_path_with_or_without_its_ending_or_a_folder_of_frames(folder, name, path):
    found = find_videos([name], folder)
    assert found.paths == {name: folder / path}
    assert (found.missing, found.refused) == ((), {})


def test_what_is_not_there_is_missing_and_what_is_no_video_too(folder):
    names = ["A", "b", "notes", "no_frames", "deep", "deep/c", "nowhere/at/all", "a.mp4/b", "b.mkv"]
    found = find_videos(names, folder)
    assert found.missing == tuple(names)


@pytest.mark.parametrize(
    "name", ["../secret", "deep/../../secret", "/etc/passwd", "", ".", "C:\\x", "a\0b", "C:x"]
)
def test_names_that_lead_out_of_the_folder_are_refused(folder, name):
    (folder.parent / "secret.mp4").touch()
    found = find_videos([name, "a"], folder)
    assert list(found.paths) == ["a"]
    assert f"must be named by a path inside the folder of videos; got {name!r}" in found.refused[name]


def test_links_in_the_folder_are_followed_wherever_they_lead(folder):
    outside = folder.parent / "outside"
    outside.mkdir()
    (outside / "x.mp4").touch()
    (folder / "linked").symlink_to(outside)
    (folder / "direct.mp4").symlink_to(outside / "x.mp4")
    (folder / "inside.mp4").symlink_to(folder / "deep/er/c.webm")
    (folder / "broken.mp4").symlink_to(outside / "gone.mp4")
    found = find_videos(["linked/x", "direct", "inside", "broken"], folder)
    assert found.paths == {
        "linked/x": folder / "linked/x.mp4", "direct": folder / "direct.mp4", "inside": folder / "inside.mp4",
    }  # fmt: skip
    assert found.missing == ("broken",)
    assert not found.refused


def test_a_folder_that_is_itself_a_link_is_as_good_as_the_one_it_leads_to(folder):
    link = folder.parent / "link"
    link.symlink_to(folder)
    assert find_videos(["a"], link).paths == {"a": link / "a.mp4"}


@pytest.mark.parametrize(("name", "both"), [("two", ["two.avi", "two.mp4"]), ("both", ["both", "both.mov"])])
def test_two_videos_of_one_name_are_a_problem_that_names_both(folder, name, both):
    found = find_videos([name], folder)
    shown = " and ".join(str(folder / each) for each in both)
    assert found.refused == {
        name: f"a name must identify one video; {name!r} may be {shown}. Add the suffix."
    }


def test_two_names_of_one_video_are_a_problem_that_names_both(folder):
    found = find_videos(["a", "a.mp4", "a"], folder)
    assert list(found.paths) == ["a"]
    assert "'a' and 'a.mp4' both are" in found.refused["a.mp4"]


@pytest.mark.skipif(os.geteuid() == 0, reason="nothing is forbidden to root")
def test_a_folder_that_may_not_be_looked_into_is_said(folder):
    (folder / "deep").chmod(0)
    try:
        assert "deep: the folder must be readable" in find_videos(["deep/x"], folder).refused["deep/x"]
    finally:
        (folder / "deep").chmod(0o700)


def test_probing_nothing_tells_nothing():
    probed = probe_videos({})
    assert (probed.readable, probed.unreadable, probed.ends_s) == ({}, {}, {})


def test_probing_tells_length_rate_and_size_or_why_not(tmp_path):
    clock_video(tmp_path / "short.mp4", 10, rate=25, size=(48, 64))
    clock_video(tmp_path / "long.mkv", 30, rate=Fraction(30000, 1001), size=(32, 80))
    (tmp_path / "damaged.mp4").write_bytes(b"no video at all")
    clock_frames(tmp_path / "frames", 3)
    told = []
    found = find_videos(["short", "damaged", "long", "frames"], tmp_path)
    probed = probe_videos(
        found.paths, on_progress=lambda *counts: told.append(counts), image_rate=Fraction(10)
    )
    assert list(probed.readable) == ["short", "long", "frames"]
    short, long, frames = probed.readable.values()
    assert (short.name, short.path, short.frame_rate, short.rows, short.cols) == (
        "short",
        tmp_path / "short.mp4",
        25,
        48,
        64,
    )
    assert probed.ends_s == pytest.approx({"short": 0.4, "long": 1.001, "frames": 0.3}, abs=0.002)
    assert (float(long.frame_rate), long.cols, frames.frame_rate) == (pytest.approx(29.97, abs=0.01), 80, 10)
    assert "FFmpeg must be able to open it" in probed.unreadable["damaged"]
    assert not probed.unreadable["damaged"].startswith(str(tmp_path))
    assert told[-1] == (4, 4)
    assert told == sorted(told)


def test_a_video_that_never_answers_does_not_stop_the_others(monkeypatch, tmp_path):
    release = threading.Event()
    paths = {f"{i}": tmp_path / f"{i}.mp4" for i in range(12)}

    def facts(source):
        if int(source.path.stem) < 6:  # more than there are probers at the start
            release.wait(20)
        raise VideoError(f"{source}: not now.")

    monkeypatch.setattr(videos, "video_facts", facts)
    probed = probe_videos(paths, timeout_s=0.2)
    release.set()
    reasons = list(probed.unreadable.values())
    assert reasons == ["opening it takes more than 0.2 s"] * 6 + ["not now"] * 6


def test_whatever_a_decoder_raises_is_the_problem_of_one_video(monkeypatch, tmp_path):
    def facts(_source):
        raise ZeroDivisionError("a rate of zero")

    monkeypatch.setattr(videos, "video_facts", facts)
    probed = probe_videos({"a": tmp_path / "a.mp4"})
    assert probed.unreadable == {"a": "ZeroDivisionError: a rate of zero"}


def test_real_clips_are_found_and_readable(shared_data):
    folder = shared_data / "videos" / "jhmdb" / "videos"
    names = sorted(str(path.relative_to(folder).with_suffix("")) for path in folder.glob("clap/*.mp4"))[:12]
    probed = probe_videos(find_videos(names, folder).paths)
    assert list(probed.readable) == names
    assert all(video.length_s and 0.3 < video.length_s < 3 for video in probed.readable.values())
