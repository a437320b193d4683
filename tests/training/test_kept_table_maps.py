"""Maps of the videos of a table: computed once, and not held by who only wants them kept."""

import gc
import shutil

import pytest
import torch
from made_films import FOUR, settings_on, two_in_each_film, write_films
from tiny_extraction import tiny_backbone

from mule.core.config import ConfigError, experiment_from
from mule.core.errors import WeightsError
from mule.core.progress import hearing
from mule.data.table.reading import read_actor_table
from mule.features.extraction import Extractor
from mule.features.feature_files import VideoFeatures
from mule.training import maps as build_maps


@pytest.fixture
def frozen(tmp_path, monkeypatch):
    """An experiment on four films whose backbone is one convolution, whatever its file holds."""
    monkeypatch.setattr(build_maps, "frozen_backbone", lambda *_, **__: tiny_backbone())
    write_films(tmp_path, two_in_each_film())
    (tmp_path / "weights.pt").write_bytes(b"weights")
    return experiment_from(
        {
            "system": "mule",
            "data": settings_on(tmp_path),
            "backbone": {
                "name": "i3d_rgb_kinetics400",
                "weights": str(tmp_path / "weights.pt"),
                "frozen": True,
            },
            "optimizer": {"lr": 1e-3},
            "training": {"epochs": 1},
        },
        source="frozen.toml",
    )


def alive():
    return [each for each in gc.get_objects() if type(each) is VideoFeatures]


def test_maps_are_computed_once_and_the_maps_of_one_video_at_most_are_held(frozen):
    before, progress = len(alive()), []

    def on_progress(num_done, num_videos):
        progress.append((num_done, num_videos))
        assert len(alive()) <= before + 1

    assert build_maps.keep_all_features(frozen, on_progress=on_progress) == (4, 4)
    assert progress == [(0, 4), (1, 4), (2, 4), (3, 4), (4, 4)]
    assert build_maps.keep_all_features(frozen, on_progress=lambda *_: None) == (4, 0)


def test_the_longest_step_tells_how_far_it_is_clip_by_clip(frozen):
    heard: list[tuple[str, int, int, str]] = []
    with hearing(lambda *step: heard.append(step)):
        build_maps.keep_all_features(frozen, on_progress=lambda *_: None)
    assert {step for step, *_ in heard} == {build_maps.MAPS_STEP}
    done = [num_done for _, num_done, *_ in heard]
    assert done == sorted(done)
    assert set(range(9)) <= set(done)  # two clips of four videos
    assert {num_all for _, _, num_all, _ in heard} == {8}


def test_what_was_there_and_what_was_computed_is_said(frozen):
    noted: list[str] = []
    table = read_actor_table(frozen.data.root / "actors.csv")
    videos = {film: frozen.data.root / "videos" / f"{film}.mp4" for film in FOUR}
    place = frozen.data.root / "features"
    for num_computed in (4, 0, 1):
        if num_computed == 1:
            next(place.glob("film2*")).unlink()
        build_maps._read_before.cache_clear()  # pyright: ignore[reportPrivateUsage] - as in a new process
        build_maps.kept_features(frozen, frozen.data, videos, table=table, noted=noted.append)
        assert noted[-1].endswith(f": {4 - num_computed} read from {place}, {num_computed} computed now")
    build_maps.kept_features(frozen, frozen.data, videos, table=table, noted=noted.append)
    assert len(noted) == 3  # this process still has them


def test_weights_are_read_when_a_map_is_missing_and_not_before(frozen, monkeypatch):
    build_maps.keep_all_features(frozen, on_progress=lambda *_: None)
    monkeypatch.setattr(build_maps, "frozen_backbone", lambda *_, **__: pytest.fail("read"))
    assert build_maps.keep_all_features(frozen, on_progress=lambda *_: None) == (4, 0)
    next((frozen.data.root / "features").glob("film2*")).unlink()
    with pytest.raises(pytest.fail.Exception, match="read"):
        build_maps.keep_all_features(frozen, on_progress=lambda *_: None)


def test_other_weights_have_other_maps(frozen):
    build_maps.keep_all_features(frozen, on_progress=lambda *_: None)
    frozen.backbone.weights.write_bytes(b"others")
    assert build_maps.keep_all_features(frozen, on_progress=lambda *_: None) == (4, 4)


def test_weights_that_are_not_there_are_named(frozen):
    frozen.backbone.weights.unlink()
    with pytest.raises(WeightsError, match=r"weights\.pt: .*must be"):
        build_maps.keep_all_features(frozen, on_progress=lambda *_: None)


def test_maps_that_were_kept_are_those_that_are_asked_for(frozen):
    build_maps.keep_all_features(frozen, on_progress=lambda *_: None)
    table = read_actor_table(frozen.data.root / "actors.csv")
    videos = {film: frozen.data.root / "videos" / f"{film}.mp4" for film in FOUR}
    features = build_maps.kept_features(frozen, frozen.data, videos, table=table)
    assert [each.key_time_s.tolist() for each in features.values()] == [[0.5, 1.0]] * len(FOUR)
    assert not torch.equal(features["film0"].context, features["film1"].context)


def test_maps_that_were_read_are_read_again_when_the_video_or_the_weights_have_changed(frozen, monkeypatch):
    read: list[str] = []
    extract = Extractor.extract

    def noticed(self, path, key_times, **options):
        read.append(path.stem)
        return extract(self, path, key_times, **options)

    monkeypatch.setattr(Extractor, "extract", noticed)
    table = read_actor_table(frozen.data.root / "actors.csv")
    videos = {film: frozen.data.root / "videos" / f"{film}.mp4" for film in FOUR}

    def asked(*films):
        read.clear()
        return build_maps.kept_features(
            frozen, frozen.data, {film: videos[film] for film in films}, table=table
        )

    first = asked("film0", "film1")
    assert read == ["film0", "film1"]
    again = asked("film2", "film1")
    assert read == ["film2"]
    assert again["film1"] is first["film1"]
    shutil.copyfile(videos["film3"], videos["film1"])
    assert not torch.equal(asked("film0", "film1")["film1"].context, first["film1"].context)
    assert read == ["film1"]
    frozen.backbone.weights.write_bytes(b"others")
    asked("film0")
    assert read == ["film0"]


def test_maps_of_a_backbone_that_is_trained_are_not_kept(frozen):
    trained = frozen.model_copy(update={"backbone": frozen.backbone.model_copy(update={"frozen": False})})
    with pytest.raises(
        ConfigError, match=r"and a frozen backbone with weights; this experiment has .* frozen = False"
    ):
        build_maps.keep_all_features(trained, on_progress=lambda *_: None)
