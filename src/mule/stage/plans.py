"""Plans of clips and takes: everything that pixels depend on, except the size of the picture; and random actors.

Lengths are in rows of the picture (the height is 1, the width is `aspect`), x from the left, y from the top. One
camera serves all scenes: a person whose feet are at row y is `FIGURE_SCALE · (y − HORIZON)` tall. Looks, manners, places
and props are drawn at random; they do not depend on what actors do, except for the room that actors need.
"""

import hashlib
from dataclasses import dataclass

import numpy as np

from mule.core.errors import RangeError
from mule.stage.classes import ACTIONS, STAGE_VERSION, SceneKind
from mule.stage.poses import GAIT_SPEED

FRAME_RATE = 16
"""Frames per second of every plan; 32 frames are two seconds."""

HORIZON = 0.30
FIGURE_SCALE = 0.91
LANES = (0.75, 0.895)
"""Range of the feet: people are 0.40 to 0.55 of the picture's height, 38 to 54 of 96 rows."""

PLAN_GRID = 65536
"""Positions are multiples of 1 / GRID of the picture's height."""

Colour = tuple[int, int, int]


def on_grid(values: np.ndarray) -> np.ndarray:
    """Round values to multiples of 1 / GRID."""
    return np.rint(values * PLAN_GRID) / PLAN_GRID


@dataclass(frozen=True)
class Look:
    """Appearance of an actor; it does not depend on the actions."""

    skin: Colour
    hair: Colour
    shirt: Colour
    trousers: Colour
    shoes: Colour
    head: str
    """"short" or "long" hair, or a "cap" in the colour of the trim."""
    trim: Colour
    thing: Colour
    """Colour of the actor's object; `thing_trim` is that of its tape or seam."""
    thing_trim: Colour
    has_stripe: bool
    has_long_sleeves: bool
    has_shorts: bool


@dataclass(frozen=True)
class Segment:
    """What an actor does from one time to another, and where they stand or go."""

    start_s: float
    end_s: float
    actions: tuple[str, ...]
    start_x: float
    end_x: float
    heading_deg: float
    """0 looks to the right, 90 at the camera, 180 to the left."""
    partner: int | None = None
    """Number of the other actor of a pair action."""


@dataclass(frozen=True)
class ActorPlan:
    """One actor: look, place, manner and segments."""

    actor_id: int
    look: Look
    lane: float
    """Row of the feet: nearer actors are lower, larger and drawn later."""
    size: float
    """Height relative to the mean."""
    phase: float
    tempo: float
    amplitude: float
    is_right_handed: bool
    segments: tuple[Segment, ...]

    @property
    def height(self) -> float:
        """Height of the actor, in rows of the picture."""
        return FIGURE_SCALE * (self.lane - HORIZON) * self.size

    def segment_at(self, time_s: float) -> Segment | None:
        """Return the segment at a time; None before the actor comes and after they leave."""
        return next((part for part in self.segments if part.start_s <= time_s < part.end_s), None)


@dataclass(frozen=True)
class PropPlan:
    """A ball or box that nobody uses."""

    kind: str
    x: float
    lane: float
    size: float
    colour: Colour
    trim: Colour


@dataclass(frozen=True)
class ScenePlan:
    """A scene and the seed of its details."""

    kind: SceneKind
    seed: int
    shadow: float = 0.45
    """Darkness of shadows; 0 draws none."""


@dataclass(frozen=True)
class Plan:
    """Everything that a clip or a take depends on, except the size of the picture."""

    num_frames: int
    aspect: float
    scene: ScenePlan
    actors: tuple[ActorPlan, ...]
    props: tuple[PropPlan, ...]
    gain: float
    noise: float
    """Standard deviation of the sensor noise, in grey levels."""
    noise_seed: int

    def __post_init__(self) -> None:
        numbers = {actor.actor_id for actor in self.actors}
        problems = [problem for actor in self.actors for problem in _problems(actor, numbers)]
        if len(numbers) != len(self.actors):
            problems.append("two actors share a number")
        if self.num_frames < 1:
            problems.append(f"it has {self.num_frames} frames")
        if problems:
            raise RangeError(
                f"a plan must have frames, numbered actors, known actions and partners; {'; '.join(problems)}."
            )

    @property
    def duration_s(self) -> float:
        """Duration in seconds."""
        return self.num_frames / FRAME_RATE

    def labels_at(self, time_s: float) -> dict[int, tuple[str, ...]]:
        """Return the actions of every actor present at the time, by the actor's number."""
        parts = {actor.actor_id: actor.segment_at(time_s) for actor in self.actors}
        return {actor_id: part.actions for actor_id, part in parts.items() if part is not None}


def _problems(actor: ActorPlan, numbers: set[int]) -> list[str]:
    """Return the problems of an actor's segments."""
    planned = [(name, part) for part in actor.segments for name in part.actions]
    unknown = [name for name, _ in planned if name not in ACTIONS]
    alone = [
        name
        for name, part in planned
        if name in ACTIONS
        and ACTIONS[name].group == "pair"
        and part.partner not in numbers - {actor.actor_id}
    ]
    return [
        *[f"actor {actor.actor_id} does '{name}', which Stage does not know" for name in unknown],
        *[f"actor {actor.actor_id} does '{name}' without a partner" for name in alone],
        *([] if actor.segments else [f"actor {actor.actor_id} has nothing to do"]),
    ]


