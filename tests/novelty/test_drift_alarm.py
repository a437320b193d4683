import math

import pytest
import torch
from safetensors.torch import load_file, save_file
from scipy.stats import kstest
from strategies import unchecked

from mule.core.errors import NotFinite, NotFitted, RangeError, ShapeError, TooFewActors
from mule.novelty.drift import DRIFT_OF_BET, DriftAlarm, log_bets


def normal(count, generator):
    return torch.randn(count, generator=generator, dtype=torch.float64)


def alarm_after(held_out, **settings):
    alarm = DriftAlarm(**settings)
    alarm.fit(held_out)
    return alarm


def test_a_stream_without_actors_raises_no_alarm():
    alarm = alarm_after(torch.arange(50.0))
    report = alarm.watch(torch.zeros(0), torch.zeros(0, dtype=torch.int64))
    assert (report.num_actors, report.is_alarm, report.drift, report.largest_capital) == (0, False, None, 1.0)
    assert report.in_words() == "no drift seen in 0 actors"


def test_every_bet_is_fair_on_uniform_p_values():
    """∫ f(p) dp = 1; the midpoint rule is exact for the windows and leaves out little of p^(−3/4) near its pole."""
    p_values = (torch.arange(1_000_000).double() + 0.5) / 1_000_000
    payoff = log_bets(p_values).exp().mean(dim=0)
    assert payoff.shape == (len(DRIFT_OF_BET),)
    assert (payoff <= 1 + 1e-9).all()
    assert (payoff > 0.98).all()
    assert torch.isfinite(log_bets(torch.tensor([0.0, 1.0]))).all()


@pytest.mark.parametrize("step", [None, 1.0], ids=["no ties", "a handful of values"])
@pytest.mark.parametrize("num_held_out", [20, 137])
def test_urn_p_values_of_exchangeable_actors_are_independent_and_uniform(num_held_out, step):
    """Over 300 held-out sets and streams: uniform, also late in a stream, and neighbours do not correlate."""
    generator = torch.Generator().manual_seed(1)
    streams = []
    for seed in range(300):
        novelty = normal(num_held_out + 40, generator)
        novelty = (novelty / step).round() if step else novelty
        streams.append(alarm_after(novelty[:num_held_out], seed=seed).take_in(novelty[num_held_out:]))
    p_values = torch.stack(streams)
    assert kstest(p_values.flatten().numpy(), "uniform").pvalue > 0.01
    assert kstest(p_values[:, -1].numpy(), "uniform").pvalue > 0.01
    # p-values that rested on one fixed set would go together within a stream: their mean would vary more
    assert p_values.mean(dim=1).var().item() == pytest.approx(1 / 12 / 40, rel=0.25)


@pytest.mark.parametrize("num_held_out", [1, 30, 98, 99, 100, 101, 250, 1234])
def test_held_out_actors_cut_the_line_into_a_hundred_equal_bins_or_one_for_every_place(num_held_out):
    num_places = alarm_after(torch.arange(float(num_held_out))).num_places
    assert len(num_places) == min(100, num_held_out + 1)
    assert num_places.sum() == num_held_out + 1
    assert num_places.max() - num_places.min() <= 1


def test_a_loop_over_ranks_gives_the_same_p_values():
    """With a bin for every held-out actor the urn is the rank among held-out actors and stream so far, in cells."""
    generator = torch.Generator().manual_seed(2)
    held_out, stream = normal(30, generator), normal(25, generator)
    alarm = alarm_after(held_out, seed=5)
    drawn = torch.Generator()
    drawn.set_state(alarm.generator_state)
    edges, seen, expected = held_out.sort().values.tolist(), [0] * 31, []
    for value in stream.tolist():
        _, within = torch.rand(2, generator=drawn, dtype=torch.float64).tolist()
        cell = sum(value > edge for edge in edges)
        weight = [1 + count for count in seen]
        expected.append((sum(weight[cell + 1 :]) + within * weight[cell]) / sum(weight))
        seen[cell] += 1
    assert alarm.take_in(stream).tolist() == pytest.approx(expected, rel=1e-12)


