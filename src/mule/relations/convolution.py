"""A convolution between maps of one width whose weight gradient, on a CPU, is a matrix product per place in the kernel."""

from typing import Any

import torch
import torch.nn.functional as F
from jaxtyping import Float
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
