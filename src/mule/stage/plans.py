"""What is to be seen, as plain values: a plan says everything that pixels depend on, but the size of the picture.

Lengths are in rows of the picture (the height is 1, the width is `aspect`), x from the left, y from the top. One
camera serves all scenes: a person whose feet are at row y is `FIGURE_SCALE · (y − HORIZON)` tall.
"""

from dataclasses import dataclass, replace

from mule.core.errors import RangeError
from mule.stage.classes import ACTIONS, Scene

FRAME_RATE = 16
"""Frames per second of every plan; 32 frames are two seconds."""

HORIZON = 0.30
FIGURE_SCALE = 0.91
LANES = (0.75, 0.895)
"""Where feet may be: people are 0.40 to 0.55 of the picture's height, 38 to 54 of 96 rows."""

Colour = tuple[int, int, int]


@dataclass(frozen=True)
class Look:
    """What an actor wears. None of it depends on what the actor does."""

    skin: Colour
    hair: Colour
    shirt: Colour
    trousers: Colour
    shoes: Colour
    head: str
    """"short" or "long" hair, or a "cap" in the colour of the trim."""
    trim: Colour
    thing: Colour
    """The colour of what the actor handles, and of its tape or seam."""
    thing_trim: Colour
    has_stripe: bool
    has_long_sleeves: bool
    has_shorts: bool


@dataclass(frozen=True)
class Segment:
    """What an actor does from one time to another, and where they stand or go meanwhile."""

    start_s: float
    end_s: float
    actions: tuple[str, ...]
    start_x: float
    end_x: float
    heading_deg: float
    """0 looks to the right, 90 at the camera, 180 to the left."""
    partner: int | None = None
    """The number of the other actor of a pair action."""


@dataclass(frozen=True)
class ActorPlan:
    """One actor: looks, place, manner, and what they do when."""

    actor_id: int
    look: Look
    lane: float
    """The row their feet are at: nearer actors are lower, larger and drawn later."""
    size: float
    """Height as a share of the usual."""
    phase: float
    tempo: float
    amplitude: float
    is_right_handed: bool
    segments: tuple[Segment, ...]

    @property
    def height(self) -> float:
        """How tall the actor is, in rows of the picture."""
        return FIGURE_SCALE * (self.lane - HORIZON) * self.size

    def segment_at(self, time_s: float) -> Segment | None:
        """What the actor does at the time; None before they come and after they have gone."""
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
    """A scene and the number from which all its details are drawn."""

    kind: Scene
    seed: int
    shadow: float = 0.45
    """How dark shadows are; 0 draws none."""


@dataclass(frozen=True)
class Plan:
    """Everything that a clip or a take depends on, but the size of the picture."""

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
        """How long it lasts."""
        return self.num_frames / FRAME_RATE

    def labels_at(self, time_s: float) -> dict[int, tuple[str, ...]]:
        """The actions of every actor present at the time, by the actor's number."""
        found = {actor.actor_id: actor.segment_at(time_s) for actor in self.actors}
        return {actor_id: part.actions for actor_id, part in found.items() if part is not None}

    def in_scene(self, scene: ScenePlan) -> "Plan":
        """The same actors, props and noise before another scene."""
        return replace(self, scene=scene)


def _problems(actor: ActorPlan, numbers: set[int]) -> list[str]:
    """What an actor is asked to do that nobody can."""
    asked = [(name, part) for part in actor.segments for name in part.actions]
    unknown = [name for name, _ in asked if name not in ACTIONS]
    alone = [
        name
        for name, part in asked
        if name in ACTIONS
        and ACTIONS[name].group == "pair"
        and part.partner not in numbers - {actor.actor_id}
    ]
    return [
        *[f"actor {actor.actor_id} does '{name}', which Stage does not know" for name in unknown],
        *[f"actor {actor.actor_id} does '{name}' without a partner" for name in alone],
        *([] if actor.segments else [f"actor {actor.actor_id} has nothing to do"]),
    ]
