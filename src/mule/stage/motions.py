"""Actions of the arms, alone, with an object, or with a partner."""

import numpy as np

from mule.core.errors import RangeError
from mule.stage.figure import shoulders_of
from mule.stage.poses import (
    LEFT,
    Beat,
    Pose,
    Series,
    cosine,
    pulse,
    sine,
    smooth,
    with_arm,
    with_trunk,
    within,
)

_FULL_ARM = 0.315


def arm_circle(pose: Pose, beat: Beat, arms: tuple[int, ...]) -> Pose:
    """Stretched arms turn forwards in full circles."""
    turns = beat.turns("arm_circle")
    for side in arms:
        pose = with_arm(
            pose, side, (_FULL_ARM * cosine(turns), 0.07, _FULL_ARM * sine(turns)), (-0.2, 1.0, -0.2)
        )
    return pose


def clap(pose: Pose, beat: Beat, arms: tuple[int, ...]) -> Pose:
    """Hands meet before the chest and part."""
    apart = pulse(beat.turns("clap")) ** 0.7 * beat.amplitude
    for side in arms:
        pose = with_arm(
            pose, side, (0.225 - 0.03 * apart, 0.17 * apart - 0.098, 0.0 + 0.01 * apart), (-0.4, 1.0, -0.7)
        )
    return pose


def wave(pose: Pose, beat: Beat, arms: tuple[int, ...]) -> Pose:
    """A raised hand goes to and fro."""
    swing = sine(beat.turns("wave"))
    for side in arms:
        pose = with_arm(
            pose,
            side,
            (0.07 + 0.12 * beat.amplitude * swing, 0.04, 0.30 - 0.03 * swing * swing),
            (0.5, 1.0, -0.5),
        )
    return pose


def punch(pose: Pose, beat: Beat, arms: tuple[int, ...]) -> Pose:
    """Fists shoot forwards in turn."""
    turns = beat.turns("punch")
    for side in arms:
        out = smooth(1.6 * pulse(turns + 0.5 * side) - 0.5) * min(beat.amplitude, 1.1)
        hand = (0.075 + 0.24 * out, -0.035 - 0.04 * out, -0.04 + 0.05 * out)
        pose = with_arm(pose, side, hand, (-0.5, 0.55, -1.0))
    lead = sine(turns + 0.25)
    return with_trunk(pose, spine=(pose.spine[:, 0], pose.spine[:, 1], pose.spine[:, 2] + 0.25 * lead))


def jacks(pose: Pose, beat: Beat, arms: tuple[int, ...]) -> Pose:
    """Stretched arms rise sideways until they meet overhead, and fall."""
    angle = -1.35 + (1.35 + 1.22) * smooth(1.2 * pulse(beat.turns("jacks")) - 0.1)
    for side in arms:
        pose = with_arm(
            pose, side, (0.02, _FULL_ARM * np.cos(angle), _FULL_ARM * np.sin(angle)), (-1.0, 0.1, -0.1)
        )
    return pose


def salute(pose: Pose, beat: Beat, arms: tuple[int, ...]) -> Pose:
    """A hand rises to the brow, stays, and falls."""
    turns = beat.turns("salute")
    raised = smooth(within(turns, 0.04, 0.2)) - smooth(within(turns, 0.8, 0.96))
    for side in arms:
        down, brow = np.array([0.03, 0.05, -0.285]), np.array([0.085, -0.035, 0.135])
        hand = down + (brow - down) * raised[:, None]
        pose = with_arm(pose, side, tuple(hand.T), (0.75, 1.0, -0.15))
    return pose


def carry_box(pose: Pose, beat: Beat, arms: tuple[int, ...]) -> Pose:
    """Both arms hold a box before the belly."""
    sag = 0.012 * sine(beat.turns("carry_box"))
    for side in arms:
        pose = with_arm(pose, side, (0.165, -0.01, -0.175 + sag), (-0.7, 0.8, -0.5))
    lean = -0.10 + 0 * sag
    return with_trunk(pose, spine=(pose.spine[:, 0] + lean, pose.spine[:, 1], 0.3 * pose.spine[:, 2]))


