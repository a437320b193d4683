"""`mule memory` and `mule teach`: what they print, what they write, how they end."""

import pytest
import torch
import typer
from remembered_worlds import calibrated_memory, clustered, remembered, seen, small_memory
from typer.testing import CliRunner

from mule.cli import memory as memory_commands
from mule.cli.teach import teach as teach_command
from mule.memory.building import SeenActors, build_memory
from mule.memory.files import MemoryFileError, read_memory, write_memory
from mule.memory.taught import Remembered
from mule.memory.teaching import teach

app = typer.Typer()
app.add_typer(memory_commands.app, name="memory")
app.command()(teach_command)


def mule(*arguments):
    return CliRunner().invoke(app, [*map(str, arguments)], catch_exceptions=True)


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "memory.safetensors"
    write_memory(path, remembered(200))
    return path


def test_help_names_the_commands():
    outcome = mule("memory", "--help")
    assert outcome.exit_code == 0
    for command in ("build", "inspect", "prune", "merge", "add", "forget"):
        assert command in outcome.stdout
    assert "--examples" in mule("teach", "--help").stdout


def test_a_memory_of_nobody_can_be_looked_into(tmp_path):
    memory = build_memory(seen(0, seed=0), class_names=("run", "sit", "talk", "wave"), model="0" * 64)
    write_memory(tmp_path / "m", Remembered(memory))
    outcome = mule("memory", "inspect", tmp_path / "m")
    assert outcome.exit_code == 0
    assert "0 entries of 0 actors" in outcome.stdout
    assert "not calibrated" in outcome.stdout


def test_inspect_says_what_there_is(file):
    content = read_memory(file)
    exemplars = SeenActors(clustered(3, seed=6)[0], torch.zeros(3, 4), seen(3, seed=0, video="w").places)
    write_memory(file, teach(content, exemplars, class_name="jump"))
    outcome = mule("memory", "inspect", file)
    assert outcome.exit_code == 0
    for sentence in ("203 entries of 203 actors", "40 held-out known actors", "v0 (3)", "more"):
        assert sentence in outcome.stdout
    rows = {line.split("│")[1].strip(): line for line in outcome.stdout.splitlines() if line.startswith("│")}
    assert "taught" in rows["jump"]
    assert "trained" in rows["run"]


def test_prune_keeps_the_share_and_sets_the_memory_anew(file, tmp_path):
    out = tmp_path / "small.safetensors"
    outcome = mule("memory", "prune", file, "--share", "0.25", "--out", out)
    assert outcome.exit_code == 0
    assert "50 entries (200 before), 4 actions" in outcome.stdout
    found = read_memory(out)
    assert len(found.memory) == 50
    assert found.memory.kernel.reach is not None
    assert len(read_memory(file).memory) == 200


def test_without_held_out_actors_a_changed_memory_is_not_calibrated_and_says_so(file):
    write_memory(file, Remembered(calibrated_memory(200)))
    outcome = mule("memory", "prune", file, "--share", "0.5")
    assert outcome.exit_code == 0
    assert "no held-out actors are kept" in outcome.stderr
    assert read_memory(file).memory.kernel.reach is None


def test_merge_and_forget(file, tmp_path):
    other, out = tmp_path / "other", tmp_path / "both"
    write_memory(other, Remembered(small_memory(60, seed=4, video="w")))
    assert "260 entries (200 before)" in mule("memory", "merge", file, other, "--out", out).stdout
    outcome = mule("memory", "forget", out, "--class", "sit")
    assert outcome.exit_code == 0
    assert "3 actions" in outcome.stdout
    assert read_memory(out).memory.class_names == ("run", "talk", "wave")


def test_what_is_no_memory_is_refused(tmp_path):
    outcome = mule("memory", "inspect", tmp_path / "nothing")
    assert isinstance(outcome.exception, MemoryFileError)
    outcome = mule("memory", "prune", tmp_path / "nothing", "--share", "0.1")
    assert isinstance(outcome.exception, MemoryFileError)
