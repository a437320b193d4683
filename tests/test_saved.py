"""What earlier versions saved still loads and still says the same: runs, bundles, memories and experiments."""

import json
from pathlib import Path

import pytest
import torch

from mule.core.config import load_experiment
from mule.evidence.head import EvidenceHead
from mule.features.backbones.slowfast import SlowFast
from mule.memory.files import read_memory
from mule.model import RelationModel
from mule.systems.design import Debiased
from mule.training.build import build_model, load_run
from mule.training.choosing import system_of
from mule.watching.watch import watch

SAVED = Path(__file__).parent / "saved"


def test_a_run_saved_by_version_0_1_loads():
    run = load_run(SAVED / "run")
    assert len(run.classes) == 14
    assert run.experiment.system == "mule"


def test_a_memory_saved_by_version_0_1_loads():
    content = read_memory(SAVED / "run" / "memory.safetensors")
    assert len(content.memory) == 27
    assert content.held_out is not None
    assert len(content.held_out) == 38


@pytest.mark.parametrize("path", sorted((SAVED / "experiments").iterdir()), ids=lambda path: path.stem)
def test_an_experiment_saved_with_a_run_loads(path):
    assert load_experiment(path).seed == 10


def test_a_literal_run_saved_by_version_0_1_keeps_what_it_was_trained_with():
    experiment = load_experiment(SAVED / "experiments" / "ava_r50.toml")
    system = system_of(experiment)
    with torch.device("meta"):
        model = build_model(experiment)
    assert isinstance(model.decide, RelationModel)
    assert isinstance(model.decide.head, EvidenceHead)
    assert isinstance(model.backbone, SlowFast)
    assert isinstance(system.objective, Debiased)
    assert "bias" in dict(model.decide.head.linear.named_parameters())
    assert system.objective.fitted.reduction == "mean"
    assert system.base_rate == 0.5
    assert model.backbone.variant.slow_spans_clip
    assert experiment.objective.inner_steps == 2


def test_a_bundle_saved_by_version_0_1_says_of_a_video_what_it_said_then():
    seen = watch(SAVED / "take" / "videos" / "clip_000000.mp4", model=SAVED / "bundle")
    now = [json.loads(moment.model_dump_json()) for moment in seen]
    then = json.loads((SAVED / "moments.json").read_text())
    for actor in (actor for moment in then for actor in moment["actors"]):  # what later versions say besides
        actor["now"]["idle"] = actor["so_far"]["idle"] = None
        if actor["decision"] == "known" and not actor["so_far"]["actions"]:
            actor["decision"] = "unsure"
    assert_alike(now, then)


def assert_alike(now, then):
    """The same keys, names and decisions; numbers as close as looks in half precision are."""
    if isinstance(then, dict):
        assert now.keys() == then.keys()
        for key in then:
            assert_alike(now[key], then[key])
    elif isinstance(then, list):
        assert len(now) == len(then)
        for one, other in zip(now, then, strict=True):
            assert_alike(one, other)
    elif isinstance(then, float):
        assert now == pytest.approx(then, rel=0.015, abs=0.001)
    else:
        assert now == then
