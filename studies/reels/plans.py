"""What happens when in a reel: people come one after another into one to three panels, idle, act, idle and leave.

    panel 1  ·· enter ── still ── ACT ACT ── sway ·· enter ── still ── sway ··
    panel 2  ─ still ── ACT ── still ─ ACT ── still ······ still ── ACT ──
    time     ────────────────────────────────────────────────────────────▶

A clip shows one person who acts from its first frame to its last. Around the act the person is idle: a *still* of the first
or the last frame, or a slow *sway* to and fro over the first few frames. On *enter* the picture slides in from the side. Some
people never act. A repeated act begins again with a cut. The order of clips is drawn from a seed; everybody has a turn before
anybody has a second one. Boxes stay where the table has them, at the middle of the clip.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Literal

import numpy as np

from mule.core.errors import RangeError
from mule.data.table.table import ActorTable
from studies.compose.composites import Source

SIZE = (240, 320)
"""Rows and columns of a panel."""
RATE = Fraction(30)
REEL_S = 90
MOST_PANELS = 3
MOST_REPEATS = 3
NEVER_ACTS, ACTS_AGAIN, ENTERS = 0.2, 0.3, 0.5
"""Shares of the people."""
ENTER_S = 0.6
AWAY_S, BEFORE_S, AFTER_S = (0.5, 2.5), (1.0, 3.0), (1.0, 2.5)
SWAY_FRAMES, SWAY_SLOWER = 4, 4
"""A sway shows this many frames to and fro, each for this many frames."""
VISIBLE_SHARE = 0.5
"""A person who enters is in the table once this share of the picture has come in."""

PartKind = Literal["enter", "still", "sway", "act"]


@dataclass(frozen=True)
class Part:
    """A stretch of a visit; a still shows the first frame before the act and the last one after it."""

    kind: PartKind
    num_frames: int
    is_after: bool = False


@dataclass(frozen=True)
class Visit:
    """One person in one panel."""

    source: Source
    begin: int
    """The frame of the reel at which the person appears."""
    parts: tuple[Part, ...]

    @property
    def end(self) -> int:
        """The frame after the last one."""
        return self.begin + sum(part.num_frames for part in self.parts)

    def at(self, frame: int) -> tuple[Part, int]:
        """Return the part at a frame of the reel, and the number of its frame."""
        number = frame - self.begin
        for part in self.parts:
            if number < part.num_frames:
                return part, number
            number -= part.num_frames
        raise RangeError(f"frame {frame} must lie before the end of the visit, {self.end}.")


@dataclass(frozen=True)
class ReelPlan:
    """One reel: the visits in each of its panels."""

    name: str
    num_frames: int
    panels: tuple[tuple[Visit, ...], ...]

    def visits(self) -> Iterator[tuple[int, int, Visit]]:
        """Yield the number of each visit, from 1, its panel, and the visit."""
        number = 0
        for panel, visits in enumerate(self.panels):
            for visit in visits:
                number += 1
                yield number, panel, visit


def num_act_frames(source: Source) -> int:
    """Return the frames of a clip at the rate of the reel."""
    return max(1, int((source.before_s + source.after_s) * RATE))


def draw_reels(sources: Sequence[Source], *, minutes: float, seed: int = 0) -> list[ReelPlan]:
    """Draw reels of a minute and a half, the last one perhaps shorter; the same seed gives the same reels.

    Args:
        sources: the clips to draw from.
        minutes: the length of all reels.
        seed: decides who comes when, in how many panels, and for how long.

    Raises:
        RangeError: there are no clips, or no time.
    """
    if not sources or not minutes > 0:
        raise RangeError(
            f"reels need clips of one person with a box, and some minutes; got {len(sources)} clips and {minutes:g} minutes."
        )
    rng = np.random.default_rng(seed)
    deck = _Deck(sources, rng)
    left = round(minutes * 60 * RATE)
    digits = len(str(-(-left // (REEL_S * RATE))))
    reels: list[ReelPlan] = []
    while left > 0:
        num_frames = int(min(left, REEL_S * RATE))
        panels = tuple(
            _drawn_panel(deck, rng, num_frames) for _ in range(int(rng.integers(1, MOST_PANELS + 1)))
        )
        reels.append(ReelPlan(f"reel-{len(reels) + 1:0{digits}d}.mp4", num_frames, panels))
        left -= num_frames
    return reels


def true_table(table: ActorTable, reels: Sequence[ReelPlan], *, every_s: Fraction) -> ActorTable:
    """Return who is where in the reels and does what, at regular times; idle people have no action.

    Args:
        table: the table of the clips.
        reels: what was drawn.
        every_s: seconds from one labelled time to the next.
    """
    index: list[int] = []
    times_s: list[float] = []
    boxes: list[np.ndarray] = []
    labels: list[np.ndarray] = []
    actor_id: list[str] = []
    for reel_index, reel in enumerate(reels):
        for number, panel, visit in reel.visits():
            for frame, time_s in _labelled_frames(visit, every_s):
                part, at = visit.at(frame)
                box = _box_in_reel(table, visit.source, panel, len(reel.panels), shift_of(part, at))
                if box is None:
                    continue
                index.append(reel_index)
                times_s.append(float(time_s))
                boxes.append(box)
                labels.append(table.labels[visit.source.row] & (part.kind == "act"))
                actor_id.append(f"person-{number}")
    return ActorTable(
        tuple(reel.name for reel in reels),
        table.classes,
        np.array(index, dtype=np.int64),
        np.array(times_s, dtype=np.float64),
        np.array(boxes, dtype=np.float64).reshape(-1, 4),
        np.array(labels, dtype=bool).reshape(-1, len(table.classes)),
        tuple(actor_id),
    )


def shift_of(part: Part, number: int) -> float:
    """Return how far to the side the picture of a part is, as a share of the panel; 0 once it is in.

    >>> shift_of(Part("enter", 4), 1), shift_of(Part("act", 4), 1)
    (0.75, 0.0)
    """
    return 1 - number / part.num_frames if part.kind == "enter" else 0.0


def clip_frame_of(part: Part, number: int, num_clip_frames: int) -> int:
    """Return the frame of the clip to show.

    >>> [clip_frame_of(Part("sway", 32), number, 30) for number in (0, 4, 12, 16, 24, 31)]
    [0, 1, 3, 2, 0, 1]
    """
    last = num_clip_frames - 1
    match part.kind:
        case "act":
            return number % num_clip_frames
        case "sway":
            turn = max(2 * (SWAY_FRAMES - 1), 1)
            step = number // SWAY_SLOWER % turn
            return min(min(step, turn - step), last)
        case "enter" | "still":
            return last if part.is_after else 0


def placed_in_panel(rows: int, cols: int) -> tuple[int, int, int, int]:
    """Return the first row and column, and the rows and columns, of a clip fitted into a panel.

    >>> placed_in_panel(480, 640), placed_in_panel(100, 50)
    ((0, 0, 240, 320), (0, 100, 240, 120))
    """
    scale = min(SIZE[0] / rows, SIZE[1] / cols)
    height, width = round(rows * scale), round(cols * scale)
    return (SIZE[0] - height) // 2, (SIZE[1] - width) // 2, height, width


class _Deck:
    """Clips in random order; everybody has a turn before anybody has a second one."""

    def __init__(self, sources: Sequence[Source], rng: np.random.Generator) -> None:
        self._sources, self._rng = sources, rng
        self._order: list[int] = []

    def draw(self) -> Source:
        if not self._order:
            self._order = self._rng.permutation(len(self._sources)).tolist()
        return self._sources[self._order.pop()]


def _drawn_panel(deck: _Deck, rng: np.random.Generator, num_frames: int) -> tuple[Visit, ...]:
    visits: list[Visit] = []
    at = _frames(rng, (0.0, AWAY_S[1]))
    while True:
        source = deck.draw()
        visit = Visit(source, at, _drawn_parts(source, rng))
        if visit.end > num_frames:
            return tuple(visits)
        visits.append(visit)
        at = visit.end + _frames(rng, AWAY_S)


def _drawn_parts(source: Source, rng: np.random.Generator) -> tuple[Part, ...]:
    parts = [Part("enter", round(ENTER_S * RATE))] if rng.random() < ENTERS else []
    parts.append(Part(_idle(rng), _frames(rng, BEFORE_S)))
    if rng.random() < NEVER_ACTS:
        return (*parts, Part(_idle(rng), _frames(rng, AFTER_S)))
    for _ in range(2 if rng.random() < ACTS_AGAIN else 1):
        parts.append(Part("act", int(rng.integers(1, MOST_REPEATS + 1)) * num_act_frames(source)))
        parts.append(Part("still", _frames(rng, AFTER_S), is_after=True))
    return tuple(parts)


def _idle(rng: np.random.Generator) -> PartKind:
    return "sway" if rng.random() < 0.5 else "still"


def _frames(rng: np.random.Generator, between_s: tuple[float, float]) -> int:
    return round(rng.uniform(*between_s) * RATE)


def _labelled_frames(visit: Visit, every_s: Fraction) -> Iterator[tuple[int, Fraction]]:
    """Yield the frames on screen at the labelled times of a visit, and these times."""
    number = -(-(visit.begin / RATE) // every_s)
    while (frame := int(number * every_s * RATE)) < visit.end:
        yield frame, number * every_s
        number += 1


def _box_in_reel(
    table: ActorTable, source: Source, panel: int, num_panels: int, shift: float
) -> np.ndarray | None:
    """Return the person's box as a share of the reel's frame; None while too little of the picture is in."""
    if 1 - shift < VISIBLE_SHARE:
        return None
    top, left, height, width = placed_in_panel(source.video.rows, source.video.cols)
    x1, y1, x2, y2 = table.boxes_xyxy_unit[source.row]
    xs = np.minimum((left + width * np.array([x1, x2])) / SIZE[1] + shift, 1.0)
    if xs[0] >= xs[1]:
        return None
    ys = (top + height * np.array([y1, y2])) / SIZE[0]
    xs = (panel + xs) / num_panels
    return np.array([xs[0], ys[0], xs[1], ys[1]])
