"""Clips of one actor side by side: a scene of several actors in real pixels, each with their own labels.

    ┌───────┬─────────┬─────┐   Sources are clips with a single row: one actor with all of its labels.
    │ tile 1│  tile 2 │  3  │   All tiles get the height of the lowest; each keeps its shape.
    └───────┴─────────┴─────┘   Tiles are aligned at their key times: the key time of the composite.

The composite plays at the frame rate of its first tile; other tiles show the frame on screen at each of these
times. It lasts as long as every tile does, before and after the key time: no frame is repeated or held. A row
without a box gets the whole tile, a row without a time the middle of its video.
"""

import csv
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path

import numpy as np
from jaxtyping import Bool, Float, Int

from mule.core.errors import RangeError
from mule.core.files import write_file
from mule.data.table.table import ActorTable
from mule.data.table.videos import VideoOnDisk
from mule.video.clips import SAME_INSTANT_S, exact

LEAST_LENGTH_S = Fraction(1, 2)
"""Clips whose key time is closer than half of this to an end of the video are not used."""


@dataclass(frozen=True)
class Source:
    """A clip of one actor: its row in the table, and the time before and after its key time."""

    row: int
    video: VideoOnDisk
    key_time_s: Fraction
    before_s: Fraction
    after_s: Fraction
    group: str
    """What two tiles must not share: the video, or its film, scene or camera."""


@dataclass(frozen=True)
class Sources:
    """The clips that can be tiles, and the number that cannot, by reason."""

    usable: tuple[Source, ...]
    left_out: Mapping[str, int]


