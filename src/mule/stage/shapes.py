"""Anti-aliased shapes, drawn on all frames at once: tapered capsules, slabs with round corners, soft shadows.

A shape may move and turn from frame to frame; only a patch as large as its largest extent is touched, wherever it
is in each frame. Per pixel there are only sums, products, quotients, square roots and limits in single precision,
which every machine computes alike.
"""

from dataclasses import dataclass
from typing import Literal

import numpy as np
from jaxtyping import Bool, Float, Int, Shaped, UInt8
from numpy.lib.stride_tricks import as_strided

from mule.stage.plans import Colour

_LIGHT_X, _LIGHT_Y = np.float32(-0.55), np.float32(-0.83)  # from the upper left
_PARTS_OF_PIXEL = 256
_ROUNDNESS = np.float32(0.24)  # how much lighter and darker a limb is at its edges

Track = Float[np.ndarray, "frames 2"]


@dataclass(frozen=True)
class Accent:
    """A second colour: beyond a line across the shape, or in a band along its middle."""

    colour: Colour
    towards: Track
    """Unit vectors across the line, in the picture."""
    kind: Literal["beyond", "band"]
    share: float
    """Of the radius: where the line is, or how wide the band is to either side."""


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
    """Pictures with fewer rows do without it."""


@dataclass(frozen=True)
class Canvas:
    """Pictures being drawn, and which actor or object owns each pixel (0: nobody)."""

    colours: Float[np.ndarray, "frames 3 rows cols"]
    owners: UInt8[np.ndarray, "frames rows cols"]
    aspect: float

    @property
    def size(self) -> tuple[int, int]:
        """Rows and columns."""
        return self.owners.shape[1], self.owners.shape[2]

    def pixels(self, points: Track) -> Track:
        """Where points of the plan are in these pictures: the middle of the stage stays in the middle.

        Rounded to a part of a pixel that single precision holds exactly, wherever a patch begins.
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
        """A view (frames, top, left, …, rows, cols) of every patch of this size."""
        *lead, height, width = pictures.strides
        shape = pictures.shape
        return as_strided(
            pictures,
            (
                shape[0],
                shape[-2] - self.rows + 1,
                shape[-1] - self.cols + 1,
                *shape[1:-2],
                self.rows,
                self.cols,
            ),
            (lead[0], height, width, *lead[1:], height, width),
        )

    def grid(self, origin: Track) -> tuple[np.ndarray, np.ndarray]:
        """Pixel centres, x and y, from a point of each frame: (shown, 1, cols) and (shown, rows, 1)."""
        x0 = (self.left - origin[:, 0] + 0.5).astype(np.float32)
        y0 = (self.top - origin[:, 1] + 0.5).astype(np.float32)
        x = x0[:, None, None] + np.arange(self.cols, dtype=np.float32)[None, None, :]
        y = y0[:, None, None] + np.arange(self.rows, dtype=np.float32)[None, :, None]
        return x, y


def paint(
    canvas: Canvas, shape: Shape, owner: int, *, only: Bool[np.ndarray, " frames"] | None = None
) -> None:
    """Draws a shape over what is there, on all frames or only on some."""
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
    """The colour of every pixel of a shape in two colours; `beyond` is the distance from its middle line."""
    if accent.kind == "band":
        beyond = np.float32(accent.share) * radius - np.abs(beyond)
    else:
        beyond = beyond - np.float32(accent.share) * radius
    mix = _limit(beyond + np.float32(0.5))[:, None]
    return colours + mix * (np.array(accent.colour, dtype=np.float32)[None, :, None, None] - colours)


def _limit(values: np.ndarray) -> np.ndarray:
    """The values themselves, none left below 0 or above 1."""
    np.maximum(values, np.float32(0), out=values)
    np.minimum(values, np.float32(1), out=values)
    return values


def _capsule(
    x: np.ndarray, y: np.ndarray, axis: np.ndarray, radii: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Cover, and the vector from the nearest point of the axis, of a stroke with round ends."""
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
    """Cover, and the vector from the axis, of a tapered bar with flat ends and round corners."""
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
    where = (patch.frames, patch.top, patch.left)
    below = pictures[where]
    colours -= below
    colours *= cover[:, None]
    colours += below
    pictures[where] = colours
    owned = owners[where]
    np.copyto(owned, np.uint8(owner), where=cover > np.float32(0.5))
    owners[where] = owned


def paint_shadow(canvas: Canvas, centre: Track, radii: Track, strength: float) -> None:
    """Darkens an ellipse on the ground, most in its middle."""
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
    where = (patch.frames, patch.top, patch.left)
    pictures[where] = pictures[where] * depth[:, None]
