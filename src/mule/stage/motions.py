"""Motions of an actor who does several actions at once: legs first, then the trunk, then the arms.

Walking legs swing free arms and a bowing trunk lets them hang; arms that have something to do come last and override
this. All motions are periodic in time, with the actor's own tempo, phase and amplitude. This module holds the motions
of the arms, `body_motions` those of legs and trunk.
"""

from collections.abc import Callable

import numpy as np

from mule.core.errors import RangeError
from mule.stage import body_motions
from mule.stage.classes import ACTIONS
from mule.stage.figure import shoulders_of
from mule.stage.poses import (
    LEFT,
    RIGHT,
    STANDING_HEIGHT,
    Beat,
    Pose,
    Series,
    cosine,
    pulse,
    sine,
    smooth,
    standing,
    with_arm,
    with_arms,
    with_trunk,
    within,
)

_FULL_ARM = 0.315


def arm_circle(pose: Pose, beat: Beat, arms: tuple[int, ...]) -> Pose:
    """Turn stretched arms forwards in full circles."""
    turns = beat.turns("arm_circle")
    hand = (_FULL_ARM * cosine(turns), 0.07, _FULL_ARM * sine(turns))
    return with_arms(pose, arms, hand, (-0.2, 1.0, -0.2))


def clap(pose: Pose, beat: Beat, arms: tuple[int, ...]) -> Pose:
    """Clap hands in front of the chest."""
    apart = pulse(beat.turns("clap")) ** 0.7 * beat.amplitude
    hand = (0.225 - 0.03 * apart, 0.17 * apart - 0.098, 0.01 * apart)
    return with_arms(pose, arms, hand, (-0.4, 1.0, -0.7))


def wave(pose: Pose, beat: Beat, arms: tuple[int, ...]) -> Pose:
    """Wave a raised hand."""
    swing = sine(beat.turns("wave"))
    hand = (0.07 + 0.12 * beat.amplitude * swing, 0.04, 0.30 - 0.03 * swing * swing)
    return with_arms(pose, arms, hand, (0.5, 1.0, -0.5))


def punch(pose: Pose, beat: Beat, arms: tuple[int, ...]) -> Pose:
    """Punch forwards with alternating fists."""
    turns = beat.turns("punch")
    for side in arms:
        out = smooth(1.6 * pulse(turns + 0.5 * side) - 0.5) * min(beat.amplitude, 1.1)
        hand = (0.075 + 0.24 * out, -0.035 - 0.04 * out, -0.04 + 0.05 * out)
        pose = with_arm(pose, side, hand, (-0.5, 0.55, -1.0))
    lead = sine(turns + 0.25)
    return with_trunk(pose, spine=(pose.spine[:, 0], pose.spine[:, 1], pose.spine[:, 2] + 0.25 * lead))


def jacks(pose: Pose, beat: Beat, arms: tuple[int, ...]) -> Pose:
    """Raise stretched arms sideways until they meet overhead, and lower them."""
    angle = -1.35 + (1.35 + 1.22) * smooth(1.2 * pulse(beat.turns("jacks")) - 0.1)
    hand = (0.02, _FULL_ARM * np.cos(angle), _FULL_ARM * np.sin(angle))
    return with_arms(pose, arms, hand, (-1.0, 0.1, -0.1))


def salute(pose: Pose, beat: Beat, arms: tuple[int, ...]) -> Pose:
    """Raise a hand to the brow, hold it, and lower it."""
    turns = beat.turns("salute")
    raised = smooth(within(turns, 0.04, 0.2)) - smooth(within(turns, 0.8, 0.96))
    down, brow = np.array([0.03, 0.05, -0.285]), np.array([0.085, -0.035, 0.135])
    hand = down + (brow - down) * raised[:, None]
    return with_arms(pose, arms, tuple(hand.T), (0.75, 1.0, -0.15))


def carry_box(pose: Pose, beat: Beat, arms: tuple[int, ...]) -> Pose:
    """Hold a box in front of the belly with both arms."""
    sag = 0.012 * sine(beat.turns("carry_box"))
    pose = with_arms(pose, arms, (0.165, -0.01, -0.175 + sag), (-0.7, 0.8, -0.5))
    return with_trunk(pose, spine=(pose.spine[:, 0] - 0.10, pose.spine[:, 1], 0.3 * pose.spine[:, 2]))


def overhead_lift(pose: Pose, beat: Beat, arms: tuple[int, ...]) -> Pose:
    """Lift a box from the chest to above the head with both arms."""
    raised = smooth(1.3 * pulse(beat.turns("overhead_lift")) - 0.15)
    return with_arms(pose, arms, (0.16 - 0.12 * raised, -0.02, -0.16 + 0.46 * raised), (0.1, 1.0, -0.8))


def bounce_ball(pose: Pose, beat: Beat, arms: tuple[int, ...]) -> Pose:
    """Push a ball down with one hand and meet it as it comes back."""
    press = pulse(beat.turns("bounce_ball") + 0.5) ** 2
    hand = (0.16, 0.05, -0.165 + 0.07 * (1 - press) - 0.05 * press)
    pose = with_arms(pose, arms, hand, (-1.0, 0.6, 0.0))
    return with_trunk(pose, spine=(pose.spine[:, 0] + 0.10, pose.spine[:, 1], pose.spine[:, 2]))


