"""Patterns for scenes: a view of the stage in its own coordinates, smooth noise, and edges without steps.

Only exact operations are used per pixel; waves and curves are computed once per column, in double precision, and
rounded before use.
"""

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float

from mule.stage.figure import on_grid
from mule.stage.plans import HORIZON

Field = Float[np.ndarray, "rows cols"]
Lattice = Float[np.ndarray, "64 64"]
Picture = Float[np.ndarray, "3 rows cols"]
Number = int | float
Shade = tuple[Number, Number, Number]

_LATTICE = 64


@dataclass(frozen=True)
class View:
    """Pixels of a picture in coordinates of the stage: x, y in rows of the picture, and the ground they show."""

    rows: int
    x: Field
    y: Field
    ground_x: Field
    """Sideways on the ground from the middle; a body height is about 0.9."""
    ground_z: Field
    """Away from the camera on the ground; only below the horizon."""

    def over(self, edge: Field | np.ndarray | float) -> Field:
        """1 where pixels are below the curve y = edge, 0 above, with a soft step."""
        return self.step(self.y - np.asarray(edge, dtype=np.float32))

    def step(self, distance: np.ndarray) -> Field:
        """1 where the distance (in rows of the picture) is above zero, with a step one pixel wide."""
        return np.minimum(
            np.maximum(distance * np.float32(self.rows) + np.float32(0.5), np.float32(0)), np.float32(1)
        )

    def box(self, left: Number, top: Number, right: Number, bottom: Number) -> Field:
        """1 inside a rectangle."""
        across = np.minimum(self.x - np.float32(left), np.float32(right) - self.x)
        along = np.minimum(self.y - np.float32(top), np.float32(bottom) - self.y)
        return self.step(np.minimum(across, along))

    def columns(self, left: float, right: float) -> slice:
        """The columns of pixels between two places, and one more on either side."""
        places = self.x[0]
        first = int(np.searchsorted(places, np.float32(left))) - 1
        return slice(max(first, 0), max(int(np.searchsorted(places, np.float32(right))) + 1, 0))

    def part(self, rows: slice, cols: slice) -> "View":
        """A part of the picture, in the same coordinates."""
        fields = (self.x, self.y, self.ground_x, self.ground_z)
        return View(self.rows, *[field[rows, cols] for field in fields])


def view_of(size: tuple[int, int], aspect: float) -> View:
    """The coordinates of all pixels; the middle of the stage is the middle of the picture."""
    rows, cols = size
    x = (np.arange(cols) + 0.5 - cols / 2) / rows + aspect / 2
    y = (np.arange(rows) + 0.5) / rows
    below = 1 / np.maximum(y - HORIZON, 0.02)
    x32, y32, below32 = (part.astype(np.float32) for part in (x, y, below))
    ones = np.ones((rows, cols), dtype=np.float32)
    return View(
        rows=rows,
        x=ones * x32[None, :],
        y=ones * y32[:, None],
        ground_x=(x32 - np.float32(aspect / 2))[None, :] * below32[:, None],
        ground_z=ones * (np.float32(1.2) * below32)[:, None],
    )


def lattice(rng: np.random.Generator) -> Lattice:
    """Random heights for `noise`."""
    return rng.random((_LATTICE, _LATTICE), dtype=np.float32)


def noise(heights: Lattice, across: np.ndarray, down: np.ndarray) -> Field:
    """Smooth noise in 0..1 at these coordinates: random heights at whole numbers, blended in between."""
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
    """A random number in 0..1 for each unit cell, the same all over it."""
    i, j = np.floor(across).astype(np.int32), np.floor(down).astype(np.int32)
    return heights.reshape(-1)[(j & (_LATTICE - 1)) * _LATTICE + (i & (_LATTICE - 1))]


def fraction(values: np.ndarray) -> np.ndarray:
    """What is left of the values after whole numbers."""
    return values - np.floor(values)


def filled(view: View, colour: Shade) -> Picture:
    """A picture of one colour."""
    return np.ones((3, *view.x.shape), dtype=np.float32) * np.array(colour, dtype=np.float32)[:, None, None]


def graded(view: View, top: Shade, bottom: Shade, span: tuple[float, float]) -> Picture:
    """A picture whose colour changes from `top` to `bottom` between two heights."""
    share = np.clip(
        (view.y - np.float32(span[0])) / np.float32(span[1] - span[0]), np.float32(0), np.float32(1)
    )
    return mixed(filled(view, top), filled(view, bottom), share)


def mixed(below: Picture, above: Picture | Shade, cover: Field) -> Picture:
    """One picture over another where cover is 1."""
    if isinstance(above, tuple):
        above = np.array(above, dtype=np.float32)[:, None, None]
    return below + cover * (above - below)


def waves(
    rng: np.random.Generator, x: np.ndarray, *, height: float, periods: tuple[float, ...]
) -> np.ndarray:
    """A random smooth curve along x, as sums of waves; rounded, so that every machine draws it alike."""
    total = np.zeros(x.shape)
    for number, period in enumerate(periods):
        phase = rng.random()
        total += height / (number + 1) * np.sin(2 * np.pi * (x.astype(np.float64) / period + phase))
    return on_grid(total).astype(np.float32)
