"""Features computed once, kept on disk, found again by a key that cannot lie.

The key is everything that the numbers depend on, written out: the recipe, what is in the video, the key times. A
file is called after the video and the first digits of the key's digest, and holds the whole key; a file whose key
is another one, or that is damaged, is not used. Until a video is finished its parts lie in a folder beside:

    NAME-0123456789abcdef.safetensors
    NAME-0123456789abcdef.parts/00000000.part  00000032.part  …
"""

import hashlib
import json
import re
import shutil
import time
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field, fields, is_dataclass
from fractions import Fraction
from functools import cached_property
from itertools import count
from pathlib import Path
from typing import Any, Literal

from mule.core.errors import FeatureFileError, RangeError, VideoError
from mule.core.files import file_stamp, sha256_while_unchanged
from mule.features.feature_files import (
    FORMAT_VERSION,
    VideoFeatures,
    read_features,
    write_features,
)
from mule.video.clips import ClipShape
from mule.video.reading import Scaler
from mule.video.sources import FrameStream, ImageSequence, LiveStream, VideoSource
from mule.video.transforms import Normalisation

Runtime = Literal["torch", "openvino"]

ABANDONED_AFTER_S = 600
"""A file that has not grown for so long is no longer being written."""

_SHA256 = re.compile(r"[0-9a-f]{64}")
_MAX_STEM = 48
_MAX_TRIES = 3


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """Everything but the video and the key times that features depend on."""

    backbone: str
    options: Mapping[str, Any] = field(hash=False)
    """What the backbone was built with: variant, endpoint, strides."""
    weights_sha256: str
    clip: ClipShape
    frame_rate: Fraction | None = None
    """Frames per second of the grid on which clips are cut; None is the video's own rate."""
    short_side_px: int | None = 256
    normalisation: Normalisation
    scaler: Scaler = "torch"
    half: bool = False
    """Whether features are kept in half precision."""
    runtime: Runtime = "torch"
    """What computes them: sums in another order differ in their last digits."""

    def __post_init__(self) -> None:
        if not _SHA256.fullmatch(self.weights_sha256):
            raise RangeError(
                f"weights_sha256 must be 64 hexadecimal digits; got '{self.weights_sha256}'. "
                "`download.sha256_of` gives those of a file."
            )

    @cached_property
    def written_out(self) -> dict[str, Any]:
        """In numbers, text, lists and dictionaries; once, for the keys of many videos."""
        return json.loads(_json({each.name: getattr(self, each.name) for each in fields(self)}))


@dataclass(frozen=True)
class Every:
    """Key times one period apart, from the first frame to the end of the video, wherever that turns out to be."""

    period_s: Fraction

    def __post_init__(self) -> None:
        if self.period_s <= 0:
            raise RangeError(f"the time from one clip to the next must be above zero; got {self.period_s} s.")


KeyTimes = tuple[Fraction, ...] | Every


def times_from(key_times: KeyTimes, first: int) -> Iterator[Fraction]:
    """The key times from number `first` on; under `Every` there is no end to them."""
    if isinstance(key_times, Every):
        return (number * key_times.period_s for number in count(first))
    return iter(key_times[first:])


def feature_key(recipe: Recipe, video_sha256: str, key_times: KeyTimes) -> str:
    """All that the features depend on, as JSON in which equal things are always written alike."""
    contents = {
        "version": FORMAT_VERSION,
        "recipe": recipe.written_out,
        "video_sha256": video_sha256,
        "key_times_s": key_times,
    }
    return _json(contents)


def video_sha256(source: VideoSource) -> str:
    """What identifies the content of a video: of a file its bytes, of images their names, bytes and times.

    Raises:
        VideoError: the source is live, so nobody can read the same frames again; or a file cannot be read.
    """
    paths = _paths(source)
    try:
        digests = [sha256_while_unchanged(path) for path in paths]
    except OSError as error:
        raise VideoError(f"{source}: must be readable; {error.strerror or error}.") from error
    if not isinstance(source, ImageSequence):
        return digests[0]
    names = [path.name for path in paths]
    images = list(zip(names, source.positions, digests, strict=True))
    return hashlib.sha256(json.dumps([str(source.frame_rate), images]).encode()).hexdigest()


