"""Scores that ask a memory, and Fisher's combination, equal the same thing computed by hand from their parts."""

import numpy as np
import pytest
import torch
from made_outputs import made_outputs
from scipy.stats import chi2
from sklearn.neighbors import NearestNeighbors

from mule.core.errors import MissingOutputs, NotFitted, RangeError, TooFewActors
from mule.inference.score_rules import COMBINED_SCORES, score_rules

K = 20


@pytest.fixture(scope="module")
def sides():
    return made_outputs(90, seed=0), made_outputs(60, seed=1), made_outputs(30, seed=2, shift=0.5)


def unit(outputs):
    return torch.nn.functional.normalize(outputs.features.double()).numpy()


def whole(outputs):
    looks = torch.nn.functional.normalize(outputs.backbone_features.double()).numpy()
    return np.concatenate([unit(outputs), looks], axis=1) / np.sqrt(2)


def trust_by_hand(train, held_out, test, *, unit=unit):
    """MEMORY vacuity step by step: s of each entry, their median, ρ on held-out actors, the mean weight."""
    search = NearestNeighbors(n_neighbors=K + 1).fit(unit(train))
    own, _ = search.kneighbors(unit(train))
    scale = own[:, K]  # the first is the entry itself
    typical = np.sort(scale)[(len(scale) - 1) // 2]
    distance, index = search.kneighbors(unit(held_out), n_neighbors=K)
    ratio = np.sort((distance**2 / (scale[index] * typical)).ravel())
    reach = ratio[(len(ratio) - 1) // 2]
    distance, index = search.kneighbors(unit(test), n_neighbors=K)
    return np.exp(-(distance**2) / (reach * scale[index] * typical)).mean(axis=1)


def fitted(name, sides):
    rule = score_rules([name])[0]
    rule.fit(sides[0], sides[1])
    return rule


def test_memory_is_the_vacuity_of_the_nearest_training_actors(sides):
    found = fitted("memory", sides).novelty(sides[2]).rank
    np.testing.assert_allclose(found, -np.log(trust_by_hand(*sides)), rtol=1e-3)


def test_a_whole_memory_holds_what_the_backbone_saw_beside_what_the_last_layer_did(sides):
    found = fitted("whole-memory", sides).novelty(sides[2]).rank
    np.testing.assert_allclose(found, -np.log(trust_by_hand(*sides, unit=whole)), rtol=1e-3)
    assert not np.allclose(found, fitted("memory", sides).novelty(sides[2]).rank, rtol=0.01)


def test_discounted_evidence_is_heard_through_that_trust(sides):
    found = fitted("discounted-pe", sides).novelty(sides[2]).rank
    trust = trust_by_hand(*sides)
    expected = -np.logaddexp(0, sides[2].outputs.double().numpy() + np.log(trust)[:, None]).sum(axis=1)
    np.testing.assert_allclose(found, expected, rtol=1e-3)


def fisher_of_two(first, second):
    """The chance that the product of two uniform numbers is below this one."""
    product = first * second
    return product * (1 - np.log(product))


def test_fisher_adds_logarithms_of_p_values_on_held_out_actors(sides):
    """At held-out actors themselves p-values are places; between them they are interpolated, less than a place apart."""
    held_out = sides[1]
    found = fitted("fisher(joint-energy+memory)", sides).novelty(held_out).rank
    ranks = [fitted(name, sides).novelty(held_out).rank for name in ("joint-energy", "memory")]
    num_checked = 0
    for actor in range(held_out.num_actors):
        p_values = [(1 + (each >= each[actor]).sum().item()) / 61 for each in ranks]
        if min(p_values) > 0.07:  # below, the exponential tail takes over
            assert chi2.sf(2 * found[actor].item(), 4) == pytest.approx(fisher_of_two(*p_values), rel=1e-6)
            num_checked += 1
    assert num_checked > 20


def test_a_score_named_twice_weighs_twice(sides):
    once, twice, alone = (
        fitted(name, sides).novelty(sides[2]).rank
        for name in ("fisher(max-logit+memory)", "fisher(max-logit+memory+memory)", "fisher(memory)")
    )
    torch.testing.assert_close(twice - once, alone)


@pytest.mark.parametrize("kind", ["tied", "read"])
def test_belief_of_exponential_evidence_is_the_same_for_a_network_of_cross_entropy(sides, kind):
    test = made_outputs(30, seed=2, kind=kind)
    h = test.outputs.double().numpy()
    belief = np.exp(h) / (np.exp(h) + np.exp(-h) + 2)
    found = fitted("exp-belief", sides).novelty(test).rank
    np.testing.assert_allclose(found, np.log(1 - belief).sum(axis=1), rtol=1e-9)
    with pytest.raises(MissingOutputs, match="needs one logit per action"):
        score_rules(["exp-belief"])[0].novelty(made_outputs(30, seed=2, kind="independent"))


def test_one_memory_for_all_scores_gives_what_each_alone_does(sides):
    names = ("memory", "agreement-pe", "fisher(max-logit+memory)")
    together = score_rules(names)
    for rule in together:
        rule.fit(sides[0], sides[1])
    for name, rule in zip(names, together, strict=True):
        assert torch.equal(rule.novelty(sides[2]).rank, fitted(name, sides).novelty(sides[2]).rank)
    other = made_outputs(90, seed=5)
    together[0].fit(other, sides[1])  # other actors, another memory; the rest keep theirs
    assert not torch.equal(together[0].novelty(sides[2]).rank, fitted("memory", sides).novelty(sides[2]).rank)
    kept = fitted("agreement-pe", sides).novelty(sides[2]).rank
    assert torch.equal(together[1].novelty(sides[2]).rank, kept)


def test_a_network_with_two_outputs_per_action_has_a_memory_and_no_discounted_evidence(sides):
    two = [made_outputs(each.num_actors, seed=seed, kind="independent") for seed, each in enumerate(sides)]
    fitted("memory", two).novelty(two[2])
    with pytest.raises(MissingOutputs, match="needs one logit per action"):
        fitted("discounted-pe", two).novelty(two[2])


@pytest.mark.parametrize("name", ["memory", "agreement-pe", *COMBINED_SCORES])
def test_a_rule_bears_the_name_it_is_asked_for_by_and_wants_to_be_fitted(name, sides):
    rule = score_rules([name])[0]
    assert rule.name == name
    with pytest.raises(NotFitted, match=r"fit\(train, held_out\)"):
        rule.novelty(sides[2])


def test_too_few_actors_are_refused(sides):
    with pytest.raises(TooFewActors):
        score_rules(["memory"])[0].fit(made_outputs(10, seed=0), sides[1])
    with pytest.raises(TooFewActors):
        score_rules(["fisher(joint-energy+memory)"])[0].fit(sides[0], made_outputs(12, seed=1))


def test_a_combination_of_unknown_scores_is_refused():
    with pytest.raises(RangeError, match="a score must be one of"):
        score_rules(["fisher(joint-energy+luck)"])[0]
