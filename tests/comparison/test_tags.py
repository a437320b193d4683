"""Labels that are tags are recognised, and novelty is not read from them: neither ours nor any rival's."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from made_outputs import CLASSES, made_outputs

from mule.baselines.outputs import LinearReadout
from mule.comparison.judging import Judging, facts_unkept, judged, yardstick_of
from mule.comparison.remembering import remembered_of
from mule.comparison.score_rules import SCORE_NAMES, score_rules
from mule.evidence.head import exp_evidence
from mule.records import Evidence
from mule.watching.bundle import HeldOutOutputs
from mule.watching.judging import Judge

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


def test_held_out_actors_whose_action_was_forgotten_are_not_kept_for_their_tags():
    tagged = beside_tags(plain(60, seed=0, kind="tied"))
    content = remembered_of(tagged, beside_tags(plain(50, seed=1, kind="tied")), model=MODEL)
    labels = torch.from_numpy(tagged.labels).float()
    held_out = HeldOutOutputs(tagged.outputs, tagged.remembered, torch.arange(60), torch.arange(60), labels)
    names = tuple(name for name in content.memory.class_names if name != "run")
    columns = [content.memory.class_names.index(name) for name in names]
    smaller = replace(content.memory, class_names=names, labels=content.memory.labels[:, columns])
    left = held_out.still_known(tagged.classes, replace(content, memory=smaller), tags=TAGS)
    assert left.labels is not None
    assert len(left.labels) == 40
    assert not left.labels[:, tagged.classes.index("run")].any()
