"""Composites as video files: tiles are decoded together, scaled to one height and encoded."""

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import torch
import torch.nn.functional as F
from jaxtyping import UInt8
from torch import Tensor

from mule.core.errors import VideoError
from mule.data.table.table import ActorTable
from mule.data.table.videos import VideoOnDisk
from mule.data.table.writing import write_actor_table
from mule.video.clips import ClipWindow
from mule.video.encode import VideoWriter
from mule.video.reading import read_clips
from mule.video.sources import VideoFile, VideoSource, video_source
from studies.compose.composites import Composite, Source, composite_table, write_sources

_FRAMES_AT_A_TIME = 16


def write_composites(
    table: ActorTable,
    composites: Sequence[Composite],
    folder: Path,
    *,
    on_progress: Callable[[int, int], None] | None = None,
) -> dict[str, str]:
    """Write composites as `videos/`, `labels.csv` and `sources.csv`; return the failed ones with reasons.

    A composite fails if a video ends before its stated end: a repeated last frame would not be real video.

    Raises:
        VideoError: the folder is not empty.
        AnnotationError: a table cannot be written.
    """
    videos = folder / "videos"
    if folder.is_dir() and any(folder.iterdir()):
        raise VideoError(f"{folder}: must be a new or empty folder; it has files in it.")
    try:
        videos.mkdir(parents=True)
    except OSError as error:
        raise VideoError(f"{videos}: the folder cannot be created; {error.strerror}.") from None
    failed: dict[str, str] = {}
    for number, composite in enumerate(composites, start=1):
        try:
            write_composite(composite, videos / composite.name)
        except VideoError as error:
            failed[composite.name] = str(error)
        if on_progress is not None:
            on_progress(number, len(composites))
    made = [composite for composite in composites if composite.name not in failed]
    write_actor_table(composite_table(table, made), folder / "labels.csv")
    write_sources(folder / "sources.csv", table, made)
    return failed


def write_composite(composite: Composite, path: Path) -> None:
    """Write a composite as a video file.

    Raises:
        VideoError: a tile ends too early, or the file cannot be written.
    """
    sizes = composite.tile_sizes
    size = (sizes[0][0], sum(cols for _, cols in sizes))
    tiles = [
        _tile_frames(tile, composite, tile_size)
        for tile, tile_size in zip(composite.tiles, sizes, strict=True)
    ]
    with VideoWriter(path, size, composite.frame_rate) as writer:
        for side_by_side in zip(*tiles, strict=True):
            frames = torch.cat(side_by_side, dim=3)
            writer.write(frames.permute(0, 2, 3, 1).contiguous().numpy())


def _tile_frames(
    tile: Source, composite: Composite, size: tuple[int, int]
) -> Iterator[UInt8[Tensor, "frames channels rows cols"]]:
    """Yield the frames of a tile at the times of the composite, in chunks."""
    begin_s = tile.key_time_s - composite.key_time_s
    times = [begin_s + number / composite.frame_rate for number in range(composite.num_frames)]
    parts = [tuple(times[at : at + _FRAMES_AT_A_TIME]) for at in range(0, len(times), _FRAMES_AT_A_TIME)]
    num_read = 0
    for clip in read_clips(_source(tile.video), [ClipWindow(part[0], part) for part in parts]):
        if clip.num_clamped:
            break
        num_read += 1
        yield F.interpolate(clip.frames, size=size, mode="bilinear", antialias=True)
    if num_read < len(parts):
        raise VideoError(
            f"{tile.video.path}: must last at least {float(times[-1]):g} s to fill its tile; it ends earlier."
        )


def _source(video: VideoOnDisk) -> VideoSource:
    """Return where to read the video; images of a folder are shown at its frame rate."""
    is_folder = video.path.is_dir()
    return video_source(video.path, image_rate=video.frame_rate) if is_folder else VideoFile(video.path)
