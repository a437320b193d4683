"""What each of two processes does in the tests of training together; imported by them without pytest."""

import sys
from pathlib import Path

import torch
from tiny_runs import Heard, tiny_experiment

from mule.core.processes import (
    average_buffers,
    average_gradients,
    everyones,
    gathered,
    over_ranks,
    own_rank,
    processes,
    share_weights,
)
from mule.training.build import build_parts, run_experiment
from mule.training.loop import TrainingRun
from mule.training.run_folder import RunFolder


def meeting_place():
    """The folder of the test."""
    return Path(sys.argv[5]).parent


def without_batch_statistics(root):
    """A system whose numbers do not depend on who else is in a process: no batch statistics, no dropped units."""
    return tiny_experiment(
        root,
        system="mule",
        backbone={"norm": "frozen"},
        objective={"inner_steps": 2, "dual": {"initial_multiplier": 5.0, "step_size": 1.0}},
        optimizer={"kind": "sgd", "lr": 2e-3, "clip_norm": 5.0},
        training__average_decay=0.8,
    )


def bank_on_films(root):
    """A system with a memory of clips, on films; no batch statistics, no dropped units."""
    data = {"kind": "table", "num_known": 2, "num_frames": 4, "stride_frames": 1, "root": str(root)}
    return tiny_experiment(
        root,
        system="acar-bank",
        data=data,
        backbone={"norm": "frozen"},
        objective={"inner_steps": 1},
        training__batch_clips=2,
        training__epochs=3,
    )


def train_bank_together(rank):  # noqa: ARG001 - one call for all
    """The memory of a process after a training in which each process saw other clips."""
    folder = meeting_place()
    experiment = bank_on_films(folder / "films")
    with processes() as device:
        parts, _ = build_parts(experiment, device=device, listener=Heard())
        run = TrainingRun(parts, experiment.training, folder=RunFolder(folder / "two"), listener=Heard())
        run.train()
    assert run.memory is not None
    return {(video, time_s): rows.tolist() for video, time_s, rows, _ in run.memory.state_dict()["clips"]}


def train_together(rank):
    heard, folder = Heard(), meeting_place()
    progress = run_experiment(without_batch_statistics(folder / "stage"), folder / "two", listener=heard)
    return progress, own_rank() == rank, len(heard.steps)


def train_with_batch_statistics(rank):  # noqa: ARG001 - one call for all
    """The statistics of every batch norm after a training in which each process saw other clips, and what was noted."""
    folder, heard = meeting_place(), Heard()
    experiment = tiny_experiment(folder / "stage", training__keeps="last")
    with processes() as device:
        parts, _ = build_parts(experiment, device=device, listener=Heard())
        run = TrainingRun(parts, experiment.training, folder=RunFolder(folder / "batch"), listener=heard)
        run.train()
    buffers = dict(parts.model.named_buffers())
    return {name: value.tolist() for name, value in buffers.items() if "running" in name}, heard.notes


def exchange(rank):
    """Gradients, buffers, weights and rows, after the two processes have put theirs together."""
    with_gradient, without, nobodys = (torch.zeros(2, requires_grad=True) for _ in range(3))
    with_gradient.grad = torch.full((2,), float(rank))
    if rank == 0:
        without.grad = torch.ones(2)
    average_gradients([with_gradient, without, nobodys])
    model = torch.nn.BatchNorm1d(2)
    buffers = dict(model.named_buffers())
    torch.nn.init.constant_(buffers["running_mean"], float(rank))
    torch.nn.init.constant_(model.weight, float(rank + 3))
    average_buffers(model)
    share_weights(model)
    return {
        "gradients": [None if p.grad is None else p.grad.tolist() for p in (with_gradient, without, nobodys)],
        "buffers": buffers["running_mean"].tolist(),
        "weights": model.weight.tolist(),
        "sum": over_ranks(rank + 1.0, torch.device("cpu")),
        "least": over_ranks(rank + 1.0, torch.device("cpu"), least=True),
        "things": everyones({"rank": rank}),
        "labels": gathered(torch.tensor([[rank == 1]] * (rank + 1))).tolist(),
    }
