"""Small pictures of the most novel actors, kept while watching in bounded memory."""

import struct
import zlib
from dataclasses import dataclass

import numpy as np
from jaxtyping import UInt8

from mule.core.errors import RangeError
from mule.watching.moments import Box, Moment, Threshold, novelty_of

Image = UInt8[np.ndarray, "rows cols 3"]

MOST_PER_ACTOR = 3
MARGIN = 0.15
TALLEST_PX = 200


@dataclass(frozen=True)
class Thumbnail:
    """An actor cut out of a key frame."""

    key_time_s: float
    track_id: int
    novelty: float
    png: bytes


class NovelThumbnails:
    """The most novel looks at actors so far: a few per actor, some time apart, most novel first."""

    def __init__(self, threshold: Threshold, *, most: int = 12, apart_s: float = 3.0) -> None:
        if most < 1 or apart_s < 0:
            raise RangeError(
                f"most must be at least 1 and apart_s not below 0; got {most} and {apart_s}. Twelve is a good start."
            )
        self._threshold = threshold
        self._most = most
        self._apart_s = apart_s
        self._kept: list[Thumbnail] = []

    @property
    def kept(self) -> tuple[Thumbnail, ...]:
        """Most novel first; of equally novel ones the earlier first."""
        return tuple(self._kept)

    def add(self, moment: Moment, key_frame: Image) -> None:
        """Looks at every actor of a moment; only those that are kept are cut out."""
        for actor in moment.actors:
            novelty = novelty_of(actor, self._threshold)
            close = [
                each
                for each in self._kept
                if each.track_id == actor.track_id
                and moment.key_time_s - each.key_time_s < self._apart_s
                and each.novelty < novelty
            ]
            rest = [each for each in self._kept if each not in close]
            if self._has_room(rest, moment.key_time_s, actor.track_id, novelty):
                png = png_bytes(cut_out(key_frame, actor.box_xyxy_unit))
                found = Thumbnail(moment.key_time_s, actor.track_id, novelty, png)
                self._kept = self._best([*rest, found])

    def _has_room(self, kept: list[Thumbnail], time_s: float, track_id: int, novelty: float) -> bool:
        same = [each for each in kept if each.track_id == track_id]
        if any(time_s - each.key_time_s < self._apart_s for each in same):
            return False
        if len(same) >= MOST_PER_ACTOR and novelty <= min(each.novelty for each in same):
            return False
        return len(kept) < self._most or novelty > min(each.novelty for each in kept)

    def _best(self, thumbnails: list[Thumbnail]) -> list[Thumbnail]:
        best: list[Thumbnail] = []
        for each in sorted(thumbnails, key=lambda each: (-each.novelty, each.key_time_s, each.track_id)):
            if sum(other.track_id == each.track_id for other in best) < MOST_PER_ACTOR:
                best.append(each)
        return best[: self._most]


def cut_out(image: Image, box_xyxy_unit: Box) -> UInt8[np.ndarray, "cut_rows cut_cols 3"]:
    """The part of an image around a box, with a margin, made smaller by a whole number where it is tall."""
    rows, cols = image.shape[:2]
    x1, y1, x2, y2 = box_xyxy_unit
    wide, high = MARGIN * (x2 - x1), MARGIN * (y2 - y1)
    left, right = max(int((x1 - wide) * cols), 0), min(int(np.ceil((x2 + wide) * cols)), cols)
    top, bottom = max(int((y1 - high) * rows), 0), min(int(np.ceil((y2 + high) * rows)), rows)
    part = image[top:bottom, left:right]
    step = min(-(-part.shape[0] // TALLEST_PX), part.shape[1])
    kept_rows, kept_cols = part.shape[0] // step, part.shape[1] // step
    blocks = part[: kept_rows * step, : kept_cols * step].reshape(kept_rows, step, kept_cols, step, 3)
    return (blocks.mean(axis=(1, 3)) + 0.5).astype(np.uint8)


def png_bytes(image: Image) -> bytes:
    """The image as the bytes of a PNG file, each row as its difference from the one above."""
    rows, cols, _ = image.shape
    flat = image.reshape(rows, 3 * cols)
    above = np.concatenate([np.zeros_like(flat[:1]), flat[:-1]])
    lines = np.concatenate([np.full((rows, 1), 2, dtype=np.uint8), flat - above], axis=1)
    header = struct.pack(">IIBBBBB", cols, rows, 8, 2, 0, 0, 0)
    chunks = ((b"IHDR", header), (b"IDAT", zlib.compress(lines.tobytes(), 9)), (b"IEND", b""))
    body = b"".join(
        struct.pack(">I", len(content)) + kind + content + struct.pack(">I", zlib.crc32(kind + content))
        for kind, content in chunks
    )
    return b"\x89PNG\r\n\x1a\n" + body
