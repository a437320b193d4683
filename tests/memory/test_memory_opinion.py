"""Evidence that adds and trust that discounts: laws, and cases worked by hand."""

import math
from dataclasses import replace

import pytest
import torch
import torch.nn.functional as F
from remembered_worlds import MODEL, calibrated_memory, clustered, held_out, places
from strategies import unchecked

from mule.core.errors import NotFitted, ShapeError, TooFewActors
from mule.core.records import Evidence
from mule.evidence.head import exp_evidence
from mule.memory.memory import EvidenceMemory, NeighbourKernel
from mule.memory.opinion import (
    EVIDENCE_SCALES,
    agreement_novelty,
    best_evidence_scale,
    class_weights,
    discounted_evidence_novelty,
    for_classes,
    fused,
    memory_evidence,
    reasons,
)
from mule.memory.search import weigh
from mule.novelty.scores import positive_log_evidence_novelty


def hand_memory():
    """Three entries on axes; the second did both actions half the time."""
    return EvidenceMemory(
        features=torch.eye(3),
        labels=torch.tensor([[1.0, 0.0], [0.5, 0.5], [0.0, 1.0]]),
        counts=torch.tensor([1.0, 4.0, 1.0]),
        scales=torch.ones(3),
        places=places(3, per_group=1),
        class_names=("a", "b"),
        kernel=NeighbourKernel(2, 1.0, 1.0, 10.0),
        model=MODEL,
    )


def without_entries(memory):
    none = torch.arange(0)
    return replace(
        memory,
        features=memory.features[none],
        labels=memory.labels[none],
        counts=memory.counts[none],
        scales=memory.scales[none],
        places=memory.places[none],
    )


def network(actors, classes=4, seed=2):
    outputs = torch.randn(actors, classes, generator=torch.Generator().manual_seed(seed))
    return Evidence(exp_evidence(outputs), exp_evidence(-outputs))


def test_evidence_of_neighbours_is_the_formula_on_a_case_worked_by_hand():
    memory = hand_memory()
    weighed = weigh(memory, torch.tensor([[1.0, 0.0, 0.0]]))  # itself at 0, then one of those at √2
    far = math.exp(-2)
    trust = (1 + far) / 2
    weights = class_weights(memory, weighed)[0]
    assert weights.sum().item() == pytest.approx(trust, rel=1e-6)
    evidence = memory_evidence(memory, weighed)
    assert evidence.positive[0].tolist() == pytest.approx((10 * weights).tolist())
    assert evidence.negative[0].tolist() == pytest.approx((10 * (trust - weights)).tolist(), abs=1e-6)


def test_class_weights_are_those_of_a_slow_loop():
    memory = calibrated_memory()
    weighed = weigh(memory, clustered(20, seed=9)[0])
    for actor in range(20):
        expected = torch.zeros(4)
        for weight, entry in zip(weighed.weight[actor], weighed.neighbours.index[actor], strict=True):
            expected += weight * memory.labels[entry] / 5
        torch.testing.assert_close(class_weights(memory, weighed)[actor], expected)


def test_for_and_against_add_up_to_the_same_for_every_action():
    memory = calibrated_memory()
    weighed = weigh(memory, clustered(20, seed=9)[0])
    evidence = memory_evidence(memory, weighed)
    total = memory.kernel.calibrated_evidence_scale() * weighed.trust[:, None].expand(20, 4)
    torch.testing.assert_close(evidence.positive + evidence.negative, total)


def test_fusing_with_a_memory_without_entries_changes_nothing():
    memory, said = without_entries(calibrated_memory()), network(6)
    together = fused(said, memory_evidence(memory, weigh(memory, clustered(6, seed=3)[0])))
    assert torch.equal(together.positive, said.positive)
    assert torch.equal(together.negative, said.negative)


def test_far_from_all_memory_adds_nothing():
    memory = replace(calibrated_memory(), kernel=NeighbourKernel(5, 0.3, 0.01, 10.0))
    weighed = weigh(memory, -torch.ones(3, 12))
    assert weighed.trust.max().item() < 1e-30
    said = network(3)
    torch.testing.assert_close(fused(said, memory_evidence(memory, weighed)).positive, said.positive)


