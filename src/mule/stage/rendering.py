"""Render a plan to frames, boxes, objects and labels, at any size, in chunks of bounded memory."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from jaxtyping import Bool, Float, UInt8

from mule.stage.classes import Size, check_size
from mule.stage.figure import box_around
from mule.stage.performance import Performance, Performer, Thing, perform
from mule.stage.plans import FRAME_RATE, Plan, on_grid
from mule.stage.scenes import background
from mule.stage.shapes import Canvas, paint, paint_shadow

_CHUNK_PIXELS = 8_000_000
_NOISE_LENGTH = 1 << 20
_NOISE_STRIDE = 337_639  # neighbouring frames take noise from distant places of the table


@dataclass(frozen=True)
class StageClip:
    """Frames with their ground truth. Boxes are x1, y1, x2, y2 in 0..1, within the picture."""

    plan: Plan
    first_frame: int
    frames: UInt8[np.ndarray, "frames rows cols 3"]
    track_ids: tuple[int, ...]
    """Number of each actor, the same in every frame."""
    actor_boxes_xyxy_unit: Float[np.ndarray, "frames actors 4"]
    visibility: Float[np.ndarray, "frames actors"]
    """Visible share of the actor: inside the picture and not covered; 0 if absent."""
    object_classes: tuple[str, ...]
    object_boxes_xyxy_unit: Float[np.ndarray, "frames objects 4"]
    object_is_there: Bool[np.ndarray, "frames objects"]

    @property
    def times_s(self) -> Float[np.ndarray, " frames"]:
        """Time of each frame."""
        return (self.first_frame + np.arange(len(self.frames))) / FRAME_RATE

    def labels(self, frame: int) -> tuple[tuple[str, ...], ...]:
        """Return the actions of each actor at a frame of this clip; empty for an absent actor."""
        labels = self.plan.labels_at((self.first_frame + frame) / FRAME_RATE)
        return tuple(labels.get(actor_id, ()) for actor_id in self.track_ids)


def render(plan: Plan, size: Size = (96, 128)) -> StageClip:
    """Render the whole plan at once; for long takes at large sizes use `render_chunks`."""
    return _render(plan, size, 0, plan.num_frames)


def render_chunks(plan: Plan, size: Size = (96, 128)) -> Iterator[StageClip]:
    """Render the plan piece by piece, with bounded memory; the frames are the same as with `render`."""
    per_chunk = max(1, min(64, _CHUNK_PIXELS // (size[0] * size[1])))
    for first in range(0, plan.num_frames, per_chunk):
        yield _render(plan, size, first, min(per_chunk, plan.num_frames - first))


def _render(plan: Plan, size: Size, first_frame: int, num_frames: int) -> StageClip:
    check_size(size)
    performance = perform(plan, first_frame, num_frames)
    scene = background(plan.scene, size, plan.aspect)
    canvas = Canvas(
        colours=np.repeat(scene[None], num_frames, axis=0),
        owners=np.zeros((num_frames, *size), dtype=np.uint8),
        aspect=plan.aspect,
    )
    _paint_shadows(canvas, performance, plan.scene.shadow)
    drawn_px = _paint_all(canvas, performance)
    boxes, inside = _boxes(((actor.box, actor.is_there) for actor in performance.performers), canvas)
    seen_px = _owned(canvas, len(plan.actors))
    things = performance.things
    object_boxes, object_share = _boxes(
        ((box_around(thing.shapes), thing.is_there) for thing in things), canvas
    )
    return StageClip(
        plan=plan,
        first_frame=first_frame,
        frames=_sensor(canvas, plan, first_frame),
        track_ids=tuple(actor.actor_id for actor in plan.actors),
        actor_boxes_xyxy_unit=boxes,
        visibility=inside * seen_px / np.maximum(drawn_px, 1),
        object_classes=tuple(thing.kind for thing in things),
        object_boxes_xyxy_unit=object_boxes,
        object_is_there=object_share > 0,
    )


def _stacked(columns: list[np.ndarray], empty: tuple[int, ...]) -> np.ndarray:
    return np.stack(columns, axis=1) if columns else np.zeros(empty)


def _paint_shadows(canvas: Canvas, performance: Performance, strength: float) -> None:
    if strength <= 0:
        return
    for performer in performance.performers:
        feet = performer.body.ankles.mean(axis=1)
        lift = np.maximum(performer.body.ankles[:, :, 2].min(axis=1) - 0.04, 0.0)
        feet = np.stack([feet[:, 0], feet[:, 1], 0 * lift], axis=1)
        width = performer.stand.height * (0.17 - 0.3 * np.minimum(lift, 0.2)) * performer.is_there
        paint_shadow(
            canvas, performer.stand.seen(feet), on_grid(np.stack([width, 0.27 * width], axis=1)), strength
        )
    for thing in performance.things:
        if not thing.is_there.any():
            continue
        height = np.maximum(thing.ground[:, 1] - thing.middle[:, 1] - thing.radius, 0.0)
        width = 1.25 * thing.radius * np.maximum(1.0 - 1.5 * height, 0.3)
        paint_shadow(canvas, thing.ground, on_grid(np.stack([width, 0.3 * width], axis=1)), strength)


def _paint_all(canvas: Canvas, performance: Performance) -> Float[np.ndarray, "frames actors"]:
    """Draw from back to front; return the pixels of each actor before nearer ones cover them."""
    performers = performance.performers
    drawn = np.zeros((len(canvas.owners), len(performers)))
    nobody = len(performers) + 1
    queue: list[tuple[float, int, Performer | Thing]] = [
        (performer.plan.lane, number, performer) for number, performer in enumerate(performers)
    ]
    queue += [(float(prop.ground[0, 1]), -1, prop) for prop in performance.props]
    for _, number, item in sorted(queue, key=lambda entry: entry[:2]):
        if isinstance(item, Thing):
            _paint_thing(canvas, item, nobody)
            continue
        _paint_performer(canvas, item, number + 1, nobody)
        drawn[:, number] = (canvas.owners == number + 1).sum(axis=(1, 2))
    return drawn


def _paint_performer(canvas: Canvas, performer: Performer, owner: int, nobody: int) -> None:
    only = None if performer.is_there.all() else performer.is_there
    for shapes, is_behind in ((performer.figure.behind, True), (performer.figure.before, False)):
        for shape in shapes:
            paint(canvas, shape, owner, only=only)
        for thing in performer.things:
            if thing.is_behind_arms == is_behind:
                _paint_thing(canvas, thing, nobody)


def _paint_thing(canvas: Canvas, thing: Thing, owner: int) -> None:
    if not thing.is_there.any():
        return
    for shape in thing.shapes:
        paint(canvas, shape, owner)


def _owned(canvas: Canvas, num_actors: int) -> Float[np.ndarray, "frames actors"]:
    columns = [(canvas.owners == number + 1).sum(axis=(1, 2)) for number in range(num_actors)]
    return _stacked([column.astype(float) for column in columns], (len(canvas.owners), 0))


def _boxes(
    boxes: Iterable[tuple[Float[np.ndarray, "frames 4"], Bool[np.ndarray, " frames"]]], canvas: Canvas
) -> tuple[Float[np.ndarray, "frames items 4"], Float[np.ndarray, "frames items"]]:
    """Return boxes clipped to the picture, and the remaining share of each; each box comes with when it is there."""
    clipped = [_unit_box(box, is_there, canvas) for box, is_there in boxes]
    num_frames = len(canvas.owners)
    held, shares = [box for box, _ in clipped], [share for _, share in clipped]
    return _stacked(held, (num_frames, 0, 4)), _stacked(shares, (num_frames, 0))


def _unit_box(
    box: Float[np.ndarray, "frames 4"], is_there: Bool[np.ndarray, " frames"], canvas: Canvas
) -> tuple[Float[np.ndarray, "frames 4"], Float[np.ndarray, " frames"]]:
    """Clip a box to the picture; return it and its remaining share, or zeros if the object is absent."""
    rows, cols = canvas.size
    width = cols / rows
    left = (canvas.aspect - width) / 2
    box = np.where(is_there[:, None], box, 0.0)
    whole = (box - [left, 0, left, 0]) / [width, 1, width, 1]
    held = np.clip(whole, 0.0, 1.0)
    area = (held[:, 2] - held[:, 0]) * (held[:, 3] - held[:, 1])
    whole_area = (whole[:, 2] - whole[:, 0]) * (whole[:, 3] - whole[:, 1])
    share = np.where(is_there, area / np.maximum(whole_area, 1e-12), 0.0)
    return held * is_there[:, None], share


@lru_cache(maxsize=1)
def _noise_table() -> Float[np.ndarray, " values"]:
    """Return noise of standard deviation 1: sums of four uniform numbers, the same on every machine."""
    rng = np.random.Generator(np.random.PCG64(20_240))
    table = rng.integers(-128, 128, size=(4, _NOISE_LENGTH), dtype=np.int16).sum(axis=0)
    return (table + np.int16(2)).astype(np.float32) * np.float32(1 / 147.8)


def _sensor(canvas: Canvas, plan: Plan, first_frame: int) -> UInt8[np.ndarray, "frames rows cols 3"]:
    """Apply gain, noise and rounding to eight bits. A frame's noise does not depend on its chunk."""
    num_frames, _, rows, cols = canvas.colours.shape
    frames = np.empty((num_frames, rows, cols, 3), dtype=np.uint8)
    for number, picture in enumerate(canvas.colours):
        picture *= np.float32(plan.gain)
        picture += np.float32(0.5)
        if plan.noise > 0:
            start = (plan.noise_seed + (first_frame + number) * _NOISE_STRIDE) % _NOISE_LENGTH
            picture += _noise(picture.size, start).reshape(picture.shape) * np.float32(plan.noise)
        np.maximum(picture, np.float32(0), out=picture)
        np.minimum(picture, np.float32(255), out=picture)
        recorded = picture.astype(np.uint8)
        for channel in range(3):
            frames[number, :, :, channel] = recorded[channel]
    return frames


def _noise(length: int, start: int) -> Float[np.ndarray, " values"]:
    """Return `length` values of the table from `start` on, wrapping around."""
    table = _noise_table()
    if start + length <= len(table):
        return table[start : start + length]
    if length <= len(table):
        return np.concatenate([table[start:], table[: start + length - len(table)]])
    return np.resize(np.concatenate([table[start:], table[:start]]), length)
