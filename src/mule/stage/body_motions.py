"""Motions of legs and trunk, and how free arms follow."""

import numpy as np

from mule.stage.poses import (
    ANKLE_HEIGHT,
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
    with_arm,
    with_arms,
    with_foot,
    with_trunk,
    within,
)


def _step(turns: Series, *, stride: float, lift: float, stance: float) -> tuple[Series, Series, Series]:
    """Return forward position, height and toe angle of a foot that moves back on the ground and swings forwards."""
    share = turns % 1.0
    swing = np.clip((share - stance) / (1 - stance), 0.0, 1.0)
    forwards = np.where(share < stance, stride * (1 - 2 * share / stance), stride * (2 * smooth(swing) - 1))
    upwards = lift * np.sin(np.pi * swing)
    toes = np.where(share < stance, -0.5 * smooth((share - 0.7 * stance) / (0.3 * stance)), 0.0)
    toes = toes + np.where(
        share < stance, 0.0, -0.8 * (1 - swing) * np.sin(np.pi * swing) * 2 + 0.35 * swing * swing
    )
    return forwards, ANKLE_HEIGHT + upwards - np.minimum(toes, 0.0) * 0.05, toes


def walk(pose: Pose, beat: Beat, _: tuple[int, ...]) -> Pose:
    """Walk forwards; free arms swing against the legs."""
    turns, size = beat.turns("walk"), beat.amplitude
    pose = with_trunk(
        pose,
        pelvis=(0.0, 0.0, STANDING_HEIGHT - 0.022 - 0.010 * cosine(2 * turns + 0.1)),
        spine=(0.06, 0.0, 0.14 * size * sine(turns)),
    )
    for side in (LEFT, RIGHT):
        forwards, upwards, toes = _step(turns + 0.5 * side, stride=0.165 * size, lift=0.07, stance=0.58)
        pose = with_foot(pose, side, (forwards, 0.045, upwards), toes)
        swing = sine(turns + 0.5 * side + 0.02)
        pose = with_arm(pose, side, (0.03 - 0.15 * size * swing, 0.035, -0.285 + 0.035 * swing * swing))
    return pose


def run(pose: Pose, beat: Beat, _: tuple[int, ...]) -> Pose:
    """Run with longer, quicker steps and a flight phase, leaning forwards, elbows bent."""
    turns, size = beat.turns("run"), beat.amplitude
    pose = with_trunk(
        pose,
        pelvis=(0.0, 0.0, STANDING_HEIGHT - 0.03 + 0.035 * cosine(2 * turns - 0.18)),
        spine=(0.26, 0.0, 0.22 * size * sine(turns)),
        nod=-0.12,
    )
    for side in (LEFT, RIGHT):
        share = (turns + 0.5 * side) % 1.0
        swing = np.clip((share - 0.38) / 0.62, 0.0, 1.0)
        reach = np.where(share < 0.38, 0.20 - 0.48 * share / 0.38, -0.28 + 0.48 * smooth(swing * 1.05))
        lift = 0.26 * np.sin(np.pi * np.minimum(swing * 1.25, 1.0)) * (1 - 0.35 * swing) + 0.05 * np.sin(
            np.pi * swing
        )
        toes = np.where(share < 0.38, -0.9 * smooth((share - 0.2) / 0.18), -0.9 * (1 - swing) + 0.25 * swing)
        pose = with_foot(pose, side, (size * reach, 0.035, ANKLE_HEIGHT + size * lift), toes)
        arm = -sine(turns + 0.5 * side + 0.05)
        pose = with_arm(
            pose, side, (0.10 + 0.15 * size * arm, 0.0 - 0.03 * arm, -0.13 + 0.09 * arm), (-1.0, 0.35, -0.35)
        )
    return pose


def squat(pose: Pose, beat: Beat, _: tuple[int, ...]) -> Pose:
    """Move the hips back and down and up again; free arms reach forwards."""
    depth = pulse(beat.turns("squat")) ** 0.8 * min(beat.amplitude, 1.12)
    pose = with_trunk(
        pose,
        pelvis=(-0.115 * depth, 0.0, STANDING_HEIGHT - 0.265 * depth),
        spine=(0.62 * depth, 0.0, 0.0),
        nod=-0.5 * depth,
    )
    for side in (LEFT, RIGHT):
        pose = with_foot(pose, side, (0.0, 0.085, ANKLE_HEIGHT))
        pose = with_arm(
            pose, side, (0.03 + 0.26 * depth, 0.05 - 0.03 * depth, -0.29 + 0.27 * depth), (-0.6, 0.7, -0.6)
        )
    return pose