def test_capital_follows_its_recursion():
    """W ← f(p)·(W + share/(t(t + 1))), cash 1/(t + 1), in a slow loop."""
    generator = torch.Generator().manual_seed(3)
    held_out, stream = normal(120, generator), normal(60, generator) + 0.3
    alarm, twin = alarm_after(held_out), alarm_after(held_out)
    kinds = [DRIFT_OF_BET.count(kind) for kind in DRIFT_OF_BET]
    invested, largest = [0.0] * len(kinds), 1.0
    for number, p_value in enumerate(twin.take_in(stream), start=1):
        gains = log_bets(p_value[None])[0].exp().tolist()
        laid = 1 / (number * (number + 1))
        invested = [
            gain * (w + laid / 3 / kind) for gain, w, kind in zip(gains, invested, kinds, strict=True)
        ]
        largest = max(largest, sum(invested) + 1 / (number + 1))
    report = alarm.watch(stream, torch.arange(60))
    assert report.largest_capital == pytest.approx(largest, rel=1e-9)
    assert alarm.log_invested.exp().tolist() == pytest.approx(invested, rel=1e-9)


@pytest.mark.parametrize("num_held_out", [5, 50])
def test_false_alarms_are_no_more_frequent_than_stated(num_held_out):
    """At most 10 % of 600 streams of 600 actors each, however few were held out."""
    generator = torch.Generator().manual_seed(4)
    alarms = sum(
        alarm_after(normal(num_held_out, generator), false_alarm_rate=0.1, seed=seed)
        .watch(normal(600, generator), torch.arange(600))
        .is_alarm
        for seed in range(600)
    )
    assert alarms / 600 <= 0.1


@pytest.mark.parametrize("quiet", [0, 2000])
@pytest.mark.parametrize(
    ("scale", "shift", "drift"),
    [
        (1.0, 1.2, "stranger"),
        (1.0, -1.2, "more ordinary"),
        (0.15, 0.0, "more alike"),
        (0.0, 0.3, "more alike"),
    ],
)
def test_drift_is_found_soon_and_named_right_away_or_after_a_long_quiet(quiet, scale, shift, drift):
    generator = torch.Generator().manual_seed(5)
    for seed in range(5):
        alarm = alarm_after(normal(300, generator), false_alarm_rate=0.01, seed=seed)
        before = alarm.watch(normal(quiet, generator), torch.arange(quiet))
        assert not before.is_alarm
        drifted = normal(200, generator) * scale + shift
        report = alarm.watch(drifted, torch.arange(200) + quiet)
        assert report.alarm_at is not None
        assert quiet < report.alarm_at <= quiet + 120
        assert report.drift == drift
        assert report.largest_capital >= 100
        assert f"look {drift} than known actors did (seen at actor {report.alarm_at:,}" in report.in_words()
        assert "at most 1 % of streams" in report.in_words()


def test_an_alarm_stays():
    generator = torch.Generator().manual_seed(6)
    alarm = alarm_after(normal(100, generator))
    first = alarm.watch(normal(100, generator) + 3, torch.arange(100))
    later = alarm.watch(normal(500, generator), torch.arange(100, 600))
    assert first.is_alarm
    assert (later.alarm_at, later.drift) == (first.alarm_at, "stranger")


def test_only_the_first_look_at_a_new_track_counts():
    held_out = torch.arange(100.0)
    alarm, twin = alarm_after(held_out), alarm_after(held_out)
    track_id = torch.tensor([0, -1, 0, 1, 3, 1, 3, 2, 4])
    novelty = torch.arange(9.0)
    report = alarm.watch(novelty, track_id)
    assert report.num_actors == 4
    expected = twin.watch(novelty[[0, 3, 4, 8]], torch.arange(4))
    assert report.largest_capital == expected.largest_capital
    assert alarm.watch(novelty, track_id).num_actors == 4  # the same tracks, seen again