def test_discounted_evidence_novelty_is_its_formula_and_with_full_trust_that_of_log_evidence():
    outputs = torch.randn(7, 3, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    log_trust = -torch.arange(7.0, dtype=torch.float64)
    found = discounted_evidence_novelty(outputs, log_trust)
    torch.testing.assert_close(found.rank, -F.softplus(outputs + log_trust[:, None]).sum(dim=1))
    torch.testing.assert_close(found.value, found.rank.exp())
    trusted = discounted_evidence_novelty(outputs, torch.zeros(7, dtype=torch.float64))
    expected = positive_log_evidence_novelty(Evidence(outputs.exp(), (-outputs).exp()))
    torch.testing.assert_close(trusted.rank, expected.rank)
    assert discounted_evidence_novelty(outputs, torch.full((7,), -torch.inf)).rank.tolist() == [0.0] * 7


def test_less_trust_is_more_novelty():
    outputs = torch.zeros(50, 3)
    assert (discounted_evidence_novelty(outputs, -torch.linspace(0, 60, 50)).rank.diff() > 0).all()


def test_agreement_needs_the_same_action_from_network_and_neighbours():
    outputs = torch.tensor([[5.0, -5.0], [5.0, -5.0]])
    weights = torch.tensor([[0.5, 0.0], [0.0, 0.5]])
    found = agreement_novelty(outputs, weights)
    by_hand = -(math.log1p(math.exp(5) * (0.5 + 1e-6)) + math.log1p(math.exp(-5) * 1e-6))
    assert found.rank[0].item() == pytest.approx(by_hand, rel=1e-6)
    assert found.rank[0] < found.rank[1]


def test_the_evidence_scale_is_the_one_with_the_least_log_loss():
    memory, seen = calibrated_memory(), held_out()
    weighed = weigh(memory, seen.features)
    said = Evidence(exp_evidence(seen.outputs), exp_evidence(-seen.outputs))
    losses = {}
    for scale in EVIDENCE_SCALES:
        louder = replace(memory, kernel=replace(memory.kernel, evidence_scale=scale))
        together = fused(said, memory_evidence(louder, weighed))
        p = ((together.positive + 1) / (together.positive + together.negative + 2)).double()
        losses[scale] = F.binary_cross_entropy(p, seen.labels.double()).item()
    found = best_evidence_scale(memory, weighed, network=said, labels=seen.labels)
    assert found == min(losses, key=losses.__getitem__)
    assert memory.kernel.evidence_scale == found


def test_evidence_lines_up_with_other_classes_by_name():
    evidence = Evidence(torch.tensor([[1.0, 2.0]]), torch.tensor([[3.0, 4.0]]))
    found = for_classes(evidence, ("a", "b"), ("b", "new", "a"))
    assert found.positive.tolist() == [[2.0, 0.0, 1.0]]
    assert found.negative.tolist() == [[4.0, 0.0, 3.0]]
    with pytest.raises(ShapeError, match="2 classes, 1 names"):
        for_classes(evidence, ("a",), ("a",))


def test_what_does_not_fit_is_refused():
    memory = calibrated_memory()
    weighed = weigh(memory, clustered(6, seed=3)[0])
    with pytest.raises(ShapeError, match="same actors and actions"):
        fused(network(6, classes=3), memory_evidence(memory, weighed))
    with pytest.raises(NotFitted, match="S must be set"):
        memory_evidence(replace(memory, kernel=replace(memory.kernel, evidence_scale=None)), weighed)
    with pytest.raises(ShapeError, match="labels must have one entry per actor and class"):
        unchecked(best_evidence_scale)(memory, weighed, network=network(6), labels=torch.zeros(6, 3))
    nobody = weigh(memory, torch.zeros(0, 12))
    with pytest.raises(TooFewActors, match="S must be chosen on held-out known actors; got none"):
        best_evidence_scale(memory, nobody, network=network(0), labels=torch.zeros(0, 4))
    with pytest.raises(ShapeError, match="neighbours must be entries of this memory of 3"):
        class_weights(hand_memory(), weighed)


def test_reasons_say_who_was_near_what_they_did_and_where():
    memory = hand_memory()
    (found,) = reasons(memory, weigh(memory, torch.tensor([[0.0, 2.0, 0.1]])))
    first = found[0]
    assert (first.video, first.time_s) == ("v1", 1.0)
    assert first.box_xyxy_unit == (0.125, 0.25, 0.5, 0.75)
    assert first.actions == {"a": 0.5, "b": 0.5}
    assert found[0].distance < found[1].distance
    assert found[1].actions == {"b": 1.0}
    assert len(reasons(memory, weigh(memory, torch.eye(3)), at_most=1)[0]) == 1
    assert reasons(without_entries(memory), weigh(without_entries(memory), torch.eye(3))) == [[], [], []]
