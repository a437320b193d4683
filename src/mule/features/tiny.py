"""A SlowFast small enough to be trained on a laptop: the backbone of the rendered benchmark.

frames ── 4 × 4 pixels into channels ──┬── every α-th ──▶ slow: stem ─▶ res2 ─▶ res3 ─▶ 64 channels
                                       │                          ▲       ▲
                                       │                     lateral connections
                                       │                          │       │
                                       └────── all ─────▶ fast: stem ─▶ res2 ─▶ res3 ─▶ 32 channels

Maps lie at an eighth of the input. Convolutions are two-dimensional, over (clips × frames); those along time are
1 × 1 convolutions of a frame stacked with its neighbours. On a CPU both are several times faster than small
three-dimensional ones.
"""

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from mule.errors import ShapeError
from mule.features.maps import FeatureMaps

PATCH = 4
STRIDE = 2 * PATCH
NEIGHBOURS = (-1, 0, 1)
ALPHA = 4
SLOW_WIDTHS = (32, 64, 64)
FAST_WIDTHS = (16, 32, 32)


def with_neighbours(x: Float[Tensor, "images channels rows cols"], num_frames: int) -> Tensor:
    """Each frame with the one before and the one after it, as channels; zeros beyond the clip."""
    frames = x.unflatten(0, (-1, num_frames))
    padded = F.pad(frames, (0, 0, 0, 0, 0, 0, 1, 1))
    return torch.cat([padded[:, 1 + by : 1 + by + num_frames] for by in NEIGHBOURS], dim=2).flatten(0, 1)


class Block(nn.Module):
    """Residual block: three frames × 1 × 1 (or one frame), then 3 × 3, then 1 × 1."""

    def __init__(self, width_in: int, width_out: int, *, stride: int, sees_time: bool) -> None:
        super().__init__()
        inner = width_out // 2
        self.sees_time = sees_time
        self.a = nn.Conv2d(width_in * (len(NEIGHBOURS) if sees_time else 1), inner, 1, bias=False)
        self.a_norm = nn.BatchNorm2d(inner)
        self.b = nn.Conv2d(inner, inner, 3, stride=stride, padding=1, bias=False)
        self.b_norm = nn.BatchNorm2d(inner)
        self.c = nn.Conv2d(inner, width_out, 1, bias=False)
        self.c_norm = nn.BatchNorm2d(width_out)
        self.shortcut = nn.Conv2d(width_in, width_out, 1, stride=stride, bias=False)
        self.shortcut_norm = nn.BatchNorm2d(width_out)

    def forward(self, x: Tensor, num_frames: int) -> Tensor:
        """The input, brought to the new size, plus what the three convolutions add to it."""
        y = F.relu(self.a_norm(self.a(with_neighbours(x, num_frames) if self.sees_time else x)))
        y = F.relu(self.b_norm(self.b(y)))
        return F.relu(self.c_norm(self.c(y)) + self.shortcut_norm(self.shortcut(x)))


class TinySlowFast(nn.Module):
    """Two pathways with lateral connections; 96 channels at an eighth of the input."""

    def __init__(self) -> None:
        super().__init__()
        self.stride = STRIDE
        self.channels = SLOW_WIDTHS[-1] + FAST_WIDTHS[-1]
        slow, fast = SLOW_WIDTHS, FAST_WIDTHS
        self.slow_stem = nn.Conv2d(3 * PATCH**2, slow[0], 3, padding=1, bias=False)
        self.fast_stem = nn.Conv2d(3 * PATCH**2, fast[0], 1, bias=False)
        self.slow_norm, self.fast_norm = nn.BatchNorm2d(slow[0]), nn.BatchNorm2d(fast[0])
        self.lateral = nn.ModuleList([nn.Conv2d(ALPHA * fast[i], fast[i], 1, bias=False) for i in (0, 1)])
        self.lateral_norm = nn.ModuleList([nn.BatchNorm2d(fast[i]) for i in (0, 1)])
        self.slow = nn.ModuleList(
            Block(slow[i] + fast[i], slow[i + 1], stride=2 - i, sees_time=i == 1) for i in (0, 1)
        )
        self.fast = nn.ModuleList(Block(fast[i], fast[i + 1], stride=2 - i, sees_time=True) for i in (0, 1))
        self.to(memory_format=torch.channels_last)

    def forward(self, clips: Float[Tensor, "clips 3 frames rows cols"]) -> FeatureMaps:
        """The maps of both pathways, Slow first."""
        num_fast = clips.shape[2]
        if num_fast == 0 or num_fast % ALPHA or clips.shape[3] % STRIDE or clips.shape[4] % STRIDE:
            raise ShapeError(
                f"TinySlowFast needs a multiple of {ALPHA} frames, and rows and columns that are multiples of "
                f"{STRIDE}; got {tuple(clips.shape[2:])}."
            )
        images = F.pixel_unshuffle(clips.transpose(1, 2).flatten(0, 1), PATCH)
        images = images.contiguous(memory_format=torch.channels_last)
        slow_images = images.unflatten(0, (-1, num_fast))[:, ALPHA // 2 :: ALPHA].flatten(0, 1)
        slow = F.relu(self.slow_norm(self.slow_stem(slow_images)))
        fast = F.relu(self.fast_norm(self.fast_stem(images)))
        for i in (0, 1):
            # α frames of the Fast pathway stand behind each frame of the Slow one
            behind = fast.unflatten(0, (-1, ALPHA)).flatten(1, 2)
            slow = torch.cat([slow, F.relu(self.lateral_norm[i](self.lateral[i](behind)))], dim=1)
            slow, fast = self.slow[i](slow, num_fast // ALPHA), self.fast[i](fast, num_fast)
        maps = (each.unflatten(0, (len(clips), -1)).transpose(1, 2) for each in (slow, fast))
        return FeatureMaps(maps=tuple(maps), stride=self.stride)
