"""Anti-aliased shapes drawn on all frames at once, and patterns for scenes: smooth noise, cells, waves and soft edges.

A shape may move and turn from frame to frame; drawing touches only a patch of its largest extent in each frame. Pixels
use only sums, products, quotients, square roots and limits in single precision, which every machine computes alike;
curves are computed once per column in double precision and rounded.
"""

from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Literal

import numpy as np
from jaxtyping import Bool, Float, Int, Shaped, UInt8
from numpy.lib.stride_tricks import sliding_window_view

from mule.stage.plans import HORIZON, Colour, on_grid

_LIGHT_X, _LIGHT_Y = np.float32(-0.55), np.float32(-0.83)  # from the upper left
_PARTS_OF_PIXEL = 256
_ROUNDNESS = np.float32(0.24)  # contrast between the lit and the dark edge of a limb

Track = Float[np.ndarray, "frames 2"]


@dataclass(frozen=True)
class Accent:
    """A second colour: beyond a line across the shape, or in a band along its middle."""

    colour: Colour
    towards: Track
    """Unit vectors across the line, in the picture."""
    kind: Literal["beyond", "band"]
    share: float
    """Share of the radius: position of the line, or half the width of the band."""


@dataclass(frozen=True)
class Shape:
    """A stroke from `start` to `end`, in rows of the picture; `corner` None has round ends, else flat ones."""

    start: Track
    end: Track
    start_radius: Float[np.ndarray, " frames"]
    end_radius: Float[np.ndarray, " frames"]
    colour: Colour
    corner: Float[np.ndarray, " frames"] | None = None
    accent: Accent | None = None
    is_drawn: Bool[np.ndarray, " frames"] | None = None
    least_rows: int = 0
    """Not drawn in pictures with fewer rows."""


@dataclass(frozen=True)
class Canvas:
    """Pictures being drawn, and the actor or object that owns each pixel (0: nobody)."""

    colours: Float[np.ndarray, "frames 3 rows cols"]
    owners: UInt8[np.ndarray, "frames rows cols"]
    aspect: float

    @property
    def size(self) -> tuple[int, int]:
        """Rows and columns."""
        return self.owners.shape[1], self.owners.shape[2]

    def pixels(self, points: Track) -> Track:
        """Convert points of the plan to pixels; the middle of the stage is the middle of the picture.

        Rounded to a fraction of a pixel that single precision represents exactly in any patch.
        """
        rows, cols = self.size
        places = points * rows
        places[:, 0] += cols / 2 - self.aspect / 2 * rows
        places *= _PARTS_OF_PIXEL
        np.rint(places, out=places)
        places *= 1 / _PARTS_OF_PIXEL
        return places


@dataclass(frozen=True)
class _Patch:
    """The part of each frame that a shape may touch."""

    frames: Int[np.ndarray, " shown"]
    top: Int[np.ndarray, " shown"]
    left: Int[np.ndarray, " shown"]
    rows: int
    cols: int

    def of(self, pictures: Shaped[np.ndarray, "frames *channels rows cols"]) -> np.ndarray:
        """Return a view (frames, …, top, left, rows, cols) of every patch of this size."""
        return sliding_window_view(pictures, (self.rows, self.cols), axis=(-2, -1), writeable=True)

    @property
    def places(self) -> tuple[Any, ...]:
        """Where the patches are in that view."""
        return self.frames, ..., self.top, self.left, slice(None), slice(None)

    def grid(self, origin: Track) -> tuple[np.ndarray, np.ndarray]:
        """Return pixel centres relative to a point of each frame: x (shown, 1, cols) and y (shown, rows, 1)."""
        x0 = (self.left - origin[:, 0] + 0.5).astype(np.float32)
        y0 = (self.top - origin[:, 1] + 0.5).astype(np.float32)
        x = x0[:, None, None] + np.arange(self.cols, dtype=np.float32)[None, None, :]
        y = y0[:, None, None] + np.arange(self.rows, dtype=np.float32)[None, :, None]
        return x, y


