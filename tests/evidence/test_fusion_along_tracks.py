import math
from functools import reduce

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from strategies import evidences, unchecked

from mule.core.errors import RangeError, ShapeError, TooFewActors
from mule.core.records import Evidence
from mule.evidence.fusion import (
    LookSums,
    along_tracks,
    fused_evidence,
    is_among_first_looks,
    look_sums,
    sums_along_tracks,
)
from mule.evidence.head import opinion_from

correlations = st.sampled_from([0.0, 0.3, 0.5, 1.0])


def looks_at(*looks):
    """Evidence for and against one class, one pair per look."""
    pairs = torch.tensor(looks, dtype=torch.float64)
    return [Evidence(positive=pair[None, :1], negative=pair[None, 1:]) for pair in pairs]


def no_looks(num_actors, num_classes):
    return look_sums(Evidence(*torch.zeros(2, num_actors, num_classes)))


def fused(looks, correlation):
    return fused_evidence(reduce(LookSums.__add__, map(look_sums, looks)), correlation=correlation)


def numbers(evidence):
    return evidence.positive.item(), evidence.negative.item()


def test_no_looks_are_the_vacuous_opinion():
    opinion = opinion_from(fused_evidence(no_looks(2, 3)))
    assert opinion.uncertainty.tolist() == [[1.0] * 3] * 2
    assert fused_evidence(no_looks(0, 3)).num_actors == 0


@given(evidences(), correlations)
def test_one_look_is_itself(evidence, correlation):
    alone = fused_evidence(look_sums(evidence), correlation=correlation)
    torch.testing.assert_close(alone.positive, evidence.positive)
    torch.testing.assert_close(alone.negative, evidence.negative)


@given(evidences(), correlations, st.integers(1, 4))
def test_a_vacuous_look_changes_nothing(evidence, correlation, times):
    seen = look_sums(evidence) + look_sums(evidence)
    vacuous = no_looks(evidence.num_actors, evidence.num_classes)
    unchanged = reduce(LookSums.__add__, [vacuous] * times, seen)
    expected, got = (fused_evidence(sums, correlation=correlation) for sums in (seen, unchanged))
    assert torch.equal(expected.positive, got.positive)
    assert torch.equal(expected.negative, got.negative)


@pytest.mark.parametrize("first", [(3.0, 1.0), (0.2, 9.0), (50.0, 0.0)])
@pytest.mark.parametrize("second", [(1.0, 1.0), (0.5, 20.0)])
def test_without_correlation_it_is_cumulative_fusion_of_opinions(first, second):
    """Jøsang: b = (b₁u₂ + b₂u₁)/(u₁ + u₂ − u₁u₂), u = u₁u₂/(u₁ + u₂ − u₁u₂)."""
    looks = looks_at(first, second)
    one, two = map(opinion_from, looks)
    opinion = opinion_from(fused(looks, 0.0))
    joint = one.uncertainty + two.uncertainty - one.uncertainty * two.uncertainty
    belief = (one.belief * two.uncertainty + two.belief * one.uncertainty) / joint
    torch.testing.assert_close(opinion.belief, belief)
    torch.testing.assert_close(opinion.uncertainty, one.uncertainty * two.uncertainty / joint)


def test_fully_correlated_looks_of_equal_confidence_are_averaged():
    """Jøsang: b = (b₁u₂ + b₂u₁)/(u₁ + u₂), u = 2u₁u₂/(u₁ + u₂); with equal u both are means."""
    looks = looks_at((6.0, 2.0), (1.0, 7.0))
    one, two = map(opinion_from, looks)
    opinion = opinion_from(fused(looks, 1.0))
    torch.testing.assert_close(opinion.belief, (one.belief + two.belief) / 2)
    torch.testing.assert_close(opinion.uncertainty, one.uncertainty)


@pytest.mark.parametrize("correlation", [0.0, 0.2, 0.5, 1.0])
@pytest.mark.parametrize("count", [1, 2, 4, 8, 100])
def test_equal_looks_are_worth_the_effective_number_of_independent_ones(count, correlation):
    effective = count / (1 + (count - 1) * correlation)
    assert numbers(fused(looks_at(*[(3.0, 1.5)] * count), correlation)) == pytest.approx(
        (3.0 * effective, 1.5 * effective)
    )


@pytest.mark.parametrize("correlation", [0.0, 0.2, 0.5, 0.9])
def test_a_long_look_is_surer_than_a_glance_and_never_certain_if_looks_repeat(correlation):
    uncertainty = [
        opinion_from(fused(looks_at(*[(3.0, 1.5)] * count), correlation)).uncertainty.item()
        for count in (1, 2, 4, 8, 64)
    ]
    assert all(math.isfinite(u) for u in uncertainty)
    assert uncertainty == sorted(uncertainty, reverse=True)
    if correlation:
        assert uncertainty[-1] > 2 / (2 + 4.5 / correlation)


