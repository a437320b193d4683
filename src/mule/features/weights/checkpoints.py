"""Read tensors by name from a file of weights without running any code in it.

The format is recognised by the first bytes, because publishers use different file names:

    torch zip        torch.save since 1.6: .pth .pt .pyth, and one .pkl
    torch pickle     torch.save before
    array pickle     numpy arrays: PySlowFast's .pkl, a dict with 'blobs', of caffe2; I3D's .ckpt, of Flax
    safetensors      a JSON header and bytes
"""

import pickle
import re
import warnings
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, Literal

import numpy as np
import torch
from safetensors.torch import load_file
from torch import Tensor

from mule.core.errors import WeightsError
from mule.features.weights.flax_names import i3d_from_flax, is_flax

Format = Literal["torch zip", "torch pickle", "array pickle", "safetensors"]

TENSORS_UNDER = ("state_dict", "model_state", "blobs")
"""Key of the tensors in a checkpoint: mmaction2 and ACAR-Net; PySlowFast and pytorchvideo; caffe2."""

_ZIP_START = b"PK\x03\x04"
_TORCH_PICKLE_START = b"\x80\x02\x8a\nl\xfc\x9cF\xf9 j\xa8P\x19."
_PICKLE_START = re.compile(rb"\x80[\x02-\x05]")
_TEXT_START = re.compile(rb"[\x09\x0a\x0d\x20-\x7e\x80-\xff]+")


@dataclass(frozen=True)
class WeightFile:
    """The tensors of one file by the publisher's names."""

    path: Path
    format: Format
    tensors: Mapping[str, Tensor]


def read_checkpoint(path: Path) -> WeightFile:
    """Read the tensors of a file in any of the four formats.

    Raises:
        WeightsError: the file is damaged, holds no tensors, or tries to run code.
    """
    if not path.is_file():
        raise WeightsError(f"{path}: must be a file of weights; there is no such file.")
    try:
        kind = _format_of(path)
        content = _tensors_in(_READERS[kind](path))
    except WeightsError:
        raise
    except Exception as error:  # a damaged pickle can raise nearly anything
        raise _unreadable(path, error) from error
    tensors = {name.removeprefix("module."): value for name, value in content.items()}
    if not tensors:
        raise WeightsError(
            f"{path}: weights must hold tensors by name, bare or under {', '.join(TENSORS_UNDER)}; none were "
            f"found in this {kind}. Is it another file of the same project?"
        )
    return WeightFile(path, kind, tensors)


def _format_of(path: Path) -> Format:
    with path.open("rb") as file:
        start = file.read(512)
    if start.startswith(_ZIP_START):
        return "torch zip"
    if start.startswith(_TORCH_PICKLE_START):
        return "torch pickle"
    if start[8:9] == b"{" and int.from_bytes(start[:8], "little") < 100_000_000:
        return "safetensors"
    if _PICKLE_START.match(start):
        return "array pickle"
    what = "other data"
    if not start:
        what = "an empty file"
    elif re.match(rb"\s*<(!doctype|html|\?xml)", start, re.IGNORECASE):
        what = "a web page, probably a confirmation page of the site"
    elif _TEXT_START.fullmatch(start):
        what = "text"
    raise WeightsError(
        f"{path}: weights must be a torch, safetensors or pickled array file; this is {what}. Pull the file again."
    )


def _unreadable(path: Path, error: Exception) -> WeightsError:
    if named := re.search(r"GLOBAL (\S+)", str(error)):
        return _refused(path, named[1])
    reason = re.split(r"\. |\n", str(error).strip())[0] or type(error).__name__
    return WeightsError(
        f"{path}: weights must be readable to the end; this file is damaged, cut short or of another kind "
        f"({reason}). Pull it again."
    )


def _refused(path: Path, name: str) -> WeightsError:
    return WeightsError(
        f"{path}: weights must be tensors and plain values; this file asks for '{name}', which could run code. "
        "It was not run. Do not use the file unless you know who made it; then save its tensors alone."
    )


def _tensors_in(content: object) -> dict[str, Tensor]:
    """Return the tensors and arrays of numbers among the named values of a checkpoint."""
    if not isinstance(content, Mapping):
        return {}
    if is_flax(content):
        return i3d_from_flax(dict(_flat(content, "")))
    for key in TENSORS_UNDER:
        if isinstance(content.get(key), Mapping):
            return _tensors_in(content[key])
    arrays = {str(name): _as_tensor(value) for name, value in content.items()}
    return {name: tensor for name, tensor in arrays.items() if tensor is not None}


