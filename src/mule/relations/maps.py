"""Attention between maps of one clip at the same cell: what every kind of relation is stacked from.

    vector ────┐
               ├─ + ─ LeakyReLU ─ 3×3 ─ GroupNorm ─ LeakyReLU ─ max pool ─ relation blocks ─ mean over cells
    W_X · X ───┘

A vector stands for a pair of an actor and an object, for an actor, or for an object (`mule.relations.aco`).
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn
from torch.nn.grad import conv2d_input

from mule.core.errors import RangeError, ShapeError


@dataclass(frozen=True)
class RelationSettings:
    """The sizes of relations; the defaults are those of the authors' released code."""

    width: int = 512
    """Channels of every map after the first, 1×1 convolution."""
    depth: int = 2
    """Relation blocks, one after the other."""
    kernel_size: int = 3
    """Side of every convolution after the first; must be odd."""
    last_kernel_size: int | None = None
    """Side of the last convolution of each relation block; must be odd. By default `kernel_size`."""
    padding: int = 0
    """Cells of zero padding for the first of these; inside relation blocks maps keep their size."""
    is_downsampled: bool = True
    """Whether a 3×3 max pool with stride 2 comes before the relation blocks."""
    is_normalised: bool = True
    """Whether group normalisation follows the first spatial convolution; ACAR has none there."""
    slope: float = 0.1
    """LeakyReLU's slope below zero, outside relation blocks."""
    block_slope: float = 0.3
    """LeakyReLU's slope below zero, inside relation blocks."""
    block_dropout: float = 0.2
    """Dropout probability at the end of each relation block."""
    dropout: float = 0.0
    """Dropout probability of an actor's relational feature."""

    def __post_init__(self) -> None:
        rules = {
            "width and depth must be at least 1": min(self.width, self.depth) >= 1,
            "kernel_size and last_kernel_size must be odd": all(
                each >= 1 and each % 2 == 1 for each in (self.kernel_size, self.last_kernel_side)
            ),
            "padding must not be below 0": self.padding >= 0,
            "slope and block_slope must not be below 0": min(self.slope, self.block_slope) >= 0,
            "dropout and block_dropout must lie in [0, 1)": all(
                0 <= each < 1 for each in (self.dropout, self.block_dropout)
            ),
        }
        broken = [rule for rule, holds in rules.items() if not holds]
        if broken:
            raise RangeError(f"{'; '.join(broken)}; got {self}.")

    @property
    def last_kernel_side(self) -> int:
        """Side of the last convolution of each relation block."""
        return self.kernel_size if self.last_kernel_size is None else self.last_kernel_size


PUBLISHED = RelationSettings()


WIDE = 256
"""At this width and above, matrix products are faster than the convolution's own weight gradient."""

Maps = Float[Tensor, "maps width rows cols"]


class MapConvolution(nn.Conv2d):
    """An `nn.Conv2d` from `width` to `width` channels, without bias, for maps that are channels last in memory.

    On a CPU the weight gradient of wide maps is computed as one matrix product per kernel position.
    """

    def __init__(self, width: int, kernel_size: int, *, padding: int) -> None:
        super().__init__(width, width, kernel_size, padding=padding, bias=False)

    def forward(self, input: Maps) -> Float[Tensor, "maps width new_rows new_cols"]:
        """Return the convolved maps."""
        learns = torch.is_grad_enabled() and self.weight.requires_grad
        if learns and self.in_channels >= WIDE and input.device.type == "cpu":
            return WeightByProducts.apply(input, self.weight, int(self.padding[0]))
        return super().forward(input)


class WeightByProducts(torch.autograd.Function):
    """conv2d with ∂/∂W[:, :, y, x] = Σ over maps and cells of gradient · (maps moved by y, x)ᵀ, as products of matrices."""

    @staticmethod
    @torch.amp.custom_fwd(device_type="cpu")
    def forward(ctx: Any, maps: Maps, weight: Tensor, padding: int) -> Tensor:  # noqa: ANN401 - torch gives it no type
        """Convolve the maps."""
        ctx.save_for_backward(maps, weight)
        ctx.padding = padding
        return F.conv2d(maps, weight, padding=padding)

    @staticmethod
    @torch.amp.custom_bwd(device_type="cpu")
    def backward(ctx: Any, *grad_outputs: Tensor) -> tuple[Tensor | None, Tensor | None, None]:  # noqa: ANN401 - nor here
        """Return the gradients of maps and weight, as far as they are needed."""
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
    """Return the gradient of a square kernel: at each position, its inputs times the gradient of its outputs."""
    gradient = gradient.permute(0, 2, 3, 1)  # (maps, new_rows, new_cols, width_out)
    rows, cols = gradient.shape[1:3]
    inputs = F.pad(maps.permute(0, 2, 3, 1), (0, 0, padding, padding, padding, padding))
    of_outputs = gradient.reshape(-1, gradient.shape[3]).T
    products = [
        of_outputs @ inputs[:, y : y + rows, x : x + cols].reshape(-1, inputs.shape[3])
        for y in range(kernel_size)
        for x in range(kernel_size)
    ]
    return torch.stack(products, dim=2).unflatten(2, (kernel_size, kernel_size))


