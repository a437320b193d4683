"""Runs and comparisons of a second: a few rendered clips of 24 × 32 pixels."""

from contextlib import nullcontext

import torch

from mule.comparison.rows import Contestant
from mule.core.config import experiment_from
from mule.inference.judging import Judging
from mule.training.build import LoadedRun, build_model
from mule.training.choosing import settled
from mule.training.data import source_clips

TEST_CLIPS = 8
JUDGING = Judging(resamples=20, dropout_passes=3, test_clips=TEST_CLIPS)

SETTINGS = {
    "system": "slowfast",
    "sizes": "tiny",
    "data": {
        "kind": "stage",
        "train_clips": 8,
        "val_clips": 4,
        "rows": 24,
        "cols": 32,
        "num_frames": 4,
        "stride_frames": 1,
    },
    "objective": {"inner_steps": 1},
    "optimizer": {"kind": "adamw", "lr": 1e-3},
    "training": {"epochs": 1, "batch_clips": 4, "tensorboard": False},
    "loading": {"workers": 0},
}


def tiny_experiment(root, **changes):
    """The experiment of a tiny run; `training__epochs=3` changes one setting."""
    settings = {key: dict(value) if isinstance(value, dict) else value for key, value in SETTINGS.items()}
    settings["data"]["root"] = str(root)
    for key, value in changes.items():
        *tables, name = key.split("__")
        place = settings
        for table in tables:
            place = place.setdefault(table, {})
        place[name] = value
    return experiment_from(settings, source="tiny.toml")


def contestants(root, *systems, **changes):
    return tuple(Contestant(name, settled(tiny_experiment(root, system=name, **changes))) for name in systems)


def run_of_chance(experiment):
    """A run as if it had been trained, with weights of chance."""
    torch.manual_seed(3)
    classes = source_clips(experiment, noted=silent).classes
    return LoadedRun(build_model(experiment).eval(), experiment, classes)


def silent(_):
    pass


def watched_by_nobody(_rows, _num_finished):
    return nullcontext()


def times_of(folder):
    """When each file of a folder was last written."""
    return {path: path.stat().st_mtime_ns for path in sorted(folder.rglob("*")) if path.is_file()}
