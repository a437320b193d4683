"""Experiments on real video with a frozen I3D: what they see, and that every system can be put into them."""

from pathlib import Path

import pytest
import torch

from mule.core.config import TableData, load_experiment
from mule.model import KeptMaps
from mule.training.build import build_networks

FILES = sorted((Path(__file__).resolve().parents[2] / "experiments").glob("*_i3d*.toml"))


def test_every_experiment_on_real_video_is_judged_here():
    assert [path.stem for path in FILES] == [
        "airtlab_i3d",
        "caviar_i3d",
        "jhmdb_i3d",
        "jhmdb_i3d_tiles2",
        "own_i3d",
    ]


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
@pytest.mark.parametrize("system", ["mule", "bce-aco-r", "mule-literal", "slowfast", "dear-pooled"])
def test_a_frozen_i3d_sees_and_only_what_is_right_of_it_learns(path, system):
    experiment = load_experiment(path, [f"system={system}"])
    assert isinstance(experiment.data, TableData)
    assert experiment.backbone.frozen
    assert experiment.backbone.name == "i3d_rgb_kinetics400"
    with torch.device("meta"):
        model, backbone = build_networks(experiment)
    assert isinstance(model.backbone, KeptMaps)
    assert model.backbone.stride == backbone.stride == 32
    assert sum(p.numel() for p in model.parameters()) < 4e6


def test_one_recipe_for_all_real_data_and_wider_relations_where_clips_are_many():
    kept = {"seed", "system", "backbone", "objective", "optimizer", "schedule"}
    recipes = {load_experiment(path).model_dump_json(include=kept) for path in FILES}
    assert len(recipes) == 1
    sizes = {path.stem: load_experiment(path).sizes for path in FILES}
    assert {name for name, size in sizes.items() if size == "medium"} == {"jhmdb_i3d", "jhmdb_i3d_tiles2"}
    assert set(sizes.values()) == {"small", "medium"}
