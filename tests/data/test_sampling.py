"""Which clip comes when follows from seed and epoch; ranks share batches without doubling or losing any."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mule.core.errors import RangeError
from mule.data.batches.batches import ClipSampler, class_balanced_weights


def on_ranks(num_ranks, epoch=0, **settings):
    """The batches of every rank."""
    return [
        list(ClipSampler(rank=rank, num_ranks=num_ranks, **settings).batches(epoch))
        for rank in range(num_ranks)
    ]


def global_batches(per_rank):
    """Each global batch put together again by the numbers of its draws."""
    batches = []
    for share in zip(*per_rank, strict=True):
        drawn = {d: p for order in share for d, p in zip(order.draws, order.positions, strict=True)}
        assert len(drawn) == sum(len(order.draws) for order in share)
        batches.append([drawn[draw] for draw in sorted(drawn)])
    return batches


def test_no_clips_no_batches():
    sampler = ClipSampler(0, 4)
    assert (sampler.num_batches, sampler.num_own_clips, list(sampler.batches(0))) == (0, 0, [])


@given(st.integers(0, 40), st.integers(3, 9), st.integers(0, 3), st.booleans())
def test_ranks_share_every_global_batch_without_doubling_or_losing_any(num_clips, size, epoch, drops_last):
    settings = {"num_clips": num_clips, "batch_clips": size, "seed": 7, "drops_last": drops_last}
    alone = global_batches(on_ranks(1, epoch, **settings))
    seen = [position for batch in alone for position in batch]
    num_seen = num_clips - num_clips % size if drops_last else num_clips
    assert len(seen) == len(set(seen)) == num_seen
    for num_ranks in (2, 3):
        shares = on_ranks(num_ranks, epoch, **settings)
        assert global_batches(shares) == alone
        assert {len(batches) for batches in shares} == {len(alone)}
        for rank, batches in enumerate(shares):
            sampler = ClipSampler(rank=rank, num_ranks=num_ranks, **settings)
            assert sampler.num_own_clips == sum(len(order.positions) for order in batches)
            assert sampler.num_batches == len(batches)


def test_a_rank_that_finds_nothing_in_the_last_batch_gets_an_empty_one():
    shares = on_ranks(3, num_clips=7, batch_clips=6)
    assert [len(batches[-1].positions) for batches in shares] == [1, 0, 0]
    assert [len(batches) for batches in on_ranks(3, num_clips=7, batch_clips=6, drops_last=True)] == [1, 1, 1]


def test_the_order_follows_from_seed_and_epoch_alone():
    orders = {
        (seed, epoch): ClipSampler(50, 4, seed=seed).order(epoch) for seed in (0, 1) for epoch in (0, 1)
    }
    assert len({tuple(order) for order in orders.values()}) == 4
    for (seed, epoch), order in orders.items():
        assert np.array_equal(order, ClipSampler(50, 9, seed=seed, rank=1, num_ranks=2).order(epoch))
        assert sorted(order) == list(range(50))


def test_unshuffled_the_order_is_that_of_the_data_set():
    sampler = ClipSampler(5, 2, is_shuffled=False)
    assert [order.positions for order in sampler.batches(3)] == [(0, 1), (2, 3), (4,)]


@pytest.mark.parametrize("first", range(6))
def test_from_any_batch_on_come_exactly_the_remaining_ones(first):
    sampler = ClipSampler(23, 5, seed=3)
    assert list(sampler.batches(2, first=first)) == list(sampler.batches(2))[first:]


def test_every_draw_has_a_seed_of_its_own():
    sampler = ClipSampler(10, 2, seed=1)
    seeds = {(e, d): sampler.draw_seed(e, d) for e in range(5) for d in range(200)}
    assert len(set(seeds.values())) == len(seeds)
    assert ClipSampler(99, 3, seed=1, rank=1, num_ranks=2).draw_seed(4, 7) == seeds[4, 7]
    assert ClipSampler(10, 2, seed=2).draw_seed(4, 7) != seeds[4, 7]


def slow_weights(labels, clip_index, num_clips):
    """The stated rule, actor by actor."""
    weights = []
    for clip in range(num_clips):
        actors = [0.0]
        for actor in np.flatnonzero(clip_index == clip):
            does = np.flatnonzero(labels[actor])
            actors.append(sum(1 / labels[:, c].sum() for c in does) / max(len(does), 1))
        weights.append(max(actors))
    return np.array(weights) / sum(weights)


@pytest.mark.parametrize("seed", range(5))
def test_balanced_weights_follow_their_rule(seed):
    generator = np.random.default_rng(seed)
    labels = generator.random((30, 5)) < [0.6, 0.3, 0.1, 0.05, 0.0]
    labels[0, 0] = True
    clip_index = generator.integers(0, 12, 30)
    weights = class_balanced_weights(labels, clip_index, num_clips=14)
    np.testing.assert_allclose(weights, slow_weights(labels, clip_index, 14), rtol=1e-12)
    assert weights[12] == weights[13] == 0


def test_with_one_label_per_clip_every_class_is_drawn_equally_often():
    counts = [900, 90, 10]
    labels = np.repeat(np.eye(3, dtype=bool), counts, axis=0)
    weights = class_balanced_weights(labels, np.arange(1000), num_clips=1000)
    np.testing.assert_allclose([weights[labels[:, c]].sum() for c in range(3)], 1 / 3)
    drawn = np.concatenate([ClipSampler(1000, 8, weights=weights).order(epoch) for epoch in range(3)])
    shares = labels[drawn].mean(axis=0)
    assert np.abs(shares - 1 / 3).max() < 4 * np.sqrt(2 / 9 / 3000)  # four standard errors


def test_clips_that_weigh_nothing_are_never_drawn_and_an_epoch_keeps_its_length():
    order = ClipSampler(6, 2, weights=np.array([0.0, 1.0, 0.0, 1.0, 1.0, 0.0])).order(0)
    assert len(order) == 6
    assert set(order.tolist()) <= {1, 3, 4}


def test_ranks_do_not_count_among_what_decides_the_batches():
    weights = np.ones(9)
    settings = ClipSampler(9, 3, weights=weights).settings()
    assert settings == ClipSampler(9, 3, weights=weights.copy(), rank=1, num_ranks=2).settings()
    assert settings != ClipSampler(9, 3).settings()
    assert settings != ClipSampler(9, 3, weights=2 * weights).settings()


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"num_clips": -1}, "must not be below zero"),
        ({"seed": -1}, "must not be below zero"),
        ({"rank": 2, "num_ranks": 2}, "rank 2 of 2"),
        ({"num_ranks": 5}, "must be at least 5, one for each; got 4"),
        ({"weights": np.ones(3)}, "weights must be 8 numbers"),
        ({"weights": np.zeros(8)}, "not all zero"),
        ({"weights": np.full(8, np.nan)}, "weights must be 8 numbers"),
        ({"weights": np.ones(8), "is_shuffled": False}, "weights need random draws"),
    ],
)
def test_settings_that_mean_nothing_are_refused(settings, message):
    with pytest.raises(RangeError, match=message):
        ClipSampler(**({"num_clips": 8, "batch_clips": 4} | settings))


def test_nothing_can_be_balanced_where_nobody_does_anything():
    with pytest.raises(RangeError, match="none of 3 actors in 2 clips"):
        class_balanced_weights(np.zeros((3, 2), bool), np.array([0, 0, 1]), num_clips=2)
