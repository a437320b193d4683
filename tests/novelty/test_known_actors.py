"""The known actors of a model: what is fitted to them follows when actions are taught and forgotten."""

from dataclasses import replace

import pytest
import torch
from scipy import stats

from mule.core.errors import ShapeError, TooFewActors
from mule.novelty.combining import CombinedScore
from mule.novelty.crossfit import CrossFitted, crossed_ranks, group_folds
from mule.novelty.known import FittedToKnown, KnownActors
from mule.novelty.odds import shares_flagged
from mule.novelty.pretraining import root_probabilities

ACTIONS = ("run", "sit", "talk", "wave")
DIM, LABELS = 16, 10
MEANS = 2 * torch.randn(8, DIM, generator=torch.Generator().manual_seed(99))
ANSWERS = 3 * torch.randn(8, LABELS, generator=torch.Generator().manual_seed(98))


def inputs_of(does, *, seed):
    draw = torch.Generator().manual_seed(seed)
    roi = MEANS[does] + torch.randn(len(does), DIM, generator=draw)
    logits = ANSWERS[does] + torch.randn(len(does), LABELS, generator=draw)
    return {"roi": roi, "labels": root_probabilities(logits).float()}


def known(num=100, *, seed=0, per_group=2):
    does = torch.arange(num) % len(ACTIONS)
    groups = torch.arange(num) // per_group
    return KnownActors(
        inputs=inputs_of(does, seed=seed),
        labels=does[:, None] == torch.arange(len(ACTIONS)),
        actions=ACTIONS,
        groups=groups,
        group_names=tuple(f"film {number}" for number in range(int(groups.max()) + 1)),
        tracks=torch.full((num,), -1),
        is_example=torch.zeros(num, dtype=torch.bool),
    )


def share_flagged(actors: KnownActors, does, *, seed):
    fitted = actors.fitted()
    combined = CombinedScore(2)
    combined.fit_crossed(fitted.ranks, fitted.folds)
    p_values = combined(fitted.parts.ranks(inputs_of(does, seed=seed))).p_value
    return float((p_values <= 0.05).double().mean())


def test_what_is_fitted_is_the_cross_fitted_score():
    actors = known()
    fitted = actors.fitted()
    score = CrossFitted.fit(actors.inputs, actors.labels, actors.groups)
    expected = crossed_ranks(actors.inputs, actors.labels, group_folds(actors.groups))
    torch.testing.assert_close(fitted.ranks, expected)
    novel = inputs_of(torch.full((5,), 6), seed=9)
    torch.testing.assert_close(fitted.parts.ranks(novel), score.parts.ranks(novel))


def test_what_was_saved_ranks_actors_as_before():
    fitted = known().fitted()
    again = FittedToKnown.of(fitted.tensors(), fitted.parts.blocks)
    novel = inputs_of(torch.full((5,), 6), seed=9)
    assert torch.equal(again.parts.ranks(novel), fitted.parts.ranks(novel))
    assert torch.equal(again.ranks, fitted.ranks)


def test_people_who_do_a_taught_action_are_no_longer_flagged_and_others_still_are():
    before = known()
    taught = before.taught("jump", inputs_of(torch.full((12,), 5), seed=3), [f"new {n}" for n in range(12)])
    doing, other = torch.full((100,), 5), torch.full((100,), 6)
    assert share_flagged(before, doing, seed=4) >= 0.7
    assert share_flagged(taught, doing, seed=4) <= 0.2
    assert share_flagged(taught, other, seed=5) >= 0.7
    assert share_flagged(taught.only(ACTIONS), doing, seed=4) == share_flagged(before, doing, seed=4)


def test_known_people_are_flagged_as_often_as_promised_after_teaching():
    flagged, draws = 0.0, 12
    for seed in range(draws):
        examples = inputs_of(torch.full((8,), 5), seed=300 + seed)
        taught = known(80, seed=seed).taught("jump", examples, ["one film"] * 8)
        flagged += share_flagged(taught, torch.arange(200) % len(ACTIONS), seed=700 + seed) / draws
    assert 0.02 <= flagged <= 0.075


def test_examples_calibrate_nothing_and_leave_with_known_actors_of_their_group():
    taught = known(60).taught("jump", inputs_of(torch.full((3,), 5), seed=3), ["film 4", "film 4", "new"])
    fitted = taught.fitted()
    assert len(fitted.ranks) == taught.num_calibrating == 60
    assert torch.isfinite(fitted.ranks).all()
    assert taught.num_groups == 30
    alone = taught.groups[-1]
    assert int((taught.groups == alone).sum()) == 1


