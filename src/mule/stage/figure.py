"""Figures of actors: joints from a pose with two-bone limbs, seen by the camera, and the strokes that draw them.

Positions are rounded to a fixed grid after the last sine; later steps use only exact operations, so that pixels do not
depend on the math library.
"""

from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from jaxtyping import Bool, Float

from mule.stage.plans import PLAN_GRID, Colour, Look, on_grid
from mule.stage.poses import LEFT, RIGHT, Pose, Series
from mule.stage.shapes import Accent, Shape, Track

THIGH, SHANK = 0.243, 0.238
UPPER_ARM, FOREARM = 0.168, 0.155
SHOULDER, HIP = 0.112, 0.052
SPINE, NECK, HEAD = 0.268, 0.310, 0.082
FOOT = 0.085
_CAMERA_TILT = 0.2  # the camera looks down a little: nearer points are lower in the picture

JointPoints = Float[np.ndarray, "frames 3"]
Limb = Float[np.ndarray, "frames 2 3"]


@dataclass(frozen=True)
class Body:
    """Joints of one actor: forwards, leftwards, upwards of the point on the ground, in body heights."""

    pelvis: JointPoints
    chest: JointPoints
    neck: JointPoints
    head: JointPoints
    lateral: JointPoints
    """Direction of the left shoulder."""
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
    """Place, height and heading of an actor at every frame."""

    x: Series
    lane: float
    height: float
    heading: Series
    """Radians; 0 looks to the right, π/2 at the camera."""

    @cached_property
    def _turn(self) -> tuple[Series, Series]:
        return np.cos(self.heading), np.sin(self.heading)

    def seen(self, points: Float[np.ndarray, "frames 3"]) -> Float[np.ndarray, "frames 2"]:
        """Return the positions of body points in the picture (x, y), on the grid."""
        forwards, leftwards, upwards = points.T
        along, across = self._turn
        place = np.empty((len(points), 2))
        place[:, 0] = self.x + self.height * (forwards * along + leftwards * across)
        place[:, 1] = self.lane + self.height * (_CAMERA_TILT * self.nearness(points) - 0.98 * upwards)
        return on_grid(place)

    def nearness(self, points: Float[np.ndarray, "frames 3"]) -> Series:
        """Return how much nearer to the camera points are than the actor's place, in body heights."""
        along, across = self._turn
        return points[:, 0] * across - points[:, 1] * along


def shoulders_of(pose: Pose) -> tuple[JointPoints, JointPoints, JointPoints, Limb]:
    """Return the direction of the spine, the direction of the left shoulder, the chest and both shoulders."""
    lean, tilt, twist = pose.spine.T
    up = np.stack([np.sin(lean), np.sin(tilt) * np.cos(lean), np.cos(lean) * np.cos(tilt)], axis=1)
    lateral = np.stack([-np.sin(twist), np.cos(twist) * np.cos(tilt), -np.sin(tilt)], axis=1)
    chest = pose.pelvis + SPINE * up
    shoulders = np.stack([chest + SHOULDER * lateral, chest - SHOULDER * lateral], axis=1)
    return up, lateral, chest, shoulders


def body_of(pose: Pose) -> Body:
    """Return all joints of a pose; a hand or foot out of reach is as near to its target as possible."""
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
    """Convert outwards to leftwards."""
    turned = limbs.copy()
    turned[:, RIGHT, 1] = -turned[:, RIGHT, 1]
    return turned


def _two_bones(root: Limb, target: Limb, pole: Limb, *, lengths: tuple[float, float]) -> tuple[Limb, Limb]:
    """Return the joint between two bones and their end, as near to the target as possible, bent towards the pole."""
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


HEAD_RADIUS = 0.073
_EYES = (40, 32, 34)
_DETAIL_ROWS = 192  # in smaller pictures eyes are below half a pixel
_FAR_SHADE = 0.78  # limbs on the far side get less light


@dataclass(frozen=True)
class Figure:
    """Strokes of one actor: those behind the held object, and those in front of it."""

    behind: list[Shape]
    before: list[Shape]

    @property
    def shapes(self) -> list[Shape]:
        """All strokes, from back to front."""
        return self.behind + self.before


