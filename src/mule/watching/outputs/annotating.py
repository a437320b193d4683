"""`annotated.mp4`: the video with a box and a label around every actor.

Cyan is known, yellow is novel, grey is idle and white is unsure.

*Between key times* a box moves evenly from one key time to the next. An actor seen at a single key time is shown for half
the usual step on each side of it, and so is everybody where key times lie further apart than usual. Colours and labels are
those of the last key time and change at key times only, so nothing flickers.

*Drawing.* Every line has a dark rim and every word a dark plate, so both are legible on any background. The label says
"novel", "idle" or "unsure" too, for people who cannot tell the colours apart.
"""

import logging
from collections.abc import Iterable, Iterator, Mapping
from fractions import Fraction
from functools import lru_cache
from itertools import chain
from pathlib import Path
from typing import NamedTuple

import numpy as np
from jaxtyping import Float, UInt8

from mule.core.errors import RangeError, VideoError
from mule.evaluation.pictures import CYAN, YELLOW
from mule.video.clips import SAME_INSTANT_S
from mule.video.encode import Codec, VideoWriter
from mule.watching.moments import Box, Decision, Header, Moment, SeenActor, View
from mule.watching.outputs.lettering import letters_without_font, line_rows, text_alpha
from mule.watching.thumbnails import Image

FURTHEST_STEPS = 1.5
"""Key times further apart than this many usual steps are not bridged."""

_SAME_INSTANT_S = float(SAME_INSTANT_S)


class ShownActor(NamedTuple):
    """An actor as judged at a key time, and its box at the time of the frame."""

    actor: SeenActor
    box_xyxy_unit: Box


class Screen:
    """The actors on screen at one time after another; it holds two moments, however many there are."""

    def __init__(self, moments: Iterable[Moment], *, every_s: float) -> None:
        self._moments: Iterator[Moment] = iter(moments)
        self._every_s = every_s
        self._before: Moment | None = None
        self._after = next(self._moments, None)
        self._latest_s = 0.0

    def at(self, time_s: float) -> list[ShownActor]:
        """Return the actors at a time, by track id; times must not go back."""
        if time_s < self._latest_s:
            raise RangeError(f"times must not go back; {time_s:g} s follows {self._latest_s:g} s.")
        self._latest_s = time_s
        while self._after is not None and self._after.key_time_s <= time_s + _SAME_INSTANT_S:
            self._before, self._after = self._after, next(self._moments, None)
        return shown_between(self._before, self._after, time_s, every_s=self._every_s)


def shown_between(
    before: Moment | None, after: Moment | None, time_s: float, *, every_s: float
) -> list[ShownActor]:
    """Return the actors at a time between two key times, by track id; either moment may be missing."""
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


Frame = tuple[float, Image]
Rgb = tuple[int, int, int]

MOST_ACTIONS = 3
LONGEST_NAME = 28

_PLATE: Rgb = (14, 17, 22)
_WORDS: Rgb = (245, 247, 250)
_PLATE_OPACITY = 0.8


def _rgb(colour: str) -> Rgb:
    red, green, blue = bytes.fromhex(colour.removeprefix("#"))
    return red, green, blue


KNOWN_RGB, NOVEL_RGB = _rgb(CYAN), _rgb(YELLOW)
IDLE_RGB: Rgb = (154, 164, 178)
UNSURE_RGB: Rgb = (255, 255, 255)
_COLOURS: Mapping[Decision, Rgb] = {
    "known": KNOWN_RGB,
    "novel": NOVEL_RGB,
    "idle": IDLE_RGB,
    "unsure": UNSURE_RGB,
}


def write_annotated(
    path: Path,
    frames: Iterable[Frame],
    moments: Iterable[Moment],
    *,
    header: Header,
    rate: Fraction,
    codec: Codec = "vp9",
) -> int:
    """Write the video frame by frame, `rate` of them per second, and return their number; whole or not at all.

    Where times are missing, the frame before stays on screen.
    """
    missing = letters_without_font(header.classes)
    if missing:
        logging.getLogger("mule").warning(
            f"{path}: no installed font has {missing}; these letters show as �. Install a font that has them, such as Noto."
        )
    frames = iter(frames)
    first = next(frames, None)
    if first is None:
        raise VideoError(f"{path}: an annotated video must have frames; there are none.")
    screen, count = Screen(moments, every_s=header.every_s), 0
    rows, cols = _even(first[1]).shape[:2]
    with VideoWriter(path, (rows, cols), rate, codec=codec) as video:
        for time_s, image in chain([first], frames):
            drawn = annotated(image, screen.at(time_s), view=header.threshold.view)
            video.write(_even(drawn)[None], first=round(time_s * rate))
            count += 1
    return count


def annotated(image: Image, actors: Iterable[ShownActor], *, view: View) -> Image:
    """Return a copy of a frame with its actors drawn in."""
    drawn = image.copy()
    draw_actors(drawn, actors, view=view)
    return drawn


def draw_actors(image: Image, actors: Iterable[ShownActor], *, view: View) -> None:
    """Draw a box and a label for each actor into the image."""
    style = _style(image.shape[0], image.shape[1])
    shown = list(actors)
    places = [_pixels(image, each.box_xyxy_unit) for each in shown]
    for each, place in zip(shown, places, strict=True):
        _draw_box(image, place, _colour(each), style)
    taken: list[_Area] = []
    for each, place in zip(shown, places, strict=True):
        plate = _plate(_label(each, view), _colour(each), style.capital_px)
        taken.append(_draw_plate(image, place, plate, style=style, taken=taken))


class _Area(NamedTuple):
    left: int
    top: int
    right: int
    bottom: int

    def meets(self, other: "_Area") -> bool:
        return (
            self.left < other.right
            and other.left < self.right
            and self.top < other.bottom
            and other.top < self.bottom
        )


