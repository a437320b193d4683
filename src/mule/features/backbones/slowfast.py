"""SlowFast networks (Feichtenhofer et al., ICCV 2019): Table 1 of that paper, as modules.

frames ──┬── every α-th ──▶ slow: conv1 ─▶ res2 ─▶ res3 ─▶ res4 ─▶ res5 ─▶ 2048 channels
         │                            ▲       ▲       ▲       ▲
         │                       lateral connections, fast to slow
         │                            │       │       │       │
         └────── all ─────▶ fast: conv1 ─▶ res2 ─▶ res3 ─▶ res4 ─▶ res5 ─▶  256 channels
"""

from collections import OrderedDict
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor, nn

from mule.core.errors import RangeError, ShapeError
from mule.features.backbones.residual import STAGES, ResidualBlock, initialise_residual
from mule.features.pooling import FeatureMaps

_NUM_BLOCKS = {50: (3, 4, 6, 3), 101: (3, 4, 23, 3)}
_STAGE_WIDTHS = (256, 512, 1024, 2048)
_STEM_WIDTH = 64
CHANNEL_RATIO = 8  # 1/β: the Fast pathway has this many times fewer channels
SLOW_TEMPORAL_KERNELS = (1, 1, 3, 3)  # the Slow pathway has temporal kernels only from res4 on
FAST_TEMPORAL_KERNELS = (3, 3, 3, 3)


@dataclass(frozen=True)
class Variant:
    """Differences between the SlowFast networks with published weights."""

    depth: int = 50
    """Layers of the residual network: 50 or 101."""
    lateral_kernel: int = 7
    """Frames of the Fast pathway that a lateral connection covers."""
    lateral_norm: bool = True
    """Whether batch norm and ReLU follow the lateral convolution (not in ACAR's R101 and mmaction2)."""
    alpha: int = 4
    """Frames of the Fast pathway per frame of the Slow one."""
    slow_spans_clip: bool = True
    """Whether Slow frames are spread evenly from first to last (PySlowFast, ACAR) or are every α-th (the paper)."""
    num_temporal_blocks_res4: int | None = None
    """Number of first blocks of res4 with temporal kernels; None means all."""
    nonlocal_after_res4: tuple[int, ...] = ()
    """Blocks of the Slow pathway's res4 that are followed by a non-local block."""


R50_8X8 = Variant()
R101_8X8 = Variant(depth=101, lateral_kernel=5)
R101_50_50 = Variant(depth=101, lateral_kernel=5, num_temporal_blocks_res4=6)
R101_50_50_NONLOCAL = Variant(
    depth=101, lateral_kernel=5, num_temporal_blocks_res4=6, nonlocal_after_res4=(6, 13, 20)
)


