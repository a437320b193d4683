"""The same training gives the same bytes, with several threads and workers, in any process."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from repeated_training import train
from tiny_runs import Heard, tiny_experiment

from mule.features.pooling import roi_align
from mule.training.build import run_experiment
from mule.training.device import deterministic
from mule.training.run_folder import MODEL

CPU = torch.device("cpu")
PROGRAM = Path(__file__).with_name("repeated_training.py")


@pytest.fixture
def two_threads():
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    yield
    torch.set_num_threads(before)


def weights_of(run_dir):
    return (run_dir / MODEL).read_bytes()


def trained_elsewhere(root, run_dir):
    """The weights of a training in a fresh process; each has another order of hashes."""
    environment = {name: value for name, value in os.environ.items() if name != "OMP_NUM_THREADS"}
    command = [sys.executable, str(PROGRAM), str(root), str(run_dir)]
    done = subprocess.run(
        command,
        env={**environment, "PYTHONHASHSEED": run_dir.name},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return weights_of(run_dir)


@pytest.mark.usefixtures("two_threads")
def test_a_fresh_process_trains_the_same_bytes(root, tmp_path):
    train(root, tmp_path / "here")
    assert trained_elsewhere(root, tmp_path / "1") == weights_of(tmp_path / "here")


@pytest.mark.slow
def test_eight_fresh_processes_train_the_same_bytes(root, tmp_path):
    assert len({trained_elsewhere(root, tmp_path / str(number)) for number in range(8)}) == 1


@pytest.mark.usefixtures("two_threads")
def test_gradients_of_many_boxes_on_one_map_have_the_same_bits_every_time():
    draw = torch.Generator().manual_seed(0)
    maps, corners = torch.randn(1, 96, 6, 8, generator=draw), torch.rand(16, 2, generator=draw) * 40
    boxes, clip = torch.cat([corners, corners + 40], dim=1), torch.zeros(16, dtype=torch.int64)
    weights = torch.randn(16, 96, 7, 7, generator=draw)
    gradients = set()
    with deterministic(CPU, is_wanted=True):
        for _ in range(40):
            context = maps.clone().requires_grad_()
            (roi_align(context, boxes, clip, stride=16) * weights).sum().backward()
            assert context.grad is not None
            gradients.add(context.grad.numpy().tobytes())
    assert len(gradients) == 1


@pytest.mark.parametrize(("name", "only_warns"), [("cpu", False), ("cuda", True)])
def test_an_operation_that_cannot_be_repeated_is_refused_on_the_cpu_only(name, only_warns, monkeypatch):
    monkeypatch.setenv("CUBLAS_WORKSPACE_CONFIG", "restored afterwards")
    monkeypatch.delenv("CUBLAS_WORKSPACE_CONFIG")
    with deterministic(torch.device(name), is_wanted=True):
        assert torch.are_deterministic_algorithms_enabled()
        assert torch.is_deterministic_algorithms_warn_only_enabled() == only_warns
        assert (os.environ.get("CUBLAS_WORKSPACE_CONFIG") is not None) == only_warns
        with deterministic(CPU, is_wanted=False):
            assert not torch.are_deterministic_algorithms_enabled()
    assert not torch.are_deterministic_algorithms_enabled()


class Flags(Heard):
    """Remembers after each step whether torch was told to repeat itself."""

    def __init__(self):
        super().__init__()
        self.flags = set()

    def stepped(self, step, num_steps, values):
        super().stepped(step, num_steps, values)
        self.flags.add(torch.are_deterministic_algorithms_enabled())


def test_training_is_deterministic_unless_the_experiment_says_otherwise(root, tmp_path):
    """Whether threads really race is up to the machine; whether torch forbids it is not."""
    default, off = Flags(), Flags()
    run_experiment(tiny_experiment(root, training__epochs=1), tmp_path / "run", listener=default)
    changed = tiny_experiment(root, training__epochs=2, training__deterministic=False)
    run_experiment(changed, tmp_path / "run", listener=off, resumes=True)
    assert (default.flags, off.flags) == ({True}, {False})
    assert "training.deterministic was True and is False from here on" in off.notes


def test_a_run_says_on_what_its_bytes_depend_and_what_changed_when_it_is_resumed(root, tmp_path):
    heard = Heard()
    experiment = tiny_experiment(root, training__epochs=1)
    run_experiment(experiment, tmp_path / "run", listener=heard)
    assert not any("last digits" in note for note in heard.notes)
    path = tmp_path / "run" / "run.json"
    record = json.loads(path.read_text())
    assert record["experiment"]["training"]["deterministic"]
    hardware = record["sessions"][0]["hardware"]
    assert {"torch_threads", "num_processes", "cpu_capability", "gpus", "variables"} <= hardware.keys()
    hardware["torch_threads"] += 1
    path.write_text(json.dumps(record))
    run_experiment(experiment, tmp_path / "run", listener=heard, resumes=True)
    assert any(
        note.startswith(f"torch_threads was {hardware['torch_threads']} and is") for note in heard.notes
    )
