"""Run a graph: onnxruntime runs an ONNX file, OpenVINO a file of its own format."""

from collections.abc import Callable, Mapping
from importlib import import_module
from importlib.metadata import version
from pathlib import Path
from typing import Any, Literal, Protocol, get_args, runtime_checkable

import torch
from torch import Tensor

from mule.core.errors import RangeError, WeightsError
from mule.runtime.openvino import RuntimeMissing, compiled_for_cpu, require_openvino

Target = Literal["onnx", "openvino"]
"""Formats of a graph."""
Runtime = Literal["torch", "onnx", "openvino"]
"""Where a network runs."""
SUFFIXES: Mapping[Target, str] = {"onnx": ".onnx", "openvino": ".xml"}
RUNTIME_PACKAGES: Mapping[Target, str] = {"onnx": "onnxruntime", "openvino": "openvino"}


@runtime_checkable
class Engine(Protocol):
    """A graph that is ready to run."""

    def __call__(self, inputs: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Return the outputs by name; inputs that the graph does not use are ignored."""
        ...


def require_runtime(name: str) -> Runtime:
    """Return the name if it is a runtime whose package is installed.

    Raises:
        RangeError: there is no such runtime.
        RuntimeMissing: its package is not installed; the message names the extra.
    """
    for each in get_args(Runtime):
        if each == name:
            if each == "onnx":
                require_onnxruntime()
            if each == "openvino":
                require_openvino()
            return each
    raise RangeError(
        f"a runtime must be auto, one of {', '.join(get_args(Runtime))}, or a folder that `mule export` wrote; got '{name}'."
    )


def require_onnxruntime() -> Any:  # noqa: ANN401 - an optional package
    """Import the package.

    Raises:
        RuntimeMissing: it is not installed.
    """
    try:
        return import_module("onnxruntime")
    except ImportError as missing:
        raise RuntimeMissing(
            f"The runtime 'onnx' needs onnxruntime: pip install 'mule-actions[onnx]'. It could not be imported: {missing}"
        ) from missing


def runtime_version(target: Target) -> str:
    """Return the version of the package that runs this format."""
    return version(RUNTIME_PACKAGES[target])


def write_graph(
    graph: bytes, path: Path, target: Target, *, changed: Callable[[Any], Any] = lambda graph: graph
) -> None:
    """Write an ONNX graph as a file for a target; OpenVINO puts the weights, in float32, into a second file.

    `changed` receives the `openvino.Model` and returns the one to write.
    """
    if target == "onnx":
        path.write_bytes(graph)
        return
    openvino = require_openvino()
    source = path.with_suffix(".onnx")
    try:
        source.write_bytes(graph)
        openvino.save_model(changed(openvino.convert_model(source)), path, compress_to_fp16=False)
    finally:
        source.unlink(missing_ok=True)


def open_engine(path: Path, target: Target, *, num_threads: int | None = None) -> Engine:
    """Open a file that `write_graph` wrote; `num_threads` None takes as many threads as torch.

    Raises:
        WeightsError: the file cannot be used.
        RuntimeMissing: the package is not installed.
    """
    opened = _OnnxEngine if target == "onnx" else _OpenVinoEngine
    threads = num_threads or torch.get_num_threads()
    if target == "onnx":
        require_onnxruntime()
    else:
        require_openvino()
    try:
        return opened(path, threads)
    except Exception as failure:  # the packages' errors share no other parent
        raise WeightsError(
            f"{path}: must be a complete graph for {target}; it cannot be opened: {failure}"
        ) from failure


class _OnnxEngine:
    def __init__(self, path: Path, num_threads: int) -> None:
        onnxruntime = require_onnxruntime()
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = num_threads
        options.inter_op_num_threads = 1
        options.log_severity_level = 4  # failures are raised; do not print them as well
        options.add_session_config_entry(
            "session.intra_op.allow_spinning", "0"
        )  # the detector needs the core
        self._session = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
        self._inputs = {each.name for each in self._session.get_inputs()}
        self._outputs = [each.name for each in self._session.get_outputs()]

    def __call__(self, inputs: Mapping[str, Tensor]) -> dict[str, Tensor]:
        outputs = self._session.run(None, _arrays(inputs, self._inputs))
        return {name: torch.from_numpy(each) for name, each in zip(self._outputs, outputs, strict=True)}


class _OpenVinoEngine:
    def __init__(self, path: Path, num_threads: int) -> None:
        self._run = compiled_for_cpu(path, num_threads)
        self._inputs = {each.any_name for each in self._run.inputs}
        # an output may have several names, and `any_name` need not be ours
        self._outputs = {name: each for each in self._run.outputs for name in each.names}

    def __call__(self, inputs: Mapping[str, Tensor]) -> dict[str, Tensor]:
        outputs = self._run(_arrays(inputs, self._inputs))
        return {name: torch.from_numpy(outputs[each].copy()) for name, each in self._outputs.items()}


def _arrays(inputs: Mapping[str, Tensor], names: set[str]) -> dict[str, Any]:
    return {name: each.contiguous().numpy() for name, each in inputs.items() if name in names}