@dataclass(frozen=True)
class _Pen:
    """Makes strokes between joints of one actor."""

    stand: Stand

    def stroke(
        self,
        start: np.ndarray,
        end: np.ndarray,
        radii: tuple[float, float],
        colour: Colour,
        *,
        is_drawn: Bool[np.ndarray, " frames"] | None = None,
    ) -> Shape:
        a, b = self.radius(radii[0]), self.radius(radii[1])
        return Shape(self.stand.seen(start), self.stand.seen(end), a, b, colour, is_drawn=is_drawn)

    def radius(self, share: Series | float) -> Series:
        """Return a share of the body's height at every frame."""
        if isinstance(share, np.ndarray):
            return on_grid(share * self.stand.height)
        return np.full(len(self.stand.x), round(share * self.stand.height * PLAN_GRID) / PLAN_GRID)


def figure_of(body: Body, stand: Stand, look: Look) -> Figure:
    """Return the strokes of a body, far limbs first."""
    pen = _Pen(stand)
    left_is_far = stand.nearness(body.shoulders[:, LEFT]) < stand.nearness(body.shoulders[:, RIGHT])
    far_arm, near_arm = _sides(body, left_is_far, ("shoulders", "elbows", "wrists", "hands"))
    far_leg, near_leg = _sides(body, left_is_far, ("hips", "knees", "ankles", "toes"))
    reach = stand.nearness((far_arm[1] + far_arm[2]) / 2) - stand.nearness(body.chest)
    is_before = reach > -0.02
    return Figure(
        behind=[
            *_arm(pen, far_arm, look, shade=_FAR_SHADE, is_drawn=~is_before),
            *_leg(pen, far_leg, look, shade=_FAR_SHADE),
            *_leg(pen, near_leg, look, shade=1.0),
            *_trunk(pen, body, look),
            *_head(pen, body, look),
            *_arm(pen, far_arm, look, shade=0.9, is_drawn=is_before),
        ],
        before=_arm(pen, near_arm, look, shade=1.0, is_drawn=None),
    )


def _sides(
    body: Body, left_is_far: Bool[np.ndarray, " frames"], joints: tuple[str, ...]
) -> tuple[list[np.ndarray], list[np.ndarray]]:
    """Return the joints of the far limb and of the near one."""
    choice = left_is_far[:, None]
    pairs = [getattr(body, joint) for joint in joints]
    far = [np.where(choice, pair[:, LEFT], pair[:, RIGHT]) for pair in pairs]
    near = [np.where(choice, pair[:, RIGHT], pair[:, LEFT]) for pair in pairs]
    return far, near


def _shaded(colour: Colour, shade: float) -> Colour:
    red, green, blue = (int(channel * shade) for channel in colour)
    return red, green, blue


def _arm(
    pen: _Pen,
    joints: list[np.ndarray],
    look: Look,
    *,
    shade: float,
    is_drawn: Bool[np.ndarray, " frames"] | None,
) -> list[Shape]:
    if is_drawn is not None and not is_drawn.any():
        return []
    shoulder, elbow, wrist, hand = joints
    shirt, skin = _shaded(look.shirt, shade), _shaded(look.skin, shade)
    sleeve = shirt if look.has_long_sleeves else skin
    return [
        pen.stroke(elbow, wrist, (0.029, 0.023), sleeve, is_drawn=is_drawn),
        pen.stroke(wrist, hand, (0.024, 0.028), skin, is_drawn=is_drawn),
        pen.stroke(shoulder, elbow, (0.041, 0.033), shirt, is_drawn=is_drawn),
    ]


def _leg(pen: _Pen, joints: list[np.ndarray], look: Look, *, shade: float) -> list[Shape]:
    hip, knee, ankle, toe = joints
    trousers, shoes = _shaded(look.trousers, shade), _shaded(look.shoes, shade)
    shank = _shaded(look.skin, shade) if look.has_shorts else trousers
    return [
        pen.stroke(ankle, toe, (0.032, 0.026), shoes),
        pen.stroke(knee, ankle, (0.039, 0.028), shank),
        pen.stroke(hip, knee, (0.059, 0.043), trousers),
    ]


