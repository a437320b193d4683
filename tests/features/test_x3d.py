"""X3D as its paper and its published files describe it."""

import pytest
import torch
from seeded_weights import seeded_clip

from mule.features.backbones.x3d import FACTORS, X3D, rounded_width


def on_meta(*arguments, **options):
    with torch.device("meta"):
        return X3D(*arguments, **options)


@pytest.mark.parametrize(
    ("size", "millions"), [("XS", 3.79), ("S", 3.79), ("M", 3.79), ("L", 6.15), ("XL", 11.10)]
)
def test_sizes_are_the_published_ones(size, millions):
    model = on_meta(FACTORS[size], num_classes=400)
    assert round(sum(p.numel() for p in model.parameters()) / 1e6, 2) == millions


@pytest.mark.parametrize(("options", "stride"), [({}, 32), ({"res5_stride": 1, "res5_dilation": 2}, 16)])
def test_map_keeps_every_frame_and_has_the_promised_stride(options, stride):
    model = on_meta(FACTORS["XL"], **options)
    features = model(torch.zeros(2, 3, 5, 96, 64, device="meta"))
    assert tuple(features.maps[0].shape) == (2, 280, 5, 96 // stride, 64 // stride)
    assert (features.stride, features.channels) == (model.stride, model.channels) == (stride, 280)


def test_no_clips_give_no_maps():
    assert len(on_meta()(torch.zeros(0, 3, 4, 64, 64, device="meta")).maps[0]) == 0


@pytest.mark.parametrize("tenths", range(1, 2000, 7))
def test_rounded_width_is_a_multiple_of_eight_and_hardly_less(tenths):
    width = tenths / 10
    rounded = rounded_width(width)
    assert rounded % 8 == 0
    assert 0.9 * width <= rounded <= max(8, 1.1 * width, width + 8)


def test_gradients_reach_every_parameter_in_training():
    model = X3D(FACTORS["S"], num_classes=2).train()
    for module in model.modules():  # residual branches start at zero, which hides what lies before them
        if isinstance(module, torch.nn.BatchNorm3d):
            torch.nn.init.ones_(module.weight)
    model.logits(model(seeded_clip((2, 64, 64)).repeat(2, 1, 1, 1, 1))).sum().backward()
    silent = [
        name for name, p in model.named_parameters() if p.grad is None or not torch.isfinite(p.grad).all()
    ]
    assert silent == []
