"""Informed Democracy: the council by hand, the vote by a loop."""

import pytest
import torch

from mule.rivals.scores.dropout import InformedDemocracy
from mule.rivals.scores.outputs import StoredOutputs

CALM, UPSET = (0.0, 0.02), (-1.5, 1.5)


def two_passes(*actors):
    """One (mean logit, spread of two passes) pair per actor and class."""
    low_high = torch.tensor(
        [
            [
                [centre + offset for centre, offset in zip(means, side, strict=True)]
                for means, side in ((a[0], [s[k] for s in a[1]]) for a in actors)
            ]
            for k in (0, 1)
        ]
    )
    return StoredOutputs(logits=low_high.mean(dim=0), dropout_logits=low_high)


LED_BY_0, LED_BY_1, LED_BY_2 = (3.0, -5.0, -5.0), (-5.0, 3.0, -5.0), (-5.0, -5.0, 3.0)


def fitted(train, targets, **settings):
    score = InformedDemocracy(**settings)
    score.fit(train, torch.tensor(targets))
    return score


def test_the_council_is_calm_when_the_leader_is_right_and_upset_when_it_is_wrong():
    train = two_passes(
        (LED_BY_0, (CALM, CALM, UPSET)),  # rightly led by 0
        (LED_BY_0, (CALM, UPSET, UPSET)),  # wrongly led by 0
        (LED_BY_1, (CALM, CALM, CALM)),  # rightly led by 1, which is never wrong
    )
    score = fitted(train, [[1, 0, 0], [0, 0, 1], [0, 1, 0]])
    # neuron 0 is as calm either way, neuron 2 is upset even when 0 is right
    assert score.council.tolist() == [[False, True, False], [True, True, True], [True, True, True]]
    assert score.is_informed.tolist() == [True, True, False]
    assert (~score.is_informed).sum() == 1


def test_a_leader_whose_council_would_be_empty_is_judged_by_all():
    train = two_passes((LED_BY_0, (UPSET, UPSET, UPSET)), (LED_BY_0, (UPSET, UPSET, UPSET)))
    score = fitted(train, [[1, 0, 0], [1, 0, 0]], most_variance=1e-6)
    assert score.council[0].all()
    assert (~score.is_informed).sum() == 3


def test_novelty_is_the_mean_variance_of_the_leaders_council():
    draw = torch.Generator().manual_seed(1)
    logits = 2 * torch.randn(6, 80, 4, generator=draw)
    targets = torch.eye(4)[torch.randint(4, (80,), generator=draw)]
    outputs = StoredOutputs(logits.mean(dim=0), dropout_logits=logits)
    score = fitted(outputs, targets.tolist(), most_variance=0.05)
    probability = torch.sigmoid(logits.double())
    for actor in range(80):
        leader = int(probability[:, actor].mean(dim=0).argmax())
        votes = [
            probability[:, actor, c].var(correction=0).item() for c in range(4) if score.council[leader, c]
        ]
        assert score(outputs).value[actor].item() == pytest.approx(4 * sum(votes) / len(votes))
        assert score(outputs).rank[actor].exp().item() == pytest.approx(sum(votes) / len(votes))


def test_neurons_outside_the_council_have_no_say():
    train = two_passes((LED_BY_0, (CALM, CALM, UPSET)), (LED_BY_0, (CALM, UPSET, UPSET)))
    score = fitted(train, [[1, 0, 0], [0, 0, 1]])
    quiet = two_passes((LED_BY_0, (CALM, CALM, CALM)))
    loud_elsewhere = two_passes((LED_BY_0, (CALM, CALM, UPSET)))
    loud_in_council = two_passes((LED_BY_0, (CALM, UPSET, CALM)))
    assert score(quiet).rank == score(loud_elsewhere).rank < score(loud_in_council).rank
