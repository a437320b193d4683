"""Play a plan: where every actor and every ball or box is at given times."""

from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np
from jaxtyping import Bool, Float

from mule.stage.classes import ACTIONS
from mule.stage.figure import Body, Figure, Stand, body_of, box_around, figure_of
from mule.stage.motions import arms_of, pose_of
from mule.stage.plans import FRAME_RATE, HORIZON, ActorPlan, Colour, Plan, PropPlan, Segment, on_grid
from mule.stage.poses import LEFT, RIGHT, Beat, Series, blended
from mule.stage.shapes import Accent, Shape

BALL, HAND_BALL, BOX, BIG_BOX = 0.054, 0.042, 0.105, 0.20
"""Half the width of objects, in body heights."""


@dataclass(frozen=True)
class Thing:
    """A ball or box at every frame: its middle in the picture, half its width and its rotation."""

    kind: str
    middle: Float[np.ndarray, "frames 2"]
    half: float
    turns: Series
    colour: Colour
    trim: Colour
    ground: Float[np.ndarray, "frames 2"]
    """The point on the ground below."""
    is_behind_arms: bool = False
    growth: Series | None = None
    """Share of the full size, for objects that appear and vanish; None is always full size."""

    @property
    def radius(self) -> Series:
        """Half its width at every frame."""
        full = np.full(len(self.middle), self.half)
        return on_grid(full if self.growth is None else full * self.growth)

    @property
    def is_there(self) -> Bool[np.ndarray, " frames"]:
        """Whether it is drawn."""
        return self.radius > 0

    @property
    def shapes(self) -> list[Shape]:
        """Its strokes, from back to front."""
        return _ball(self) if self.kind == "ball" else _box(self)


def _ball(thing: Thing) -> list[Shape]:
    spin = on_grid(np.stack([np.cos(2 * np.pi * thing.turns), np.sin(2 * np.pi * thing.turns)], axis=1))
    accent = Accent(thing.trim, spin, "band", 0.26)
    radius = thing.radius
    return [
        Shape(
            thing.middle, thing.middle, radius, radius, thing.colour, accent=accent, is_drawn=thing.is_there
        )
    ]


def _box(thing: Thing) -> list[Shape]:
    """Return a front with a strip of tape, and behind it the lid seen from above."""
    half = thing.radius
    rise = np.stack([0 * half, 0.92 * half], axis=1)
    corner = on_grid(0.1 * half)
    low, high = thing.middle + rise, thing.middle - 0.85 * rise
    lid = on_grid(high - 0.36 * rise)
    red, green, blue = thing.colour
    light = (min(red + 38, 255), min(green + 34, 255), min(blue + 26, 255))
    aside = np.broadcast_to([1.0, 0.0], low.shape)
    tape = Accent(thing.trim, aside, "band", 0.17)
    front, back = half, on_grid(0.86 * half)
    there = thing.is_there
    return [
        Shape(
            on_grid(high + 0.3 * rise), lid, front, back, light, corner=corner, accent=tape, is_drawn=there
        ),
        Shape(
            on_grid(low),
            on_grid(high),
            front,
            front,
            thing.colour,
            corner=corner,
            accent=tape,
            is_drawn=there,
        ),
    ]


@dataclass(frozen=True)
class Holder:
    """An actor who handles objects, at every frame."""

    body: Body
    stand: Stand
    beat: Beat
    colour: Colour
    trim: Colour

    def thing(
        self,
        kind: str,
        middle: np.ndarray,
        half: float,
        *,
        turns: Series | None = None,
        is_behind: bool = False,
    ) -> Thing:
        """Return an object whose middle is given like a joint: forwards, leftwards, upwards, in body heights."""
        ground = middle.copy()
        ground[:, 2] = 0.0
        return Thing(
            kind=kind,
            middle=self.stand.seen(middle),
            half=half * self.stand.height,
            turns=np.zeros(len(middle)) if turns is None else turns,
            colour=self.colour,
            trim=self.trim,
            ground=self.stand.seen(ground),
            is_behind_arms=is_behind,
        )


def things_of(action: str, holder: Holder, actions: tuple[str, ...]) -> list[Thing]:
    """Return the objects of an action of one actor."""
    match action:
        case "carry_box":
            return [holder.thing("box", _between_hands(holder, (0.055, 0.0, 0.02)), BOX, is_behind=True)]
        case "overhead_lift":
            return [holder.thing("box", _between_hands(holder, (0.02, 0.0, 0.085)), BOX, is_behind=True)]
        case "push_box":
            return [_pushed(holder)]
        case "kick_ball":
            return [_kicked(holder)]
        case "bounce_ball":
            return [_bounced(holder, actions)]
        case "juggle":
            return [_juggled(holder, number) for number in range(3)]
        case _:
            return []


def _between_hands(holder: Holder, offset: tuple[float, float, float]) -> np.ndarray:
    return holder.body.wrists.mean(axis=1) + np.array(offset)