PAIR_DISTANCE = {"handshake": 0.60, "high_five": 0.56, "pass_ball": 1.0}
"""Distance between two actors who do something together, in body heights."""

_SKINS: tuple[Colour, ...] = (
    (244, 208, 177),
    (231, 184, 143),
    (208, 154, 110),
    (172, 118, 78),
    (128, 84, 56),
    (92, 60, 44),
)
_HAIRS: tuple[Colour, ...] = (
    (30, 24, 22),
    (168, 168, 172),
    (74, 46, 28),
    (206, 164, 84),
    (132, 50, 26),
    (110, 74, 40),
)


def generator(*key: object) -> np.random.Generator:
    """Return a generator of random numbers that depend only on this version and this key."""
    text = "|".join(str(part) for part in (STAGE_VERSION, *key))
    digest = hashlib.sha256(text.encode()).digest()
    return np.random.Generator(np.random.PCG64(np.random.SeedSequence(list(digest))))


def vivid(rng: np.random.Generator) -> Colour:
    """Draw a fairly saturated colour of any hue, neither black nor white."""
    hue, strength, value = 6 * rng.random(), rng.uniform(0.35, 0.95), rng.uniform(0.38, 0.95)
    ramp = [abs((hue + shift) % 6 - 3) - 1 for shift in (0, 4, 2)]
    red, green, blue = (int(255 * value * (1 - strength * (1 - min(max(part, 0.0), 1.0)))) for part in ramp)
    return red, green, blue


def draw_look(rng: np.random.Generator) -> Look:
    """Draw skin, hair and clothes."""
    shirt, trousers = vivid(rng), vivid(rng)
    dark = float(rng.uniform(0.35, 0.9))
    red, green, blue = (int(channel * dark) for channel in trousers)
    skin = int(rng.integers(len(_SKINS)))
    return Look(
        skin=_SKINS[skin],
        hair=_HAIRS[rng.integers(len(_HAIRS) if skin < 3 else 2)],
        shirt=shirt,
        trousers=(red, green, blue),
        shoes=vivid(rng) if rng.random() < 0.5 else (48, 46, 50),
        head=("short", "long", "cap")[rng.integers(3)],
        trim=vivid(rng),
        thing=vivid(rng),
        thing_trim=(238, 230, 214) if rng.random() < 0.6 else (50, 44, 44),
        has_stripe=bool(rng.random() < 0.35),
        has_long_sleeves=bool(rng.random() < 0.45),
        has_shorts=bool(rng.random() < 0.3),
    )


def draw_actor(rng: np.random.Generator, actor_id: int) -> ActorPlan:
    """Draw an actor with look, size and manner, but without segments."""
    return ActorPlan(
        actor_id=actor_id,
        look=draw_look(rng),
        lane=float(rng.uniform(*LANES)),
        size=float(rng.uniform(0.97, 1.03)),
        phase=float(rng.random()),
        tempo=float(rng.uniform(0.8, 1.2)),
        amplitude=float(rng.uniform(0.8, 1.2)),
        is_right_handed=bool(rng.random() < 0.8),
        segments=(),
    )


def draw_heading(rng: np.random.Generator, *, looks_left: bool, has_partner: bool) -> float:
    """Draw a heading, half towards the camera; two actors of a pair look at each other."""
    turn = float(rng.uniform(8, 24) if has_partner else rng.uniform(20, 52))
    return 180 - turn if looks_left else turn


def speed_of(actions: tuple[str, ...], actor: ActorPlan, heading_deg: float) -> float:
    """Return the speed of the actor across the picture, in rows per second; negative to the left."""
    pace = max((GAIT_SPEED.get(name, 0.0) for name in actions), default=0.0)
    manner = actor.tempo * (actor.amplitude if "walk" in actions else 1.0)
    return pace * manner * actor.height * float(np.cos(np.deg2rad(heading_deg)))


def passing(
    actor: ActorPlan, actions: tuple[str, ...], *, middle_x: float, heading_deg: float, duration_s: float
) -> Segment:
    """Return a segment of the whole duration in which the actor is at `middle_x` halfway."""
    way = speed_of(actions, actor, heading_deg) * duration_s / 2
    return Segment(0.0, duration_s, actions, middle_x - way, middle_x + way, heading_deg)


def pair_distance(actions: tuple[str, ...], lane: float) -> float:
    """Return the distance between the two actors of a pair, in rows of the picture."""
    share = next(PAIR_DISTANCE[name] for name in actions if name in PAIR_DISTANCE)
    return share * FIGURE_SCALE * (lane - HORIZON)


def draw_props(rng: np.random.Generator, aspect: float) -> tuple[PropPlan, ...]:
    """Draw up to two balls or boxes that nobody uses."""
    return tuple(
        PropPlan(
            kind=kind,
            x=float(rng.uniform(0.06, aspect - 0.06)),
            lane=float(rng.uniform(0.66, 0.96)),
            size=float(rng.uniform(0.045, 0.06) if kind == "ball" else rng.uniform(0.08, 0.15)),
            colour=vivid(rng),
            trim=(238, 230, 214) if rng.random() < 0.6 else (50, 44, 44),
        )
        for kind in ("ball" if rng.random() < 0.5 else "box" for _ in range(int(rng.integers(0, 3))))
    )


def draw_scene(rng: np.random.Generator, kind: SceneKind) -> ScenePlan:
    """Draw an instance of a scene."""
    return ScenePlan(kind=kind, seed=int(rng.integers(2**31)))
