"""The file of features and its key: nothing is read that was not written, nothing found that was not asked for."""

import dataclasses
import json
import os
from fractions import Fraction
from itertools import pairwise

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from safetensors import safe_open
from strategies import unchecked
from tiny_extraction import render, render_images, tiny_recipe

from mule.core.errors import FeatureFileError, FileError, RangeError, ShapeError, VideoError
from mule.features.cache import CacheEntry, Every, feature_key, times_from, video_sha256
from mule.features.feature_files import VideoFeatures, read_features, write_features
from mule.video.clips import ClipShape
from mule.video.sources import VideoFile, video_source
from mule.video.transforms import Normalisation


def some_features(num_clips=3, dtype=torch.float32, seed=0, channels=2):
    generator = torch.Generator().manual_seed(seed)
    return VideoFeatures(
        context=torch.randn(num_clips, channels, 2, 3, generator=generator).to(dtype),
        key_time_s=torch.arange(num_clips, dtype=torch.float64) / 3,
        num_clamped=torch.arange(num_clips),
        stride=16,
        input_size=(32, 48),
        source_size=(240, 360),
    )


def assert_equal(found, expected):
    assert found.context.dtype == expected.context.dtype
    assert torch.equal(found.context, expected.context)
    assert torch.equal(found.key_time_s, expected.key_time_s)
    assert torch.equal(found.num_clamped, expected.num_clamped)
    assert found.stride == expected.stride
    assert (found.input_size, found.source_size) == (expected.input_size, expected.source_size)


@pytest.fixture
def written(tmp_path):
    path = tmp_path / "video.safetensors"
    write_features(path, [some_features()], key="the key", scratch=tmp_path)
    return path


@pytest.fixture
def entry(tmp_path):
    return CacheEntry(tmp_path, VideoFile(tmp_path / "video.mp4"), "the key")


# ── the file ──


@pytest.mark.parametrize("num_clips", [0, 1, 5])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
def test_what_is_read_is_what_was_written(tmp_path, num_clips, dtype):
    features = some_features(num_clips, dtype)
    write_features(tmp_path / "f", [features], key="k", scratch=tmp_path)
    assert_equal(read_features(tmp_path / "f", key="k"), features)


@pytest.mark.parametrize("cuts", [(0, 7), (0, 0, 7), (0, 3, 7), (0, 1, 2, 6, 7)])
def test_pieces_one_after_the_other_are_one_file(tmp_path, cuts):
    whole = some_features(7)
    pieces = [
        dataclasses.replace(
            whole,
            context=whole.context[begin:end],
            key_time_s=whole.key_time_s[begin:end],
            num_clamped=whole.num_clamped[begin:end],
        )
        for begin, end in pairwise(cuts)
    ]
    write_features(tmp_path / "one", [whole], key="k", scratch=tmp_path)
    write_features(tmp_path / "many", pieces, key="k", scratch=tmp_path)
    assert (tmp_path / "one").read_bytes() == (tmp_path / "many").read_bytes()


def test_the_file_is_plain_safetensors_that_say_what_they_are(written):
    with safe_open(written, framework="pt") as tensors:
        metadata = tensors.metadata()
        assert set(tensors.keys()) == {"context", "key_time_s", "num_clamped"}
        assert torch.equal(tensors.get_slice("context")[1], some_features().context[1])
    assert (metadata["key"], metadata["version"], metadata["stride"]) == ("the key", "1", "16")
    assert json.loads(metadata["input_size"]) == [32, 48]
    assert json.loads(metadata["source_size"]) == [240, 360]
    assert len(metadata["digest"]) == 64


def test_a_slice_of_a_tensor_is_written_as_it_looks(tmp_path):
    wide = some_features(channels=6)
    features = dataclasses.replace(wide, context=wide.context[:, ::2].transpose(2, 3))
    write_features(tmp_path / "f", [features], key="k", scratch=tmp_path)
    assert_equal(read_features(tmp_path / "f", key="k"), features)


def test_a_change_of_any_byte_is_noticed(written):
    good = written.read_bytes()
    for place in range(len(good)):
        bad = bytearray(good)
        bad[place] ^= 1 << place % 8
        written.write_bytes(bad)
        with pytest.raises(FeatureFileError, match=r"video\.safetensors: (damaged|cut short)"):
            read_features(written, key="the key")
    written.write_bytes(good)
    read_features(written, key="the key")


def test_a_file_cut_short_or_too_long_is_noticed(written):
    good = written.read_bytes()
    for bad in (*(good[:length] for length in range(len(good))), good + b"\0"):
        written.write_bytes(bad)
        with pytest.raises(FeatureFileError):
            read_features(written, key="the key")


@given(st.binary(max_size=200))
def test_no_content_raises_anything_else(tmp_path_factory, content):
    path = tmp_path_factory.getbasetemp() / "any.safetensors"
    path.write_bytes(content)
    with pytest.raises(FeatureFileError, match=r"any\.safetensors"):
        read_features(path, key="the key")


