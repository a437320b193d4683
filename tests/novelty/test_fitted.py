import pytest
import torch

from mule.core.errors import NotFitted, RangeError, TooFewActors
from mule.core.records import Evidence
from mule.novelty.scores import ClassNormalisedEvidence


def known_actors(n=50, classes=4):
    generator = torch.Generator().manual_seed(0)
    positive = torch.rand(n, classes, generator=generator) * torch.tensor([1.0, 10.0, 100.0, 1000.0])
    targets = torch.zeros(n, classes)
    targets[torch.arange(n), torch.arange(n) % classes] = 1
    return Evidence(positive=positive, negative=torch.ones(n, classes)), targets


def fitted_on(evidence, targets):
    score = ClassNormalisedEvidence(4)
    score.fit(evidence, targets)
    return score


def test_a_score_is_never_fitted_on_an_actor_without_known_actions():
    evidence, targets = known_actors()
    targets[7] = 0
    with pytest.raises(RangeError, match="1 of 50 do no known action, the first is actor 7"):
        fitted_on(evidence, targets)


def test_a_score_that_has_seen_nobody_refuses_to_judge():
    evidence, _ = known_actors()
    with pytest.raises(NotFitted, match="ClassNormalisedEvidence must be fitted on known actors"):
        ClassNormalisedEvidence(4)(evidence)
    one = Evidence(positive=torch.ones(1, 4), negative=torch.ones(1, 4))
    with pytest.raises(TooFewActors, match="at least 2 known actors; got 1"):
        fitted_on(one, torch.ones(1, 4))


def test_what_was_learnt_is_saved_with_the_state(tmp_path):
    evidence, targets = known_actors()
    fitted = fitted_on(evidence, targets)
    torch.save(fitted.state_dict(), tmp_path / "score.pt")
    restored = ClassNormalisedEvidence(4)
    restored.load_state_dict(torch.load(tmp_path / "score.pt", weights_only=True))
    assert torch.equal(restored(evidence).rank, fitted(evidence).rank)


def test_known_actors_are_ordinary_and_silence_is_novel():
    evidence, targets = known_actors(500)
    score = fitted_on(evidence, targets)
    assert score(evidence).rank.mean().item() == pytest.approx(0.0, abs=1e-5)
    silence = Evidence(positive=torch.zeros(1, 4), negative=torch.zeros(1, 4))
    assert score(silence).rank > score(evidence).rank.quantile(0.99)
    assert 0.9 < score(silence).value.item() <= 1


def test_no_class_drowns_another():
    """Halving the log-evidence of a loud class or of a quiet one moves the score equally in deviations."""
    evidence, targets = known_actors(500)
    score = fitted_on(evidence, targets)
    usual = torch.expm1(score.mean)[None]
    moved = []
    for action in range(4):
        lower = score.mean.clone()
        lower[action] -= score.deviation[action]
        moved.append(score(Evidence(positive=torch.expm1(lower)[None], negative=torch.ones(1, 4))).rank)
    base = score(Evidence(positive=usual, negative=torch.ones(1, 4))).rank
    torch.testing.assert_close(torch.stack(moved) - base, torch.full((4, 1), 0.25), rtol=1e-3, atol=1e-3)
