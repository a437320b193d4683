"""Several processes that train as one: the same numbers as one process with the whole batch.

Every rank sees its share of the batch, and what is averaged is weighted so that each actor counts alike, wherever it
was seen. Processes are started by `torchrun`; without it there is one. Batch statistics are the exception: unless they
are frozen, each rank normalises by its own share, as everywhere (`SyncBatchNorm` exists for GPUs alone).
"""

import os
from collections.abc import Generator, Iterable, Sequence
from contextlib import contextmanager
from typing import Any

import torch
import torch.distributed as dist
from jaxtyping import Shaped
from torch import Tensor, nn

from mule.core.errors import RangeError
from mule.objective.ranks import gather_actors, num_ranks

FIRST = 0


@contextmanager
def processes() -> Generator[torch.device]:
    """Joins the processes that `torchrun` started, for as long as this lasts; gives the device of this one.

    Raises:
        RangeError: there are more processes on this machine than GPUs.
    """
    has_gpu = torch.cuda.is_available()
    local_rank = int(os.environ.get("LOCAL_RANK", "0"))
    if has_gpu and local_rank >= torch.cuda.device_count():
        raise RangeError(
            f"every process must have a GPU of its own; this machine has {torch.cuda.device_count()} and process "
            f"{local_rank} has none. Lower --nproc-per-node."
        )
    device = torch.device("cuda", local_rank) if has_gpu else torch.device("cpu")
    if "WORLD_SIZE" not in os.environ or dist.is_initialized():
        yield device
        return
    dist.init_process_group("nccl" if has_gpu else "gloo")
    try:
        yield device
    finally:
        dist.destroy_process_group()


def own_rank() -> int:
    """Which of the processes this is, from 0."""
    return dist.get_rank() if num_ranks() > 1 else FIRST


def is_first() -> bool:
    """Whether this process is the one that writes files and talks to people."""
    return own_rank() == FIRST


def wait_for_all() -> None:
    """Goes on when every process has come here."""
    if num_ranks() > 1:
        dist.barrier()


def over_ranks(value: float, device: torch.device, *, least: bool = False) -> float:
    """The sum (or the least) of a number of each rank, the same on every rank."""
    if num_ranks() == 1:
        return value
    total = torch.tensor(value, dtype=torch.float64, device=device)
    dist.all_reduce(total, op=dist.ReduceOp.MIN if least else dist.ReduceOp.SUM)
    return total.item()


def everyones(thing: Any) -> list[Any]:  # noqa: ANN401 - anything that pickles
    """What each rank has, in rank order, on every rank."""
    if num_ranks() == 1:
        return [thing]
    things: list[Any] = [None] * num_ranks()
    dist.all_gather_object(things, thing)
    return things


def gathered(rows: Shaped[Tensor, "actors ..."]) -> Shaped[Tensor, "all_actors ..."]:
    """The rows of all ranks, without gradients; truth values too."""
    if rows.dtype == torch.bool:
        return gather_actors(rows.to(torch.uint8)).bool()
    return gather_actors(rows.detach())


@torch.no_grad()
def share_weights(model: nn.Module) -> None:
    """Every rank begins with the weights and buffers of the first."""
    if num_ranks() > 1:
        for tensor in model.state_dict().values():
            dist.broadcast(tensor, src=FIRST)


@torch.no_grad()
def average_gradients(parameters: Iterable[Tensor]) -> None:
    """Each gradient becomes its mean over ranks; a rank without one counts as zero, unless no rank has one."""
    if num_ranks() == 1:
        return
    parameters = list(parameters)
    has_gradient = torch.tensor([float(p.grad is not None) for p in parameters], device=parameters[0].device)
    dist.all_reduce(has_gradient, op=dist.ReduceOp.MAX)
    moved = [p for p, is_there in zip(parameters, has_gradient.tolist(), strict=True) if is_there]
    for parameter in moved:
        if parameter.grad is None:
            parameter.grad = torch.zeros_like(parameter)
    _average([p.grad for p in moved if p.grad is not None])


@torch.no_grad()
def average_buffers(model: nn.Module) -> None:
    """Running statistics become their mean over ranks, so that all ranks hold one model."""
    if num_ranks() > 1:
        _average([buffer for buffer in model.buffers() if buffer.is_floating_point()])


def _average(tensors: Sequence[Tensor]) -> None:
    if not tensors:
        return
    together = torch.cat([tensor.flatten() for tensor in tensors])
    dist.all_reduce(together)
    parts = (together / num_ranks()).split([tensor.numel() for tensor in tensors])
    for tensor, part in zip(tensors, parts, strict=True):
        tensor.copy_(part.view_as(tensor))