@pytest.mark.parametrize(
    "header",
    [b"", b"{}", b"[]", b"null", b'{"__metadata__": {"digest": 3}}', b"[" * 100_000, b'{"__metadata__": {}}'],
)
def test_a_strange_header_raises_nothing_else(tmp_path, header):
    path = tmp_path / "f"
    path.write_bytes(len(header).to_bytes(8, "little") + header)
    with pytest.raises(FeatureFileError):
        read_features(path, key="the key")


def test_a_folder_in_the_place_of_the_file_is_not_a_file(tmp_path):
    (tmp_path / "f").mkdir()
    with pytest.raises(FeatureFileError):
        read_features(tmp_path / "f", key="k")
    with pytest.raises(FileError, match="cannot be written: "):
        write_features(tmp_path / "f", [some_features()], key="k", scratch=tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["f"]


def test_pieces_of_different_kinds_do_not_make_a_file(tmp_path):
    pieces = [some_features(), some_features(channels=3)]
    with pytest.raises(ShapeError, match="one shape"):
        write_features(tmp_path / "f", pieces, key="k", scratch=tmp_path)
    assert not list(tmp_path.iterdir())


def test_every_clip_has_a_time():
    record = object.__new__(VideoFeatures)
    fields = vars(some_features()) | {"key_time_s": torch.zeros(2, dtype=torch.float64)}
    for name, value in fields.items():
        object.__setattr__(record, name, value)
    with pytest.raises(ShapeError, match="one entry per clip; got 3, 2 and 3"):
        unchecked(VideoFeatures.__post_init__)(record)


# ── the key ──

CHANGED_CLIP = {"num_frames": 6, "stride_frames": 3, "num_slow_frames": 4, "slow_rule": "stride"}
CHANGED_NORMALISATION = {
    "mean": (0.45, 0.45, 0.4500001),
    "std": (0.225, 0.22, 0.225),
    "scale": 1.0,
    "channel_order": "bgr",
}
CHANGED = {
    "backbone": "i3d",
    "options": {"width": 6},
    "weights_sha256": "ac" + "ab" * 31,
    "frame_rate": Fraction(30),
    "short_side_px": None,
    "scaler": "swscale",
    "half": True,
    "runtime": "openvino",
}


def test_no_setting_is_forgotten_below():
    assert {field.name for field in dataclasses.fields(ClipShape)} == CHANGED_CLIP.keys()
    assert {field.name for field in dataclasses.fields(Normalisation)} == CHANGED_NORMALISATION.keys()
    names = {field.name for field in dataclasses.fields(tiny_recipe())}
    assert names == CHANGED.keys() | {"clip", "normalisation"}


def test_a_change_of_any_one_setting_changes_the_key():
    recipe = tiny_recipe()
    recipes = [
        recipe,
        *(dataclasses.replace(recipe, **{name: value}) for name, value in CHANGED.items()),
        *(
            dataclasses.replace(recipe, clip=dataclasses.replace(recipe.clip, **{name: value}))
            for name, value in CHANGED_CLIP.items()
        ),
        *(
            dataclasses.replace(
                recipe, normalisation=dataclasses.replace(recipe.normalisation, **{name: value})
            )
            for name, value in CHANGED_NORMALISATION.items()
        ),
        dataclasses.replace(recipe, options={"width": 5, "clip": recipe.clip}),
        dataclasses.replace(recipe, options={}),
    ]
    keys = {feature_key(each, "cd" * 32, Every(Fraction(1))) for each in recipes}
    assert len(keys) == len(recipes)


def test_a_change_of_the_key_times_changes_the_key():
    times = [
        (),
        (Fraction(0),),
        (Fraction(0), Fraction(1)),
        (Fraction(1), Fraction(0)),
        (Fraction(0), Fraction(1, 3)),
        Every(Fraction(1)),
        Every(Fraction(1, 3)),
    ]
    assert len({feature_key(tiny_recipe(), "cd" * 32, each) for each in times}) == len(times)


def test_equal_things_have_one_key():
    one = tiny_recipe(options={"a": 1, "b": {"x": 2, "y": (3, 4)}}, frame_rate=Fraction(60, 2))
    other = tiny_recipe(options={"b": {"y": [3, 4], "x": 2}, "a": 1}, frame_rate=Fraction(30))
    key = feature_key(one, "cd" * 32, (Fraction(1, 2),))
    assert key == feature_key(other, "cd" * 32, (Fraction(2, 4),))
    assert json.loads(key)["recipe"]["frame_rate"] == "30"


def test_a_recipe_holds_nothing_that_cannot_be_written_out():
    with pytest.raises(RangeError, match="plain values"):
        feature_key(tiny_recipe(options={"f": object()}), "cd" * 32, ())
    with pytest.raises(RangeError, match="64 hexadecimal"):
        tiny_recipe(weights_sha256="")


def test_every_period_goes_on_for_ever_and_given_times_do_not():
    endless = times_from(Every(Fraction(1, 3)), 2)
    assert [next(endless) for _ in range(3)] == [Fraction(2, 3), 1, Fraction(4, 3)]
    assert list(times_from((Fraction(5), Fraction(6)), 1)) == [6]
    with pytest.raises(RangeError, match="above zero"):
        Every(Fraction(0))


# ── the video ──


def test_a_change_of_any_byte_of_a_video_changes_its_digest(tmp_path):
    path = tmp_path / "a.mp4"
    digests = set()
    for content in (b"", b"\0", b"\0\0", b"\1\0", b"\0\1"):
        path.write_bytes(content)
        digests.add(video_sha256(VideoFile(path)))
    assert len(digests) == 5


def test_the_digest_of_a_video_is_of_its_bytes_alone(tmp_path):
    one, other = render(tmp_path / "one.mp4", 5), tmp_path / "other.mkv"
    other.write_bytes(one.read_bytes())
    os.utime(other, (1, 1))
    assert video_sha256(VideoFile(one)) == video_sha256(VideoFile(other))


def test_the_digest_of_images_is_of_their_names_bytes_and_times(tmp_path):
    folder = render_images(tmp_path / "frames", 4)
    digests = {video_sha256(video_source(folder)), video_sha256(video_source(folder, image_rate=25))}
    (folder / "frame003.ppm").rename(folder / "frame004.ppm")
    digests.add(video_sha256(video_source(folder)))
    content = bytearray((folder / "frame001.ppm").read_bytes())
    content[-1] ^= 1
    (folder / "frame001.ppm").write_bytes(content)
    digests.add(video_sha256(video_source(folder)))
    (folder / "frame001.ppm").unlink()
    digests.add(video_sha256(video_source(folder)))
    assert len(digests) == 5


def test_a_camera_has_no_digest_and_neither_has_a_file_that_went_away(tmp_path):
    with pytest.raises(VideoError, match=r"/dev/video0: .* Record it first"):
        video_sha256(video_source("/dev/video0"))
    with pytest.raises(VideoError, match=r"gone\.mp4: must be readable; No such file"):
        video_sha256(VideoFile(tmp_path / "gone.mp4"))


# ── the entry ──


def test_nothing_is_found_in_an_empty_folder_or_in_none(tmp_path, entry):
    assert entry.find() is entry.find_part(0) is None
    assert entry.part_numbers() == []
    absent = CacheEntry(tmp_path / "absent", VideoFile(tmp_path / "video.mp4"), "the key")
    assert absent.find() is None
    assert absent.part_numbers() == []
    assert entry.discarded == absent.discarded == []


def test_what_is_kept_is_found_and_parts_go_when_they_are_swept(tmp_path, entry):
    entry.write_part(0, some_features(2, seed=1))
    entry.write_part(32, some_features(3, seed=2))
    assert entry.part_numbers() == [0, 32]
    pieces = [entry.find_part(0), entry.find_part(32)]
    assert entry.find() is None
    entry.finish(pieces)
    entry.sweep()
    found = entry.find()
    assert torch.equal(found.context, torch.cat([some_features(2, seed=1).context, pieces[1].context]))
    assert [path.name for path in tmp_path.iterdir()] == [entry.path.name]
    assert entry.discarded == []


def test_a_file_under_the_right_name_with_another_key_is_not_used(tmp_path, entry):
    write_features(entry.path, [some_features()], key="another key", scratch=tmp_path)
    assert entry.find() is None
    assert "made from another video" in entry.discarded[0]


def test_a_damaged_file_is_not_used_and_its_name_is_kept(entry):
    entry.write_part(0, some_features())
    (part,) = entry.parts_folder.iterdir()
    part.write_bytes(part.read_bytes()[:-1])
    entry.path.write_bytes(b"text")
    assert entry.find() is entry.find_part(0) is None
    assert [str(path) in reason for path, reason in zip((entry.path, part), entry.discarded, strict=True)]
    assert len(entry.discarded) == 2


@pytest.mark.parametrize(
    ("name", "stem"),
    [
        ("video.mp4", "video"),
        ("a b/c:d*?.mp4", "c_d__"),
        ("..mp4", "video"),
        ("гимнастика 1.mov", "гимнастика_1"),
        ("x" * 200 + ".mp4", "x" * 48),
    ],
)
def test_names_are_safe_on_any_disk(tmp_path, name, stem):
    path = CacheEntry(tmp_path, VideoFile(tmp_path / name), "the key").path
    assert path.parent == tmp_path
    assert path.name.rpartition("-")[0] == stem
    assert len(path.name.encode()) < 230


def test_only_what_no_longer_grows_is_abandoned(entry):
    entry.write_part(0, some_features())
    old, new = entry.parts_folder / "a.tmp", entry.parts_folder / "b.tmp"
    for path in (old, new):
        path.write_bytes(b"half")
    os.utime(old, (1, 1))
    entry.sweep_abandoned()
    assert sorted(path.name for path in entry.parts_folder.iterdir()) == ["00000000.part", "b.tmp"]


def test_a_folder_that_cannot_be_made_is_named(tmp_path):
    (tmp_path / "file").write_text("")
    entry = CacheEntry(tmp_path / "file", VideoFile(tmp_path / "video.mp4"), "the key")
    with pytest.raises(FileError, match=r"file/video-.*the folder cannot be made"):
        entry.write_part(0, some_features())
