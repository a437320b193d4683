"""SlowFast as its paper and its published files describe it."""

import pytest
import torch
from seeded_weights import seeded_clip, seeded_tensor

from mule.core.errors import RangeError, ShapeError
from mule.features.backbones.slowfast import (
    R50_8X8,
    R101_8X8,
    R101_50_50,
    R101_50_50_NONLOCAL,
    Lateral,
    NonLocal,
    SlowFast,
    Stem,
    TemporalBottleneck,
    Variant,
    slow_frame_positions,
)

DETECTION = {"res5_stride": 1, "res5_dilation": 2}


def on_meta(*arguments, **options):
    with torch.device("meta"):
        return SlowFast(*arguments, **options)


@pytest.mark.parametrize(
    ("variant", "options", "millions", "num_entries"),
    [
        (R50_8X8, {"num_classes": 80, **DETECTION}, 33.83, 662),
        (R50_8X8, {"num_classes": 400}, 34.57, 662),
        (R101_8X8, {"num_classes": 400}, 62.83, 1274),
        (R101_50_50, {"num_classes": 400}, 53.77, 1274),
        (R101_50_50_NONLOCAL, {"num_classes": 80, **DETECTION}, 59.34, 1313),
    ],
)
def test_sizes_are_the_published_ones(variant, options, millions, num_entries):
    model = on_meta(variant, **options)
    assert round(sum(p.numel() for p in model.parameters()) / 1e6, 2) == millions
    assert len(model.state_dict()) == num_entries


@pytest.mark.parametrize(("options", "stride"), [({}, 32), (DETECTION, 16)])
def test_maps_have_the_promised_channels_and_stride(options, stride):
    model = on_meta(R50_8X8, **options)
    features = model(torch.zeros(2, 3, 8, 96, 64, device="meta"))
    assert [tuple(each.shape) for each in features.maps] == [
        (2, 2048, 2, 96 // stride, 64 // stride),
        (2, 256, 8, 96 // stride, 64 // stride),
    ]
    assert (features.stride, features.channels) == (model.stride, model.channels) == (stride, 2304)


def test_no_clips_give_no_maps():
    features = on_meta()(torch.zeros(0, 3, 8, 64, 64, device="meta"))
    assert [len(each) for each in features.maps] == [0, 0]


def blocks_of(pathway, stage):
    return [block for block in pathway[stage].children() if isinstance(block, TemporalBottleneck)]


def test_only_six_blocks_of_res4_look_along_time_in_r101_50_50():
    model = on_meta(R101_50_50)
    for pathway in (model.slow, model.fast):
        assert [block.a.kernel_size[0] for block in blocks_of(pathway, "res4")] == [3] * 6 + [1] * 17
    assert {block.a.kernel_size[0] for block in blocks_of(on_meta(R101_8X8).slow, "res4")} == {3}


def test_slow_pathway_looks_along_time_from_res4_on_and_the_fast_one_everywhere():
    model = on_meta(R50_8X8)
    kernels = [
        [blocks_of(pathway, stage)[0].a.kernel_size[0] for stage in ("res2", "res3", "res4", "res5")]
        for pathway in (model.slow, model.fast)
    ]
    assert kernels == [[1, 1, 3, 3], [3, 3, 3, 3]]
    stems = [module for module in model.modules() if isinstance(module, Stem)]
    assert [stem.conv.kernel_size for stem in stems] == [(1, 7, 7), (5, 7, 7)]


def test_every_block_of_res5_is_dilated_for_detection():
    blocks = blocks_of(on_meta(R50_8X8, **DETECTION).slow, "res5")
    assert {(block.b.dilation, block.b.stride) for block in blocks} == {((1, 2, 2), (1, 1, 1))}


def test_nonlocal_blocks_follow_the_named_blocks_of_slow_res4():
    model = on_meta(R101_50_50_NONLOCAL)
    names = [name for name, _ in model.slow["res4"].named_children()]
    after = [names[names.index(name) - 1] for name in names if name.startswith("nonlocal")]
    assert after == ["6", "13", "20"]
    assert not any(isinstance(module, NonLocal) for module in model.fast.modules())


def test_slow_frames_span_the_clip_as_pyslowfast_packs_them():
    assert slow_frame_positions(32, R50_8X8).tolist() == [0, 4, 8, 13, 17, 22, 26, 31]


def test_slow_frames_are_every_alpha_th_as_the_paper_takes_them():
    assert slow_frame_positions(32, Variant(slow_spans_clip=False)).tolist() == list(range(0, 32, 4))


@pytest.mark.parametrize("num_frames", [0, 3, 30])
def test_frames_that_no_slow_pathway_divides_are_refused(num_frames):
    with pytest.raises(ShapeError, match=f"multiple of alpha = 4 frames; got {num_frames}"):
        slow_frame_positions(num_frames, R50_8X8)


def test_a_network_without_head_has_no_logits():
    model = on_meta()
    with pytest.raises(RangeError, match="num_classes"):
        model.logits(model(torch.zeros(2, 3, 4, 32, 32, device="meta")))


def seeded(module):
    tensors = {name: seeded_tensor(name, tensor.shape) for name, tensor in module.state_dict().items()}
    module.load_state_dict(tensors)
    return module.eval()


def test_lateral_without_norm_is_the_bare_convolution():
    lateral = seeded(Lateral(2, Variant(lateral_norm=False, lateral_kernel=5)))
    clip = seeded_clip((8, 3, 3))[:, :2]
    conv = torch.nn.functional.conv3d(clip, lateral.conv.weight, stride=(4, 1, 1), padding=(2, 0, 0))
    assert torch.equal(lateral(clip), conv)
    assert (conv < 0).any()


@torch.no_grad()
def test_nonlocal_block_equals_the_sum_over_all_places():
    block = seeded(NonLocal(4))
    x = seeded_clip((2, 4, 6)).repeat(1, 2, 1, 1, 1)[:, :4]
    pooled = torch.nn.functional.max_pool3d(x, 2)
    theta, phi, g = block.theta(x)[0], block.phi(pooled)[0], block.g(pooled)[0]
    found = torch.zeros_like(theta)
    places = [(t, i, j) for t in range(1) for i in range(2) for j in range(3)]
    for t in range(2):
        for i in range(4):
            for j in range(6):
                for place in places:
                    found[:, t, i, j] += (theta[:, t, i, j] @ phi[:, *place]) * g[:, *place] / len(places)
    torch.testing.assert_close(block(x), x + block.norm(block.out(found[None])))


@pytest.mark.slow
def test_gradients_reach_every_parameter_in_training():
    model = SlowFast(R50_8X8, num_classes=2).train()
    for module in model.modules():  # residual branches start at zero, which hides what lies before them
        if isinstance(module, torch.nn.BatchNorm3d):
            torch.nn.init.ones_(module.weight)
    model.logits(model(seeded_clip((4, 32, 32)).repeat(2, 1, 1, 1, 1))).sum().backward()
    silent = [
        name for name, p in model.named_parameters() if p.grad is None or not torch.isfinite(p.grad).all()
    ]
    assert silent == []
