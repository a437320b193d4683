"""Who is shown where between two key times.

An actor seen at both goes evenly from one box to the other. One seen at a single key time is shown for half the
usual step on each side of it, and so is everybody where key times lie further apart than usual. What is said of an
actor, and its colour, changes at key times only.
"""

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from mule.core.errors import RangeError
from mule.video.clips import SAME_INSTANT_S
from mule.watching.moments import Box, Moment, SeenActor

FURTHEST_STEPS = 1.5
"""Key times further apart than this many usual steps are not bridged."""

_SAME_INSTANT_S = float(SAME_INSTANT_S)


class ShownActor(NamedTuple):
    """An actor as judged at a key time, and the box at the time asked for."""

    actor: SeenActor
    box_xyxy_unit: Box


class Screen:
    """The actors on screen at one time after another; two moments are held, however many there are."""

    def __init__(self, moments: Iterable[Moment], *, every_s: float) -> None:
        self._moments: Iterator[Moment] = iter(moments)
        self._every_s = every_s
        self._before: Moment | None = None
        self._after = next(self._moments, None)
        self._latest_s = 0.0

    def at(self, time_s: float) -> list[ShownActor]:
        """The actors at a time, by track id; times must not go back."""
        if time_s < self._latest_s:
            raise RangeError(f"times must not go back; {time_s:g} s follows {self._latest_s:g} s.")
        self._latest_s = time_s
        while self._after is not None and self._after.key_time_s <= time_s + _SAME_INSTANT_S:
            self._before, self._after = self._after, next(self._moments, None)
        return shown_between(self._before, self._after, time_s, every_s=self._every_s)


def shown_between(
    before: Moment | None, after: Moment | None, time_s: float, *, every_s: float
) -> list[ShownActor]:
    """The actors at a time between two key times, by track id; either may be missing."""
    earlier = {} if before is None else {actor.track_id: actor for actor in before.actors}
    later = {} if after is None else {actor.track_id: actor for actor in after.actors}
    shown: dict[int, ShownActor] = {}
    if after is not None and after.key_time_s - time_s <= every_s / 2:
        shown |= {number: ShownActor(actor, actor.box_xyxy_unit) for number, actor in later.items()}
    if before is not None and time_s - before.key_time_s <= every_s / 2 + _SAME_INSTANT_S:
        shown |= {number: ShownActor(actor, actor.box_xyxy_unit) for number, actor in earlier.items()}
    if before is not None and after is not None:
        gap_s = after.key_time_s - before.key_time_s
        if gap_s <= FURTHEST_STEPS * every_s:
            share = min(max((time_s - before.key_time_s) / gap_s, 0.0), 1.0)
            for number in earlier.keys() & later.keys():
                shown[number] = ShownActor(earlier[number], _moved(earlier[number], later[number], share))
    return [shown[number] for number in sorted(shown)]


def _moved(earlier: SeenActor, later: SeenActor, share: float) -> Box:
    x1, y1, x2, y2 = (
        (1 - share) * a + share * b for a, b in zip(earlier.box_xyxy_unit, later.box_xyxy_unit, strict=True)
    )
    return x1, y1, x2, y2
