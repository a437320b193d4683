"""I3D (Carreira and Zisserman, CVPR 2017): Inception-v1 with 3-D instead of 2-D kernels.

The weights come from TensorFlow, whose "SAME" padding puts the odd pixel on the far side; the padding here does the
same. All maps are non-negative, so zero padding is correct for max pooling.
"""

from collections.abc import Sequence
from typing import Literal

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from mule.core.errors import RangeError
from mule.features.pooling import FeatureMaps

Endpoint = Literal["mixed_4f", "mixed_5c"]

# Channels of the branches 1×1×1 | 1×1×1, 3×3×3 | 1×1×1, 3×3×3 | pool, 1×1×1
MIXED_WIDTHS = {
    "mixed_3b": (64, (96, 128), (16, 32), 32),
    "mixed_3c": (128, (128, 192), (32, 96), 64),
    "mixed_4b": (192, (96, 208), (16, 48), 64),
    "mixed_4c": (160, (112, 224), (24, 64), 64),
    "mixed_4d": (128, (128, 256), (24, 64), 64),
    "mixed_4e": (112, (144, 288), (32, 64), 64),
    "mixed_4f": (256, (160, 320), (32, 128), 128),
    "mixed_5b": (256, (160, 320), (32, 128), 128),
    "mixed_5c": (384, (192, 384), (48, 128), 128),
}
POOL_BEFORE = {"mixed_4b": ((3, 3, 3), (2, 2, 2)), "mixed_5b": ((2, 2, 2), (2, 2, 2))}
MIXED_4F_CHANNELS = 832
STRIDES: dict[Endpoint, int] = {"mixed_4f": 16, "mixed_5c": 32}