def _pushed(holder: Holder) -> Thing:
    middle = _between_hands(holder, (BIG_BOX + 0.03, 0.0, 0.0))
    middle[:, 2] = 0.92 * BIG_BOX
    return holder.thing("box", middle, BIG_BOX)


def _kicked(holder: Holder) -> Thing:
    """Return a ball that rolls away when kicked, slows down, and comes back for the next kick."""
    share = (holder.beat.turns("kick_ball") - 0.47) % 1.0
    away = np.where(share < 0.5, 1 - (1 - share / 0.5) ** 2, 1 - (share / 0.5 - 1) ** 2)
    side = 1 if not holder.beat.is_right_handed else -1
    forwards = 0.20 + 0.40 * away
    middle = np.stack(
        [forwards, side * 0.05 + 0 * away, BALL + 0.10 * np.maximum(0.0, 0.5 - share) * away], axis=1
    )
    return holder.thing("ball", middle, BALL, turns=forwards / (2 * np.pi * BALL))


def _bounced(holder: Holder, actions: tuple[str, ...]) -> Thing:
    side = arms_of(actions, is_right_handed=holder.beat.is_right_handed)["bounce_ball"][0]
    hand = holder.body.hands[:, side]
    share = np.abs(2 * (holder.beat.turns("bounce_ball") % 1.0) - 1)
    height = BALL + (hand[:, 2] - 0.02 - 2 * BALL) * share * (2 - share)
    middle = np.stack([hand[:, 0] + 0.035, hand[:, 1], height], axis=1)
    return holder.thing("ball", middle, BALL)


def _juggled(holder: Holder, number: int) -> Thing:
    """Return one of three balls in a cascade: thrown from hand to hand, caught and carried to the middle."""
    turns = holder.beat.turns("juggle") * 0.5 + number / 3
    half = (2 * turns) % 1.0
    leaves_left = (np.floor(2 * turns) % 2 == 0)[:, None]
    hands = holder.body.hands
    start = np.where(leaves_left, hands[:, LEFT], hands[:, RIGHT])
    end = np.where(leaves_left, hands[:, RIGHT], hands[:, LEFT])
    flight = np.clip(half / 0.72, 0.0, 1.0)
    middle = start + (end - start) * flight[:, None]
    middle[:, 2] += 0.035 + 0.40 * 4 * flight * (1 - flight)
    middle[:, 0] += 0.02
    return holder.thing("ball", middle, HAND_BALL, turns=turns)


def passed_ball(first: Holder, second: Holder) -> Thing:
    """Return the ball between two actors, thrown from chest to chest and held in between."""
    share = first.beat.turns("pass_ball") % 1.0
    hands = [holder.stand.seen(holder.body.hands.mean(axis=1)) for holder in (first, second)]
    leg = np.where(share < 0.5, share, share - 0.5) / 0.5
    flight = np.clip((leg - 0.34) / 0.5, 0.0, 1.0)
    is_from_first = (share < 0.5)[:, None]
    start, end = np.where(is_from_first, hands[0], hands[1]), np.where(is_from_first, hands[1], hands[0])
    middle = start + (end - start) * flight[:, None]
    height = (first.stand.height + second.stand.height) / 2
    middle[:, 1] -= height * (0.10 * 4 * flight * (1 - flight))
    return Thing(
        kind="ball",
        middle=on_grid(middle),
        half=BALL * height,
        turns=flight,
        colour=first.colour,
        trim=first.trim,
        ground=on_grid(np.stack([middle[:, 0], np.full(len(share), first.stand.lane)], axis=1)),
    )


def lying(prop: PropPlan, num_frames: int) -> Thing:
    """Return an object that nobody uses."""
    half = prop.size * (prop.lane - HORIZON)
    rise = half if prop.kind == "ball" else 0.92 * half
    place = np.tile([prop.x, prop.lane], (num_frames, 1))
    return Thing(
        kind=prop.kind,
        middle=on_grid(place - [0.0, rise]),
        half=half,
        turns=np.full(num_frames, prop.x * 3),
        colour=prop.colour,
        trim=prop.trim,
        ground=on_grid(place),
    )


_BLEND_S = 0.25  # half the duration of the blend between two actions


@dataclass(frozen=True)
class Performer:
    """One actor at every frame."""

    plan: ActorPlan
    stand: Stand
    body: Body
    figure: Figure
    box: Float[np.ndarray, "frames 4"]
    """In rows of the picture; may extend beyond it."""
    is_there: np.ndarray
    things: list[Thing]


@dataclass(frozen=True)
class Performance:
    """All actors and all objects at every frame."""

    performers: list[Performer]
    props: list[Thing]

    @property
    def things(self) -> list[Thing]:
        """Props first, then the objects of each actor."""
        return [*self.props, *[thing for performer in self.performers for thing in performer.things]]


