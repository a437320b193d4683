"""The clips of the benchmark: which actors do what in which scene. Frozen with the version.

With probability `bias` a clip has a theme: a scene is drawn, and all actions have it as a home. Without a theme,
actions are drawn freely.

The theme decides the actions in all roles; the scene is chosen separately. `uniform`: any scene. `biased`: the theme;
without one, any scene in training (so that `bias` is the probability), otherwise the scene that is home to most of the
actions. `counter`: the scene that is home to the fewest. Novel actions have homes like known ones, so scenes treat
known and novel actors alike. Training is biased, validation uniform, and tests come in all three modes.
"""

import hashlib
import json
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from mule.core.errors import RangeError
from mule.stage.classes import (
    ACTIONS,
    SCENE_KINDS,
    STAGE_VERSION,
    SceneKind,
    Size,
    StageSplit,
    are_compatible,
    check_size,
    stage_split,
)
from mule.stage.plans import (
    FRAME_RATE,
    LANES,
    ActorPlan,
    Plan,
    draw_actor,
    draw_heading,
    draw_props,
    draw_scene,
    generator,
    pair_distance,
    passing,
)
from mule.stage.rendering import StageClip, render

ROLE_CLIPS: dict[str, int] = {"train": 2000, "val": 300, "test": 400}
CLIP_FRAMES = 32
ASPECT = 4 / 3
_NUM_ACTORS = (1, 2, 3, 4)
_NUM_ACTORS_SHARE = (0.22, 0.36, 0.26, 0.16)
_NUM_ACTIONS_SHARE = (0.45, 0.38, 0.17)
_MIDDLE_LANE = sum(LANES) / 2
_MARGIN = 0.13  # distance from the edge of the picture, in rows of it
_LEAST_GAP = 0.10  # less than the width of a person, so actors may partly cover others
_MAX_DRAWS = 40


@dataclass(frozen=True)
class StageSet:
    """Clips of one split and role. Clip i depends only on i and these values, except `num_clips`."""

    split: str = "A"
    role: str = "train"
    seed: int = 0
    scenes: str | None = None
    """uniform, biased or counter; None is biased for training, otherwise uniform."""
    num_clips: int | None = None
    """None uses the size of the benchmark: 2000, 300 or 400."""
    bias: float = 0.95
    size: Size = (96, 128)
    num_frames: int = CLIP_FRAMES

    def __post_init__(self) -> None:
        stage_split(self.split)
        check_size(self.size)
        problems = []
        if self.role not in ROLE_CLIPS:
            problems.append(f"role must be train, val or test; got '{self.role}'")
        if self.scene_mode not in ("uniform", "biased", "counter"):
            problems.append(f"scenes must be uniform, biased or counter; got '{self.scenes}'")
        if self.num_clips is not None and self.num_clips < 0:
            problems.append(f"num_clips must not be negative; got {self.num_clips}")
        if not 0 <= self.bias <= 1:
            problems.append(f"bias must be from 0 to 1; got {self.bias}")
        if self.seed < 0:
            problems.append(f"seed must not be negative; got {self.seed}")
        if not 1 <= self.num_frames <= 60 * FRAME_RATE:
            problems.append(f"a clip must have 1 to {60 * FRAME_RATE} frames; got {self.num_frames}")
        if problems:
            raise RangeError(f"{'; '.join(problems)}.")

    def __len__(self) -> int:
        return ROLE_CLIPS[self.role] if self.num_clips is None else self.num_clips

    @property
    def scene_mode(self) -> str:
        """How scenes are chosen."""
        return self.scenes or ("biased" if self.role == "train" else "uniform")

    @property
    def classes(self) -> StageSplit:
        """Known and novel actions."""
        return stage_split(self.split)

    @property
    def parameters(self) -> dict[str, Any]:
        """Everything that the pixels depend on, as plain values."""
        return {
            "version": STAGE_VERSION,
            "split": self.split,
            "role": self.role,
            "seed": self.seed,
            "scenes": self.scene_mode,
            "bias": self.bias,
            "num_clips": len(self),
            "num_frames": self.num_frames,
            "rows": self.size[0],
            "cols": self.size[1],
        }

    @property
    def name(self) -> str:
        """Name for files, unique to the parameters."""
        text = json.dumps(self.parameters, sort_keys=True, separators=(",", ":"))
        key = hashlib.sha256(text.encode()).hexdigest()[:16]
        return f"{STAGE_VERSION}-{self.split}-{self.role}-{self.scene_mode}-{key}"

    def plan(self, index: int) -> Plan:
        """Return the plan of clip `index`; it does not depend on the number of clips, nor its actors on the scene mode.

        Raises:
            IndexError: there is no clip of this number.
        """
        if not 0 <= index < len(self):
            raise IndexError(f"clip must be from 0 to {len(self) - 1}; got {index}.")
        key = (self.split, self.role, self.seed, index)
        rng = generator(*key, "actors", self.bias)
        theme = SCENE_KINDS[rng.integers(len(SCENE_KINDS))] if rng.random() < self.bias else None
        casts = _draw_casts(rng, self, theme)
        actors = _placed(rng, casts, duration_s=self.num_frames / FRAME_RATE)
        labels = [name for actor in actors for name in actor.segments[0].actions]
        draw_scene(rng, "gym")  # every later number of this version was drawn after a scene
        scene_rng = generator(*key, "scene", self.scene_mode)
        return Plan(
            num_frames=self.num_frames,
            aspect=ASPECT,
            scene=draw_scene(scene_rng, _draw_scene_kind(scene_rng, self, labels, theme)),
            actors=actors,
            props=draw_props(rng, ASPECT),
            gain=float(rng.uniform(0.86, 1.1)),
            noise=float(rng.uniform(2.0, 5.0)),
            noise_seed=int(rng.integers(2**31)),
        )

    def clip(self, index: int) -> StageClip:
        """Render a clip with its ground truth."""
        return render(self.plan(index), self.size)


