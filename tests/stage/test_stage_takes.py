"""Longer takes: actors come, do one thing after another, and go."""

from itertools import pairwise

import numpy as np
import pytest

from mule.core.errors import RangeError
from mule.stage.classes import ACTIONS, are_compatible
from mule.stage.plans import FRAME_RATE
from mule.stage.rendering import render
from mule.stage.takes import TakeRecipe, plan_take

TAKES = [plan_take(TakeRecipe(seconds=14.0, num_actors=5), index) for index in range(12)]


def test_segments_follow_each_other_without_a_gap_in_time_or_place():
    for plan in TAKES:
        assert plan.num_frames == 14 * FRAME_RATE
        assert sorted(actor.actor_id for actor in plan.actors) == [0, 1, 2, 3, 4]
        for actor in plan.actors:
            assert all(are_compatible(part.actions) and part.actions for part in actor.segments)
            for before, after in pairwise(actor.segments):
                assert before.end_s == after.start_s
                assert before.end_x == pytest.approx(after.start_x)


def test_actors_change_actions_enter_leave_meet_and_use_all_actions():
    actors = [actor for plan in TAKES for actor in plan.actors]
    assert np.mean([len(actor.segments) for actor in actors]) > 2
    assert any(actor.segments[0].start_s > 0 for actor in actors)
    assert any(actor.segments[-1].end_x < 0 or actor.segments[-1].end_x > 16 / 9 for actor in actors)
    shown = {name for actor in actors for part in actor.segments for name in part.actions}
    assert shown == set(ACTIONS)


def test_nobody_appears_or_vanishes_within_the_picture():
    for plan in TAKES:
        for actor in plan.actors:
            first, last = actor.segments[0], actor.segments[-1]
            assert first.start_s == 0 or not -0.2 < first.start_x < plan.aspect + 0.2
            assert last.end_s > plan.duration_s - 1e-6 or not -0.2 < last.end_x < plan.aspect + 0.2


def test_two_who_do_something_together_do_it_at_the_same_time():
    for plan in TAKES:
        for actor in plan.actors:
            for part in actor.segments:
                if part.partner is not None:
                    other = plan.actors[part.partner].segment_at(part.start_s)
                    assert other is not None
                    assert (other.start_s, other.actions, other.partner) == (
                        pytest.approx(part.start_s),
                        part.actions,
                        actor.actor_id,
                    )


def test_nobody_jumps_from_frame_to_frame():
    plan = plan_take(TakeRecipe(seconds=5.0, num_actors=4, seed=2, aspect=4 / 3))
    clip = render(plan, (48, 64))
    boxes, is_seen = clip.actor_boxes_xyxy_unit, clip.visibility > 0
    middle = (boxes[..., :2] + boxes[..., 2:]) / 2
    step = np.abs(np.diff(middle, axis=0)).max(axis=-1)
    assert step[is_seen[1:] & is_seen[:-1]].max() < 0.09


def test_labels_change_with_the_segments_and_are_empty_for_the_absent():
    plan = TAKES[0]
    for actor in plan.actors:
        for part in actor.segments:
            if part.start_s < plan.duration_s:
                assert plan.labels_at(part.start_s)[actor.actor_id] == part.actions
    absent = [actor for take in TAKES for actor in take.actors if actor.segments[0].start_s > 0]
    assert absent[0].segment_at(0.0) is None


def test_only_the_given_classes_are_shown():
    classes = ("squat", "clap", "handshake")
    plan = plan_take(TakeRecipe(seconds=6.0, classes=classes, num_actors=3))
    assert {name for actor in plan.actors for part in actor.segments for name in part.actions} <= set(classes)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"seconds": 0.0}, "1 to 3600 seconds; got 0.0"),
        ({"num_actors": 0}, "1 to 12 actors; got 0"),
        ({"classes": ("fly", "walk")}, "classes must be actions of Stage; fly"),
        ({"classes": ("handshake",)}, "one actor can do alone"),
        ({"classes": ()}, "one actor can do alone"),
    ],
)
def test_takes_without_meaning_are_refused(values, message):
    with pytest.raises(RangeError, match=message):
        TakeRecipe(**values)
