"""ir-CSN as its paper and its published files describe it."""

import pytest
import torch
from seeded_weights import seeded_clip

from mule.core.errors import RangeError
from mule.features.backbones.csn import CSN, DepthwiseBottleneck


def on_meta(*arguments, **options):
    with torch.device("meta"):
        return CSN(*arguments, **options)


@pytest.mark.parametrize(("depth", "millions"), [(101, 22.21), (152, 29.70)])
def test_sizes_are_the_published_ones(depth, millions):
    model = on_meta(depth, num_classes=400)
    assert round(sum(p.numel() for p in model.parameters()) / 1e6, 2) == millions


def test_a_depth_that_is_not_known_is_refused():
    with pytest.raises(RangeError, match=r"depth must be one of 26, 101, 152; got 50\."):
        on_meta(50)


@pytest.mark.parametrize(("options", "stride"), [({}, 32), ({"res5_stride": 1}, 16)])
def test_map_has_an_eighth_of_the_frames_and_the_promised_stride(options, stride):
    model = on_meta(152, **options)
    features = model(torch.zeros(2, 3, 16, 96, 64, device="meta"))
    assert tuple(features.maps[0].shape) == (2, 2048, 2, 96 // stride, 64 // stride)
    assert (features.stride, features.channels) == (model.stride, model.channels) == (stride, 2048)


def test_no_clips_give_no_maps():
    assert len(on_meta()(torch.zeros(0, 3, 8, 64, 64, device="meta")).maps[0]) == 0


def test_only_depthwise_convolutions_look_beyond_their_place():
    for module in on_meta(101).modules():
        if isinstance(module, DepthwiseBottleneck):
            assert module.b.groups == module.b.in_channels == module.b.out_channels
            assert module.a.kernel_size == module.c.kernel_size == (1, 1, 1)


def test_gradients_reach_every_parameter_in_training():
    model = CSN(101, num_classes=2).train()
    for module in model.modules():  # residual branches start at zero, which hides what lies before them
        if isinstance(module, torch.nn.BatchNorm3d):
            torch.nn.init.ones_(module.weight)
    model.logits(model(seeded_clip((8, 32, 32)).repeat(2, 1, 1, 1, 1))).sum().backward()
    silent = [
        name for name, p in model.named_parameters() if p.grad is None or not torch.isfinite(p.grad).all()
    ]
    assert silent == []
