"""A convolution between maps of one width whose weight gradient, on a CPU, is a matrix product per place in the kernel.

Attention between maps of one clip at the same cell: the block that both kinds of relations are stacked from.
"""

from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn
from torch.nn.grad import conv2d_input

WIDE = 256
"""From this width on the products are the faster way; on narrow maps the matrices are too small to gain by them."""

Maps = Float[Tensor, "maps width rows cols"]


class MapConvolution(nn.Conv2d):
    """nn.Conv2d from `width` channels to as many, without bias, made for maps that lie channels last in memory."""

    def __init__(self, width: int, kernel_size: int, *, padding: int) -> None:
        super().__init__(width, width, kernel_size, padding=padding, bias=False)

    def forward(self, input: Maps) -> Float[Tensor, "maps width new_rows new_cols"]:
        """The convolved maps."""
        learns = torch.is_grad_enabled() and self.weight.requires_grad
        if learns and self.in_channels >= WIDE and input.device.type == "cpu":
            return WeightByProducts.apply(input, self.weight, int(self.padding[0]))
        return super().forward(input)


class WeightByProducts(torch.autograd.Function):
    """conv2d with ∂/∂W[:, :, y, x] = Σ over maps and cells of gradient · (maps moved by y, x)ᵀ, as products of matrices."""

    @staticmethod
    @torch.amp.custom_fwd(device_type="cpu")
    def forward(ctx: Any, maps: Maps, weight: Tensor, padding: int) -> Tensor:  # noqa: ANN401 - torch gives it no type
        """What conv2d makes of the maps."""
        ctx.save_for_backward(maps, weight)
        ctx.padding = padding
        return F.conv2d(maps, weight, padding=padding)

    @staticmethod
    @torch.amp.custom_bwd(device_type="cpu")
    def backward(ctx: Any, *grad_outputs: Tensor) -> tuple[Tensor | None, Tensor | None, None]:  # noqa: ANN401 - nor here
        """The gradients of maps and weight, those that are wanted."""
        (maps, weight), (gradient,) = ctx.saved_tensors, grad_outputs
        of_maps = of_weight = None
        if ctx.needs_input_grad[0]:
            of_maps = conv2d_input(maps.shape, weight, gradient, padding=ctx.padding)
        if ctx.needs_input_grad[1]:
            of_weight = weight_gradient(maps, gradient, kernel_size=weight.shape[2], padding=ctx.padding)
        return of_maps, of_weight, None


def weight_gradient(
    maps: Maps, gradient: Float[Tensor, "maps width_out new_rows new_cols"], *, kernel_size: int, padding: int
) -> Float[Tensor, "width_out width kernel_size kernel_size"]:
    """The gradient of a square kernel: at each of its places, what it met times what came back."""
    gradient = gradient.permute(0, 2, 3, 1)  # (maps, new_rows, new_cols, width_out)
    rows, cols = gradient.shape[1:3]
    met = F.pad(maps.permute(0, 2, 3, 1), (0, 0, padding, padding, padding, padding))
    came_back = gradient.reshape(-1, gradient.shape[3]).T
    products = [
        came_back @ met[:, y : y + rows, x : x + cols].reshape(-1, met.shape[3])
        for y in range(kernel_size)
        for x in range(kernel_size)
    ]
    return torch.stack(products, dim=2).unflatten(2, (kernel_size, kernel_size))


