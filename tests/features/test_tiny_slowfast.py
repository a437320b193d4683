import pytest
import torch
import torch.nn.functional as F

from mule.core.errors import ShapeError
from mule.features.backbones.tiny import PatchStem, TimeBlock, TimeConv, TinySlowFast, brightness_around


def some_clips(num_clips=2, frames=8, rows=16, cols=24, seed=0):
    return torch.randn(num_clips, 3, frames, rows, cols, generator=torch.Generator().manual_seed(seed))


def test_maps_lie_at_an_eighth_of_the_input_with_a_quarter_of_the_frames_in_the_slow_pathway():
    features = TinySlowFast()(some_clips())
    assert [tuple(each.shape) for each in features.maps] == [(2, 64, 2, 2, 3), (2, 32, 8, 2, 3)]
    assert features.stride == 8


def test_what_changes_is_every_frame_minus_the_mean_frame():
    torch.manual_seed(0)
    stem, clips = PatchStem(4, 6, sees_change=True).eval(), some_clips()
    everything = PatchStem(4, 6, sees_change=False).eval()
    everything.load_state_dict(stem.state_dict())
    expected = everything(clips - clips.mean(dim=2, keepdim=True))
    torch.testing.assert_close(stem(clips), expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("num_frames", [1, 2, 5])
def test_a_convolution_along_time_is_a_convolution_over_three_frames(num_frames):
    torch.manual_seed(0)
    layer = TimeConv(4, 6).eval()
    x = torch.randn(2 * num_frames, 4, 3, 3)
    weight = layer.conv.weight.unflatten(0, (3, 6))[
        ..., 0, 0
    ]  # what a frame says of the next, itself, the last
    stacked = x.unflatten(0, (2, num_frames)).transpose(1, 2)
    expected = F.conv3d(stacked, weight.permute(1, 2, 0)[..., None, None], padding=(1, 0, 0))
    ours = layer(x, num_frames)
    torch.testing.assert_close(ours, layer.norm(expected.transpose(1, 2).flatten(0, 1)), rtol=1e-4, atol=1e-5)


def test_a_still_scene_is_nothing_to_the_fast_pathway():
    torch.manual_seed(0)
    network = TinySlowFast().eval()
    frame = some_clips(frames=1)
    other = some_clips(frames=1, seed=1)
    still, another = (network(each.expand(-1, -1, 8, -1, -1)) for each in (frame, other))
    torch.testing.assert_close(still.maps[1], another.maps[1], rtol=1e-4, atol=1e-5)
    assert not torch.allclose(still.maps[0], another.maps[0], atol=1e-3)


def test_where_motion_is_seen_a_scene_is_nothing_to_both_pathways_and_what_moves_before_it_is_not():
    torch.manual_seed(0)
    network = TinySlowFast(sees_motion=True).eval()
    moving = some_clips()
    here, elsewhere = (moving + some_clips(frames=1, seed=seed) for seed in (1, 2))
    for one, other in zip(network(here).maps, network(elsewhere).maps, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-5)
    still = network(moving[:, :, :1].expand(-1, -1, 8, -1, -1))
    for one, other in zip(still.maps, network(moving).maps, strict=True):
        assert not torch.allclose(one, other, atol=1e-3)


def test_brightness_around_a_frame_is_that_of_its_neighbours_in_order():
    clips = some_clips(num_clips=1, frames=4)
    grey = [clips[0, :, t].mean(dim=0) for t in range(4)]
    seen = brightness_around(clips)[0]
    for t, around in enumerate([(0, 0, 1), (0, 1, 2), (1, 2, 3), (2, 3, 3)]):
        torch.testing.assert_close(seen[:, t], torch.stack([grey[near] for near in around]))


def test_a_clip_does_not_depend_on_the_others():
    torch.manual_seed(0)
    network = TinySlowFast().eval()
    clips = some_clips()
    both, alone = network(clips), network(clips[1:])
    for ours, expected in zip(both.maps, alone.maps, strict=True):
        torch.testing.assert_close(ours[1:], expected, rtol=1e-4, atol=1e-5)


def test_a_still_block_sees_one_frame_only():
    torch.manual_seed(0)
    block = TimeBlock(4, 6, sees_time=False).eval()
    x = torch.randn(5, 4, 3, 3)
    torch.testing.assert_close(block(x, 5)[2:3], block(x[2:3], 1))


def test_the_order_of_frames_matters():
    torch.manual_seed(0)
    network = TinySlowFast().eval()
    clips = some_clips()
    forwards, backwards = (network(each).maps[1].mean(dim=2) for each in (clips, clips.flip(2)))
    assert not torch.allclose(forwards, backwards, atol=1e-4)


@pytest.mark.parametrize("size", [{"frames": 6}, {"rows": 12}, {"cols": 20}])
def test_sizes_that_do_not_divide_are_refused(size):
    with pytest.raises(ShapeError, match="multiple of 4 frames"):
        TinySlowFast()(some_clips(**size))
