"""A run on kept maps of a frozen backbone remembers and is taught from videos like any other."""

import numpy as np
import pytest
import torch
import typer
from typer.testing import CliRunner

from mule.cli import data_split
from mule.cli import memory as memory_commands
from mule.cli.teach import teach as teach_command
from mule.core.config import experiment_from
from mule.data.split.splits import read_split
from mule.data.table.reading import read_actor_table
from mule.features.pooling import context_map
from mule.memory.files import read_memory
from mule.model import KeptMaps
from mule.stage.benchmark import StageSet
from mule.stage.export import Export, write_dataset
from mule.training.build import load_run, run_experiment
from mule.training.step import Silence
from mule.watching.engine.bundle import clip_needs, seeing_model

pytestmark = pytest.mark.slow  # a real backbone looks at some clips

app = typer.Typer()
app.add_typer(memory_commands.app, name="memory")
app.add_typer(data_split.app, name="data")
app.command()(teach_command)


def mule(*arguments):
    outcome = CliRunner().invoke(app, [*map(str, arguments)], catch_exceptions=False)
    assert outcome.exit_code == 0, outcome.output
    return outcome


def test_a_frozen_run_is_taught_from_videos_and_sees_the_same_in_them(tmp_path, shared_data):
    """Exemplars come from the run's own videos, so that what it remembers of them must be what it saw before."""
    weights = shared_data / "backbones" / "i3d_rgb_kinetics400_fp16.pt"
    clips = StageSet(split="A", role="test", seed=3, num_clips=40, size=(32, 48), num_frames=16)
    write_dataset(Export(clips, lossless=True), tmp_path / "stage", workers=1)
    mule("data", "split", tmp_path / "stage" / "actors.csv", "--policy", "random", "--seed", 1,
         "--out", tmp_path / "stage" / "split.toml")  # fmt: skip
    known = read_split(tmp_path / "stage" / "split.toml").classes.known_train
    settings = {
        "system": "mule-memory",
        "sizes": "small",
        "data": {"kind": "table", "num_known": len(known), "root": str(tmp_path / "stage"), "num_frames": 8,
                 "stride_frames": 1},
        "view": {"val_short_side_px": 64},
        "backbone": {"name": "i3d_rgb_kinetics400", "frozen": True, "weights": str(weights)},
        "optimizer": {"kind": "adamw", "lr": 1e-3},
        "training": {"epochs": 1, "batch_clips": 4, "tensorboard": False},
        "loading": {"workers": 0},
    }  # fmt: skip
    run_experiment(experiment_from(settings, source="frozen.toml"), tmp_path / "run", listener=Silence())
    mule("memory", "build", tmp_path / "run")
    content = read_memory(tmp_path / "run" / "memory.safetensors")
    built, held_out = content.memory, content.held_out
    assert held_out is not None
    assert held_out.videos

    table = read_actor_table(tmp_path / "stage" / "actors.csv")
    arguments = ("--examples", tmp_path / "stage" / "actors.csv", "--videos", tmp_path / "stage" / "videos")
    added = mule("memory", "add", tmp_path / "run" / "memory.safetensors", tmp_path / "run", *arguments,
                 "--out", tmp_path / "more")  # fmt: skip
    assert "take no part in the decision who is novel" in added.stderr
    more = read_memory(tmp_path / "more").memory
    is_known = table.labels[:, [table.classes.index(name) for name in known]].any(axis=1)
    is_apart = ~np.isin(table.video_names, held_out.videos)
    # those that were there already are found to be the same, those of held-out actors' videos are left out
    assert len(more) == (is_known & is_apart).sum() < is_known.sum()
    novel = next(name for name in table.classes if name not in known)
    mule("teach", tmp_path / "run", "--class", novel, *arguments, "--out", tmp_path / "taught")
    taught = read_memory(tmp_path / "taught").memory
    assert taught.class_names == (*built.class_names, novel)

    run = load_run(tmp_path / "run")
    sees = seeing_model(run).backbone
    assert isinstance(sees, torch.nn.Module)
    assert isinstance(run.model.backbone, KeptMaps)
    pixels = torch.rand(1, 3, 8, 64, 96, generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        raw = context_map(sees.get_submodule("backbone")(pixels))
        expected = (raw - run.model.backbone.mean[:, None, None]) / run.model.backbone.deviation[
            :, None, None
        ]
        torch.testing.assert_close(sees(pixels).maps[0][:, :, 0], expected)  # watched as it was trained
    needs = clip_needs(run.experiment)
    assert (needs.shape.num_frames, needs.shape.stride_frames, needs.short_side_px) == (8, 1, 64)
