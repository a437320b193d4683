"""A SlowFast that can be trained on a laptop: the backbone of the rendered benchmark.

frames ──┬── every α-th ─────────▶ slow: stem ─▶ res2 ─▶ res3 ─▶ 64 channels
         │                                 ▲       ▲
         │                            lateral connections
         │                                 │       │
         └── all, minus their mean ▶ fast: stem ─▶ res2 ─▶ res3 ─▶ 32 channels

Slow sees appearance. Fast sees change: every frame minus the mean of its clip, so a static scene vanishes. Without
this, so small a network would learn the scene before it finds motion.

With `sees_motion`, for static cameras, the scene is not seen at all: Slow also gets frames minus their mean, and Fast
gets the brightness of the previous, the current and the next frame instead of colours.

Maps are at an eighth of the input. After patches of 4 × 4 pixels, convolutions are two-dimensional over
(clips × frames), channels last in memory; a temporal convolution is a 1 × 1 convolution with three outputs per frame:
for itself, the next and the previous frame. On a CPU both are several times faster than small 3-D convolutions.
"""

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from mule.core.errors import ShapeError
from mule.features.pooling import FeatureMaps

PATCH = 4
STRIDE = 2 * PATCH
ALPHA = 4
SLOW_STEM, SLOW_WIDTH = 32, 64
FAST_STEM, FAST_WIDTH = 16, 32

Images = Float[Tensor, "_images _channels _rows _cols"]


