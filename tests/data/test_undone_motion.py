"""Clips without their motion: the same frames, held or out of order, and nobody does anything; chance is the seed's."""

import pytest
import torch

from mule.core.config import experiment_from
from mule.core.errors import MuleError, RangeError
from mule.data.batches.other_clips import UndoneMotion
from mule.data.batches.samples import ClipName, ClipSample, sample_at
from mule.training.maps import build_kept_data
from mule.video.transforms import SLOWFAST

NUM_FRAMES = 8


class Clips:
    """Clips of which every frame is of a grey of its own."""

    classes = ("a", "b")

    def __len__(self):
        return 5

    def __getitem__(self, position):
        return ClipSample(
            name=self.name_of(position),
            frames=torch.arange(NUM_FRAMES, dtype=torch.uint8)[:, None, None, None].expand(-1, 3, 4, 6),
            actor_boxes_xyxy_unit=torch.tensor([[0.1, 0.2, 0.3, 0.6]]),
            labels=torch.ones(1, 2, dtype=torch.bool),
            actor_ids=("1",),
            object_boxes_xyxy_unit=torch.zeros(0, 4),
            object_class=torch.zeros(0, dtype=torch.int64),
            object_scores=torch.zeros(0),
            source_size=(4, 6),
        )

    def name_of(self, position):
        return ClipName(f"v{position}", 0.0)


def order(sample):
    return sample.frames[:, 0, 0, 0].tolist()


def draws(share, num=400, seed=0):
    generator = torch.Generator().manual_seed(seed)
    return [sample_at(UndoneMotion(Clips(), share), 0, generator) for _ in range(num)]


def test_no_share_leaves_every_clip_as_it_is():
    assert all(order(each) == list(range(NUM_FRAMES)) and each.labels.all() for each in draws(0.0, num=20))


def test_without_its_motion_nobody_does_anything_and_the_rest_stays():
    plain = Clips()[0]
    for each in draws(1.0, num=20):
        assert not each.labels.any()
        assert each.labels.shape == plain.labels.shape
        assert torch.equal(each.actor_boxes_xyxy_unit, plain.actor_boxes_xyxy_unit)
        assert each.frames.shape == plain.frames.shape
        assert set(order(each)) <= set(order(plain))


def test_half_stand_still_and_half_show_every_frame_out_of_order():
    kinds = [len(set(order(each))) for each in draws(1.0)]
    assert set(kinds) == {1, NUM_FRAMES}
    assert 150 < kinds.count(1) < 250


def test_as_many_draws_as_asked_for_lose_their_motion():
    undone = sum(not each.labels.any() for each in draws(0.25))
    assert 70 < undone < 130


def test_clips_by_position_keep_their_motion_and_their_names():
    whole = UndoneMotion(Clips(), 1.0)
    assert order(whole[3]) == list(range(NUM_FRAMES))
    assert (len(whole), whole.classes, whole.name_of(3)) == (5, ("a", "b"), ClipName("v3", 0.0))


def test_the_same_seed_gives_the_same_draws():
    assert [order(each) for each in draws(0.5, num=30)] == [order(each) for each in draws(0.5, num=30)]
    assert [order(each) for each in draws(0.5, num=30)] != [
        order(each) for each in draws(0.5, num=30, seed=1)
    ]


@pytest.mark.parametrize("share", [-0.1, 1.1])
def test_a_share_lies_between_none_and_all(share):
    with pytest.raises(RangeError, match="must lie in"):
        UndoneMotion(Clips(), share)


def test_kept_maps_have_no_motion_to_undo(tmp_path):
    settings = {
        "system": "mule", "data": {"kind": "stage"}, "backbone": {"frozen": True, "weights": str(tmp_path)},
        "view": {"undone_motion": 0.2}, "optimizer": {"lr": 1e-3}, "training": {"epochs": 1},
    }  # fmt: skip
    experiment = experiment_from(settings, source="frozen.toml")
    with pytest.raises(MuleError, match=r"view\.undone_motion must be 0"):
        build_kept_data(experiment, torch.nn.Identity(), normalisation=SLOWFAST, noted=print)
