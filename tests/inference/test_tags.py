"""Labels that are tags are recognised, and novelty is not read from them: neither ours nor any rival's."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from made_outputs import CLASSES, made_outputs

from mule.core.errors import RangeError
from mule.core.records import Evidence
from mule.evidence.head import exp_evidence
from mule.inference.judging import Judging, facts_unkept, judged, yardstick_of
from mule.inference.remembering import remembered_of, seen_actors
from mule.inference.score_rules import SCORE_NAMES, score_rules
from mule.memory.building import known_among
from mule.memory.files import read_memory, write_memory
from mule.memory.teaching import forget_action
from mule.rivals.scores.outputs import LinearReadout
from mule.watching.engine.bundle import HeldOutOutputs
from mule.watching.engine.judging import Judge

TAGS = ("view:back", "view:front")
MODEL = "0" * 64
ACTIONS = LinearReadout(
    2 * torch.eye(3, 10) - 0.5 * (torch.eye(3, 10) == 0) * (torch.arange(10) < 3), torch.zeros(3)
)


def views(num_actors):
    """1 for the view an actor is seen from, −1 for the other."""
    is_back = torch.arange(num_actors) % 2 == 0
    return torch.where(torch.stack([is_back, ~is_back], dim=1), 1.0, -1.0)


def from_layer(made, layer, labels):
    """What a last linear layer says, with all that scores may need."""
    logits = layer(made.features)
    passes = logits + torch.randn(4, *logits.shape, generator=torch.Generator().manual_seed(3))
    return replace(
        made,
        outputs=torch.cat([logits, -logits], dim=1) if made.kind == "independent" else logits,
        evidence=Evidence(exp_evidence(logits), exp_evidence(-logits)),
        readout=layer,
        dropout_logits=passes,
        labels=labels,
    )


def plain(num_actors, *, seed, kind):
    """A network that sees the view of an actor and has no output for it."""
    made = made_outputs(num_actors, seed=seed, kind=kind)
    made = replace(made, features=torch.cat([made.features, views(num_actors)], dim=1))
    return from_layer(made, ACTIONS, made.labels)


def beside_tags(made):
    """The same network, very sure of the view, with labels for it."""
    tags = torch.cat([torch.zeros(2, 8), 9 * torch.eye(2)], dim=1)
    layer = LinearReadout(torch.cat([tags, ACTIONS.weight]), torch.zeros(5))
    labels = np.concatenate([(views(made.num_actors) > 0).numpy(), made.labels], axis=1)
    tagged = from_layer(made, layer, labels)
    assert made.dropout_logits is not None
    assert tagged.dropout_logits is not None
    passes = torch.cat([tagged.dropout_logits[..., :2], made.dropout_logits], dim=2)
    truth = replace(made.truth, classes=TAGS + CLASSES, labels=labels)
    return replace(tagged, classes=TAGS + CLASSES, dropout_logits=passes, truth=truth, tags=TAGS)


@pytest.mark.parametrize("kind", ["tied", "read", "independent", "dirichlet"])
def test_every_score_says_of_actors_with_tags_what_it_says_without(kind):
    """The oracle is the same network without these outputs."""
    sides = [plain(60 + 10 * seed, seed=seed, kind=kind) for seed in range(3)]
    tagged = [beside_tags(each) for each in sides]
    yardsticks = [yardstick_of(score_rules(SCORE_NAMES), *some[:2]) for some in (sides, tagged)]
    facts = facts_unkept("mule", "test", model=MODEL)
    judging = Judging(resamples=0)
    (result, expected), (also, found) = (
        judged(some[2], yardstick, judging=judging, facts=facts)
        for some, yardstick in zip((sides, tagged), yardsticks, strict=True)
    )
    assert found.keys() == expected.keys()
    for name, novelty in expected.items():
        np.testing.assert_allclose(found[name], novelty, rtol=1e-9, atol=1e-9, err_msg=name)
    assert set(also.mean_ap_by_class) == {*TAGS, *result.mean_ap_by_class}
    assert also.mean_ap_by_class["view:back"] == 1.0


def test_whoever_has_tags_alone_does_nothing_known():
    tagged = beside_tags(plain(6, seed=0, kind="tied"))
    idle = tagged.labels.copy()
    idle[2, 2:] = False
    assert replace(tagged, labels=idle).does_known.tolist() == [True, True, False, True, True, True]


@pytest.mark.parametrize("has_memory", [False, True])
def test_watching_reads_novelty_from_actions_alone_and_recognises_tags(has_memory):
    tagged = [beside_tags(plain(60 + 10 * seed, seed=seed, kind="tied")) for seed in range(3)]
    test = tagged[2]
    content = remembered_of(tagged[0], tagged[1], model=MODEL) if has_memory else None
    found = Judge(None, test.classes, content, tags=TAGS)(test.outputs, test.remembered)
    other = test.outputs.clone()
    other[:, :2] *= -1  # seen from the other side
    turned = Judge(None, test.classes, content, tags=TAGS)(other, test.remembered)
    assert torch.equal(found.ranks, turned.ranks)
    assert not torch.equal(found.together.positive, turned.together.positive)
    read = Judge(None, test.classes, content)(test.outputs, test.remembered)
    assert not torch.allclose(found.ranks, read.ranks)


@pytest.fixture
def remembered():
    tagged = [beside_tags(plain(90 - 20 * seed, seed=seed, kind="tied")) for seed in range(2)]
    return tagged[1], remembered_of(tagged[0], tagged[1], model=MODEL)


def test_nobody_is_remembered_or_held_out_for_tags_alone_once_an_action_is_forgotten(remembered):
    val, content = remembered
    left = forget_action(content, "run")
    assert left.memory.tags == TAGS
    assert (len(content.memory), len(left.memory)) == (90, 60)  # a third of the actors runs
    assert left.held_out is not None
    assert len(left.held_out) == int((val.labels[:, -2] == 0).sum())
    labels = torch.from_numpy(val.labels).float()
    rows = torch.arange(val.num_actors)
    held_out = HeldOutOutputs(val.outputs, val.remembered, rows, rows, labels)
    found = held_out.still_known(val.classes, left, tags=TAGS).labels
    assert found is not None
    assert torch.equal(found, labels[labels[:, -2] == 0])


def test_a_tag_is_forgotten_and_everybody_stays_but_the_last_action_is_not(remembered):
    _, content = remembered
    left = forget_action(content, "view:back")
    assert (left.memory.tags, len(left.memory)) == (("view:front",), 90)
    for name in ("run", "wave"):
        left = forget_action(left, name)
    with pytest.raises(RangeError, match="'bow' is the only one"):
        forget_action(left, "bow")


def test_tags_are_kept_with_a_memory_and_are_among_its_labels(remembered, tmp_path):
    _, content = remembered
    write_memory(tmp_path / "memory.safetensors", content)
    assert read_memory(tmp_path / "memory.safetensors").memory.tags == TAGS
    with pytest.raises(RangeError, match="tags of a memory must be among its labels; view:above are not"):
        replace(content.memory, tags=("view:above",))


def test_who_has_tags_alone_is_not_added(remembered):
    _, content = remembered
    more = seen_actors(beside_tags(plain(4, seed=7, kind="tied")))
    labels = more.labels.clone()
    labels[0, 2:] = 0
    kept = known_among(replace(more, labels=labels), content.memory, source=Path("more.csv"))
    assert len(kept.labels) == 3
    with pytest.raises(
        RangeError, match=r"more.csv: some actors must do a remembered action; none of 1 does"
    ):
        known_among(
            replace(more, labels=labels).at(torch.tensor([True, False, False, False])),
            content.memory,
            source=Path("more.csv"),
        )
