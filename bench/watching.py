"""Seconds of video watched per second, by network and runtime, and the load of the cores.

    python -m bench.watching [--small]

The measurement covers what `mule watch` does before it writes: decoding, detecting, linking, the network and
the reasons. Weights are random, which does not affect the speed, except I3D's if MULE_SHARED_DATA (or
shared/data next to the repository) has them. The first moment, which exports or loads graphs, is excluded.
"sequential" runs all steps one after another in one thread. "overlapped, all cores" is what `mule watch`
does: the network may use every core, the decoder and the detector one each. CPU time adds up all threads, so
other work on the machine disturbs it less than wall time.
"""

import os
import sys
import tempfile
import time
from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Literal
from unittest.mock import patch

import torch

from mule.core.config import load_experiment
from mule.core.errors import MuleError
from mule.core.heap import keep_freed_memory
from mule.core.settings import Experiment
from mule.detection.tracks import NO_TRACK
from mule.model import MuleModel
from mule.stage.benchmark import StageSet
from mule.stage.export import Export, write_dataset
from mule.training.build import build_networks, initialise
from mule.watching.engine import watch as watching
from mule.watching.engine.bundle import (
    SCENE_BOXES,
    Bundle,
    BundleCard,
    HeldOutOutputs,
    clip_needs,
    usual_novelty,
)
from mule.watching.engine.judging import Judge

SHARED = Path(os.environ.get("MULE_SHARED_DATA", Path(__file__).resolve().parents[2] / "shared" / "data"))
YOLOX = SHARED / "detectors" / "yolox_nano_coco_416.onnx"
I3D_WEIGHTS = SHARED / "backbones" / "i3d_rgb_kinetics400_fp16.pt"
PEDESTRIANS = SHARED / "videos" / "samples" / "opencv_vtest.avi"
RUNTIMES = ("torch", "onnx", "openvino")
NUM_HELD_OUT = 64


@dataclass(frozen=True)
class Case:
    """A model and the video it watches."""

    what: str
    bundle: Bundle
    video: Path
    detector: Path | None
    num_moments: int
    goal: float | None = None
    """Times real time that the fastest runtime should reach."""


@dataclass(frozen=True)
class Speed:
    """The time it took to watch some seconds of video."""

    video_s: float
    clock_s: float
    processor_s: float
    num_actors: float = field(default=0.0)

    def row(self, name: str) -> str:
        busy = self.processor_s / self.clock_s / (os.cpu_count() or 1)
        return f"  {name:34}{self.video_s / self.clock_s:13.2f}{self.video_s / self.processor_s:19.2f}{busy:12.0%}"


def main() -> None:
    keep_freed_memory()  # as every command does
    is_small = "--small" in sys.argv
    print(
        f"load average {os.getloadavg()[0]:.1f} before, {os.cpu_count()} cores, "
        f"{torch.get_num_threads()} torch threads"
    )
    with tempfile.TemporaryDirectory() as folder:
        for case in cases(Path(folder), is_small=is_small):
            compare(case, Path(folder) / "graphs")
    print(f"load average {os.getloadavg()[0]:.1f} after")


def compare(case: Case, kept_in: Path) -> None:
    print(f"{case.what}")
    print(f"  {'':34}{'× real time':>13}{'× CPU time':>19}{'cores busy':>12}")
    num_actors = fastest = 0.0
    for runtime in RUNTIMES:
        try:
            bundle = case.bundle.on(runtime, kept_in=kept_in)
            in_turn = watched(case, bundle, pipeline=InTurn)
            with one_thread():
                alone = watched(case, case.bundle.on(runtime, kept_in=kept_in), pipeline=watching.Overlapped)
            overlapped = watched(case, bundle, pipeline=watching.Overlapped)
        except MuleError as error:
            print(f"  {runtime}: skipped, {error}")
            continue
        print(in_turn.row(f"{runtime}, sequential"))
        print(alone.row(f"{runtime}, overlapped, 1 thread"))
        print(overlapped.row(f"{runtime}, overlapped, all cores"))
        num_actors = overlapped.num_actors
        fastest = max(fastest, overlapped.video_s / overlapped.clock_s)
    print(f"  {num_actors:.1f} actors per key time")
    if case.goal is not None:
        outcome = "met" if fastest >= case.goal else "missed"
        print(f"  goal: at least {case.goal:g} × real time; the fastest reached {fastest:.2f}: {outcome}")


