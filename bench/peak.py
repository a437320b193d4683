"""The machine's peak in float32: the best rate of several kernels, because no single one is the best everywhere.

    python -m bench.peak

MKL, which torch multiplies matrices with, is slow on processors of other makers; oneDNN (torch's convolutions), OpenBLAS
(numpy) and OpenVINO are not.
"""

from collections.abc import Callable, Iterator, Mapping
from functools import partial

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from bench.timing import machine, take_turns
from mule.core.compiling import compiled_for_cpu, require_openvino

SIZES = (1024, 2048)
CHANNELS, SIDE = 256, 56
Kernel = tuple[float, Callable[[], object]]
"""Floating-point operations of a call, and the call."""


class _Product(nn.Module):
    def forward(self, left: Tensor, right: Tensor) -> Tensor:
        return left @ right


def kernels() -> dict[str, Kernel]:
    """Return the kernels by name and size."""
    return {**dict(_products()), f"oneDNN convolution {CHANNELS} × {SIDE} × {SIDE}": _convolution()}


def best_rate(times_s: Mapping[str, float], among: Mapping[str, Kernel]) -> tuple[str, float]:
    """Return the fastest kernel of those timed, and its floating-point operations per second.

    >>> best_rate({"a": 2.0, "b": 1.0, "other": 0.1}, {"a": (6.0, int), "b": (2.0, int)})
    ('a', 3.0)
    """
    rates = {name: work / times_s[name] for name, (work, _) in among.items()}
    best = max(rates, key=lambda name: rates[name])
    return best, rates[best]


def _products() -> Iterator[tuple[str, Kernel]]:
    for size in SIZES:
        left, right = torch.rand(size, size), torch.rand(size, size)
        graph = require_openvino().convert_model(
            _Product(), example_input=(left, right), input=[tuple(left.shape), tuple(right.shape)]
        )
        compiled = compiled_for_cpu(graph, None)
        work = 2.0 * size**3
        yield f"torch product {size}", (work, partial(torch.matmul, left, right))
        yield f"OpenBLAS product {size}", (work, partial(np.matmul, left.numpy(), right.numpy()))
        yield f"OpenVINO product {size}", (work, partial(compiled, [left.numpy(), right.numpy()]))


def _convolution() -> Kernel:
    """Three by three, as backbones have; oneDNN computes it directly, without a transform that would save work."""
    weight = torch.rand(CHANNELS, CHANNELS, 3, 3).contiguous(memory_format=torch.channels_last)
    images = torch.rand(4, CHANNELS, SIDE, SIDE).contiguous(memory_format=torch.channels_last)
    return 2.0 * 4 * 9 * CHANNELS**2 * SIDE**2, partial(F.conv2d, images, weight, padding=1)


def main() -> None:
    """Print the rate of every kernel, and which is the best."""
    timed = kernels()
    times_s = take_turns({name: run for name, (_, run) in timed.items()}, seconds=10)
    for name, (work, _) in timed.items():
        print(f"  {name:38}{work / times_s[name] / 1e9:8.0f} GFLOP/s")
    name, rate = best_rate(times_s, timed)
    print(f"peak of this machine: {rate / 1e9:.0f} GFLOP/s ({name}); {machine()}")


if __name__ == "__main__":
    main()
