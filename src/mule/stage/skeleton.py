"""Where every joint of a body is: two-bone limbs between the points a pose gives, seen by the camera.

Positions are rounded to a fixed grid here, after the last sine; what follows uses only exact operations, so that
pixels do not depend on whose sine it was.
"""

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from jaxtyping import Float

from mule.stage.poses import RIGHT, Pose, Series

GRID = 65536
"""Positions are multiples of 1 / GRID of the picture's height."""

THIGH, SHANK = 0.243, 0.238
UPPER_ARM, FOREARM = 0.168, 0.155
SHOULDER, HIP = 0.112, 0.052
SPINE, NECK, HEAD = 0.268, 0.310, 0.082
FOOT = 0.085
_CAMERA_TILT = 0.2  # a camera a little above the heads looks down: nearer points are lower in the picture

Points = Float[np.ndarray, "frames 3"]
Limb = Float[np.ndarray, "frames 2 3"]


@dataclass(frozen=True)
class Body:
    """Joints of one actor: forwards, leftwards, upwards of the point on the ground; in body heights."""

    pelvis: Points
    chest: Points
    neck: Points
    head: Points
    lateral: Points
    """Which way the left shoulder is."""
    hips: Limb
    knees: Limb
    ankles: Limb
    toes: Limb
    shoulders: Limb
    elbows: Limb
    wrists: Limb
    hands: Limb


@dataclass(frozen=True)
class Stand:
    """Where an actor is, how tall, and which way they look at every frame."""

    x: Series
    lane: float
    height: float
    heading: Series
    """Radians; 0 looks to the right, π/2 at the camera."""

    @cached_property
    def _turn(self) -> tuple[Series, Series]:
        return np.cos(self.heading), np.sin(self.heading)

    def seen(self, points: Float[np.ndarray, "frames 3"]) -> Float[np.ndarray, "frames 2"]:
        """Where points of the body are in the picture (x, y), on the grid."""
        forwards, leftwards, upwards = points.T
        along, across = self._turn
        place = np.empty((len(points), 2))
        place[:, 0] = self.x + self.height * (forwards * along + leftwards * across)
        place[:, 1] = self.lane + self.height * (_CAMERA_TILT * self.nearness(points) - 0.98 * upwards)
        return on_grid(place)

    def nearness(self, points: Float[np.ndarray, "frames 3"]) -> Series:
        """How much nearer to the camera points are than the actor's place; body heights."""
        along, across = self._turn
        return points[:, 0] * across - points[:, 1] * along


def on_grid(values: np.ndarray) -> np.ndarray:
    """The values rounded to multiples of 1 / GRID."""
    return np.rint(values * GRID) / GRID


def shoulders_of(pose: Pose) -> tuple[Points, Points, Points, Limb]:
    """Direction of the spine, where the left shoulder points, the chest, and both shoulders."""
    lean, tilt, twist = pose.spine.T
    up = np.stack([np.sin(lean), np.sin(tilt) * np.cos(lean), np.cos(lean) * np.cos(tilt)], axis=1)
    lateral = np.stack([-np.sin(twist), np.cos(twist) * np.cos(tilt), -np.sin(tilt)], axis=1)
    chest = pose.pelvis + SPINE * up
    shoulders = np.stack([chest + SHOULDER * lateral, chest - SHOULDER * lateral], axis=1)
    return up, lateral, chest, shoulders


def body_of(pose: Pose) -> Body:
    """All joints of the pose; a hand or foot out of reach is as near to where it should be as the limb allows."""
    up, lateral, chest, shoulders = shoulders_of(pose)
    lean, tilt, _ = pose.spine.T
    bent = lean + pose.nod
    gaze = np.stack([np.sin(bent), np.sin(tilt) * np.cos(bent), np.cos(bent) * np.cos(tilt)], axis=1)
    neck = pose.pelvis + NECK * up
    aside = np.array([0.0, HIP, 0.0])
    hips = np.stack([pose.pelvis + aside, pose.pelvis - aside], axis=1)
    knee_poles = np.broadcast_to([[1.0, 0.22, 0.0], [1.0, -0.22, 0.0]], pose.feet.shape)
    knees, ankles = _two_bones(hips, _mirrored(pose.feet), knee_poles, lengths=(THIGH, SHANK))
    elbows, wrists = _two_bones(
        shoulders, shoulders + _mirrored(pose.hands), _mirrored(pose.elbows), lengths=(UPPER_ARM, FOREARM)
    )
    outwards = np.array([0.25, -0.25])
    toes = np.stack(
        [
            np.cos(pose.toes),
            np.broadcast_to(outwards, pose.toes.shape),
            np.sin(pose.toes) - 0.1 * np.cos(pose.toes),
        ],
        axis=2,
    )
    return Body(
        pelvis=pose.pelvis,
        chest=chest,
        neck=neck,
        head=neck + HEAD * gaze,
        lateral=lateral,
        hips=hips,
        knees=knees,
        ankles=ankles,
        toes=ankles + FOOT * toes,
        shoulders=shoulders,
        elbows=elbows,
        wrists=wrists,
        hands=wrists + 0.028 * _unit(wrists - elbows),
    )


def _mirrored(limbs: Limb) -> Limb:
    """Outwards becomes leftwards."""
    turned = limbs.copy()
    turned[:, RIGHT, 1] = -turned[:, RIGHT, 1]
    return turned


def _two_bones(root: Limb, target: Limb, pole: Limb, *, lengths: tuple[float, float]) -> tuple[Limb, Limb]:
    """The joint between two bones and their end: as near to the target as they reach, bent towards the pole."""
    upper, lower = lengths
    towards = _unit(target - root)
    reach = np.clip(_length(target - root), 0.3 * upper, 0.999 * (upper + lower))
    along = (upper * upper - lower * lower + reach * reach) / (2 * reach)
    aside = np.sqrt(np.maximum(upper * upper - along * along, 0.0))
    across = _unit(pole - towards * (pole * towards).sum(axis=-1, keepdims=True))
    return root + towards * along + across * aside, root + towards * reach


def _length(vectors: np.ndarray) -> np.ndarray:
    return np.sqrt((vectors * vectors).sum(axis=-1, keepdims=True))


def _unit(vectors: np.ndarray) -> np.ndarray:
    return vectors / np.maximum(_length(vectors), 1e-9)