@dataclass(frozen=True)
class Seats:
    """A seat for every map in a table with one row per clip, as wide as the fullest clip needs.

    Maps keep their order within a clip, so the first maps of a clip have its first seats.
    """

    clip_index: Int[Tensor, " maps"]
    seat: Int[Tensor, " maps"]
    num_clips: int
    num_seats: int

    @staticmethod
    def of(clip_index: Int[Tensor, " maps"], num_clips: int) -> "Seats":
        """Seat maps that belong to these clips."""
        so_far = F.one_hot(clip_index, num_clips).cumsum(dim=0)  # (maps, clips)
        seat = so_far.gather(1, clip_index.unsqueeze(1)).squeeze(1) - 1
        return Seats(clip_index, seat, num_clips, num_seats=int(seat.max()) + 1 if len(seat) else 0)

    @property
    def is_taken(self) -> Bool[Tensor, "clips seats"]:
        """Whether each seat holds a map."""
        table = torch.zeros(self.num_clips, self.num_seats, dtype=torch.bool, device=self.seat.device)
        table[self.clip_index, self.seat] = True
        return table

    def seated(self, maps: Float[Tensor, "maps width rows cols"]) -> Float[Tensor, "clips cells seats width"]:
        """Put the maps of each clip side by side, at every cell; empty seats hold zeros."""
        cells = maps.flatten(2).transpose(1, 2)  # (maps, cells, width)
        table = maps.new_zeros(self.num_clips, cells.shape[1], self.num_seats, cells.shape[2])
        table[self.clip_index, :, self.seat] = cells
        return table

    def risen(self, table: Float[Tensor, "clips cells seats width"]) -> Float[Tensor, "maps width cells"]:
        """Return each map to its flat row; the contents of empty seats are dropped."""
        return table[self.clip_index, :, self.seat].transpose(1, 2)


