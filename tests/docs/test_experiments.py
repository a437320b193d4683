"""Every experiment file loads, builds its model, and says nothing about where data lies."""

import re
from pathlib import Path

import pytest
import torch

from mule.core.config import TableData, experiment_toml, load_experiment
from mule.systems.catalogue import find_system
from mule.training.build import build_constraints, build_model, build_schedule

FILES = sorted((Path(__file__).resolve().parents[2] / "experiments").glob("*.toml"))


def test_the_paper_and_the_rendered_benchmark_are_there():
    names = {path.stem for path in FILES}
    assert {"ava_r50", "ava_r101", "charades_r50", "charades_r101"} <= names
    assert {"stage_mule", "stage_mule_literal", "stage_bce", "stage_slowfast", "stage_dear"} <= names


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_the_model_of_an_experiment_builds_on_the_meta_device(path):
    experiment = load_experiment(path)
    with torch.device("meta"):
        model = build_model(experiment)
    assert all(parameter.is_meta for parameter in model.parameters())
    assert set(build_constraints(find_system(experiment.system), experiment)) <= {"static_bias"}
    schedule = build_schedule(
        experiment.schedule, lr=experiment.optimizer.lr, epochs=experiment.training.epochs, epoch_steps=100
    )
    assert schedule.rate(schedule.warmup_steps) == pytest.approx(experiment.optimizer.lr)


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_no_experiment_says_where_data_lies(path):
    experiment = load_experiment(path)
    assert experiment.data.root is None
    assert experiment.backbone.weights is None
    assert not re.search(r'"[^"]*/[^"]*"', path.read_text())
    written = experiment_toml(experiment)
    assert "root" not in written


@pytest.mark.parametrize(
    "path", [path for path in FILES if path.stem.startswith(("ava", "charades"))], ids=lambda path: path.stem
)
def test_the_papers_numbers_are_in_its_experiments(path):
    experiment = load_experiment(path)
    assert isinstance(experiment.data, TableData)
    assert experiment.training.batch_clips == 32
    assert experiment.optimizer.kind == "sgd"
    assert experiment.schedule.warmup_epochs > 0
    assert experiment.view.val_short_side_px == 256
    clip = (experiment.data.num_frames, experiment.data.stride_frames)
    assert clip == ((32, 2) if path.stem.startswith("ava") else (32, 1))
    assert experiment.data.num_known == (40 if path.stem.startswith("ava") else 104)


def test_rows_of_one_table_make_as_many_gradient_steps():
    experiments = [load_experiment(path) for path in FILES if path.stem.startswith("stage")]
    steps = {each.training.epochs * max(each.objective.inner_steps, 1) for each in experiments}
    assert len(steps) == 1
    plain = {"other_background": 0.0, "undone_motion": 0.0}  # what a row of theirs is about
    own_views = [each.model_copy(update={"view": each.view.model_copy(update=plain)}) for each in experiments]
    shared = {
        each.model_dump_json(include={"data", "view", "optimizer", "sizes", "seed"}) for each in own_views
    }
    assert len(shared) == 1
