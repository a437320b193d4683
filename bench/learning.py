"""Train every system on 64 clips of Stage until its training mAP passes 0.9.

`python -m bench.learning` writes the table of docs/BENCHMARKS.md; `--workers 2` trains two systems in
parallel.
"""

import sys
import time
from multiprocessing import get_context
from pathlib import Path

import numpy as np
import torch

from bench.timing import machine, replace_section
from mule.evaluation.mean_ap import mean_average_precision
from mule.features.backbones.csn import CSN
from mule.features.backbones.tiny import TinySlowFast
from mule.features.backbones.x3d import X3D
from mule.model import MuleModel, SceneBoxes
from mule.objective.primal_dual import PrimalDual
from mule.stage.benchmark import StageSet
from mule.systems.catalogue import SYSTEMS
from mule.systems.design import tiny_sizes

NUM_CLIPS = 64
BATCH_CLIPS = 16
SIZE = (48, 64)
MOST_EPOCHS = 80
PASSED = 0.9
BACKBONES = {
    "slowfast": (TinySlowFast, 2e-3),
    "x3d": (lambda: X3D((1.0, 1.0), res5_stride=1, res5_dilation=2), 1e-2),
    "csn": (lambda: CSN(101, res5_stride=1), 3e-3),
}


class Clips:
    """Pixels, boxes and labels of the small training clips, in memory."""

    def __init__(self) -> None:
        clips = StageSet(size=SIZE, num_frames=16, num_clips=NUM_CLIPS)
        scale = np.array([SIZE[1], SIZE[0], SIZE[1], SIZE[0]], dtype=np.float32)
        self.pixels, self.actors, self.objects, self.labels = [], [], [], []
        for index in range(NUM_CLIPS):
            clip = clips.clip(index)
            key = len(clip.frames) // 2
            frames = torch.from_numpy(clip.frames[::2]).permute(3, 0, 1, 2).float()
            self.pixels.append((frames / 255 - 0.45) / 0.225)
            self.actors.append(torch.from_numpy(clip.actor_boxes_xyxy_unit[key] * scale).float())
            there = clip.object_is_there[key]
            self.objects.append(torch.from_numpy(clip.object_boxes_xyxy_unit[key][there] * scale).float())
            does = [[name in names for name in clips.classes.known] for names in clip.labels(key)]
            self.labels.append(torch.tensor(does))

    def batch(self, chosen):
        def flat(boxes):
            number = [torch.full((len(boxes[i]),), at) for at, i in enumerate(chosen)]
            return torch.cat([boxes[i] for i in chosen]), torch.cat(number)

        boxes = SceneBoxes(*flat(self.actors), *flat(self.objects))
        return (
            torch.stack([self.pixels[i] for i in chosen]),
            boxes,
            torch.cat([self.labels[i] for i in chosen]),
        )


def training_map(model, clips):
    """Mean AP over the classes in these clips, by expected probability."""
    model.eval()
    scores, labels = [], []
    with torch.no_grad():
        for first in range(0, NUM_CLIPS, BATCH_CLIPS):
            pixels, boxes, does = clips.batch(range(first, first + BATCH_CLIPS))
            evidence = model([pixels], boxes).evidence
            scores.append(torch.log1p(evidence.positive) - torch.log1p(evidence.negative))
            labels.append(does)
    model.train()
    return mean_average_precision(torch.cat(scores).double().numpy(), torch.cat(labels).numpy())


def learn(name):
    """Train one system; return its name, training mAP, epochs and CPU seconds."""
    torch.set_num_threads(1)
    torch.manual_seed(0)
    order = np.random.default_rng(0)
    clips, system = Clips(), SYSTEMS[name]
    build, learning_rate = BACKBONES[system.backbone or "slowfast"]
    backbone = build()
    model = MuleModel(backbone, system.build(tiny_sizes(backbone.channels, clips.labels[0].shape[1])))
    training = PrimalDual(model, torch.optim.AdamW(model.parameters(), learning_rate), system.constraints)
    started_at, reached, epoch = time.process_time(), 0.0, 0
    for epoch in range(1, MOST_EPOCHS + 1):
        for chosen in order.permutation(NUM_CLIPS).reshape(-1, BATCH_CLIPS):
            pixels, boxes, does = clips.batch(chosen)
            done = epoch / MOST_EPOCHS
            training.step(lambda: system.objective(model([pixels], boxes), does.float(), done))  # noqa: B023
        if epoch % 2 == 0:
            reached = float(training_map(model, clips))
            if reached > PASSED:
                break
    return name, reached, epoch, time.process_time() - started_at


def main() -> None:
    """Train every system and write the table."""
    workers = int(sys.argv[sys.argv.index("--workers") + 1]) if "--workers" in sys.argv else 1
    rows = ["| system | training mAP | epochs of 64 clips | CPU seconds |", "|---|---|---|---|"]
    with get_context("spawn").Pool(workers) as pool:
        for name, reached, epochs, seconds in pool.imap(learn, SYSTEMS):
            rows.append(f"| {name} | {reached:.3f} | {epochs} | {seconds:.0f} |")
            print(rows[-1], flush=True)
    text = "\n".join(rows)
    replace_section(
        Path("docs/BENCHMARKS.md"),
        "learning",
        f"{text}\n\nMeasured by `python -m bench.learning` on {machine()}.",
    )


if __name__ == "__main__":
    main()
