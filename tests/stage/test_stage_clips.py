"""Stage as a data set: the pixels that were rendered, the actors and objects of the middle frame."""

import pickle

import numpy as np
import pytest
import torch

from mule.core.errors import RangeError
from mule.data.batches.batches import ClipSampler
from mule.data.batches.loading import ClipLoader, ReadAhead
from mule.data.batches.samples import SMALL_TRAINING_VIEW
from mule.stage.benchmark import StageSet
from mule.stage.classes import ACTIONS, stage_split
from mule.stage.clips import StageClips, render_to_cache

TINY = StageSet(role="test", num_clips=6, size=(24, 32), num_frames=4)


@pytest.fixture(scope="module")
def rendered(tmp_path_factory):
    return render_to_cache(TINY, tmp_path_factory.mktemp("stage"), workers=1)


def test_no_clips_are_a_data_set_too(tmp_path):
    clips = StageClips(render_to_cache(StageSet(num_clips=0, num_frames=2), tmp_path, workers=1))
    assert len(clips) == 0
    assert clips.labelled_actors()[0].shape == (0, 14)
    assert clips.classes == stage_split("A").known


def test_a_clip_holds_what_was_rendered_and_what_is_true_of_its_middle_frame(rendered):
    clips = StageClips(rendered, classes=tuple(ACTIONS))
    for number in range(len(TINY)):
        sample, clip = clips[number], TINY.clip(number)
        assert np.array_equal(sample.frames.permute(0, 2, 3, 1).numpy(), clip.frames)
        seen = [i for i, share in enumerate(clip.visibility[2]) if share >= 0.1]
        boxes = clip.actor_boxes_xyxy_unit[2][seen]
        np.testing.assert_allclose(sample.actor_boxes_xyxy_unit.numpy(), boxes, atol=1e-6)
        assert sample.actor_ids == tuple(str(clip.track_ids[i]) for i in seen)
        done = [tuple(np.array(list(ACTIONS))[row]) for row in sample.labels.numpy()]
        assert done == [clip.labels(2)[i] for i in seen]
        there = clip.object_is_there[2]
        np.testing.assert_allclose(
            sample.object_boxes_xyxy_unit.numpy(), clip.object_boxes_xyxy_unit[2][there], atol=1e-6
        )
        assert (sample.object_scores == 1).all()
        assert rendered.table.actor_id[clips.rows_of(number)].tolist() == [clip.track_ids[i] for i in seen]


def test_labels_speak_of_the_classes_asked_for_in_their_order(rendered):
    everything = StageClips(rendered, classes=tuple(ACTIONS)).labelled_actors()[0]
    two = StageClips(rendered, classes=("jump", "walk")).labelled_actors()[0]
    order = [list(ACTIONS).index(name) for name in ("jump", "walk")]
    assert np.array_equal(two, everything[:, order])
    with pytest.raises(RangeError, match="got swim"):
        StageClips(rendered, classes=("walk", "swim"))


def test_a_data_set_travels_without_its_pixels(rendered):
    clips = StageClips(rendered)
    packed = pickle.dumps(clips)
    assert len(packed) < rendered.frames.nbytes
    assert torch.equal(pickle.loads(packed)[3].frames, clips[3].frames)


def test_frames_may_be_changed_without_harm_to_the_file(rendered):
    clips = StageClips(rendered)
    before = clips[0].frames.clone()
    clips[0].frames.zero_()
    assert torch.equal(clips[0].frames, before)


def test_a_position_outside_is_refused(rendered):
    with pytest.raises(IndexError, match="from 0 to 5; got 6"):
        StageClips(rendered)[6]


def test_stage_loads_in_batches(rendered):
    clips = StageClips(rendered)
    loader = ClipLoader(
        clips, ClipSampler(6, 4), view=SMALL_TRAINING_VIEW, read_ahead=ReadAhead(num_workers=1)
    )
    batches = list(loader)
    assert [tuple(batch.stack.shape) for batch in batches] == [(4, 3, 4, 24, 32), (2, 3, 4, 24, 32)]
    assert sum(batch.num_actors + batch.num_lost_actors for batch in batches) == len(
        clips.labelled_actors()[1]
    )