def _draw_scene_kind(
    rng: np.random.Generator, clips: StageSet, labels: list[str], theme: SceneKind | None
) -> SceneKind:
    counts = Counter(scene for name in labels for scene in ACTIONS[name].homes)
    fitting: list[SceneKind]
    if clips.scene_mode == "counter":
        fewest = min(counts[scene] for scene in SCENE_KINDS)
        fitting = [scene for scene in SCENE_KINDS if counts[scene] == fewest]
    elif clips.scene_mode == "uniform" or (clips.role == "train" and theme is None):
        fitting = list(SCENE_KINDS)
    elif theme is not None:
        fitting = [theme]
    else:
        fitting = [scene for scene in SCENE_KINDS if counts[scene] == max(counts.values())]
    return fitting[rng.integers(len(fitting))]


def _draw_casts(
    rng: np.random.Generator, clips: StageSet, theme: SceneKind | None
) -> list[list[tuple[str, ...]]]:
    """Draw the actions of all actors: one entry per single actor or pair."""
    room = int(rng.choice(_NUM_ACTORS, p=_NUM_ACTORS_SHARE))
    casts: list[list[tuple[str, ...]]] = []
    while room > 0:
        pool = _draw_pool(rng, clips, theme)
        actions = draw_actions(rng, pool, may_pair=room > 1)
        casts.append([actions])
        pair = next((name for name in actions if ACTIONS[name].group == "pair"), None)
        if pair is not None:
            casts[-1].append(_draw_more(rng, (pair,), pool))
        room -= len(casts[-1])
    return casts


def _draw_pool(rng: np.random.Generator, clips: StageSet, theme: SceneKind | None) -> tuple[str, ...]:
    """Draw an actor's possible actions: known, or all novel for half of the test actors; with the theme as a home."""
    split = stage_split(clips.split)
    pool = split.known
    if clips.role == "test":
        pool = split.z2 if rng.random() < 0.5 else split.z3
    return tuple(name for name in pool if theme is None or theme in ACTIONS[name].homes)


def draw_actions(rng: np.random.Generator, pool: tuple[str, ...], *, may_pair: bool) -> tuple[str, ...]:
    """Draw one to three compatible actions of the pool."""
    possible = [name for name in pool if may_pair or ACTIONS[name].group != "pair"]
    return _draw_more(rng, (possible[rng.integers(len(possible))],), pool)


def _draw_more(rng: np.random.Generator, actions: tuple[str, ...], pool: tuple[str, ...]) -> tuple[str, ...]:
    wanted = 1 + int(rng.choice(3, p=_NUM_ACTIONS_SHARE))
    while len(actions) < wanted:
        alone = [name for name in pool if ACTIONS[name].group != "pair"]
        fitting = [name for name in alone if are_compatible((*actions, name))]
        if not fitting:
            break
        actions = (*actions, fitting[rng.integers(len(fitting))])
    return tuple(name for name in ACTIONS if name in actions)


def _placed(
    rng: np.random.Generator, casts: list[list[tuple[str, ...]]], *, duration_s: float
) -> tuple[ActorPlan, ...]:
    """Place the actors at random; nearer ones may partly cover others."""
    actors: list[ActorPlan] = []
    for cast, middle_x in zip(casts, _draw_places(rng, casts), strict=True):
        actors += _cast(rng, cast, middle_x, len(actors), duration_s)
    return tuple(actors)


def _draw_places(rng: np.random.Generator, casts: list[list[tuple[str, ...]]]) -> list[float]:
    """Draw the middle place of each actor or pair: the first draw with room for all, or the best of many."""
    halves = [pair_distance(cast[0], _MIDDLE_LANE) / 2 if len(cast) == 2 else 0.0 for cast in casts]
    best: tuple[float, list[float]] = (-1.0, [])
    for _ in range(_MAX_DRAWS):
        places = [float(rng.uniform(_MARGIN + half, ASPECT - _MARGIN - half)) for half in halves]
        taken = [
            place + side * half
            for place, half in zip(places, halves, strict=True)
            for side in ((-1, 1) if half else (0,))
        ]
        gaps = np.diff(np.sort(taken))
        best = max(best, (float(gaps.min()) if len(gaps) else ASPECT, places))
        if best[0] >= _LEAST_GAP:
            break
    return best[1]


def _cast(
    rng: np.random.Generator, cast: list[tuple[str, ...]], middle_x: float, first_id: int, duration_s: float
) -> list[ActorPlan]:
    actors = [draw_actor(rng, first_id + number) for number in range(len(cast))]
    if len(cast) == 1:
        heading = draw_heading(rng, looks_left=bool(rng.random() < 0.5), has_partner=False)
        part = passing(actors[0], cast[0], middle_x=middle_x, heading_deg=heading, duration_s=duration_s)
        return [replace(actors[0], segments=(part,))]
    lane = actors[0].lane
    half = pair_distance(cast[0], lane) / 2
    placed = []
    for number, (actor, actions) in enumerate(zip(actors, cast, strict=True)):
        heading = draw_heading(rng, looks_left=number == 1, has_partner=True)
        place = middle_x + (half if number else -half)
        part = passing(actor, actions, middle_x=place, heading_deg=heading, duration_s=duration_s)
        part = replace(part, partner=first_id + 1 - number)
        placed.append(replace(actor, lane=lane, segments=(part,)))
    return placed


OnRendered = Callable[[int, int], None]
"""Called with the number of finished items and of all items."""