def juggle(pose: Pose, beat: Beat, arms: tuple[int, ...]) -> Pose:
    """Throw and catch with alternating hands."""
    turns = beat.turns("juggle")
    for side in arms:
        own = turns + 0.5 * side
        pose = with_arm(
            pose, side, (0.165, -0.005 - 0.045 * cosine(own), -0.125 + 0.045 * sine(own)), (-0.8, 0.8, -0.6)
        )
    return with_trunk(pose, nod=-0.15 + pose.nod)


def _meeting_hand(pose: Pose, beat: Beat, side: int, height: Series | float) -> np.ndarray:
    """Return the vector from the shoulder to where the hands of a pair meet, at this share of their mean height."""
    if beat.meeting is None:
        raise RangeError("a pair action needs a partner; got none. `Segment.partner` names one.")
    target = np.stack([beat.meeting[:, 0], beat.meeting[:, 1], height * beat.meeting[:, 2]], axis=1)
    hand = target - shoulders_of(pose)[3][:, side]
    hand[:, 1] *= 1 if side == LEFT else -1
    return hand


def handshake(pose: Pose, beat: Beat, arms: tuple[int, ...]) -> Pose:
    """Hold the partner's hand and move it up and down."""
    shake = 0.035 * beat.amplitude * sine(beat.turns("handshake"))
    for side in arms:
        hand = _meeting_hand(pose, beat, side, 0.60 + shake)
        hand[:, 0] -= 0.02
        pose = with_arm(pose, side, tuple(hand.T), (-0.5, 0.4, -1.0))
    return pose


def high_five(pose: Pose, beat: Beat, arms: tuple[int, ...]) -> Pose:
    """Raise a hand, clap the partner's, and draw it back."""
    meet = smooth(1.5 * pulse(beat.turns("high_five")) - 0.4)
    for side in arms:
        hand = _meeting_hand(pose, beat, side, 1.0)
        away = np.array([0.10, 0.07, -0.10])
        pose = with_arm(pose, side, tuple((away + (hand - away) * meet[:, None]).T), (0.2, 0.6, -1.0))
    return pose


def pass_ball(pose: Pose, beat: Beat, arms: tuple[int, ...]) -> Pose:
    """Throw a ball from the chest with both hands, and reach out to catch it."""
    turns = beat.turns("pass_ball") + (0.0 if beat.is_first else 0.5)
    out = np.maximum(pulse(within(turns, 0.02, 0.34)), pulse(within(turns, 0.76, 1.0)))
    pose = with_arms(pose, arms, (0.12 + 0.16 * out, -0.045, -0.07 + 0.03 * out), (-0.5, 0.9, -0.7))
    return with_trunk(pose, spine=(pose.spine[:, 0] + 0.12 * out, pose.spine[:, 1], pose.spine[:, 2]))


Move = Callable[[Pose, Beat, tuple[int, ...]], Pose]


def pose_of(actions: tuple[str, ...], beat: Beat) -> Pose:
    """Return the pose of an actor who does all these actions at once."""
    pose = standing(len(beat.time_s))
    breath = 0.004 * sine(beat.time_s * 0.3 + beat.phase)
    pose = with_trunk(pose, pelvis=(0.0, 0.0, STANDING_HEIGHT + breath - 0.004))
    arms = arms_of(actions, is_right_handed=beat.is_right_handed)
    has_free_legs = not any(ACTIONS[name].legs for name in actions)
    for name in sorted(actions, key=_order):
        pose = _MOVES[name](pose, beat, arms[name])
        if name == "jacks" and has_free_legs:
            pose = body_motions.hopping_apart(pose, beat)
    return pose


def arms_of(actions: tuple[str, ...], *, is_right_handed: bool) -> dict[str, tuple[int, ...]]:
    """Return the arms that each action moves: a handshake the right one, others the preferred hand first."""
    preferred = [RIGHT, LEFT] if is_right_handed else [LEFT, RIGHT]
    free = [RIGHT, LEFT] if any(ACTIONS[name].group == "pair" for name in actions) else preferred
    taken: dict[str, tuple[int, ...]] = {}
    for name in sorted(
        actions, key=lambda name: ("pair", "object", "arms", "body").index(ACTIONS[name].group)
    ):
        count = ACTIONS[name].num_arms
        taken[name], free = tuple(free[:count]), free[count:]
    return taken


def _order(name: str) -> int:
    action = ACTIONS[name]
    return 0 if action.legs and action.num_arms == 0 else 1 if action.torso and action.num_arms == 0 else 2


_MOVES: dict[str, Move] = {
    "walk": body_motions.walk,
    "run": body_motions.run,
    "squat": body_motions.squat,
    "jump": body_motions.jump,
    "bow": body_motions.bow,
    "sway": body_motions.sway,
    "kick_ball": body_motions.kick_ball,
    "push_box": body_motions.push_box,
    "arm_circle": arm_circle,
    "clap": clap,
    "wave": wave,
    "punch": punch,
    "jacks": jacks,
    "salute": salute,
    "carry_box": carry_box,
    "overhead_lift": overhead_lift,
    "bounce_ball": bounce_ball,
    "juggle": juggle,
    "handshake": handshake,
    "high_five": high_five,
    "pass_ball": pass_ball,
}
