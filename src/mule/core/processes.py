"""The device of a process, and several processes that train as one.

Every rank sees its share of the batch, and averages are weighted so that every actor counts alike on any rank.
`torchrun` starts the processes; without it there is one. The numbers are those of one process with the whole batch, with
two exceptions: each rank draws its own dropout, and unless batch norms are frozen or synchronised (`SyncBatchNorm` exists
for GPUs only), each rank normalises by its own share.

`gather_actors` gathers rows across ranks, with gradients.
"""

import os
from collections.abc import Generator, Iterable, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from jaxtyping import Shaped
from torch import Tensor, nn

from mule.core.errors import FileError, MuleError, RangeError
from mule.core.locks import FolderInUseError, only_writer

FIRST = 0


def own_device() -> torch.device:
    """Return the device of this process: the GPU of its local rank, or the CPU where no GPU is visible.

    CUDA_VISIBLE_DEVICES chooses among GPUs; an empty value hides them all.

    Raises:
        RangeError: there are more processes on this machine than GPUs.
    """
    if not torch.cuda.is_available():
        return torch.device("cpu")
    local_rank = int(os.environ.get("LOCAL_RANK", "0"))
    if local_rank >= torch.cuda.device_count():
        raise RangeError(
            f"every process must have a GPU of its own; this machine has {torch.cuda.device_count()} and process "
            f"{local_rank} has none. Lower --nproc-per-node."
        )
    return torch.device("cuda", local_rank)


@contextmanager
def processes() -> Generator[torch.device]:
    """Join the processes that `torchrun` started, for the length of the context, and yield this one's device.

    Raises:
        RangeError: there are more processes on this machine than GPUs.
    """
    device = own_device()
    has_gpu = device.type == "cuda"
    if has_gpu:
        torch.cuda.set_device(device)  # objects and barriers travel by the current GPU
    if "WORLD_SIZE" not in os.environ or dist.is_initialized():
        yield device
        return
    dist.init_process_group("nccl" if has_gpu else "gloo", device_id=device if has_gpu else None)
    try:
        yield device
    finally:
        dist.destroy_process_group()


@contextmanager
def only_writers(folder: Path) -> Generator[list[str]]:
    """Be the only processes that write into a folder, for the length of the context; see `only_writer`.

    The first one holds the lock. If it is refused, so are all.

    Raises:
        FolderInUseError: another process writes into it.
        FileError: the folder cannot be made or written.
    """
    with ExitStack() as stack:
        notes: list[str] = []
        refusal: MuleError | None = None
        if is_first():
            try:
                notes = stack.enter_context(only_writer(folder))
            except (FolderInUseError, FileError) as error:
                refusal = error
        refusal = everyones(refusal)[FIRST]
        if refusal is not None:
            raise refusal
        yield notes


def own_rank() -> int:
    """Return the number of this process, from 0."""
    return dist.get_rank() if num_ranks() > 1 else FIRST


def is_first() -> bool:
    """Whether this process writes files and reports to the listener."""
    return own_rank() == FIRST


def wait_for_all() -> None:
    """Wait until every process has reached this call."""
    if num_ranks() > 1:
        dist.barrier()


def over_ranks(value: float, device: torch.device, *, least: bool = False) -> float:
    """Return the sum (or the least) of a number over ranks, the same on every rank."""
    if num_ranks() == 1:
        return value
    total = torch.tensor(value, dtype=torch.float64, device=device)
    dist.all_reduce(total, op=dist.ReduceOp.MIN if least else dist.ReduceOp.SUM)
    return total.item()


def everyones(thing: Any) -> list[Any]:  # noqa: ANN401 - anything that pickles
    """Return the objects of all ranks, in rank order, on every rank."""
    if num_ranks() == 1:
        return [thing]
    things: list[Any] = [None] * num_ranks()
    dist.all_gather_object(things, thing)
    return things


def gathered(rows: Shaped[Tensor, "actors ..."]) -> Shaped[Tensor, "all_actors ..."]:
    """Return the rows of all ranks, without gradients; boolean rows too."""
    if rows.dtype == torch.bool:
        return gather_actors(rows.to(torch.uint8)).bool()
    return gather_actors(rows.detach())


@torch.no_grad()
def share_weights(model: nn.Module) -> None:
    """Copy the weights and buffers of the first rank to all others."""
    if num_ranks() > 1:
        for tensor in model.state_dict().values():
            dist.broadcast(tensor, src=FIRST)


@torch.no_grad()
def average_gradients(parameters: Iterable[Tensor]) -> None:
    """Replace each gradient by its mean over ranks; a rank without one counts as zero, unless no rank has one."""
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
    """Replace running statistics by their mean over ranks, so that all ranks hold the same model."""
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


def num_ranks() -> int:
    """Return the number of processes that train together."""
    return dist.get_world_size() if dist.is_available() and dist.is_initialized() else 1


def _all_rows(rows: Tensor) -> list[Tensor]:
    """Return each rank's rows, on every rank; ranks may have different numbers of rows, or none."""
    counts = [torch.zeros((), dtype=torch.int64, device=rows.device) for _ in range(num_ranks())]
    dist.all_gather(counts, torch.tensor(len(rows), dtype=torch.int64, device=rows.device))
    most = max(int(count) for count in counts)
    padded = rows.new_zeros((most, *rows.shape[1:]))
    padded[: len(rows)] = rows
    everyone = [torch.empty_like(padded) for _ in counts]
    dist.all_gather(everyone, padded)
    return [theirs[: int(count)] for theirs, count in zip(everyone, counts, strict=True)]


class _Gather(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, rows: Tensor) -> Tensor:  # noqa: ANN401 - torch gives it no type
        gathered = _all_rows(rows)
        ctx.first = sum(len(theirs) for theirs in gathered[: dist.get_rank()])
        ctx.count = len(rows)
        return torch.cat(gathered)

    @staticmethod
    def backward(ctx: Any, *grad_outputs: Tensor) -> Tensor:  # noqa: ANN401
        grad = grad_outputs[0].clone()
        dist.all_reduce(grad)
        return grad[ctx.first : ctx.first + ctx.count]


def gather_actors(rows: Shaped[Tensor, "actors ..."]) -> Shaped[Tensor, "all_actors ..."]:
    """Return the rows of all ranks, in rank order, the same on every rank; with one process, the rows themselves.

    In the backward pass, each rank receives the sum of all ranks' gradients of its rows. So a loss of gathered rows
    that every rank computes alike, averaged over ranks as in DistributedDataParallel, has exactly the gradient of the
    whole batch on one process.

    >>> gather_actors(torch.arange(3.0)).tolist()
    [0.0, 1.0, 2.0]
    """
    if num_ranks() == 1:
        return rows
    return _Gather.apply(rows) if rows.is_floating_point() else torch.cat(_all_rows(rows))


def gather_groups(groups: Shaped[Tensor, " actors"]) -> Shaped[Tensor, " all_actors"]:
    """Return the group numbers of all ranks' actors, made distinct across ranks: clip 0 differs from rank to rank."""
    if num_ranks() == 1:
        return groups
    return gather_actors(groups * num_ranks() + dist.get_rank())


def mean_over_ranks(value: float | None, *, device: torch.device) -> float | None:
    """Return the mean over the ranks that have a value, bit-identical on every rank; None if none has."""
    if num_ranks() == 1:
        return value
    total = torch.tensor([value or 0.0, float(value is not None)], dtype=torch.float64, device=device)
    dist.all_reduce(total)
    return (total[0] / total[1]).item() if total[1] > 0 else None