def overhead_lift(pose: Pose, beat: Beat, arms: tuple[int, ...]) -> Pose:
    """Both arms lift a box from the chest to above the head."""
    raised = smooth(1.3 * pulse(beat.turns("overhead_lift")) - 0.15)
    for side in arms:
        pose = with_arm(pose, side, (0.16 - 0.12 * raised, -0.02, -0.16 + 0.46 * raised), (0.1, 1.0, -0.8))
    return pose


def bounce_ball(pose: Pose, beat: Beat, arms: tuple[int, ...]) -> Pose:
    """A hand pushes a ball down and meets it as it comes back."""
    turns = beat.turns("bounce_ball")
    for side in arms:
        press = pulse(turns + 0.5) ** 2
        pose = with_arm(
            pose, side, (0.16, 0.05, -0.165 + 0.07 * (1 - press) - 0.05 * press), (-1.0, 0.6, 0.0)
        )
    return with_trunk(pose, spine=(pose.spine[:, 0] + 0.10, pose.spine[:, 1], pose.spine[:, 2]))


def juggle(pose: Pose, beat: Beat, arms: tuple[int, ...]) -> Pose:
    """Both hands throw and catch, in turn."""
    turns = beat.turns("juggle")
    for side in arms:
        own = turns + 0.5 * side
        pose = with_arm(
            pose, side, (0.165, -0.005 - 0.045 * cosine(own), -0.125 + 0.045 * sine(own)), (-0.8, 0.8, -0.6)
        )
    return with_trunk(pose, nod=-0.15 + pose.nod)


def _meeting_hand(pose: Pose, beat: Beat, side: int, height: Series | float) -> np.ndarray:
    """From the shoulder to where the hands of a pair meet at this height (of the pair's mean height)."""
    if beat.meeting is None:
        raise RangeError("a pair action needs a partner; got none. `Segment.partner` names one.")
    target = np.stack([beat.meeting[:, 0], beat.meeting[:, 1], height * beat.meeting[:, 2]], axis=1)
    hand = target - shoulders_of(pose)[3][:, side]
    hand[:, 1] *= 1 if side == LEFT else -1
    return hand


def handshake(pose: Pose, beat: Beat, arms: tuple[int, ...]) -> Pose:
    """The hand meets the partner's and goes up and down with it."""
    shake = 0.035 * beat.amplitude * sine(beat.turns("handshake"))
    for side in arms:
        hand = _meeting_hand(pose, beat, side, 0.60 + shake)
        hand[:, 0] -= 0.02
        pose = with_arm(pose, side, tuple(hand.T), (-0.5, 0.4, -1.0))
    return pose


def high_five(pose: Pose, beat: Beat, arms: tuple[int, ...]) -> Pose:
    """The hand is raised to clap the partner's, and drawn back."""
    meet = smooth(1.5 * pulse(beat.turns("high_five")) - 0.4)
    for side in arms:
        hand = _meeting_hand(pose, beat, side, 1.0)
        away = np.array([0.10, 0.07, -0.10])
        pose = with_arm(pose, side, tuple((away + (hand - away) * meet[:, None]).T), (0.2, 0.6, -1.0))
    return pose


def pass_ball(pose: Pose, beat: Beat, arms: tuple[int, ...]) -> Pose:
    """Both hands throw a ball from the chest, and reach out to catch it."""
    turns = beat.turns("pass_ball") + (0.0 if beat.is_first else 0.5)
    out = np.maximum(pulse(within(turns, 0.02, 0.34)), pulse(within(turns, 0.76, 1.0)))
    for side in arms:
        pose = with_arm(pose, side, (0.12 + 0.16 * out, -0.045, -0.07 + 0.03 * out), (-0.5, 0.9, -0.7))
    return with_trunk(pose, spine=(pose.spine[:, 0] + 0.12 * out, pose.spine[:, 1], pose.spine[:, 2]))
