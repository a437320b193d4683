"""Ctrl-C and SIGTERM, sent to real processes: what a command prints and keeps, and that its workers stay silent."""

import os
import signal
import subprocess
import sys
import time

import pytest
from tiny_runs import settings_of, tiny_experiment

from mule.core.config import experiment_from, experiment_toml
from mule.training.build import run_experiment
from mule.training.run_folder import MODEL
from mule.training.step import Silence

MULE = [sys.executable, "-c", "from mule.cli.main import run; run()"]
SLOW_STEPS = """
import time, openvino
from mule.training import loop
step = loop.TrainingRun._step
def slowly(*parts, **more):
    step(*parts, **more)
    time.sleep(0.5)
loop.TrainingRun._step = slowly
from mule.cli.main import run
run()
"""


def hear_ctrl_c():
    """Heed Ctrl-C also where the tests run in the background of a shell, which makes them ignore it."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def ended(command, *, when, send, is_group=False):
    """The exit code of a command that gets a signal once something holds, and what it said."""
    process = subprocess.Popen(
        list(map(str, command)),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        preexec_fn=hear_ctrl_c,
    )
    end = time.monotonic() + 120
    while not when() and process.poll() is None:
        assert time.monotonic() < end
        time.sleep(0.05)
    (os.killpg if is_group else os.kill)(process.pid, send)
    said = process.communicate(timeout=120)[1]
    return process.returncode, said


@pytest.mark.slow
@pytest.mark.parametrize("sent", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupted_training_saves_its_step_and_ends_with_the_same_bits(sent, tmp_path):
    changes = {"training__checkpoint_every_steps": 1000, "loading__workers": 1}
    wanted = experiment_from(settings_of(tmp_path / "stage", **changes), source="")
    path, out = tmp_path / "tiny.toml", tmp_path / "run"
    path.write_text(experiment_toml(wanted))
    run_experiment(tiny_experiment(tmp_path / "stage", **changes), tmp_path / "whole", listener=Silence())
    curves = out / "metrics.jsonl"
    command = [sys.executable, "-c", SLOW_STEPS, "train", path, "--out", out]
    code, said = ended(
        command,
        when=lambda: curves.exists() and curves.read_bytes(),
        send=sent,
        is_group=sent == signal.SIGINT,
    )
    assert code == 130, said
    assert "Traceback" not in said
    assert "stopped at step 1; the same command with --resume continues" in said
    assert [each.name for each in (out / "checkpoints").iterdir()] == ["step-00000001"]
    run_experiment(tiny_experiment(tmp_path / "stage", **changes), out, listener=Silence(), resumes=True)
    assert (out / MODEL).read_bytes() == (tmp_path / "whole" / MODEL).read_bytes()


@pytest.mark.slow
def test_ctrl_c_while_scenes_are_rendered_is_one_sentence_and_the_next_run_continues(tmp_path):
    out, rows = tmp_path / "scenes", tmp_path / "scenes.parts" / "rows"
    command = [*MULE, "stage", "render", out, "--clips", "8", "--size", "48x64", "--workers", "2"]
    code, said = ended(
        command, when=lambda: rows.is_dir() and any(rows.iterdir()), send=signal.SIGINT, is_group=True
    )
    assert (code, said) == (130, "mule: stopped\n")
    assert not out.exists()