def jump(pose: Pose, beat: Beat, _: tuple[int, ...]) -> Pose:
    """Crouch, jump and land."""
    turns = beat.turns("jump")
    flight = within(turns, 0.42, 0.86)
    height = 0.20 * beat.amplitude * 4 * flight * (1 - flight)
    crouch = pulse(within(turns, 0.0, 0.48)) + 0.55 * pulse(within(turns, 0.84, 1.0))
    in_air = (flight > 0) & (flight < 1)
    pose = with_trunk(
        pose,
        pelvis=(-0.035 * crouch, 0.0, STANDING_HEIGHT - 0.13 * crouch + height),
        spine=(0.32 * crouch, 0.0, 0.0),
        nod=-0.2 * crouch,
    )
    for side in (LEFT, RIGHT):
        tuck = np.where(in_air, 0.06 * 4 * flight * (1 - flight), 0.0)
        pose = with_foot(pose, side, (0.0, 0.06, ANKLE_HEIGHT + height + tuck), np.where(in_air, -0.7, 0.0))
        rise = height / 0.2
        pose = with_arm(
            pose,
            side,
            (0.03 - 0.12 * crouch + 0.14 * rise, 0.06 + 0.06 * rise, -0.28 + 0.25 * rise),
            (-1.0, 0.6, -0.2),
        )
    return pose


def bow(pose: Pose, beat: Beat, _: tuple[int, ...]) -> Pose:
    """Bend the trunk far forwards and rise again."""
    depth = smooth(1.25 * pulse(beat.turns("bow"))) * min(beat.amplitude, 1.15)
    pelvis = pose.pelvis - np.stack([0.075 * depth, 0 * depth, 0.01 * depth], axis=1)
    pose = with_trunk(
        pose,
        pelvis=tuple(pelvis.T),
        spine=(1.15 * depth, pose.spine[:, 1], pose.spine[:, 2]),
        nod=0.2 * depth,
    )
    for side in (LEFT, RIGHT):
        hand = pose.hands[:, side] * (1 - depth[:, None]) + np.array([0.04, 0.02, -0.29]) * depth[:, None]
        pose = with_arm(pose, side, tuple(hand.T))
    return pose


def sway(pose: Pose, beat: Beat, _: tuple[int, ...]) -> Pose:
    """Lean the trunk from side to side over still feet."""
    lean = sine(beat.turns("sway")) * beat.amplitude
    pelvis = pose.pelvis + np.stack([0 * lean, -0.055 * lean, -0.012 * lean * lean], axis=1)
    pose = with_trunk(
        pose, pelvis=tuple(pelvis.T), spine=(pose.spine[:, 0], 0.54 * lean, pose.spine[:, 2]), nod=0.0
    )
    for side in (LEFT, RIGHT):
        outwards = lean if side == LEFT else -lean
        hand = pose.hands[:, side] + np.stack([0 * lean, 0.09 * np.maximum(outwards, 0.0), 0 * lean], axis=1)
        pose = with_arm(pose, side, tuple(hand.T))
    return pose


def kick_ball(pose: Pose, beat: Beat, _: tuple[int, ...]) -> Pose:
    """Swing one leg back and through the ball."""
    turns = beat.turns("kick_ball")
    kicking = RIGHT if beat.is_right_handed else LEFT
    back = pulse(within(turns, 0.0, 0.56))
    through = pulse(within(turns, 0.36, 0.92))
    forwards = (-0.25 * back + 0.36 * through) * beat.amplitude
    upwards = 0.12 * back * back + 0.17 * through * through * beat.amplitude
    toes = -0.5 * back + 0.5 * through
    pose = with_foot(pose, kicking, (forwards, 0.05, ANKLE_HEIGHT + upwards), toes)
    pose = with_foot(pose, 1 - kicking, (0.0, 0.045, ANKLE_HEIGHT))
    pose = with_trunk(
        pose,
        pelvis=(0.0, 0.0, STANDING_HEIGHT - 0.012 - 0.01 * through),
        spine=(0.12 * back - 0.16 * through, 0.0, 0.0),
    )
    for side in (LEFT, RIGHT):
        swing = (through - back) * (1 if side != kicking else -1)
        pose = with_arm(pose, side, (0.03 + 0.14 * swing, 0.11, -0.265))
    return pose


def push_box(pose: Pose, beat: Beat, arms: tuple[int, ...]) -> Pose:
    """Lean into a large box and push it with small steps."""
    turns = beat.turns("push_box")
    surge = pulse(2 * turns)
    pose = with_trunk(
        pose,
        pelvis=(-0.13, 0.0, STANDING_HEIGHT - 0.085 + 0.012 * surge),
        spine=(0.82 + 0.05 * surge, 0.0, 0.0),
        nod=-0.5,
    )
    for side in (LEFT, RIGHT):
        forwards, upwards, toes = _step(turns + 0.5 * side, stride=0.14, lift=0.05, stance=0.66)
        pose = with_foot(pose, side, (forwards - 0.26, 0.05, upwards), toes - 0.25)
    return with_arms(pose, arms, (0.25 + 0.012 * surge, -0.01, -0.20), (-0.2, 0.8, -0.8))


def hopping_apart(pose: Pose, beat: Beat) -> Pose:
    """Hop with feet apart and together, in time with the arms of `jacks`."""
    turns = beat.turns("jacks")
    apart, hop = smooth(1.2 * pulse(turns) - 0.1), 0.045 * np.abs(sine(turns))
    for side in (LEFT, RIGHT):
        pose = with_foot(
            pose, side, (0.0, 0.05 + 0.12 * apart * beat.amplitude, ANKLE_HEIGHT + hop), -6 * hop
        )
    return with_trunk(pose, pelvis=(0.0, 0.0, STANDING_HEIGHT - 0.035 * apart + hop))