def _flat(content: Mapping[Any, Any], prefix: str) -> Iterator[tuple[str, Tensor]]:
    """Yield the tensors of nested containers by their path."""
    for name, value in content.items():
        if isinstance(value, Mapping):
            yield from _flat(value, f"{prefix}{name}/")
        elif (tensor := _as_tensor(value)) is not None:
            yield f"{prefix}{name}", tensor


def _as_tensor(value: object) -> Tensor | None:
    if isinstance(value, _NotedArray) and value.array is not None:
        native = value.array.dtype.newbyteorder("=")
        return torch.from_numpy(value.array.astype(native))
    return value.detach() if isinstance(value, Tensor) else None


# --- torch: its own unpickler, which knows tensors and plain containers only -----------------------------


class _Inert:
    """Replaces an object of the training program that no tensor depends on; ignores its content."""

    def __init__(self, *_: object) -> None:
        pass

    def __setstate__(self, state: object) -> None:
        pass


# PySlowFast, ACAR-Net and mmaction2 save settings and histories beside the tensors. Their classes are not needed: a
# dict or an inert object replaces them. Any other class is refused.
_STAND_INS: list[Callable[..., Any] | tuple[Callable[..., Any], str]] = [
    (OrderedDict, "yacs.config.CfgNode"),
    (OrderedDict, "fvcore.common.config.CfgNode"),
    (OrderedDict, "easydict.EasyDict"),
    (OrderedDict, "mmengine.config.config.ConfigDict"),
    (_Inert, "mmengine.logging.history_buffer.HistoryBuffer"),
    (_Inert, "argparse.Namespace"),
    (_Inert, "numpy.dtype"),
    (_Inert, "numpy.ndarray"),
    *[
        (_Inert, f"numpy.{core}.multiarray.{name}")
        for core in ("core", "_core")
        for name in ("scalar", "_reconstruct")
    ],
]


def _read_torch(path: Path) -> object:
    with warnings.catch_warnings(), torch.serialization.safe_globals(_STAND_INS):
        warnings.simplefilter("ignore")  # about unknown pickle protocols, which raise an error anyway
        return torch.load(path, map_location="cpu", weights_only=True)


# --- arrays: pickles of caffe2 and Flax ------------------------------------------------------------------------
#
# numpy would rebuild them itself and trust a pickle's dtype fields and flags. Here the pickle is only parsed, and the
# numbers are read from their bytes.


class _NotedDtype:
    def __init__(self, code: str, *_: object) -> None:
        self.dtype = np.dtype(code)

    def __setstate__(self, state: tuple[Any, ...]) -> None:
        self.dtype = self.dtype.newbyteorder(state[1])


class _NotedArray:
    array: np.ndarray | None = None  # only arrays of numbers can be weights

    def __init__(self, *_: object) -> None:
        pass

    def __setstate__(self, state: tuple[Any, ...]) -> None:
        _version, shape, noted, is_fortran, raw = state
        if noted.dtype.kind in "biuf":
            numbers = np.frombuffer(_latin1(raw), noted.dtype)
            self.array = numbers.reshape(shape, order="F" if is_fortran else "C")


def _latin1(text: str | bytes, _encoding: str = "latin1") -> bytes:
    return text if isinstance(text, bytes) else text.encode("latin1")


_ARRAY_GLOBALS: Mapping[str, object] = {
    "collections.OrderedDict": OrderedDict,
    "_codecs.encode": _latin1,
    "numpy.ndarray": _Inert,
    "numpy.dtype": _NotedDtype,
    **{f"numpy.{core}.multiarray._reconstruct": _NotedArray for core in ("core", "_core")},
    **{f"numpy.{core}.multiarray.scalar": _Inert for core in ("core", "_core")},
}


class _ArrayUnpickler(pickle.Unpickler):
    """Reads numpy arrays and plain containers; refuses any other global before it is looked up."""

    def __init__(self, file: BinaryIO, path: Path) -> None:
        super().__init__(file, encoding="latin1")  # the files were written by Python 2
        self._path = path

    def find_class(self, module_name: str, global_name: str) -> object:
        """Return the replacement of a global that arrays need."""
        name = f"{module_name}.{global_name}"
        if name not in _ARRAY_GLOBALS:
            raise _refused(self._path, name)
        return _ARRAY_GLOBALS[name]


def _read_arrays(path: Path) -> object:
    with path.open("rb") as file:
        return _ArrayUnpickler(file, path).load()


_READERS: Mapping[Format, Callable[[Path], object]] = {
    "torch zip": _read_torch,
    "torch pickle": _read_torch,
    "array pickle": _read_arrays,
    "safetensors": load_file,
}
