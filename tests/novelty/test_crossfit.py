"""Cross-fitted novelty: what calibrates it, and how often it flags known actors."""

import pytest
import torch

from mule.core.errors import ShapeError, TooFewActors
from mule.novelty.crossfit import CrossFitted, SeenParts, crossed_ranks, group_folds
from mule.novelty.pretraining import root_probabilities

ACTIONS, DIM, LABELS = 4, 12, 10


def world(num: int, seed: int, *, films: int | None = None, novel: bool = False):
    """Actors around a mean per action, moved a little by their film; novel ones around another mean."""
    draw = torch.Generator().manual_seed(seed)
    means = 2 * torch.randn(ACTIONS + 1, DIM, generator=torch.Generator().manual_seed(99)).double()
    answers = 3 * torch.randn(ACTIONS + 1, LABELS, generator=torch.Generator().manual_seed(98)).double()
    does = torch.full((num,), ACTIONS) if novel else torch.arange(num) % ACTIONS
    group = torch.arange(num) * (films or num) // num
    of_film = 0.5 * torch.randn(num, DIM, generator=draw).double()[group]
    seen = means[does] + torch.randn(num, DIM, generator=draw).double() + of_film
    logits = answers[does] + torch.randn(num, LABELS, generator=draw).double()
    order = torch.randperm(num, generator=draw)  # films show several actions
    inputs = {"roi": seen[order], "labels": root_probabilities(logits)[order]}
    return inputs, (does[:, None] == torch.arange(ACTIONS))[order], group[order]


def test_known_actors_of_new_films_are_flagged_about_as_often_as_promised():
    flagged, novel_flagged, draws = 0.0, 0.0, 25
    for seed in range(draws):
        score = CrossFitted.fit(*world(60, 1000 + seed))
        flagged += float((score(world(200, 5000 + seed)[0]).p_value <= 0.05).double().mean()) / draws
        novel_flagged += (
            float((score(world(50, 9000 + seed, novel=True)[0]).p_value <= 0.05).double().mean()) / draws
        )
    assert 0.02 <= flagged <= 0.07
    assert novel_flagged >= 0.5


def test_an_actor_is_ranked_by_parts_that_never_saw_its_group():
    inputs, labels, groups = world(60, 0, films=12)
    folds = group_folds(groups, most=4)
    ranks = crossed_ranks(inputs, labels, folds)
    for fold in range(4):
        is_in = folds == fold
        others = SeenParts.fit({name: each[~is_in] for name, each in inputs.items()}, labels[~is_in])
        torch.testing.assert_close(
            ranks[is_in], others.ranks({name: each[is_in] for name, each in inputs.items()})
        )


def test_moving_a_group_far_away_leaves_the_ranks_of_its_own_actors_to_the_others_alone():
    inputs, labels, groups = world(60, 0, films=12)
    folds = group_folds(groups)
    moved = {**inputs, "roi": inputs["roi"].clone()}
    first, second = torch.nonzero(folds == 3).flatten()[:2].tolist()
    moved["roi"][first] += 100
    before, after = crossed_ranks(inputs, labels, folds), crossed_ranks(moved, labels, folds)
    torch.testing.assert_close(after[second], before[second])


def test_a_group_is_never_divided_between_folds():
    groups = torch.tensor([5, 5, 2, 2, 9, 9, 9, 1])
    folds = group_folds(groups, most=3)
    for group in groups.unique():
        assert len(folds[groups == group].unique()) == 1
    assert len(folds.unique()) == 3
    assert len(group_folds(groups).unique()) == 4


def test_without_labels_of_pretraining_the_whitened_cosine_decides_alone():
    inputs, labels, groups = world(60, 0)
    alone = CrossFitted.fit({"roi": inputs["roi"]}, labels, groups)
    rank = alone.parts.ranks(inputs)
    assert rank.shape == (60, 1)
    order = alone(inputs).rank.argsort()
    assert (rank[order, 0].diff() >= 0).all()


def test_saved_tensors_give_the_same_p_values():
    inputs, labels, groups = world(60, 0)
    for seen in (inputs, {"roi": inputs["roi"], "frame": inputs["roi"].flip(1)}):
        score = CrossFitted.fit(seen, labels, groups)
        again = CrossFitted.of(score.tensors(), score.parts.blocks)
        torch.testing.assert_close(again(seen).rank, score(seen).rank, rtol=0, atol=0)


def test_too_few_groups_and_missing_inputs_are_refused_in_a_sentence():
    inputs, labels, groups = world(60, 0)
    with pytest.raises(TooFewActors, match="2 groups"):
        CrossFitted.fit(inputs, labels, torch.zeros_like(groups))
    with pytest.raises(TooFewActors, match="held-out known actors"):
        CrossFitted.fit(*world(16, 0))
    with pytest.raises(ShapeError, match="labels is missing"):
        CrossFitted.fit(inputs, labels, groups)({"roi": inputs["roi"]})
