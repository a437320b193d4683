"""The 21 actions: who learns which, what goes together, where each is at home."""

from collections import Counter
from itertools import combinations

import pytest

from mule.core.errors import RangeError
from mule.stage.classes import ACTIONS, SCENE_KINDS, are_compatible, stage_split

SPLITS = [stage_split(name) for name in "ABC"]


@pytest.mark.parametrize("split", SPLITS, ids=lambda split: split.name)
def test_each_split_parts_the_21_actions_into_three_with_the_same_groups(split):
    parts = [split.z1, split.z2, split.z3]
    assert sorted(name for part in parts for name in part) == sorted(ACTIONS)
    assert len(ACTIONS) == 21
    for part in parts:
        assert Counter(ACTIONS[name].group for name in part) == {"body": 2, "arms": 2, "object": 2, "pair": 1}


def test_every_action_is_novel_in_exactly_one_split_and_has_each_role_once():
    for role in ("z1", "z2", "z3"):
        assert sorted(name for split in SPLITS for name in getattr(split, role)) == sorted(ACTIONS)


def test_split_a_is_the_published_one():
    assert SPLITS[0].z1 == ("walk", "squat", "arm_circle", "clap", "carry_box", "kick_ball", "handshake")
    assert SPLITS[0].z2 == ("jump", "bow", "wave", "punch", "bounce_ball", "push_box", "pass_ball")
    assert SPLITS[0].z3 == ("run", "sway", "jacks", "salute", "juggle", "overhead_lift", "high_five")


@pytest.mark.parametrize("split", SPLITS, ids=lambda split: split.name)
def test_each_scene_is_home_to_six_known_actions_three_of_them_tested_and_three_novel(split):
    for part in (split.z1, split.z2, split.z3):
        for scene in SCENE_KINDS:
            assert sum(scene in ACTIONS[name].homes for name in part) == 3


@pytest.mark.parametrize("split", SPLITS, ids=lambda split: split.name)
def test_any_two_actions_of_a_column_share_exactly_one_scene(split):
    for part in (split.z1, split.z2, split.z3):
        for first, second in combinations(part, 2):
            assert len(ACTIONS[first].homes & ACTIONS[second].homes) == 1


@pytest.mark.parametrize("split", SPLITS, ids=lambda split: split.name)
def test_in_every_scene_some_known_actions_go_together_and_not_all_take_two(split):
    for scene in SCENE_KINDS:
        at_home = [name for name in split.known if scene in ACTIONS[name].homes]
        assert sum(are_compatible(names) for names in combinations(at_home, 2)) >= 5
        for part in (split.z1, split.z2, split.z3):
            groups = [ACTIONS[name].group for name in part if scene in ACTIONS[name].homes]
            assert groups.count("pair") <= 1


def test_nothing_and_every_single_action_is_compatible():
    assert are_compatible([])
    assert all(are_compatible([name]) for name in ACTIONS)
    assert not are_compatible(["walk", "walk"])


def test_compatible_actions_never_ask_for_a_part_of_the_body_twice():
    for size in (2, 3):
        for names in combinations(ACTIONS, size):
            chosen = [ACTIONS[name] for name in names]
            asks_twice = (
                sum(action.num_arms for action in chosen) > 2
                or sum(action.legs for action in chosen) > 1
                or sum(action.torso for action in chosen) > 1
            )
            if asks_twice:
                assert not are_compatible(names)
            else:
                groups = {action.group for action in chosen}
                assert are_compatible(names) == (not {"object", "pair"} <= groups)


@pytest.mark.parametrize(
    ("names", "expected"),
    [
        (["walk", "carry_box"], True),
        (["squat", "sway", "punch"], True),
        (["bounce_ball", "salute", "walk"], True),
        (["walk", "run"], False),
        (["push_box", "wave"], False),
        (["handshake", "walk"], False),
        (["handshake", "bow"], True),
        (["handshake", "bounce_ball"], False),
        (["handshake", "high_five"], False),
    ],
)
def test_compatibility_is_what_a_person_could_do(names, expected):
    assert are_compatible(names) == expected


def test_homes_are_three_scenes_on_a_line():
    assert ACTIONS["walk"].homes == {"brick_wall", "meadow", "sea_shore"}


def test_an_unknown_split_is_refused():
    with pytest.raises(RangeError, match=r"split must be A, B or C; got 'D'\."):
        stage_split("D")
