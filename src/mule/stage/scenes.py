"""Paint the seven kinds of static scenes, with random instances."""

from collections.abc import Callable
from functools import lru_cache

import numpy as np

from mule.stage.classes import SceneKind
from mule.stage.plans import ScenePlan
from mule.stage.shapes import (
    Backdrop,
    Field,
    Level,
    Shade,
    StageView,
    cells,
    filled,
    fraction,
    graded,
    lattice,
    mixed,
    noise,
    view_of,
    waves,
)

_F = np.float32


@lru_cache(maxsize=2)
def background(scene: ScenePlan, size: tuple[int, int], aspect: float) -> Backdrop:
    """Return the scene as a read-only picture in 0..255; it is cached for the next chunk."""
    rng = np.random.Generator(np.random.PCG64(scene.seed))
    picture = _PAINTERS[scene.kind](rng, view_of(size, aspect))
    picture.flags.writeable = False
    return picture


def _tinted(rng: np.random.Generator, colour: Shade, spread: Level = 16) -> Shade:
    red, green, blue = (float(channel + rng.uniform(-spread, spread)) for channel in colour)
    return red, green, blue


def _grain(rng: np.random.Generator, view: StageView, *, scale: float, depth: float) -> Field:
    """Return light and dark spots on the ground, smaller further away: 1 ± `depth`."""
    first, second = lattice(rng), lattice(rng)
    coarse = noise(first, view.ground_x * _F(scale), view.ground_z * _F(scale))
    fine = noise(second, view.ground_x * _F(4.3 * scale), view.ground_z * _F(4.3 * scale))
    return (coarse * _F(1.2) + fine * _F(0.8) - _F(1)) * _F(depth) + _F(1)


def _spotted(rng: np.random.Generator, view: StageView, *, scale: float, depth: float) -> Field:
    """Return light and dark spots of one size on an upright surface."""
    first, second = lattice(rng), lattice(rng)
    coarse = noise(first, view.x * _F(scale), view.y * _F(scale))
    fine = noise(second, view.x * _F(3.7 * scale), view.y * _F(3.7 * scale))
    return (coarse * _F(1.2) + fine * _F(0.8) - _F(1)) * _F(depth) + _F(1)


def _sky(rng: np.random.Generator, view: StageView, top: Shade, bottom: Shade, clouds: float) -> Backdrop:
    picture = graded(view, top, bottom, (0.0, 0.45))
    first, second = lattice(rng), lattice(rng)
    shift = _F(rng.uniform(0, 9))
    puff = noise(first, view.x * _F(3) + shift, view.y * _F(8)) + _F(0.5) * noise(
        second, view.x * _F(9), view.y * _F(20)
    )
    cover = np.clip((puff - _F(0.75)) * _F(2.2), _F(0), _F(clouds))
    return mixed(picture, (250.0, 250.0, 252.0), cover)


def _brick_wall(rng: np.random.Generator, view: StageView) -> Backdrop:
    height = float(rng.uniform(0.042, 0.06))
    width = height * float(rng.uniform(2.1, 2.7))
    base = float(rng.uniform(0.60, 0.66))
    down = view.y / _F(height)
    across = view.x / _F(width) + _F(0.5) * (np.floor(down) - _F(2) * np.floor(down * _F(0.5)))
    tone = cells(lattice(rng), across, down)
    brick = filled(view, _tinted(rng, (158, 82, 62), 22)) * (_F(0.82) + _F(0.36) * tone)
    joint = np.minimum(
        (_F(0.5) - np.abs(fraction(across) - _F(0.5))) * _F(width),
        (_F(0.5) - np.abs(fraction(down) - _F(0.5))) * _F(height),
    )
    mortar = float(rng.uniform(150, 205))
    wall = mixed(brick, (mortar, mortar - 4, mortar - 12), _F(1) - view.step(joint - _F(0.0055)))
    wall = wall * _spotted(rng, view, scale=4.0, depth=0.14)
    left = float(rng.uniform(-0.2, 1.0))
    glass = graded(view, (64, 84, 104), (128, 150, 168), (0.05, 0.4))
    wall = mixed(wall, (226.0, 222.0, 212.0), view.box(left - 0.02, 0.06, left + 0.26, 0.36))
    wall = mixed(wall, glass, view.box(left, 0.08, left + 0.24, 0.34))
    wall = mixed(wall, (226.0, 222.0, 212.0), view.box(left + 0.113, 0.08, left + 0.127, 0.34))
    return mixed(
        mixed(wall, (112.0, 106.0, 102.0), view.over(base - 0.022)), _pavement(rng, view), view.over(base)
    )


