"""Extraction: the same features whether computed at once, in parts, after a kill, or read back from disk."""

import errno
import json
import os
import subprocess
import sys
from contextlib import contextmanager
from fractions import Fraction
from pathlib import Path

import killed_extraction
import pytest
import torch
from tiny_extraction import context_directly, every, render, render_images, tiny_backbone

from mule.core.errors import FeatureFileError, FileError, NotFinite, RangeError, VideoError
from mule.features.cache import Every
from mule.features.extraction import ExtractionProgress, Extractor
from mule.features.pooling import box_features
from mule.video.clips import ClipShape
from mule.video.transforms import PLUS_MINUS_ONE

HALF_SECOND = Every(Fraction(1, 2))
NUM_CLIPS = 12  # six seconds


@pytest.fixture(scope="session")
def tiny_video(tmp_path_factory):
    return render(tmp_path_factory.mktemp("tiny") / "tiny.mp4")


def extractor(folder, backbone=None, **settings):
    return Extractor(backbone or tiny_backbone(), folder, **settings)


def num_seen(backbone):
    """How many clips have gone through a tiny backbone."""
    return getattr(backbone.forward, "num_seen")  # noqa: B009 - a field that only this callable has


def names_in(folder):
    return sorted(path.name for path in folder.iterdir()) if folder.is_dir() else []


# ── what is computed ──


@pytest.mark.parametrize("key_times", [(), (Fraction(7),), (Fraction(100), Fraction(101))])
def test_no_clips_give_features_of_length_zero_and_of_the_usual_shape(tmp_path, tiny_video, key_times):
    extraction = extractor(tmp_path).extract(tiny_video, key_times)
    assert extraction.features.context.shape == (0, 5, 2, 3)
    assert extraction.report.unread_from_s == (key_times[0] if key_times else None)
    assert extractor(tmp_path).extract(tiny_video, key_times).was_cached
    assert len(names_in(tmp_path)) == 1


@pytest.mark.parametrize(("batch_clips", "part_clips"), [(1, 1), (1, 32), (3, 4), (5, 3), (12, 12), (50, 50)])
def test_features_are_those_computed_directly(tmp_path, tiny_video, batch_clips, part_clips):
    settings = {"batch_clips": batch_clips, "part_clips": part_clips}
    extraction = extractor(tmp_path, **settings).extract(tiny_video, HALF_SECOND)
    expected = context_directly(tiny_video, every("1/2", 6), tiny_backbone())
    assert torch.equal(extraction.features.context, expected)
    assert extraction.features.context.dtype == torch.float32
    assert extraction.features.key_time_s.tolist() == [i / 2 for i in range(NUM_CLIPS)]
    assert (extraction.progress.num_computed, extraction.progress.num_reused) == (NUM_CLIPS, 0)
    assert extraction.report.unread_from_s is None
    assert names_in(tmp_path) == [extraction.path.name]


@pytest.mark.parametrize(
    "changes",
    [
        {"short_side_px": None},
        {"short_side_px": 40},
        {"frame_rate": Fraction(5)},
        {"normalisation": PLUS_MINUS_ONE},
        {"scaler": "swscale"},
        {"clip": ClipShape(6, 1, 3, "stride")},
    ],
)
def test_every_setting_of_the_recipe_is_followed(tmp_path, tiny_video, changes):
    times = (Fraction(0), Fraction(1), Fraction(5))
    features = extractor(tmp_path, tiny_backbone(**changes)).extract(tiny_video, times).features
    torch.testing.assert_close(
        features.context, context_directly(tiny_video, times, tiny_backbone(**changes)), rtol=1e-6, atol=1e-5
    )
    plain = extractor(tmp_path).extract(tiny_video, times).features
    assert plain.context.shape != features.context.shape or not torch.equal(plain.context, features.context)


