"""Who does what before which scene: the draws of the benchmark."""

from collections import Counter
from dataclasses import replace

import numpy as np
import pytest

from mule.core.errors import RangeError
from mule.stage.benchmark import StageSet
from mule.stage.classes import ACTIONS, SCENE_KINDS, are_compatible
from mule.stage.plans import LANES, Plan


def plans(num_clips=100, **values):
    clips = StageSet(num_clips=num_clips, **values)
    return clips.classes, [clips.plan(index) for index in range(num_clips)]


def actions_of(plan):
    return [actor.segments[0].actions for actor in plan.actors]


def labels_of(plan):
    return [name for actions in actions_of(plan) for name in actions]


def is_tied(plan):
    return all(plan.scene.kind in ACTIONS[name].homes for name in labels_of(plan))


def test_a_set_of_no_clips_has_none():
    clips = StageSet(num_clips=0)
    assert len(clips) == 0
    with pytest.raises(IndexError, match="clip must be from 0 to -1; got 0"):
        clips.plan(0)


@pytest.mark.parametrize(("role", "size"), [("train", 2000), ("val", 300), ("test", 400)])
def test_the_benchmark_has_its_sizes(role, size):
    assert len(StageSet(role=role)) == size


@pytest.mark.parametrize("split", ["A", "B", "C"])
def test_training_and_validation_show_known_actions_only_and_all_of_them(split):
    for role in ("train", "val"):
        classes, found = plans(split=split, role=role)
        assert {name for plan in found for name in labels_of(plan)} == set(classes.known)


@pytest.mark.parametrize("split", ["A", "B", "C"])
def test_every_test_actor_is_known_or_novel_and_clips_mix_them(split):
    classes, found = plans(split=split, role="test")
    is_novel = []
    for plan in found:
        sides = [set(actions) <= set(classes.z3) for actions in actions_of(plan)]
        assert all(
            novel or set(actions) <= set(classes.z2)
            for novel, actions in zip(sides, actions_of(plan), strict=True)
        )
        is_novel.append(sides)
    flat = [novel for sides in is_novel for novel in sides]
    assert 0.4 < np.mean(flat) < 0.6
    assert any(len(set(sides)) == 2 for sides in is_novel)
    assert {name for plan in found for name in labels_of(plan)} == {*classes.z2, *classes.z3}


@pytest.mark.parametrize("role", ["train", "test"])
def test_actors_are_one_to_four_with_one_to_three_compatible_actions_and_their_own_number(role):
    _, found = plans(role=role, bias=0.5)
    assert {len(plan.actors) for plan in found} == {1, 2, 3, 4}
    assert {len(actions) for plan in found for actions in actions_of(plan)} == {1, 2, 3}
    for plan in found:
        assert [actor.actor_id for actor in plan.actors] == list(range(len(plan.actors)))
        assert all(are_compatible(actions) for actions in actions_of(plan))
        assert all(LANES[0] <= actor.lane <= LANES[1] for actor in plan.actors)
        assert all(38 <= 96 * actor.height <= 54.5 for actor in plan.actors)


def test_pair_actions_have_two_actors_who_name_each_other():
    _, found = plans(role="test", split="B")
    pairs = 0
    for plan in found:
        for actor in plan.actors:
            part = actor.segments[0]
            has_pair_action = any(ACTIONS[name].group == "pair" for name in part.actions)
            assert has_pair_action == (part.partner is not None)
            if part.partner is not None:
                other = plan.actors[part.partner]
                assert other.segments[0].partner == actor.actor_id
                assert other.lane == actor.lane
                pairs += 1
    assert pairs > 0


def test_the_share_of_training_clips_tied_to_their_scene_is_the_bias():
    """A clip without a theme is tied too if all its actions happen to be at home in its scene: count those apart."""
    bias = 0.7
    tied = [is_tied(plan) for plan in plans(300, bias=bias)[1]]
    accident = np.mean([is_tied(plan) for plan in plans(200, bias=0.0, seed=1)[1]])
    assert accident < 0.2
    assert np.mean(tied) == pytest.approx(
        bias + (1 - bias) * accident, abs=3 * np.sqrt(bias * (1 - bias) / 300)
    )