class NormalisedConv(nn.Sequential):
    """A convolution that keeps or halves the size, and batch norm."""

    def __init__(self, width_in: int, width_out: int, kernel: int = 1, stride: int = 1) -> None:
        conv = nn.Conv2d(width_in, width_out, kernel, stride, padding=kernel // 2, bias=False)
        super().__init__(conv, nn.BatchNorm2d(width_out))


class TimeConv(nn.Module):
    """A convolution over three frames, with zeros beyond the ends of a clip, and batch norm."""

    def __init__(self, width_in: int, width_out: int) -> None:
        super().__init__()
        self.conv = nn.Conv2d(width_in, 3 * width_out, 1, bias=False)
        self.norm = nn.BatchNorm2d(width_out)

    def forward(self, x: Images, num_frames: int) -> Images:
        """Return the sum of the contributions of each frame and its two neighbours."""
        outputs = self.conv(x).permute(0, 2, 3, 1).unflatten(0, (-1, num_frames))
        to_next, to_itself, to_previous = outputs.chunk(3, dim=4)
        from_previous = F.pad(to_next[:, :-1], (0, 0, 0, 0, 0, 0, 1, 0))
        from_next = F.pad(to_previous[:, 1:], (0, 0, 0, 0, 0, 0, 0, 1))
        return self.norm((to_itself + from_previous + from_next).flatten(0, 1).permute(0, 3, 1, 2))


class PatchStem(nn.Module):
    """Maps pixels to a map at an eighth of their rows and columns; optionally of changes only."""

    def __init__(self, width: int, width_out: int, *, sees_change: bool) -> None:
        super().__init__()
        self.sees_change = sees_change
        self.patches = nn.Conv3d(3, width, (1, PATCH, PATCH), stride=(1, PATCH, PATCH), bias=False)
        self.norm = nn.BatchNorm2d(width)
        self.conv = NormalisedConv(width, width_out, kernel=3, stride=2)

    def forward(self, clips: Float[Tensor, "clips 3 frames rows cols"]) -> Images:
        """Return the first map of a pathway, frame by frame."""
        x = self.patches(clips)
        if self.sees_change:
            x = x - x.mean(dim=2, keepdim=True)  # patches are linear: equals subtracting the mean frame
        frames = x.transpose(1, 2).flatten(0, 1).contiguous(memory_format=torch.channels_last)
        return F.relu(self.conv(F.relu(self.norm(frames), inplace=True)), inplace=True)


class TimeBlock(nn.Module):
    """Residual block: 1 × 1 over three frames or one, then 3 × 3, then 1 × 1."""

    def __init__(self, width_in: int, width_out: int, *, sees_time: bool) -> None:
        super().__init__()
        inner = width_out // 2
        self.a = TimeConv(width_in, inner) if sees_time else NormalisedConv(width_in, inner)
        self.b = NormalisedConv(inner, inner, kernel=3)
        self.c = NormalisedConv(inner, width_out)
        self.shortcut = nn.Identity() if width_in == width_out else NormalisedConv(width_in, width_out)

    def forward(self, x: Images, num_frames: int) -> Images:
        """Return the shortcut of the input plus the residual of the three convolutions."""
        y = F.relu(self.a(x, num_frames) if isinstance(self.a, TimeConv) else self.a(x), inplace=True)
        y = F.relu(self.b(y), inplace=True)
        return F.relu(self.c(y) + self.shortcut(x), inplace=True)


class TinySlowFast(nn.Module):
    """Two pathways with lateral connections; 96 channels at an eighth of the input."""

    def __init__(self, *, sees_motion: bool = False) -> None:
        super().__init__()
        self.sees_motion = sees_motion
        self.stride = STRIDE
        self.channels = SLOW_WIDTH + FAST_WIDTH
        self.slow_stem = PatchStem(SLOW_STEM, SLOW_WIDTH, sees_change=False)
        self.fast_stem = PatchStem(FAST_STEM, FAST_WIDTH, sees_change=not sees_motion)
        self.lateral = nn.ModuleList(NormalisedConv(ALPHA * FAST_WIDTH, FAST_WIDTH) for _ in range(2))
        # as in SlowFast, the Slow pathway has temporal kernels only in its last stage
        self.slow = nn.ModuleList(
            TimeBlock(SLOW_WIDTH + FAST_WIDTH, SLOW_WIDTH, sees_time=sees_time) for sees_time in (False, True)
        )
        self.fast = nn.ModuleList(TimeBlock(FAST_WIDTH, FAST_WIDTH, sees_time=True) for _ in range(2))
        nn.utils.convert_conv2d_weight_memory_format(self, torch.channels_last)

    def forward(self, clips: Float[Tensor, "clips 3 frames rows cols"]) -> FeatureMaps:
        """Return the maps of both pathways, Slow first."""
        num_clips, _, num_frames, rows, cols = clips.shape
        if num_frames == 0 or num_frames % ALPHA or rows % STRIDE or cols % STRIDE:
            raise ShapeError(
                f"TinySlowFast needs a multiple of {ALPHA} frames, and rows and columns that are multiples of "
                f"{STRIDE}; got {num_frames} frames of {rows} × {cols}."
            )
        slow_frames, fast_frames = clips[:, :, ALPHA // 2 :: ALPHA], clips
        if self.sees_motion:  # pixels need no gradient, so their mean is subtracted here and not in the stems
            slow_frames, fast_frames = changes(slow_frames), changes(brightness_around(clips))
        slow, fast = self.slow_stem(slow_frames), self.fast_stem(fast_frames)
        for i in range(2):
            slow = torch.cat([slow, F.relu(self.lateral[i](_side_by_side(fast)), inplace=True)], dim=1)
            slow, fast = self.slow[i](slow, num_frames // ALPHA), self.fast[i](fast, num_frames)
        maps = (each.unflatten(0, (num_clips, -1)).transpose(1, 2) for each in (slow, fast))
        return FeatureMaps(maps=tuple(maps), stride=self.stride)


def changes(
    clips: Float[Tensor, "clips channels frames rows cols"],
) -> Float[Tensor, "clips channels frames rows cols"]:
    """Return every frame minus the mean frame of its clip."""
    return clips - clips.mean(dim=2, keepdim=True)


def brightness_around(
    clips: Float[Tensor, "clips 3 frames rows cols"],
) -> Float[Tensor, "clips 3 frames rows cols"]:
    """Return the brightness of the previous, current and next frame as channels; end frames are repeated."""
    brightness = clips.mean(dim=1)
    padded = torch.cat([brightness[:, :1], brightness, brightness[:, -1:]], dim=1)
    return torch.stack([padded[:, :-2], brightness, padded[:, 2:]], dim=1)


def _side_by_side(fast: Images) -> Images:
    """Return the α Fast frames of each Slow frame as channels."""
    frames = fast.permute(0, 2, 3, 1).unflatten(0, (-1, ALPHA))
    return frames.permute(0, 2, 3, 1, 4).flatten(3).permute(0, 3, 1, 2)