def test_forgetting_an_action_leaves_out_who_did_nothing_else():
    actors = known(40)
    fewer = actors.only(["run", "wave"])
    assert fewer.actions == ("run", "wave")
    assert len(fewer) == 20
    assert torch.equal(fewer.inputs["roi"], actors.inputs["roi"][actors.labels[:, [0, 3]].any(dim=1)])


def test_actors_of_one_film_cannot_calibrate():
    with pytest.raises(TooFewActors, match="2 groups"):
        known(40, per_group=40).fitted()


@pytest.mark.parametrize(("num", "per_group"), [(18, 1), (60, 45)])
def test_too_few_actors_in_the_other_films_are_refused_with_their_number(num, per_group):
    with pytest.raises(TooFewActors, match="at least 20 known actors in the others"):
        known(num, per_group=per_group).fitted()


def test_examples_must_be_seen_by_what_known_actors_are_seen_by():
    with pytest.raises(ShapeError, match="labels is missing"):
        known(40).taught("jump", {"roi": torch.zeros(1, DIM)}, ["new"])


@pytest.mark.parametrize(("rate", "num"), [(0.05, 400), (0.05, 40), (0.01, 150), (0.2, 9)])
def test_shares_flagged_are_quantiles_of_the_beta_law(rate, num):
    count = max(1, int(rate * (num + 1) + 1e-9))
    expected = stats.beta(count, num + 1 - count).ppf([0.05, 0.95])
    torch.testing.assert_close(
        torch.tensor(shares_flagged(rate, num)), torch.tensor(expected.tolist()), rtol=1e-6, atol=1e-9
    )


STANDING, LEAVING = 5, 7


def with_idle(actors: KnownActors, num=24):
    does = torch.tensor([STANDING, LEAVING]).repeat(num // 2)
    kinds = ["standing by" if each == STANDING else "after" for each in does.tolist()]
    return actors.with_idle(kinds, inputs_of(does, seed=71), [f"film {at}" for at in range(num)])


def test_who_resembles_idle_people_is_idle_and_who_acts_is_not():
    fitted = with_idle(known(160)).fitted()
    acting = fitted.idle(inputs_of(torch.arange(80) % len(ACTIONS), seed=72))
    idle = fitted.idle(inputs_of(torch.tensor([STANDING, LEAVING]).repeat(20), seed=73))
    assert acting is not None
    assert idle is not None
    assert (acting > 0.5).double().mean() < 0.1
    assert (idle > 0.5).double().mean() > 0.9


def test_without_idle_examples_nobody_says_who_is_idle():
    assert known().fitted().idle(inputs_of(torch.arange(4), seed=1)) is None


def test_idle_people_are_no_strangers_once_they_are_known_and_calibrate_nothing():
    before, after = known(160), with_idle(known(160))
    assert (after.num_calibrating, len(after)) == (before.num_calibrating, len(before) + 24)
    assert len(after.fitted().ranks) == len(before)
    does = torch.full((100,), STANDING)
    assert share_flagged(before, does, seed=74) > 0.5
    assert share_flagged(after, does, seed=74) < 0.15


def test_teaching_and_forgetting_keep_idle_people():
    actors = with_idle(known())
    taught = actors.taught("jump", inputs_of(torch.full((10,), 6), seed=75), ["film 3"] * 10).only(
        ("sit", "jump")
    )
    assert (taught.actions, taught.idle) == (("sit", "jump"), ("standing by", "after"))
    assert int(taught.is_idle.sum()) == 24
    assert taught.labels.sum(dim=1).tolist() == [1] * len(taught)
    fitted = taught.fitted()
    again = FittedToKnown.of(fitted.tensors(), fitted.parts.blocks)
    some = inputs_of(torch.tensor([1, STANDING, 6]), seed=76)
    found = fitted.idle(some)
    assert found is not None
    torch.testing.assert_close(again.idle(some), found)
    assert (found > 0.5).tolist() == [False, True, False]


def test_nobody_is_idle_and_acts():
    actors = with_idle(known())
    labels = actors.labels.clone()
    labels[0, -1] = True
    with pytest.raises(ShapeError, match="nobody who acts is idle"):
        replace(actors, labels=labels)
    with pytest.raises(ShapeError, match="must not be called like actions; sit are"):
        known().with_idle(["sit"], inputs_of(torch.tensor([1]), seed=1), ["film 1"])
