"""X3D (Feichtenhofer, CVPR 2020): a thin residual network, widened and deepened step by step.

Each pair of factors is one network; XS, S and M differ only in their clips:

            width  depth   frames × stride   pixels   parameters
    XS, S, M  2.0    2.2   4×12 13×6 16×5   160 160 224   3.79 M
    L         2.0    5.0   16×5             312           6.15 M
    XL        2.9    5.0   16×5             312          11.10 M
"""

import math
from collections import OrderedDict

import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from mule.core.errors import RangeError
from mule.features.backbones.residual import STAGES, ResidualBlock, initialise_residual
from mule.features.pooling import FeatureMaps

_NUM_BLOCKS = (1, 2, 5, 3)  # before the depth factor
_STAGE_WIDTHS = (12, 24, 48, 96)  # before the width factor; the stem is as wide as res2
EXPANSION = 2.25  # inner width of a block divided by its outer width
SQUEEZE = 0.0625
HEAD_WIDTH = 2048

FACTORS = {"XS": (2.0, 2.2), "S": (2.0, 2.2), "M": (2.0, 2.2), "L": (2.0, 5.0), "XL": (2.9, 5.0)}
"""Width and depth factor of each published size."""


def rounded_width(width: float) -> int:
    """Return the multiple of eight nearest to a width, at least 8 and at most a tenth below it."""
    rounded = max(8, int(width + 4) // 8 * 8)
    return rounded + 8 if rounded < 0.9 * width else rounded


class SqueezeExcitation(nn.Module):
    """Weights channels by their mean over the whole clip."""

    def __init__(self, width: int) -> None:
        super().__init__()
        squeezed = rounded_width(width * SQUEEZE)
        self.squeeze = nn.Conv3d(width, squeezed, kernel_size=1)
        self.excite = nn.Conv3d(squeezed, width, kernel_size=1)

    def forward(self, x: Tensor) -> Tensor:
        """Multiply each channel by a number between 0 and 1."""
        mean = x.mean(dim=(2, 3, 4), keepdim=True)
        return x * self.excite(F.relu(self.squeeze(mean), inplace=True)).sigmoid()


class InvertedBottleneck(ResidualBlock):
    """1×1×1 to a wider map, 3×3×3 per channel, 1×1×1 back; optionally with squeeze-and-excitation."""

    def __init__(
        self,
        width_in: int,
        width_out: int,
        *,
        stride: int,
        dilation: int,
        squeezes: bool,
        shortcut_norm: bool,
    ) -> None:
        super().__init__()
        inner = int(EXPANSION * width_out)
        self.a = nn.Conv3d(width_in, inner, kernel_size=1, bias=False)
        self.a_norm = nn.BatchNorm3d(inner)
        self.b = nn.Conv3d(
            inner,
            inner,
            kernel_size=3,
            stride=(1, stride, stride),
            padding=(1, dilation, dilation),
            dilation=(1, dilation, dilation),
            groups=inner,
            bias=False,
        )
        self.b_norm = nn.BatchNorm3d(inner)
        self.se = SqueezeExcitation(inner) if squeezes else nn.Identity()
        self.c = nn.Conv3d(inner, width_out, kernel_size=1, bias=False)
        self.c_norm = nn.BatchNorm3d(width_out)
        self.shortcut = nn.Sequential()
        if width_in != width_out or stride != 1:
            self.shortcut.conv = nn.Conv3d(width_in, width_out, 1, stride=(1, stride, stride), bias=False)
            if width_in != width_out or shortcut_norm:
                self.shortcut.norm = nn.BatchNorm3d(width_out)

    def activate(self, y: Tensor) -> Tensor:
        """Apply squeeze-and-excitation and SiLU after `b`."""
        return F.silu(self.se(y), inplace=True)


class X3DStem(nn.Module):
    """conv1: a spatial convolution, then a temporal one per channel."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.spatial = nn.Conv3d(3, width, (1, 3, 3), stride=(1, 2, 2), padding=(0, 1, 1), bias=False)
        self.temporal = nn.Conv3d(width, width, (5, 1, 1), padding=(2, 0, 0), groups=width, bias=False)
        self.norm = nn.BatchNorm3d(width)

    def forward(self, x: Tensor) -> Tensor:
        """Return the first feature map, at half the rows and columns."""
        return F.relu(self.norm(self.temporal(self.spatial(x))), inplace=True)


class X3DHead(nn.Module):
    """Classification head: conv5, average over the clip, and two linear layers."""

    def __init__(self, width: int, num_classes: int) -> None:
        super().__init__()
        inner = int(EXPANSION * width)
        self.conv5 = nn.Conv3d(width, inner, kernel_size=1, bias=False)
        self.conv5_norm = nn.BatchNorm3d(inner)
        self.lin5 = nn.Conv3d(inner, HEAD_WIDTH, kernel_size=1, bias=False)
        self.projection = nn.Linear(HEAD_WIDTH, num_classes)

    def forward(self, x: Tensor) -> Tensor:
        """Return scores before softmax."""
        x = F.relu(self.conv5_norm(self.conv5(x)), inplace=True).mean(dim=(2, 3, 4), keepdim=True)
        return self.projection(F.relu(self.lin5(x), inplace=True).flatten(1))


class X3D(nn.Module):
    """Stem and res2 to res5; every stage halves rows and columns and keeps all frames.

    `res5_stride=1, res5_dilation=2` keeps the map at a sixteenth of the input, so that small actors cover more than
    one cell. `shortcut_norm` adds a batch norm to the shortcut of res2, as in PySlowFast's weights but not in
    pytorchvideo's.
    """

    def __init__(
        self,
        factors: tuple[float, float] = FACTORS["M"],
        *,
        res5_stride: int = 2,
        res5_dilation: int = 1,
        shortcut_norm: bool = False,
        num_classes: int | None = None,
    ) -> None:
        super().__init__()
        width_factor, depth_factor = factors
        strides, dilations = (2, 2, 2, res5_stride), (1, 1, 1, res5_dilation)
        width = rounded_width(_STAGE_WIDTHS[0] * width_factor)
        self.conv1 = X3DStem(width)
        self.stages = nn.ModuleDict()
        for index, stage in enumerate(STAGES):
            wider = rounded_width(_STAGE_WIDTHS[index] * width_factor)
            blocks: OrderedDict[str, nn.Module] = OrderedDict()
            for block in range(math.ceil(_NUM_BLOCKS[index] * depth_factor)):
                blocks[str(block)] = InvertedBottleneck(
                    wider if block else width,
                    wider,
                    stride=1 if block else strides[index],
                    dilation=dilations[index],
                    squeezes=block % 2 == 0,
                    shortcut_norm=shortcut_norm,
                )
            self.stages[stage] = nn.Sequential(blocks)
            width = wider
        self.stride = 16 * res5_stride
        self.channels = width
        self.head = None if num_classes is None else X3DHead(width, num_classes)
        initialise_residual(self)

    def forward(self, clips: Float[Tensor, "clips 3 frames rows cols"]) -> FeatureMaps:
        """Return the map of res5, with all frames of the clip."""
        x = self.conv1(clips)
        for stage in STAGES:
            x = self.stages[stage](x)
        return FeatureMaps(maps=(x,), stride=self.stride)

    def logits(self, features: FeatureMaps) -> Float[Tensor, "clips classes"]:
        """Return the scores of the classification head, before softmax."""
        if self.head is None:
            raise RangeError("logits need a classification head; there is none. Build X3D with num_classes.")
        return self.head(features.maps[0])
