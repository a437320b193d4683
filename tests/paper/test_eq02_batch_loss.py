import pytest
import torch
from hypothesis import given
from strategies import evidences_with_targets, unchecked

from mule.core.errors import RangeError, ShapeError
from mule.core.records import Evidence
from mule.objective.beta_loss import beta_loss, expected_cross_entropy, reduce_over_actors

pytestmark = pytest.mark.paper("Eq. 2")


def loss_by_loops(evidence, targets):
    total = 0.0
    for actor in range(evidence.num_actors):
        for action in range(evidence.num_classes):
            alpha = evidence.positive[actor, action] + 1
            beta = evidence.negative[actor, action] + 1
            y = targets[actor, action]
            total += y * (torch.digamma(alpha + beta) - torch.digamma(alpha))
            total += (1 - y) * (torch.digamma(alpha + beta) - torch.digamma(beta))
    return float(total)


@given(evidences_with_targets(largest=1e3))
def test_sum_reduction_is_the_printed_double_sum(drawn):
    evidence, targets = drawn
    assert beta_loss(evidence, targets, reduction="sum").item() == pytest.approx(
        loss_by_loops(evidence, targets), rel=1e-9, abs=1e-9
    )


@given(evidences_with_targets())
def test_mean_is_the_sum_over_the_number_of_actors_and_zero_without_any(drawn):
    evidence, targets = drawn
    total = beta_loss(evidence, targets, reduction="sum")
    mean = beta_loss(evidence, targets)
    assert mean.item() == pytest.approx(total.item() / max(evidence.num_actors, 1))
    per_actor = beta_loss(evidence, targets, reduction="none")
    assert per_actor.shape == (evidence.num_actors,)
    assert per_actor.sum().item() == pytest.approx(total.item())


@given(evidences_with_targets(max_classes=4))
def test_class_weights_and_focal_weighting_by_loops(drawn):
    evidence, targets = drawn
    weights = torch.linspace(0.5, 2.0, evidence.num_classes, dtype=torch.float64)
    expected = 0.0
    terms = expected_cross_entropy(evidence, targets)
    for actor in range(evidence.num_actors):
        for action in range(evidence.num_classes):
            alpha = evidence.positive[actor, action].item() + 1
            beta = evidence.negative[actor, action].item() + 1
            right = alpha / (alpha + beta) if targets[actor, action] else beta / (alpha + beta)
            expected += weights[action].item() * (1 - right) ** 2 * terms[actor, action].item()
    found = beta_loss(evidence, targets, reduction="sum", class_weights=weights, focal_exponent=2.0)
    assert found.item() == pytest.approx(expected, rel=1e-6, abs=1e-9)


def test_labels_that_are_not_zero_or_one_are_refused():
    evidence = Evidence(positive=torch.ones(1, 2), negative=torch.ones(1, 2))
    with pytest.raises(RangeError, match="targets must be 0 or 1"):
        beta_loss(evidence, torch.tensor([[0.3, 1.0]]))
    with pytest.raises(ShapeError, match=r"one entry per actor and class, \(1, 2\); got \(2, 2\)"):
        unchecked(expected_cross_entropy)(evidence, torch.zeros(2, 2))
    with pytest.raises(RangeError, match="reduction must be"):
        unchecked(reduce_over_actors)(torch.zeros(2), "median")
