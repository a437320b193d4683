"""I3D: TensorFlow's padding, and the real Kinetics-400 weights on real videos."""

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given
from hypothesis import strategies as st

from mule.core.errors import RangeError
from mule.features.backbones.i3d import I3D, same_max_pool, same_padding
from mule.features.weights.keymaps import I3D_FROM_JAX


@given(size=st.integers(1, 40), kernel=st.integers(1, 8), stride=st.integers(1, 4))
def test_same_padding_gives_one_output_per_stride_and_the_odd_zero_last(size, kernel, stride):
    before, after = same_padding([size], [kernel], [stride])
    assert 0 <= after - before <= 1
    if kernel >= stride:  # else whole pixels are skipped and nothing needs to be added
        assert (size + before + after - kernel) // stride + 1 == -(-size // stride)


@pytest.mark.parametrize(("size", "padding"), [(224, [2, 3]), (225, [3, 3])])
def test_padding_of_the_first_layer_depends_on_parity(size, padding):
    assert same_padding([size], [7], [2]) == padding


def test_pooling_with_zeros_is_pooling_without_them_for_maps_at_least_zero():
    x = torch.rand(1, 2, 5, 6, 7, generator=torch.Generator().manual_seed(0))
    padded = F.pad(x, same_padding(x.shape[2:], (3, 3, 3), (2, 2, 2)), value=-torch.inf)
    assert torch.equal(same_max_pool(x, (3, 3, 3), (2, 2, 2)), F.max_pool3d(padded, 3, 2))


@pytest.mark.parametrize(
    ("endpoint", "shape", "stride"),
    [("mixed_5c", (2, 1024, 2, 3, 2), 32), ("mixed_4f", (2, 832, 4, 6, 4), 16)],
)
def test_endpoints_have_the_promised_channels_and_stride(endpoint, shape, stride):
    with torch.device("meta"):
        model = I3D(endpoint)
    features = model(torch.zeros(2, 3, 16, 96, 64, device="meta"))
    assert tuple(features.maps[0].shape) == shape
    assert (features.stride, features.channels) == (model.stride, model.channels) == (stride, shape[1])
    assert len(model(torch.zeros(0, 3, 16, 96, 64, device="meta")).maps[0]) == 0


def test_there_is_no_classifier_at_an_earlier_endpoint():
    with pytest.raises(RangeError, match="mixed_5c"):
        I3D("mixed_4f", num_classes=3)


def clip_from(path, num_frames=32, size=224):
    """Frames evenly over the video, short side 256, centre crop, values in [−1, 1]."""
    av = pytest.importorskip("av", reason="needs PyAV to read videos")
    with av.open(path) as container:
        frames = [torch.from_numpy(frame.to_ndarray(format="rgb24")) for frame in container.decode(video=0)]
    picked = torch.linspace(0, len(frames) - 1, num_frames).long()
    video = torch.stack([frames[index] for index in picked]).permute(0, 3, 1, 2) / 127.5 - 1
    scale = 256 / min(video.shape[2:])
    rows, cols = (round(side * scale) for side in video.shape[2:])
    video = F.interpolate(video, (rows, cols), mode="bilinear", antialias=True)
    top, left = (rows - size) // 2, (cols - size) // 2
    return video[:, :, top : top + size, left : left + size].transpose(0, 1)[None]


@pytest.fixture(scope="module")
def kinetics_i3d(shared_data):
    weights = torch.load(shared_data / "backbones" / "i3d_rgb_kinetics400_fp16.pt", weights_only=True)
    with torch.device("meta"):
        model = I3D(num_classes=400)
    ours = {str(I3D_FROM_JAX(name)): value for name, value in weights.items()}
    model.load_state_dict(ours, assign=True)
    labels = (shared_data / "backbones" / "kinetics400_label_map.txt").read_text().splitlines()
    model = torch.nn.utils.convert_conv3d_weight_memory_format(model.float(), torch.channels_last_3d)
    return model.eval(), labels


@pytest.mark.slow
@pytest.mark.parametrize(
    ("video", "action", "at_least"),
    [
        ("i3d_v_CricketShot_g04_c01_rgb.gif", "playing cricket", 0.97),
        ("mmaction2_demo.mp4", "arm wrestling", 0.99),
        ("v_SoccerJuggling_g23_c01.avi", "juggling soccer ball", 0.97),
        ("stgcn_clean_and_jerk.mp4", "clean and jerk", 0.97),
        ("stgcn_ta_chi.mp4", "tai chi", 0.93),
        ("torchvision_basketball.mp4", "dunking basketball", 0.8),
    ],
)
@torch.inference_mode()
def test_real_weights_recognise_real_actions(kinetics_i3d, shared_data, video, action, at_least):
    model, labels = kinetics_i3d
    probability, best = (
        model.logits(model(clip_from(shared_data / "videos" / "samples" / video))).softmax(1).max(1)
    )
    assert labels[best] == action
    assert probability.item() >= at_least
