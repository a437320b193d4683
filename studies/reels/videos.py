"""Reels as video files: stills, sways and acts of clips, panel beside panel."""

from collections.abc import Callable, Sequence
from functools import lru_cache
from pathlib import Path

import numpy as np
import torch
from jaxtyping import UInt8

from mule.core.errors import VideoError
from mule.data.table.videos import VideoOnDisk
from mule.video.clips import ClipWindow
from mule.video.encode import VideoWriter
from mule.video.reading import read_clips
from mule.video.transforms import resized
from studies.compose.composites import Source
from studies.reels.plans import (
    RATE,
    SIZE,
    ReelPlan,
    Visit,
    clip_frame_of,
    num_act_frames,
    placed_in_panel,
    shift_of,
)

GREY = 96
Image = UInt8[np.ndarray, "rows cols 3"]


def write_reels(
    reels: Sequence[ReelPlan], folder: Path, *, on_progress: Callable[[int, int], None] | None = None
) -> None:
    """Write reels into a folder that exists.

    Raises:
        VideoError: a clip ends before its stated end.
    """
    for number, reel in enumerate(reels, start=1):
        write_reel(reel, folder / reel.name)
        if on_progress is not None:
            on_progress(number, len(reels))


def write_reel(reel: ReelPlan, path: Path) -> None:
    """Write one reel. Where nobody is, a panel is grey."""
    size = (SIZE[0], SIZE[1] * len(reel.panels))
    clips = lru_cache(maxsize=2 * len(reel.panels))(_frames_of)
    with VideoWriter(path, size, RATE) as writer:
        for frame in range(reel.num_frames):
            panels = [_panel_at(visits, frame, clips) for visits in reel.panels]
            writer.write(np.concatenate(panels, axis=1)[None])


def _panel_at(visits: Sequence[Visit], frame: int, clips: Callable[[Source], list[Image]]) -> Image:
    panel = np.full((*SIZE, 3), GREY, dtype=np.uint8)
    for visit in visits:
        if visit.begin <= frame < visit.end:
            part, number = visit.at(frame)
            pictures = clips(visit.source)
            picture = pictures[clip_frame_of(part, number, len(pictures))]
            left = round(shift_of(part, number) * SIZE[1])
            panel[:, left:] = picture[:, : SIZE[1] - left]
    return panel


def _frames_of(source: Source) -> list[Image]:
    """Return the frames of a clip at the rate of the reel, each fitted into a panel."""
    begin_s = source.key_time_s - source.before_s
    times = tuple(begin_s + number / RATE for number in range(num_act_frames(source)))
    clip = next(iter(read_clips(source.video.source, [ClipWindow(times[0], times)])), None)
    if clip is None or clip.num_clamped:
        raise VideoError(
            f"{source.video.path}: must last {float(times[-1]):g} s, as it states; it ends earlier."
        )
    return [_fitted(image, source.video) for image in clip.frames]


def _fitted(image: torch.Tensor, video: VideoOnDisk) -> Image:
    top, left, height, width = placed_in_panel(video.rows, video.cols)
    panel = np.full((*SIZE, 3), GREY, dtype=np.uint8)
    scaled = resized(image[None], (height, width))[0].permute(1, 2, 0).numpy()
    panel[top : top + height, left : left + width] = scaled
    return panel
