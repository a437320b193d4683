"""Contact sheets: every action as a row of frames, every scene as a row of instances; and pictures as PNG files."""

import struct
import zlib
from dataclasses import replace
from pathlib import Path

import numpy as np
from jaxtyping import UInt8

from mule.core.errors import VideoError
from mule.core.files import growing_file
from mule.stage.benchmark import ASPECT, NUM_FRAMES
from mule.stage.casting import draw_actor, draw_heading, generator, pair_distance, passing
from mule.stage.classes import ACTIONS, SCENES
from mule.stage.plans import FRAME_RATE, ActorPlan, Plan, ScenePlan
from mule.stage.rendering import render
from mule.stage.scenes import background

Image = UInt8[np.ndarray, "rows cols 3"]


def action_plan(action: str, seed: int = 0) -> Plan:
    """One action, done by one actor (or two, if it takes two) where it is at home."""
    rng = generator("sheet", action, seed)
    seconds = NUM_FRAMES / FRAME_RATE
    is_pair = ACTIONS[action].group == "pair"
    actors: list[ActorPlan] = []
    for number in range(2 if is_pair else 1):
        actor = replace(draw_actor(rng, number), lane=0.86)
        heading = draw_heading(rng, looks_left=number == 1, has_partner=is_pair)
        half = pair_distance((action,), actor.lane) / 2 if is_pair else 0.0
        place = ASPECT / 2 + (half if number else -half)
        part = passing(actor, (action,), middle_x=place, heading_deg=heading, duration_s=seconds)
        actors.append(replace(actor, segments=(replace(part, partner=1 - number if is_pair else None),)))
    scene = ScenePlan(ACTIONS[action].home, seed)
    return Plan(NUM_FRAMES, ASPECT, scene, tuple(actors), (), gain=1.0, noise=2.0, noise_seed=seed)


def action_sheet(rows: int = 96, *, seed: int = 0, num_columns: int = 8) -> Image:
    """A row for each of the 21 actions, in the order of ACTIONS; time runs to the right."""
    size = (rows, round(rows * ASPECT))
    strips = []
    for action in ACTIONS:
        frames = render(action_plan(action, seed), size).frames
        picked = frames[np.arange(num_columns) * len(frames) // num_columns]
        strips.append(np.concatenate(list(picked), axis=1))
    return np.concatenate(strips, axis=0)


def scene_sheet(rows: int = 96, *, num_columns: int = 8) -> Image:
    """A row of instances for each of the seven scenes, without actors."""
    size = (rows, round(rows * ASPECT))
    strips = []
    for kind in SCENES:
        pictures = [background(ScenePlan(kind, seed), size, ASPECT) for seed in range(num_columns)]
        strips.append(np.concatenate([np.clip(picture, 0, 255) for picture in pictures], axis=2))
    return np.concatenate(strips, axis=1).astype(np.uint8).transpose(1, 2, 0)


def write_png(path: Path, image: Image) -> None:
    """The image as a PNG file; it appears whole.

    Raises:
        VideoError: the file cannot be written.
    """
    rows, cols, _ = image.shape
    lines = np.concatenate([np.zeros((rows, 1), dtype=np.uint8), image.reshape(rows, 3 * cols)], axis=1)
    header = struct.pack(">IIBBBBB", cols, rows, 8, 2, 0, 0, 0)
    chunks = ((b"IHDR", header), (b"IDAT", zlib.compress(lines.tobytes(), 6)), (b"IEND", b""))
    body = b"".join(
        struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
        for kind, data in chunks
    )
    try:
        with growing_file(path) as growing:
            growing.write_bytes(b"\x89PNG\r\n\x1a\n" + body)
    except OSError as error:
        raise VideoError(f"{path}: a picture must be written; {error.strerror or error}.") from error
