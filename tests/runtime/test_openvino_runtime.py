"""Compiled and quantised backbones against the eager ones they were made from."""

import subprocess
import sys
from copy import deepcopy
from fractions import Fraction
from importlib.util import find_spec

import pytest
import torch
from tiny_extraction import render, tiny_recipe
from torch import nn

from bench.quantise import agreement
from mule.core.errors import NotFinite, RangeError, ShapeError, TooFewActors
from mule.features.backbones.i3d import I3D
from mule.features.backbones.slowfast import SlowFast, Stem
from mule.features.backbones.x3d import X3D
from mule.features.cache import Every
from mule.features.extraction import Extractor, FrozenBackbone
from mule.features.pooling import FeatureMaps, RoiSampling, box_features, context_map
from mule.runtime.eight_bits import quantised
from mule.runtime.openvino import (
    CompiledBackbone,
    CompiledBoxFeatures,
    CompiledNetwork,
    PairedStem,
    RuntimeMissing,
    compiled_frozen,
    converted,
    require_openvino,
)

if find_spec("openvino") is None:
    pytest.skip("needs OpenVINO: pip install 'mule-actions[openvino]'", allow_module_level=True)

# 32 frames: of these the Slow pathway's last is where a careless linspace goes wrong. 70 columns: I3D pads oddly.
SIZES = {"slowfast": (32, 32, 32), "x3d": (4, 48, 48), "i3d": (8, 32, 42)}
BUILD = {
    "slowfast": lambda: SlowFast(res5_stride=1, res5_dilation=2),
    "x3d": lambda: X3D((1.0, 1.0)),  # thinner and less deep than any published
    "i3d": lambda: I3D("mixed_4f"),
}


class TwoLayers(X3D):
    """The smallest backbone that has a norm and a head, an X3D by name; where layers do not matter it stands for all."""

    stride = 8

    def __init__(self):
        nn.Module.__init__(self)
        self.first = nn.Conv3d(3, 16, (1, 4, 4), stride=(1, 4, 4))
        self.norm = nn.BatchNorm3d(16)
        self.second = nn.Conv3d(16, 24, 3, stride=(1, 2, 2), padding=1)
        self.head = nn.Linear(24, 5)

    def forward(self, clips):
        return FeatureMaps((self.second(self.norm(self.first(clips)).relu()).relu(),), self.stride)

    def logits(self, features):
        return self.head(features.maps[0].mean(dim=(2, 3, 4)))


def seeded(model):
    """The model in evaluation mode, no norm of it trivial: as built, residual branches would all be zero."""
    generator = torch.Generator().manual_seed(0)
    for module in model.modules():
        if isinstance(module, nn.BatchNorm3d):
            nn.init.uniform_(module.weight, 0.3, 0.9, generator=generator)
            nn.init.uniform_(module.bias, -0.2, 0.2, generator=generator)
            nn.init.uniform_(module.get_buffer("running_mean"), -0.2, 0.2, generator=generator)
            nn.init.uniform_(module.get_buffer("running_var"), 0.7, 1.3, generator=generator)
    return model.eval()


def clips_of(size, num_clips=1, seed=1):
    return torch.randn(num_clips, 3, *size, generator=torch.Generator().manual_seed(seed))


@pytest.fixture(scope="module", params=[pytest.param("slowfast", marks=pytest.mark.slow), "x3d", "i3d"])
def pair(request):
    """A backbone and its network."""
    torch.manual_seed(0)
    backbone = seeded(BUILD[request.param]())
    return backbone, converted(backbone, SIZES[request.param])


@pytest.fixture(scope="module")
def small():
    """A backbone of two layers, and its network for a small clip."""
    torch.manual_seed(0)
    backbone = seeded(TwoLayers())
    return backbone, converted(backbone, (4, 48, 48))


@torch.inference_mode()
def test_compiled_maps_equal_eager_ones(pair):
    backbone, network = pair
    compiled = CompiledNetwork(network, num_threads=1)
    for num_clips in (0, 1, 2):
        clips = clips_of(network.size, num_clips)
        wanted, got = backbone(clips), compiled(clips)
        assert got.stride == wanted.stride
        assert [each.shape for each in got.maps] == [each.shape for each in wanted.maps]
        if num_clips:
            boxes = torch.zeros(0, 4)
            found = agreement(backbone, compiled, [(clip[None], boxes) for clip in clips])
            assert found.largest_difference < 1e-5


