"""A network on its device: how precisely and repeatably it computes there, in which memory layout, and whether compiled."""

import os
from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import NamedTuple, cast

import torch
from torch import nn
from torch.utils._triton import has_triton

from mule.core.config import ConfigError
from mule.core.processes import is_first, num_ranks
from mule.core.settings import BackboneSettings, PrecisionName, TrainingSettings
from mule.model import MuleModel

_CUBLAS_ROOM = "CUBLAS_WORKSPACE_CONFIG", ":4096:8"
"""Without a workspace of fixed size cuBLAS may give other bits; it reads this variable when it is first used."""


@contextmanager
def deterministic(device: torch.device, *, is_wanted: bool) -> Generator[None]:
    """Let torch use algorithms that give the same bits every time, for the length of the context.

    On the CPU an operation without such an algorithm is an error, so that the promise is kept or broken aloud. On other
    devices it is a warning: pooling in 3D has none there, and no SlowFast could be trained. Memory that nothing has
    written yet is left as it is; torch would fill all of it, which helps only to find bugs.
    """
    before = (
        torch.are_deterministic_algorithms_enabled(),
        torch.is_deterministic_algorithms_warn_only_enabled(),
    )
    fills = torch._C._get_deterministic_fill_uninitialized_memory()  # pyright: ignore[reportPrivateUsage] - else untyped
    if is_wanted and device.type == "cuda":
        os.environ.setdefault(*_CUBLAS_ROOM)
    torch.use_deterministic_algorithms(is_wanted, warn_only=device.type != "cpu")
    torch._C._set_deterministic_fill_uninitialized_memory(False)  # pyright: ignore[reportPrivateUsage]
    try:
        yield
    finally:
        torch.use_deterministic_algorithms(before[0], warn_only=before[1])
        torch._C._set_deterministic_fill_uninitialized_memory(fills)  # pyright: ignore[reportPrivateUsage]


class Precision(NamedTuple):
    """How a network computes: plainly, or under autocast with or without scaled gradients."""

    autocast: torch.autocast | None = None
    """None computes in the precision of the weights."""
    scaler: torch.amp.GradScaler | None = None
    """Keeps small gradients representable in float16."""
    note: str = ""
    """Why this is not what was wanted; empty if it is."""


def mixed_precision(device: torch.device, wanted: PrecisionName) -> Precision:
    """Return how to compute in the wanted precision, or in the nearest one that the device has.

    A GPU without bfloat16 (Turing and older) gets float16 instead. CPUs compute in float32 whatever they report: without
    native instructions they emulate bfloat16 many times slower, and some virtual machines report instructions (AMX) that
    end the process when torch uses them.
    """
    if wanted == "float32":
        return Precision()
    if device.type == "cpu":
        return Precision(note=f"{wanted} is used on GPUs only. Training in float32.")
    if wanted == "bfloat16" and torch.cuda.is_bf16_supported(including_emulation=False):
        return Precision(torch.autocast(device.type, dtype=torch.bfloat16))
    note = "This GPU does not support bfloat16. Training in float16 with scaled gradients."
    return Precision(
        torch.autocast(device.type, dtype=torch.float16),
        torch.amp.GradScaler(device.type),
        note if wanted == "bfloat16" else "",
    )


def moved_to(
    device: torch.device,
    model: MuleModel,
    training: TrainingSettings,
    backbone: BackboneSettings,
    *,
    noted: Callable[[str], None],
) -> tuple[MuleModel, Precision]:
    """Return the network on a device, ready to be trained there, and the precision it computes in.

    Raises:
        ConfigError: batch statistics are to be synchronised on CPUs.
    """
    model = _synchronised(model, backbone, device).to(device)
    precision = mixed_precision(device, training.precision)
    notes = [precision.note]
    if precision.autocast is not None:
        make_channels_last(model)
    if training.compile:
        notes.append(_compile(model, device))
    for note in filter(None, notes if is_first() else ()):
        noted(note)
    return model, precision


def make_channels_last(model: nn.Module) -> None:
    """Store the weights of 3D convolutions channels last, the layout in which GPUs multiply half-precision matrices.

    Maps take the layout of the weights. Grouped convolutions have no such kernels and keep theirs.
    """
    for module in model.modules():
        if isinstance(module, nn.Conv3d) and module.groups == 1:
            module.weight.data = module.weight.data.contiguous(memory_format=torch.channels_last_3d)


def _compile(model: MuleModel, device: torch.device) -> str:
    """Compile the backbone at its first clip; return why not, or nothing. Shapes after it change with every batch."""
    if device.type == "cpu":
        return "training.compile is used on GPUs only. Training without it."
    if not has_triton():
        return "training.compile needs the package Triton, which is not available for this GPU. Training without it."
    if isinstance(model.backbone, nn.Module):
        model.backbone.compile()
    return ""


def _synchronised(model: MuleModel, backbone: BackboneSettings, device: torch.device) -> MuleModel:
    if backbone.norm != "synchronised" or num_ranks() == 1:
        return model
    if device.type == "cpu":
        raise ConfigError(
            "backbone.norm = 'synchronised' needs GPUs, because torch synchronises batch statistics only there. On CPUs set "
            "it to 'frozen' or 'batch', or use one process."
        )
    return cast(MuleModel, nn.SyncBatchNorm.convert_sync_batchnorm(model))
