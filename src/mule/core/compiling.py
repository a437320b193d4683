"""OpenVINO (extra `mule-actions[openvino]`), imported with care: one core in a process, and no instructions that end it."""

import os
import subprocess
import sys
from functools import cache
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any

import torch

from mule.core.errors import MuleError

CPU_FACTS = Path("/proc/cpuinfo")
MAX_ISA = "ONEDNN_MAX_CPU_ISA"


class RuntimeMissing(MuleError, ImportError):  # noqa: N818 - names the fact, as the messages do
    """The package that a runtime needs is not installed; the message names the extra."""


def require_openvino() -> ModuleType:
    """Import the package without its telemetry, and without processor instructions that would end the process.

    Raises:
        RuntimeMissing: it is not installed.
    """
    # OpenVINO reports its import and every conversion to its maker unless this package cannot be imported.
    sys.modules.setdefault("openvino_telemetry", None)  # pyright: ignore[reportArgumentType]
    try:
        openvino = import_module("openvino")
    except ImportError as missing:
        raise RuntimeMissing(
            f"Compiled backbones need OpenVINO: pip install 'mule-actions[openvino]'. It could not be imported: {missing}"
        ) from missing
    _avoid_broken_instructions()
    return openvino


def compiled_for_cpu(graph: Any, num_threads: int | None, *, precision: str = "f32") -> Any:  # noqa: ANN401 - OpenVINO's own types
    """Compile a graph, or the file of one, for low latency, in float32 even where bf16 would be faster, unless asked."""
    settings = {
        "PERFORMANCE_HINT": "LATENCY",
        "INFERENCE_PRECISION_HINT": precision,
        "INFERENCE_NUM_THREADS": num_threads or torch.get_num_threads(),
    }
    return _core().compile_model(graph, "CPU", settings)


@cache
def _core() -> Any:  # noqa: ANN401 - an openvino.Core
    """The one core of this process, which lives as long as it does.

    A core gives its thread a stack for signals and, when it goes, brings back the stack it found. If the core that made
    that one went first, the stack is no more, and the next signal (Ctrl-C, a worker that ends) is a segmentation fault.
    """
    return require_openvino().Core()


@cache
def _avoid_broken_instructions() -> None:
    """Some virtual machines announce AMX and then kill a process that uses it; try it once, in another process.

    oneDNN, which computes for OpenVINO and for torch, obeys the variable if it is set before its first use.
    """
    if MAX_ISA in os.environ or not CPU_FACTS.is_file() or "amx_tile" not in CPU_FACTS.read_text():
        return
    multiply = "import torch; x = torch.ones(64, 64, dtype=torch.bfloat16); x @ x"
    died = subprocess.run([sys.executable, "-c", multiply], capture_output=True, check=False).returncode < 0
    if died:
        os.environ[MAX_ISA] = "AVX512_CORE_FP16"  # all but AMX
