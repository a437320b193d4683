"""Longer takes for watching and tracking, in which actors come, do several things and go; and contact sheets.

A contact sheet shows every action as a row of frames, or every scene as a row of instances.
"""

from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
from jaxtyping import UInt8
from PIL import Image

from mule.core.errors import RangeError
from mule.core.files import write_file
from mule.stage.benchmark import ASPECT, CLIP_FRAMES, draw_actions
from mule.stage.classes import ACTIONS, SCENE_KINDS, SceneKind, are_compatible
from mule.stage.plans import (
    FRAME_RATE,
    ActorPlan,
    Plan,
    ScenePlan,
    Segment,
    draw_actor,
    draw_heading,
    draw_props,
    draw_scene,
    generator,
    pair_distance,
    passing,
    speed_of,
)
from mule.stage.rendering import render
from mule.stage.scenes import background

MAX_SECONDS = 3600
MAX_ACTORS = 12
_OUTSIDE = 0.3  # this far beyond the edge nobody is visible
_GAITS = ("walk", "run")


@dataclass(frozen=True)
class TakeRecipe:
    """Everything that a take depends on, except its number."""

    seconds: float = 12.0
    num_actors: int = 4
    classes: tuple[str, ...] = tuple(ACTIONS)
    seed: int = 0
    scene: SceneKind | None = None
    """None draws one at random."""
    aspect: float = 16 / 9
    stay_s: tuple[float, float] = (4.0, 7.0)
    """Shortest and longest time that an actor does the same thing in one place."""

    def __post_init__(self) -> None:
        problems = []
        if not 1 <= self.seconds <= MAX_SECONDS:
            problems.append(f"a take must last 1 to {MAX_SECONDS} seconds; got {self.seconds}")
        if not 1 <= self.num_actors <= MAX_ACTORS:
            problems.append(f"a take must have 1 to {MAX_ACTORS} actors; got {self.num_actors}")
        unknown = [name for name in self.classes if name not in ACTIONS]
        if unknown:
            problems.append(f"classes must be actions of Stage; {', '.join(unknown)} are not")
        if not any(ACTIONS.get(name) and ACTIONS[name].group != "pair" for name in self.classes):
            problems.append("classes must include an action that one actor can do alone")
        if self.scene is not None and self.scene not in SCENE_KINDS:
            problems.append(f"scene must be one of {', '.join(SCENE_KINDS)}; got '{self.scene}'")
        if not 0.5 <= self.stay_s[0] <= self.stay_s[1]:
            problems.append(f"stay_s must rise from at least 0.5 s; got {self.stay_s}")
        if problems:
            raise RangeError(f"{'; '.join(problems)}.")


def plan_take(recipe: TakeRecipe, index: int = 0) -> Plan:
    """Return take number `index`."""
    rng = generator(
        "take", recipe.seed, index, recipe.seconds, recipe.num_actors, recipe.classes, recipe.aspect
    )
    num_frames = max(1, round(recipe.seconds * FRAME_RATE))
    actors: list[ActorPlan] = []
    while len(actors) < recipe.num_actors:
        has_pair = any(ACTIONS[name].group == "pair" for name in recipe.classes)
        if has_pair and recipe.num_actors - len(actors) >= 2 and rng.random() < 0.5:
            actors += _pair(rng, recipe, len(actors))
        else:
            actors.append(_single(rng, recipe, len(actors)))
    drawn = SCENE_KINDS[rng.integers(len(SCENE_KINDS))]
    return Plan(
        num_frames=num_frames,
        aspect=recipe.aspect,
        scene=draw_scene(rng, recipe.scene or drawn),
        actors=tuple(actors),
        props=draw_props(rng, recipe.aspect),
        gain=float(rng.uniform(0.92, 1.06)),
        noise=float(rng.uniform(0.8, 1.6)),
        noise_seed=int(rng.integers(2**31)),
    )


