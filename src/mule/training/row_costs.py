"""What a row of an experiment costs: the multiply-adds of a clip, and the hours of its training on a GPU."""

import torch

from mule.core.settings import Experiment
from mule.systems.costs import Cost, network_cost
from mule.training.build import build_networks
from mule.training.choosing import inner_steps_of, sizes_of, system_of
from mule.training.data import known_classes

PEAK_TERAFLOPS = {"RTX 8000": 130.5, "A100": 312.0, "H100": 989.0}
"""Published peak of dense half-precision products on tensor cores: float16 on the RTX 8000, bfloat16 on the others."""
USED_SHARE = 0.1
"""Share of the peak that a training of 3D convolutions is taken to reach; an assumption, not a measurement."""
BACKWARD_PASSES = 2
"""A backward pass takes as many multiply-adds as two forward passes."""


def row_cost(name: str, row: Experiment, *, rows_px: int, cols_px: int) -> Cost:
    """Return parameters and multiply-adds of a row's whole network for one clip of this size."""
    with torch.device("meta"):
        _, backbone = build_networks(row)
    sizes = sizes_of(row, channels=backbone.channels, num_classes=known_classes(row))
    size = (row.data.num_frames, rows_px, cols_px)
    return network_cost(name, backbone, system_of(row).build(sizes), size)


def passes_per_clip(row: Experiment) -> int:
    """Return how many forward passes' work a clip takes in one epoch: steps, their gradients, and measuring the constraint."""
    steps = max(inner_steps_of(row), 1)
    has_own_pass = bool(system_of(row).constraints) and row.objective.measures_with == "own_pass"
    return steps * (1 + BACKWARD_PASSES) + has_own_pass


def training_hours(row: Experiment, cost: Cost, *, num_clips: int, gpu: str) -> float:
    """Return the hours of a whole training on one GPU, if it computes at `USED_SHARE` of its peak all the time."""
    passes = row.training.epochs * num_clips * passes_per_clip(row)
    return 2 * passes * cost.num_multiply_adds / (USED_SHARE * PEAK_TERAFLOPS[gpu] * 1e12) / 3600
