import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from mule.core.errors import NotFinite, RangeError, TooFewActors
from mule.novelty.calibration import chosen_threshold, conformal_p_value, promised_threshold, threshold_named
from mule.novelty.odds import promised_alarm_rate


def test_nobody_to_decide_on_is_no_decision():
    decision = promised_threshold(torch.arange(19.0), alarm_rate=0.05).decide(torch.zeros(0))
    assert decision.is_novel.shape == (0,)


@given(
    st.lists(st.integers(-5, 5), min_size=19, max_size=80),
    st.sampled_from([0.05, 0.1, 0.2, 0.29, 1 / 3, 0.5, 0.9]),
)
def test_a_promise_flags_exactly_whose_conformal_p_value_is_at_most_the_rate(held_out, alarm_rate):
    held_out = torch.tensor(held_out, dtype=torch.float64)
    novelty = torch.arange(-6, 7).double()
    is_novel = promised_threshold(held_out, alarm_rate=alarm_rate).decide(novelty).is_novel
    p_values = conformal_p_value(novelty, held_out.sort().values)
    assert torch.equal(is_novel, p_values <= alarm_rate)


@pytest.mark.parametrize("num_held_out", [19, 20, 39, 99, 100, 999])
def test_the_threshold_is_the_conformal_quantile(num_held_out):
    held_out = torch.arange(1.0, num_held_out + 1).flip(0)
    place = -(-(num_held_out + 1) * 95 // 100)  # ⌈(n + 1)·0.95⌉ in whole numbers
    assert promised_threshold(held_out, alarm_rate=0.05).novelty == place


@pytest.mark.parametrize("num_values", [3, 30, None], ids=["three values", "thirty", "no ties"])
@pytest.mark.parametrize("alarm_rate", [0.05, 0.2])
def test_known_actors_are_flagged_no_more_often_than_promised(num_values, alarm_rate):
    """300 draws of 50 held-out actors, 1,000 others each; four standard errors of the mean of the draws."""
    generator = torch.Generator().manual_seed(0)
    shares = []
    for _ in range(300):
        actors = torch.rand(1050, generator=generator, dtype=torch.float64)
        actors = (actors * num_values).floor() if num_values else actors
        decision = promised_threshold(actors[:50], alarm_rate=alarm_rate).decide(actors[50:])
        shares.append(decision.is_novel.double().mean())
    shares = torch.stack(shares)
    room = 4 * shares.std().item() / math.sqrt(300)
    exact = math.floor(alarm_rate * 51 + 1e-9) / 51
    assert shares.mean().item() <= exact + room
    if num_values is None:
        assert shares.mean().item() >= exact - room


@pytest.mark.parametrize(("alarm_rate", "fewest"), [(0.05, 19), (0.01, 99), (0.001, 999), (0.3, 3), (0.6, 1)])
def test_too_few_held_out_actors_for_the_rate_are_refused_by_number(alarm_rate, fewest):
    promised_threshold(torch.arange(float(fewest)), alarm_rate=alarm_rate)
    with pytest.raises(TooFewActors, match=f"at least {fewest} held-out known actors; got {fewest - 1}"):
        promised_threshold(torch.arange(float(fewest - 1)), alarm_rate=alarm_rate)


@pytest.mark.parametrize(
    ("name", "alarm_rate"),
    [("known-95", 0.05), ("known-99", 0.01), ("known-99.5", 0.005), ("known-99.9", 0.001), ("known-5", 0.95)],
)
def test_the_name_of_a_promise_is_the_share_that_passes(name, alarm_rate):
    assert promised_alarm_rate(name) == alarm_rate
    threshold = threshold_named(name, torch.arange(1000.0))
    assert threshold.alarm_rate == alarm_rate
    assert threshold.meaning == f"{name.removeprefix('known-')} % of known actors pass"
    assert threshold.decide(torch.tensor([-1.0, 1e4])).is_novel.tolist() == [False, True]


def test_a_chosen_value_says_what_it_did_to_held_out_actors_and_promises_nothing():
    threshold = threshold_named("89.5", torch.arange(1200.0) / 10)
    assert (threshold.novelty, threshold.is_promised) == (89.5, False)
    assert threshold.meaning == "74.67 % of 1,200 held-out known actors passed"
    decision = threshold.decide(torch.tensor([89.5, 89.6]))
    assert decision.is_novel.tolist() == [False, True]
    assert decision.meaning == threshold.meaning


@pytest.mark.parametrize("name", ["", "known", "known-0", "known-100", "known--5", "95", "known-95%"])
def test_other_names_are_no_promise(name):
    with pytest.raises(RangeError, match=r"such as known-95 or known-99\.5; got"):
        promised_alarm_rate(name)


def test_what_is_no_threshold_is_refused():
    held_out = torch.arange(100.0)
    with pytest.raises(RangeError, match=r"such as known-95 or a novelty such as 3\.2; got 'high'"):
        threshold_named("high", held_out)
    with pytest.raises(RangeError, match="must be finite; got nan"):
        threshold_named("nan", held_out)
    with pytest.raises(RangeError, match=r"must lie between 0 and 1; got 1\.0"):
        promised_threshold(held_out, alarm_rate=1.0)
    with pytest.raises(NotFinite, match="the first is nan at actor 0"):
        chosen_threshold(held_out, novelty=3.0).decide(torch.tensor([math.nan]))
    with pytest.raises(TooFewActors, match="the meaning of a threshold needs at least 1"):
        chosen_threshold(torch.zeros(0), novelty=3.0)
