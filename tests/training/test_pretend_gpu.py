"""On a device that keeps its tensors apart, every system trains, validates and answers with the numbers of the CPU.

Frozen backbones of every family compute their maps there, too.
"""

from dataclasses import dataclass, field, replace
from fractions import Fraction

import pytest
import torch
from pretend_gpu import GPU, pretending
from tiny_extraction import TinyBackbone, render, tiny_recipe
from tiny_rows import silent, tiny_experiment
from tiny_runs import Heard, curves_of

from mule.features.backbones.csn import CSN
from mule.features.backbones.i3d import I3D
from mule.features.backbones.slowfast import SlowFast
from mule.features.backbones.tiny import TinySlowFast
from mule.features.backbones.x3d import X3D
from mule.features.cache import Every
from mule.features.extraction import Extractor, FrozenBackbone
from mule.inference.running import outputs_of
from mule.inference.sides import read_side
from mule.model import ModelOutput
from mule.rivals.networks.dear import DearOutput
from mule.systems.catalogue import SYSTEMS
from mule.systems.design import ObjectiveOptions, SystemObjective
from mule.training import step
from mule.training.build import LoadedRun, build_parts
from mule.training.checkpoint import Checkpoints
from mule.training.device import make_channels_last, mixed_precision
from mule.training.loop import TrainingRun
from mule.training.run_folder import RunFolder
from mule.video.clips import ClipShape

CPU = torch.device("cpu")
TEST_CLIPS = 4
NETWORKS = [name for name, system in SYSTEMS.items() if system.trained_as is None]
"""Every network; a system with a memory has that of the system it is trained as."""
SMALL = {
    "x3d": {"name": "x3d_xl_kinetics600", "from_chance": True, "options": {"factors": [0.5, 0.3]}},
    "csn": {"name": "mmaction2_ircsn_152_ig65m", "from_chance": True, "options": {"depth": 26}},
}
"""The systems that are a backbone, with fewer and narrower blocks than the published ones."""


@pytest.fixture(scope="module", autouse=True)
def one_thread():
    """Threads cost more than they save on tensors this small."""
    num_threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(num_threads)


def trained(experiment, device, folder, **changes):
    """Train on a device for as long as the experiment says; return the run."""
    parts, _ = build_parts(experiment, device=device, listener=Heard())
    run = TrainingRun(
        replace(parts, **changes), experiment.training, folder=RunFolder(folder), listener=Heard()
    )
    run.train()
    return run


def answers(experiment, run):
    """What the trained network says of every actor of a test side, with two passes of dropout."""
    classes = tuple(f"action {number}" for number in range(14))
    side = read_side(experiment, "test-uniform", test_clips=TEST_CLIPS, noted=silent)
    return outputs_of(LoadedRun(run.parts.model.eval(), experiment, classes), side, dropout_passes=2)


def life(experiment, device, folder):
    return answers(experiment, trained(experiment, device, folder)), curves_of(folder)


