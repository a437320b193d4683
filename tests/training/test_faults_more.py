"""Numbers that are not numbers, a real disk that is full, workers lost in validation: each run goes on to the same bits."""

import json
import math
import multiprocessing
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from tiny_runs import Heard, curves_of, tiny_experiment

from mule.training.build import run_experiment
from mule.training.checkpoint import Checkpoints
from mule.training.loop import TrainingStopped
from mule.training.run_folder import MODEL
from mule.training.step import BatchObjective, scene_boxes

IN_A_NAME_SPACE = ("unshare", "--user", "--map-root-user", "--mount")
FULL_DISK = Path(__file__).with_name("full_disk_training.py")


@pytest.fixture(scope="module")
def stage_root(tmp_path_factory):
    """Where rendered clips are kept, for all tests of this file."""
    return tmp_path_factory.mktemp("stage")


@pytest.fixture(scope="module")
def undisturbed(stage_root, tmp_path_factory):
    """A run that was left alone."""
    run_dir = tmp_path_factory.mktemp("runs") / "alone"
    run_experiment(tiny_experiment(stage_root), run_dir, listener=Heard())
    return run_dir


def told_when_stopped(experiment, run_dir):
    with pytest.raises(TrainingStopped) as stopped:
        run_experiment(experiment, run_dir, listener=Heard())
    return str(stopped.value)


def assert_goes_on_to_the_same_bits(stage_root, run_dir, undisturbed):
    run_experiment(tiny_experiment(stage_root), run_dir, listener=Heard(), resumes=True)
    model = "model.safetensors"
    assert (run_dir / model).read_bytes() == (undisturbed / model).read_bytes()
    assert curves_of(run_dir) == curves_of(undisturbed)


def poisoned_pixels(model, batch, objective, **settings):
    """One pixel of the batch is not a number."""
    first, *others = batch.pixels
    first = first.clone()
    first.view(-1)[0] = math.nan
    return BatchObjective(model, replace(batch, pixels=(first, *others)), objective, **settings)


def poisoned_loss(*values, **settings):
    found = BatchObjective(*values, **settings)
    return lambda: replace(result := found(), loss=result.loss * math.nan)


def poisoned_gradient(model, batch, objective, **settings):
    """The loss is a number; in the second inner step its gradient is none."""
    found, num_calls = BatchObjective(model, batch, objective, **settings), []

    def second_is_poisoned():
        num_calls.append(1)
        result = found()
        if len(num_calls) == 2:
            result.loss.register_hook(lambda gradient: gradient * math.nan)
        return result

    return second_is_poisoned


@pytest.mark.parametrize(
    ("poisoned", "told"),
    [
        (poisoned_pixels, "positive evidence must be finite; actor 0, class 0 has nan"),
        (poisoned_loss, "the Lagrangian is nan: loss nan"),
        (poisoned_gradient, "the norm of the gradient must be finite; it is nan though the loss is"),
    ],
)
def test_what_is_not_a_number_stops_the_run_before_a_weight_has_changed(
    stage_root, undisturbed, tmp_path, monkeypatch, poisoned, told
):
    num_batches = []

    def in_the_fifth_batch(*values, **settings):
        num_batches.append(1)
        return (poisoned if len(num_batches) == 5 else BatchObjective)(*values, **settings)

    run_dir = tmp_path / "run"
    with monkeypatch.context() as patched:
        patched.setattr("mule.training.loop.BatchObjective", in_the_fifth_batch)
        message = told_when_stopped(tiny_experiment(stage_root), run_dir)
    assert message.startswith("training stopped at step 4 of 6")
    assert told in message
    assert "step-00000004, is intact" in message
    assert "lower optimizer.lr" in message
    assert json.loads((run_dir / "run.json").read_text())["status"] == "stopped"
    last, wrong = Checkpoints(run_dir / "checkpoints").last()
    assert last is not None
    assert (last.step, wrong) == (4, [])
    assert all(torch.isfinite(tensor).all() for tensor in last.model.values())
    assert_goes_on_to_the_same_bits(stage_root, run_dir, undisturbed)


@pytest.mark.slow
@pytest.mark.alone
def test_a_run_whose_worker_is_killed_in_validation_explains_it_and_ends_with_the_same_bits(
    stage_root, undisturbed, tmp_path, monkeypatch
):
    others, heard, killed = multiprocessing.active_children(), Heard(), []

    def lost_once(batch):
        for worker in set(multiprocessing.active_children()) - set(others) if not killed else ():
            killed.append(worker)
            worker.kill()
            worker.join()
        return scene_boxes(batch)

    monkeypatch.setattr("mule.training.loop.scene_boxes", lost_once)
    run_experiment(tiny_experiment(stage_root, loading__workers=1), tmp_path / "run", listener=heard)
    (told,) = [note for note in heard.notes if "one is gone" in note]
    assert "training stopped at step 3 of 6" in told
    assert "worker processes must live as long as the loader; one is gone" in told
    assert "is intact; run the same command with --resume to continue from it" in told
    assert told.endswith("Continuing now, try 2 of 2.")
    assert multiprocessing.active_children() == others
    assert (tmp_path / "run" / MODEL).read_bytes() == (undisturbed / MODEL).read_bytes()
    assert curves_of(tmp_path / "run") == curves_of(undisturbed)


@pytest.mark.slow
def test_on_a_full_disk_nothing_is_half_written_and_with_more_room_it_goes_on(tmp_path):
    shares = {0.001: [], 0.3: [], 0.7: [2], 0.95: [2, 3]}
    may_mount = subprocess.run(
        [*IN_A_NAME_SPACE, "mount", "-t", "tmpfs", "tmpfs", str(tmp_path)], capture_output=True, check=False
    )
    if may_mount.returncode:
        pytest.skip(f"needs a name space in which a disk can be mounted: {may_mount.stderr.decode().strip()}")
    done = subprocess.run(
        [*IN_A_NAME_SPACE, sys.executable, str(FULL_DISK), str(tmp_path), *map(str, shares)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    found = [json.loads(line) for line in done.stdout.splitlines()]
    assert [trial["steps"] for trial in found] == list(shares.values())
    for trial in found:
        assert "no space left on device" in trial["told"], trial
        assert (trial["damaged"], trial["left_over"]) == ([], []), trial
        if trial["steps"]:
            assert f"step-{trial['steps'][-1]:08d}, is intact" in trial["told"]
        assert trial["told_later"] == "", trial
        assert trial["same_weights"], trial
        assert trial["same_curves"], trial
        assert trial["status"] == "finished", trial
