"""Backbones on the CPU: eager, compiled and quantised, compared with pytorchvideo and with matrix products.

    python -m bench.backbones

One clip at a time, in float32 unless marked int8. Rivals take turns; then each takes turns with the kernels of
`bench.peak`, whose best rate is the peak of the machine at that moment. pytorchvideo comes from the folders in
MULE_ORACLES (see tests/features/oracles.py) and uses our RoIAlign, because torchvision's does not load with
CPU builds of torch. The cost of eight bits is measured on real weights and videos if MULE_SHARED_DATA (or
shared/data next to the repository) has them.
"""

import contextlib
import csv
import os
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from fractions import Fraction
from functools import cache
from importlib import import_module
from itertools import islice
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn
from torch.utils.flop_counter import FlopCounterMode

from bench.peak import best_rate, kernels
from bench.quantise import agreement
from bench.timing import Comparison, machine, take_turns
from mule.features.backbones.i3d import I3D
from mule.features.backbones.slowfast import SlowFast, slow_frame_positions
from mule.features.backbones.x3d import FACTORS, X3D
from mule.features.pooling import FeatureMaps, box_features, context_map
from mule.features.weights.card import NORMALISATIONS, Backbone
from mule.features.weights.cards import find_card
from mule.features.weights.loading import load_backbone
from mule.runtime.eight_bits import quantised
from mule.runtime.openvino import ClipSize, CompiledBoxFeatures, CompiledNetwork, converted
from mule.video.clips import ClipShape, clip_window
from mule.video.reading import read_clips
from mule.video.transforms import crop, normalised, resize_short_side

Run = Callable[[], object]
BOXES = torch.tensor(
    [[20, 30, 90, 240], [100, 10, 180, 250], [150, 60, 230, 200], [220, 5, 330, 255], [0, 0, 60, 99.0]]
)
OURS, LAST, THEIRS, COMPILED, INT8 = (
    "eager",
    "eager, channels last",
    "pytorchvideo",
    "OpenVINO",
    "OpenVINO int8",
)
NUM_CALIBRATION, NUM_CHOOSING, NUM_TEST = 16, 48, 48
I3D_CLIP = ClipShape(num_frames=32, stride_frames=1, num_slow_frames=32)


@dataclass(frozen=True)
class Case:
    """A backbone, the size of its clips, and how pytorchvideo builds it."""

    what: str
    backbone: Backbone
    size: ClipSize
    theirs: Callable[[Tensor], Callable[[], FeatureMaps]] | None = None


@cache
def cases() -> list[Case]:
    torch.manual_seed(0)
    detector = SlowFast(res5_stride=1, res5_dilation=2)
    return [
        Case("SlowFast R50 8×8, 32 × 256 × 340", seeded(detector), (32, 256, 340), _their_slowfast),
        Case("X3D-M, 16 × 224 × 224", seeded(X3D(FACTORS["M"])), (16, 224, 224), _their_x3d),
        Case("I3D, 64 × 224 × 224", seeded(I3D()), (64, 224, 224)),
    ]


def comparisons() -> list[Comparison]:
    """Time every backbone with the pooling of five boxes: eager, compiled, quantised."""
    return [row for case in cases() for row in _rows(case, _times(case))]


def notes() -> list[str]:
    """Report the share of the matrix-product rate, the agreement of outputs, and the cost of eight bits."""
    return [*(line for case in cases() for line in (_shares(case), _agreement(case))), real_agreement()]


def _rows(case: Case, times: dict[str, float]) -> list[Comparison]:
    what = f"{case.what}, RoI pooling of {len(BOXES)} boxes"
    base, goals = (THEIRS, ("≥ 1", "≥ 1.6")) if THEIRS in times else (OURS, ("", ""))
    pairs = [
        (OURS, THEIRS, goals[0]),
        (COMPILED, base, goals[1]),
        (INT8, base, ""),
        (INT8, COMPILED, ""),
    ]
    return [
        Comparison(f"{what}: {ours}", theirs, times[ours], times[theirs], goal)
        for ours, theirs, goal in pairs
        if theirs in times
    ]


@cache
def _times(case: Case) -> dict[str, float]:
    return take_turns(_rivals(case), seconds=20)


@cache
def _rivals(case: Case) -> dict[str, Run]:
    clip, network = _clip(case), converted(case.backbone, case.size)
    compiled = CompiledBoxFeatures(network)
    int8 = CompiledBoxFeatures(quantised(network, [clip]))
    boxes, whose = BOXES.clamp(max=min(case.size[1:])), torch.zeros(len(BOXES), dtype=torch.long)

    def pooled(forward: Callable[[], FeatureMaps]) -> Run:
        def run() -> Tensor:
            features = forward()
            return box_features(context_map(features), boxes, whose, stride=features.stride)

        return torch.inference_mode()(run)

    rivals: dict[str, Run] = {
        OURS: pooled(lambda: case.backbone(clip)),
        COMPILED: lambda: compiled(clip, boxes, whose),
        INT8: lambda: int8(clip, boxes, whose),
    }
    with contextlib.suppress(pytest.skip.Exception):
        if case.theirs is not None:
            rivals[THEIRS] = pooled(case.theirs(clip))
    return rivals