def _pavement(rng: np.random.Generator, view: StageView) -> Backdrop:
    scale = _F(rng.uniform(1.3, 1.9))
    u, v = view.ground_x * scale + _F(0.3), view.ground_z * scale * _F(0.9)
    tone = cells(lattice(rng), u, v)
    stone = filled(view, _tinted(rng, (146, 143, 140), 12)) * (_F(0.92) + _F(0.12) * tone)
    per_unit = _F(1) / (view.ground_z * (scale / _F(1.2)))  # rows of the picture per unit of u, at each depth
    seam_u = (_F(0.5) - np.abs(fraction(u) - _F(0.5))) * per_unit
    seam_v = (_F(0.5) - np.abs(fraction(v) - _F(0.5))) * per_unit * _F(0.35)
    seam = _F(1) - view.step(np.minimum(seam_u, seam_v) - _F(0.004))
    return mixed(stone, (104.0, 101.0, 100.0), seam * _F(0.75)) * _grain(rng, view, scale=3.0, depth=0.10)


def _meadow(rng: np.random.Generator, view: StageView) -> Backdrop:
    picture = _sky(rng, view, _tinted(rng, (96, 158, 224)), _tinted(rng, (202, 226, 242), 8), 0.9)
    column = view.x[0]
    for level, colour in ((0.33, (128, 164, 150)), (0.37, (92, 140, 92)), (0.42, (66, 112, 60))):
        edge = _F(level) + waves(rng, column, height=0.028, periods=(1.1, 0.47, 0.19))
        edge = edge + waves(rng, column, height=0.008, periods=(0.07, 0.04))
        picture = mixed(picture, _tinted(rng, colour, 10), view.over(edge))
    grass = graded(view, (118, 172, 66), (66, 128, 40), (0.44, 1.0)) * _grain(
        rng, view, scale=2.2, depth=0.24
    )
    blades = noise(lattice(rng), view.ground_x * _F(26), view.ground_z * _F(7))
    grass = grass * (_F(0.86) + _F(0.28) * blades)
    spots = cells(lattice(rng), view.ground_x * _F(9), view.ground_z * _F(9))
    inside = np.abs(fraction(view.ground_x * _F(9)) - _F(0.5)) + np.abs(
        fraction(view.ground_z * _F(9)) - _F(0.5)
    )
    for low, colour in ((0.972, (250.0, 244.0, 236.0)), (0.945, (246.0, 214.0, 70.0))):
        flower = ((spots > _F(low)) & (spots <= _F(low + 0.028)) & (inside < _F(0.24))).astype(np.float32)
        grass = mixed(grass, colour, flower * _F(0.9))
    edge = _F(0.455) + waves(rng, column, height=0.012, periods=(1.4, 0.6))
    return mixed(picture, grass, view.over(edge))


def _dunes(rng: np.random.Generator, view: StageView) -> Backdrop:
    picture = _sky(rng, view, _tinted(rng, (128, 178, 222)), _tinted(rng, (248, 226, 190), 8), 0.25)
    column = view.x[0]
    sand = _tinted(rng, (226, 184, 120), 14)
    sun_x, sun_y = _F(rng.uniform(0.1, 1.2)), _F(rng.uniform(0.06, 0.16))
    glow = (view.x - sun_x) * (view.x - sun_x) + (view.y - sun_y) * (view.y - sun_y)
    picture = mixed(picture, (255.0, 246.0, 214.0), np.clip(_F(0.0042) / (glow + _F(0.0006)), _F(0), _F(1)))
    for number, level in enumerate((0.36, 0.43, 0.52)):
        edge = _F(level) + waves(rng, column, height=0.045 - 0.01 * number, periods=(1.5, 0.7, 0.4))
        light = 0.80 + 0.1 * number
        lit = waves(rng, column, height=0.16, periods=(0.9, 0.5))[None, :] * (
            _F(1) - np.clip((view.y - edge) * _F(5), 0, 1)
        )
        layer = filled(view, (sand[0] * light, sand[1] * light, sand[2] * light)) * (_F(1) + lit)
        picture = mixed(picture, layer, view.over(edge))
    bend = noise(lattice(rng), view.ground_x * _F(1.4), view.ground_z * _F(1.4))
    ripple = np.abs(fraction(view.ground_z * _F(3.2) + bend * _F(2.4)) - _F(0.5)) * _F(2)
    strength = np.clip((view.y - _F(0.5)) * _F(4), _F(0), _F(1)) * _F(0.15)
    grain = (_spotted(rng, view, scale=16.0, depth=0.05) - _F(1)) * view.over(0.42)
    return picture * (_F(1) + (ripple - _F(0.5)) * strength + grain)


