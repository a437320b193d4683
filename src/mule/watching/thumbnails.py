"""Small pictures of actors: of the most novel ones while watching, and of remembered ones in a bundle.

BUNDLE/thumbnails.zip     PNG files by name, uncompressed; bundles of version 0.1.0 have a folder `thumbnails/` instead
"""

import io
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np
from jaxtyping import UInt8
from PIL import Image as PillowImage

from mule.core.errors import AnnotationError, RangeError
from mule.core.files import os_reason, write_file
from mule.watching.moments import Box, DecisionThreshold, Moment, novelty_of

Image = UInt8[np.ndarray, "rows cols 3"]

THUMBNAILS, OLD_THUMBNAILS = "thumbnails.zip", "thumbnails"
MOST_PER_ACTOR = 3
MARGIN = 0.15
TALLEST_PX = 200
PICTURE_ASPECT = 46 / 54
"""Width of a remembered person's picture in the page, beside its height."""


@dataclass(frozen=True)
class Thumbnail:
    """An actor cut out of a key frame."""

    key_time_s: float
    track_id: int
    novelty: float
    png: bytes


class NovelThumbnails:
    """The most novel looks at actors so far: a few per actor, some time apart, most novel first."""

    def __init__(self, threshold: DecisionThreshold, *, most: int = 12, apart_s: float = 3.0) -> None:
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
        """Most novel first; among equals, the earlier first."""
        return tuple(self._kept)

    def add(self, moment: Moment, key_frame: Image) -> None:
        """Consider every actor of a moment; only those that are kept are cut out."""
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
                png = png_bytes(cut_out_person(key_frame, actor.box_xyxy_unit))
                thumbnail = Thumbnail(moment.key_time_s, actor.track_id, novelty, png)
                self._kept = self._best([*rest, thumbnail])

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
    """Return the part of an image around a box, with a margin; a tall part shrinks by a whole factor."""
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


def cut_out_person(image: Image, box_xyxy_unit: Box) -> UInt8[np.ndarray, "cut_rows cut_cols 3"]:
    """Return the person in a box with a margin and enough of what is beside them for the shape of a picture in the page.

    A page fills its pictures, so a tall narrow one would show no more than the hips.
    """
    rows, cols = image.shape[:2]
    x1, y1, x2, y2 = box_xyxy_unit
    wide = min(1.0, max(x2 - x1, PICTURE_ASPECT * (y2 - y1) * rows / cols))
    high = min(1.0, max(y2 - y1, (x2 - x1) * cols / (PICTURE_ASPECT * rows)))
    left = min(max((x1 + x2 - wide) / 2, 0.0), 1.0 - wide)
    top = min(max((y1 + y2 - high) / 2, 0.0), 1.0 - high)
    return cut_out(image, (left, top, left + wide, top + high))


def png_bytes(image: Image) -> bytes:
    """Return the image as the bytes of a PNG file."""
    file = io.BytesIO()
    PillowImage.fromarray(np.ascontiguousarray(image)).save(file, "PNG", optimize=True)
    return file.getvalue()


class ThumbnailArchive:
    """Pictures of remembered actors by name: a zip file, or a folder. No name leads out of it."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def read(self, name: str) -> bytes | None:
        """Return the bytes of a picture; None if there is no such picture."""
        try:
            if self.path.is_dir():
                return self._from_folder(name)
            return self._zip.read(name)
        except KeyError:
            return None
        except (OSError, zipfile.BadZipFile) as error:
            raise AnnotationError(
                f"{self.path}: must be the thumbnails of a bundle; {os_reason(error)}. Build the bundle again."
            ) from None

    @cached_property
    def _zip(self) -> zipfile.ZipFile:
        return zipfile.ZipFile(io.BytesIO(self.path.read_bytes()))

    def _from_folder(self, name: str) -> bytes | None:
        folder = self.path.resolve()
        path = (folder / name).resolve()
        if not path.is_relative_to(folder):
            raise AnnotationError(
                f"{self.path}: thumbnails of remembered actors must lie in the folder; got {name!r}."
            )
        return path.read_bytes() if path.is_file() else None


def thumbnails_in(bundle: Path) -> ThumbnailArchive | None:
    """Return the thumbnails of a bundle; None if it has none."""
    if (bundle / THUMBNAILS).is_file():
        return ThumbnailArchive(bundle / THUMBNAILS)
    return ThumbnailArchive(bundle / OLD_THUMBNAILS) if (bundle / OLD_THUMBNAILS).is_dir() else None


def write_thumbnails(path: Path, pictures: Mapping[str, bytes]) -> None:
    """Write pictures by name into one file; the same pictures give the same bytes."""
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:  # a PNG is compressed already
        for name in sorted(pictures):
            archive.writestr(zipfile.ZipInfo(name), pictures[name])
    write_file(path, file.getvalue())
