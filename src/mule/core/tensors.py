"""Tensors in files: check those that were read before anything computes with them, and write the same bytes each time."""

import json
from collections.abc import Iterator, Mapping

import safetensors.torch
import torch
from torch import Tensor

from mule.core.errors import ShapeError

Promised = tuple[torch.dtype | None, tuple[int | str, ...]]
"""Type and shape of a tensor; without a type, any floating-point type will do. A word stands for one size throughout."""

MOST_NAMED = 3


def require_tensors(
    tensors: Mapping[str, Tensor], promised: Mapping[str, Promised], *, sizes: Mapping[str, int] | None = None
) -> dict[str, int]:
    """Check names, types and shapes of tensors, and that their numbers are finite; return the sizes behind the words.

    Args:
        tensors: what was read.
        promised: type and shape by name.
        sizes: what words in the shapes must stand for, where that is known.

    Raises:
        ShapeError: with all that is wrong in one sentence.

    >>> require_tensors({"a": torch.zeros(3, 2)}, {"a": (None, ("rows", 2))})
    {'rows': 3}
    >>> require_tensors({"a": torch.zeros(3, 2)}, {"a": (None, ("rows",)), "b": (torch.int64, ())})
    Traceback (most recent call last):
    mule.core.errors.ShapeError: tensors must be as they were written; b is missing; a must be floating point (rows), got float32 (3, 2).
    """
    found = dict(sizes or {})
    problems = [f"{name} is missing" for name in promised if name not in tensors]
    problems += [f"{name!r} is unknown" for name in tensors if name not in promised]
    for name, (dtype, shape) in promised.items():
        if name in tensors:
            problems += _problems(name, tensors[name], dtype, shape, found)
    if problems:
        more = f"; and {len(problems) - MOST_NAMED} more" if len(problems) > MOST_NAMED else ""
        raise ShapeError(f"tensors must be as they were written; {'; '.join(problems[:MOST_NAMED])}{more}.")
    return found


def _problems(
    name: str, tensor: Tensor, dtype: torch.dtype | None, shape: tuple[int | str, ...], found: dict[str, int]
) -> Iterator[str]:
    if len(tensor.shape) == len(shape):
        for word, size in zip(shape, tensor.shape, strict=True):
            if isinstance(word, str):
                found.setdefault(word, size)
    wanted = [each if isinstance(each, int) else found.get(each, each) for each in shape]
    is_of_type = tensor.dtype == dtype if dtype is not None else tensor.is_floating_point()
    if list(tensor.shape) != wanted or not is_of_type:
        kind = "floating point" if dtype is None else str(dtype).removeprefix("torch.")
        got = f"{str(tensor.dtype).removeprefix('torch.')} {tuple(tensor.shape)}"
        yield f"{name} must be {kind} ({', '.join(map(str, wanted))}), got {got}"
    elif tensor.is_floating_point() and not torch.isfinite(tensor).all():
        yield f"{name} must be finite, got {int((~torch.isfinite(tensor)).sum())} numbers that are not"


def safetensors_bytes(tensors: Mapping[str, Tensor], about: Mapping[str, str]) -> bytes:
    """Return tensors as a safetensors file; the library itself writes what is said about them in any order.

    >>> content = safetensors_bytes({"a": torch.zeros(2)}, {"y": "1", "x": "2"})
    >>> content[8:45]
    b'{"__metadata__":{"x":"2","y":"1"},"a"'
    >>> safetensors.torch.load(content)
    {'a': tensor([0., 0.])}
    """
    content = safetensors.torch.save(dict(tensors), dict(about))
    if len(about) < 2:
        return content
    end = 8 + int.from_bytes(content[:8], "little")
    header = json.loads(content[8:end]) | {"__metadata__": dict(sorted(about.items()))}
    text = json.dumps(header, separators=(",", ":"), ensure_ascii=False).encode()
    padded = text.ljust(-(-len(text) // 8) * 8)
    return len(padded).to_bytes(8, "little") + padded + content[end:]
