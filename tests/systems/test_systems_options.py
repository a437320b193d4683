"""What an experiment changes in a system does what it says: the loss, the constraint, the head."""

import math
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from made_outputs import made_outputs

from mule.core.records import Evidence
from mule.inference.outputs import read_side_outputs, write_side_outputs
from mule.inference.running import last_layer
from mule.inference.score_rules import EvidenceRule
from mule.model import ModelOutput
from mule.objective.hsic import biased_hsic, rbf_kernel, unbiased_hsic
from mule.systems.catalogue import find_system
from mule.systems.design import Debiased, Fitted, HeadOptions, LossReduction, ObjectiveOptions, tiny_sizes
from mule.training.choosing import load_for_training, settled, system_of

NUM_ACTORS, NUM_CLASSES, NUM_CLIPS = 12, 3, 5


@pytest.fixture
def output():
    draw = torch.Generator().manual_seed(0)
    outputs = torch.randn(NUM_ACTORS, NUM_CLASSES, generator=draw)
    return ModelOutput(
        evidence=Evidence(outputs.exp(), (-outputs).exp()),
        outputs=outputs,
        context=torch.randn(NUM_CLIPS, 4, generator=draw),
        actor_clip_index=torch.arange(NUM_ACTORS) % NUM_CLIPS,
        features=torch.randn(NUM_ACTORS, 6, generator=draw),
    )


@pytest.fixture
def targets():
    return (torch.rand(NUM_ACTORS, NUM_CLASSES, generator=torch.Generator().manual_seed(1)) > 0.6).float()


def test_reductions_are_sums_and_means_over_actors_and_classes(output, targets):
    terms = [
        math.log1p(math.exp(-h if y else h))
        for row, does in zip(output.outputs.tolist(), targets.tolist(), strict=True)
        for h, y in zip(row, does, strict=True)
    ]
    expected: dict[LossReduction, float] = {
        "sum": sum(terms),
        "mean": sum(terms) / NUM_ACTORS,
        "class_mean": sum(terms) / len(terms),
    }
    for reduction, value in expected.items():
        altered = Fitted(of_logits=True).altered(ObjectiveOptions(reduction=reduction))
        assert altered(output, targets, 0.0).loss.item() == pytest.approx(value, rel=1e-5)
        beta = Debiased().altered(ObjectiveOptions(reduction=reduction))(output, targets, 0.0).loss
        scale = {"sum": 1, "mean": NUM_ACTORS, "class_mean": NUM_ACTORS * NUM_CLASSES}[reduction]
        whole = Debiased().altered(ObjectiveOptions(reduction="sum"))(output, targets, 0.0).loss
        assert (beta * scale).item() == pytest.approx(whole.item(), rel=1e-5)


@pytest.mark.parametrize("part", ["", "-without-aco-r", "-without-beta-enn", "-without-m-edc"])
def test_training_of_the_paper_as_printed_sums_its_loss_and_has_a_base_rate_of_one(output, targets, part):
    literal, default = (
        system_of(load_for_training(Path("stage"), [], f"{name}{part}")) for name in ("mule-literal", "mule")
    )
    summed, mean = (each.objective(output, targets, 0.0) for each in (literal, default))
    assert summed.loss.item() == pytest.approx(NUM_ACTORS * mean.loss.item(), rel=1e-5)
    assert summed.constraints == mean.constraints
    assert (literal.base_rate, default.base_rate) == (1.0, 0.5)


def test_an_experiment_may_set_what_the_paper_prints_otherwise(output, targets):
    settings = ["objective.reduction=mean", "evidence.base_rate=0.5"]
    experiment = load_for_training(Path("stage"), settings, "mule-literal")
    system = system_of(experiment)
    mean = system_of(load_for_training(Path("stage"), [], "mule")).objective(output, targets, 0.0)
    assert system.objective(output, targets, 0.0).loss.item() == pytest.approx(mean.loss.item())
    assert system.base_rate == 0.5
    assert settled(experiment) == experiment


def dependence(output, targets, **options):
    """The constraint of MULE with these options."""
    changed = ObjectiveOptions(bandwidth="root_dim", **options)
    (found,) = Debiased().altered(changed)(output, targets, 0.0).constraints.values()
    assert found is not None
    return found.item()


def test_within_clips_every_pair_of_actors_counts(output, targets):
    scene = output.context[output.actor_clip_index]
    kernels = [rbf_kernel(view, bandwidth=view.shape[1] ** 0.5) for view in (output.outputs, scene)]
    found = dependence(output, targets, within_clips=True)
    assert found == pytest.approx(unbiased_hsic(*kernels).item(), abs=1e-7)
    apart = dependence(output, targets)
    groups = output.actor_clip_index
    assert apart == pytest.approx(unbiased_hsic(*kernels, groups=groups).item(), abs=1e-7)
    assert apart != pytest.approx(found, abs=1e-5)
    biased = dependence(output, targets, estimator="biased")
    assert biased == pytest.approx(biased_hsic(*kernels).item(), abs=1e-7)


def test_a_system_without_changes_stays_as_it_is():
    system = find_system("mule")
    assert system.adapted(HeadOptions(), ObjectiveOptions()) == system


def test_a_head_without_bias_is_read_as_one_with_a_bias_of_zero():
    literal = find_system("mule-literal").adapted(HeadOptions(bias=False), ObjectiveOptions())
    network = literal.build(tiny_sizes(8, NUM_CLASSES))
    layer = literal.readout_layer(network)
    assert layer is not None
    assert "bias" not in dict(layer.named_parameters())
    readout = last_layer(layer, NUM_CLASSES)
    assert readout is not None
    feature = torch.randn(2, layer.in_features)
    positive, negative = layer(feature).split(NUM_CLASSES, dim=1)
    torch.testing.assert_close(feature @ readout.weight.T + readout.bias, positive - negative)


def test_outputs_can_die_under_a_relu_of_two_outputs_only():
    literal = find_system("mule-literal")
    assert literal.outputs_can_die
    assert not literal.adapted(HeadOptions(function="elu"), ObjectiveOptions()).outputs_can_die
    tied = find_system("mule").adapted(HeadOptions("independent", "relu"), ObjectiveOptions())
    assert tied.outputs_can_die
    assert tied.evidence == "independent"
    assert tied.pair_evidence(tied.build(tiny_sizes(8, NUM_CLASSES))) is not None


def test_belief_takes_the_base_rate_of_the_run_and_keeps_it_on_disk(tmp_path):
    made = made_outputs(9, seed=0, kind="independent")
    printed = replace(made, base_rate=1.0, labels=made.labels.copy())
    alpha, beta = made.evidence.positive + 1, made.evidence.negative + 1
    for outputs, base_rate in ((made, 0.5), (printed, 1.0)):
        belief = ((alpha - 2 * base_rate) / (alpha + beta)).clamp(0, 1)
        value = EvidenceRule("Belief").novelty(outputs).value
        torch.testing.assert_close(value, (1 - belief).prod(dim=1), rtol=1e-4, atol=1e-6)
    write_side_outputs(printed, tmp_path, "test", key="{}")
    kept = read_side_outputs(tmp_path, "test")
    assert kept is not None
    assert kept.base_rate == 1.0