def same_padding(sizes: Sequence[int], kernel: Sequence[int], stride: Sequence[int]) -> list[int]:
    """Return the zeros before and after each axis, last axis first, so that n becomes ⌈n / stride⌉ as in TensorFlow."""
    padding: list[int] = []
    for size, k, s in zip(reversed(sizes), reversed(kernel), reversed(stride), strict=True):
        total = max((-(-size // s) - 1) * s + k - size, 0)
        padding += [total // 2, total - total // 2]
    return padding


def same_padded(x: Tensor, kernel: Sequence[int], stride: Sequence[int]) -> Tensor:
    """Return the map with TensorFlow's zeros around it."""
    sizes = [
        int(size) for size in x.shape[2:]
    ]  # while a graph is traced they are tensors, rounded towards zero
    return F.pad(x, same_padding(sizes, kernel, stride))


def same_max_pool(x: Tensor, kernel: tuple[int, int, int], stride: tuple[int, int, int]) -> Tensor:
    """Max-pool non-negative maps with TensorFlow's padding."""
    return F.max_pool3d(same_padded(x, kernel, stride), kernel, stride)


class Unit(nn.Module):
    """Convolution, batch norm without a scale, and ReLU."""

    def __init__(self, width_in: int, width_out: int, kernel: int = 1, stride: int = 1) -> None:
        super().__init__()
        self.conv = nn.Conv3d(width_in, width_out, kernel, stride, bias=False)
        self.norm = nn.BatchNorm3d(width_out, eps=1e-3)

    def forward(self, x: Tensor) -> Tensor:
        """Return a non-negative map."""
        if self.conv.kernel_size != (1, 1, 1):
            x = same_padded(x, self.conv.kernel_size, self.conv.stride)
        return F.relu(self.norm(self.conv(x)), inplace=True)


class Mixed(nn.Module):
    """An Inception block: four branches over one map."""

    def __init__(self, width_in: int, widths: tuple[int, tuple[int, int], tuple[int, int], int]) -> None:
        super().__init__()
        plain, (reduced1, cubic1), (reduced2, cubic2), pooled = widths
        self.plain = Unit(width_in, plain)
        self.cubic1 = nn.Sequential(Unit(width_in, reduced1), Unit(reduced1, cubic1, kernel=3))
        self.cubic2 = nn.Sequential(Unit(width_in, reduced2), Unit(reduced2, cubic2, kernel=3))
        self.pooled = Unit(width_in, pooled)
        self.width = plain + cubic1 + cubic2 + pooled

    def forward(self, x: Tensor) -> Tensor:
        """Return the four branches, concatenated."""
        pooled = F.max_pool3d(x, kernel_size=3, stride=1, padding=1)
        return torch.cat([self.plain(x), self.cubic1(x), self.cubic2(x), self.pooled(pooled)], dim=1)


class I3D(nn.Module):
    """Inception-v1 in space and time, up to `endpoint`.

    mixed_5c (1024 channels, an eighth of the frames, stride 32) feeds the classifier; mixed_4f (832 channels, a quarter
    of the frames, stride 16) covers small actors with more cells. With `also_mixed_4f` its map, averaged over 2 × 2
    cells, is returned beside that of mixed_5c: 1856 channels at stride 32.
    """

    def __init__(
        self,
        endpoint: Endpoint = "mixed_5c",
        *,
        also_mixed_4f: bool = False,
        num_classes: int | None = None,
    ) -> None:
        super().__init__()
        if also_mixed_4f and endpoint != "mixed_5c":
            raise RangeError(f"also_mixed_4f needs the endpoint 'mixed_5c'; got '{endpoint}'.")
        if num_classes is not None and endpoint != "mixed_5c":
            raise RangeError(f"I3D classifies at mixed_5c; got endpoint '{endpoint}'. Leave num_classes out.")
        self.conv_1a = Unit(3, 64, kernel=7, stride=2)
        self.conv_2b = Unit(64, 64)
        self.conv_2c = Unit(64, 192, kernel=3)
        self.mixed = nn.ModuleDict()
        width = 192
        for name, widths in MIXED_WIDTHS.items():
            self.mixed[name] = block = Mixed(width, widths)
            width = block.width
            if name == endpoint:
                break
        self.stride = STRIDES[endpoint]
        self.also_mixed_4f = also_mixed_4f
        self.channels = width + (MIXED_4F_CHANNELS if also_mixed_4f else 0)
        self.head = None if num_classes is None else nn.Conv3d(width, num_classes, kernel_size=1)
        # this memory layout is 10 to 50 % faster on a CPU
        nn.utils.convert_conv3d_weight_memory_format(self, torch.channels_last_3d)

    def forward(self, clips: Float[Tensor, "clips 3 frames rows cols"]) -> FeatureMaps:
        """Return the map of the endpoint, followed by that of mixed_4f with `also_mixed_4f`."""
        finer: tuple[Tensor, ...] = ()
        x = same_max_pool(self.conv_1a(clips), (1, 3, 3), (1, 2, 2))
        x = same_max_pool(self.conv_2c(self.conv_2b(x)), (1, 3, 3), (1, 2, 2))
        for name, block in self.mixed.items():
            if name in POOL_BEFORE:
                x = same_max_pool(x, *POOL_BEFORE[name])
            x = block(x)
            if name == "mixed_4f" and self.also_mixed_4f:
                finer = (F.avg_pool3d(x, (1, 2, 2), ceil_mode=True, count_include_pad=False),)
        return FeatureMaps(maps=(x, *finer), stride=self.stride)

    def logits(self, features: FeatureMaps) -> Float[Tensor, "clips classes"]:
        """Return the scores of the classification head, before softmax: the average over pairs of frames."""
        if self.head is None:
            raise RangeError("logits need a classification head; there is none. Build I3D with num_classes.")
        x = features.maps[0]
        pooled = F.avg_pool3d(x, kernel_size=(min(2, x.shape[2]), x.shape[3], x.shape[4]), stride=1)
        return self.head(pooled).mean(dim=(2, 3, 4))
