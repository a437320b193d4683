"""RoIAlign against an obvious loop and against torchvision; features of actors, objects and context."""

import math
import warnings

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from oracles import oracle_module

from mule.core.errors import NotFinite, RangeError
from mule.features.pooling import FeatureMaps, RoiSampling, box_features, context_map, roi_align

STRIDE = 16
SAMPLINGS = [
    RoiSampling(bins=bins, samples=samples, aligned=aligned)
    for bins in (1, 3, 7)
    for samples in (0, 2)
    for aligned in (False, True)
]
# inside, over each edge, far outside, flat, of one pixel, larger than the picture, corners swapped
BOXES = torch.tensor(
    [
        [20.0, 18.5, 90.25, 70.0],
        [-40.0, -10.0, 30.0, 50.0],
        [60.0, 40.0, 200.0, 150.0],
        [500.0, 500.0, 600.0, 700.0],
        [10.0, 10.0, 10.0, 60.0],
        [33.0, 33.0, 34.0, 34.0],
        [-100.0, -100.0, 300.0, 300.0],
        [50.0, 60.0, 20.0, 10.0],
    ],
    dtype=torch.float64,
)


def maps(clips=2, channels=3, rows=5, cols=7, seed=0):
    return torch.randn(
        clips, channels, rows, cols, dtype=torch.float64, generator=torch.Generator().manual_seed(seed)
    )


def bilinear(picture, y, x):
    """One sample of one channel: nothing beyond one cell outside, else the border's value."""
    rows, cols = picture.shape
    if y < -1 or y > rows or x < -1 or x > cols:
        return 0.0
    y, x = min(max(y, 0.0), rows - 1.0), min(max(x, 0.0), cols - 1.0)
    top, left = int(y), int(x)
    bottom, right = min(top + 1, rows - 1), min(left + 1, cols - 1)
    down, across = y - top, x - left
    upper = picture[top, left] * (1 - across) + picture[top, right] * across
    lower = picture[bottom, left] * (1 - across) + picture[bottom, right] * across
    return float(upper * (1 - down) + lower * down)


def looped_roi_align(context, boxes, clip_index, sampling):
    """One box, one bin, one sample after the other."""
    out = torch.zeros(len(boxes), context.shape[1], sampling.bins, sampling.bins, dtype=context.dtype)
    for box, ((x1, y1, x2, y2), clip) in enumerate(zip(boxes.tolist(), clip_index.tolist(), strict=True)):
        shift = 0.5 if sampling.aligned else 0.0
        x1, y1, x2, y2 = (corner / STRIDE - shift for corner in (x1, y1, x2, y2))
        width, height = x2 - x1, y2 - y1
        if not sampling.aligned:
            width, height = max(width, 1.0), max(height, 1.0)
        bin_w, bin_h = width / sampling.bins, height / sampling.bins
        across, down = sampling.samples or math.ceil(bin_w), sampling.samples or math.ceil(bin_h)
        for channel in range(context.shape[1]):
            for i in range(sampling.bins):
                for j in range(sampling.bins):
                    total = 0.0
                    for v in range(down):
                        for u in range(across):
                            y = y1 + i * bin_h + (v + 0.5) * bin_h / down
                            x = x1 + j * bin_w + (u + 0.5) * bin_w / across
                            total += bilinear(context[clip, channel], y, x)
                    out[box, channel, i, j] = total / max(across * down, 1)
    return out


@pytest.mark.parametrize("sampling", SAMPLINGS, ids=str)
def test_no_boxes_give_no_rows(sampling):
    pooled = roi_align(
        maps(), torch.zeros(0, 4), torch.zeros(0, dtype=torch.long), stride=STRIDE, sampling=sampling
    )
    assert pooled.shape == (0, 3, sampling.bins, sampling.bins)
    features = box_features(maps(), torch.zeros(0, 4), torch.zeros(0, dtype=torch.long), stride=STRIDE)
    assert features.shape == (0, 3)


def test_no_clips_are_no_clips():
    features = FeatureMaps(maps=(torch.zeros(0, 4, 2, 3, 3), torch.zeros(0, 1, 8, 3, 3)), stride=STRIDE)
    context = context_map(features)
    assert context.shape == (0, 5, 3, 3)
    assert box_features(
        context, torch.zeros(0, 4), torch.zeros(0, dtype=torch.long), stride=STRIDE
    ).shape == (0, 5)


@pytest.mark.parametrize("sampling", SAMPLINGS, ids=str)
def test_equals_the_loop_over_boxes_bins_and_samples(sampling):
    clip_index = torch.arange(len(BOXES)) % 2
    pooled = roi_align(maps(), BOXES, clip_index, stride=STRIDE, sampling=sampling)
    torch.testing.assert_close(pooled, looped_roi_align(maps(), BOXES, clip_index, sampling))


corners = st.floats(-200, 300, allow_nan=False, width=32)


@given(box=st.tuples(corners, corners, corners, corners), sampling=st.sampled_from(SAMPLINGS))
def test_equals_the_loop_wherever_the_box_lies(box, sampling):
    boxes, whose = torch.tensor([box], dtype=torch.float64), torch.zeros(1, dtype=torch.long)
    one = maps(clips=1, channels=1)
    pooled = roi_align(one, boxes, whose, stride=STRIDE, sampling=sampling)
    torch.testing.assert_close(pooled, looped_roi_align(one, boxes, whose, sampling))


