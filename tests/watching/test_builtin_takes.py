"""Takes with a known and a novel cast, and what is true of them."""

import pytest
import torch

from examples.builtin_takes import (
    SPLIT,
    Cast,
    TrueActor,
    mixed_take,
    pairs_of,
    read_truth,
    write_take,
    write_truth,
)


@pytest.mark.parametrize("index", range(4))
def test_some_actors_do_known_actions_only_and_the_others_novel_ones_only(index):
    plan = mixed_take(Cast(seed=3, num_known=3, num_novel=2, seconds=8.0), index)
    assert [actor.actor_id for actor in plan.actors] == [0, 1, 2, 3, 4]
    for actor in plan.actors:
        done = {name for part in actor.segments for name in part.actions}
        assert done <= set(SPLIT.novel if actor.actor_id >= 3 else SPLIT.known)
        for part in actor.segments:
            if part.partner is not None:
                assert (part.partner >= 3) == (actor.actor_id >= 3)
                others = [each.partner for each in plan.actors[part.partner].segments]
                assert actor.actor_id in others


def test_what_is_true_comes_back_from_its_file(tmp_path):
    plan = mixed_take(Cast(seed=3, num_known=1, num_novel=1, seconds=2.0))
    truth = write_take(plan, tmp_path / "take.mp4", (48, 64), every_frames=8)
    assert sorted(truth) == [0, 8, 16, 24]
    assert {actor.is_novel for actors in truth.values() for actor in actors} == {False, True}
    write_truth(tmp_path / "take.json", truth)
    assert read_truth(tmp_path / "take.json") == truth


def test_one_taught_action_makes_an_actor_known():
    box = (0.0, 0.0, 1.0, 1.0)
    assert TrueActor(0, box, ("juggle", "run")).is_novel
    assert not TrueActor(0, box, ("juggle", "walk")).is_novel


def test_boxes_find_one_partner_each_the_best_first():
    first = torch.tensor([[0.0, 0.0, 1.0, 1.0], [0.0, 0.0, 0.9, 1.0], [2.0, 2.0, 3.0, 3.0]])
    second = torch.tensor([[0.0, 0.0, 1.0, 1.0], [2.0, 2.4, 3.0, 3.4], [2.0, 2.8, 3.0, 3.8]])
    assert pairs_of(first, second) == [(0, 0)]
    assert pairs_of(first[:2], torch.cat([second[:1], second[:1]])) == [(0, 0), (1, 1)]
    assert pairs_of(first[:0], second) == []
