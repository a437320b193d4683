"""NeighbourKernel weights, trust and vacuity, on cases worked by hand and in a slow loop."""

import math
from dataclasses import replace

import pytest
import torch
from remembered_worlds import MODEL, calibrated_memory, clustered, held_out, places, small_memory

from mule.core.errors import NotFitted, RangeError, TooFewActors
from mule.memory.memory import EvidenceMemory, NeighbourKernel, unit_features
from mule.memory.search import entry_scales, memory_vacuity_novelty, reach_of, weigh


def two_entries(reach=2.0):
    """At right angles, with scales 1/2 and 1."""
    return EvidenceMemory(
        features=torch.eye(2),
        labels=torch.eye(2),
        counts=torch.ones(2),
        scales=torch.tensor([0.5, 1.0]),
        places=places(2),
        class_names=("a", "b"),
        kernel=NeighbourKernel(2, 0.8, reach, 10.0),
        model=MODEL,
    )


def test_nobody_is_trusted_by_a_memory_without_entries():
    memory = two_entries()
    none = torch.arange(0)
    empty = replace(
        memory,
        features=memory.features[none],
        labels=memory.labels[none],
        counts=memory.counts[none],
        scales=memory.scales[none],
        places=memory.places[none],
    )
    weighed = weigh(empty, torch.eye(2))
    assert weighed.trust.tolist() == [0.0, 0.0]
    assert weigh(memory, torch.zeros(0, 2)).trust.shape == (0,)


def test_weights_are_the_formula_on_a_case_worked_by_hand():
    weighed = weigh(two_entries(), torch.tensor([[3.0, 0.0]]))
    # d² is 0 to the first and 2 to the second; the bandwidth of the second is 2 · 1.0 · 0.8
    expected = [1.0, math.exp(-2 / 1.6)]
    assert weighed.weight[0].tolist() == pytest.approx(expected, rel=1e-6)
    assert weighed.trust.item() == pytest.approx(sum(expected) / 2, rel=1e-6)
    novelty = memory_vacuity_novelty(weighed)
    assert novelty.rank.item() == pytest.approx(-math.log(sum(expected) / 2), rel=1e-6)
    assert novelty.value.item() == pytest.approx(1 - sum(expected) / 2, rel=1e-6)


def test_scales_reach_and_trust_are_those_of_a_slow_loop():
    memory, seen = small_memory(), held_out()
    x, groups, k = memory.features.double(), memory.places.group_index, 5
    scales = []
    for i in range(len(x)):
        others = [(x[i] - x[j]).norm().item() for j in range(len(x)) if groups[j] != groups[i]]
        scales.append(sorted(others)[k - 1])
    assert memory.scales.tolist() == pytest.approx(scales, rel=1e-5)
    typical = sorted(scales)[(len(scales) - 1) // 2]
    assert memory.kernel.typical_scale == pytest.approx(typical, rel=1e-5)
    queries = unit_features(seen.features).double()
    near = [sorted(((q - x[j]).norm().item(), j) for j in range(len(x)))[:k] for q in queries]
    ratios = sorted(d * d / (scales[j] * typical) for each in near for d, j in each)
    reach = ratios[(len(ratios) - 1) // 2]
    assert reach_of(memory, seen.features) == pytest.approx(reach, rel=1e-4)
    ready = replace(memory, kernel=replace(memory.kernel, reach=reach))
    trust = [sum(math.exp(-d * d / (reach * scales[j] * typical)) for d, j in each) / k for each in near]
    assert weigh(ready, seen.features).trust.tolist() == pytest.approx(trust, rel=1e-4)


def test_trust_lies_above_zero_and_up_to_one():
    weighed = weigh(calibrated_memory(), torch.randn(200, 12, generator=torch.Generator().manual_seed(3)))
    assert (weighed.trust > 0).all()
    assert (weighed.trust <= 1).all()
    assert (weighed.weight <= 1).all()


def test_the_farther_an_actor_the_less_trust_and_never_a_tie():
    memory = replace(two_entries(), kernel=NeighbourKernel(2, 0.8, 0.001, 10.0))
    angles = torch.linspace(torch.pi, 1.25 * torch.pi, 20)
    weighed = weigh(memory, torch.stack([angles.cos(), angles.sin()], dim=1))
    assert weighed.trust.max().item() == 0.0  # too small for a plain number
    assert (memory_vacuity_novelty(weighed).rank.diff() > 0).all()


def test_order_of_entries_and_length_of_features_change_nothing():
    memory, queries = calibrated_memory(), clustered(30, seed=5)[0]
    order = torch.randperm(len(memory), generator=torch.Generator().manual_seed(0))
    shuffled = replace(
        memory,
        features=memory.features[order],
        labels=memory.labels[order],
        counts=memory.counts[order],
        scales=memory.scales[order],
        places=memory.places[order],
    )
    expected = weigh(memory, queries).log_trust
    torch.testing.assert_close(weigh(shuffled, queries).log_trust, expected)
    torch.testing.assert_close(weigh(memory, 1e20 * queries).log_trust, expected, rtol=1e-4, atol=1e-5)


def test_what_cannot_be_measured_is_refused():
    memory = small_memory()
    with pytest.raises(NotFitted, match="ρ must be set"):
        weigh(memory, memory.features)
    with pytest.raises(TooFewActors, match="held-out known actors; got none"):
        reach_of(memory, memory.features[:0])
    with pytest.raises(TooFewActors, match="must have 60 neighbours from other clips"):
        entry_scales(memory.features, memory.places.group_index, num_neighbours=60)
    with pytest.raises(RangeError, match="must differ from its k-th neighbour, k = 1; 3 do not"):
        entry_scales(torch.ones(3, 1), torch.arange(3), num_neighbours=1)
    with pytest.raises(RangeError, match="num_neighbours must be at least 1"):
        NeighbourKernel(0, 1.0)
    with pytest.raises(RangeError, match="reach must be a finite number above zero; got nan"):
        NeighbourKernel(1, 1.0, math.nan)
