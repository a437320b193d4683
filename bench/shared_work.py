"""Share of a backbone's multiply-adds that a window could reuse, exactly, from earlier windows.

    python -m bench.shared_work

A frame of a convolution's output can be reused if an earlier window contains the same one. The benchmark
finds these frames by experiment: each frame of a clip in turn is noise while all others are zero, and the
responses identify a frame of the output. ReLU and max pooling are made linear, so that they hide no response.
Frames are small, because only time matters; the multiply-adds of each convolution are counted at full size.
"""

from collections.abc import Callable, Iterator
from copy import deepcopy
from dataclasses import dataclass
from typing import Any, TypeVar
from unittest.mock import patch

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from bench.backbones import seeded
from mule.features.backbones.i3d import I3D
from mule.features.backbones.slowfast import SlowFast, Variant
from mule.features.backbones.x3d import FACTORS, X3D
from mule.features.weights.card import Backbone

STEPS_FRAMES = (30, 16, 8, 4, 2)
SMALL_PX = 32
ROUNDING = 1e-9
Seen = TypeVar("Seen")
Sizes = int | tuple[int, ...]
WHY = """\
The table shows the share of a window's multiply-adds that earlier windows have already computed, down to
the last sum, by the number of video frames from one window to the next (30 frames are AVA's second).

Windows always share pixels: each frame is decoded and scaled once. They share little else. A frame near
the edge of a clip sees zeros where another clip sees frames, and each convolution along time widens that
edge. In SlowFast, windows one second apart do not take the same Slow frames (15 Fast frames are not a
multiple of four), and from res2 on Slow frames are joined with Fast ones. X3D averages over the whole clip
from its first block on. I3D could save more, but its windows would have to keep the output of every
convolution up to mixed_3c, the last digits of features would depend on the windows before, and a compiled
network, which takes whole clips, could not do it. MULE therefore computes every window completely."""


@dataclass(frozen=True)
class Case:
    """A backbone and its clips: number of frames, stride in the video, size."""

    what: str
    backbone: Backbone
    num_frames: int
    stride_frames: int
    size: tuple[int, int]


def cases() -> list[Case]:
    """SlowFast on AVA's clips with both choices of Slow frames; I3D and X3D as published."""
    torch.manual_seed(0)
    every_fourth = Variant(slow_spans_clip=False)
    networks = {
        "SlowFast R50, 32 frames, every second one": SlowFast(res5_stride=1, res5_dilation=2),
        "the same, Slow takes every fourth": SlowFast(every_fourth, res5_stride=1, res5_dilation=2),
        "I3D, 64 consecutive frames": I3D(),
        "X3D-M, 16 frames, every fifth one": X3D(FACTORS["M"]),
    }
    clips = [(32, 2, (256, 340)), (32, 2, (256, 340)), (64, 1, (224, 224)), (16, 5, (224, 224))]
    return [
        Case(what, seeded(network), *clip)
        for (what, network), clip in zip(networks.items(), clips, strict=True)
    ]


def table() -> Iterator[str]:
    """Yield the lines of the table: a row per backbone, a column per step."""
    steps = " | ".join(f"{step} frames" for step in STEPS_FRAMES)
    yield f"| backbone and clip | G multiply-adds | {steps} |"
    yield "|---|---|" + "---|" * len(STEPS_FRAMES)
    for case in cases():
        work, answers = multiply_adds(case), linear_answers(case)
        total = sum(work.values())
        shares = [shared_work(case, step, work, answers) / total for step in STEPS_FRAMES]
        cells = " | ".join(f"{share:.1%}" for share in shares)
        yield f"| {case.what} | {total / 1e9:.1f} | {cells} |"


def multiply_adds(case: Case) -> dict[str, int]:
    """Count the multiply-adds of each convolution for one full-size clip, without computing it."""
    clip = torch.zeros(1, 3, case.num_frames, *case.size, device="meta")
    return seen_on_the_way(
        deepcopy(case.backbone).to("meta"),
        clip,
        lambda conv, output: output.numel() * conv.get_parameter("weight")[0].numel(),
    )


def shared_work(case: Case, step_frames: int, work: dict[str, int], answers: dict[str, Tensor]) -> float:
    """Count the multiply-adds for output frames that an earlier window contains."""
    span, stride = case.num_frames * case.stride_frames, case.stride_frames
    shifts = [before // stride for before in range(step_frames, span, step_frames) if before % stride == 0]
    num_shared = 0.0
    for name, answer in answers.items():
        is_shared = torch.zeros(len(answer), dtype=torch.bool)
        for shift in shifts:
            is_shared |= found_earlier(answer, shift)
        num_shared += work[name] * is_shared.double().mean().item()
    return num_shared


def found_earlier(answer: Tensor, shift: int) -> Tensor:
    """Mark output frames whose responses equal those of a window `shift` clip frames earlier."""
    ours, theirs = F.pad(answer, (shift, 0)), F.pad(answer, (0, shift))
    return ((ours[:, None] - theirs).abs() <= ROUNDING * answer.abs().max()).all(-1).any(1)


def linear_answers(case: Case) -> dict[str, Tensor]:
    """Return, per convolution, the response of each output frame (rows) to each clip frame (columns)."""
    num_frames, generator = case.num_frames, torch.Generator().manual_seed(0)
    noise = torch.randn(3, SMALL_PX, SMALL_PX, 1, dtype=torch.float64, generator=generator)
    clips = torch.zeros(num_frames + 1, 3, num_frames, SMALL_PX, SMALL_PX, dtype=torch.float64)
    clips[:num_frames].diagonal(dim1=0, dim2=2).copy_(noise.expand(-1, -1, -1, num_frames))

    def answer(_: nn.Module, output: Tensor) -> Tensor:
        where = torch.randn(output[0, :, 0].shape, dtype=torch.float64, generator=generator)
        seen = torch.einsum("nctij,cij->tn", output, where)
        return seen[:, :-1] - seen[:, -1:]  # without the response to the biases alone

    linear = patch.multiple(F, relu=lambda x, inplace=False: x, max_pool3d=mean_pool)  # noqa: ARG005
    with linear:
        return seen_on_the_way(deepcopy(case.backbone).double(), clips, answer)


def mean_pool(x: Tensor, kernel_size: Sizes, stride: Sizes, padding: Sizes = 0) -> Tensor:
    """Like `F.avg_pool3d`, which refuses maps that are smaller than the kernel before padding."""
    sides = padding if isinstance(padding, tuple) else (padding,) * 3
    padded = F.pad(x, [side for side in reversed(sides) for _ in range(2)])
    return F.avg_pool3d(padded, kernel_size, stride)


@torch.inference_mode()
def seen_on_the_way(
    backbone: nn.Module, clips: Tensor, look: Callable[[nn.Module, Tensor], Seen]
) -> dict[str, Seen]:
    """Apply `look` to each convolution's output, and return the results by the convolution's name."""
    seen: dict[str, Seen] = {}

    def looking_at(name: str) -> Callable[[nn.Module, object, Any], None]:
        return lambda conv, _, output: seen.update({name: look(conv, output)})

    for name, module in backbone.named_modules():
        if isinstance(module, nn.Conv3d):
            module.register_forward_hook(looking_at(name))
    backbone(clips)
    return seen


def main() -> None:
    print(*table(), "", WHY, sep="\n")


if __name__ == "__main__":
    main()
