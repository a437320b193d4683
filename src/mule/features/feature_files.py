"""Features of a video in one safetensors file, with a digest that detects any changed byte.

    header    key · stride · input size · source size · version · digest
    tensors   key_time_s (clips) · num_clamped (clips) · context (clips, channels, rows, cols)

The digest is the SHA-256 of the whole file with zeros in place of the digest, so it covers the header too.
"""

import hashlib
import json
import os
import secrets
from collections.abc import Generator, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

import torch
from jaxtyping import Float, Float64, Int64
from safetensors import safe_open
from torch import Tensor

from mule.core.errors import FeatureFileError, FileError, ShapeError
from mule.core.files import os_reason

FORMAT_VERSION = 1
"""Increases when the file format changes, or when the same recipe gives other numbers."""

_DTYPES = {torch.float64: "F64", torch.float32: "F32", torch.float16: "F16", torch.int64: "I64"}
_NO_DIGEST = b"0" * 64
_BLOCK_BYTES = 1 << 20


@dataclass(frozen=True)
class VideoFeatures:
    """The context map at each key time of a video; a cell covers `stride` × `stride` pixels of the input.

    Multiply boxes in pixels of the source by `input_size / source_size` to use them with `pooling.box_features`.
    """

    context: Float[Tensor, "clips channels rows cols"]
    key_time_s: Float64[Tensor, " clips"]
    num_clamped: Int64[Tensor, " clips"]
    """Number of frames of each clip before the first or after the last frame of the video."""
    stride: int
    input_size: tuple[int, int]
    """Rows and columns of the network's input."""
    source_size: tuple[int, int]
    """Rows and columns of the video."""

    def __post_init__(self) -> None:
        if not len(self.context) == len(self.key_time_s) == len(self.num_clamped):
            raise ShapeError(
                "context, key_time_s and num_clamped must have one entry per clip; got "
                f"{len(self.context)}, {len(self.key_time_s)} and {len(self.num_clamped)}."
            )

    def __len__(self) -> int:
        """Number of clips."""
        return len(self.context)


def write_features(path: Path, pieces: Sequence[VideoFeatures], *, key: str, scratch: Path) -> None:
    """Write the clips of all pieces, in order, to one file. `path` never holds a partial file.

    Pieces that were read from files are memory-mapped, so memory does not grow with the video.

    Args:
        path: the file to write or replace.
        pieces: at least one; all must have the same size, stride and type.
        key: what the features were made from, for `read_features`.
        scratch: a folder on the same disk for the unfinished file.

    Raises:
        FileNotFoundError: a folder does not exist, or was removed.
        FileError: the disk is full, or the file is not writable.
    """
    header = _header(pieces, key)
    digest = hashlib.sha256()
    with _replacing(path, scratch) as file:
        for block in _blocks(header, pieces):
            digest.update(block)
            file.write(block)
        file.seek(header.index(_NO_DIGEST))
        file.write(digest.hexdigest().encode())


def read_features(path: Path, *, key: str) -> VideoFeatures:
    """Read the features in a file. The context map is memory-mapped.

    Raises:
        FileNotFoundError: there is no file.
        FeatureFileError: the file is damaged, or its key is a different one.
    """
    try:
        metadata = _verified_metadata(path)
        if metadata["key"] != key:
            raise FeatureFileError(f"{path}: made from another video, other weights or other settings.")
        with safe_open(path, framework="pt") as tensors:
            return VideoFeatures(
                context=tensors.get_tensor("context"),
                key_time_s=tensors.get_tensor("key_time_s"),
                num_clamped=tensors.get_tensor("num_clamped"),
                stride=int(metadata["stride"]),
                input_size=_size(metadata["input_size"]),
                source_size=_size(metadata["source_size"]),
            )
    except (FileNotFoundError, FeatureFileError):
        raise
    except Exception as error:  # a damaged file can raise nearly anything
        raise FeatureFileError(f"{path}: damaged or cut short ({os_reason(error)}).") from error


def _verified_metadata(path: Path) -> dict[str, str]:
    with path.open("rb") as file:
        length = file.read(8)
        num_bytes = int.from_bytes(length, "little")
        if num_bytes > path.stat().st_size - 8:
            raise FeatureFileError(f"{path}: cut short, or not a file of features.")
        text = file.read(num_bytes)
        metadata = json.loads(text)["__metadata__"]
        digest = hashlib.sha256(length + text.replace(metadata["digest"].encode(), _NO_DIGEST, 1))
        while block := file.read(_BLOCK_BYTES):
            digest.update(block)
    if digest.hexdigest() != metadata["digest"]:
        raise FeatureFileError(f"{path}: damaged; its bytes have changed.")
    return metadata


def _header(pieces: Sequence[VideoFeatures], key: str) -> bytes:
    """Return the length and the text of a safetensors header, with zeros for the digest."""
    kinds = {(p.context.shape[1:], p.context.dtype, p.stride, p.input_size, p.source_size) for p in pieces}
    if len(kinds) != 1:
        raise ShapeError(f"the pieces of a file must have one shape, type, stride and size; got {kinds}.")
    first, num_clips = pieces[0], sum(len(piece) for piece in pieces)
    entries: dict[str, object] = {}
    end = 0
    for name, tensor in _tensors(first):
        shape = [num_clips, *tensor.shape[1:]]
        begin, end = end, end + torch.Size(shape).numel() * tensor.element_size()
        entries[name] = {"dtype": _DTYPES[tensor.dtype], "shape": shape, "data_offsets": [begin, end]}
    metadata = {
        "digest": _NO_DIGEST.decode(),
        "version": str(FORMAT_VERSION),
        "stride": str(first.stride),
        "input_size": json.dumps(first.input_size),
        "source_size": json.dumps(first.source_size),
        "key": key,
    }
    text = json.dumps({"__metadata__": metadata, **entries}).encode()
    text += b" " * (-len(text) % 8)  # tensors start at a multiple of eight bytes
    return len(text).to_bytes(8, "little") + text


def _tensors(piece: VideoFeatures) -> list[tuple[str, Tensor]]:
    return [
        ("key_time_s", piece.key_time_s),
        ("num_clamped", piece.num_clamped),
        ("context", piece.context),
    ]


def _blocks(header: bytes, pieces: Sequence[VideoFeatures]) -> Iterator[bytes | memoryview]:
    yield header
    for tensors in zip(*(_tensors(piece) for piece in pieces), strict=True):
        for _, tensor in tensors:
            yield tensor.contiguous().flatten().view(torch.uint8).numpy().data


@contextmanager
def _replacing(path: Path, scratch: Path) -> Generator[BinaryIO]:
    """Open a new file that replaces `path` once it is complete and on disk; remove it after an error."""
    growing = scratch / f"{path.name}.{secrets.token_hex(8)}.tmp"
    try:
        with growing.open("xb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        growing.replace(path)
    except FileNotFoundError:
        raise
    except OSError as error:
        raise FileError(
            f"{path}: cannot be written: {os_reason(error)}. Start again when this is solved; finished parts are kept."
        ) from error
    finally:
        growing.unlink(missing_ok=True)


def _size(text: str) -> tuple[int, int]:
    rows, cols = json.loads(text)
    return int(rows), int(cols)