@dataclass
class _Script:
    """The segments of one actor so far, and the place and time where the last one ends."""

    actor: ActorPlan
    recipe: TakeRecipe
    x: float
    time_s: float = 0.0
    segments: list[Segment] = field(default_factory=list)

    @property
    def left_s(self) -> float:
        return self.recipe.seconds - self.time_s

    def add(
        self, actions: tuple[str, ...], seconds: float, heading_deg: float, *, end_x: float | None = None
    ) -> None:
        """Add a segment; a moving actor ends where its gait takes it, unless `end_x` is given."""
        x = self.x + speed_of(actions, self.actor, heading_deg) * seconds if end_x is None else end_x
        end_s = self.time_s + seconds
        self.segments.append(Segment(self.time_s, end_s, actions, self.x, x, heading_deg))
        self.x, self.time_s = x, end_s

    def finished(self) -> ActorPlan:
        return replace(self.actor, segments=tuple(self.segments))


def _gaits(recipe: TakeRecipe) -> list[str]:
    return [name for name in _GAITS if name in recipe.classes]


def _single(rng: np.random.Generator, recipe: TakeRecipe, actor_id: int) -> ActorPlan:
    script = _Script(draw_actor(rng, actor_id), recipe, x=float(rng.uniform(0.2, recipe.aspect - 0.2)))
    if _gaits(recipe) and recipe.seconds >= 4 and rng.random() < 0.5:
        target = script.x
        script.x = -_OUTSIDE if rng.random() < 0.5 else recipe.aspect + _OUTSIDE
        script.time_s = float(rng.uniform(0.0, 0.3) * recipe.seconds)
        _stroll(rng, script, target)
    _go_on(rng, script)
    return script.finished()


def _go_on(rng: np.random.Generator, script: _Script) -> None:
    """Fill the rest of the take with staying, strolling, and perhaps leaving."""
    recipe = script.recipe
    leaves = bool(_gaits(recipe)) and recipe.seconds >= 8 and rng.random() < 0.4
    while script.left_s > 0:
        if leaves and script.left_s < 0.3 * recipe.seconds:
            _stroll(rng, script, -_OUTSIDE if rng.random() < 0.5 else recipe.aspect + _OUTSIDE)
            return
        if _gaits(recipe) and script.segments and rng.random() < 0.4:
            _stroll(rng, script, float(rng.uniform(0.2, recipe.aspect - 0.2)))
        else:
            _stay(rng, script)


def _stay(rng: np.random.Generator, script: _Script) -> None:
    """Add a few seconds in one place."""
    pool = tuple(name for name in script.recipe.classes if name not in _GAITS) or script.recipe.classes
    actions = draw_actions(rng, pool, may_pair=False)
    seconds = float(rng.uniform(*script.recipe.stay_s))
    if script.left_s < seconds + 1.2:
        seconds = script.left_s
    looks_left = bool(rng.random() < 0.5)
    if "push_box" in actions:
        looks_left = script.x > script.recipe.aspect / 2
    script.add(actions, seconds, draw_heading(rng, looks_left=looks_left, has_partner=False))


def _stroll(rng: np.random.Generator, script: _Script, target_x: float) -> None:
    """Add a walk or run to a place, perhaps with an action of the arms."""
    gaits = _gaits(script.recipe)
    gait = gaits[int(rng.random() < 0.3) % len(gaits)]
    arms = [
        name
        for name in script.recipe.classes
        if ACTIONS[name].num_arms and ACTIONS[name].group != "pair" and are_compatible((gait, name))
    ]
    actions = (gait,)
    if arms and rng.random() < 0.3:
        actions = (gait, arms[rng.integers(len(arms))])
    turn = float(rng.uniform(12, 30))
    heading = turn if target_x > script.x else 180 - turn
    seconds = abs(target_x - script.x) / max(abs(speed_of(actions, script.actor, heading)), 1e-3)
    if seconds >= 0.4:
        script.add(actions, seconds, heading, end_x=target_x)
    else:
        _stay(rng, script)