def _trunk(pen: _Pen, body: Body, look: Look) -> list[Shape]:
    """Return pelvis, trunk and neck; the trunk is wider the more it faces the camera."""
    stand = pen.stand
    up = body.chest - body.pelvis
    width = np.abs(np.sin(stand.heading))
    top, bottom = body.chest + 0.10 * up, body.pelvis + 0.02 * up
    low, high = stand.seen(bottom), stand.seen(top)
    accent = None
    if look.has_stripe:
        axis = high - low
        accent = Accent(look.trim, _perpendicular(axis), "band", 0.16)
    trunk = Shape(
        low,
        high,
        pen.radius(0.058 + 0.050 * width),
        pen.radius(0.060 + 0.082 * width),
        look.shirt,
        corner=pen.radius(0.045),
        accent=accent,
    )
    hips = (body.hips[:, LEFT] - body.pelvis) * 0.6
    return [
        pen.stroke(body.pelvis + hips, body.pelvis - hips, (0.070, 0.070), look.trousers),
        trunk,
        pen.stroke(
            body.chest, body.neck + (body.head - body.neck) * 0.3, (0.034, 0.030), _shaded(look.skin, 0.88)
        ),
    ]


def _perpendicular(axis: Track) -> Track:
    length = np.sqrt((axis * axis).sum(axis=1, keepdims=True))
    unit = axis / np.maximum(length, 1e-6)
    return on_grid(np.stack([-unit[:, 1], unit[:, 0]], axis=1))


def _head(pen: _Pen, body: Body, look: Look) -> list[Shape]:
    """Return face, hair or cap, and a nose that shows the direction of the gaze."""
    stand = pen.stand
    gaze = _unit(body.head - body.neck)
    ahead = _unit(np.stack([gaze[:, 2], 0 * gaze[:, 0], -gaze[:, 0]], axis=1))
    centre = stand.seen(body.head)
    crown = stand.seen(body.head + 0.1 * (0.80 * gaze - 0.62 * ahead)) - centre
    towards = on_grid(crown / np.maximum(np.sqrt((crown * crown).sum(axis=1, keepdims=True)), 1e-6))
    cover = look.trim if look.head == "cap" else look.hair
    accent = Accent(cover, towards, "beyond", 0.02 if look.head != "cap" else 0.12)
    radius = pen.radius(HEAD_RADIUS)
    face = Shape(centre, stand.seen(body.head + 0.012 * gaze), radius, radius, look.skin, accent=accent)
    nose = body.head + 0.062 * ahead - 0.012 * gaze
    shapes = [face, pen.stroke(nose, nose + 0.012 * ahead, (0.013, 0.011), _shaded(look.skin, 0.94))]
    shapes += _eyes(pen, body, gaze, ahead)
    if look.head == "long":
        nape = body.head - 0.035 * ahead
        hair = pen.stroke(
            nape, body.neck - 0.055 * ahead - 0.06 * gaze, (0.055, 0.042), _shaded(look.hair, 0.9)
        )
        shapes.insert(0, hair)
    if look.head == "cap":
        brim = body.head + 0.034 * gaze
        shapes.append(pen.stroke(brim + 0.03 * ahead, brim + 0.098 * ahead, (0.017, 0.013), look.trim))
    return shapes


def _eyes(pen: _Pen, body: Body, gaze: np.ndarray, ahead: np.ndarray) -> list[Shape]:
    """Return two dark dots for large pictures, drawn if they are on the visible side of the head."""
    eyes = []
    for side in (1, -1):
        eye = body.head + 0.062 * ahead + 0.028 * side * body.lateral + 0.010 * gaze
        is_seen = pen.stand.nearness(eye) > pen.stand.nearness(body.head) - 0.004
        dot = pen.stroke(eye, eye, (0.0085, 0.0085), _EYES, is_drawn=is_seen)
        eyes.append(replace(dot, least_rows=_DETAIL_ROWS))
    return eyes


def box_around(shapes: list[Shape]) -> Float[np.ndarray, "frames 4"]:
    """Return the smallest box (x1, y1, x2, y2), in rows of the picture, around all strokes of each frame."""
    low = np.full((len(shapes[0].start), 2), np.inf)
    high = -low
    for shape in shapes:
        spread = _spread(shape)
        for point, radius in ((shape.start, shape.start_radius), (shape.end, shape.end_radius)):
            reach = radius[:, None] * spread
            if shape.is_drawn is not None:
                reach = np.where(shape.is_drawn[:, None], reach, -np.inf)
            low = np.minimum(low, point - reach)
            high = np.maximum(high, point + reach)
    return np.concatenate([low, high], axis=1)


def _spread(shape: Shape) -> Track | float:
    """Return the share of its radius that a stroke extends in x and y: 1 for round ends, less for flat ends."""
    if shape.corner is None:
        return 1.0
    axis = shape.end - shape.start
    return np.abs(axis[:, ::-1]) / np.maximum(np.sqrt((axis * axis).sum(axis=1, keepdims=True)), 1e-9)
