"""Laws that every rival's score keeps, by name."""

import time
from typing import get_args

import pytest
import torch
from stored_worlds import easy_world, only, outputs_of

from mule.core.errors import MissingOutputs, NotFitted, RangeError, ShapeError, TooFewActors
from mule.metrics import auroc
from mule.rivals.scores.by_name import SCORE_BY_NAME, ScoreName
from mule.rivals.scores.outputs import LinearReadout, StoredOutputs, stored

NAMES = list(SCORE_BY_NAME)
LEARNING = [name for name, build in SCORE_BY_NAME.items() if build().learns]
BLIND_HERE = {"max-softmax", "relu-ne-inverse"}
"""Two actions at once look like doubt to a softmax; little evidence against is not what strangers have here."""
CANNOT_TELL = {"relu-pe", "relu-belief"}
"""ReLU gives all actors without a positive logit the same evidence: none."""

WORLD = easy_world()


def fitted(name, world=WORLD):
    score = SCORE_BY_NAME[name]()
    score.fit(world.train, world.targets)
    return score


def scaled(outputs, factor):
    """The same network with everything it computes this much larger."""
    readout = LinearReadout(outputs.readout.weight, factor * outputs.readout.bias)
    return StoredOutputs(
        factor * outputs.logits, factor * outputs.features, readout, factor * outputs.dropout_logits
    )


def test_every_name_has_a_score_and_says_what_it_needs():
    assert set(get_args(ScoreName)) == set(NAMES)
    needs = {name: SCORE_BY_NAME[name]().needs for name in NAMES}
    assert needs["joint-energy"] == {"logits"}
    assert needs["knn"] == {"features"}
    assert needs["vim"] == {"logits", "features", "readout"}
    assert needs["bald"] == {"dropout_logits"}
    assert set(LEARNING) == {
        "openmax", "openmax-above-least", "informed-democracy", "mahalanobis", "knn", "vim", "vim-softmax", "vim-residual"
    }  # fmt: skip


@pytest.mark.parametrize("name", NAMES)
def test_no_actors_have_no_novelty(name):
    novelty = fitted(name)(only(WORLD.test, torch.arange(0)))
    assert novelty.value.shape == novelty.rank.shape == (0,)


@pytest.mark.parametrize("name", NAMES)
def test_novel_actors_rank_above_known_ones(name):
    score = fitted(name)(WORLD.test)
    found = auroc(score.rank.numpy(), WORLD.is_novel.numpy())
    assert found > 0.8 if name not in BLIND_HERE else found < 0.5


@pytest.mark.parametrize("name", NAMES)
def test_value_lies_between_zero_and_one_and_keeps_the_order_of_rank(name):
    novelty = fitted(name)(WORLD.test)
    assert ((novelty.value >= 0) & (novelty.value <= 1)).all()
    assert (novelty.value[novelty.rank.argsort()].diff() >= -1e-15).all()


@pytest.mark.parametrize("name", NAMES)
def test_order_and_company_of_actors_do_not_matter(name):
    score = fitted(name)
    mixed = torch.randperm(400, generator=torch.Generator().manual_seed(3))[:150]
    torch.testing.assert_close(
        score(only(WORLD.test, mixed)).rank, score(WORLD.test).rank[mixed], rtol=1e-6, atol=1e-6
    )


@pytest.mark.parametrize("name", NAMES)
def test_order_of_classes_does_not_matter(name):
    order = torch.tensor([3, 0, 5, 1, 4, 2])

    def renamed(outputs):
        readout = LinearReadout(outputs.readout.weight[order], outputs.readout.bias[order])
        return StoredOutputs(
            outputs.logits[:, order], outputs.features, readout, outputs.dropout_logits[:, :, order]
        )

    score = SCORE_BY_NAME[name]()
    score.fit(renamed(WORLD.train), WORLD.targets[:, order])
    torch.testing.assert_close(
        score(renamed(WORLD.test)).rank, fitted(name)(WORLD.test).rank, rtol=1e-6, atol=1e-6
    )


@pytest.mark.parametrize("name", NAMES)
def test_no_score_is_fitted_on_an_actor_without_known_actions(name):
    targets = WORLD.targets.clone()
    targets[7] = 0
    with pytest.raises(RangeError, match="1 of 400 do no known action, the first is actor 7"):
        SCORE_BY_NAME[name]().fit(WORLD.train, targets)


@pytest.mark.parametrize("name", NAMES)
def test_what_was_not_stored_is_named(name):
    score = SCORE_BY_NAME[name]()
    missing = score.needs - {"logits"}
    bare = StoredOutputs(WORLD.test.logits)
    assert set(bare.missing(score.needs)) == missing
    if not missing:
        fitted(name)(bare)
        return
    for ask in (lambda: score(bare), lambda: score.fit(StoredOutputs(WORLD.train.logits), WORLD.targets)):
        with pytest.raises(MissingOutputs) as caught:
            ask()
        assert all(need in str(caught.value) for need in missing)


@pytest.mark.parametrize("name", LEARNING)
def test_a_score_that_has_seen_nobody_refuses_to_judge(name):
    with pytest.raises(NotFitted, match="must be fitted on known actors first"):
        SCORE_BY_NAME[name]()(WORLD.test)


