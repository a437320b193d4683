"""The last maps of a frozen I3D for every clip of J-HMDB, view by view: kept, resumable, and shared between processes."""

import os
import time
from collections.abc import Callable, Sequence
from fractions import Fraction
from pathlib import Path

import numpy as np
import torch
from jaxtyping import Bool
from torch import Tensor

from mule.data.table.table import ActorTable
from mule.features.weights.card import NORMALISATIONS, Backbone, WeightCard
from mule.features.weights.loading import load_backbone
from mule.runtime.openvino import CLIPS_INPUT, compiled_for_cpu, converted
from mule.video.clips import ClipShape, clip_window, exact
from mule.video.person_crops import CROP_PX, cut_square, person_square
from mule.video.reading import read_clips, video_facts
from mule.video.sources import video_source
from mule.video.transforms import normalised, resized, short_side_size

SHORT_SIDE_PX = 192
CLIP = ClipShape(num_frames=32, stride_frames=1, num_slow_frames=32)
VIEWS = ("frame", "crop", "frame-flip", "crop-flip")
PAIR = "pair"
"""Two clips side by side in one pass; kept under the row on the left."""
TOLD_EVERY = 20


def place(folder: Path, view: str, row: int) -> Path:
    """Return the file of a row's map."""
    return folder / "views" / view / f"{row:04d}.npz"


def extract(
    table: ActorTable,
    videos: Path,
    weights: tuple[Path, WeightCard],
    folder: Path,
    *,
    views: Sequence[str] = VIEWS,
    part: tuple[int, int] = (0, 1),
    noted: Callable[[str], None],
) -> None:
    """Compute the maps that are missing.

    Args:
        table: one actor per row; without a box the whole frame counts.
        videos: their folder.
        weights: of the backbone, and their card.
        folder: where maps are kept; every file that exists is whole.
        views: in this order.
        part: this process takes every n-th row, so that several can share the work.
        noted: told about progress and the time left.
    """
    path, card = weights
    run = LastMap(load_backbone(path, card))
    beside = pairs(table.labels)
    missing = [
        (view, row)
        for view in views
        for row in (sorted(beside) if view == PAIR else range(len(table)))[part[0] :: part[1]]
        if not place(folder, view, row).exists()
    ]
    started_s = time.monotonic()
    for done, (view, row) in enumerate(missing, start=1):
        if view == PAIR:
            frames = torch.cat([seen(table, videos, each, "frame") for each in (row, beside[row])], dim=3)
        else:
            frames = seen(table, videos, row, view)
        pixels = normalised(frames, NORMALISATIONS[card.clip.normalisation])
        maps = run(pixels)
        target = place(folder, view, row)
        target.parent.mkdir(parents=True, exist_ok=True)
        growing = target.with_suffix(f".{os.getpid()}.npz")
        np.savez(growing, map=maps.mean(1).numpy(), times=maps.mean((2, 3)).T.numpy())
        growing.replace(target)
        if done % TOLD_EVERY == 0:
            left_s = (time.monotonic() - started_s) / done * (len(missing) - done)
            noted(f"{view} {row}: {done} of {len(missing)} passes, about {left_s / 60:.0f} min left")


class LastMap:
    """The last map of a backbone in bfloat16, compiled once for each size of clip: maps differ from float32 by a cosine of 1e-4."""

    def __init__(self, backbone: Backbone) -> None:
        self._backbone, self._by_size = backbone, {}

    def __call__(self, pixels: Tensor) -> Tensor:
        """Return the map of one clip."""
        frames, rows, cols = pixels.shape[1:]
        if (frames, rows, cols) not in self._by_size:
            graph = converted(self._backbone, (frames, rows, cols)).graph
            self._by_size[frames, rows, cols] = compiled_for_cpu(graph, None, precision="bf16")
        run = self._by_size[frames, rows, cols]
        return torch.from_numpy(run({CLIPS_INPUT: pixels[None].contiguous().numpy()})[run.outputs[-1]][0])


def pairs(labels: Bool[np.ndarray, "rows actions"], *, seed: int = 0) -> dict[int, int]:
    """Return the row on the right of each row on the left: of another action, so of another film; every row is in one pair."""
    draw, action = np.random.default_rng(seed), labels.argmax(axis=1)
    order = draw.permutation(len(action))[: len(action) // 2 * 2]
    while (alike := np.flatnonzero(action[order[::2]] == action[order[1::2]])).size:
        for at in alike:
            other = draw.integers(len(order))
            order[2 * at], order[other] = order[other], order[2 * at]
    return dict(zip(order[::2].tolist(), order[1::2].tolist(), strict=True))


def seen(table: ActorTable, videos: Path, row: int, view: str) -> Tensor:
    """Return the frames that a view shows of a row."""
    source = video_source(videos / table.videos[table.video_index[row]])
    rate = video_facts(source).frame_rate or Fraction(30)
    (clip,) = read_clips(source, [clip_window(exact(float(table.time_s[row])), CLIP, rate)])
    frames = clip.frames
    rows, cols = frames.shape[2:]
    if view.startswith("frame"):
        shown = resized(frames, short_side_size(rows, cols, SHORT_SIDE_PX))
    else:
        unit = table.boxes_xyxy_unit[row] if table.has_box[row] else np.array([0.0, 0.0, 1.0, 1.0])
        box = torch.from_numpy(unit * np.array([cols, rows, cols, rows])).float()
        shown = cut_square(frames, person_square(box, rows, cols), CROP_PX)
    return shown.flip(3) if view.endswith("-flip") else shown
