"""ir-CSN (Tran et al., ICCV 2019): a residual network whose 3×3×3 convolutions see one channel each.

"Interaction-reduced": channels meet only in the 1×1×1 convolutions before and after.
"""

from collections import OrderedDict

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from mule.core.errors import RangeError
from mule.features.pooling import FeatureMaps

STAGES = ("res2", "res3", "res4", "res5")
NUM_BLOCKS = {101: (3, 4, 23, 3), 152: (3, 8, 36, 3)}
STAGE_WIDTHS = (256, 512, 1024, 2048)
STEM_WIDTH = 64


class Stem(nn.Module):
    """conv1 and pool1: a quarter of the rows and columns, every frame."""

    def __init__(self, norm_eps: float) -> None:
        super().__init__()
        self.conv = nn.Conv3d(3, STEM_WIDTH, (3, 7, 7), stride=(1, 2, 2), padding=(1, 3, 3), bias=False)
        self.norm = nn.BatchNorm3d(STEM_WIDTH, eps=norm_eps)

    def forward(self, x: Tensor) -> Tensor:
        """The first feature map."""
        x = F.relu(self.norm(self.conv(x)), inplace=True)
        return F.max_pool3d(x, kernel_size=(1, 3, 3), stride=(1, 2, 2), padding=(0, 1, 1))


class Bottleneck(nn.Module):
    """Residual block: 1×1×1, then 3×3×3 within each channel, then 1×1×1."""

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

    def forward(self, x: Tensor) -> Tensor:
        """The input plus what the three convolutions add to it."""
        y = F.relu(self.a_norm(self.a(x)), inplace=True)
        y = F.relu(self.b_norm(self.b(y)), inplace=True)
        y = self.c_norm(self.c(y))
        y += self.shortcut(x)
        return F.relu(y, inplace=True)


class CSN(nn.Module):
    """Stem and res2 to res5; from res3 on each stage halves rows, columns and frames.

    `res5_stride` is that of rows and columns: 1 keeps the map at a sixteenth of the input, as mmaction2's
    AVA detectors do (with dilation 1). `norm_eps` is 1e-5 in pytorchvideo's weights and 1e-3 in mmaction2's.
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
        strides = ((1, 1, 1), (2, 2, 2), (2, 2, 2), (2, res5_stride, res5_stride))
        dilations = (1, 1, 1, res5_dilation)
        width = STEM_WIDTH
        self.conv1 = Stem(norm_eps)
        self.stages = nn.ModuleDict()
        for index, stage in enumerate(STAGES):
            blocks: OrderedDict[str, nn.Module] = OrderedDict()
            for block in range(NUM_BLOCKS[depth][index]):
                blocks[str(block)] = Bottleneck(
                    width,
                    STAGE_WIDTHS[index],
                    stride=(1, 1, 1) if block else strides[index],
                    dilation=dilations[index],
                    norm_eps=norm_eps,
                )
                width = STAGE_WIDTHS[index]
            self.stages[stage] = nn.Sequential(blocks)
        self.stride = 16 * res5_stride
        self.channels = width
        self.head = None if num_classes is None else nn.Linear(width, num_classes)
        self._initialise()
        # on a CPU this layout takes a tenth to a half off the time
        nn.utils.convert_conv3d_weight_memory_format(self, torch.channels_last_3d)

    def forward(self, clips: Float[Tensor, "clips 3 frames rows cols"]) -> FeatureMaps:
        """The map of res5, with an eighth of the frames."""
        x = self.conv1(clips)
        for stage in STAGES:
            x = self.stages[stage](x)
        return FeatureMaps(maps=(x,), stride=self.stride)

    def logits(self, features: FeatureMaps) -> Float[Tensor, "clips classes"]:
        """The scores of the classification head, before softmax, for the average over time and space."""
        if self.head is None:
            raise RangeError("logits need a classification head; there is none. Build CSN with num_classes.")
        return self.head(features.maps[0].mean(dim=(2, 3, 4)))

    def _initialise(self) -> None:
        """He initialisation, and residual branches that start at zero."""
        for module in self.modules():
            if isinstance(module, nn.Conv3d):
                nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")
            elif isinstance(module, nn.Linear):
                nn.init.normal_(module.weight, std=0.01)
            elif isinstance(module, Bottleneck):
                nn.init.zeros_(module.c_norm.weight)