def video_stamp(source: VideoSource) -> tuple[tuple[int, int, int], ...]:
    """The stamp of each file: if these stay, so did the content."""
    try:
        return tuple(file_stamp(path) for path in _paths(source))
    except OSError as error:
        raise VideoError(f"{source}: must be readable; {error.strerror or error}.") from error


class CacheEntry:
    """The place of one video's features in a folder: the file, and its parts until it is finished.

    Several processes may work on one entry. Whatever one finds was written whole, by itself or another.
    """

    def __init__(self, folder: Path, source: VideoSource, key: str) -> None:
        name = f"{_safe_stem(source)}-{hashlib.sha256(key.encode()).hexdigest()[:16]}"
        self.path = folder / f"{name}.safetensors"
        self.parts_folder = folder / f"{name}.parts"
        self.key = key
        self.discarded: list[str] = []
        """Why a file or a part that was there could not be used."""

    def find(self) -> VideoFeatures | None:
        """The features, if they are there, whole, and made from exactly what the key says."""
        return self._read(self.path)

    def find_part(self, first: int) -> VideoFeatures | None:
        """The part that begins with clip number `first`, under the same conditions."""
        return self._read(self._part_path(first))

    def part_numbers(self) -> list[int]:
        """The first clip of each part that is there; whether it is sound is not yet known."""
        return sorted(int(path.stem) for path in self.parts_folder.glob("*.part") if path.stem.isdecimal())

    def write_part(self, first: int, part: VideoFeatures) -> None:
        """Keeps a part until the video is finished.

        Raises:
            FeatureFileError: the disk is full, or the folder may not be written.
        """
        for _ in range(_MAX_TRIES):
            try:
                self._make_parts_folder()
                write_features(self._part_path(first), [part], key=self.key, scratch=self.parts_folder)
            except FileNotFoundError:  # another process finished this video and swept the folder away
                continue
            return
        raise FeatureFileError(f"{self.parts_folder}: must stay while parts are written; it keeps vanishing.")

    def finish(self, pieces: list[VideoFeatures]) -> None:
        """Makes one file of all pieces, unless another process has just finished and swept the parts away."""
        self._make_parts_folder()
        try:
            write_features(self.path, pieces, key=self.key, scratch=self.parts_folder)
        except FileNotFoundError:
            return

    def sweep(self) -> None:
        """Removes what is left of parts, and of writers that were killed."""
        shutil.rmtree(self.parts_folder, ignore_errors=True)

    def sweep_abandoned(self) -> None:
        """Removes what killed writers left behind, but nothing that may still be growing."""
        oldest = time.time() - ABANDONED_AFTER_S
        for path in self.parts_folder.glob("*.tmp"):
            try:
                if path.stat().st_mtime < oldest:
                    path.unlink()
            except FileNotFoundError:  # its writer was alive after all, or another process was quicker
                continue

    def _make_parts_folder(self) -> None:
        try:
            self.parts_folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise FeatureFileError(
                f"{self.parts_folder}: must be a folder that can be made; {error.strerror}. Choose another place."
            ) from error

    def _read(self, path: Path) -> VideoFeatures | None:
        try:
            return read_features(path, key=self.key)
        except FileNotFoundError:
            return None
        except FeatureFileError as error:
            self.discarded.append(str(error))
            return None

    def _part_path(self, first: int) -> Path:
        return self.parts_folder / f"{first:08d}.part"


def _json(contents: object) -> str:
    return json.dumps(contents, default=_plain, sort_keys=True, separators=(",", ":"), allow_nan=False)


def _plain(value: object) -> object:
    if isinstance(value, Fraction):
        return str(value)
    if isinstance(value, Mapping):
        return dict(value)
    if is_dataclass(value) and not isinstance(value, type):
        return {type(value).__name__: asdict(value)}
    raise RangeError(f"a recipe must be made of plain values and records; got {value!r}.")


def _paths(source: VideoSource) -> tuple[Path, ...]:
    if isinstance(source, LiveStream | FrameStream):
        raise VideoError(
            f"{source}: features are kept of videos that can be read again; a camera or a stream cannot. Record it first."
        )
    return source.paths if isinstance(source, ImageSequence) else (source.path,)


def _safe_stem(source: VideoSource) -> str:
    return re.sub(r"[^\w.-]", "_", Path(str(source)).stem)[:_MAX_STEM].lstrip(".") or "video"
