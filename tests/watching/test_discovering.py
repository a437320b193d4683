"""Novel looks become acts, acts become groups of people who do the same, and groups get names."""

from collections import Counter
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from tiny_bundles import MadeUpBoxes, leaves, stays

import mule
from mule.core.errors import AnnotationError
from mule.novelty.whitened import WhitenedCosine
from mule.watching.discovering import grouping
from mule.watching.discovering.acts import FEATURES, MOST_GAP_S, Act, Acts, novel_acts
from mule.watching.discovering.discover import discover, group_acts
from mule.watching.discovering.grouping import NO_GROUP, grouped
from mule.watching.discovering.groups import read_groups, summary_lines, write_groups
from mule.watching.engine.bundle import read_bundle
from mule.watching.outputs.looks_file import LOOKS, LooksFile
from mule.watching.outputs.moments_file import MOMENTS, MomentsFile

SECONDS = 6


@pytest.fixture(scope="module")
def stage():
    return read_bundle(Path("stage"))


@pytest.fixture(scope="module")
def watched(tmp_path_factory, stage):
    """Noise with two people in it; most known people are less strange than that."""
    draw = np.random.default_rng(0)
    picture = draw.integers(0, 255, (96, 128, 3), dtype=np.uint8)
    frames = (np.roll(picture, 3 * number, axis=1) for number in range(16 * SECONDS))
    folder = tmp_path_factory.mktemp("watched") / "hall"
    people = MadeUpBoxes(stays((0.1, 0.2, 0.4, 0.9)), leaves((0.5, 0.2, 0.8, 0.9), 3.5))
    assert list(mule.watch(frames, rate=16, model=stage, detector=people, threshold="0.3", out=folder))
    return folder


def remembered_acts(stage, actions, *, each=30):
    """Remembered actors of some actions, each an act of its own."""
    memory = stage.judge.remembered.memory
    rows, does = [], []
    for action in actions:
        column = memory.class_names.index(action)
        alone = (memory.labels > 0).sum(dim=1) == 1
        found = torch.nonzero(alone & (memory.labels[:, column] > 0)).flatten()[:each].tolist()
        rows += found
        does += [action] * len(found)
    acts = tuple(
        Act(Path("hall"), "hall", at, (float(at), at + 1.0), ((0.1, 0.1, 0.2, 0.9),) * 2, 0)
        for at in range(len(rows))
    )
    return Acts(acts, {FEATURES: memory.features[rows].float()}), does


def test_every_novel_look_is_in_one_act(watched, stage):
    acts = novel_acts([watched], stage)
    novel = [
        (actor.track_id, moment.key_time_s)
        for moment in MomentsFile(watched / MOMENTS)
        for actor in moment.actors
        if actor.is_novel
    ]
    assert novel
    assert Counter((act.track_id, time_s) for act in acts.acts for time_s in act.times_s) == Counter(novel)
    for act in acts.acts:
        gaps = np.diff(act.times_s)
        assert (gaps > 0).all()
        assert (gaps <= MOST_GAP_S).all()


def test_an_act_shows_the_mean_of_its_looks(watched, stage):
    acts = novel_acts([watched], stage)
    kept = {each.place.key_time_s: each for each in LooksFile(watched / LOOKS)}
    for at, act in enumerate(acts.acts):
        rows = [
            kept[time_s].looks.features[kept[time_s].place.track_ids.tolist().index(act.track_id)]
            for time_s in act.times_s
        ]
        torch.testing.assert_close(acts.seen[FEATURES][at], torch.stack(rows).mean(dim=0))


def test_every_act_is_in_one_group_or_apart_and_files_are_read_as_written(stage, tmp_path):
    acts, _ = remembered_acts(stage, stage.classes[:3])
    groups = group_acts(acts, stage)
    members = [act.track_id for group in groups.groups for act in group.members]
    members += [act.track_id for act in groups.apart]
    assert sorted(members) == list(range(len(acts)))
    assert groups.groups
    for group in groups.groups:
        typical = [act.typical for act in group.members]
        assert typical == sorted(typical, reverse=True)
        assert group.num_looks == 2 * len(group.members)
        assert group.seconds == len(group.members)
    looks = [group.num_looks for group in groups.groups]
    assert looks == sorted(looks, reverse=True)
    write_groups(tmp_path / "groups.json", groups)
    assert read_groups(tmp_path / "groups.json") == groups
    assert len(summary_lines(groups)) == len(groups.groups) + 1


def test_groups_hold_people_who_do_the_same_and_name_the_action_that_they_resemble(stage):
    acts, does = remembered_acts(stage, stage.classes[:3])
    groups = group_acts(acts, stage)
    named = 0
    for group in groups.groups:
        true, count = Counter(does[act.track_id] for act in group.members).most_common(1)[0]
        assert count >= 0.8 * len(group.members)
        named += group.nearest[0].name == true
    assert named >= 0.8 * len(groups.groups)


def test_the_order_of_acts_does_not_matter(stage):
    acts, _ = remembered_acts(stage, stage.classes[:3])
    order = torch.randperm(len(acts), generator=torch.Generator().manual_seed(0))
    shuffled = Acts(
        tuple(acts.acts[at] for at in order.tolist()), {n: e[order] for n, e in acts.seen.items()}
    )

    def sets(groups):
        return {frozenset(act.track_id for act in group.members) for group in groups.groups}

    first, second = sets(group_acts(acts, stage)), sets(group_acts(shuffled, stage))
    assert len(first & second) >= 0.7 * max(len(first), len(second))  # ties and the last digits may differ


def directions(*, each, seed=0):
    draw = torch.Generator().manual_seed(seed)
    middle = torch.eye(4, 12).repeat_interleave(each, dim=0)
    return F.normalize(middle + 0.08 * torch.randn(4 * each, 12, generator=draw), dim=1)


def test_rows_that_were_not_clustered_join_the_group_of_their_nearest_one(monkeypatch):
    rows = torch.cat([directions(each=60), -torch.eye(12)[6:9]])
    monkeypatch.setattr(grouping, "MOST_CLUSTERED", 80)
    groups = grouped(rows).groups
    true = torch.arange(4).repeat_interleave(60)
    assert (groups[:240] != NO_GROUP).double().mean() >= 0.8
    for number in range(int(groups.max()) + 1):
        assert len(true[groups[:240] == number].unique()) == 1
    assert (groups[240:242] == NO_GROUP).all()  # the last row is among those that were clustered


def test_few_rows_make_no_group():
    for count in range(4):
        assert grouped(directions(each=1)[:count]).num_groups == 0


def test_nobody_novel_makes_no_groups(stage):
    assert group_acts(Acts((), {}), stage).groups == ()


def test_looks_of_another_network_are_refused(watched, stage):
    other = replace(stage, card=stage.card.model_copy(update={"weights_sha256": "ab" * 32}))
    with pytest.raises(AnnotationError, match="Take the model that watched"):
        discover([watched], other)


def test_whitened_rows_have_length_one_and_give_the_similarities():
    rows = directions(each=20)
    labels = torch.arange(4).repeat_interleave(20)[:, None] == torch.arange(4)
    space = WhitenedCosine.fit(rows, labels)
    whitened = space.whitened(rows)
    torch.testing.assert_close(whitened.norm(dim=1), torch.ones(80, dtype=torch.float64))
    torch.testing.assert_close(whitened @ space.prototypes.T, space.similarity(rows))
