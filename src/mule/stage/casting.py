"""Who is in a clip: random looks, manners, places and props. Nothing here depends on what actors do, but their room."""

import hashlib

import numpy as np

from mule.stage.classes import ACTIONS, VERSION, Scene
from mule.stage.plans import (
    FIGURE_SCALE,
    HORIZON,
    LANES,
    ActorPlan,
    Colour,
    Look,
    PropPlan,
    ScenePlan,
    Segment,
)
from mule.stage.poses import GAIT_SPEED

PAIR_DISTANCE = {"handshake": 0.60, "high_five": 0.56, "pass_ball": 1.0}
"""Between two actors who do something together, in body heights."""

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
    """Random numbers that depend on this version and this key alone."""
    text = "|".join(str(part) for part in (VERSION, *key))
    digest = hashlib.sha256(text.encode()).digest()
    return np.random.Generator(np.random.PCG64(np.random.SeedSequence(list(digest))))


def vivid(rng: np.random.Generator) -> Colour:
    """Any hue, fairly saturated, neither black nor white."""
    hue, strength, value = 6 * rng.random(), rng.uniform(0.35, 0.95), rng.uniform(0.38, 0.95)
    ramp = [abs((hue + shift) % 6 - 3) - 1 for shift in (0, 4, 2)]
    red, green, blue = (int(255 * value * (1 - strength * (1 - min(max(part, 0.0), 1.0)))) for part in ramp)
    return red, green, blue


def draw_look(rng: np.random.Generator) -> Look:
    """Skin, hair and clothes at random."""
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
    """An actor with looks, size and manner, but nothing to do yet."""
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
    """Half towards the camera, whatever the actor does; two actors of a pair look at each other."""
    turn = float(rng.uniform(8, 24) if has_partner else rng.uniform(20, 52))
    return 180 - turn if looks_left else turn


def speed_of(actions: tuple[str, ...], actor: ActorPlan, heading_deg: float) -> float:
    """How fast the actor crosses the picture while doing this, in rows per second; to the left is negative."""
    pace = max((GAIT_SPEED.get(name, 0.0) for name in actions), default=0.0)
    manner = actor.tempo * (actor.amplitude if "walk" in actions else 1.0)
    return pace * manner * actor.height * float(np.cos(np.deg2rad(heading_deg)))


def passing(
    actor: ActorPlan, actions: tuple[str, ...], *, middle_x: float, heading_deg: float, duration_s: float
) -> Segment:
    """The actor does this from the beginning to the end, and is at `middle_x` halfway."""
    way = speed_of(actions, actor, heading_deg) * duration_s / 2
    return Segment(0.0, duration_s, actions, middle_x - way, middle_x + way, heading_deg)


def is_pair_action(actions: tuple[str, ...]) -> bool:
    """Whether one of the actions needs a partner."""
    return any(ACTIONS[name].group == "pair" for name in actions)


def pair_distance(actions: tuple[str, ...], lane: float) -> float:
    """How far apart the two of a pair stand, in rows of the picture."""
    share = next(PAIR_DISTANCE[name] for name in actions if name in PAIR_DISTANCE)
    return share * FIGURE_SCALE * (lane - HORIZON)


def draw_props(rng: np.random.Generator, aspect: float) -> tuple[PropPlan, ...]:
    """None to two balls or boxes that nobody uses."""
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


def draw_scene(rng: np.random.Generator, kind: Scene) -> ScenePlan:
    """One instance of a scene."""
    return ScenePlan(kind=kind, seed=int(rng.integers(2**31)))
