import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from safetensors.torch import load_file, save_file
from strategies import unchecked

from mule.core.errors import NotFinite, NotFitted, RangeError, ShapeError, TooFewActors
from mule.novelty.calibration import CalibratedScore, conformal_p_value, continuous_p_value
from mule.novelty.odds import in_words


def normal(*shape, seed=0, dtype=torch.float64):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=dtype)


def fitted_on(held_out):
    score = CalibratedScore()
    score.fit(held_out)
    return score


def test_no_actors_have_no_p_values():
    calibrated = fitted_on(normal(50))(torch.zeros(0))
    assert calibrated.rank.shape == calibrated.conformal_p_value.shape == (0,)
    assert calibrated.in_words() == []


@given(st.lists(st.integers(-3, 3), min_size=1, max_size=30), st.lists(st.integers(-4, 4), max_size=10))
def test_the_conformal_p_value_counts_the_actor_and_all_that_are_no_less_novel(held_out, novelty):
    expected = [(1 + sum(h >= s for h in held_out)) / (len(held_out) + 1) for s in novelty]
    ascending = torch.tensor(sorted(held_out), dtype=torch.float64)
    got = conformal_p_value(torch.tensor(novelty, dtype=torch.float32), ascending)
    torch.testing.assert_close(got, torch.tensor(expected, dtype=torch.float64))