@pytest.mark.parametrize("name", LEARNING)
def test_nobody_teaches_nothing_and_a_failed_fit_leaves_no_score(name, monkeypatch):
    nobody = only(WORLD.train, torch.arange(0))
    score = fitted(name)
    with pytest.raises(TooFewActors, match="learns from known actors; got none"):
        score.fit(nobody, WORLD.targets[:0])
    assert score(WORLD.test).rank.isfinite().all()
    monkeypatch.setattr(score, "_fit", lambda *_: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        score.fit(WORLD.train, WORLD.targets)
    with pytest.raises(NotFitted):
        score(WORLD.test)


@pytest.mark.parametrize("name", LEARNING)
def test_a_score_judges_only_the_network_it_was_fitted_on(name):
    other = easy_world(classes=5, dim=32, num_test=3)
    with pytest.raises(ShapeError, match=r"was fitted on \(classes, dim\) = \(6, "):
        fitted(name)(other.test)


@pytest.mark.parametrize("name", NAMES)
def test_what_was_learnt_is_saved_with_the_state(name, tmp_path):
    score = fitted(name)
    torch.save(score.state_dict(), tmp_path / "score.pt")
    restored = SCORE_BY_NAME[name]()
    restored.load_state_dict(torch.load(tmp_path / "score.pt", weights_only=True))
    assert torch.equal(restored(WORLD.test).rank, score(WORLD.test).rank)
    inside = torch.nn.ModuleDict({"rival": SCORE_BY_NAME[name]()})
    inside.load_state_dict({f"rival.{key}": value for key, value in score.state_dict().items()})
    assert torch.equal(inside["rival"](WORLD.test).rank, score(WORLD.test).rank)


@pytest.mark.parametrize("name", NAMES)
def test_logits_of_ten_thousand_neither_overflow_nor_tie(name):
    """Known actors' largest logits are near 16 in this world; here they are near 10,000, in single precision.

    Left out: actors on whom passes with dropout contradict each other. With such logits each pass is a vote for or
    against, and equal counts of votes are equal scores.
    """
    signs = stored(WORLD.test.dropout_logits, "dropout_logits").sign()
    agreed = (signs == signs[0]).all(dim=2).all(dim=0).nonzero()[:, 0]
    assert len(agreed) > 100
    score = SCORE_BY_NAME[name]()
    score.fit(scaled(WORLD.train, 625.0), WORLD.targets)
    novelty = score(scaled(only(WORLD.test, agreed), 625.0))
    assert torch.isfinite(novelty.value).all()
    assert torch.isfinite(novelty.rank).all()
    if name not in CANNOT_TELL:
        assert len(novelty.rank.unique()) == len(novelty.rank)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("kind", [torch.float16, torch.float64])
def test_outputs_stored_in_other_types_give_the_same_answer(name, kind):
    def stored_as(outputs):
        readout = LinearReadout(outputs.readout.weight.to(kind), outputs.readout.bias.to(kind))
        return StoredOutputs(
            outputs.logits.to(kind), outputs.features.to(kind), readout, outputs.dropout_logits.to(kind)
        )

    novelty = fitted(name)(stored_as(WORLD.test))
    assert auroc(novelty.rank.numpy(), WORLD.is_novel.numpy()) == pytest.approx(
        auroc(fitted(name)(WORLD.test).rank.numpy(), WORLD.is_novel.numpy()), abs=0.005
    )


@pytest.mark.parametrize("name", NAMES)
def test_nothing_given_is_changed_and_fitting_again_forgets(name):
    given = (
        WORLD.test.logits,
        stored(WORLD.test.features, "features"),
        stored(WORLD.test.dropout_logits, "dropout_logits"),
    )
    before = [tensor.clone() for tensor in given]
    score = SCORE_BY_NAME[name]()
    other = easy_world(seed=5, num_train=90, num_test=3)
    score.fit(other.train, other.targets)
    score.fit(WORLD.train, WORLD.targets)
    assert torch.equal(score(WORLD.test).rank, fitted(name)(WORLD.test).rank)
    assert all(torch.equal(kept, now) for kept, now in zip(before, given, strict=True))


def test_targets_are_of_the_training_actors():
    for name in NAMES:
        with pytest.raises(ShapeError, match=r"one entry per actor and class, \(400, 6\); got \(400, 5\)"):
            SCORE_BY_NAME[name]().fit(WORLD.train, WORLD.targets[:, :5])


@pytest.fixture(scope="module")
def three_thousand_actors():
    draw = torch.Generator().manual_seed(0)
    readout = LinearReadout(torch.randn(60, 1024, generator=draw) / 32, torch.zeros(60))
    targets = (torch.rand(3_000, 60, generator=draw) < 0.04).float()
    targets[torch.arange(3_000), torch.arange(3_000) % 60] = 1
    # few passes: what scores do with them is linear in their number
    return outputs_of(torch.randn(3_000, 1024, generator=draw), readout, draw=draw, passes=5), targets


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_three_thousand_actors_take_seconds(name, three_thousand_actors):
    outputs, targets = three_thousand_actors
    started_at = time.perf_counter()
    score = SCORE_BY_NAME[name]()
    score.fit(outputs, targets)
    score(outputs)
    assert time.perf_counter() - started_at < 10
