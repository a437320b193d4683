"""What is watched, and the sentences that follow."""

import numpy as np
import pytest
import torch

from mule.core.errors import RangeError
from mule.core.records import Evidence
from mule.evaluation.mean_ap import mean_average_precision
from mule.evidence.head import opinion_from
from mule.objective.primal_dual import Constraint, StepReport
from mule.training.monitor import (
    LOG10_EDGES,
    RUNAWAY_STEPS,
    Monitor,
    Watched,
    probability_order,
    validation_of,
)


def some_evidence(num_actors=6, num_classes=3, seed=0, scale=3.0):
    generator = torch.Generator().manual_seed(seed)
    h = scale * torch.randn(num_actors, num_classes, generator=generator)
    labels = torch.rand(num_actors, num_classes, generator=generator) < 0.4
    labels[0] = True
    return h, Evidence(positive=h.exp(), negative=(-h).exp()), labels


def test_without_actors_there_is_nothing_to_validate():
    none = torch.zeros(0, 3)
    with pytest.raises(RangeError, match="needs a class with a positive"):
        validation_of(none, Evidence(positive=none, negative=none), none.bool())


def test_mean_ap_is_that_of_the_expected_probability():
    h, evidence, labels = some_evidence()
    expected = mean_average_precision(opinion_from(evidence).probability.double().numpy(), labels.numpy())
    assert validation_of(h, evidence, labels).mean_ap == pytest.approx(expected)


def test_the_order_does_not_saturate_where_the_probability_does():
    h = torch.tensor([[9.0], [9.5]], dtype=torch.float32)
    order = probability_order(Evidence(positive=h.exp() * 1e4, negative=torch.zeros_like(h)))
    assert order[1] > order[0]


def test_histograms_count_every_pair_once_and_in_the_right_place():
    h, evidence, labels = some_evidence(num_actors=50)
    found = validation_of(h, evidence, labels)
    counted = found.evidence_histograms
    assert sum(counted["for_done"]) == int(labels.sum())
    assert sum(counted["against_not_done"]) == int((~labels).sum())
    edges = [-np.inf, *LOG10_EDGES[1:-1], np.inf]
    expected, _ = np.histogram(np.log10(evidence.positive[labels].numpy()), bins=edges)
    assert list(counted["for_done"]) == expected.tolist()


def test_outputs_are_dead_only_where_they_can_die():
    outputs = torch.tensor([[-1.0, 2.0, -3.0, 0.0], [-2.0, -1.0, -1.0, 0.0]])
    evidence = Evidence(positive=outputs[:, :2].relu(), negative=outputs[:, 2:].relu())
    labels = torch.ones(2, 2, dtype=torch.bool)
    assert validation_of(outputs, evidence, labels, outputs_can_die=True).dead_share == 0.75
    assert validation_of(outputs, evidence, labels).dead_share == 0.0


def monitor(**watched):
    return Monitor(Watched(constraints={"static_bias": Constraint(tolerance=0.1)}, **watched))


def step(multiplier, value, loss=1.0):
    return StepReport(loss=loss, constraints={"static_bias": value}, multipliers={"static_bias": multiplier})


def test_a_multiplier_runs_away_when_its_term_outweighs_the_loss_for_long():
    watching = monitor()
    for _ in range(RUNAWAY_STEPS - 1):
        assert watching.after_step(step(20.0, 0.2)) == []
    (sentence,) = watching.after_step(step(20.0, 0.2))
    assert "runs away" in sentence
    assert "objective.dual.tolerance" in sentence
    assert watching.after_step(step(20.0, 0.2)) == []  # said once


@pytest.mark.parametrize("calm", [step(20.0, 0.05), step(1.0, 0.2), step(20.0, None)])
def test_a_calm_step_begins_the_count_anew(calm):
    watching = monitor()
    for report in [step(20.0, 0.2)] * (RUNAWAY_STEPS - 1) + [calm] + [step(20.0, 0.2)] * (RUNAWAY_STEPS - 1):
        assert watching.after_step(report) == []


def test_dead_outputs_lost_evidence_and_a_constant_network_are_told_once_each():
    outputs = torch.full((5, 4), -1.0)
    nothing = torch.zeros(5, 2)
    labels = torch.ones(5, 2, dtype=torch.bool)
    found = validation_of(outputs, Evidence(positive=nothing, negative=nothing), labels, outputs_can_die=True)
    watching = monitor(outputs_can_die=True)
    told = watching.after_validation(found)
    assert [sentence.split(":")[0] for sentence in told] == [
        "outputs die",
        "evidence collapses",
        "the network gives the same outputs for every actor",
    ]
    assert watching.after_validation(found) == []
    resumed = monitor(outputs_can_die=True)
    resumed.load_state_dict(watching.state_dict())
    assert resumed.after_validation(found) == []


def test_a_sigmoid_has_no_evidence_that_could_collapse():
    h, _, labels = some_evidence()
    nothing = torch.zeros(len(h), 3)
    found = validation_of(h, Evidence(positive=nothing, negative=nothing), labels)
    assert monitor(learns_evidence=False).after_validation(found) == []


def test_a_healthy_network_gives_no_warning():
    assert monitor(outputs_can_die=True).after_validation(validation_of(*some_evidence())) == []
