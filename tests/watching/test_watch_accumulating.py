"""Looks along a track: a long look is surer than a glance, and nothing grows with time."""

from dataclasses import replace

import pytest
import torch

from mule.core.errors import RangeError
from mule.core.records import Evidence
from mule.evidence.fusion import fused_evidence, look_sums
from mule.evidence.head import opinion_from
from mule.novelty.combining import folds_of
from mule.watching.engine.accumulating import TrackLooks, conflict, packed, unpacked
from mule.watching.engine.judging import Judgements
from mule.watching.engine.usual import UsualNovelty

CLASSES = 3


@pytest.fixture(scope="module")
def usual():
    ranks = torch.randn(60, 1, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    return UsualNovelty(ranks, folds_of(torch.arange(60)), torch.full((60,), -1))


def looks(count, *, seed=0, scale=3.0):
    draw = torch.Generator().manual_seed(seed)
    network, together = (
        Evidence(
            scale * torch.rand(count, CLASSES, generator=draw),
            scale * torch.rand(count, CLASSES, generator=draw),
        )
        for _ in range(2)
    )
    return Judgements(
        network,
        together,
        torch.rand(count, generator=draw).double(),
        -torch.rand(count, generator=draw).double(),
        torch.ones(count, dtype=torch.int64),
    )


def added(track_looks, ids, rows, time_s):
    return track_looks.add(ids, rows, key_time_s=time_s, forget_after_s=10.0)


def test_nobody_is_an_ordinary_scene(usual):
    so_far = added(TrackLooks(usual, CLASSES), [], looks(0), 0.0)
    assert so_far.together.num_actors == 0
    assert len(so_far.rank) == 0


def test_one_look_is_itself(usual):
    rows = looks(2)
    so_far = added(TrackLooks(usual, CLASSES), [3, 7], rows, 0.0)
    torch.testing.assert_close(so_far.together.positive.float(), rows.together.positive)
    torch.testing.assert_close(so_far.network.negative.float(), rows.network.negative)
    assert torch.equal(so_far.rank, rows.rank)
    assert so_far.num_looks.tolist() == [1, 1]


def test_a_longer_look_lowers_uncertainty(usual):
    track_looks, before = TrackLooks(usual, CLASSES, most_looks=8), torch.ones(1, CLASSES)
    for number in range(8):
        so_far = added(track_looks, [0], looks(1, seed=1), float(number))
        uncertainty = opinion_from(so_far.together).uncertainty
        assert (uncertainty < before).all()
        before = uncertainty


def test_the_last_looks_are_fused_by_the_rule_of_evidence(usual):
    track_looks = TrackLooks(usual, CLASSES, most_looks=3)
    rows = [looks(2, seed=seed, scale=0.5) for seed in range(5)]  # too unsure to contradict each other
    so_far = [added(track_looks, [4, 9], each, float(at)) for at, each in enumerate(rows)][-1]
    sums = look_sums(rows[2].together) + look_sums(rows[3].together) + look_sums(rows[4].together)
    expected = fused_evidence(sums)
    torch.testing.assert_close(so_far.together.positive.float(), expected.positive)
    torch.testing.assert_close(so_far.together.negative.float(), expected.negative)
    mean = torch.stack([each.rank for each in rows[2:]]).mean(dim=0)
    torch.testing.assert_close(so_far.rank, (mean - 1).clamp(min=0))
    assert so_far.num_looks.tolist() == [3, 3]


def sure(action):
    """A look that is sure of one action and against the others."""
    at = torch.arange(CLASSES) == action
    evidence = Evidence(torch.where(at, 50.0, 0.1)[None], torch.where(at, 0.1, 50.0)[None])
    return Judgements(
        evidence, evidence, torch.tensor([2.0]).double(), torch.zeros(1).double(), torch.ones(1).long()
    )


def test_a_look_that_contradicts_what_was_held_starts_over(usual):
    track_looks = TrackLooks(usual, CLASSES)
    counts = []
    for number, action in enumerate([0, 0, 0, 2, 2, 1]):
        so_far = added(track_looks, [0], sure(action), float(number))
        counts.append(int(so_far.num_looks))
        assert int(so_far.together.positive.argmax()) == action
    assert counts == [1, 2, 3, 1, 2, 1]


def test_how_many_looks_novelty_rests_on_depends_on_time_alone(usual):
    """Every look contradicts the one before; novelty is still that of the last four."""
    track_looks, ranks = TrackLooks(usual, CLASSES), [5.0, 3.0, 4.0, 2.5, 6.0, 1.5]
    for number, rank in enumerate(ranks):
        row = sure(number % 2)
        row = replace(row, rank=torch.tensor([rank]).double())
        so_far = added(track_looks, [0], row, float(number))
        last = torch.tensor(ranks[max(0, number - 3) : number + 1]).double()
        assert torch.equal(so_far.rank, usual.of_looks(last.mean()[None], torch.tensor([len(last)])))
        assert so_far.num_looks.tolist() == [1]


def test_an_unsure_look_contradicts_nobody(usual):
    track_looks = TrackLooks(usual, CLASSES)
    added(track_looks, [0], sure(0), 0.0)
    so_far = added(track_looks, [0], looks(1, scale=0.01), 1.0)
    assert so_far.num_looks.tolist() == [2]
    assert int(so_far.together.positive.argmax()) == 0


@pytest.mark.parametrize(
    ("first", "second", "expected"),
    [((8.0, 0.0), (8.0, 0.0), 0.0), ((98.0, 0.0), (0.0, 98.0), 0.98**3), ((98.0, 0.0), (0.0, 0.0), 0.0)],
)
def test_conflict_is_the_difference_of_sure_probabilities(first, second, expected):
    held, seen = (
        opinion_from(Evidence(torch.tensor([[each[0]]]), torch.tensor([[each[1]]])))
        for each in (first, second)
    )
    assert conflict(held, seen).item() == pytest.approx(expected, abs=1e-6)


def test_tracks_that_are_gone_are_forgotten(usual):
    track_looks = TrackLooks(usual, CLASSES)
    for number in range(50):
        added(track_looks, [number], looks(1), float(number))
    assert len(track_looks.state["track_id"]) <= 11


def test_what_was_restored_goes_on_the_same(usual):
    first, second = TrackLooks(usual, CLASSES), TrackLooks(usual, CLASSES)
    for number in range(3):
        added(first, [0, number + 1], looks(2, seed=number, scale=0.5), float(number))
    second.restore(first.state)
    last = looks(2, seed=9, scale=0.5)
    one, other = added(first, [0, 2], last, 3.0), added(second, [0, 2], last, 3.0)
    assert torch.equal(one.together.positive, other.together.positive)
    assert torch.equal(one.rank, other.rank)
    assert one.num_looks.tolist() == other.num_looks.tolist() == [4, 2]


def test_packing_loses_nothing():
    rows = looks(3)
    back = unpacked(packed(rows), CLASSES)
    assert torch.equal(back.network.positive.float(), rows.network.positive)
    assert torch.equal(back.together.negative.float(), rows.together.negative)
    assert torch.equal(back.log_trust, rows.log_trust)


def test_at_least_one_look_is_kept(usual):
    with pytest.raises(RangeError, match="most_looks"):
        TrackLooks(usual, CLASSES, most_looks=0)


def some_idle(rows, *shares):
    return replace(rows, idle=torch.tensor(shares, dtype=torch.float64))


def test_an_idle_look_says_nothing_about_the_act(usual):
    """Idle looks between others leave evidence and novelty as they would be without them."""
    with_idle, without = TrackLooks(usual, CLASSES), TrackLooks(usual, CLASSES)
    rows = [looks(1, seed=seed, scale=0.5) for seed in range(4)]
    for at, row in enumerate(rows):
        expected = added(without, [0], some_idle(row, 0.1), float(at))
        got = added(with_idle, [0], some_idle(row, 0.1), 2.0 * at)
        torch.testing.assert_close(
            (got.rank, got.together.positive), (expected.rank, expected.together.positive)
        )
        between = looks(1, seed=50 + at)
        alone = added(with_idle, [0], some_idle(between, 0.9), 2.0 * at + 1)
        torch.testing.assert_close(alone.rank, between.rank)
        assert alone.num_looks.tolist() == [1]


def test_two_idle_looks_end_an_act(usual):
    track_looks = TrackLooks(usual, CLASSES)
    for at in range(3):
        added(track_looks, [0], some_idle(looks(1, seed=at), 0.0), float(at))
    for at in (3, 4):
        added(track_looks, [0], some_idle(looks(1, seed=at), 1.0), float(at))
    again = TrackLooks(usual, CLASSES)
    again.restore(track_looks.state)
    fresh = looks(1, seed=9)
    for each in (track_looks, again):
        so_far = added(each, [0], some_idle(fresh, 0.0), 5.0)
        torch.testing.assert_close(so_far.rank, fresh.rank)
        assert so_far.num_looks.tolist() == [1]
