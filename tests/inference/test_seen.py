"""What people are seen by decides: known actors of both sides calibrate it, film by film."""

from dataclasses import replace

import pytest
import torch
from made_outputs import made_outputs

from mule.core.errors import MissingOutputs, TooFewActors
from mule.inference.flagged import deciding_score
from mule.inference.judging import Judging, facts_unkept, judged, yardstick_of
from mule.inference.score_rules import score_rules
from mule.inference.seen import SEEN_SCORE, SeenRule, known_actors
from mule.inference.tracks import by_track
from mule.novelty.combining import DECIDING_SCORE
from mule.novelty.crossfit import CrossFitted


def side(num, *, seed, films=None, novel=False):
    """Made actors, seen by a feature that their action, or none, explains; video names differ by side."""
    outputs = made_outputs(num, seed=seed)
    draw = torch.Generator().manual_seed(seed)
    centre = torch.tensor([0.0, 0, 0, 4]) if novel else torch.eye(3, 4)[torch.arange(num) % 3] * 4
    roi = torch.cat([centre.expand(num, 4), torch.zeros(num, 4)], dim=1) + torch.randn(num, 8, generator=draw)
    names = tuple(name._replace(video=f"{seed}-{name.video}") for name in outputs.clip_names)
    films = {name.video: f"{seed}-{at * films // num}" for at, name in enumerate(names)} if films else {}
    truth = replace(outputs.truth, is_novel=outputs.truth.is_novel | novel)
    labels = outputs.labels & (not novel)
    return replace(outputs, inputs={"roi": roi}, clip_names=names, group_of=films, truth=truth, labels=labels)


TRAIN, VAL = side(60, seed=0), side(21, seed=1)


def test_the_rule_is_the_cross_fitted_score_of_all_known_actors():
    known = known_actors([TRAIN, VAL])
    rule = SeenRule()
    rule.fit(TRAIN, VAL)
    expected = CrossFitted.fit(known.inputs, known.labels, known.groups)
    test = side(30, seed=2)
    torch.testing.assert_close(rule.novelty(test).rank, expected(test.inputs).rank)
    assert len(rule.known_novelty) == 81


def test_actors_of_a_film_that_it_knows_are_judged_by_parts_that_never_saw_it():
    train = side(60, seed=0, films=12)
    rule, moved = SeenRule(), train.inputs["roi"].clone()
    rule.fit(train, VAL)
    moved[:5] += 20  # the first film
    other = SeenRule()
    other.fit(replace(train, inputs={"roi": moved}), VAL)
    first = train.at(train.clip_index < 5)
    before, after = (each.novelty(first).rank.argsort() for each in (rule, other))
    assert torch.equal(before, after)


def test_novel_actors_are_flagged_and_known_ones_rarely():
    yardstick = yardstick_of(score_rules([SEEN_SCORE]), TRAIN, VAL)
    facts = facts_unkept("mule", "test", model="")
    result, _ = judged(side(200, seed=3), yardstick, judging=Judging(resamples=0), facts=facts)
    score = result.scores[SEEN_SCORE]
    assert deciding_score(result) == SEEN_SCORE
    assert score.known_flagged is not None
    assert score.known_flagged <= 0.12
    novelty = yardstick.fitted[0].rule.novelty(side(60, seed=4, novel=True)).rank
    assert score.threshold is not None
    assert float((novelty > score.threshold).double().mean()) >= 0.6


def test_looks_along_a_track_are_seen_by_their_mean():
    looks = side(4, seed=5)
    truth = replace(looks.truth, actor_ids=("a", "a", "a", "a"))
    together = by_track(replace(looks, truth=truth, clip_names=(looks.clip_names[0],) * 4))
    torch.testing.assert_close(together.inputs["roi"], looks.inputs["roi"].mean(dim=0, keepdim=True))


def test_without_a_frozen_backbone_it_is_left_out_and_the_others_decide():
    train, val = made_outputs(60, seed=0), made_outputs(30, seed=1)
    yardstick = yardstick_of(score_rules([SEEN_SCORE, DECIDING_SCORE]), train, val)
    assert "frozen backbone" in yardstick.left_out[SEEN_SCORE]
    result, _ = judged(
        val, yardstick, judging=Judging(resamples=0), facts=facts_unkept("mule", "val", model="")
    )
    assert deciding_score(result) == DECIDING_SCORE


def test_too_few_known_actors_are_refused_with_the_reason():
    with pytest.raises(TooFewActors, match="at least 20 known actors"):
        SeenRule().fit(side(9, seed=0), side(6, seed=1))
    with pytest.raises(MissingOutputs):
        known_actors([TRAIN, made_outputs(9, seed=0)])
