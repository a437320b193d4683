"""Which share of a backbone's multiply-adds a window could take over, exactly, from the windows before it.

    python -m bench.shared_work

A frame of a convolution's output need not be computed again if an earlier window holds the same one. Which are the
same is found by looking, not by reasoning: each frame of a clip in turn is noise and all others are zero, and a
frame of an output is known by how it answers to each. So that no answer is hidden, ReLU and max pooling are made
linear for this. Frames are small, as only time matters; each convolution then weighs as much as it does at full size.
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
from mule.features.weights.cards import Backbone

STEPS_FRAMES = (30, 16, 8, 4, 2)
SMALL_PX = 32
ROUNDING = 1e-9
Seen = TypeVar("Seen")
Sizes = int | tuple[int, ...]
WHY = """\
Multiply-adds of a window that its predecessors have computed already, to the last sum, by the frames of the video from
one window to the next (30: AVA's second). What is shared from the start are pixels: each frame is decoded and scaled
once. Beyond them little is. A frame near the edge of a clip sees zeros where another clip sees frames, and each
convolution along time makes that edge wider. SlowFast's Slow frames of windows a second apart are not the same frames
(15 Fast frames are no multiple of four), and from res2 on they are joined with Fast ones. X3D averages over the whole clip
from its first block on. I3D could save more, but its windows would have to keep the output of every convolution up
to mixed_3c, the last digits of features would come to depend on which windows came before, and a compiled network,
which takes whole clips, could not do it. So windows are computed whole."""


@dataclass(frozen=True)
class Case:
    """A backbone, and its clips: how many frames, how far apart in the video, how large."""

    what: str
    backbone: Backbone
    num_frames: int
    stride_frames: int
    size: tuple[int, int]


def cases() -> list[Case]:
    """SlowFast on AVA's clips, with either choice of Slow frames, and what I3D and X3D were published with."""
    torch.manual_seed(0)
    every_fourth = Variant(slow_spans_clip=False)
    networks = {
        "SlowFast R50, 32 frames, each second one": SlowFast(res5_stride=1, res5_dilation=2),
        "the same, every fourth for Slow": SlowFast(every_fourth, res5_stride=1, res5_dilation=2),
        "I3D, 64 frames in a row": I3D(),
        "X3D-M, 16 frames, each fifth one": X3D(FACTORS["M"]),
    }
    clips = [(32, 2, (256, 340)), (32, 2, (256, 340)), (64, 1, (224, 224)), (16, 5, (224, 224))]
    return [
        Case(what, seeded(network), *clip)
        for (what, network), clip in zip(networks.items(), clips, strict=True)
    ]


def table() -> Iterator[str]:
    """The lines of a table: a row per backbone, a column per step."""
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
    """Of each convolution, for one clip of full size; nothing is computed."""
    clip = torch.zeros(1, 3, case.num_frames, *case.size, device="meta")
    return seen_on_the_way(
        deepcopy(case.backbone).to("meta"),
        clip,
        lambda conv, output: output.numel() * conv.get_parameter("weight")[0].numel(),
    )


def shared_work(case: Case, step_frames: int, work: dict[str, int], answers: dict[str, Tensor]) -> float:
    """How many of the multiply-adds go into frames of outputs that any earlier window holds."""
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
    """Which frames of an output answer as another does in the window so many frames of the clip before."""
    ours, theirs = F.pad(answer, (shift, 0)), F.pad(answer, (0, shift))
    return ((ours[:, None] - theirs).abs() <= ROUNDING * answer.abs().max()).all(-1).any(1)


def linear_answers(case: Case) -> dict[str, Tensor]:
    """How each frame of each convolution's output (rows) answers to each frame of the clip (columns)."""
    num_frames, generator = case.num_frames, torch.Generator().manual_seed(0)
    noise = torch.randn(3, SMALL_PX, SMALL_PX, 1, dtype=torch.float64, generator=generator)
    clips = torch.zeros(num_frames + 1, 3, num_frames, SMALL_PX, SMALL_PX, dtype=torch.float64)
    clips[:num_frames].diagonal(dim1=0, dim2=2).copy_(noise.expand(-1, -1, -1, num_frames))

    def answer(_: nn.Module, output: Tensor) -> Tensor:
        where = torch.randn(output[0, :, 0].shape, dtype=torch.float64, generator=generator)
        seen = torch.einsum("nctij,cij->tn", output, where)
        return seen[:, :-1] - seen[:, -1:]  # less what biases alone give

    linear = patch.multiple(F, relu=lambda x, inplace=False: x, max_pool3d=mean_pool)  # noqa: ARG005
    with linear:
        return seen_on_the_way(deepcopy(case.backbone).double(), clips, answer)


def mean_pool(x: Tensor, kernel_size: Sizes, stride: Sizes, padding: Sizes = 0) -> Tensor:
    """What `F.avg_pool3d` gives; that one refuses maps smaller than the kernel before they are padded."""
    sides = padding if isinstance(padding, tuple) else (padding,) * 3
    padded = F.pad(x, [side for side in reversed(sides) for _ in range(2)])
    return F.avg_pool3d(padded, kernel_size, stride)


@torch.inference_mode()
def seen_on_the_way(
    backbone: nn.Module, clips: Tensor, look: Callable[[nn.Module, Tensor], Seen]
) -> dict[str, Seen]:
    """What a look at each convolution's output gives, by the convolution's name."""
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