def paint(
    canvas: Canvas, shape: Shape, owner: int, *, only: Bool[np.ndarray, " frames"] | None = None
) -> None:
    """Draw a shape on all frames or only on some."""
    rows, _ = canvas.size
    if rows < shape.least_rows:
        return
    start, end = canvas.pixels(shape.start), canvas.pixels(shape.end)
    radii = np.stack([shape.start_radius, shape.end_radius]) * rows
    is_drawn = [mask for mask in (shape.is_drawn, only) if mask is not None]
    patch = _patch(canvas, start, end, reach=float(radii.max()), is_drawn=is_drawn)
    if patch is None:
        return
    shown = patch.frames
    radii = radii[:, shown].astype(np.float32)
    x, y = patch.grid(start[shown])
    axis = (end - start)[shown].astype(np.float32)
    if shape.corner is None:
        cover, across_x, across_y = _capsule(x, y, axis, radii)
    else:
        cover, across_x, across_y = _slab(
            x, y, axis, radii, (shape.corner[shown] * rows).astype(np.float32)[:, None, None]
        )
    radius = np.maximum(radii.max(axis=0), np.float32(0.01))[:, None, None]
    light = across_x * ((_LIGHT_X * _ROUNDNESS) / radius)
    light += across_y * ((_LIGHT_Y * _ROUNDNESS) / radius)
    light += np.float32(1)
    colours = np.array(shape.colour, dtype=np.float32)[None, :, None, None]
    if shape.accent is not None:
        towards = shape.accent.towards[shown].astype(np.float32)[:, :, None, None]
        colours = _accented(
            colours, shape.accent, across_x * towards[:, 0] + across_y * towards[:, 1], radius
        )
    _blend(canvas, patch, cover, light[:, None] * colours, owner)


def _accented(colours: np.ndarray, accent: Accent, beyond: np.ndarray, radius: np.ndarray) -> np.ndarray:
    """Return the colours of a two-coloured shape; `beyond` is the distance from its middle line."""
    if accent.kind == "band":
        beyond = np.float32(accent.share) * radius - np.abs(beyond)
    else:
        beyond = beyond - np.float32(accent.share) * radius
    mix = _limit(beyond + np.float32(0.5))[:, None]
    return colours + mix * (np.array(accent.colour, dtype=np.float32)[None, :, None, None] - colours)


def _limit(values: np.ndarray) -> np.ndarray:
    """Clip the values to 0..1 in place."""
    np.maximum(values, np.float32(0), out=values)
    np.minimum(values, np.float32(1), out=values)
    return values


