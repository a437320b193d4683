"""Actors that speak for their clip: the strongest of each action, against a loop that looks at one clip at a time."""

from dataclasses import replace

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from mule.core.errors import ShapeError
from mule.core.records import Evidence
from mule.evidence.fusion import of_strongest, strongest_actors
from mule.model import ModelOutput
from mule.rivals.networks.dear import DearOutput

CLASSES = 3


def said(clips, *, seed=0, num_outputs=CLASSES):
    """What a model might say of actors in these clips; with two outputs per action evidence is their ReLU."""
    outputs = torch.randn(len(clips), num_outputs, generator=torch.Generator().manual_seed(seed))
    against = outputs[:, CLASSES:] if num_outputs > CLASSES else -outputs
    return ModelOutput(
        outputs=outputs,
        evidence=Evidence(outputs[:, :CLASSES].relu(), against.relu()),
        features=torch.randn(len(clips), 5, generator=torch.Generator().manual_seed(seed + 1)),
        context=torch.randn(max(clips, default=0) + 1, 4),
        actor_clip_index=torch.tensor(clips, dtype=torch.int64),
    )


def at(output, rows):
    rows = torch.tensor(rows, dtype=torch.int64)
    return replace(
        output,
        outputs=output.outputs[rows],
        evidence=Evidence(output.evidence.positive[rows], output.evidence.negative[rows]),
        features=output.features[rows],
        actor_clip_index=output.actor_clip_index[rows],
    )


def looked_at_one_by_one(output):
    """The rule in words: for every clip and action, whoever has the largest output (or difference of two)."""
    rows = []
    for clip in sorted(set(output.actor_clip_index.tolist())):
        own = [row for row, its in enumerate(output.actor_clip_index.tolist()) if its == clip]
        row, num_outputs = [], output.outputs.shape[1]
        for action in range(CLASSES):
            sure = [
                float(output.outputs[actor, action])
                - (float(output.outputs[actor, CLASSES + action]) if num_outputs > CLASSES else 0.0)
                for actor in own
            ]
            row.append(own[sure.index(max(sure))])
        rows.append(row)
    return rows


CLIPS = st.lists(st.integers(0, 4), min_size=1, max_size=12)


@given(clips=CLIPS, num_outputs=st.sampled_from([CLASSES, 2 * CLASSES]), seed=st.integers(0, 3))
def test_each_action_is_told_by_the_actor_who_does_it_most_surely(clips, num_outputs, seed):
    output = said(clips, seed=seed, num_outputs=num_outputs)
    found, expected = output.of_clips(), looked_at_one_by_one(output)
    assert found.actor_clip_index.tolist() == sorted(set(clips))
    for clip, actors in enumerate(expected):
        for column in range(num_outputs):
            assert found.outputs[clip, column] == output.outputs[actors[column % CLASSES], column]
        for action, actor in enumerate(actors):
            assert found.evidence.positive[clip, action] == output.evidence.positive[actor, action]
            assert found.evidence.negative[clip, action] == output.evidence.negative[actor, action]
        own = [row for row, its in enumerate(clips) if its == sorted(set(clips))[clip]]
        torch.testing.assert_close(found.features[clip], output.features[own].mean(dim=0))


def test_one_actor_speaks_for_itself():
    output = said([0, 1, 2])
    found = output.of_clips()
    for name in ("outputs", "features", "context", "actor_clip_index"):
        assert torch.equal(getattr(found, name), getattr(output, name))
    assert torch.equal(found.evidence.positive, output.evidence.positive)


@given(clips=CLIPS, seed=st.integers(0, 3), order=st.randoms(use_true_random=False))
def test_the_order_of_actors_does_not_matter(clips, seed, order):
    output = said(clips, seed=seed, num_outputs=2 * CLASSES)
    shuffled = list(range(len(clips)))
    order.shuffle(shuffled)
    one, other = output.of_clips(), at(output, shuffled).of_clips()
    assert torch.equal(one.outputs, other.outputs)
    assert torch.equal(one.evidence.negative, other.evidence.negative)
    torch.testing.assert_close(one.features, other.features)


def test_only_the_strongest_actor_of_an_action_learns_from_it():
    output = said([0, 0, 0, 1])
    raw = output.outputs.clone().requires_grad_()
    replace(output, outputs=raw).of_clips().outputs[0].sum().backward()
    assert raw.grad is not None
    expected = torch.zeros_like(raw)
    for action, actor in enumerate(looked_at_one_by_one(output)[0]):
        expected[actor, action] = 1
    assert torch.equal(raw.grad, expected)


def test_a_batch_without_actors_says_nothing_of_any_clip():
    found = said([]).of_clips()
    assert (len(found.outputs), len(found.features), len(found.actor_clip_index)) == (0, 0, 0)


def test_what_is_not_a_number_is_never_hidden_behind_another_actor():
    outputs = torch.tensor([[5.0, 1.0, 2.0], [torch.nan, 0.0, 0.0]])
    strongest = strongest_actors(outputs, torch.tensor([0, 0]), num_classes=CLASSES)
    found = of_strongest(outputs, strongest)
    assert found[0, 0].isnan()
    assert found[0, 1:].tolist() == [1.0, 2.0]


def test_outputs_must_be_one_or_two_for_each_action():
    with pytest.raises(ShapeError, match="3 actions must have one output or two; got 4"):
        strongest_actors(torch.zeros(2, 4), torch.zeros(2, dtype=torch.int64), num_classes=CLASSES)


def test_each_branch_of_dear_has_its_own_strongest_actors():
    plain = said([0, 0, 1])
    branches = tuple(said([0, 0, 1], seed=seed).outputs for seed in (5, 6, 7))
    output = DearOutput(**{name: getattr(plain, name) for name in vars(plain)}, branches=branches)
    found = output.of_clips()
    assert isinstance(found, DearOutput)
    assert found.branches is not None
    for one, actors in zip(found.branches, branches, strict=True):
        assert torch.equal(one[0], actors[:2].amax(dim=0))
        assert torch.equal(one[1], actors[2])
    assert replace(output, branches=None).of_clips().branches is None