def _shares(case: Case) -> str:
    """Report arithmetic rates as shares of the machine's peak, measured in turn with them."""
    with torch.inference_mode(), FlopCounterMode(display=False) as counter:
        case.backbone(_clip(case))
    work = counter.get_total_flops()
    among = kernels()
    reached: list[str] = []
    peaks: dict[str, float] = {}
    for name, run in _rivals(case).items():
        times = take_turns({name: run, **{each: kernel for each, (_, kernel) in among.items()}}, seconds=6)
        best, peak = best_rate(times, among)
        peaks[best] = max(peak, peaks.get(best, 0.0))
        reached.append(f"{name} {work / times[name] / peak:.0%}")
    best = max(peaks, key=lambda each: peaks[each])
    return (
        f"* {case.what}: {work / 2e9:.1f} G multiply-adds; share of the machine's float32 peak "
        f"({peaks[best] / 1e9:.0f} GFLOP/s, {best}, the best of {len(among)} kernels): {', '.join(reached)}."
    )


def _agreement(case: Case) -> str:
    """Report how the outputs of the compiled network differ from the eager ones."""
    compiled = CompiledNetwork(converted(case.backbone, case.size))
    difference = agreement(case.backbone, compiled, [(_clip(case), BOXES[:0])])
    return f"* {case.what}: OpenVINO float32 compared with eager: {difference} (goal: 1e-3)."


def real_agreement() -> str:
    """Compare I3D in eight bits with float32, on J-HMDB videos that did not calibrate it."""
    beside = Path(__file__).resolve().parents[2] / "shared" / "data"
    folder = Path(os.environ.get("MULE_SHARED_DATA", beside))
    weights, videos = folder / "backbones" / "i3d_rgb_kinetics400_fp16.pt", folder / "videos" / "jhmdb"
    if not (weights.is_file() and videos.is_dir()):
        return f"* I3D int8 with real weights: skipped, no {weights} or no {videos} (set MULE_SHARED_DATA)."
    backbone = load_backbone(weights, find_card("i3d_rgb_kinetics400"), with_head=True)
    network = converted(backbone, (I3D_CLIP.num_frames, 224, 224))
    clips = _jhmdb_clips(videos)
    int8 = CompiledNetwork(quantised(network, [clip for clip, _ in islice(clips, NUM_CALIBRATION)]))
    # the clips skipped here served to choose the quantisation
    unseen = islice(clips, NUM_CHOOSING, NUM_CHOOSING + NUM_TEST)
    difference = agreement(CompiledNetwork(network), int8, unseen, logits=backbone.logits)
    return (
        f"* I3D int8 compared with float32, Kinetics-400 weights, {NUM_TEST} videos of J-HMDB, calibrated on "
        f"{NUM_CALIBRATION} from other sources: {difference}."
    )


def _jhmdb_clips(folder: Path) -> Iterator[tuple[Tensor, Tensor]]:
    """Yield one clip per source film, actions mixed, with the actor's box after the centre crop."""
    with (folder / "videos.csv").open() as file:
        origin = {row["video"]: row["source_group"] for row in csv.DictReader(file)}
    with (folder / "labels.csv").open() as file:
        first_of = {origin[row["video"]]: row for row in reversed(list(csv.DictReader(file)))}
    normalisation = NORMALISATIONS["plus_minus_one"]
    for group in sorted(first_of, key=lambda name: name[::-1]):
        row = first_of[group]
        window = clip_window(Fraction(row["time_s"]), I3D_CLIP, Fraction(30))
        (clip,) = read_clips(folder / "videos" / row["video"], [window])
        rows, cols = clip.source_size
        box = torch.tensor([[float(row[side]) for side in ("x1", "y1", "x2", "y2")]])
        box = box * torch.tensor([cols, rows, cols, rows])
        frames, boxes = resize_short_side(clip.frames, box, 256)
        top, left = ((side - 224 + 1) // 2 for side in frames.shape[2:])
        frames, boxes = crop(frames, boxes, top=top, left=left, size_px=224)
        yield normalised(frames, normalisation)[None], boxes


def seeded(model):
    """Return the model in evaluation mode, with random norms so that no residual branch is zero."""
    generator = torch.Generator().manual_seed(0)
    for module in model.modules():
        if isinstance(module, nn.BatchNorm3d):
            nn.init.uniform_(module.weight, 0.3, 0.9, generator=generator)
            nn.init.uniform_(module.bias, -0.2, 0.2, generator=generator)
    return model.eval()


def _clip(case: Case) -> Tensor:
    return torch.randn(1, 3, *case.size, generator=torch.Generator().manual_seed(1))


def _pytorchvideo(module: str):
    sys.path.append(str(Path(__file__).resolve().parents[1] / "tests" / "features"))
    return import_module("oracles").oracle_module(f"pytorchvideo.models.{module}")


def _their_slowfast(clip: Tensor) -> Callable[[], FeatureMaps]:
    model = seeded(_pytorchvideo("slowfast").create_slowfast_with_roi_head()).model
    slow = clip[:, :, slow_frame_positions(clip.shape[2], SlowFast().variant)]
    return lambda: FeatureMaps(tuple(nn.Sequential(*model.blocks[:5])([slow, clip])), stride=16)


def _their_x3d(clip: Tensor) -> Callable[[], FeatureMaps]:
    model = seeded(
        _pytorchvideo("x3d").create_x3d(input_clip_length=clip.shape[2], input_crop_size=clip.shape[3])
    )
    return lambda: FeatureMaps((nn.Sequential(*model.blocks[:5])(clip),), stride=32)


def main() -> None:
    print(f"Load average {os.getloadavg()[0]:.1f} before.\n")
    print(Comparison.HEADER, *[row.row() for row in comparisons()], "", *notes(), sep="\n")
    print(f"\nMeasured on {machine()}; load average {os.getloadavg()[0]:.1f} after.")


if __name__ == "__main__":
    main()
