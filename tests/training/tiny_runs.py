"""Trainings of a second: twelve rendered clips of 24 × 32 pixels, six steps."""

from mule.core.config import experiment_from
from mule.training.run_folder import METRICS, read_metrics

SETTINGS = {
    "system": "mule-without-aco-r",  # has a constraint and drops units by chance
    "sizes": "tiny",
    "data": {
        "kind": "stage",
        "train_clips": 12,
        "val_clips": 4,
        "rows": 24,
        "cols": 32,
        "num_frames": 8,
        "stride_frames": 2,
    },
    "objective": {"inner_steps": 2},
    "optimizer": {"kind": "adamw", "lr": 1e-3},
    "schedule": {"kind": "cosine", "warmup_epochs": 0.5},
    "training": {
        "epochs": 2,
        "batch_clips": 4,
        "checkpoint_every_steps": 2,
        "log_every_steps": 1,
        "tensorboard": False,
    },
    "loading": {"workers": 0},
}


def settings_of(root, **changes):
    """The settings of a tiny training; `training__epochs=3` changes one."""
    settings = {key: dict(value) if isinstance(value, dict) else value for key, value in SETTINGS.items()}
    settings["data"]["root"] = str(root)
    for key, value in changes.items():
        *tables, name = key.split("__")
        place = settings
        for table in tables:
            place = place.setdefault(table, {})
        place[name] = value
    return settings


def tiny_experiment(root, **changes):
    return experiment_from(settings_of(root, **changes), source="tiny.toml")


def curves_of(run_dir):
    """What a run wrote into its curves, without how long things took."""
    lines = read_metrics(run_dir / METRICS)
    return [{key: value for key, value in line.items() if not key.endswith("_s")} for line in lines]


class Heard:
    """A listener that remembers."""

    def __init__(self):
        self.steps, self.validations, self.notes = [], [], []

    def stepped(self, step, num_steps, values):  # noqa: ARG002
        self.steps.append(values)

    def validated(self, step, epoch, found):  # noqa: ARG002
        self.validations.append(found)

    def noted(self, sentence):
        self.notes.append(sentence)