@pytest.mark.parametrize("num_frames", [2, 8])
@torch.inference_mode()
def test_the_stem_for_pairs_of_frames_is_the_stem(num_frames):
    stem = seeded(Stem(8, temporal_kernel=5))
    clips = clips_of((num_frames, 17, 22), num_clips=2)
    torch.testing.assert_close(PairedStem(stem).eval()(clips), stem(clips), rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize(
    "sampling", [RoiSampling(), RoiSampling(samples=2, aligned=True), RoiSampling(bins=3, aligned=True)]
)
@torch.inference_mode()
def test_boxes_pooled_in_the_graph_equal_boxes_pooled_after_it(small, sampling):
    backbone, network = small
    compiled = CompiledBoxFeatures(network, num_threads=1, sampling=sampling)
    clips = clips_of(network.size, 3)
    boxes = torch.tensor(
        [[0, 0, 48, 48], [5, 3, 30.5, 40], [20, 20, 21, 21], [-30, 8, 60, 70], [9, 0, 12, 48.0]]
    )
    clip_index = torch.tensor([2, 0, 0, 2, 0])
    context = context_map(backbone(clips))
    for num_boxes in (0, 1, 5):
        of = boxes[:num_boxes], clip_index[:num_boxes]
        expected = box_features(context, *of, stride=backbone.stride, sampling=sampling)
        torch.testing.assert_close(compiled(clips, *of), expected, rtol=1e-4, atol=1e-4)


@torch.inference_mode()
def test_a_compiled_backbone_takes_any_size_and_forgets_the_one_unused_longest(small, monkeypatch):
    backbone, _ = small
    sizes = []

    def counted(backbone, size):
        sizes.append(size)
        return converted(backbone, size)

    monkeypatch.setattr("mule.runtime.openvino.converted", counted)
    compiled = CompiledBackbone(backbone, num_threads=1, num_remembered=2)
    a, b, c = (4, 32, 32), (5, 33, 47), (3, 32, 40)
    for size in (a, b, a, c, a):
        clips = clips_of(size)
        torch.testing.assert_close(compiled(clips).maps, backbone(clips).maps, rtol=1e-4, atol=1e-4)
    assert sizes == [a, b, c]


def test_features_extracted_by_a_compiled_backbone_equal_eager_ones_and_have_a_key_of_their_own(
    small, tmp_path
):
    backbone, _ = small
    eager = FrozenBackbone(backbone, tiny_recipe(short_side_px=32))
    video, times = render(tmp_path / "video.mp4", 20), Every(Fraction(1, 2))
    wanted, got = (
        Extractor(each, tmp_path).extract(video, times) for each in (eager, compiled_frozen(eager))
    )
    assert (len(wanted.features), got.was_cached) == (4, False)
    assert got.path != wanted.path
    torch.testing.assert_close(got.features.context, wanted.features.context, rtol=1e-4, atol=1e-4)
    assert (got.features.stride, got.features.input_size) == (backbone.stride, (32, 48))


def test_only_backbones_of_ours_on_the_cpu_are_compiled(small):
    backbone, _ = small
    with pytest.raises(RangeError, match=r"a backbone of mule\.features can be compiled; got function"):
        compiled_frozen(FrozenBackbone(lambda clips: backbone(clips), tiny_recipe()))
    elsewhere = deepcopy(backbone).to("meta")
    with pytest.raises(RangeError, match="must be on the CPU to be compiled; this one is on meta"):
        compiled_frozen(FrozenBackbone(elsewhere, tiny_recipe()))


def test_a_network_refuses_clips_of_another_size(small):
    _, network = small
    with pytest.raises(ShapeError, match=r"\(4, 48, 48\).*got \(4, 48, 64\).*CompiledBackbone"):
        CompiledNetwork(network)(clips_of((4, 48, 64)))


def test_boxes_that_cannot_be_pooled_are_refused(small):
    _, network = small
    compiled, clips = CompiledBoxFeatures(network), clips_of(network.size)
    with pytest.raises(NotFinite, match="finite"):
        compiled(clips, torch.tensor([[0, 0, torch.nan, 1.0]]), torch.tensor([0]))
    with pytest.raises(RangeError, match="one of 1 clips"):
        compiled(clips, torch.tensor([[0, 0, 1, 1.0]]), torch.tensor([1]))


def test_a_backbone_in_training_is_refused():
    with pytest.raises(RangeError, match="eval"):
        converted(X3D(), (4, 32, 32))


def test_without_the_package_the_message_names_the_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "openvino", None)
    with pytest.raises(RuntimeMissing, match=r"mule-actions\[openvino\]"):
        require_openvino()


