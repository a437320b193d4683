"""Every process sees the whole batch: gathering actors across ranks, with gradients."""

from typing import Any

import torch
import torch.distributed as dist
from jaxtyping import Shaped
from torch import Tensor


def num_ranks() -> int:
    """How many processes train together; one when none were started."""
    return dist.get_world_size() if dist.is_available() and dist.is_initialized() else 1


def _all_rows(rows: Tensor) -> list[Tensor]:
    """Each rank's rows, on every rank; ranks may have different numbers of rows, or none."""
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
    def forward(ctx: Any, rows: Tensor) -> Tensor:  # noqa: ANN401 - torch hands over whatever context it likes
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
    """The rows of all ranks, in rank order, the same on every rank; with one process, the rows themselves.

    Backwards, each rank receives the sum of what all ranks say about its rows. So a loss of gathered rows that
    every rank computes alike, averaged over ranks as DistributedDataParallel does, has exactly the gradient of
    the whole batch on one process.
    """
    if num_ranks() == 1:
        return rows
    return _Gather.apply(rows) if rows.is_floating_point() else torch.cat(_all_rows(rows))


def gather_groups(groups: Shaped[Tensor, " actors"]) -> Shaped[Tensor, " all_actors"]:
    """Group numbers of all ranks' actors, made distinct across ranks: clip 0 here is not clip 0 there."""
    if num_ranks() == 1:
        return groups
    return gather_actors(groups * num_ranks() + dist.get_rank())


def mean_over_ranks(value: float | None, *, device: torch.device) -> float | None:
    """The mean over the ranks that have a value, to the last bit the same on every rank; None if none has."""
    if num_ranks() == 1:
        return value
    total = torch.tensor([value or 0.0, float(value is not None)], dtype=torch.float64, device=device)
    dist.all_reduce(total)
    return (total[0] / total[1]).item() if total[1] > 0 else None
