"""The 21 actions of Stage: the body parts they use, which can be combined, their home scenes, and the three splits.

An actor may do several actions at once if no part of the body is needed twice. The actions form three columns of
seven, each with two of the body, two of the arms, two with an object and one for a pair; a split assigns roles to the
columns, so every action is novel in exactly one split.

Every action has three home scenes out of seven, like the lines of the Fano plane with its seven points: each scene is
home to three actions of every column, and any two actions of a column share exactly one scene. So a scene gives a
strong hint about the actions, but never identifies one: any two actions share a scene and differ only in motion.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal, get_args

from mule.core.errors import RangeError

STAGE_VERSION = "stage-1"
"""Any change of plans or pixels needs a new version."""

Group = Literal["body", "arms", "object", "pair"]
SplitName = Literal["A", "B", "C"]
SceneKind = Literal["brick_wall", "meadow", "dunes", "sea_shore", "night_street", "gym", "snow_forest"]

SCENE_KINDS: tuple[SceneKind, ...] = get_args(SceneKind)

_LINE = (0, 1, 3)
"""Every difference of two scenes, modulo seven, occurs once among these: the lines of the Fano plane."""


@dataclass(frozen=True)
class Action:
    """One of the 21 actions, and the parts of the body it occupies."""

    name: str
    group: Group
    home: SceneKind
    """The first of its home scenes."""
    num_arms: int = 0
    legs: bool = False
    torso: bool = False
    objects: tuple[str, ...] = ()
    """Classes of its objects."""

    @property
    def homes(self) -> frozenset[SceneKind]:
        """The three home scenes."""
        first = SCENE_KINDS.index(self.home)
        return frozenset(SCENE_KINDS[(first + step) % len(SCENE_KINDS)] for step in _LINE)


_COLUMNS: tuple[tuple[Action, ...], ...] = (
    (
        Action("walk", "body", "brick_wall", legs=True),
        Action("squat", "body", "dunes", legs=True),
        Action("arm_circle", "arms", "night_street", num_arms=2),
        Action("clap", "arms", "sea_shore", num_arms=2),
        Action("carry_box", "object", "snow_forest", num_arms=2, objects=("box",)),
        Action("kick_ball", "object", "meadow", legs=True, objects=("ball",)),
        Action("handshake", "pair", "gym", num_arms=1, legs=True),
    ),
    (
        Action("jump", "body", "night_street", legs=True),
        Action("bow", "body", "sea_shore", torso=True),
        Action("wave", "arms", "gym", num_arms=1),
        Action("punch", "arms", "snow_forest", num_arms=2),
        Action("bounce_ball", "object", "meadow", num_arms=1, objects=("ball",)),
        Action("push_box", "object", "brick_wall", num_arms=2, legs=True, torso=True, objects=("box",)),
        Action("pass_ball", "pair", "dunes", num_arms=2, legs=True, objects=("ball",)),
    ),
    (
        Action("run", "body", "dunes", legs=True),
        Action("sway", "body", "snow_forest", torso=True),
        Action("jacks", "arms", "night_street", num_arms=2),
        Action("salute", "arms", "gym", num_arms=1),
        Action("juggle", "object", "meadow", num_arms=2, objects=("ball", "ball", "ball")),
        Action("overhead_lift", "object", "sea_shore", num_arms=2, objects=("box",)),
        Action("high_five", "pair", "brick_wall", num_arms=1, legs=True),
    ),
)

ACTIONS: dict[str, Action] = {action.name: action for column in _COLUMNS for action in column}


@dataclass(frozen=True)
class StageSplit:
    """Which actions are taught but not tested as known (z1), taught and tested (z2), and novel (z3)."""

    name: SplitName
    z1: tuple[str, ...]
    z2: tuple[str, ...]
    z3: tuple[str, ...]

    @property
    def known(self) -> tuple[str, ...]:
        """The actions of training and validation."""
        return self.z1 + self.z2

    @property
    def novel(self) -> tuple[str, ...]:
        """The actions that no training clip shows."""
        return self.z3


def stage_split(name: str) -> StageSplit:
    """Return split A, B or C. Each split rotates the roles of the columns, so each action is novel exactly once."""
    first, second, third = (tuple(action.name for action in column) for column in _COLUMNS)
    match name:
        case "A":
            return StageSplit("A", first, second, third)
        case "B":
            return StageSplit("B", second, third, first)
        case "C":
            return StageSplit("C", third, first, second)
    raise RangeError(f"split must be A, B or C; got '{name}'.")


def are_compatible(names: Iterable[str]) -> bool:
    """Whether one actor can do these actions at once: no action and no part of the body is used twice.

    An actor with a partner stands still (the legs are occupied) and has no object of its own.
    """
    actions = [ACTIONS[name] for name in names]
    return (
        len({action.name for action in actions}) == len(actions)
        and sum(action.num_arms for action in actions) <= 2
        and sum(action.legs for action in actions) <= 1
        and sum(action.torso for action in actions) <= 1
        and not {"object", "pair"} <= {action.group for action in actions}
    )


MAX_SIZE = 2160
Size = tuple[int, int]
"""Rows, columns."""


def check_size(size: Size) -> None:
    """Raise a RangeError if pictures of this size cannot be drawn."""
    if not all(16 <= side <= 2 * MAX_SIZE for side in size) or size[0] > MAX_SIZE:
        raise RangeError(
            f"a picture must have 16 to {MAX_SIZE} rows and 16 to {2 * MAX_SIZE} columns; got {size[0]} × {size[1]}."
        )