@pytest.mark.parametrize("split", ["A", "B", "C"])
def test_a_theme_ties_all_actors_of_a_training_clip(split):
    _, found = plans(bias=1.0, split=split)
    assert all(is_tied(plan) for plan in found)
    assert set(Counter(plan.scene.kind for plan in found)) == set(SCENE_KINDS)


def share_at_home(mode):
    _, found = plans(200, role="test", scenes=mode)
    at_home = [plan.scene.kind in ACTIONS[name].homes for plan in found for name in labels_of(plan)]
    return np.mean(at_home)


def test_biased_test_scenes_are_home_to_nearly_all_actions_and_counter_scenes_to_few():
    biased, uniform, counter = (share_at_home(mode) for mode in ("biased", "uniform", "counter"))
    assert biased > 0.93
    assert uniform == pytest.approx(3 / 7, abs=0.06)
    assert counter < 0.2


def test_no_scene_is_home_to_fewer_of_a_clips_actions_than_its_counter_scene():
    for plan in plans(role="test", scenes="counter")[1]:
        counts = Counter(scene for name in labels_of(plan) for scene in ACTIONS[name].homes)
        assert counts[plan.scene.kind] == min(counts[scene] for scene in SCENE_KINDS)


def test_the_three_scene_modes_have_the_same_actors_props_and_noise():
    found = [plans(20, role="test", scenes=mode)[1] for mode in ("uniform", "biased", "counter")]
    for uniform, biased, counter in zip(*found, strict=True):
        assert replace(biased, scene=uniform.scene) == uniform
        assert replace(counter, scene=uniform.scene) == uniform
        assert biased.scene.kind != counter.scene.kind


def test_a_clip_does_not_depend_on_how_many_there_are():
    assert StageSet(num_clips=3).plan(2) == StageSet(num_clips=300).plan(2)


@pytest.mark.parametrize("change", [{"seed": 1}, {"split": "B"}, {"role": "val"}])
def test_seed_split_and_role_each_give_other_clips_and_another_name(change):
    assert StageSet(**change).plan(0).actors != StageSet().plan(0).actors
    assert StageSet(**change).name != StageSet().name


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"role": "dev"}, "role must be train, val or test; got 'dev'"),
        ({"scenes": "fair"}, "scenes must be uniform, biased or counter; got 'fair'"),
        ({"bias": 1.5}, "bias must be from 0 to 1; got 1.5"),
        ({"seed": -1}, "seed must not be negative; got -1"),
        ({"num_clips": -1}, "num_clips must not be negative; got -1"),
        ({"split": "D"}, "split must be A, B or C; got 'D'"),
        ({"size": (8, 128)}, "a picture must have 16 to 2160 rows"),
        ({"num_frames": 0}, "a clip must have 1 to 960 frames; got 0"),
        ({"role": "dev", "bias": 2.0}, "role must be.*; bias must be"),
    ],
)
def test_values_without_meaning_are_refused(values, message):
    with pytest.raises(RangeError, match=message):
        StageSet(**values)


def test_a_plan_refuses_unknown_actions_and_numbers_given_twice():
    plan = next(plan for plan in plans(20)[1] if len(plan.actors) > 1)
    first = plan.actors[0]
    twice = (first, replace(plan.actors[1], actor_id=first.actor_id))
    with pytest.raises(RangeError, match="two actors share a number"):
        replace(plan, actors=twice)
    part = replace(first.segments[0], actions=("fly",))
    with pytest.raises(RangeError, match="actor 0 does 'fly', which Stage does not know"):
        replace(plan, actors=(replace(first, segments=(part,)),))
    part = replace(first.segments[0], actions=("handshake",), partner=None)
    with pytest.raises(RangeError, match="actor 0 does 'handshake' without a partner"):
        replace(plan, actors=(replace(first, segments=(part,)),))
    with pytest.raises(RangeError, match="actor 0 has nothing to do"):
        replace(plan, actors=(replace(first, segments=()),))
    assert isinstance(plan, Plan)
