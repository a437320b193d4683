"""Shared parts of the residual backbones: the order of stages, the residual block and its initialisation."""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

STAGES = ("res2", "res3", "res4", "res5")


class ResidualBlock(nn.Module):
    """A residual block of three convolutions `a`, `b` and `c`, each with a batch norm, and a `shortcut`."""

    a: nn.Conv3d
    a_norm: nn.BatchNorm3d
    b: nn.Conv3d
    b_norm: nn.BatchNorm3d
    c: nn.Conv3d
    c_norm: nn.BatchNorm3d
    shortcut: nn.Module

    def forward(self, x: Tensor) -> Tensor:
        """Return the shortcut of the input plus the residual of the three convolutions."""
        y = F.relu(self.a_norm(self.a(x)), inplace=True)
        y = self.activate(self.b_norm(self.b(y)))
        y = self.c_norm(self.c(y))
        y += self.shortcut(x)
        return F.relu(y, inplace=True)

    def activate(self, y: Tensor) -> Tensor:
        """Apply the nonlinearity after `b`."""
        return F.relu(y, inplace=True)


def initialise_residual(network: nn.Module) -> None:
    """Initialise as the authors do: He initialisation, and residual branches that start at zero.

    Convolutions get the memory layout that is 10 to 50 % faster on a CPU.
    """
    for module in network.modules():
        if isinstance(module, nn.Conv3d):
            nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")
        elif isinstance(module, nn.Linear):
            nn.init.normal_(module.weight, std=0.01)
        elif isinstance(module, ResidualBlock):
            nn.init.zeros_(module.c_norm.weight)
    nn.utils.convert_conv3d_weight_memory_format(network, torch.channels_last_3d)