class Stem(nn.Module):
    """conv1 and pool1: a quarter of the rows and columns, all frames."""

    def __init__(self, channels: int, temporal_kernel: int) -> None:
        super().__init__()
        kernel, padding = (temporal_kernel, 7, 7), (temporal_kernel // 2, 3, 3)
        self.conv = nn.Conv3d(3, channels, kernel, stride=(1, 2, 2), padding=padding, bias=False)
        self.norm = nn.BatchNorm3d(channels)

    def forward(self, x: Tensor) -> Tensor:
        """Return the first feature map of a pathway."""
        x = F.relu(self.norm(self.conv(x)), inplace=True)
        return F.max_pool3d(x, kernel_size=(1, 3, 3), stride=(1, 2, 2), padding=(0, 1, 1))


class TemporalBottleneck(ResidualBlock):
    """Residual block: (time × 1 × 1), (1 × 3 × 3), (1 × 1 × 1), the middle one with stride or dilation."""

    def __init__(
        self, width_in: int, width_out: int, temporal_kernel: int, stride: int, dilation: int
    ) -> None:
        super().__init__()
        inner = width_out // 4
        kernel, padding = (temporal_kernel, 1, 1), (temporal_kernel // 2, 0, 0)
        self.a = nn.Conv3d(width_in, inner, kernel, padding=padding, bias=False)
        self.a_norm = nn.BatchNorm3d(inner)
        self.b = nn.Conv3d(
            inner,
            inner,
            kernel_size=(1, 3, 3),
            stride=(1, stride, stride),
            padding=(0, dilation, dilation),
            dilation=(1, dilation, dilation),
            bias=False,
        )
        self.b_norm = nn.BatchNorm3d(inner)
        self.c = nn.Conv3d(inner, width_out, kernel_size=1, bias=False)
        self.c_norm = nn.BatchNorm3d(width_out)
        self.shortcut = nn.Identity()
        if width_in != width_out or stride != 1:
            conv = nn.Conv3d(width_in, width_out, 1, stride=(1, stride, stride), bias=False)
            self.shortcut = nn.Sequential(OrderedDict(conv=conv, norm=nn.BatchNorm3d(width_out)))


class NonLocal(nn.Module):
    """Adds to every place a sum over all places, weighted by dot product (Wang et al., CVPR 2018)."""

    def __init__(self, width: int) -> None:
        super().__init__()
        inner = width // 2
        self.theta = nn.Conv3d(width, inner, kernel_size=1)
        self.phi = nn.Conv3d(width, inner, kernel_size=1)
        self.g = nn.Conv3d(width, inner, kernel_size=1)
        self.out = nn.Conv3d(inner, width, kernel_size=1)
        self.norm = nn.BatchNorm3d(width)
        nn.init.zeros_(self.norm.weight)  # starts as the identity

    def forward(self, x: Tensor) -> Tensor:
        """Return the input plus the weighted sum over all places, after 2 × 2 × 2 max pooling."""
        pooled = F.max_pool3d(x, kernel_size=2, stride=2)
        theta, phi, g = (each.flatten(2) for each in (self.theta(x), self.phi(pooled), self.g(pooled)))
        affinity = theta.transpose(1, 2) @ phi / phi.shape[2]  # (clips, places, pooled places)
        attended = (g @ affinity.transpose(1, 2)).unflatten(2, x.shape[2:])
        return x + self.norm(self.out(attended))


class Lateral(nn.Module):
    """Fast to Slow: a convolution with temporal stride that reduces the Fast frames to the Slow rate."""

    def __init__(self, channels: int, variant: Variant) -> None:
        super().__init__()
        kernel, padding = (variant.lateral_kernel, 1, 1), (variant.lateral_kernel // 2, 0, 0)
        stride = (variant.alpha, 1, 1)
        self.conv = nn.Conv3d(channels, 2 * channels, kernel, stride=stride, padding=padding, bias=False)
        self.norm = nn.BatchNorm3d(2 * channels) if variant.lateral_norm else None

    def forward(self, fast: Tensor) -> Tensor:
        """Return the Fast features for the Slow pathway."""
        y = self.conv(fast)
        return y if self.norm is None else F.relu(self.norm(y), inplace=True)


def slow_frame_positions(num_frames: int, variant: Variant) -> Int[Tensor, " frames"]:
    """Return the positions of the Slow pathway's frames in a clip."""
    if num_frames == 0 or num_frames % variant.alpha:
        raise ShapeError(
            f"a SlowFast clip needs a multiple of alpha = {variant.alpha} frames; got {num_frames}. "
            "Cut clips of 32 frames for the 8x8 networks, 64 for 16x8."
        )
    if variant.slow_spans_clip:
        return torch.linspace(0, num_frames - 1, num_frames // variant.alpha).long()
    return torch.arange(0, num_frames, variant.alpha)


def _temporal_kernels(stage: str, kernel: int, variant: Variant) -> list[int]:
    num_blocks = _NUM_BLOCKS[variant.depth][STAGES.index(stage)]
    limit = variant.num_temporal_blocks_res4
    num_temporal = num_blocks if stage != "res4" or limit is None else limit
    return [kernel] * num_temporal + [1] * (num_blocks - num_temporal)


def _stage(
    widths: tuple[int, int],
    temporal_kernels: list[int],
    *,
    stride: int,
    dilation: int,
    nonlocal_after: tuple[int, ...],
) -> nn.Sequential:
    width_in, width_out = widths
    blocks: OrderedDict[str, nn.Module] = OrderedDict()
    for index, temporal_kernel in enumerate(temporal_kernels):
        blocks[str(index)] = TemporalBottleneck(width_in, width_out, temporal_kernel, stride, dilation)
        if index in nonlocal_after:
            blocks[f"nonlocal{index}"] = NonLocal(width_out)
        width_in, stride = width_out, 1
    return nn.Sequential(blocks)


class Pathway(nn.ModuleDict):
    """One column of Table 1: conv1 and res2 to res5 of the Slow or of the Fast pathway."""

    def __init__(self, variant: Variant, *, is_slow: bool, res5_stride: int, res5_dilation: int) -> None:
        thinner = 1 if is_slow else CHANNEL_RATIO
        kernels = SLOW_TEMPORAL_KERNELS if is_slow else FAST_TEMPORAL_KERNELS
        width = _STEM_WIDTH // thinner
        super().__init__({"conv1": Stem(width, temporal_kernel=1 if is_slow else 5)})
        strides, dilations = (1, 2, 2, res5_stride), (1, 1, 1, res5_dilation)
        for index, stage in enumerate(STAGES):
            laterals = 2 * width // CHANNEL_RATIO if is_slow else 0
            widths = (width + laterals, _STAGE_WIDTHS[index] // thinner)
            self[stage] = _stage(
                widths,
                _temporal_kernels(stage, kernels[index], variant),
                stride=strides[index],
                dilation=dilations[index],
                nonlocal_after=variant.nonlocal_after_res4 if is_slow and stage == "res4" else (),
            )
            width = widths[1]


class SlowFast(nn.Module):
    """The two pathways and their lateral connections, optionally with a linear classification head.

    `res5_stride=1, res5_dilation=2` keeps the feature map at a sixteenth of the input, as needed for detection on AVA
    (mmaction2 trains with dilation 1); 2 and 1 give the network of Table 1.
    """

    def __init__(
        self,
        variant: Variant = R50_8X8,
        *,
        res5_stride: int = 2,
        res5_dilation: int = 1,
        num_classes: int | None = None,
    ) -> None:
        super().__init__()
        self.variant = variant
        self.stride = 16 * res5_stride
        self.channels = _STAGE_WIDTHS[-1] + _STAGE_WIDTHS[-1] // CHANNEL_RATIO
        res5 = {"res5_stride": res5_stride, "res5_dilation": res5_dilation}
        self.slow = Pathway(variant, is_slow=True, **res5)
        self.fast = Pathway(variant, is_slow=False, **res5)
        fast_widths = [width // CHANNEL_RATIO for width in (_STEM_WIDTH, *_STAGE_WIDTHS[:-1])]
        self.lateral = nn.ModuleDict(
            {stage: Lateral(width, variant) for stage, width in zip(STAGES, fast_widths, strict=True)}
        )
        self.head = None if num_classes is None else nn.Linear(self.channels, num_classes)
        initialise_residual(self)

    def forward(self, clips: Float[Tensor, "clips 3 frames rows cols"]) -> FeatureMaps:
        """Return the maps of both pathways, Slow first, from clips at the Fast frame rate."""
        positions = slow_frame_positions(clips.shape[2], self.variant).to(clips.device)
        return self.from_pathways(clips.index_select(2, positions), clips)

    def from_pathways(
        self,
        slow: Float[Tensor, "clips 3 _slow_frames rows cols"],
        fast: Float[Tensor, "clips 3 _fast_frames rows cols"],
    ) -> FeatureMaps:
        """Return the maps of both pathways, Slow first, from the frames of each."""
        slow, fast = self.slow["conv1"](slow), self.fast["conv1"](fast)
        for stage in STAGES:
            slow = torch.cat([slow, self.lateral[stage](fast)], dim=1)
            slow, fast = self.slow[stage](slow), self.fast[stage](fast)
        return FeatureMaps(maps=(slow, fast), stride=self.stride)

    def logits(self, features: FeatureMaps) -> Float[Tensor, "clips classes"]:
        """Return the scores of the classification head, before softmax, of the average over time and space."""
        if self.head is None:
            raise RangeError(
                "logits need a classification head; there is none. Build SlowFast with num_classes."
            )
        return self.head(torch.cat([each.mean(dim=(2, 3, 4)) for each in features.maps], dim=1))