def _sea_shore(rng: np.random.Generator, view: StageView) -> Backdrop:
    picture = _sky(rng, view, _tinted(rng, (118, 182, 232)), _tinted(rng, (226, 238, 244), 8), 0.8)
    horizon, shore = 0.33, float(rng.uniform(0.54, 0.60))
    sea = graded(view, _tinted(rng, (24, 92, 148)), _tinted(rng, (72, 176, 186)), (horizon, shore))
    swell = noise(lattice(rng), view.ground_x * _F(0.9), view.ground_z * _F(5))
    chop = noise(lattice(rng), view.x * _F(26), view.ground_z * _F(9))
    sea = sea * (_F(0.84) + _F(0.2) * swell + _F(0.14) * chop)
    crest = np.clip((swell + _F(0.5) * chop - _F(1.06)) * _F(6), _F(0), _F(0.75))
    sea = mixed(sea, (242.0, 248.0, 250.0), crest)
    picture = mixed(picture, sea, view.over(horizon))
    column = view.x[0]
    edge = _F(shore) + waves(rng, column, height=0.018, periods=(0.8, 0.33, 0.15))
    sand = graded(
        view, _tinted(rng, (168, 140, 104), 8), _tinted(rng, (234, 208, 160), 10), (shore, shore + 0.14)
    )
    sand = sand * _grain(rng, view, scale=5.0, depth=0.12)
    foam = view.over(edge - _F(0.022)) * (_F(1) - view.over(edge + _F(0.008)))
    lace = _F(0.55) + _F(0.45) * noise(lattice(rng), view.x * _F(34), view.y * _F(60))
    return mixed(mixed(picture, sand, view.over(edge)), (250.0, 252.0, 252.0), foam * lace)


def _night_street(rng: np.random.Generator, view: StageView) -> Backdrop:
    picture = graded(view, (14, 18, 46), (58, 52, 92), (0.0, 0.5))
    u, v = view.x * _F(48), view.y * _F(48)
    from_star = np.abs(fraction(u) - _F(0.5)) + np.abs(fraction(v) - _F(0.5))
    star = (cells(lattice(rng), u, v) > _F(0.985)) * np.clip(_F(1.2) - _F(4) * from_star, _F(0), _F(0.9))
    picture = mixed(picture, (220.0, 226.0, 250.0), star.astype(np.float32))
    left = -0.4
    while left < 2.3:
        width, top = float(rng.uniform(0.16, 0.34)), float(rng.uniform(0.06, 0.32))
        part = view.columns(left, left + width)
        picture[:, :, part] = _house(
            rng, view.part(slice(None), part), picture[:, :, part], (left, top, width)
        )
        left += width + float(rng.uniform(-0.01, 0.05))
    base = float(rng.uniform(0.58, 0.63))
    walk = filled(view, _tinted(rng, (120, 118, 128), 8)) * _grain(rng, view, scale=3.0, depth=0.16)
    road = filled(view, _tinted(rng, (88, 88, 102), 6)) * _grain(rng, view, scale=7.0, depth=0.22)
    picture = mixed(mixed(picture, walk, view.over(base)), (150.0, 148.0, 152.0), view.over(base + 0.065))
    picture = mixed(picture, road, view.over(base + 0.078))
    dash = (fraction(view.ground_x * _F(0.55) + _F(rng.random())) < _F(0.5)).astype(np.float32)
    picture = mixed(
        picture, (206.0, 198.0, 160.0), dash * view.over(0.945) * (_F(1) - view.over(0.965)) * _F(0.8)
    )
    for number in range(2):
        picture = _lamp(view, picture, float(rng.uniform(0.05, 0.75)) + 0.85 * number, base + 0.05)
    return picture


