"""One training in a process of its own, with two threads and two workers: repeated_training.py STAGE RUN_DIR."""

import sys
from pathlib import Path

import torch
from tiny_runs import tiny_experiment

from mule.training.build import run_experiment
from mule.training.step import Silence


def train(root, run_dir):
    """Maps of 48 × 64 pixels: gradients of this many numbers are added up by several threads."""
    experiment = tiny_experiment(
        root,
        data__rows=48,
        data__cols=64,
        training__batch_clips=12,
        training__epochs=2,
        objective={"inner_steps": 1},
        loading__workers=2,
    )
    run_experiment(experiment, run_dir, listener=Silence())


if __name__ == "__main__":
    torch.set_num_threads(2)
    train(Path(sys.argv[1]), Path(sys.argv[2]))
