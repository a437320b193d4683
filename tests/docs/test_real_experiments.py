"""Experiments on real video with a frozen I3D: what they see, and that every system fits into them."""

from pathlib import Path

import pytest
import torch

from mule.core.config import load_experiment
from mule.core.settings import TableData
from mule.model import KeptMaps
from mule.training.build import build_networks

NAMES = ["airtlab", "caviar", "jhmdb", "own"]


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("system", ["mule", "bce-aco-r", "mule-literal", "slowfast", "dear-pooled"])
def test_a_frozen_i3d_sees_and_only_what_is_right_of_it_learns(name, system):
    experiment = load_experiment(Path(name), [f"system={system}", "data.num_known=6"])
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
    recipes = {load_experiment(Path(name)).model_dump_json(include=kept) for name in NAMES}
    assert len(recipes) == 1
    sizes = {name: load_experiment(Path(name)).sizes for name in NAMES}
    assert {name for name, size in sizes.items() if size == "medium"} == {"jhmdb"}
    assert set(sizes.values()) == {"small", "medium"}
