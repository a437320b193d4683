"""`mule memory` and `mule teach`: what they print, what they write, how they end."""

from dataclasses import replace

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
from mule.memory.teaching import teach_action

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
    write_memory(file, teach_action(content, exemplars, class_name="jump"))
    outcome = mule("memory", "inspect", file)
    assert outcome.exit_code == 0
    for sentence in ("203 entries of 203 actors", "40 held-out known actors", "v0 (3)", "more"):
        assert sentence in outcome.stdout
    rows = {line.split("│")[1].strip(): line for line in outcome.stdout.splitlines() if line.startswith("│")}
    assert "teaching" in rows["jump"]
    assert "training" in rows["run"]


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
    assert "keeps no held-out actors" in outcome.stderr
    assert read_memory(file).memory.kernel.reach is None


def test_merge_and_forget(file, tmp_path):
    other, out = tmp_path / "other", tmp_path / "both"
    write_memory(other, Remembered(small_memory(60, seed=4, video="w")))
    assert "260 entries (200 before)" in mule("memory", "merge", file, other, "--out", out).stdout
    outcome = mule("memory", "forget", out, "--class", "sit")
    assert outcome.exit_code == 0
    assert "3 actions" in outcome.stdout
    assert read_memory(out).memory.class_names == ("run", "talk", "wave")


@pytest.mark.parametrize(
    "command",
    [
        ("prune", "--share", "0.5"),
        ("forget", "--class", "sit"),
        ("merge",),
        ("add", "run", "--examples", "t.csv"),
    ],
)
def test_a_file_that_is_there_is_not_written_over(file, tmp_path, command):
    there = tmp_path / "model.safetensors"
    there.write_bytes(b"weights")
    name, *rest = command
    more = [file] if name == "merge" else []
    outcome = mule("memory", name, file, *more, *rest, "--out", there)
    assert isinstance(outcome.exception, MemoryFileError)
    assert f"{there}: must not exist yet" in str(outcome.exception)
    assert there.read_bytes() == b"weights"
    outcome = mule("memory", name, file, *more, *rest, "--out", tmp_path / "no" / "folder")
    assert "must lie in an existing folder" in str(outcome.exception)


def test_the_file_itself_may_be_named_as_the_result(file):
    assert mule("memory", "prune", file, "--share", "0.5", "--out", file).exit_code == 0
    assert len(read_memory(file).memory) == 100


def test_a_memory_that_is_there_is_not_built_over(file):
    outcome = mule("memory", "build", file.parent)
    assert isinstance(outcome.exception, MemoryFileError)
    assert "its content would be lost" in str(outcome.exception)
    assert len(read_memory(file).memory) == 200


@pytest.mark.parametrize(
    ("command", "message"),
    [
        (("prune", "--share", "1.5"), "share must lie above 0 and up to 1; got 1.5"),
        (("prune", "--share", "0.001"), "a memory must keep more than k = 5 entries"),
        (("forget", "--class", "fly"), "an action to forget must be remembered; got 'fly'"),
    ],
)
def test_what_cannot_be_done_names_the_file_and_leaves_it(file, command, message):
    before = file.read_bytes()
    name, *rest = command
    outcome = mule("memory", name, file, *rest)
    assert isinstance(outcome.exception, MemoryFileError)
    assert str(outcome.exception).startswith(f"{file}: {message}")
    assert file.read_bytes() == before
    assert [each.name for each in file.parent.iterdir()] == [file.name]


def test_a_memory_of_another_model_is_not_merged(file, tmp_path):
    other = tmp_path / "other"
    memory = small_memory(60, seed=4, video="w")
    write_memory(other, Remembered(replace(memory, model="0" * 64)))
    outcome = mule("memory", "merge", file, other, "--out", tmp_path / "both")
    assert f"{other}: must be a memory of this model" in str(outcome.exception)
    assert not (tmp_path / "both").exists()


def test_where_held_out_actors_were_seen_is_asked_for_before_others_are_merged(file, tmp_path):
    other = tmp_path / "other"
    write_memory(other, Remembered(small_memory(60, seed=4, video="w")))
    outcome = mule("memory", "merge", file, other, "--out", tmp_path / "both")
    assert "does not say which videos its held-out actors are from" in outcome.stderr
    content = read_memory(file)
    assert content.held_out is not None
    write_memory(file, replace(content, held_out=replace(content.held_out, videos=("w0", "w2"))))
    outcome = mule("memory", "merge", file, other, "--out", tmp_path / "some")
    assert "6 of 60 actors left out: held-out actors are from their videos (w0, w2)" in outcome.stderr
    assert "254 entries (200 before)" in outcome.stdout
    kept = read_memory(tmp_path / "some").held_out
    assert kept is not None
    assert kept.videos == ("w0", "w2")
    assert "40 held-out known actors of 2 videos" in mule("memory", "inspect", tmp_path / "some").stdout


def test_the_model_of_the_package_is_not_taught(tmp_path):
    table = tmp_path / "t.csv"
    table.write_text("video,actions\n")
    outcome = mule("teach", "stage", "--class", "hop", "--examples", table)
    assert "a model of the package cannot be changed. Copy" in str(outcome.exception)


def test_what_is_no_memory_is_refused(tmp_path):
    outcome = mule("memory", "inspect", tmp_path / "nothing")
    assert isinstance(outcome.exception, MemoryFileError)
    outcome = mule("memory", "prune", tmp_path / "nothing", "--share", "0.1")
    assert isinstance(outcome.exception, MemoryFileError)