@pytest.mark.parametrize("num_values", [2, 5, 40, None], ids=["two values", "five", "forty", "no ties"])
def test_exchangeable_actors_get_small_p_values_no_more_often_than_stated(num_values):
    """P(p ≤ a) ≤ a for every a. 20,000 draws of 19 held-out actors and one more; four standard errors of room."""
    actors = torch.rand(20_000, 20, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    if num_values:
        actors = (actors * num_values).floor()
    held_out, last = actors[:, :-1], actors[:, -1:]
    p_values = (1 + (held_out >= last).sum(dim=1)) / 20
    some = torch.stack(
        [
            conformal_p_value(new, old.sort().values)[0]
            for old, new in zip(held_out[:50], last[:50], strict=True)
        ]
    )
    torch.testing.assert_close(some.float(), p_values[:50])
    for alarm_rate in torch.arange(1, 20) / 20:
        share = (p_values <= alarm_rate + 1e-6).double().mean().item()
        room = 4 * math.sqrt(alarm_rate * (1 - alarm_rate) / 20_000)
        assert share <= alarm_rate + room
        if num_values is None:
            assert share >= alarm_rate - room  # exact where nothing ties


@given(
    st.lists(st.integers(-3, 3), min_size=2, max_size=30).filter(lambda values: len(set(values)) > 1),
    st.lists(st.floats(-9, 9, width=16), max_size=10),
)
def test_the_continuous_p_value_lies_less_than_one_place_above_the_conformal_one(held_out, novelty):
    """Never below it, so P(p ≤ a) ≤ a follows for the one from the other."""
    ascending = torch.tensor(sorted(held_out), dtype=torch.float64)
    scores = torch.tensor(novelty, dtype=torch.float64)
    beyond = continuous_p_value(scores, ascending) - conformal_p_value(scores, ascending)
    assert (beyond >= 0).all()
    assert (beyond < 1 / (len(held_out) + 1)).all()


@pytest.mark.parametrize("num_values", [5, 40, None], ids=["five values", "forty", "no ties"])
def test_exchangeable_actors_get_small_continuous_p_values_no_more_often_than_stated(num_values):
    """P(p ≤ a) ≤ a, and at least a − 1/(n + 1) where nothing ties: 2,000 draws of 19 actors and one more."""
    actors = torch.rand(2_000, 20, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    if num_values:
        actors = (actors * num_values).floor()
    p_values = torch.cat([continuous_p_value(each[-1:], each[:-1].sort().values) for each in actors])
    for alarm_rate in torch.arange(1, 20) / 20 - 0.01:
        share = (p_values <= alarm_rate).double().mean().item()
        room = 4 * math.sqrt(alarm_rate * (1 - alarm_rate) / 2_000)
        assert share <= alarm_rate + room
        if num_values is None:
            assert share >= alarm_rate - 1 / 20 - room


@given(
    st.lists(st.integers(-5, 5), min_size=20, max_size=60).filter(lambda values: len(set(values)) > 1),
    st.lists(st.floats(-20, 20, width=16), min_size=2, max_size=20, unique=True),
)
def test_actors_tie_only_where_their_scores_do(held_out, novelty):
    """Half-precision scores, so that no two differ by less than double precision can tell after division."""
    score = fitted_on(torch.tensor(held_out, dtype=torch.float64))
    apart = torch.tensor(sorted(novelty), dtype=torch.float64)
    apart = apart[torch.cat([torch.tensor([True]), apart.diff() > 1e-6])]
    assert (score(apart).rank.diff() > 0).all()
    assert torch.equal(score(apart[:1].repeat(2)).rank.diff(), torch.zeros(1, dtype=torch.float64))


def test_two_scores_on_few_held_out_actors_hardly_tie_any_more():
    """With rank p-values alone, sums of two of them tie for most of 400 actors, here against 40 held-out ones."""
    held_out, actors = normal(40, 2), normal(400, 2, seed=1)
    scores = [fitted_on(held_out[:, at]) for at in (0, 1)]
    total = torch.stack([score(actors[:, at]).rank for at, score in enumerate(scores)]).sum(dim=0)
    conformal = [score(actors[:, at]).conformal_p_value for at, score in enumerate(scores)]
    stepped = torch.log(conformal[0]) + torch.log(conformal[1])
    assert len(total.unique()) == 400
    assert len(stepped.unique()) < 360


def test_at_held_out_actors_up_to_the_95th_percentile_the_p_value_is_the_conformal_one():
    held_out = normal(200)
    score = fitted_on(held_out)
    below = held_out[held_out <= score.tail_start]
    assert len(below) == 190
    calibrated = score(below)
    torch.testing.assert_close(calibrated.p_value, calibrated.conformal_p_value)


def test_beyond_the_95th_percentile_the_tail_is_exponential_with_the_mean_excess():
    held_out = torch.arange(100.0)
    score = fitted_on(held_out)  # q = 94, five above it, mean excess 3
    calibrated = score(torch.tensor([95.0, 97.0, 500.0]))
    expected = [6 / 101 * math.exp(-excess / 3) for excess in (1, 3, 406)]
    assert calibrated.p_value.tolist() == pytest.approx(expected, rel=1e-12)


def test_actors_beyond_every_held_out_one_still_differ_and_never_overflow():
    held_out = normal(100)
    calibrated = fitted_on(held_out)(held_out.max() + torch.tensor([0.1, 1.0, 1e3, 1e6]))
    assert (calibrated.rank.diff() > 0).all()
    assert torch.isfinite(calibrated.rank).all()
    assert calibrated.conformal_p_value.tolist() == [1 / 101] * 4


@given(
    st.lists(st.integers(-5, 5), min_size=20, max_size=60).filter(lambda values: len(set(values)) > 1),
    st.lists(st.floats(-10, 10), min_size=2, max_size=10),
)
def test_more_novel_actors_never_get_larger_p_values_whatever_ties(held_out, novelty):
    score = fitted_on(torch.tensor(held_out, dtype=torch.float64))
    calibrated = score(torch.tensor(sorted(novelty), dtype=torch.float64))
    assert (calibrated.rank.diff() >= 0).all()
    assert (calibrated.rank > -math.log1p(1 / (len(held_out) + 1)) - 1e-12).all()
    assert (calibrated.p_value <= 1).all()
    assert (calibrated.conformal_p_value.diff() <= 0).all()


def test_the_tailed_p_value_is_close_to_uniform_on_new_known_actors():
    """An exponential score has an exponential tail: 5 % and 1 % are met to the accuracy of 2,000 held-out actors."""
    draws = torch.rand(102_000, generator=torch.Generator().manual_seed(2), dtype=torch.float64)
    known = -torch.log1p(-draws)
    p_values = fitted_on(known[:2000])(known[2000:]).p_value
    for alarm_rate, room in ((0.5, 0.04), (0.05, 0.015), (0.01, 0.005), (0.001, 0.001)):
        assert (p_values <= alarm_rate).double().mean().item() == pytest.approx(alarm_rate, abs=room)


def test_the_same_actor_ties_with_itself_in_single_precision():
    held_out = normal(64, dtype=torch.float32)
    calibrated = fitted_on(held_out)(held_out)
    assert calibrated.conformal_p_value.sort().values.tolist() == [(k + 1) / 65 for k in range(1, 65)]


def test_novelty_is_large_where_the_p_value_is_small():
    calibrated = fitted_on(normal(100))(torch.tensor([-3.0, 0.0, 3.0, 9.0]))
    torch.testing.assert_close(calibrated.novelty.value, 1 - calibrated.p_value)
    assert calibrated.novelty.rank is calibrated.rank


def test_what_was_learnt_is_saved_with_the_state_and_loads_into_one_that_saw_nobody(tmp_path):
    score = fitted_on(normal(77))
    save_file(score.state_dict(), tmp_path / "score.safetensors")
    restored = CalibratedScore()
    restored.load_state_dict(load_file(tmp_path / "score.safetensors"))
    novelty = normal(30, seed=1) * 3
    assert torch.equal(restored(novelty).rank, score(novelty).rank)
    assert restored(novelty).num_held_out == 77


@pytest.mark.parametrize(
    ("p_value", "num_held_out", "words"),
    [
        (1.0, 1000, "most known actors look at least this strange"),
        (0.7, 1000, "most known actors look at least this strange"),
        (0.5, 1000, "1 in 2 known actors looks this strange"),
        (0.11, 1000, "1 in 9 known actors looks this strange"),
        (0.1, 1000, "only 1 in 10 known actors looks this strange"),
        (0.05, 1000, "only 1 in 20 known actors looks this strange"),
        (1 / 37, 1000, "only 1 in 40 known actors looks this strange"),
        (1 / 417, 1000, "only 1 in 400 known actors looks this strange"),
        (1 / 1001, 1000, "only 1 in 1,000 known actors looks this strange"),
        (1 / 1002, 1000, "fewer than 1 in 1,000 known actors look this strange"),
        (1 / 400, 300, "fewer than 1 in 300 known actors look this strange"),
        (1 / 400, 350, "fewer than 1 in 300 known actors look this strange"),
        (1 / 9_999, 10**6, "only 1 in 10,000 known actors looks this strange"),
        (0.0, 10**6, "fewer than 1 in 10,000 known actors look this strange"),
    ],
)
def test_words_round_and_never_claim_more_than_was_seen(p_value, num_held_out, words):
    assert in_words(p_value, num_held_out=num_held_out) == words


@given(st.floats(1e-4, 0.1))
def test_rounded_odds_are_within_a_fifth(p_value):
    words = in_words(p_value, num_held_out=10**6)
    odds = float(words.split(" in ")[1].split()[0].replace(",", ""))
    assert abs(math.log(odds * p_value)) < math.log(1.2)


def test_words_of_a_calibrated_actor_rest_on_the_held_out_actors():
    assert fitted_on(torch.arange(400.0))(torch.tensor([1e6])).in_words() == [
        "fewer than 1 in 400 known actors look this strange"
    ]


def test_what_cannot_be_calibrated_is_refused():
    with pytest.raises(TooFewActors, match="at least 20 held-out known actors; got 19"):
        fitted_on(normal(19))
    with pytest.raises(RangeError, match="must differ in novelty; all 30 have 0"):
        fitted_on(torch.zeros(30))
    with pytest.raises(NotFinite, match="1 of 30 are not, the first is nan at actor 3"):
        fitted_on(torch.arange(30.0).where(torch.arange(30) != 3, torch.nan))
    with pytest.raises(ShapeError, match=r"one floating-point number per actor; got \(30, 1\)"):
        unchecked(CalibratedScore.fit)(CalibratedScore(), torch.zeros(30, 1))
    with pytest.raises(NotFitted, match="CalibratedScore must be fitted on held-out known actors"):
        CalibratedScore()(torch.zeros(3))
    with pytest.raises(NotFinite, match="the first is inf at actor 0"):
        fitted_on(normal(30))(torch.tensor([math.inf]))
    with pytest.raises(RangeError, match=r"between 0 and 1; got 1\.5"):
        in_words(1.5, num_held_out=10)
    with pytest.raises(RangeError, match="num_held_out must be at least 1"):
        in_words(0.5, num_held_out=0)
