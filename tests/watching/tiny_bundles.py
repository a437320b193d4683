"""A bundle of a run of seconds, takes to watch with it, and finders of boxes that are made up."""

from fractions import Fraction

import numpy as np
import torch

from mule.api.bundling import BundlePlan, make_bundle
from mule.core.config import experiment_from
from mule.detection.detections import Detections, no_detections
from mule.stage.benchmark import StageSet
from mule.stage.export import Export, write_dataset
from mule.training.build import run_experiment
from mule.training.step import Silence
from mule.video.encode import VideoWriter
from mule.watching.engine.finding import FoundBoxes

SIZE = (24, 32)
SETTINGS = {
    "system": "mule",
    "sizes": "tiny",
    "data": {
        "kind": "stage",
        "train_clips": 16,
        "val_clips": 14,
        "rows": SIZE[0],
        "cols": SIZE[1],
        "num_frames": 8,
        "stride_frames": 2,
    },
    "objective": {"inner_steps": 1},
    "optimizer": {"kind": "adamw", "lr": 1e-3},
    "training": {"epochs": 1, "batch_clips": 4, "tensorboard": False},
    "loading": {"workers": 0},
}


def trained(folder):
    settings = {**SETTINGS, "data": {**SETTINGS["data"], "root": str(folder / "stage")}}
    run_experiment(experiment_from(settings, source="tiny.toml"), folder / "run", listener=Silence())
    return folder / "run"


def bundled(run_dir, out, *, has_memory=True):
    make_bundle(BundlePlan(run_dir, out, "tiny", has_memory=has_memory))
    return out


def takes(folder, *, seconds=4.0, clips=1):
    """Takes with their boxes beside them."""
    stage = StageSet(split="A", role="test", seed=5, num_clips=clips, size=SIZE)
    write_dataset(Export(stage, seconds=seconds), folder, workers=1)
    return folder / "videos" / "clip_000000.mp4"


def grey_video(path, *, seconds=2.0, rate=8, size=SIZE):
    """Plain pictures, a little brighter each time."""
    count = max(1, round(seconds * rate))
    with VideoWriter(path, size, Fraction(rate)) as video:
        for number in range(count):
            video.write(np.full((1, *size, 3), (40 + number) % 256, np.uint8))
    return path


class MadeUpBoxes:
    """Persons by time, as functions from seconds to a box in parts of the frame, or None; a ball, if wanted."""

    class_names = ("person", "ball")
    actor_score = 0.5

    def __init__(
        self, *paths, has_ball=False, links_between=False, fails_at_s=0.0, error: BaseException | None = None
    ):
        self.paths, self.has_ball, self.links_between = paths, has_ball, links_between
        self.fails_at_s, self.error = fails_at_s, error
        self.times = []

    def __call__(self, frame, *, key_time_s):
        self.times.append(key_time_s)
        if self.error is not None and key_time_s >= self.fails_at_s:
            raise self.error
        rows, cols = frame.shape[1:]
        boxes = [(box, 0) for path in self.paths if (box := path(key_time_s)) is not None]
        boxes += [((0.4, 0.4, 0.6, 0.6), 1)] if self.has_ball else []
        if not boxes:
            return FoundBoxes(no_detections(1))
        scale = torch.tensor([cols, rows, cols, rows]).float()
        return FoundBoxes(
            Detections(
                torch.tensor([box for box, _ in boxes]) * scale,
                torch.full((len(boxes),), 0.9),
                torch.tensor([kind for _, kind in boxes]),
                torch.zeros(len(boxes), dtype=torch.int64),
                num_images=1,
            )
        )


def stays(box):
    return lambda _: box


def leaves(box, after_s):
    return lambda time_s: box if time_s < after_s else None