def _capsule(
    x: np.ndarray, y: np.ndarray, axis: np.ndarray, radii: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return cover and the vector from the nearest point of the axis for a stroke with round ends."""
    dx, dy = axis[:, 0, None, None], axis[:, 1, None, None]
    squared = dx * dx + dy * dy
    per_square = np.where(squared > 0, np.float32(1) / np.maximum(squared, np.float32(1e-12)), np.float32(0))
    along = x * (dx * per_square) + y * (dy * per_square)
    _limit(along)
    across_x = x - along * dx
    across_y = y - along * dy
    distance = across_x * across_x
    distance += across_y * across_y
    np.sqrt(distance, out=distance)
    along *= (radii[1] - radii[0])[:, None, None]
    along += radii[0][:, None, None] + np.float32(0.5)
    along -= distance
    _limit(along)
    return along, across_x, across_y


def _slab(
    x: np.ndarray, y: np.ndarray, axis: np.ndarray, radii: np.ndarray, corner: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return cover and the vector from the axis for a tapered bar with flat ends and round corners."""
    length = np.sqrt(axis[:, 0] * axis[:, 0] + axis[:, 1] * axis[:, 1])
    per_length = np.where(length > 0, np.float32(1) / np.maximum(length, np.float32(1e-6)), np.float32(0))
    ux, uy = (axis[:, 0] * per_length)[:, None, None], (axis[:, 1] * per_length)[:, None, None]
    length = length[:, None, None]
    along = x * ux + y * uy
    aside = y * ux - x * uy
    share = _limit(along * per_length[:, None, None])
    width = radii[0][:, None, None] + share * (radii[1] - radii[0])[:, None, None]
    out = np.abs(aside) - (width - corner)
    over = np.abs(along - length * np.float32(0.5)) - (length * np.float32(0.5) - corner)
    inside = np.minimum(np.maximum(out, over), np.float32(0))
    np.maximum(out, np.float32(0), out=out)
    np.maximum(over, np.float32(0), out=over)
    distance = np.sqrt(out * out + over * over) + inside
    cover = _limit(corner + np.float32(0.5) - distance)
    return cover, -aside * uy, aside * ux


def _patch(
    canvas: Canvas, start: Track, end: Track, *, reach: float, is_drawn: list[Bool[np.ndarray, " frames"]]
) -> _Patch | None:
    rows, cols = canvas.size
    low = np.floor(np.minimum(start, end) - (reach + 1)).astype(np.int64)
    high = np.ceil(np.maximum(start, end) + (reach + 1)).astype(np.int64)
    is_shown = (high[:, 0] > 0) & (high[:, 1] > 0) & (low[:, 0] < cols) & (low[:, 1] < rows)
    for mask in is_drawn:
        is_shown &= mask
    frames = np.flatnonzero(is_shown)
    if len(frames) == 0:
        return None
    if len(frames) < len(low):
        low, high = low[frames], high[frames]
    left, top = low.T
    width = min(int((high[:, 0] - left).max()), cols)
    height = min(int((high[:, 1] - top).max()), rows)
    return _Patch(
        frames=frames,
        top=np.minimum(np.maximum(top, 0), rows - height),
        left=np.minimum(np.maximum(left, 0), cols - width),
        rows=height,
        cols=width,
    )


def _blend(canvas: Canvas, patch: _Patch, cover: np.ndarray, colours: np.ndarray, owner: int) -> None:
    pictures, owners = patch.of(canvas.colours), patch.of(canvas.owners)
    where = patch.places
    below = pictures[where]
    colours -= below
    colours *= cover[:, None]
    colours += below
    pictures[where] = colours
    owned = owners[where]
    np.copyto(owned, np.uint8(owner), where=cover > np.float32(0.5))
    owners[where] = owned


def paint_shadow(canvas: Canvas, centre: Track, radii: Track, strength: float) -> None:
    """Darken an ellipse on the ground, most in its middle."""
    rows, _ = canvas.size
    middle = canvas.pixels(centre)
    radii_px = np.maximum(radii * rows, 0.5)
    patch = _patch(canvas, middle, middle, reach=float(radii_px.max()), is_drawn=[radii[:, 0] > 0])
    if patch is None:
        return
    x, y = patch.grid(middle[patch.frames])
    per = (1.0 / radii_px[patch.frames]).astype(np.float32)
    x, y = x * per[:, 0, None, None], y * per[:, 1, None, None]
    depth = np.maximum(np.float32(1) - (x * x + y * y), np.float32(0))
    depth = np.float32(1) - depth * np.float32(strength) * (np.float32(2) - depth)
    pictures = patch.of(canvas.colours)
    where = patch.places
    pictures[where] = pictures[where] * depth[:, None]


Field = Float[np.ndarray, "rows cols"]
Lattice = Float[np.ndarray, "64 64"]
Backdrop = Float[np.ndarray, "3 rows cols"]
Level = int | float
Shade = tuple[Level, Level, Level]

_LATTICE = 64


@dataclass(frozen=True)
class StageView:
    """Coordinates of the pixels of a picture: x, y in rows of the picture, and the ground they show."""

    rows: int
    x: Field
    y: Field
    ground_x: Field
    """Sideways position on the ground from the middle; a body height is about 0.9."""
    ground_z: Field
    """Distance from the camera on the ground; only below the horizon."""

    def over(self, edge: Field | np.ndarray | float) -> Field:
        """Return 1 below the curve y = edge and 0 above, with a soft step."""
        return self.step(self.y - np.asarray(edge, dtype=np.float32))

    def step(self, distance: np.ndarray) -> Field:
        """Return 1 where the distance (in rows of the picture) is positive, with a step one pixel wide."""
        return np.minimum(
            np.maximum(distance * np.float32(self.rows) + np.float32(0.5), np.float32(0)), np.float32(1)
        )

    def box(self, left: Level, top: Level, right: Level, bottom: Level) -> Field:
        """Return 1 inside a rectangle and 0 outside."""
        across = np.minimum(self.x - np.float32(left), np.float32(right) - self.x)
        along = np.minimum(self.y - np.float32(top), np.float32(bottom) - self.y)
        return self.step(np.minimum(across, along))

    def columns(self, left: float, right: float) -> slice:
        """Return the columns of pixels between two places, and one more on either side."""
        places = self.x[0]
        first = int(np.searchsorted(places, np.float32(left))) - 1
        return slice(max(first, 0), max(int(np.searchsorted(places, np.float32(right))) + 1, 0))

    def part(self, rows: slice, cols: slice) -> "StageView":
        """Return a part of the picture, in the same coordinates."""
        fields = (self.x, self.y, self.ground_x, self.ground_z)
        return StageView(self.rows, *[field[rows, cols] for field in fields])


@lru_cache(maxsize=2)
def view_of(size: tuple[int, int], aspect: float) -> StageView:
    """Return the coordinates of all pixels; the middle of the stage is the middle of the picture."""
    rows, cols = size
    x = (np.arange(cols) + 0.5 - cols / 2) / rows + aspect / 2
    y = (np.arange(rows) + 0.5) / rows
    below = 1 / np.maximum(y - HORIZON, 0.02)
    x32, y32, below32 = (part.astype(np.float32) for part in (x, y, below))
    ones = np.ones((rows, cols), dtype=np.float32)
    return StageView(
        rows=rows,
        x=ones * x32[None, :],
        y=ones * y32[:, None],
        ground_x=(x32 - np.float32(aspect / 2))[None, :] * below32[:, None],
        ground_z=ones * (np.float32(1.2) * below32)[:, None],
    )


def lattice(rng: np.random.Generator) -> Lattice:
    """Draw random heights for `noise`."""
    return rng.random((_LATTICE, _LATTICE), dtype=np.float32)


def noise(heights: Lattice, across: np.ndarray, down: np.ndarray) -> Field:
    """Return smooth noise in 0..1: random heights at whole numbers, interpolated in between."""
    left, top = np.floor(across), np.floor(down)
    u, v = across - left, down - top
    u, v = u * u * (np.float32(3) - np.float32(2) * u), v * v * (np.float32(3) - np.float32(2) * v)
    i, j = left.astype(np.int32) & (_LATTICE - 1), top.astype(np.int32) & (_LATTICE - 1)
    i1, j1 = (i + 1) & (_LATTICE - 1), (j + 1) & (_LATTICE - 1)
    flat = heights.reshape(-1)
    upper = flat[j * _LATTICE + i]
    upper = upper + u * (flat[j * _LATTICE + i1] - upper)
    lower = flat[j1 * _LATTICE + i]
    lower = lower + u * (flat[j1 * _LATTICE + i1] - lower)
    return upper + v * (lower - upper)


def cells(heights: Lattice, across: np.ndarray, down: np.ndarray) -> Field:
    """Return a random number in 0..1 for each unit cell."""
    i, j = np.floor(across).astype(np.int32), np.floor(down).astype(np.int32)
    return heights.reshape(-1)[(j & (_LATTICE - 1)) * _LATTICE + (i & (_LATTICE - 1))]


def fraction(values: np.ndarray) -> np.ndarray:
    """Return the fractional part of the values."""
    return values - np.floor(values)


def filled(view: StageView, colour: Shade) -> Backdrop:
    """Return a picture of one colour."""
    return np.ones((3, *view.x.shape), dtype=np.float32) * np.array(colour, dtype=np.float32)[:, None, None]


def graded(view: StageView, top: Shade, bottom: Shade, span: tuple[float, float]) -> Backdrop:
    """Return a picture whose colour changes from `top` to `bottom` between two heights."""
    share = np.clip(
        (view.y - np.float32(span[0])) / np.float32(span[1] - span[0]), np.float32(0), np.float32(1)
    )
    return mixed(filled(view, top), filled(view, bottom), share)


def mixed(below: Backdrop, above: Backdrop | Shade, cover: Field) -> Backdrop:
    """Blend one picture over another by `cover`."""
    if isinstance(above, tuple):
        above = np.array(above, dtype=np.float32)[:, None, None]
    return below + cover * (above - below)


def waves(
    rng: np.random.Generator, x: np.ndarray, *, height: float, periods: tuple[float, ...]
) -> np.ndarray:
    """Draw a random smooth curve along x, as a sum of waves, rounded so that every machine draws the same."""
    total = np.zeros(x.shape)
    for number, period in enumerate(periods):
        phase = rng.random()
        total += height / (number + 1) * np.sin(2 * np.pi * (x.astype(np.float64) / period + phase))
    return on_grid(total).astype(np.float32)