@contextmanager
def one_thread() -> Generator[None]:
    """Give the network a single thread, on any runtime."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


class InTurn:
    """Replaces `Overlapped`: computes each item on demand."""

    def __init__(self, items: Iterable, **_: object) -> None:
        self._items = iter(items)

    def __iter__(self) -> Iterator:
        return self._items

    def close(self) -> None:
        """Do nothing: there is no thread to end."""


def watched(case: Case, bundle: Bundle, *, pipeline: Callable) -> Speed:
    with patch.object(watching, "Overlapped", pipeline):
        moments = iter(watching.open_watch(case.video, bundle, detector=case.detector))
        next(moments)
        started_at, worked_before = time.perf_counter(), time.process_time()
        seen = list(islice(moments, case.num_moments))
        clock_s, processor_s = time.perf_counter() - started_at, time.process_time() - worked_before
        moments.close()
    num_actors = sum(len(moment.actors) for moment in seen) / len(seen)
    return Speed(len(seen) * 1.0, clock_s, processor_s, num_actors)


def cases(folder: Path, *, is_small: bool) -> Iterator[Case]:
    seconds = 5 if is_small else 30
    yield Case(
        "tiny Stage model, precomputed boxes, 96 × 128",
        made_bundle(load_experiment(Path("stage"), []), SCENE_BOXES),
        take(folder / "stage", seconds),
        None,
        seconds,
    )
    if not (YOLOX.is_file() and PEDESTRIANS.is_file()):
        print(f"I3D and SlowFast: skipped, no {YOLOX} or no {PEDESTRIANS} (set MULE_SHARED_DATA)")
        return
    real = partial(Case, video=PEDESTRIANS, detector=YOLOX)
    has_weights = I3D_WEIGHTS.is_file()
    i3d = load_experiment(Path("airtlab"), [f"backbone.weights={I3D_WEIGHTS}"] if has_weights else [])
    yield real(
        f"I3D + YOLOX-nano, {described(i3d)}, pedestrians 768 × 576",
        made_bundle(i3d, "yolox_nano", has_weights=has_weights),
        num_moments=2 if is_small else 6,
        goal=3.0,
    )
    yield real(
        f"I3D + YOLOX-nano, a square around everybody instead of the frame, {described(i3d)}, pedestrians 768 × 576",
        made_bundle(i3d, "yolox_nano", has_weights=has_weights, sees="person"),
        num_moments=1 if is_small else 3,
        goal=1.5,
    )
    slowfast = load_experiment(Path("ava"), ["system=mule"])
    yield real(
        f"SlowFast R50 + YOLOX-nano, random weights, {described(slowfast)}, pedestrians 768 × 576",
        made_bundle(slowfast, "yolox_nano"),
        num_moments=1 if is_small else 3,
    )


def described(experiment: Experiment) -> str:
    needs = clip_needs(experiment)
    return f"{needs.shape.num_frames} frames of short side {needs.short_side_px}"


def made_bundle(
    experiment: Experiment,
    detector: str,
    *,
    has_weights: bool = False,
    sees: Literal["frame", "person"] = "frame",
) -> Bundle:
    """Build an untrained model with random calibration; it is as fast as a trained one."""
    torch.manual_seed(0)
    trained, backbone = build_networks(experiment)
    if has_weights:
        initialise(backbone, experiment)
    model = MuleModel(backbone, trained.decide).eval()
    head = model.get_submodule("decide.head.linear")
    classes = tuple(f"action {number}" for number in range(head.get_parameter("weight").shape[0]))
    judge = Judge(None, classes, None)
    held_out = HeldOutOutputs(
        torch.randn(NUM_HELD_OUT, len(classes)),
        torch.randn(NUM_HELD_OUT, head.get_parameter("weight").shape[1]),
        torch.arange(NUM_HELD_OUT),
        torch.full((NUM_HELD_OUT,), NO_TRACK),
    )
    return Bundle(
        folder=Path("nowhere"),
        card=BundleCard(
            name="bench",
            weights_sha256="0" * 64,
            backbone_sha256="0" * 64,
            seed=0,
            detector=detector,
            sees=sees,
        ),
        model=model,
        needs=clip_needs(experiment),
        judge=judge,
        usual=usual_novelty(judge, held_out),
    )


def take(folder: Path, seconds: int) -> Path:
    stage = StageSet(split="A", role="test", seed=5, num_clips=1)
    write_dataset(Export(stage, seconds=seconds + 3.0), folder, workers=1)
    return folder / "videos" / "clip_000000.mp4"


if __name__ == "__main__":
    main()