def _house(
    rng: np.random.Generator, view: StageView, picture: Backdrop, place: tuple[float, float, float]
) -> Backdrop:
    """Paint a dark front with some lit windows."""
    left, top, width = place
    picture = mixed(picture, _tinted(rng, (40, 42, 66), 9), view.box(left, top, left + width, 0.64))
    u, v = (view.x - _F(left)) * _F(22), (view.y - _F(top)) * _F(16)
    inside = view.box(left + 0.02, top + 0.03, left + width - 0.02, 0.52)
    pane = (np.abs(fraction(u) - _F(0.5)) < _F(0.3)) & (np.abs(fraction(v) - _F(0.5)) < _F(0.3))
    lit = cells(lattice(rng), u, v)
    glow = inside * pane * (lit > _F(0.62)) * (_F(0.5) + _F(0.5) * fraction(lit * _F(17)))
    return mixed(picture, (255.0, 212.0, 120.0), glow.astype(np.float32))


def _lamp(view: StageView, picture: Backdrop, x: float, foot: float) -> Backdrop:
    picture = mixed(picture, (36.0, 36.0, 44.0), view.box(x - 0.006, 0.17, x + 0.006, foot))
    apart = (view.x - _F(x)) * (view.x - _F(x)) + (view.y - _F(0.17)) * (view.y - _F(0.17))
    picture = mixed(picture, (255.0, 226.0, 160.0), np.clip(_F(0.0012) / (apart + _F(0.0004)), _F(0), _F(1)))
    pool = (view.x - _F(x)) * (view.x - _F(x)) + _F(7) * (view.y - _F(foot + 0.16)) * (
        view.y - _F(foot + 0.16)
    )
    return picture * (_F(1) + _F(0.3) * np.maximum(_F(1) - pool * _F(7), _F(0)))


def _gym(rng: np.random.Generator, view: StageView) -> Backdrop:
    base = float(rng.uniform(0.50, 0.56))
    wall = graded(view, _tinted(rng, (206, 214, 216), 10), _tinted(rng, (176, 188, 194), 10), (0.0, base))
    stripe = _tinted(rng, (196, 84, 60), 50)
    wall = mixed(wall, stripe, view.box(-9, base - 0.17, 99, base - 0.13))
    seams = _F(0.5) - np.abs(fraction(view.x * _F(2.6) + _F(rng.random())) - _F(0.5))
    wall = wall * (_F(1) - _F(0.14) * (_F(1) - view.step(seams * _F(0.38) - _F(0.004))))
    left = float(rng.uniform(-0.1, 1.1))
    for number in range(4):
        rung = 0.10 + 0.055 * number
        wall = mixed(wall, (186.0, 140.0, 88.0), view.box(left, rung, left + 0.34, rung + 0.014))
    for side in (0.0, 0.17, 0.33):
        wall = mixed(
            wall, (150.0, 106.0, 64.0), view.box(left + side, 0.07, left + side + 0.015, base - 0.02)
        )
    wall = mixed(wall, (112.0, 92.0, 76.0), view.over(base - 0.018))
    plank = view.ground_x * _F(5.5)
    board = cells(lattice(rng), plank, view.ground_z * _F(0.5) + cells(lattice(rng), plank, plank * _F(0)))
    wood = graded(view, _tinted(rng, (186, 136, 84), 12), _tinted(rng, (218, 168, 108), 12), (base, 1.0))
    wood = wood * (_F(0.9) + _F(0.16) * board)
    wood = wood * (_F(0.95) + _F(0.1) * noise(lattice(rng), view.ground_x * _F(30), view.ground_z * _F(1.5)))
    gap = (_F(0.5) - np.abs(fraction(plank) - _F(0.5))) / (view.ground_z * _F(5.5 / 1.2))
    wood = mixed(wood, (122.0, 84.0, 50.0), (_F(1) - view.step(gap - _F(0.0012))) * _F(0.6))
    line = _F(rng.uniform(-0.9, 0.9))
    beside = np.abs(view.ground_x - line - _F(0.15) * view.ground_z) / (view.ground_z * _F(1 / 1.2))
    wood = mixed(wood, (244.0, 242.0, 236.0), (_F(1) - view.step(beside - _F(0.006))) * _F(0.85))
    level = float(rng.uniform(0.64, 0.72))
    wood = mixed(
        wood, (244.0, 242.0, 236.0), view.over(level) * (_F(1) - view.over(level + 0.012)) * _F(0.85)
    )
    return mixed(wall, wood, view.over(base))


