"""Scores that ask a memory, and Fisher's combination, equal the same thing computed by hand from their parts."""

import numpy as np
import pytest
import torch
from scipy.stats import chi2
from sklearn.neighbors import NearestNeighbors

from mule.comparison.outputs import EvidenceKind, SideOutputs
from mule.comparison.score_rules import COMBINED_SCORES, score_rule
from mule.comparison.sides import ActorTruth
from mule.datasets.samples import ClipName
from mule.errors import MissingOutputs, NotFitted, RangeError, TooFewActors
from mule.evidence.head import exp_evidence
from mule.records import Evidence

CLASSES = ("bow", "run", "wave")
K = 20


def made_outputs(num_actors: int, *, seed: int, kind: EvidenceKind = "tied", shift: float = 0.0):
    """Actors around one centre per action, each of a video of its own."""
    generator = torch.Generator().manual_seed(seed)
    action = torch.arange(num_actors) % len(CLASSES)
    centres = torch.eye(3, 8) * 3
    features = centres[action] + torch.randn(num_actors, 8, generator=generator) + shift
    logits = 4 * torch.nn.functional.one_hot(action, 3) - 2 + torch.randn(num_actors, 3, generator=generator)
    labels = torch.nn.functional.one_hot(action, 3).bool().numpy()
    outputs = torch.cat([logits, -logits], dim=1) if kind == "independent" else logits
    return SideOutputs(
        classes=CLASSES,
        kind=kind,
        outputs=outputs,
        evidence=Evidence(exp_evidence(logits), exp_evidence(-logits)),
        features=features,
        readout=None,
        dropout_logits=None,
        labels=labels,
        truth=ActorTruth(
            classes=CLASSES,
            labels=labels,
            is_novel=np.zeros(num_actors, dtype=bool),
            boxes_xyxy_unit=np.tile(np.array([0.1, 0.1, 0.5, 0.9], dtype=np.float32), (num_actors, 1)),
            actor_ids=tuple(str(i) for i in range(num_actors)),
        ),
        clip_names=tuple(ClipName(f"v{i}", 1.0) for i in range(num_actors)),
        clip_index=np.arange(num_actors),
        not_stored={},
    )


@pytest.fixture(scope="module")
def sides():
    return made_outputs(90, seed=0), made_outputs(60, seed=1), made_outputs(30, seed=2, shift=0.5)


def unit(outputs):
    return torch.nn.functional.normalize(outputs.features.double()).numpy()


def trust_by_hand(train, held_out, test):
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
    rule = score_rule(name)
    rule.fit(sides[0], sides[1])
    return rule


def test_memory_is_the_vacuity_of_the_nearest_training_actors(sides):
    found = fitted("memory", sides).novelty(sides[2]).rank
    np.testing.assert_allclose(found, -np.log(trust_by_hand(*sides)), rtol=1e-3)


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
    found = fitted("fisher(joint-energy+memory)", sides).novelty(sides[2]).rank
    parts = [fitted(name, sides) for name in ("joint-energy", "memory")]
    num_checked = 0
    for actor in range(sides[2].num_actors):
        p_values = []
        for part in parts:
            value = part.novelty(sides[2]).rank[actor]
            p_values.append((1 + (part.novelty(sides[1]).rank >= value).sum().item()) / 61)
        if min(p_values) > 0.06:  # below, the exponential tail takes over
            assert chi2.sf(2 * found[actor].item(), 4) == pytest.approx(fisher_of_two(*p_values), rel=1e-6)
            num_checked += 1
    assert num_checked > 5


def test_a_network_with_two_outputs_per_action_has_a_memory_and_no_discounted_evidence(sides):
    two = [made_outputs(each.num_actors, seed=seed, kind="independent") for seed, each in enumerate(sides)]
    fitted("memory", two).novelty(two[2])
    with pytest.raises(MissingOutputs, match="needs one logit per action"):
        fitted("discounted-pe", two).novelty(two[2])


@pytest.mark.parametrize("name", ["memory", "agreement-pe", *COMBINED_SCORES])
def test_a_rule_bears_the_name_it_is_asked_for_by_and_wants_to_be_fitted(name, sides):
    rule = score_rule(name)
    assert rule.name == name
    with pytest.raises(NotFitted, match=r"fit\(train, held_out\)"):
        rule.novelty(sides[2])


def test_too_few_actors_are_refused(sides):
    with pytest.raises(TooFewActors):
        score_rule("memory").fit(made_outputs(10, seed=0), sides[1])
    with pytest.raises(TooFewActors):
        score_rule("fisher(joint-energy+memory)").fit(sides[0], made_outputs(12, seed=1))


def test_a_combination_of_unknown_scores_is_refused():
    with pytest.raises(RangeError, match="a score must be one of"):
        score_rule("fisher(joint-energy+luck)")
