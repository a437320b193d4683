"""Rendered clips on disk: the same bytes by any number of workers, found again, and finished after a stop."""

import json

import numpy as np
import pytest

from mule.core.errors import FileError, RangeError, VideoError
from mule.stage import clips as cache
from mule.stage.benchmark import StageSet
from mule.stage.classes import ACTIONS
from mule.stage.clips import OBJECT_CLASSES, render_to_cache

TINY = StageSet(role="test", num_clips=3, size=(24, 32), num_frames=2)


def test_an_empty_set_is_kept_like_any_other(tmp_path):
    found = render_to_cache(StageSet(num_clips=0, num_frames=2), tmp_path, workers=1)
    assert found.frames.shape == (0, 2, 96, 128, 3)
    assert found.table.labels.shape == (0, 21)


def test_what_is_kept_is_what_is_rendered(tmp_path):
    found = render_to_cache(TINY, tmp_path, workers=1)
    table = found.table
    assert found.frames.dtype == np.uint8
    assert isinstance(found.frames, np.memmap)
    for number in range(len(TINY)):
        clip = TINY.clip(number)
        np.testing.assert_array_equal(found.frames[number], clip.frames)
        rows = table.actor_clip == number
        np.testing.assert_array_equal(table.actor_id[rows], clip.track_ids)
        expected = clip.actor_boxes_xyxy_unit.transpose(1, 0, 2).astype(np.float32)
        np.testing.assert_array_equal(table.actor_boxes_xyxy_unit[rows], expected)
        named = [
            tuple(name for name, is_done in zip(ACTIONS, row, strict=True) if is_done)
            for row in table.labels[rows]
        ]
        assert named == [tuple(actions) for actions in clip.labels(1)]
        kinds = [OBJECT_CLASSES[kind] for kind in table.object_class[table.object_clip == number]]
        assert kinds == list(clip.object_classes)


def test_one_worker_and_two_write_the_same_bytes(tmp_path, monkeypatch):
    monkeypatch.setattr(cache, "_BLOCK_CLIPS", 2)
    seen = []
    for workers in (1, 2):
        found = render_to_cache(
            TINY, tmp_path / str(workers), workers=workers, on_progress=lambda done, _: seen.append(done)
        )
        assert seen[-1] == len(TINY)
        place = tmp_path / str(workers) / TINY.name
        assert sorted(path.name for path in place.iterdir()) == ["frames.npy", "parameters.json", "table.npz"]
        assert found.frames.shape[0] == len(TINY)
    first, second = (np.load(tmp_path / n / TINY.name / "frames.npy") for n in ("1", "2"))
    np.testing.assert_array_equal(first, second)
    tables = [np.load(tmp_path / n / TINY.name / "table.npz") for n in ("1", "2")]
    for name in tables[0].files:
        np.testing.assert_array_equal(tables[0][name], tables[1][name])


def test_rendering_that_was_stopped_goes_on_with_what_is_missing(tmp_path, monkeypatch):
    monkeypatch.setattr(cache, "_BLOCK_CLIPS", 2)

    def stop(done, _):
        if done >= 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        render_to_cache(TINY, tmp_path, workers=1, on_progress=stop)
    assert not (tmp_path / TINY.name).exists()
    rendered = []
    original = StageSet.clip
    monkeypatch.setattr(StageSet, "clip", lambda self, index: rendered.append(index) or original(self, index))
    progress = []
    found = render_to_cache(TINY, tmp_path, workers=1, on_progress=lambda done, _: progress.append(done))
    assert rendered == [2]
    assert progress[0] == 2
    np.testing.assert_array_equal(found.frames[0], original(TINY, 0).frames)
    assert [path.name for path in tmp_path.iterdir()] == [TINY.name]


def test_a_second_call_renders_nothing_and_other_parameters_have_another_place(tmp_path, monkeypatch):
    render_to_cache(TINY, tmp_path, workers=1)
    others = [StageSet(role="test", num_clips=3, size=(24, 32), num_frames=2, seed=1), StageSet()]
    assert len({TINY.name, *[other.name for other in others]}) == 3
    monkeypatch.setattr(StageSet, "clip", None)
    render_to_cache(TINY, tmp_path, workers=1)


def test_clips_that_are_not_those_of_the_name_are_refused(tmp_path):
    render_to_cache(TINY, tmp_path, workers=1)
    path = tmp_path / TINY.name / "parameters.json"
    path.write_text(json.dumps({**TINY.parameters, "seed": 7}))
    with pytest.raises(VideoError, match="must hold the clips of its name"):
        render_to_cache(TINY, tmp_path, workers=1)


def test_a_folder_that_cannot_be_written_is_named(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(FileError, match=r"file.*cannot be written or read: not a directory"):
        render_to_cache(TINY, tmp_path / "file", workers=1)


def test_there_must_be_a_worker(tmp_path):
    with pytest.raises(RangeError, match="workers must be at least 1; got 0"):
        render_to_cache(TINY, tmp_path, workers=0)
