"""From a trained run to its memory, and a new action taught to it from a table of examples, by commands."""

from dataclasses import replace

import numpy as np
import pytest
import typer
from typer.testing import CliRunner

from mule.cli import memory as memory_commands
from mule.cli.teach import teach as teach_command
from mule.core.config import experiment_from
from mule.core.errors import RangeError
from mule.data.table.reading import read_actor_table
from mule.memory.files import MemoryFileError, read_memory, write_memory
from mule.stage.benchmark import StageSet
from mule.stage.export import Export, write_dataset
from mule.training.build import run_experiment
from mule.training.step import Silence

pytestmark = pytest.mark.slow  # trains for some seconds

app = typer.Typer()
app.add_typer(memory_commands.app, name="memory")
app.command()(teach_command)

SETTINGS = {
    "system": "mule",
    "sizes": "tiny",
    "data": {
        "kind": "stage",
        "train_clips": 16,
        "val_clips": 8,
        "rows": 24,
        "cols": 32,
        "num_frames": 8,
        "stride_frames": 2,
    },
    "objective": {"inner_steps": 1},
    "optimizer": {"kind": "adamw", "lr": 1e-3},
    "training": {"epochs": 1, "batch_clips": 4, "tensorboard": False},
    "loading": {"workers": 0},
}


def mule(*arguments):
    return CliRunner().invoke(app, [*map(str, arguments)], catch_exceptions=True)


@pytest.fixture(scope="module")
def run_dir(tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs")
    settings = {**SETTINGS, "data": {**SETTINGS["data"], "root": str(folder / "stage")}}
    run_experiment(experiment_from(settings, source="tiny.toml"), folder / "run", listener=Silence())
    return folder / "run"


@pytest.fixture(scope="module")
def videos(tmp_path_factory):
    """Ten videos of actors who do novel actions too, and their table."""
    folder = tmp_path_factory.mktemp("examples") / "stage"
    clips = StageSet(split="A", role="test", seed=3, num_clips=10, size=(24, 32), num_frames=8)
    write_dataset(Export(clips, lossless=True), folder, workers=1)
    return folder


def test_a_memory_is_built_taught_and_added_to(run_dir, videos, tmp_path):
    outcome = mule("memory", "build", run_dir)
    assert outcome.exit_code == 0, outcome.output
    built = read_memory(run_dir / "memory.safetensors")
    assert built.memory.num_classes == 14
    assert built.memory.kernel.evidence_scale is not None
    assert built.held_out is not None

    table = read_actor_table(videos / "actors.csv")
    novel = [name for name in table.classes if name not in built.memory.class_names]
    does = table.labels[:, table.classes.index(novel[0])]
    outcome = mule(
        "teach", run_dir, "--class", novel[0], "--examples", videos / "actors.csv", "--videos", videos / "videos",
        "--out", tmp_path / "taught",
    )  # fmt: skip
    assert outcome.exit_code == 0, outcome.output
    assert f"'{novel[0]}' taught from {does.sum()} examples; 15 actions now" in outcome.stdout
    taught = read_memory(tmp_path / "taught").memory
    assert taught.class_names[-1] == novel[0]
    assert len(taught) == len(built.memory) + does.sum()
    old = [name for name in table.classes if name in built.memory.class_names]
    both = table.labels[does][:, [table.classes.index(name) for name in old]].sum()
    assert taught.labels[-int(does.sum()) :, :-1].sum().item() == both

    outcome = mule(
        "memory", "add", run_dir / "memory.safetensors", run_dir, "--examples", videos / "actors.csv",
        "--videos", videos / "videos", "--out", tmp_path / "more",
    )  # fmt: skip
    assert outcome.exit_code == 0, outcome.output
    is_known = table.labels[:, [table.classes.index(name) for name in old]].any(axis=1)
    assert len(read_memory(tmp_path / "more").memory) == len(built.memory) + is_known.sum()


def test_nobody_from_videos_of_held_out_actors_is_added_or_taught_from(run_dir, videos, tmp_path):
    place, out = tmp_path / "memory", tmp_path / "out"
    assert mule("memory", "build", run_dir, "--out", place).exit_code == 0
    content = read_memory(place)
    assert content.held_out is not None
    assert content.held_out.videos is not None
    assert not set(content.held_out.videos) & set(content.memory.places.videos())
    table = read_actor_table(videos / "actors.csv")
    known = [table.classes.index(name) for name in table.classes if name in content.memory.class_names]
    half = sorted(set(table.video_names))[:5]
    write_memory(place, replace(content, held_out=replace(content.held_out, videos=tuple(half))))
    is_allowed = ~np.isin(table.video_names, half)
    arguments = ("--examples", videos / "actors.csv", "--out", out)
    outcome = mule("memory", "add", place, run_dir, *arguments)
    assert outcome.exit_code == 0, outcome.output
    is_known = np.any(table.labels[:, known], axis=1)
    refused = (is_known & ~is_allowed).sum()
    assert (
        f"{refused} of {is_known.sum()} actors left out: held-out actors are from their videos"
        in outcome.stderr
    )
    assert len(read_memory(out).memory) == len(content.memory) + (is_known & is_allowed).sum()
    action = next(name for name in table.classes if name not in content.memory.class_names)
    does = table.labels[:, table.classes.index(action)]
    everywhere = replace(content.held_out, videos=tuple(sorted(set(table.video_names))))
    write_memory(place, replace(content, held_out=everywhere))
    outcome = mule(
        "teach", run_dir, "--class", action, "--memory", place, *arguments[:2], "--out", tmp_path / "no"
    )
    assert isinstance(outcome.exception, RangeError)
    assert f"must be from videos without held-out actors; none of {does.sum()} is" in str(outcome.exception)
    assert not (tmp_path / "no").exists()


def test_only_what_fits_the_run_is_taught(run_dir, videos, tmp_path):
    place = tmp_path / "memory"
    arguments = ("--examples", videos / "actors.csv", "--videos", videos / "videos", "--memory", place)
    mule("memory", "build", run_dir, "--out", place)
    outcome = mule("teach", run_dir, "--class", "fly", *arguments)
    assert isinstance(outcome.exception, RangeError)
    assert "some actors must do 'fly'" in str(outcome.exception)
    content = read_memory(place)
    write_memory(place, replace(content, memory=replace(content.memory, model="0" * 64), held_out=None))
    outcome = mule("teach", run_dir, "--class", "fly", *arguments)
    assert isinstance(outcome.exception, MemoryFileError)
    assert "features of the model that asks" in str(outcome.exception)
