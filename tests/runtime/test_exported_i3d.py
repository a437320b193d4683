"""Graphs of I3D at sizes that its strides do not divide: the same maps and evidence as on torch."""

from importlib.util import find_spec
from pathlib import Path

import av
import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import nn

from mule.features.backbones.i3d import I3D
from mule.features.weights.cards import find_card
from mule.features.weights.loading import load_backbone
from mule.model import MuleModel, SceneBoxes
from mule.runtime.exported import running_model
from mule.systems.catalogue import find_system
from mule.systems.design import small_sizes

TARGETS = [
    pytest.param(
        name, marks=pytest.mark.skipif(find_spec(package) is None, reason=f"needs mule-actions[{name}]")
    )
    for name, package in (("onnx", "onnxruntime"), ("openvino", "openvino"))
]
ODD_SIZE = (9, 50, 84)
"""Frames, rows and columns: at every stride of two, one of them leaves a remainder."""
REAL_SIZES = [("v_SoccerJuggling_g23_c01.avi", 61), ("opencv_vtest.avi", 70)]
"""Videos of two shapes, with the short side of the clips in pixels."""


def model_on(backbone):
    torch.manual_seed(0)
    return MuleModel(backbone, find_system("mule").build(small_sizes(backbone.channels, 3))).eval()


@pytest.fixture(scope="module")
def random_model():
    """I3D with random weights, whose norms are not trivial."""
    torch.manual_seed(0)
    backbone = I3D(also_mixed_4f=True)
    for module in backbone.modules():
        if isinstance(module, nn.BatchNorm3d):
            nn.init.uniform_(module.bias, -0.2, 0.2)
            nn.init.uniform_(module.get_buffer("running_var"), 0.01, 0.03)
    return model_on(backbone)


def people_in(size):
    """Two people and an object; one person reaches over the edge of the last cell."""
    _, rows, cols = size
    actors = torch.tensor([[0.1, 0.2, 0.5, 0.9], [0.6, 0.3, 1.0, 1.0]]) * torch.tensor(
        [cols, rows, cols, rows]
    )
    return SceneBoxes(
        actors, torch.zeros(2, dtype=torch.int64), actors[:1] * 0.5, torch.zeros(1, dtype=torch.int64)
    )


@torch.inference_mode()
def require_same(model, running, clips):
    boxes = people_in(clips.shape[2:])
    wanted, got = (each.decide([each.backbone(clips)], boxes) for each in (model, running))
    for name in ("outputs", "features", "context"):
        one, other = getattr(got, name), getattr(wanted, name)
        assert one.shape == other.shape
        assert (one - other).abs().max() <= 1e-4 * other.abs().max()
    assert torch.equal(got.evidence.positive.argmax(dim=1), wanted.evidence.positive.argmax(dim=1))


@pytest.mark.parametrize("target", TARGETS)
def test_graphs_of_i3d_equal_torch_at_sizes_no_stride_divides(random_model, target, tmp_path):
    clips = torch.randn(1, 3, *ODD_SIZE, generator=torch.Generator().manual_seed(1))
    require_same(random_model, running_model(random_model, target, kept_in=tmp_path), clips)


def frames_of(path: Path, num_frames, short_side_px):
    """The first frames, values in [−1, 1], scaled like `mule watch` does: the long side keeps its proportion."""
    with av.open(path) as container:
        pictures = [
            frame.to_ndarray(format="rgb24")
            for frame, _ in zip(container.decode(video=0), range(num_frames), strict=False)
        ]
    video = torch.from_numpy(np.stack(pictures)).permute(0, 3, 1, 2) / 127.5 - 1
    scale = short_side_px / min(video.shape[2:])
    size = tuple(round(side * scale) for side in video.shape[2:])
    return F.interpolate(video, size, mode="bilinear", antialias=True).transpose(0, 1)[None]


@pytest.fixture(scope="module")
def real_model(shared_data):
    weights = shared_data / "backbones" / "i3d_rgb_kinetics400_fp16.pt"
    if not weights.is_file():
        pytest.skip(f"needs the real I3D weights: no file {weights}")
    return model_on(load_backbone(weights, find_card("i3d_rgb_kinetics400"), also_mixed_4f=True).eval())


@pytest.mark.slow
@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize(("video", "short_side_px"), REAL_SIZES)
def test_graphs_of_real_weights_equal_torch_on_real_clips(
    real_model, shared_data, target, video, short_side_px, tmp_path
):
    clips = frames_of(shared_data / "videos" / "samples" / video, 8, short_side_px)
    require_same(real_model, running_model(real_model, target, kept_in=tmp_path), clips)