looks = st.lists(st.tuples(st.floats(0, 100), st.floats(0, 100)), min_size=2, max_size=5)


@given(looks, correlations, st.randoms(use_true_random=False))
def test_order_and_grouping_of_looks_do_not_matter(pairs, correlation, random):
    ordered = looks_at(*pairs)
    shuffled = random.sample(ordered, len(ordered))
    at = random.randrange(1, len(ordered))
    halves = [reduce(LookSums.__add__, map(look_sums, part)) for part in (shuffled[:at], shuffled[at:])]
    expected = numbers(fused(ordered, correlation))
    assert numbers(fused(shuffled, correlation)) == pytest.approx(expected)
    assert numbers(fused_evidence(halves[0] + halves[1], correlation=correlation)) == pytest.approx(expected)


@given(looks, correlations)
def test_fused_evidence_lies_between_the_mean_and_the_sum(pairs, correlation):
    positive, negative = numbers(fused(looks_at(*pairs), correlation))
    for value, sides in ((positive, [p for p, _ in pairs]), (negative, [n for _, n in pairs])):
        assert sum(sides) / len(sides) * (1 - 1e-9) <= value <= sum(sides) * (1 + 1e-9)


def test_running_and_batch_forms_agree():
    generator = torch.Generator().manual_seed(0)
    positive, negative = torch.rand(2, 40, 5, generator=generator, dtype=torch.float64) * 20
    track_index = torch.randint(0, 6, (40,), generator=generator)
    evidence = Evidence(positive=positive, negative=negative)
    batch = sums_along_tracks(evidence, track_index, num_tracks=7)
    running = [no_looks(1, 5) for _ in range(7)]
    for look, track in enumerate(track_index.tolist()):
        one = Evidence(positive=positive[look : look + 1], negative=negative[look : look + 1])
        running[track] = running[track] + look_sums(one)
    for track, sums in enumerate(running):
        expected, got = fused_evidence(sums), fused_evidence(batch)
        torch.testing.assert_close(got.positive[track], expected.positive[0], check_dtype=False)
        torch.testing.assert_close(got.negative[track], expected.negative[0], check_dtype=False)
    assert opinion_from(fused_evidence(batch)).uncertainty[6].tolist() == [1.0] * 5


def test_half_precision_looks_are_summed_in_single():
    one = Evidence(positive=torch.ones(1, 1).half(), negative=torch.zeros(1, 1).half())
    assert look_sums(one).positive.dtype == torch.float32


def test_rivals_get_the_mean_of_their_looks():
    logits = torch.tensor([[1.0, 2.0], [10.0, 20.0], [3.0, 4.0]])
    track_index = torch.tensor([0, 1, 0])
    assert along_tracks(logits, track_index, num_tracks=2).tolist() == [[2.0, 3.0], [10.0, 20.0]]
    assert along_tracks(logits[:, 0], track_index, num_tracks=2).tolist() == [2.0, 10.0]
    assert along_tracks(logits[:0], track_index[:0], num_tracks=0).shape == (0, 2)


@given(st.lists(st.integers(0, 4), max_size=30), st.integers(1, 8))
def test_first_looks_are_the_first_in_time_of_each_track(tracks, num_looks):
    expected = [tracks[:at].count(track) < num_looks for at, track in enumerate(tracks)]
    got = is_among_first_looks(torch.tensor(tracks, dtype=torch.int64), num_looks)
    assert got.tolist() == expected


def test_what_cannot_be_fused_is_refused():
    evidence = Evidence(positive=torch.ones(3, 2), negative=torch.ones(3, 2))
    with pytest.raises(RangeError, match=r"between 0 and 1; got 1\.5"):
        fused_evidence(look_sums(evidence), correlation=1.5)
    with pytest.raises(ShapeError, match="one entry per look, 3; got 2"):
        unchecked(sums_along_tracks)(evidence, torch.arange(2), num_tracks=2)
    with pytest.raises(RangeError, match="look 2 has -1"):
        sums_along_tracks(evidence, torch.tensor([0, 1, -1]), num_tracks=2)
    with pytest.raises(TooFewActors, match="track 1 of 3 has none"):
        along_tracks(torch.ones(3), torch.tensor([0, 2, 2]), num_tracks=3)
    with pytest.raises(RangeError, match="num_looks must be at least 1; got 0"):
        is_among_first_looks(torch.arange(3), 0)