@pytest.mark.parametrize("name", NETWORKS)
def test_every_system_trains_validates_and_answers_as_on_the_cpu(root, tmp_path, name):
    experiment = tiny_experiment(root, system=name, data__train_clips=4, backbone=SMALL.get(name, {}))
    expected, expected_curves = life(experiment, CPU, tmp_path / "cpu")
    with pretending():
        found, curves = life(experiment, GPU, tmp_path / "gpu")
    assert len(curves) == len(expected_curves) > 0
    for here, there in zip(curves, expected_curves, strict=True):
        assert here.keys() == there.keys()
        if here["kind"] == "step":
            assert here["loss"] == pytest.approx(there["loss"], rel=1e-4)
            assert here["constraints"] == pytest.approx(there["constraints"], abs=1e-5)
        else:
            assert here["mean_ap"] == pytest.approx(there["mean_ap"], abs=0.01)
    for values in ("outputs", "features", "backbone_features", "dropout_logits"):
        here, there = getattr(found, values), getattr(expected, values)
        assert (here is None) == (there is None)
        if here is not None:
            assert type(here) is torch.Tensor  # stored on the CPU
            torch.testing.assert_close(here, there, rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("place", ["a training step", "an evaluation"])
def test_a_tensor_that_stays_on_the_cpu_is_found(root, tmp_path, monkeypatch, place):
    experiment = tiny_experiment(root)
    with pretending():
        parts, _ = build_parts(experiment, device=GPU, listener=Heard())
        run = TrainingRun(parts, experiment.training, folder=RunFolder(tmp_path), listener=Heard())
        whole = step.scene_boxes

        def left_behind(batch):
            boxes = whole(batch)
            return replace(boxes, actors_xyxy_px=boxes.actors_xyxy_px.cpu())

        if place == "a training step":
            monkeypatch.setattr(step, "scene_boxes", left_behind)
            with pytest.raises(RuntimeError, match="one device"):
                run.train()
        else:
            monkeypatch.setattr("mule.inference.running.scene_boxes", left_behind)
            with pytest.raises(RuntimeError, match="one device"):
                answers(experiment, run)


def in_half(experiment, folder, *, scale):
    """Train the experiment in float16 on the pretend device."""
    with pretending():
        scaler = torch.amp.GradScaler(GPU.type, init_scale=scale)
        precision = mixed_precision(GPU, "float16").autocast
        return trained(experiment, GPU, folder, precision=precision, scaler=scaler)


def test_float16_with_parts_and_a_constraint_trains_nearly_as_float32(root, tmp_path):
    experiment = tiny_experiment(
        root, system="mule", training__accumulate_batches=2, objective={"inner_steps": 2}
    )
    trained(experiment, CPU, tmp_path / "whole")
    half = in_half(experiment, tmp_path / "half", scale=2.0**8)
    lines = [curves_of(tmp_path / name) for name in ("whole", "half")]
    losses = [[line["loss"] for line in each if line["kind"] == "step"] for each in lines]
    assert losses[1] == pytest.approx(losses[0], rel=0.02)
    assert losses[1] != losses[0]
    assert half.primal_dual.num_skipped == 0


def test_steps_that_overflow_float16_are_counted_and_a_resumed_run_has_the_scale_that_was_found(
    root, tmp_path
):
    experiment = tiny_experiment(root, system="slowfast")
    first = in_half(experiment, tmp_path, scale=2.0**24)
    found, _ = Checkpoints(tmp_path / "checkpoints").last()
    assert found is not None
    state = found.state
    assert state["primal_dual"]["num_skipped"] == first.primal_dual.num_skipped > 0
    assert curves_of(tmp_path)[0]["num_skipped"] == first.primal_dual.num_skipped
    resumed = in_half(experiment, tmp_path, scale=2.0)
    assert resumed.parts.scaler is not None
    assert first.parts.scaler is not None
    assert resumed.parts.scaler.get_scale() == first.parts.scaler.get_scale() < 2.0**24


@dataclass
class Seen:
    """An objective that keeps the outputs it is given."""

    objective: SystemObjective
    outputs: list[ModelOutput] = field(default_factory=list)

    def __call__(self, output, targets, progress, /):
        self.outputs.append(output)
        return self.objective(output, targets, progress)

    def altered(self, options: ObjectiveOptions):
        return replace(self, objective=self.objective.altered(options))


def test_losses_and_evidence_of_a_half_precision_network_are_in_single(root):
    parts, _ = build_parts(tiny_experiment(root, system="dear"), device=CPU, listener=Heard())
    with pretending():
        parts.model.to(GPU)
        batch = next(iter(parts.train)).to(GPU)
        objective = Seen(parts.objective)
        precision = mixed_precision(GPU, "float16").autocast
        loss = step.BatchObjective(parts.model, batch, objective, progress=0.5, precision=precision)().loss
    (seen,) = objective.outputs
    assert isinstance(seen, DearOutput)
    assert seen.branches is not None
    tensors = [seen.outputs, seen.evidence.positive, seen.evidence.negative, *seen.branches, loss]
    assert {tensor.dtype for tensor in tensors} == {torch.float32}


FROZEN = {
    "one convolution": TinyBackbone,
    "tiny": TinySlowFast,
    "x3d": lambda: X3D((0.5, 0.3)),
    "csn": lambda: CSN(26),
    "i3d": I3D,
    "slowfast": SlowFast,
}


@pytest.mark.parametrize("name", FROZEN)
def test_a_frozen_backbone_computes_on_its_device_and_keeps_its_maps_on_the_cpu(tmp_path, name):
    video = tmp_path / "a.mp4"
    render(video, num_frames=8)
    backbone = FROZEN[name]().eval()
    recipe = tiny_recipe(clip=ClipShape(num_frames=8, stride_frames=1, num_slow_frames=2))
    expected = Extractor(FrozenBackbone(backbone, recipe), tmp_path / "cpu").extract(
        video, Every(Fraction(1))
    )
    with pretending():
        moved = FrozenBackbone(backbone.to(GPU), recipe)
        found = Extractor(moved, tmp_path / "gpu").extract(video, Every(Fraction(1)))
    assert type(found.features.context) is torch.Tensor
    torch.testing.assert_close(found.features.context, expected.features.context)


def test_channels_last_changes_the_layout_of_whole_3d_convolutions_and_no_number():
    whole, by_channel = torch.nn.Conv3d(4, 8, 3), torch.nn.Conv3d(8, 8, 3, groups=8)
    network = torch.nn.Sequential(whole, by_channel)
    clips = torch.rand(2, 4, 6, 7, 8)
    expected = network(clips)
    make_channels_last(network)
    assert whole.weight.is_contiguous(memory_format=torch.channels_last_3d)
    assert by_channel.weight.is_contiguous()
    torch.testing.assert_close(network(clips), expected)


@pytest.mark.parametrize("has_bfloat16", [True, False])
def test_a_gpu_without_bfloat16_uses_float16_with_scaled_gradients_and_says_so(monkeypatch, has_bfloat16):
    monkeypatch.setattr(torch.cuda, "is_bf16_supported", lambda **_: has_bfloat16)
    plain, brain, half = (mixed_precision(GPU, name) for name in ("float32", "bfloat16", "float16"))
    assert plain == (None, None, "")
    assert brain.autocast is not None
    assert half.autocast is not None
    assert brain.autocast.fast_dtype == (torch.bfloat16 if has_bfloat16 else torch.float16)
    assert (brain.scaler is None) == has_bfloat16
    assert ("float16 with scaled gradients" in brain.note) != has_bfloat16
    assert half.autocast.fast_dtype == torch.float16
    assert half.scaler is not None
    assert half.note == ""
    for wanted in ("bfloat16", "float16"):
        autocast, scaler, note = mixed_precision(CPU, wanted)
        assert (autocast, scaler) == (None, None)
        assert "Training in float32" in note