def _pair(rng: np.random.Generator, recipe: TakeRecipe, first_id: int) -> list[ActorPlan]:
    """Return two actors who meet, do something together, and go on separately."""
    pool = [name for name in recipe.classes if ACTIONS[name].group == "pair"]
    actions = (pool[rng.integers(len(pool))],)
    actors = [draw_actor(rng, first_id + number) for number in range(2)]
    actors[1] = replace(actors[1], lane=actors[0].lane)
    half = pair_distance(actions, actors[0].lane) / 2
    middle_x = float(rng.uniform(half + 0.2, max(recipe.aspect - half - 0.2, half + 0.21)))
    gaits = _gaits(recipe)
    approach_s = float(rng.uniform(1.5, 3.0)) if gaits and recipe.seconds >= 7 else 0.0
    together_s = min(float(rng.uniform(3.0, 4.5)), recipe.seconds)
    headings = [draw_heading(rng, looks_left=number == 1, has_partner=True) for number in range(2)]
    scripts = []
    for number, actor in enumerate(actors):
        place = middle_x + (half if number else -half)
        script = _Script(actor, recipe, x=place)
        if approach_s > 0:
            script.x = place - approach_s * speed_of((gaits[0],), actor, headings[number])
            script.add((gaits[0],), approach_s, headings[number], end_x=place)
        script.add(actions, together_s, headings[number])
        script.segments[-1] = replace(script.segments[-1], partner=first_id + 1 - number)
        _go_on(rng, script)
        scripts.append(script)
    return [script.finished() for script in scripts]


ContactSheet = UInt8[np.ndarray, "rows cols 3"]


def action_plan(action: str, seed: int = 0) -> Plan:
    """Return a plan of one action by one actor (or two for a pair action) in the action's home scene."""
    rng = generator("sheet", action, seed)
    seconds = CLIP_FRAMES / FRAME_RATE
    is_pair = ACTIONS[action].group == "pair"
    actors: list[ActorPlan] = []
    for number in range(2 if is_pair else 1):
        actor = replace(draw_actor(rng, number), lane=0.86)
        heading = draw_heading(rng, looks_left=number == 1, has_partner=is_pair)
        half = pair_distance((action,), actor.lane) / 2 if is_pair else 0.0
        place = ASPECT / 2 + (half if number else -half)
        part = passing(actor, (action,), middle_x=place, heading_deg=heading, duration_s=seconds)
        actors.append(replace(actor, segments=(replace(part, partner=1 - number if is_pair else None),)))
    scene = ScenePlan(ACTIONS[action].home, seed)
    return Plan(CLIP_FRAMES, ASPECT, scene, tuple(actors), (), gain=1.0, noise=2.0, noise_seed=seed)


def action_sheet(rows: int = 96, *, seed: int = 0, num_columns: int = 8) -> ContactSheet:
    """Return a row of frames for each of the 21 actions, in the order of ACTIONS; time runs to the right."""
    size = (rows, round(rows * ASPECT))
    strips = []
    for action in ACTIONS:
        frames = render(action_plan(action, seed), size).frames
        picked = frames[np.arange(num_columns) * len(frames) // num_columns]
        strips.append(np.concatenate(list(picked), axis=1))
    return np.concatenate(strips, axis=0)


def scene_sheet(rows: int = 96, *, num_columns: int = 8) -> ContactSheet:
    """Return a row of instances for each of the seven scenes, without actors."""
    size = (rows, round(rows * ASPECT))
    strips = []
    for kind in SCENE_KINDS:
        pictures = [background(ScenePlan(kind, seed), size, ASPECT) for seed in range(num_columns)]
        strips.append(np.concatenate([np.clip(picture, 0, 255) for picture in pictures], axis=2))
    return np.concatenate(strips, axis=1).astype(np.uint8).transpose(1, 2, 0)


def write_png(path: Path, sheet: ContactSheet) -> None:
    """Write a sheet as a PNG file."""
    write_file(path, lambda growing: Image.fromarray(sheet).save(growing, format="PNG"))
