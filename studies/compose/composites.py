"""Clips of one actor each, side by side: a scene of several actors in real pixels, with a label set for each.

    ┌───────┬─────────┬─────┐   Sources are clips with a single row: one actor, whose labels are all there is to know.
    │ tile 1│  tile 2 │  3  │   Tiles have one height, that of the lowest; each keeps its shape.
    └───────┴─────────┴─────┘   Tiles begin so that their key times fall together: that is the composite's key time.

The composite has the frame rate of its first tile; of the others the frames on screen at those times are shown. It
is as long as every tile goes, before and after the key time: nothing is repeated or held. A row without a box gets
the whole tile, a row without a time the middle of its video.
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
"""Nearer than half of this to an end of its video, a key time leaves too little to show; such clips are not used."""


@dataclass(frozen=True)
class Source:
    """A clip of one actor: its row in the table, and how much there is to show before and after its key time."""

    row: int
    video: VideoOnDisk
    key_time_s: Fraction
    before_s: Fraction
    after_s: Fraction
    group: str
    """What two tiles must not share: the video, or the film, scene or camera it belongs to."""


@dataclass(frozen=True)
class Sources:
    """The clips that can be tiles, and how many cannot, by reason."""

    usable: tuple[Source, ...]
    left_out: Mapping[str, int]


@dataclass(frozen=True)
class Composite:
    """What one composite is made of, from left to right."""

    name: str
    tiles: tuple[Source, ...]

    @property
    def key_time_s(self) -> Fraction:
        """The time at which every tile is at its own key time."""
        return min(tile.before_s for tile in self.tiles)

    @property
    def length_s(self) -> Fraction:
        """As long as every tile goes."""
        return self.key_time_s + min(tile.after_s for tile in self.tiles)

    @property
    def frame_rate(self) -> Fraction:
        """That of the first tile."""
        return self.tiles[0].video.frame_rate

    @property
    def num_frames(self) -> int:
        """Frames that begin and end within the length, at least one."""
        return max(int((self.length_s + SAME_INSTANT_S) * self.frame_rate), 1)

    @property
    def tile_sizes(self) -> tuple[tuple[int, int], ...]:
        """Rows and columns of each tile: even, as video files want them, and none enlarged in height."""
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
    """The clips of a table that can be tiles.

    Args:
        table: the actors.
        videos: those that can be read, by name.
        only: if given, the videos that may be used: one side of a split.
        group_of: if given, the group of each video; tiles then come from different groups.
        max_length_s: how much of a video is shown at most, half of it on either side of the key time.

    Raises:
        RangeError: `only` names a video that the table does not, or a video has no group.
    """
    _require_names(table.videos, only, group_of)
    first, clip = table.clips()
    is_single: Bool[np.ndarray, " rows"] = (np.bincount(clip, minlength=len(first)) == 1)[clip]
    half_s = None if max_length_s is None else exact(max_length_s) / 2
    usable: list[Source] = []
    left_out: dict[str, int] = {}
    for row, name in enumerate(table.video_names):
        if only is not None and name not in only:
            found = "of videos that were not to be used"
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
    """Which clips stand side by side: drawn by the seed, never two of one group, none more often than `max_uses`.

    Args:
        sources: the clips to draw from.
        num_tiles: clips in each composite.
        seed: the same seed and clips give the same composites.
        num_composites: how many; None makes as many as are found.
        max_uses: how many composites a clip may be part of.

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
            f"{num_composites or 'some'} composites of {num_tiles} tiles need as many clips of one actor, of "
            f"different videos or groups, each used at most {max_uses} times; {len(sources)} clips give "
            f"{len(drawn)}. Ask for fewer, or let clips be used more often."
        )
    digits = len(str(len(drawn)))
    return [
        Composite(f"composite-{number:0{digits}d}.mp4", tiles)
        for number, tiles in enumerate(drawn.values(), start=1)
    ]


def composite_table(table: ActorTable, composites: Sequence[Composite]) -> ActorTable:
    """A row for each tile: its box where the tile now is, its own labels, its place from the left as actor_id."""
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
    """Where each tile comes from: composite, tile, and the video, row (from 1) and key time of its clip."""
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
        raise RangeError(
            f"videos to be used must be in the table; {', '.join(map(repr, unknown[:5]))} are not."
        )
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
    """Clips in the order they are to be used, from the last to the first; a group gives one tile to a composite."""

    def __init__(self, sources: list[Source], num_tiles: int) -> None:
        self._sources = sources
        self._num_tiles = num_tiles
        self._sizes = Counter(source.group for source in sources)
        self._largest = max(self._sizes.values(), default=0)

    def most_composites(self) -> int:
        """How many there can be, but for the rule that no two are alike."""
        sizes = np.array(list(self._sizes.values()), dtype=np.int64)
        numbers = range(int(sizes.sum()) // self._num_tiles, 0, -1)
        return next((n for n in numbers if np.minimum(sizes, n).sum() >= n * self._num_tiles), 0)

    def draw(self, num_left: int, drawn: Collection[frozenset[int]]) -> tuple[Source, ...] | None:
        """The next clips that fit together, taken out of the pool; None if there are none."""
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
        """Groups with a clip for each composite that is left, and how many of them the next one must use.

        If more are passed over than there are clips to spare, the last composites would lack groups.
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
