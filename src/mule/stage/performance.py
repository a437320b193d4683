"""A plan played: where every actor and thing is at given times."""

from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np
from jaxtyping import Float

from mule.stage.classes import ACTIONS
from mule.stage.figure import Body, Figure, Stand, body_of, box_around, figure_of
from mule.stage.handled import Holder, Thing, lying, passed_ball, things_of
from mule.stage.motions import pose_of
from mule.stage.plans import FRAME_RATE, ActorPlan, Plan, Segment
from mule.stage.poses import Beat, Series, blended

_BLEND_S = 0.25  # half the time one action takes to become the next


@dataclass(frozen=True)
class Performer:
    """One actor at every frame."""

    plan: ActorPlan
    stand: Stand
    body: Body
    figure: Figure
    box: Float[np.ndarray, "frames 4"]
    """In rows of the picture; it may reach beyond it."""
    is_there: np.ndarray
    things: list[Thing]


@dataclass(frozen=True)
class Performance:
    """All actors and all things at every frame."""

    performers: list[Performer]
    props: list[Thing]

    @property
    def things(self) -> list[Thing]:
        """Props first, then what each actor handles."""
        return [*self.props, *[thing for performer in self.performers for thing in performer.things]]


def perform(plan: Plan, first_frame: int, num_frames: int) -> Performance:
    """The plan from one frame on. What is seen at a frame does not depend on which others are asked for."""
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
    """How much of each segment is in the pose; they sum to one."""
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
    """The actor's manner; two who do something together keep the time of the one with the lower number."""
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
    """What one segment of one actor brings along; it grows from nothing where the segment begins within a take."""
    if not any(ACTIONS[name].objects for name in part.actions):
        return []

    def holder(of: ActorPlan) -> Holder:
        beat = _beat(
            part if of is actor else replace(part, partner=actor.actor_id), of, actors, stands, time_s
        )
        look = of.look
        return Holder(bodies[of.actor_id], stands[of.actor_id], beat, look.thing, look.thing_trim)

    growth = _growth(part, actor, time_s)
    found = [thing for name in part.actions for thing in things_of(name, holder(actor), part.actions)]
    if "pass_ball" in part.actions and part.partner is not None and actor.actor_id < part.partner:
        found.append(passed_ball(holder(actor), holder(actors[part.partner])))
    return [replace(thing, growth=growth) for thing in found]


def _growth(part: Segment, actor: ActorPlan, time_s: Series) -> Series:
    appears = np.clip((time_s - part.start_s) / _BLEND_S + 0.5, 0.0, 1.0)
    vanishes = np.clip((part.end_s - time_s) / _BLEND_S + 0.5, 0.0, 1.0)
    if part is actor.segments[0]:
        appears = np.ones_like(time_s)
    if part is actor.segments[-1]:
        vanishes = np.ones_like(time_s)
    return appears * vanishes
