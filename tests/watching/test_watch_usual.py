"""p-values of one look and of many, and thresholds that keep their promise."""

import math

import pytest
import torch

from mule.core.errors import RangeError, TooFewActors
from mule.novelty.calibration import promised_threshold
from mule.novelty.combining import folds_of
from mule.watching.engine.usual import (
    BY_RULE,
    BY_TRACKS,
    UsualNovelty,
    looks_up_to,
    means_of_last,
)


def drawn(count, *, seed, scores=2, per_clip=2):
    draw = torch.Generator().manual_seed(seed)
    ranks = torch.randn(count, scores, generator=draw, dtype=torch.float64)
    return ranks, torch.arange(count) // per_clip


def usual(count=300, *, seed=0, scores=2):
    ranks, clips = drawn(count, seed=seed, scores=scores)
    return UsualNovelty(ranks, folds_of(clips), torch.full((count,), -1))


def test_too_few_held_out_actors_are_refused():
    with pytest.raises(TooFewActors):
        usual(10)


@pytest.mark.parametrize("scores", [1, 2])
@pytest.mark.parametrize("name", ["known-95", "known-80", "known-99"])
def test_an_actor_lies_above_a_promise_exactly_if_its_statistic_lies_above_the_promised_one(name, scores):
    known = usual(scores=scores)
    threshold = known.threshold(name)
    promise = promised_threshold(
        known.combined.together.held_out, alarm_rate=round(1 - float(name[6:]) / 100, 6)
    )
    ranks = torch.cat([drawn(500, seed=1, scores=scores)[0], 3 * drawn(100, seed=2, scores=scores)[0]])
    novelty = 1 - torch.exp(-known.of_one_look(ranks).rank)
    assert ((novelty > threshold.value) == (known.statistic(ranks) > promise.novelty)).all()
    assert threshold.meaning == f"{name[6:]} % of known actors pass"


def test_a_share_says_how_many_held_out_actors_passed():
    known = usual()
    threshold = known.threshold("0.9")
    assert threshold.value == 0.9
    held_out = known.combined.together.held_out
    passed = (1 - torch.exp(-known.combined.together(held_out).rank) <= 0.9).double().mean().item()
    assert threshold.meaning == f"{100 * passed:.4g} % of 300 held-out known actors passed"


@pytest.mark.parametrize("text", ["known-0", "known-100", "known", "1.0", "-0.1", "nan", "high"])
def test_other_thresholds_are_refused(text):
    with pytest.raises(RangeError):
        usual(40).threshold(text)


def test_one_look_is_itself():
    known = usual(60)
    rank = torch.tensor([0.0, 0.7, 9.0], dtype=torch.float64)
    assert torch.equal(known.of_looks(rank, torch.ones(3, dtype=torch.int64)), rank)


def test_without_tracks_looks_combine_by_the_rule_that_always_holds():
    known = usual(60)
    assert known.looks_rule == BY_RULE
    p_values = torch.tensor([0.01, 0.04], dtype=torch.float64)
    found = known.of_looks(-p_values.log().mean()[None], torch.tensor([2]))
    assert found.exp().reciprocal().item() == pytest.approx(math.e * 0.02)
    assert known.of_looks(torch.tensor([0.3], dtype=torch.float64), torch.tensor([5])).item() == 0.0


@pytest.mark.parametrize("dependence", ["none", "same", "opposite"])
@pytest.mark.parametrize("num_looks", [2, 8])
def test_the_rule_flags_no_more_than_it_says_however_looks_depend(dependence, num_looks):
    draw = torch.Generator().manual_seed(3)
    uniform = torch.rand(40_000, num_looks, generator=draw, dtype=torch.float64)
    if dependence == "same":
        uniform = uniform[:, :1].expand(-1, num_looks)
    if dependence == "opposite":
        uniform = torch.where(torch.arange(num_looks) % 2 == 0, uniform[:, :1], 1 - uniform[:, :1])
    rank = usual(60).of_looks(-uniform.log().mean(dim=1), torch.full((40_000,), num_looks))
    for alarm_rate in (0.2, 0.05, 0.01):
        assert (torch.exp(-rank) <= alarm_rate).double().mean() <= alarm_rate + 0.003


def followed(count, num_looks, *, seed):
    """Looks of one track share most of their strangeness, as real ones do."""
    draw = torch.Generator().manual_seed(seed)
    tracks = torch.randn(count, 1, generator=draw, dtype=torch.float64)
    return tracks + 0.5 * torch.randn(count, num_looks, generator=draw, dtype=torch.float64)


def test_held_out_tracks_calibrate_as_many_looks():
    held_out, fresh = followed(400, 4, seed=4).split(200)
    index = torch.arange(200).repeat_interleave(4)
    known = UsualNovelty(held_out.reshape(-1, 1), folds_of(index), index)
    assert known.looks_rule == BY_TRACKS
    rank = known.of_one_look(fresh.reshape(-1, 1)).rank.reshape(200, 4)
    for num_looks in (2, 3, 4, 6):
        found = known.of_looks(rank[:, :num_looks].mean(dim=1), torch.full((200,), num_looks))
        flagged = (torch.exp(-found) <= 0.1).double().mean().item()
        assert 0.03 <= flagged <= 0.17


def test_first_looks_at_known_actors_raise_no_alarm_where_later_looks_are_less_strange():
    """At most 1 % of streams is stated. Fitted on every look, 5 of these 40 would sound."""
    alarms = 0
    for seed in range(40):
        looks = followed(460, 6, seed=seed)
        looks[:, 1:] -= 0.4
        held_out, stream = looks[:60], looks[60:, 0]
        index = torch.arange(60).repeat_interleave(6)
        known = UsualNovelty(held_out.reshape(-1, 1), folds_of(index), index)
        alarm = known.drift_alarm()
        alarms += alarm.watch(known.statistic(stream[:, None]), torch.arange(400)).is_alarm
    assert alarms <= 2


def test_means_are_those_of_the_last_looks_at_each_track():
    draw = torch.Generator().manual_seed(6)
    track = torch.randint(0, 5, (60,), generator=draw)
    rank = torch.randn(60, generator=draw, dtype=torch.float64)
    before = [int((track[:at] == track[at]).sum()) for at in range(60)]
    assert looks_up_to(track).tolist() == [count + 1 for count in before]
    num_looks = torch.tensor([int(torch.randint(1, count + 2, (), generator=draw)) for count in before])
    expected = [
        rank[[row for row in range(at + 1) if track[row] == track[at]][-int(num_looks[at]) :]].mean()
        for at in range(60)
    ]
    torch.testing.assert_close(means_of_last(rank, track, num_looks), torch.stack(expected))
