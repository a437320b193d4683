"""A backbone of one convolution, small videos, and features computed the slow and obvious way."""

from fractions import Fraction

import av
import numpy as np
import torch
from torch import nn

from mule.features.cache import Recipe
from mule.features.extraction import FrozenBackbone
from mule.features.pooling import FeatureMaps
from mule.video.clips import ClipShape, clip_window
from mule.video.reading import read_clips, video_facts
from mule.video.transforms import SLOWFAST

RATE = 10


class TinyBackbone(nn.Module):
    """Two pathways of a strided convolution each; `num_seen` counts clips."""

    def __init__(self, gain=1.0):
        super().__init__()
        generator = torch.Generator().manual_seed(7)
        self.conv = nn.Conv3d(3, 5, kernel_size=(1, 8, 8), stride=(1, 8, 8), bias=False)
        self.conv.weight = nn.Parameter(gain * torch.randn(5, 3, 1, 8, 8, generator=generator))
        self.num_seen = 0
        self.eval()

    def forward(self, clips):
        assert torch.is_inference_mode_enabled()
        self.num_seen += len(clips)
        fast = self.conv(clips)
        return FeatureMaps(maps=(fast[:, :3, ::2], fast[:, 3:]), stride=8)


def tiny_recipe(**changes):
    settings = {
        "backbone": "tiny",
        "options": {"width": 5},
        "weights_sha256": "ab" * 32,
        "clip": ClipShape(num_frames=4, stride_frames=2, num_slow_frames=2),
        "short_side_px": 16,
        "normalisation": SLOWFAST,
    }
    return Recipe(**(settings | changes))


def tiny_backbone(gain=1.0, **changes):
    return FrozenBackbone(TinyBackbone(gain), tiny_recipe(**changes))


def render(path, num_frames=60, size=(32, 48), seed=0):
    """A video of moving stripes, different in every frame, at ten frames per second."""
    phase = np.random.default_rng(seed).uniform(0, 6, size=3)
    rows, cols = np.mgrid[: size[0], : size[1]]
    with av.open(str(path), "w") as container:
        stream = container.add_stream("libx264", rate=RATE, options={"g": "12"})
        stream.height, stream.width, stream.pix_fmt = *size, "yuv420p"
        for number in range(num_frames):
            angle = (rows * 0.2 + cols * 0.1 + 0.3 * number)[..., None] + phase
            image = (127.5 + 127.5 * np.sin(angle)).astype(np.uint8)
            container.mux(stream.encode(av.VideoFrame.from_ndarray(image, format="rgb24")))
        container.mux(stream.encode(None))
    return path


def render_images(folder, num_images=12, size=(16, 24)):
    """A folder of numbered pictures (.ppm: a line of text, then bytes)."""
    folder.mkdir()
    generator = np.random.default_rng(3)
    for number in range(num_images):
        pixels = generator.integers(0, 256, size=(*size, 3), dtype=np.uint8)
        header = f"P6 {size[1]} {size[0]} 255\n".encode()
        (folder / f"frame{number:03d}.ppm").write_bytes(header + pixels.tobytes())
    return folder


def every(period_s, until_s):
    return tuple(Fraction(period_s) * i for i in range(int(until_s / Fraction(period_s))))


@torch.inference_mode()
def context_directly(video, times, backbone):
    """One clip at a time, from a video opened anew for each; no batches, parts or files."""
    recipe, rows = backbone.recipe, []
    rate = recipe.frame_rate or video_facts(video).frame_rate
    scale = recipe.normalisation.scale
    mean, std = torch.tensor(recipe.normalisation.mean), torch.tensor(recipe.normalisation.std)
    for time in times:
        window = clip_window(time, recipe.clip, rate)
        (clip,) = read_clips(video, [window], short_side_px=recipe.short_side_px, scaler=recipe.scaler)
        pixels = (clip.frames.permute(0, 2, 3, 1) * scale - mean) / std
        maps = backbone.forward(pixels.permute(3, 0, 1, 2)[None].contiguous()).maps
        rows.append(torch.cat([each[0].mean(dim=1) for each in maps]))
    return torch.stack(rows)