def test_half_precision_is_single_precision_rounded_once(tmp_path, tiny_video):
    single = extractor(tmp_path).extract(tiny_video, HALF_SECOND)
    half = extractor(tmp_path, tiny_backbone(half=True)).extract(tiny_video, HALF_SECOND)
    assert torch.equal(half.features.context, single.features.context.half())
    assert half.path.stat().st_size < 0.8 * single.path.stat().st_size


def test_frames_beyond_the_edges_are_counted_for_each_clip(tmp_path, tiny_video):
    features = extractor(tmp_path).extract(tiny_video, (Fraction(0), Fraction(3), Fraction(59, 10))).features
    assert features.num_clamped.tolist() == [2, 0, 1]  # −4 −2 0 2 frames from the key frame; the last is 59


def test_actors_are_pooled_from_what_was_kept(tmp_path, tiny_video):
    features = extractor(tmp_path).extract(tiny_video, (Fraction(1), Fraction(2))).features
    assert (features.source_size, features.input_size, features.stride) == ((32, 48), (16, 24), 8)
    ratio = features.input_size[0] / features.source_size[0]
    boxes = torch.tensor([[0.0, 0.0, 48.0, 32.0], [16.0, 0.0, 32.0, 16.0], [0.0, 0.0, 16.0, 16.0]])
    pooled = box_features(features.context, boxes * ratio, torch.tensor([0, 1, 1]), stride=features.stride)
    maps = context_directly(tiny_video, (Fraction(1), Fraction(2)), tiny_backbone())
    direct = box_features(maps, boxes * ratio, torch.tensor([0, 1, 1]), stride=8)
    assert torch.equal(pooled, direct)


def test_folders_of_images_have_features_too(tmp_path):
    folder = render_images(tmp_path / "frames")
    times = (Fraction(0), Fraction(1, 5))
    features = extractor(tmp_path / "out").extract(folder, times).features
    assert torch.equal(features.context, context_directly(folder, times, tiny_backbone()))


