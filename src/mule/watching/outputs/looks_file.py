"""`looks.bin`: what decides about every person at every key time, so that `mule decide` needs no video.

    line 1    a header of JSON: format, version, the weights, the classes, the sizes of what follows
    then      one record per key time: length, CRC-32, and the looks (`KeptMoment`); codes are deflated

A record is on disk before the moment of its key time is, so a kill leaves at most one record too many, or a part of one. Resuming
removes both; readers leave out what is cut off.
"""

import json
import math
import os
import struct
import zlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import IO, Any

import numpy as np
import torch
from torch import Tensor

from mule.core.documents import json_of
from mule.core.errors import AnnotationError, FileError, MuleError
from mule.core.files import os_reason
from mule.watching.engine.kept import Coded, KeptLooks, KeptMoment, Place
from mule.watching.moments import Contributor

LOOKS = "looks.bin"
"""The name of the file in the folder of a result."""
LOOKS_FORMAT, LOOKS_VERSION = "mule.looks", 1
_FRAME = struct.Struct("<II")
"""Length and checksum of a record."""
_PLACE = struct.Struct("<dIIII")
"""Key time, rows and columns of the frame, number of people, bytes of contributors."""
_MOST_BYTES = 1 << 28
_OWN, _SHARED, _DIFFERENCE = 0, 1, 2
"""How codes are kept: as they are; once for all people, as of the whole frame; as differences from those before, modulo 256."""


class LooksFile:
    """A file of looks. Iterate over it as often as you like; one key time is in memory at a time."""

    def __init__(self, path: Path) -> None:
        """Read the header."""
        self.path = path
        try:
            with path.open("rb") as file:
                line = file.readline(_MOST_BYTES)
        except OSError as error:
            raise AnnotationError(f"{path}: cannot be read: {os_reason(error)}.") from None
        about = _header(path, line)
        self.weights_sha256: str = about["weights_sha256"]
        self.classes: tuple[str, ...] = tuple(about["classes"])
        """Of the model that watched; `KeptMoment.likeliest` counts these."""
        self._begin = len(line)
        self._num_outputs: int = about["outputs"]
        self._num_features: int = about["features"]
        self.inputs: dict[str, int] = about["inputs"]
        """Names and sizes of what people are seen by; empty where network and memory decide."""

    def __iter__(self) -> Iterator[KeptMoment]:
        for _, moment in self._records():
            yield moment

    def _records(self) -> Iterator[tuple[int, KeptMoment]]:
        """Yield where each whole record ends, and what it holds."""
        with self.path.open("rb") as file:
            end = file.seek(self._begin)
            while len(frame := file.read(_FRAME.size)) == _FRAME.size:
                length, checksum = _FRAME.unpack(frame)
                body = file.read(length) if length <= _MOST_BYTES else b""
                if len(body) != length:
                    return  # cut off
                if zlib.crc32(body) != checksum:
                    raise AnnotationError(
                        f"{self.path}, byte {end}: the looks must have their checksum; they were changed. Watch again."
                    )
                end += _FRAME.size + length
                try:
                    moment = self._parsed(body)
                except (ValueError, struct.error, zlib.error) as error:
                    raise AnnotationError(
                        f"{self.path}, byte {end}: must hold looks; {error}. Watch again."
                    ) from None
                yield end, moment

    def end_after(self, key_time_s: float) -> int | None:
        """Return where the record of a key time ends; None if there is no such record."""
        for end, moment in self._records():
            if moment.place.key_time_s == key_time_s:
                return end
        return None

    def _parsed(self, body: bytes) -> KeptMoment:
        key_time_s, rows, cols, count, length = _PLACE.unpack_from(body)
        told = json_of(body[_PLACE.size : _PLACE.size + length]) if length else [None] * count
        contributors = [None if each is None else Contributor.model_validate(each) for each in told]
        reader = _Reader(body, _PLACE.size + length)
        place = Place(
            key_time_s,
            rows,
            cols,
            reader.take("<i8", count).long(),
            reader.take("<f4", count, 4),
            reader.take("<f4", count),
        )
        likeliest = reader.take("<i2", count).long()
        outputs = reader.take("<f2", count, self._num_outputs).float()
        features = reader.take("<f2", count, self._num_features).float()
        scales = {name: (reader.take("<f4", count), reader.take("<f4", count)) for name in self.inputs}
        codes = (
            _Reader(zlib.decompressobj(-zlib.MAX_WBITS).decompress(reader.rest), 0) if self.inputs else reader
        )
        inputs: dict[str, Coded] = {}
        before: Tensor | None = None
        for name, dim in self.inputs.items():
            kind = int(codes.take("<u1", 1))
            found = codes.take("<u1", 1 if kind == _SHARED else count, dim)
            before = (
                found + before if kind == _DIFFERENCE and before is not None else found.expand(count, dim)
            )
            inputs[name] = Coded(before, *scales[name])
        return KeptMoment(place, KeptLooks(outputs, features, inputs), likeliest, contributors)