@pytest.mark.slow
@pytest.mark.parametrize("sampling", SAMPLINGS, ids=str)
def test_equals_torchvision(sampling):
    """Its Python version, which lacks the border rule of its kernels: so only boxes no farther out than a cell."""
    pure_python = oracle_module("torchvision.ops.roi_align")._roi_align
    boxes = torch.tensor([[20, 18.5, 90.25, 70], [-7, -5, 30, 50], [60, 40, 112, 80], [33, 33, 34, 34.0]])
    clip_index = torch.tensor([0, 1, 1, 0])
    context, rois = maps().float(), torch.cat([clip_index[:, None].float(), boxes], dim=1)
    with torch.compiler.set_stance("force_eager"), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # it wants to be compiled
        expected = pure_python(
            context, rois, 1 / STRIDE, sampling.bins, sampling.bins, sampling.samples, sampling.aligned
        )
    pooled = roi_align(context, boxes, clip_index, stride=STRIDE, sampling=sampling)
    torch.testing.assert_close(pooled, expected, rtol=0, atol=2e-6)


@pytest.mark.parametrize("sampling", SAMPLINGS, ids=str)
def test_gradients_are_those_of_finite_differences(sampling):
    context = maps(clips=1, channels=1, rows=3, cols=4).requires_grad_()
    boxes = BOXES[:3] / 2
    whose = torch.zeros(3, dtype=torch.long)
    assert torch.autograd.gradcheck(
        lambda x: roi_align(x, boxes, whose, stride=STRIDE, sampling=sampling), (context,), fast_mode=True
    )


@pytest.mark.parametrize("sampling", SAMPLINGS, ids=str)
def test_a_flat_map_gives_its_level_inside(sampling):
    level = torch.full((1, 2, 6, 6), 3.5)
    boxes = torch.tensor([[8.0, 8.0, 80.0, 72.0]])
    pooled = roi_align(level, boxes, torch.zeros(1, dtype=torch.long), stride=STRIDE, sampling=sampling)
    torch.testing.assert_close(pooled, torch.full_like(pooled, 3.5))


def test_a_box_sees_only_its_own_clip():
    context = maps()
    boxes, whose = BOXES[:1].repeat(2, 1), torch.tensor([0, 1])
    both = box_features(context, boxes, whose, stride=STRIDE)
    changed = context.clone()
    changed[1] += 1
    assert torch.equal(box_features(changed, boxes, whose, stride=STRIDE)[0], both[0])
    assert not torch.equal(box_features(changed, boxes, whose, stride=STRIDE)[1], both[1])


def test_order_of_boxes_does_not_change_their_features():
    whose = torch.arange(len(BOXES)) % 2
    order = torch.randperm(len(BOXES), generator=torch.Generator().manual_seed(3))
    straight = box_features(maps(), BOXES, whose, stride=STRIDE)
    torch.testing.assert_close(
        box_features(maps(), BOXES[order], whose[order], stride=STRIDE), straight[order]
    )


def test_pathways_lie_side_by_side_each_averaged_over_its_own_frames():
    generator = torch.Generator().manual_seed(1)
    slow, fast = (torch.randn(2, *shape, generator=generator) for shape in ((4, 2, 3, 5), (2, 8, 3, 5)))
    context = context_map(FeatureMaps(maps=(slow, fast), stride=STRIDE))
    torch.testing.assert_close(context[:, :4], sum(slow[:, :, t] for t in range(2)) / 2)
    torch.testing.assert_close(context[:, 4:], sum(fast[:, :, t] for t in range(8)) / 8)


def test_half_precision_maps_keep_exact_positions():
    context, whose = maps(rows=40, cols=60).float(), torch.zeros(1, dtype=torch.long)
    box = torch.tensor(
        [[801.3, 490.1, 930.7, 610.9]]
    )  # in float16 these corners would round by a quarter pixel
    exact = box_features(context, box, whose, stride=STRIDE)
    half = box_features(context.half(), box, whose, stride=STRIDE)
    torch.testing.assert_close(half.float(), exact, rtol=0, atol=5e-3)


def test_fixed_sampling_exports_for_any_number_of_boxes():
    class Pool(torch.nn.Module):
        def forward(self, context, boxes, whose):
            return box_features(context, boxes, whose, stride=STRIDE, sampling=RoiSampling(samples=2))

    whose = torch.arange(len(BOXES)) % 2
    inputs = (maps().float(), BOXES.float(), whose)
    num_boxes = torch.export.Dim("boxes", min=1)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of torch about itself
        program = torch.export.export(
            Pool(), inputs, dynamic_shapes=(None, {0: num_boxes}, {0: num_boxes})
        ).module()
    for count in (1, 3, len(BOXES)):
        fewer = (inputs[0], inputs[1][:count], inputs[2][:count])
        torch.testing.assert_close(program(*fewer), Pool()(*fewer))


def test_boxes_that_are_not_numbers_are_refused():
    boxes = torch.tensor([[0.0, 0.0, 1.0, 1.0], [0.0, math.nan, 1.0, 1.0]])
    with pytest.raises(NotFinite, match="box 1 is"):
        box_features(maps(), boxes, torch.zeros(2, dtype=torch.long), stride=STRIDE)


@pytest.mark.parametrize("clip", [-1, 2])
def test_a_clip_that_is_not_there_is_refused(clip):
    with pytest.raises(RangeError, match="one of 2 clips"):
        box_features(maps(), BOXES[:1], torch.tensor([clip]), stride=STRIDE)