@pytest.mark.parametrize("cuts", [[1] * 90, [7, 0, 83], [90]], ids=["one by one", "uneven", "at once"])
def test_the_game_does_not_depend_on_how_the_stream_is_cut(cuts):
    generator = torch.Generator().manual_seed(7)
    held_out, stream = normal(80, generator), normal(90, generator) + 0.5
    whole, cut = alarm_after(held_out), alarm_after(held_out)
    whole.watch(stream, torch.arange(90))
    for novelty, track_id in zip(stream.split(cuts), torch.arange(90).split(cuts), strict=True):
        cut.watch(novelty, track_id)
    assert cut.report.alarm_at == whole.report.alarm_at
    torch.testing.assert_close(cut.log_invested, whole.log_invested)
    assert torch.equal(cut.num_in_bin, whole.num_in_bin)
    assert torch.equal(cut.generator_state, whole.generator_state)


def test_a_resumed_alarm_goes_on_exactly_where_it_stopped(tmp_path):
    generator = torch.Generator().manual_seed(8)
    alarm = alarm_after(normal(150, generator).round(decimals=1), false_alarm_rate=0.02, seed=9)
    first, second = normal(70, generator), normal(70, generator)
    alarm.watch(first, torch.arange(70))
    save_file(alarm.state_dict(), tmp_path / "alarm.safetensors")
    resumed = DriftAlarm(seed=123)
    resumed.load_state_dict(load_file(tmp_path / "alarm.safetensors"))
    assert resumed.watch(second, torch.arange(70, 140)) == alarm.watch(second, torch.arange(70, 140))
    for name, buffer in alarm.state_dict().items():
        assert torch.equal(buffer, resumed.state_dict()[name]), name


def test_memory_does_not_grow_with_the_stream():
    alarm = alarm_after(torch.arange(1000.0))
    size = sum(buffer.untyped_storage().nbytes() for buffer in alarm.buffers())
    generator = torch.Generator().manual_seed(10)
    alarm.watch(500 + 200 * normal(9000, generator), torch.arange(9000))
    assert sum(buffer.untyped_storage().nbytes() for buffer in alarm.buffers()) == size
    assert math.isfinite(alarm.report.largest_capital)


def test_what_cannot_be_watched_is_refused():
    with pytest.raises(TooFewActors, match="a drift alarm needs at least 1 held-out known actors; got 0"):
        alarm_after(torch.zeros(0))
    with pytest.raises(RangeError, match=r"must lie between 0 and 1; got 0\.0"):
        DriftAlarm(false_alarm_rate=0.0)
    with pytest.raises(NotFitted, match="DriftAlarm must be fitted"):
        DriftAlarm().watch(torch.zeros(1), torch.zeros(1, dtype=torch.int64))
    alarm = alarm_after(torch.arange(30.0))
    with pytest.raises(NotFinite, match="the first is nan at actor 1"):
        alarm.watch(torch.tensor([0.0, math.nan]), torch.arange(2))
    with pytest.raises(ShapeError, match="one entry per actor, 2; got 3"):
        unchecked(DriftAlarm.watch)(alarm, torch.zeros(2), torch.arange(3))
    assert alarm.report.num_actors == 0


def test_p_values_that_rest_on_one_fixed_set_would_break_the_promise():
    """Smoothed ranks among the same 50 held-out actors, uniform one by one: 5 % stated, twice as many alarms."""
    generator = torch.Generator().manual_seed(11)
    held_out = normal((200, 50), generator).sort(dim=1).values
    stream = normal((200, 2000), generator)
    within = torch.rand(200, 2000, generator=generator, dtype=torch.float64)
    p_values = (50 - torch.searchsorted(held_out, stream) + within) / 51
    shares = torch.tensor([1 / 3 / DRIFT_OF_BET.count(kind) for kind in DRIFT_OF_BET])
    invested, largest = torch.zeros(200, len(shares), dtype=torch.float64), torch.ones(200)
    for number, p_value in enumerate(p_values.unbind(dim=1), start=1):
        invested = log_bets(p_value).exp() * (invested + shares / (number * (number + 1)))
        largest = torch.maximum(largest, invested.sum(dim=1) + 1 / (number + 1))
    assert (largest >= 20).double().mean() > 0.1