class LooksWriter:
    """Writes looks to a file; those of a key time are on disk when `write` returns."""

    def __init__(self, path: Path | None, *, weights_sha256: str, classes: Sequence[str]) -> None:
        """Create the file with the first looks that are written, or none; `resume` continues one."""
        self._path = path
        self._about = {"weights_sha256": weights_sha256, "classes": list(classes)}
        self._file: IO[bytes] | None = None

    def __enter__(self) -> "LooksWriter":
        return self

    def __exit__(self, *_: object) -> None:
        if self._file is not None:
            self._file.close()

    def write(self, moment: KeptMoment) -> None:
        """Add what is kept of one key time."""
        if self._path is None:
            return
        try:
            if self._file is None:
                self._file = self._path.open("xb")
                self._file.write(_header_line(self._about, moment.looks))
            body = _record(moment)
            self._file.write(_FRAME.pack(len(body), zlib.crc32(body)) + body)
            self._file.flush()
            os.fsync(self._file.fileno())
        except OSError as error:
            raise FileError(f"{self._path}: cannot be written: {os_reason(error)}.") from None

    def resume(self, path: Path, *, after_s: float | None) -> None:
        """Continue after the looks of a key time, and remove what follows them; None begins anew.

        Raises:
            MuleError: the file lacks these looks, or belongs to another model.
        """
        if after_s is None:
            path.unlink(missing_ok=True)
            return
        file = LooksFile(path)
        if file.weights_sha256 != self._about["weights_sha256"]:
            raise MuleError(
                f"{path}: must belong to the model that watches; it belongs to another. Watch again."
            )
        end = file.end_after(after_s)
        if end is None:
            raise MuleError(
                f"{path}: must hold the looks at {after_s:g} s, the last moment; it does not. Remove it to continue "
                "without looks, or watch again."
            )
        self._file = path.open("r+b")
        self._file.truncate(end)
        self._file.seek(end)


def looks_file(folder: Path) -> LooksFile:
    """Return the looks in a folder that `mule watch` left.

    Raises:
        AnnotationError: it kept none.
    """
    if not (folder / LOOKS).is_file():
        raise AnnotationError(
            f"{folder}: must hold {LOOKS}, which `mule watch` keeps; it does not. Watch again, without --no-keep."
        )
    return LooksFile(folder / LOOKS)


class _Reader:
    """Takes numbers out of bytes, one block after another."""

    def __init__(self, content: bytes, begin: int) -> None:
        self._content, self._at = content, begin

    def take(self, kind: str, *shape: int) -> Tensor:
        count = math.prod(shape)
        if not count:
            return torch.zeros(shape, dtype=torch.from_numpy(np.zeros(0, np.dtype(kind))).dtype)
        found = np.frombuffer(self._content, kind, count, self._at)  # refuses what is too short
        self._at += found.nbytes
        return torch.from_numpy(found.astype(found.dtype.newbyteorder("="))).reshape(shape)

    @property
    def rest(self) -> bytes:
        return self._content[self._at :]


def _record(moment: KeptMoment) -> bytes:
    place, looks = moment.place, moment.looks
    told = b""
    if any(each is not None for each in moment.contributors):
        rows = [None if each is None else each.to_dict() for each in moment.contributors]
        told = json.dumps(rows, ensure_ascii=False).encode()
    parts = [
        _PLACE.pack(place.key_time_s, place.rows, place.cols, len(place), len(told)),
        told,
        _bytes(place.track_ids, "<i8"),
        _bytes(place.boxes_xyxy_px, "<f4"),
        _bytes(place.scores, "<f4"),
        _bytes(moment.likeliest, "<i2"),
        _bytes(looks.outputs, "<f2"),
        _bytes(looks.features, "<f2"),
    ]
    for each in looks.inputs.values():
        parts += [_bytes(each.low, "<f4"), _bytes(each.step, "<f4")]
    if looks.inputs:
        # few repetitions among the codes are worth finding, so their frequencies alone shorten them, each input's its own
        deflate = zlib.compressobj(9, zlib.DEFLATED, -zlib.MAX_WBITS, 9, zlib.Z_HUFFMAN_ONLY)
        for codes in _codes([each.codes for each in looks.inputs.values()]):
            parts += [deflate.compress(codes), deflate.flush(zlib.Z_SYNC_FLUSH)]
    return b"".join(parts)


def _codes(inputs: Sequence[Tensor]) -> Iterator[bytes]:
    """Yield the codes of each input; a box and the square around it look alike, so their differences are short."""
    before: Tensor | None = None
    for codes in inputs:
        kind, kept = _OWN, codes
        if len(codes) > 1 and bool((codes == codes[:1]).all()):
            kind, kept = _SHARED, codes[:1]
        elif before is not None and before.shape == codes.shape:
            kind, kept = _DIFFERENCE, codes - before  # both are bytes, so this is modulo 256
        yield bytes([kind]) + _bytes(kept, "<u1")
        before = codes


def _bytes(numbers: Tensor, kind: str) -> bytes:
    return numbers.detach().cpu().numpy().astype(kind).tobytes()


def _header_line(about: dict[str, object], looks: KeptLooks) -> bytes:
    sizes = {
        "outputs": looks.outputs.shape[1],
        "features": looks.features.shape[1],
        "inputs": {name: each.codes.shape[1] for name, each in looks.inputs.items()},
    }
    header = {"format": LOOKS_FORMAT, "version": LOOKS_VERSION, **about, **sizes}
    return json.dumps(header, ensure_ascii=False).encode() + b"\n"


def _header(path: Path, line: bytes) -> dict[str, Any]:
    try:
        about = json_of(line.decode()) if line.endswith(b"\n") else {}
    except ValueError:
        about = {}
    kinds = {"weights_sha256": str, "classes": list, "outputs": int, "features": int, "inputs": dict}
    is_whole = isinstance(about, dict) and all(
        isinstance(about.get(name), kind) for name, kind in kinds.items()
    )
    if not is_whole or about.get("format") != LOOKS_FORMAT:
        raise AnnotationError(
            f"{path}, line 1: must be the header of a file of looks; it is not. Watch again."
        )
    if about.get("version") != LOOKS_VERSION:
        raise AnnotationError(
            f"{path}, line 1: must be version {LOOKS_VERSION}; got version {about.get('version')}. Read it with the release that "
            "wrote it, or watch again."
        )
    return about