class RelationBlock(nn.Module):
    """Higher-order relations between maps at the same spatial location (HR2O of Pan et al., CVPR 2021).

    q, k and v are convolutions of the maps. At every cell a map attends to all maps of its clip, itself included:
        att[i, j] = softmax over j of q_i·k_j / √width,    map_i + W·LeakyReLU(GroupNorm(Σ_j att[i, j] v_j))
    """

    def __init__(self, settings: RelationSettings) -> None:
        super().__init__()
        self.slope = settings.block_slope
        width, side, last_side = settings.width, settings.kernel_size, settings.last_kernel_side
        self.query = MapConvolution(width, side, padding=side // 2)
        self.key = MapConvolution(width, side, padding=side // 2)
        self.value = MapConvolution(width, side, padding=side // 2)
        self.norm = nn.GroupNorm(1, width)
        self.out = MapConvolution(width, last_side, padding=last_side // 2)
        self.dropout = nn.Dropout(settings.block_dropout)

    def forward(
        self, maps: Float[Tensor, "maps width rows cols"], *, asking: Seats, asked: Seats
    ) -> tuple[Float[Tensor, "asking width rows cols"], Float[Tensor, "clips cells asking_seats seats"]]:
        """Return the first maps (those that ask) after they attended to all maps, and the weights they gave them."""
        asking_maps = maps[: len(asking.seat)]
        if asked.num_seats == 1 and len(asking.seat) == len(maps):
            # No clip has a second map, so each map sees itself whatever q and k would say: they are left out.
            seen = self.value(maps)
            weights = maps.new_ones(asked.num_clips, maps.shape[2] * maps.shape[3], 1, 1)
        else:
            query = asking.seated(self.query(asking_maps) / maps.shape[1] ** 0.5)
            key, value = asked.seated(self.key(maps)), asked.seated(self.value(maps))
            likeness = query @ key.transpose(2, 3)
            # The lowest finite number, not −∞: where no seat of a clip is taken, −∞ would make NaN of nothing.
            lowest = torch.finfo(likeness.dtype).min
            weights = likeness.masked_fill(~asked.is_taken[:, None, None], lowest).softmax(dim=3)
            seen = asking.risen(weights @ value).unflatten(2, maps.shape[2:])
        return asking_maps + self.dropout(self.out(F.leaky_relu_(self.norm(seen), self.slope))), weights


@dataclass(frozen=True)
class SizedContext:
    """W_X·X of the clips whose maps have one size, channels last."""

    clips: Int[Tensor, " clips"]
    """The numbers of these clips, ascending."""
    maps: Float[Tensor, "clips rows cols width"]


@dataclass(frozen=True)
class SizedAttention:
    """The attention in clips of one size with equally many maps, block by block."""

    rows: Int[Tensor, " maps"]
    """The rows of these maps among all maps."""
    seats: Seats
    weights: tuple[Float[Tensor, "clips cells _asking_seats seats"], ...]


class MapRelations(nn.Module):
    """One vector per map, after maps of the same clip have attended to each other at every cell."""

    def __init__(self, settings: RelationSettings) -> None:
        super().__init__()
        self.settings = settings
        width, kernel_size = settings.width, settings.kernel_size
        self.convolution = MapConvolution(width, kernel_size, padding=settings.padding)
        self.norm = nn.GroupNorm(1, width) if settings.is_normalised else nn.Identity()
        self.pool = nn.MaxPool2d(3, stride=2, padding=1) if settings.is_downsampled else nn.Identity()
        self.blocks = nn.ModuleList(RelationBlock(settings) for _ in range(settings.depth))
        # maps are channels last, so a CPU need not reorder the weights at every pass
        nn.utils.convert_conv2d_weight_memory_format(self, torch.channels_last)

    def forward(
        self,
        vectors: Float[Tensor, "maps width"],
        clip_index: Int[Tensor, " maps"],
        context: tuple[SizedContext, ...],
        *,
        num_asking: int,
    ) -> tuple[Float[Tensor, "asking width"], tuple[SizedAttention, ...]]:
        """Return the first `num_asking` maps, averaged over cells; the other maps are only attended to."""
        related = vectors.new_zeros(num_asking, vectors.shape[1])
        attention: list[SizedAttention] = []
        for part in context:
            for alike in clips_alike(clip_index, part.clips):
                rows = torch.isin(clip_index, alike).nonzero().squeeze(1)
                asking_rows = rows[rows < num_asking]
                maps = self.mapped(vectors[rows], part, clip_index[rows])
                table = torch.searchsorted(alike, clip_index[rows])
                asked = Seats.of(table, len(alike))
                asking = Seats.of(table[: len(asking_rows)], len(alike))
                weights: list[Tensor] = []
                for block in self.blocks:
                    is_last = block is self.blocks[-1]  # in it, only the maps that ask need an answer
                    maps, block_weights = block(maps, asking=asking if is_last else asked, asked=asked)
                    weights.append(block_weights)
                means = maps.mean(dim=(2, 3))
                related = related.to(means.dtype)  # norms widen under autocast
                related = related.index_copy(0, asking_rows, means)
                attention.append(SizedAttention(rows, asked, tuple(weights)))
        return related, tuple(attention)

    def mapped(
        self,
        vectors: Float[Tensor, "maps width"],
        context: SizedContext,
        clip_index: Int[Tensor, " maps"],
    ) -> Float[Tensor, "maps width _rows _cols"]:
        """Spread each vector over the context of its clip and apply a spatial convolution."""
        self._require_large_enough(context.maps)
        # The largest tensor of the pass: made once and changed in place, since no step needs its earlier values.
        spread = context.maps.index_select(0, torch.searchsorted(context.clips, clip_index))
        maps = F.leaky_relu_(spread.add_(vectors[:, None, None]), self.settings.slope)
        maps = F.leaky_relu_(self.norm(self.convolution(maps.movedim(3, 1))), self.settings.slope)
        return self.pool(maps)

    def _require_large_enough(self, context: Float[Tensor, "clips rows cols width"]) -> None:
        rows, cols = context.shape[1:3]
        least = self.settings.kernel_size - 2 * self.settings.padding
        if min(rows, cols) < max(least, 1):
            raise ShapeError(
                f"context maps must have at least {max(least, 1)} rows and columns for kernel_size "
                f"{self.settings.kernel_size} and padding {self.settings.padding}; got {rows} × {cols}. Use a larger "
                "input, or set padding."
            )


def clips_alike(
    clip_index: Int[Tensor, " maps"], clips: Int[Tensor, " clips"]
) -> Iterator[Int[Tensor, " alike"]]:
    """Group the clips that have equally many maps, so that no seat stays empty.

    Attention costs the square of the seats: one crowded clip would make every other clip as expensive as itself.
    """
    num_maps = torch.bincount(clip_index, minlength=int(clips.max()) + 1 if len(clips) else 0)[clips]
    for number in num_maps.unique():
        yield clips[num_maps == number]


def mean_attention(
    attention: tuple[SizedAttention, ...], *, num_asking: int, num_maps: int
) -> Float[Tensor, "asking maps"]:
    """Return the weight each asking map gave to each map, averaged over cells and blocks; zero across clips."""
    mean = torch.zeros(num_asking, num_maps)
    for part in attention:
        clip, seat = part.seats.clip_index, part.seats.seat
        asking = part.rows < num_asking
        is_same_clip = clip[asking, None] == clip
        of_blocks = [
            each.detach().mean(dim=1)[clip[asking, None], seat[asking, None], seat] for each in part.weights
        ]
        mean = mean.to(of_blocks[0])
        mean[part.rows[asking, None], part.rows] = torch.stack(of_blocks).mean(dim=0) * is_same_clip
    return mean