def test_a_video_shorter_than_it_says_has_features_up_to_its_end(tmp_path):
    whole = render(tmp_path / "whole.mkv", 100)
    cut = tmp_path / "cut.mkv"
    cut.write_bytes(whole.read_bytes()[: whole.stat().st_size * 2 // 3])
    seen = []
    extraction = extractor(tmp_path / "out", part_clips=4).extract(cut, HALF_SECOND, on_progress=seen.append)
    num_clips = len(extraction.features)
    assert 0 < num_clips < seen[0].num_expected
    times = every("1/2", 10)[:num_clips]
    assert torch.equal(extraction.features.context, context_directly(cut, times, tiny_backbone()))


# ── what is found again ──


def test_what_is_there_is_not_computed_again(tmp_path, tiny_video):
    first = extractor(tmp_path).extract(tiny_video, HALF_SECOND)
    backbone, seen = tiny_backbone(), []
    again = extractor(tmp_path, backbone).extract(tiny_video, HALF_SECOND, on_progress=seen.append)
    assert (first.was_cached, again.was_cached) == (False, True)
    assert num_seen(backbone) == 0
    assert seen == []
    assert again.progress == ExtractionProgress()
    assert again.path == first.path
    assert torch.equal(again.features.context, first.features.context)


def test_a_changed_byte_of_the_video_is_a_new_video(tmp_path, tiny_video):
    video = tmp_path / "video.mp4"
    content = bytearray(tiny_video.read_bytes())
    video.write_bytes(content)
    first = extractor(tmp_path / "out").extract(video, HALF_SECOND)
    content[-1] ^= 1  # in the index's last entry, which nobody reads
    video.write_bytes(content)
    second = extractor(tmp_path / "out").extract(video, HALF_SECOND)
    assert not second.was_cached
    assert second.path != first.path
    assert len(names_in(tmp_path / "out")) == 2


@pytest.mark.parametrize("damage", [lambda data: data[:-1], lambda data: data[:100], lambda _: b""])
def test_a_damaged_file_is_computed_again_and_that_is_said(tmp_path, tiny_video, damage):
    first = extractor(tmp_path).extract(tiny_video, HALF_SECOND)
    good = first.path.read_bytes()
    first.path.write_bytes(damage(good))
    again = extractor(tmp_path).extract(tiny_video, HALF_SECOND)
    assert not again.was_cached
    assert len(again.discarded) == 1
    assert str(first.path) in again.discarded[0]
    assert first.path.read_bytes() == good


def test_a_damaged_part_is_computed_again_and_the_sound_ones_are_kept(tmp_path, tiny_video):
    expected = extractor(tmp_path / "whole").extract(tiny_video, HALF_SECOND).features.context
    folder = tmp_path / "out"
    with no_room_for("*.safetensors"), pytest.raises(FileError):
        extractor(folder, part_clips=4).extract(tiny_video, HALF_SECOND)
    (parts,) = folder.glob("*.parts")
    assert names_in(parts) == ["00000000.part", "00000004.part", "00000008.part"]
    middle = parts / "00000004.part"
    middle.write_bytes(middle.read_bytes()[:-5])
    backbone = tiny_backbone()
    extraction = extractor(folder, backbone, part_clips=4).extract(tiny_video, HALF_SECOND)
    assert (extraction.progress.num_reused, extraction.progress.num_computed) == (8, 4)
    assert num_seen(backbone) == 4
    assert "00000004.part" in extraction.discarded[0]
    assert torch.equal(extraction.features.context, expected)
    assert names_in(folder) == [extraction.path.name]


def test_parts_of_another_length_are_of_no_use_but_do_no_harm(tmp_path, tiny_video):
    with no_room_for("*.safetensors"), pytest.raises(FileError):
        extractor(tmp_path, part_clips=2).extract(tiny_video, HALF_SECOND)
    extraction = extractor(tmp_path, part_clips=4).extract(tiny_video, HALF_SECOND)
    assert extraction.progress.num_reused == 0
    assert torch.equal(
        extraction.features.context, context_directly(tiny_video, every("1/2", 6), tiny_backbone())
    )
    assert names_in(tmp_path) == [extraction.path.name]


# ── what goes wrong ──


@contextmanager
def no_room_for(pattern):
    """A disk on which files of these names cannot be finished."""
    real = Path.replace

    def replace(self, target):
        if Path(target).match(pattern):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return real(self, target)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Path, "replace", replace)
        yield


@contextmanager
def files_of_at_most(num_bytes):
    """A system that refuses to let any file grow beyond this."""
    resource = pytest.importorskip("resource")
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (num_bytes, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


@pytest.mark.parametrize("room", ["no byte", "half a header", "half a part", "all parts but not the file"])
def test_a_full_disk_leaves_no_file_and_whole_parts_alone(tmp_path, tiny_video, room):
    whole = extractor(tmp_path / "whole", part_clips=4).extract(tiny_video, HALF_SECOND)
    size = whole.path.stat().st_size
    num_bytes = {"no byte": 0, "half a header": 200, "half a part": size // 3}.get(room, size - 1)
    folder = tmp_path / "out"
    with files_of_at_most(num_bytes), pytest.raises(FileError, match="finished parts are kept"):
        extractor(folder, part_clips=4).extract(tiny_video, HALF_SECOND)
    assert not list(folder.rglob("*.tmp"))
    assert not list(folder.glob("*.safetensors"))
    num_parts = len(list(folder.glob("*.parts/*.part")))
    assert num_parts == (3 if num_bytes == size - 1 else 0)
    finished = extractor(folder, part_clips=4).extract(tiny_video, HALF_SECOND)
    assert finished.progress.num_reused == 4 * num_parts
    assert finished.path.read_bytes() == whole.path.read_bytes()


def test_a_video_that_cannot_be_read_leaves_nothing_behind(tmp_path):
    for name, content in {"empty.mp4": b"", "text.mp4": b"no video at all\n" * 99}.items():
        (tmp_path / name).write_bytes(content)
        with pytest.raises(VideoError, match=name):
            extractor(tmp_path / "out").extract(tmp_path / name, HALF_SECOND)
    with pytest.raises(VideoError, match="absent"):
        extractor(tmp_path / "out").extract(tmp_path / "absent.mp4", HALF_SECOND)
    with pytest.raises(VideoError, match=r"camera\.example/1: .* Record it first"):
        extractor(tmp_path / "out").extract("rtsp://user:secret@camera.example/1", HALF_SECOND)
    assert not (tmp_path / "out").exists()


def test_a_video_that_changes_while_it_is_read_is_refused_and_nothing_of_it_is_kept(tmp_path, tiny_video):
    video = tmp_path / "video.mp4"
    video.write_bytes(tiny_video.read_bytes())

    def touch(progress):
        if progress.num_computed == 6:
            os.utime(video, (1, 1))

    with pytest.raises(VideoError, match="must not change while it is read"):
        extractor(tmp_path / "out", part_clips=4).extract(video, HALF_SECOND, on_progress=touch)
    assert [path.name for path in (tmp_path / "out").rglob("*.*part")] == ["00000000.part"]


def test_features_that_are_not_finite_are_refused_where_they_are(tmp_path, tiny_video):
    with pytest.raises(NotFinite, match=r"tiny\.mp4: .* at 0 s they are not\. Are the weights right\?"):
        extractor(tmp_path, tiny_backbone(gain=float("nan"))).extract(tiny_video, HALF_SECOND)
    large = tiny_backbone(gain=1e4, half=True)
    with pytest.raises(NotFinite, match="single precision"):
        extractor(tmp_path, large).extract(tiny_video, HALF_SECOND)
    assert not names_in(tmp_path)
    extractor(tmp_path, tiny_backbone(gain=1e4)).extract(tiny_video, HALF_SECOND)


@pytest.mark.parametrize("setting", ["batch_clips", "part_clips"])
def test_a_batch_and_a_part_have_at_least_one_clip(tmp_path, setting):
    with pytest.raises(RangeError, match="at least 1"):
        extractor(tmp_path, **{setting: 0})


def test_a_disk_that_forgets_at_once_is_given_up(tmp_path, tiny_video):
    real = Path.replace

    def forgetful(self, target):
        real(self, target)
        if Path(target).suffix == ".safetensors":
            Path(target).write_bytes(b"rubbish")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Path, "replace", forgetful)
        with pytest.raises(FeatureFileError, match="Is the disk damaged"):
            extractor(tmp_path).extract(tiny_video, HALF_SECOND)


# ── progress, kills and company ──


def test_progress_counts_each_batch_and_knows_what_to_expect(tmp_path, tiny_video):
    seen = []
    extractor(tmp_path, batch_clips=5, part_clips=8).extract(tiny_video, HALF_SECOND, on_progress=seen.append)
    assert [each.num_computed for each in seen] == [0, 5, 8, 12]
    assert {each.num_expected for each in seen} == {NUM_CLIPS}


def trials(kind, folder):
    script = Path(killed_extraction.__file__)
    done = subprocess.run(
        [sys.executable, script, kind, folder], capture_output=True, text=True, check=False, timeout=300
    )
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


@pytest.mark.slow
def test_a_kill_at_any_moment_loses_at_most_one_part(tmp_path):
    found = trials("kill", tmp_path)
    assert len(found) == 30
    for each in found:
        assert each["was_killed"]
        assert each["is_equal"], each
        assert each["num_discarded"] == 0, each  # nothing half-written bore a name that is looked for
        assert each["num_before"] - each["num_reused"] <= killed_extraction.PART_CLIPS, each
        assert each["num_reused"] + each["num_computed"] == NUM_CLIPS, each
        assert each["left"] == [], each
    assert {each["num_reused"] for each in found} == {0, 3, 6, 9, 12}


@pytest.mark.slow
@pytest.mark.distributed
def test_two_processes_on_one_video_both_get_its_features(tmp_path):
    for each in trials("race", tmp_path):
        assert each == {"statuses": [0, 0], "was_cached": True, "is_equal": True, "left": []}