def perform(plan: Plan, first_frame: int, num_frames: int) -> Performance:
    """Play part of a plan. A frame does not depend on which other frames are played."""
    time_s = (first_frame + np.arange(num_frames)) / FRAME_RATE
    actors = {actor.actor_id: actor for actor in plan.actors}
    stands = {actor.actor_id: _stand(actor, time_s) for actor in plan.actors}
    bodies = {actor.actor_id: _body(actor, actors, stands, time_s) for actor in plan.actors}
    performers = []
    for actor in plan.actors:
        stand, body = stands[actor.actor_id], bodies[actor.actor_id]
        is_there = (time_s >= actor.segments[0].start_s) & (time_s < actor.segments[-1].end_s)
        figure = figure_of(body, stand, actor.look)
        things = [
            thing for part in actor.segments for thing in _things(part, actor, actors, stands, bodies, time_s)
        ]
        performers.append(Performer(actor, stand, body, figure, box_around(figure.shapes), is_there, things))
    return Performance(performers, [lying(prop, num_frames) for prop in plan.props])


def _stand(actor: ActorPlan, time_s: Series) -> Stand:
    times = [moment for part in actor.segments for moment in (part.start_s, part.end_s)]
    places = [place for part in actor.segments for place in (part.start_x, part.end_x)]
    x = np.interp(time_s, times, places)
    weights = _weights(actor.segments, time_s)
    heading = sum(
        weight * np.deg2rad(part.heading_deg) for part, weight in zip(actor.segments, weights, strict=True)
    )
    return Stand(x=x, lane=actor.lane, height=actor.height, heading=np.asarray(heading))


def _weights(segments: tuple[Segment, ...], time_s: Series) -> list[Series]:
    """Return the weight of each segment in the pose; weights sum to one."""
    begun = [np.ones_like(time_s)]
    for part in segments[1:]:
        share = np.clip((time_s - part.start_s) / (2 * _BLEND_S) + 0.5, 0.0, 1.0)
        begun.append(share * share * (3 - 2 * share))
    begun.append(np.zeros_like(time_s))
    return [now - after for now, after in pairwise(begun)]


def _body(actor: ActorPlan, actors: dict[int, ActorPlan], stands: dict[int, Stand], time_s: Series) -> Body:
    weights = _weights(actor.segments, time_s)
    active = [
        (part, weight) for part, weight in zip(actor.segments, weights, strict=True) if np.any(weight > 0)
    ]
    poses = [pose_of(part.actions, _beat(part, actor, actors, stands, time_s)) for part, _ in active]
    return body_of(blended(poses, [weight for _, weight in active]))


def _beat(
    part: Segment, actor: ActorPlan, actors: dict[int, ActorPlan], stands: dict[int, Stand], time_s: Series
) -> Beat:
    """Return the actor's timing; a pair follows the actor with the lower number."""
    beat = Beat(time_s, actor.phase, actor.tempo, actor.amplitude, actor.is_right_handed)
    if part.partner is None:
        return beat
    other, own, theirs = actors[part.partner], stands[actor.actor_id], stands[part.partner]
    leader = actor if actor.actor_id < other.actor_id else other
    halfway = (theirs.x - own.x) / 2 / own.height
    mean_height = np.full_like(halfway, (own.height + theirs.height) / 2 / own.height)
    meeting = np.stack([halfway * np.cos(own.heading), halfway * np.sin(own.heading), mean_height], axis=1)
    return replace(
        beat,
        phase=leader.phase,
        tempo=leader.tempo,
        amplitude=leader.amplitude,
        meeting=meeting,
        is_first=leader is actor,
    )


def _things(
    part: Segment,
    actor: ActorPlan,
    actors: dict[int, ActorPlan],
    stands: dict[int, Stand],
    bodies: dict[int, Body],
    time_s: Series,
) -> list[Thing]:
    """Return the objects of one segment of one actor; they grow from nothing if the segment starts within a take."""
    if not any(ACTIONS[name].objects for name in part.actions):
        return []

    def holder(of: ActorPlan) -> Holder:
        beat = _beat(
            part if of is actor else replace(part, partner=actor.actor_id), of, actors, stands, time_s
        )
        look = of.look
        return Holder(bodies[of.actor_id], stands[of.actor_id], beat, look.thing, look.thing_trim)

    growth = _growth(part, actor, time_s)
    things = [thing for name in part.actions for thing in things_of(name, holder(actor), part.actions)]
    if "pass_ball" in part.actions and part.partner is not None and actor.actor_id < part.partner:
        things.append(passed_ball(holder(actor), holder(actors[part.partner])))
    return [replace(thing, growth=growth) for thing in things]


def _growth(part: Segment, actor: ActorPlan, time_s: Series) -> Series:
    appears = np.clip((time_s - part.start_s) / _BLEND_S + 0.5, 0.0, 1.0)
    vanishes = np.clip((part.end_s - time_s) / _BLEND_S + 0.5, 0.0, 1.0)
    if part is actor.segments[0]:
        appears = np.ones_like(time_s)
    if part is actor.segments[-1]:
        vanishes = np.ones_like(time_s)
    return appears * vanishes
