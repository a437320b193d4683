"""Clips before other backgrounds: actors stay, what stood still elsewhere appears around them, chance is the seed's."""

import pytest
import torch

from mule.core.config import experiment_from
from mule.core.errors import MuleError, RangeError, VideoError
from mule.data.batches.other_clips import OtherBackground, near_boxes, standing_still
from mule.data.batches.samples import ClipName, ClipSample, WholeView
from mule.training.maps import build_kept_data
from mule.video.transforms import SLOWFAST


def sample(value):
    return ClipSample(
        name=ClipName(f"v{value}", 0.0),
        frames=torch.full((4, 3, 20, 30), value, dtype=torch.uint8),
        actor_boxes_xyxy_unit=torch.tensor([[0.1, 0.2, 0.3, 0.6]]),
        labels=torch.ones(1, 2, dtype=torch.bool),
        actor_ids=("1",),
        object_boxes_xyxy_unit=torch.tensor([[0.8, 0.8, 0.9, 0.9]]),
        object_class=torch.zeros(1, dtype=torch.int64),
        object_scores=torch.ones(1),
        source_size=(20, 30),
    )


class Clips:
    """Two clips of one colour each."""

    classes = ("a", "b")

    def __len__(self):
        return 2

    def __getitem__(self, position):
        return sample((50, 200)[position])

    def name_of(self, position):
        return self[position].name


def seen(share, seed, samples=None):
    view = OtherBackground(WholeView(), samples or Clips(), share)
    return view(sample(10), torch.Generator().manual_seed(seed))


def test_no_share_leaves_every_clip_as_it_is():
    assert (seen(0.0, 0).frames == 10).all()


def test_actors_and_objects_stay_and_the_rest_is_of_another_clip():
    found = seen(1.0, 0).frames
    plain = WholeView()(sample(10), torch.Generator())
    inside = near_boxes(
        torch.cat([plain.actor_boxes_xyxy_px, plain.object_boxes_xyxy_px]), 20, 30, growth=0.0
    )
    assert (found[:, :, inside] == 10).all()
    values = set(found.unique().tolist())
    assert values in ({10, 50}, {10, 200})
    assert (found[:, :, 10:, 12:22] != 10).all()  # far from both


def test_the_same_seed_gives_the_same_view_and_others_differ():
    assert torch.equal(seen(0.5, 3).frames, seen(0.5, 3).frames)
    means = {seen(0.5, seed).frames.float().mean().item() for seed in range(20)}
    assert len(means) > 3


def test_a_background_that_cannot_be_read_is_not_taken():
    class Unreadable(Clips):
        def __getitem__(self, position):
            raise VideoError("broken.mp4: cannot be read")

    assert (seen(1.0, 0, Unreadable()).frames == 10).all()


def test_what_moves_is_no_background():
    frames = torch.full((9, 3, 4, 8), 100, dtype=torch.uint8)
    for at in range(8):
        frames[at, :, :, at] = 0
    assert (standing_still(frames) == 100).all()


@pytest.mark.parametrize("share", [-0.1, 1.1])
def test_a_share_lies_between_none_and_all(share):
    with pytest.raises(RangeError, match="must lie in"):
        OtherBackground(WholeView(), Clips(), share)


def test_boxes_grow_by_a_share_of_their_own_size():
    box = torch.tensor([[10.0, 10.0, 14.0, 18.0]])
    assert near_boxes(box, 30, 30, growth=0.0).sum() == 4 * 8
    assert near_boxes(box, 30, 30, growth=0.25).sum() == 6 * 12
    assert not near_boxes(torch.zeros(0, 4), 30, 30, growth=0.25).any()


def test_kept_maps_have_no_background_to_change(tmp_path):
    settings = {
        "system": "mule", "data": {"kind": "stage"}, "backbone": {"frozen": True, "weights": str(tmp_path)},
        "view": {"other_background": 0.5}, "optimizer": {"lr": 1e-3}, "training": {"epochs": 1},
    }  # fmt: skip
    experiment = experiment_from(settings, source="frozen.toml")
    with pytest.raises(MuleError, match="kept maps"):
        build_kept_data(experiment, torch.nn.Identity(), normalisation=SLOWFAST, noted=print)