@dataclass(frozen=True)
class Composite:
    """The tiles of a composite, from left to right."""

    name: str
    tiles: tuple[Source, ...]

    @property
    def key_time_s(self) -> Fraction:
        """The time when every tile is at its own key time."""
        return min(tile.before_s for tile in self.tiles)

    @property
    def length_s(self) -> Fraction:
        """The time that all tiles last."""
        return self.key_time_s + min(tile.after_s for tile in self.tiles)

    @property
    def frame_rate(self) -> Fraction:
        """The frame rate of the first tile."""
        return self.tiles[0].video.frame_rate

    @property
    def num_frames(self) -> int:
        """The number of frames within the length, at least one."""
        return max(int((self.length_s + SAME_INSTANT_S) * self.frame_rate), 1)

    @property
    def tile_sizes(self) -> tuple[tuple[int, int], ...]:
        """Rows and columns of each tile: even numbers, as video files need; no tile gets taller."""
        rows = max(min(tile.video.rows for tile in self.tiles) // 2 * 2, 2)
        shapes = [Fraction(tile.video.cols, tile.video.rows) for tile in self.tiles]
        return tuple((rows, max(round(rows * shape / 2) * 2, 2)) for shape in shapes)


def sources_of(
    table: ActorTable,
    videos: Mapping[str, VideoOnDisk],
    *,
    only: Collection[str] | None = None,
    group_of: Mapping[str, str] | None = None,
    max_length_s: float | None = None,
) -> Sources:
    """Return the clips of a table that can be tiles.

    Args:
        table: the actors.
        videos: the readable videos by name.
        only: use only these videos, such as one side of a split.
        group_of: the group of each video; tiles of a composite come from different groups.
        max_length_s: show at most this much of a video, half of it on either side of the key time.

    Raises:
        RangeError: `only` names a video that is not in the table, or a video has no group.
    """
    _require_names(table.videos, only, group_of)
    first, clip = table.clips()
    is_single: Bool[np.ndarray, " rows"] = (np.bincount(clip, minlength=len(first)) == 1)[clip]
    half_s = None if max_length_s is None else exact(max_length_s) / 2
    usable: list[Source] = []
    left_out: dict[str, int] = {}
    for row, name in enumerate(table.video_names):
        if only is not None and name not in only:
            found = "of videos that are not in --only"
        elif not is_single[row]:
            found = "of several actors"
        else:
            found = _source(
                table, row, videos.get(name), group=(group_of or {}).get(name, name), half_s=half_s
            )
        if isinstance(found, Source):
            usable.append(found)
        else:
            left_out[found] = left_out.get(found, 0) + 1
    return Sources(tuple(usable), left_out)


def draw_composites(
    sources: Sequence[Source],
    *,
    num_tiles: int,
    seed: int,
    num_composites: int | None = None,
    max_uses: int = 1,
) -> list[Composite]:
    """Draw the clips of each composite: never two of one group, and each at most `max_uses` times.

    Args:
        sources: the clips to draw from.
        num_tiles: clips per composite.
        seed: the same seed and clips give the same composites.
        num_composites: the number of composites; None makes as many as possible.
        max_uses: use a clip in at most this many composites.

    Raises:
        RangeError: there are not enough clips.
    """
    generator = np.random.default_rng(seed)
    shuffled = generator.permutation(np.repeat(np.arange(len(sources)), max_uses)).tolist()
    pool = _Pool([sources[i] for i in shuffled], num_tiles)
    most = pool.most_composites()
    goal = most if num_composites is None else min(num_composites, most)
    drawn: dict[frozenset[int], tuple[Source, ...]] = {}
    while len(drawn) < goal and (tiles := pool.draw(goal - len(drawn), drawn)):
        drawn[frozenset(tile.row for tile in tiles)] = tiles
    if not drawn or (num_composites is not None and len(drawn) < num_composites):
        raise RangeError(
            f"{num_composites or 'some'} composites of {num_tiles} tiles need enough clips of one actor from "
            f"different videos or groups, each used at most {max_uses} times; {len(sources)} clips give "
            f"{len(drawn)}. Ask for fewer composites, or use clips more often (--uses)."
        )
    digits = len(str(len(drawn)))
    return [
        Composite(f"composite-{number:0{digits}d}.mp4", tiles)
        for number, tiles in enumerate(drawn.values(), start=1)
    ]


def composite_table(table: ActorTable, composites: Sequence[Composite]) -> ActorTable:
    """Return a row per tile: its box in the composite, its labels, its place from the left as actor_id."""
    rows = [tile.row for composite in composites for tile in composite.tiles]
    per_composite = [len(composite.tiles) for composite in composites]
    boxes = [_moved_boxes(table, composite) for composite in composites]
    return ActorTable(
        tuple(composite.name for composite in composites),
        table.classes,
        np.repeat(np.arange(len(composites)), per_composite),
        np.repeat([float(composite.key_time_s) for composite in composites], per_composite),
        np.concatenate(boxes) if boxes else np.zeros((0, 4)),
        table.labels[np.array(rows, dtype=np.int64)],
        tuple(str(place) for number in per_composite for place in range(1, number + 1)),
    )


def write_sources(path: Path, table: ActorTable, composites: Sequence[Composite]) -> None:
    """Write the source of each tile: composite, tile, and video, row (from 1) and key time of its clip."""
    write_file(path, lambda unfinished: _write_sources(unfinished, table, composites))


def _write_sources(path: Path, table: ActorTable, composites: Sequence[Composite]) -> None:
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(
            ("composite", "tile", "source_video", "source_row", "source_time_s", "source_actor_id")
        )
        for composite in composites:
            for place, tile in enumerate(composite.tiles, start=1):
                source = (tile.video.name, tile.row + 1, float(tile.key_time_s), table.actor_id[tile.row])
                writer.writerow((composite.name, place, *source))


def _require_names(
    videos: tuple[str, ...], only: Collection[str] | None, group_of: Mapping[str, str] | None
) -> None:
    unknown = sorted(set(only or ()) - set(videos))
    if unknown:
        raise RangeError(f"videos to use must be in the table; {', '.join(map(repr, unknown[:5]))} are not.")
    without = [] if group_of is None else [video for video in videos if video not in group_of]
    if without:
        raise RangeError(f"every video must have a group; {', '.join(map(repr, without[:5]))} have none.")


def _source(
    table: ActorTable, row: int, video: VideoOnDisk | None, *, group: str, half_s: Fraction | None
) -> Source | str:
    if video is None:
        return "of videos that are missing or cannot be read"
    if video.length_s is None:
        return "of videos that do not state their length"
    length_s = exact(video.length_s)
    key_time_s = exact(float(table.time_s[row])) if table.has_time[row] else length_s / 2
    before_s, after_s = key_time_s, length_s - key_time_s
    if min(before_s, after_s) < LEAST_LENGTH_S / 2:
        return f"with a key time within {float(LEAST_LENGTH_S) / 2:g} s of an end"
    if half_s is not None:
        before_s, after_s = min(before_s, half_s), min(after_s, half_s)
    return Source(row, video, key_time_s, before_s, after_s, group)


class _Pool:
    """Clips in the order of use, from last to first; a group gives a composite at most one tile."""

    def __init__(self, sources: list[Source], num_tiles: int) -> None:
        self._sources = sources
        self._num_tiles = num_tiles
        self._sizes = Counter(source.group for source in sources)
        self._largest = max(self._sizes.values(), default=0)

    def most_composites(self) -> int:
        """Return the largest possible number, before identical composites are excluded."""
        sizes = np.array(list(self._sizes.values()), dtype=np.int64)
        numbers = range(int(sizes.sum()) // self._num_tiles, 0, -1)
        return next((n for n in numbers if np.minimum(sizes, n).sum() >= n * self._num_tiles), 0)

    def draw(self, num_left: int, drawn: Collection[frozenset[int]]) -> tuple[Source, ...] | None:
        """Take the next clips that fit together out of the pool; None if there are none."""
        full, num_full = self._groups_to_use(num_left)
        num_any = self._num_tiles - num_full
        chosen: dict[str, int] = {}
        for at in range(len(self._sources) - 1, -1, -1):
            group = self._sources[at].group
            is_needed = group in full and num_full > 0
            if group in chosen or not (is_needed or num_any) or self._is_alike(chosen, at, drawn):
                continue
            chosen[group] = at
            num_full, num_any = (num_full - 1, num_any) if is_needed else (num_full, num_any - 1)
            if len(chosen) == self._num_tiles:
                self._sizes.subtract(chosen.keys())
                return tuple(self._sources.pop(at) for at in chosen.values())
        return None

    def _groups_to_use(self, num_left: int) -> tuple[set[str], int]:
        """Return groups with a clip for every remaining composite, and how many the next one must use.

        Skipping more groups than there are spare clips would leave the last composites without enough groups.
        """
        if num_left > self._largest:
            return set(), 0
        full = {group for group, size in self._sizes.items() if size >= num_left}
        num_usable = sum(min(size, num_left) for size in self._sizes.values())
        return full, max(len(full) - (num_usable - self._num_tiles * num_left), 0)

    def _is_alike(self, chosen: Mapping[str, int], at: int, drawn: Collection[frozenset[int]]) -> bool:
        if len(chosen) < self._num_tiles - 1:
            return False
        return frozenset(self._sources[i].row for i in (*chosen.values(), at)) in drawn


def _moved_boxes(table: ActorTable, composite: Composite) -> Float[np.ndarray, "tiles 4"]:
    rows: Int[np.ndarray, " tiles"] = np.array([tile.row for tile in composite.tiles])
    boxes = np.where(table.has_box[rows, None], table.boxes_xyxy_unit[rows], [0.0, 0.0, 1.0, 1.0])
    widths = np.array([cols for _, cols in composite.tile_sizes])
    left = np.cumsum(widths) - widths
    moved = boxes.copy()
    moved[:, ::2] = (left[:, None] + boxes[:, ::2] * widths[:, None]) / widths.sum()
    return moved