@dataclass(frozen=True)
class Seats:
    """A place for every map in a table with one row per clip, as wide as the fullest clip needs.

    Maps keep their order within a clip, so the first maps of a clip have its first seats.
    """

    clip_index: Int[Tensor, " maps"]
    seat: Int[Tensor, " maps"]
    num_clips: int
    num_seats: int

    @staticmethod
    def of(clip_index: Int[Tensor, " maps"], num_clips: int) -> "Seats":
        """The seats of maps that belong to these clips."""
        so_far = F.one_hot(clip_index, num_clips).cumsum(dim=0)  # (maps, clips)
        seat = so_far.gather(1, clip_index.unsqueeze(1)).squeeze(1) - 1
        return Seats(clip_index, seat, num_clips, num_seats=int(seat.max()) + 1 if len(seat) else 0)

    @property
    def is_taken(self) -> Bool[Tensor, "clips seats"]:
        """Which seats hold a map."""
        table = torch.zeros(self.num_clips, self.num_seats, dtype=torch.bool, device=self.seat.device)
        table[self.clip_index, self.seat] = True
        return table

    def seated(self, maps: Float[Tensor, "maps width rows cols"]) -> Float[Tensor, "clips cells seats width"]:
        """At every cell, the maps of a clip beside each other; empty seats hold zeros."""
        cells = maps.flatten(2).transpose(1, 2)  # (maps, cells, width)
        table = maps.new_zeros(self.num_clips, cells.shape[1], self.num_seats, cells.shape[2])
        table[self.clip_index, :, self.seat] = cells
        return table

    def risen(self, table: Float[Tensor, "clips cells seats width"]) -> Float[Tensor, "maps width cells"]:
        """Each map in its flat row again; what empty seats hold is left behind."""
        return table[self.clip_index, :, self.seat].transpose(1, 2)


class RelationBlock(nn.Module):
    """Higher-order relations between maps at the same spatial location (HR2O of Pan et al., CVPR 2021).

    q, k and v are convolutions of the maps. At every cell a map attends to all maps of its clip, itself too:
        att[i, j] = softmax over j of q_i·k_j / √width,    map_i + W·LeakyReLU(GroupNorm(Σ_j att[i, j] v_j))
    """

    def __init__(self, width: int, *, kernel_size: int, slope: float, dropout: float) -> None:
        super().__init__()
        self.slope = slope
        self.query = MapConvolution(width, kernel_size, padding=kernel_size // 2)
        self.key = MapConvolution(width, kernel_size, padding=kernel_size // 2)
        self.value = MapConvolution(width, kernel_size, padding=kernel_size // 2)
        self.norm = nn.GroupNorm(1, width)
        self.out = MapConvolution(width, kernel_size, padding=kernel_size // 2)
        self.dropout = nn.Dropout(dropout)

    def forward(
        self, maps: Float[Tensor, "maps width rows cols"], *, asking: Seats, asked: Seats
    ) -> tuple[Float[Tensor, "asking width rows cols"], Float[Tensor, "clips cells asking_seats seats"]]:
        """The first maps, which ask, after attending to all maps; and the weights they gave them."""
        asking_maps = maps[: len(asking.seat)]
        if asked.num_seats == 1 and len(asking.seat) == len(maps):
            return self._alone(maps, asked)
        query = asking.seated(self.query(asking_maps) / maps.shape[1] ** 0.5)
        key, value = asked.seated(self.key(maps)), asked.seated(self.value(maps))
        likeness = query @ key.transpose(2, 3)
        # The lowest finite number, not −∞: where no seat of a clip is taken, −∞ would make NaN of nothing.
        lowest = torch.finfo(likeness.dtype).min
        weights = likeness.masked_fill(~asked.is_taken[:, None, None], lowest).softmax(dim=3)
        seen = asking.risen(weights @ value).unflatten(2, maps.shape[2:])
        return self._added(asking_maps, seen), weights

    def _alone(
        self, maps: Float[Tensor, "maps width rows cols"], seats: Seats
    ) -> tuple[Float[Tensor, "maps width rows cols"], Float[Tensor, "clips cells 1 1"]]:
        """Where no clip has a second map each sees itself, whatever q and k would say: they are left out."""
        weights = maps.new_ones(seats.num_clips, maps.shape[2] * maps.shape[3], 1, 1)
        return self._added(maps, self.value(maps)), weights

    def _added(
        self, maps: Float[Tensor, "maps width rows cols"], seen: Float[Tensor, "maps width rows cols"]
    ) -> Float[Tensor, "maps width rows cols"]:
        """The maps, and what they saw, in the block's own terms."""
        return maps + self.dropout(self.out(F.leaky_relu_(self.norm(seen), self.slope)))