TWO_NETWORKS = """
import os, signal
import numpy
from openvino import Model, opset15
from mule.runtime.openvino import compiled_for_cpu

def compiled():
    numbers = opset15.parameter([1, 4], numpy.float32)
    return compiled_for_cpu(Model([opset15.relu(numbers)], [numbers]), 1)

first, second = compiled(), compiled()
del first
del second
signal.signal(signal.SIGINT, lambda *_: print("interrupted"))
os.kill(os.getpid(), signal.SIGINT)
"""


def test_a_signal_after_networks_are_gone_reaches_its_handler():
    done = subprocess.run([sys.executable, "-c", TWO_NETWORKS], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "interrupted\n")


def test_openvino_reports_to_nobody():
    require_openvino()
    assert sys.modules["openvino_telemetry"] is None


def test_eight_bits_keep_the_direction_of_actor_features(small):
    pytest.importorskip("nncf", reason="needs NNCF: pip install 'mule-actions[openvino]'")
    backbone, network = small
    with pytest.raises(TooFewActors, match="calibration"):
        quantised(network, [])
    compiled = CompiledNetwork(quantised(network, clips_of(network.size, 4, seed=2).split(1)), num_threads=1)
    boxes = torch.tensor([[0, 0, 48, 48], [10, 10, 30, 40.0]])
    unseen = [(clip, boxes) for clip in clips_of(network.size, 3, seed=3).split(1)]
    found = agreement(backbone, compiled, unseen, logits=backbone.logits)
    assert 0 < found.relative_error < 0.2
    assert found.cosine.min() > 0.98
    assert found.same_top1 is not None
    for (clip, _), is_same in zip(unseen, found.same_top1.tolist(), strict=True):
        exact, rounded = backbone.logits(backbone(clip)), backbone.logits(compiled(clip))
        first, second = exact.squeeze(0).topk(2).values
        # of random weights classes nearly tie; a lead beyond what rounding moves must be kept on any processor
        assert is_same or first - second <= 2 * (exact - rounded).abs().max()


@pytest.mark.parametrize("scale", [1.0, 1.25, 0.5])
def test_agreement_of_scaled_features_is_the_scale(scale):
    def exact(clip):
        return FeatureMaps(maps=(clip.abs() + 1, clip[:, :2].abs()), stride=4)

    def approximate(clip):
        return FeatureMaps(maps=tuple(scale * each for each in exact(clip).maps), stride=4)

    def logits(features):
        return features.maps[0].mean(dim=(2, 3, 4))

    boxes = torch.tensor([[0, 0, 30, 20], [4, 4, 8, 31.0]])
    clips = [(clips_of((3, 8, 9)), boxes[:0]), (clips_of((3, 8, 9), seed=2), boxes)]
    found = agreement(exact, approximate, clips, logits=logits)
    assert found.relative_error == pytest.approx(abs(scale - 1), abs=1e-6)
    assert found.largest_difference == pytest.approx(abs(scale - 1), abs=1e-6)
    torch.testing.assert_close(found.cosine, torch.ones(2))
    assert found.same_top1 is not None
    assert found.same_top1.tolist() == [True, True]
    with pytest.raises(TooFewActors, match="got none"):
        agreement(exact, approximate, [])


def test_agreement_sees_another_class_and_another_direction():
    def exact(clip):
        return FeatureMaps(maps=(clip,), stride=1)

    def turned(clip):
        return FeatureMaps(maps=(clip.flip(1),), stride=1)

    clip = torch.zeros(1, 3, 1, 2, 2)
    clip[:, 0] = 1.0
    box = torch.tensor([[0, 0, 1, 1.0]])
    found = agreement(exact, turned, [(clip, box)], logits=lambda features: features.maps[0].mean((2, 3, 4)))
    assert found.relative_error == pytest.approx(2**0.5)
    assert found.cosine.tolist() == [0.0]
    assert "same top-1 in 0 of 1 clips" in str(found)