def _snow_forest(rng: np.random.Generator, view: StageView) -> Backdrop:
    picture = graded(view, _tinted(rng, (168, 190, 212)), _tinted(rng, (232, 236, 242), 6), (0.0, 0.45))
    column = view.x[0]
    far = _F(0.34) + waves(rng, column, height=0.03, periods=(0.9, 0.4, 0.2))
    picture = mixed(picture, _tinted(rng, (150, 172, 186), 8), view.over(far))
    for distance in range(3):
        tone = _tinted(rng, ((112, 140, 140), (74, 108, 100), (46, 82, 70))[distance], 7)
        x = float(rng.uniform(-0.5, -0.3))
        while x < 2.4:
            x += float(rng.uniform(0.10, 0.22) + 0.03 * distance)
            foot, height = 0.46 + 0.035 * distance, float(rng.uniform(0.2, 0.32)) + 0.05 * distance
            cols = view.columns(x - 0.24 * height, x + 0.24 * height)
            rows = slice(max(int((foot - height) * view.rows) - 1, 0), int(foot * view.rows) + 1)
            piece = _pine(view.part(rows, cols), picture[:, rows, cols], (x, foot, height), tone)
            picture[:, rows, cols] = piece
    snow = graded(view, (226, 232, 242), (246, 248, 252), (0.45, 0.9)) * _grain(
        rng, view, scale=1.1, depth=0.07
    )
    drift = noise(lattice(rng), view.ground_x * _F(0.8), view.ground_z * _F(2.2))
    snow = mixed(snow, (182.0, 200.0, 228.0), np.clip((drift - _F(0.55)) * _F(1.8), _F(0), _F(0.6)))
    sparkle = cells(lattice(rng), view.x * _F(96), view.y * _F(96)) > _F(0.99)
    snow = mixed(snow, (255.0, 255.0, 255.0), sparkle.astype(np.float32) * _F(0.8))
    edge = _F(0.49) + waves(rng, column, height=0.016, periods=(1.0, 0.45, 0.22))
    return mixed(picture, snow, view.over(edge))


def _pine(view: StageView, picture: Backdrop, place: tuple[float, float, float], tone: Shade) -> Backdrop:
    """Paint three tiers of branches, lighter on the left, the top one with snow."""
    x, foot, height = place
    lit = np.clip((_F(x) - view.x) * _F(14 / height) + _F(0.2), _F(0), _F(0.5))
    needles = np.array(tone, dtype=np.float32)[:, None, None] * (_F(0.86) + _F(0.4) * lit)
    for tier in range(3):
        top, bottom = foot - height * (1 - 0.24 * tier), foot - height * (0.52 - 0.22 * tier)
        slope = _F((0.11 + 0.045 * tier) / 0.48)
        down = view.y - _F(top)
        cover = view.step(np.minimum(down * slope - np.abs(view.x - _F(x)), _F(bottom) - view.y))
        snow = lit * view.step(_F(0.03) - down + _F(0.02) * lit)
        picture = mixed(picture, mixed(needles, (236.0, 242.0, 248.0), snow), cover)
    return picture


_PAINTERS: dict[SceneKind, Callable[[np.random.Generator, StageView], Backdrop]] = {
    "brick_wall": _brick_wall,
    "meadow": _meadow,
    "dunes": _dunes,
    "sea_shore": _sea_shore,
    "night_street": _night_street,
    "gym": _gym,
    "snow_forest": _snow_forest,
}
