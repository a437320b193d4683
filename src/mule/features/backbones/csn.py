"""ir-CSN (Tran et al., ICCV 2019): a residual network whose 3×3×3 convolutions are depthwise.

"Interaction-reduced": channels are mixed only by the 1×1×1 convolutions before and after.
"""

from collections import OrderedDict

import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from mule.core.errors import RangeError
from mule.features.backbones.residual import STAGES, ResidualBlock, initialise_residual
from mule.features.pooling import FeatureMaps

_NUM_BLOCKS = {26: (2, 2, 2, 2), 101: (3, 4, 23, 3), 152: (3, 8, 36, 3)}
_STAGE_WIDTHS = (256, 512, 1024, 2048)
_STEM_WIDTH = 64


class CsnStem(nn.Module):
    """conv1 and pool1: a quarter of the rows and columns, all frames."""

    def __init__(self, norm_eps: float) -> None:
        super().__init__()
        self.conv = nn.Conv3d(3, _STEM_WIDTH, (3, 7, 7), stride=(1, 2, 2), padding=(1, 3, 3), bias=False)
        self.norm = nn.BatchNorm3d(_STEM_WIDTH, eps=norm_eps)

    def forward(self, x: Tensor) -> Tensor:
        """Return the first feature map."""
        x = F.relu(self.norm(self.conv(x)), inplace=True)
        return F.max_pool3d(x, kernel_size=(1, 3, 3), stride=(1, 2, 2), padding=(0, 1, 1))


class DepthwiseBottleneck(ResidualBlock):
    """Residual block: 1×1×1, then 3×3×3 per channel, then 1×1×1."""

    def __init__(
        self, width_in: int, width_out: int, *, stride: tuple[int, int, int], dilation: int, norm_eps: float
    ) -> None:
        super().__init__()
        inner = width_out // 4
        self.a = nn.Conv3d(width_in, inner, kernel_size=1, bias=False)
        self.a_norm = nn.BatchNorm3d(inner, eps=norm_eps)
        self.b = nn.Conv3d(
            inner,
            inner,
            kernel_size=3,
            stride=stride,
            padding=(1, dilation, dilation),
            dilation=(1, dilation, dilation),
            groups=inner,
            bias=False,
        )
        self.b_norm = nn.BatchNorm3d(inner, eps=norm_eps)
        self.c = nn.Conv3d(inner, width_out, kernel_size=1, bias=False)
        self.c_norm = nn.BatchNorm3d(width_out, eps=norm_eps)
        self.shortcut = nn.Identity()
        if width_in != width_out or stride != (1, 1, 1):
            conv = nn.Conv3d(width_in, width_out, kernel_size=1, stride=stride, bias=False)
            norm = nn.BatchNorm3d(width_out, eps=norm_eps)
            self.shortcut = nn.Sequential(OrderedDict(conv=conv, norm=norm))


class CSN(nn.Module):
    """Stem and res2 to res5; from res3 on each stage halves rows, columns and frames.

    `res5_stride=1` keeps the map at a sixteenth of the input, as in mmaction2's AVA detectors (with dilation 1).
    `norm_eps` is 1e-5 in pytorchvideo's weights and 1e-3 in mmaction2's.
    """

    def __init__(
        self,
        depth: int = 152,
        *,
        res5_stride: int = 2,
        res5_dilation: int = 1,
        norm_eps: float = 1e-3,
        num_classes: int | None = None,
    ) -> None:
        super().__init__()
        if depth not in _NUM_BLOCKS:
            raise RangeError(f"depth must be one of {', '.join(map(str, _NUM_BLOCKS))}; got {depth}.")
        strides = ((1, 1, 1), (2, 2, 2), (2, 2, 2), (2, res5_stride, res5_stride))
        dilations = (1, 1, 1, res5_dilation)
        width = _STEM_WIDTH
        self.conv1 = CsnStem(norm_eps)
        self.stages = nn.ModuleDict()
        for index, stage in enumerate(STAGES):
            blocks: OrderedDict[str, nn.Module] = OrderedDict()
            for block in range(_NUM_BLOCKS[depth][index]):
                blocks[str(block)] = DepthwiseBottleneck(
                    width,
                    _STAGE_WIDTHS[index],
                    stride=(1, 1, 1) if block else strides[index],
                    dilation=dilations[index],
                    norm_eps=norm_eps,
                )
                width = _STAGE_WIDTHS[index]
            self.stages[stage] = nn.Sequential(blocks)
        self.stride = 16 * res5_stride
        self.channels = width
        self.head = None if num_classes is None else nn.Linear(width, num_classes)
        initialise_residual(self)

    def forward(self, clips: Float[Tensor, "clips 3 frames rows cols"]) -> FeatureMaps:
        """Return the map of res5, with an eighth of the frames."""
        x = self.conv1(clips)
        for stage in STAGES:
            x = self.stages[stage](x)
        return FeatureMaps(maps=(x,), stride=self.stride)

    def logits(self, features: FeatureMaps) -> Float[Tensor, "clips classes"]:
        """Return the scores of the classification head, before softmax, of the average over time and space."""
        if self.head is None:
            raise RangeError("logits need a classification head; there is none. Build CSN with num_classes.")
        return self.head(features.maps[0].mean(dim=(2, 3, 4)))
