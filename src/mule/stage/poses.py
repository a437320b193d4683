"""Poses of a body at every frame, their blending, and the timing of motions.

Lengths are in body heights. Directions are the actor's own: forwards, to the side (of the left limb to the left,
of the right limb to the right: outwards), upwards. Limbs are listed left, right. Each actor repeats every action in
cycles with its own tempo, phase and amplitude.
"""

from dataclasses import dataclass, fields, replace

import numpy as np
from jaxtyping import Float

LEFT, RIGHT = 0, 1
STANDING_HEIGHT = 0.512
ANKLE_HEIGHT = 0.035

Series = Float[np.ndarray, " frames"]


@dataclass(frozen=True)
class Pose:
    """Targets of pelvis, feet and hands, and the lean of the trunk; other joints follow from these."""

    pelvis: Float[np.ndarray, "frames 3"]
    """Forwards, leftwards, upwards of the point on the ground where the actor is."""
    spine: Float[np.ndarray, "frames 3"]
    """Lean forwards, lean to the left, twist to the left; radians."""
    feet: Float[np.ndarray, "frames 2 3"]
    """Ankles: forwards, outwards, upwards of the point on the ground."""
    toes: Float[np.ndarray, "frames 2"]
    """Upward angle of the toes; radians."""
    hands: Float[np.ndarray, "frames 2 3"]
    """Wrists: forwards, outwards, upwards of their shoulder."""
    elbows: Float[np.ndarray, "frames 2 3"]
    """Direction in which elbows point."""
    nod: Series
    """Forward angle of the head against the trunk; radians."""


def standing(num_frames: int) -> Pose:
    """Return an upright, relaxed pose."""
    still = np.zeros((num_frames, 3))
    feet = np.broadcast_to([[0.015, 0.058, ANKLE_HEIGHT], [-0.015, 0.058, ANKLE_HEIGHT]], (num_frames, 2, 3))
    return Pose(
        pelvis=still + np.array([0.0, 0.0, STANDING_HEIGHT]),
        spine=still,
        feet=feet,
        toes=np.zeros((num_frames, 2)),
        hands=np.broadcast_to([0.03, 0.055, -0.29], (num_frames, 2, 3)),
        elbows=np.broadcast_to([-1.0, 0.5, -0.2], (num_frames, 2, 3)),
        nod=np.zeros(num_frames),
    )


def blended(poses: list[Pose], weights: list[Series]) -> Pose:
    """Return the weighted mean of poses; weights sum to one at every frame."""
    if len(poses) == 1:
        return poses[0]

    def mean(name: str) -> np.ndarray:
        parts = [getattr(pose, name) for pose in poses]
        shares = [weight.reshape(-1, *[1] * (parts[0].ndim - 1)) for weight in weights]
        return np.sum([part * share for part, share in zip(parts, shares, strict=True)], axis=0)

    return Pose(**{field.name: mean(field.name) for field in fields(Pose)})


def with_arm(
    pose: Pose, side: int, hand: tuple[Series | float, ...], elbow: tuple[Series | float, ...] | None = None
) -> Pose:
    """Return the pose with one arm moved."""
    hands, elbows = pose.hands.copy(), pose.elbows.copy()
    for axis in range(3):
        hands[:, side, axis] = hand[axis]
        if elbow is not None:
            elbows[:, side, axis] = elbow[axis]
    return replace(pose, hands=hands, elbows=elbows)


def with_arms(
    pose: Pose, sides: tuple[int, ...], hand: tuple[Series | float, ...], elbow: tuple[Series | float, ...]
) -> Pose:
    """Return the pose with these arms moved alike."""
    for side in sides:
        pose = with_arm(pose, side, hand, elbow)
    return pose


def with_foot(pose: Pose, side: int, foot: tuple[Series | float, ...], toe: Series | float = 0.0) -> Pose:
    """Return the pose with one foot moved."""
    feet, toes = pose.feet.copy(), pose.toes.copy()
    for axis in range(3):
        feet[:, side, axis] = foot[axis]
    toes[:, side] = toe
    return replace(pose, feet=feet, toes=toes)


def with_trunk(
    pose: Pose,
    *,
    pelvis: tuple[Series | float, ...] | None = None,
    spine: tuple[Series | float, ...] | None = None,
    nod: Series | float | None = None,
) -> Pose:
    """Return the pose with the trunk moved."""
    num_frames = len(pose.nod)

    def columns(values: tuple[Series | float, ...] | None, old: np.ndarray) -> np.ndarray:
        if values is None:
            return old
        return np.stack([np.broadcast_to(np.asarray(v, dtype=float), num_frames) for v in values], axis=1)

    return replace(
        pose,
        pelvis=columns(pelvis, pose.pelvis),
        spine=columns(spine, pose.spine),
        nod=pose.nod if nod is None else np.broadcast_to(np.asarray(nod, dtype=float), num_frames),
    )


GAIT_SPEED = {"walk": 0.50, "run": 0.85, "push_box": 0.20}
"""Body heights per second at tempo and amplitude 1."""

RATES = {
    "walk": 0.9, "run": 1.4, "squat": 0.62, "jump": 0.95, "bow": 0.55, "sway": 0.6,
    "arm_circle": 0.9, "clap": 1.7, "wave": 1.5, "punch": 1.15, "jacks": 0.9, "salute": 0.5,
    "carry_box": 0.9, "kick_ball": 0.7, "bounce_ball": 1.3, "push_box": 0.7, "juggle": 1.15,
    "overhead_lift": 0.6, "handshake": 1.7, "pass_ball": 0.55, "high_five": 0.8,
}  # fmt: skip
"""Cycles per second at tempo 1."""


@dataclass(frozen=True)
class Beat:
    """Timing and manner of an actor's motion."""

    time_s: Series
    phase: float
    tempo: float
    amplitude: float
    is_right_handed: bool = True
    meeting: Float[np.ndarray, "frames 3"] | None = None
    """Where hands meet the partner's: forwards and leftwards of the actor; third, the pair's mean height."""
    is_first: bool = True
    """Whether this actor of a pair throws first."""

    def turns(self, action: str) -> Series:
        """Return the number of cycles of the action so far."""
        return self.time_s * (self.tempo * RATES[action]) + self.phase


def sine(turns: Series) -> Series:
    """Sine with period 1."""
    return np.sin(2 * np.pi * turns)


def cosine(turns: Series) -> Series:
    """Cosine with period 1."""
    return np.cos(2 * np.pi * turns)


def pulse(turns: Series) -> Series:
    """Return 0 at whole turns and 1 halfway."""
    return 0.5 - 0.5 * cosine(turns)


def smooth(share: Series) -> Series:
    """Rise from 0 to 1 with a smooth start and end."""
    held = np.clip(share, 0.0, 1.0)
    return held * held * (3 - 2 * held)


def within(turns: Series, start: float, end: float) -> Series:
    """Return the progress from `start` to `end` of the cycle, 0 before and 1 after."""
    return np.clip((turns % 1.0 - start) / (end - start), 0.0, 1.0)