class _Style(NamedTuple):
    line_px: int
    rim_px: int
    capital_px: int


def _style(rows: int, cols: int) -> _Style:
    side = min(rows, cols)
    return _Style(max(2, round(side / 240)), max(1, round(side / 480)), max(7, round(side / 44)))


def _colour(shown: ShownActor) -> Rgb:
    return _COLOURS[shown.actor.decision]


def _label(shown: ShownActor, view: View) -> tuple[str, ...]:
    """The track number, the decision unless a known action says it, and the likeliest actions."""
    actions = shown.actor.judged(view).actions
    lines = [f"{_short(each.action)} {100 * each.probability:.0f}%" for each in actions[:MOST_ACTIONS]]
    number = f"#{shown.actor.track_id}"
    if shown.actor.decision == "known" and lines:
        return (f"{number} {lines[0]}", *lines[1:])
    return (f"{number} {shown.actor.decision}", *lines)


def _short(name: str) -> str:
    words = " ".join(name.split())
    return words if len(words) <= LONGEST_NAME else f"{words[: LONGEST_NAME - 1]}…"


def _pixels(image: Image, box_xyxy_unit: tuple[float, float, float, float]) -> _Area:
    rows, cols = image.shape[:2]
    x1, y1, x2, y2 = box_xyxy_unit
    left, top = round(x1 * cols), round(y1 * rows)
    return _Area(left, top, max(round(x2 * cols), left + 1), max(round(y2 * rows), top + 1))


def _draw_box(image: Image, box: _Area, colour: Rgb, style: _Style) -> None:
    rim, line = style.rim_px, style.line_px
    _outline(image, box, rim + line + rim, _PLATE)
    inner = _Area(box.left + rim, box.top + rim, box.right - rim, box.bottom - rim)
    _outline(image, inner, line, colour)


def _outline(image: Image, area: _Area, width: int, colour: Rgb) -> None:
    """Lines of this width along the inside of the area, clipped to the image."""
    left, top = max(area.left, 0), max(area.top, 0)
    right, bottom = max(area.right, 0), max(area.bottom, 0)
    image[top : top + width, left:right] = colour
    image[max(bottom - width, 0) : bottom, left:right] = colour
    image[top:bottom, left : left + width] = colour
    image[top:bottom, max(right - width, 0) : right] = colour


class _Plate(NamedTuple):
    """A rendered label: its own light, and the share of the image that shines through."""

    light: Float[np.ndarray, "rows cols 3"]
    through: Float[np.ndarray, "rows cols 1"]


@lru_cache(maxsize=512)
def _plate(lines: tuple[str, ...], colour: Rgb, capital_px: int) -> _Plate:
    """Words on a dark plate with a bar in the actor's colour; the first line has that colour too."""
    texts = [text_alpha(line, float(capital_px)) for line in lines]
    pad, bar = max(2, capital_px // 3), max(2, capital_px // 4)
    wide = bar + 2 * pad + max(text.shape[1] for text in texts)
    high = pad + len(texts) * line_rows(float(capital_px))
    light = np.broadcast_to(np.array(_PLATE, dtype=np.float32), (high, wide, 3)) * _PLATE_OPACITY
    through = np.full((high, wide, 1), 1 - _PLATE_OPACITY, dtype=np.float32)
    light[:, :bar], through[:, :bar] = colour, 0.0
    top = pad
    for number, text in enumerate(texts):
        place = np.s_[top : top + text.shape[0], bar + pad : bar + pad + text.shape[1]]
        cover = text[..., None].astype(np.float32)
        words = np.array(colour if number == 0 else _WORDS, dtype=np.float32)
        light[place] = light[place] * (1 - cover) + words * cover
        through[place] *= 1 - cover
        top += text.shape[0]
    return _Plate(light, through)


def _draw_plate(image: Image, box: _Area, plate: _Plate, *, style: _Style, taken: list[_Area]) -> _Area:
    """Draw the plate above its box if there is room, else inside it, beside plates drawn before."""
    rows, cols = image.shape[:2]
    high, wide = min(plate.light.shape[0], rows), min(plate.light.shape[1], cols)
    left = min(max(box.left, 0), cols - wide)
    top = box.top - high if box.top >= high else max(box.top, 0) + style.line_px + 2 * style.rim_px
    area = _free(_Area(left, min(top, rows - high), left + wide, min(top, rows - high) + high), rows, taken)
    beneath = image[area.top : area.bottom, area.left : area.right]
    beneath[:] = (plate.light[:high, :wide] + beneath * plate.through[:high, :wide] + 0.5).astype(np.uint8)
    return area


def _free(area: _Area, rows: int, taken: list[_Area]) -> _Area:
    """Move the area as little as possible so that it meets no taken one; leave it where it is if there is no room.

    Moving down counts double, because the actor is below.
    """
    high = area.bottom - area.top
    tops = [area.top, *(other.top - high for other in taken), *(other.bottom for other in taken)]
    moved = [area._replace(top=top, bottom=top + high) for top in tops if 0 <= top <= rows - high]
    free = [each for each in moved if not any(each.meets(other) for other in taken)]
    return min(free, key=lambda each: max(area.top - each.top, 2 * (each.top - area.top)), default=area)


def _even(image: Image) -> UInt8[np.ndarray, "even_rows even_cols 3"]:
    """Repeat the last row or column where their number is odd, as 4:2:0 video requires."""
    rows, cols = image.shape[:2]
    return (
        np.pad(image, ((0, rows % 2), (0, cols % 2), (0, 0)), mode="edge") if rows % 2 or cols % 2 else image
    )
