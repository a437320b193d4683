"""Every packaged experiment loads by its name, builds its model, and contains no path of a machine."""

import re
from itertools import combinations
from pathlib import Path

import pytest
import torch

from mule.core.config import (
    PACKAGED,
    ConfigError,
    differences,
    experiment_file,
    experiment_toml,
    load_experiment,
)
from mule.core.settings import TableData
from mule.systems.catalogue import find_system
from mule.training.build import build_constraints, build_model, build_schedule

FILES = sorted(PACKAGED.glob("*.toml"))
R101 = "backbone.name=pytorchvideo_slowfast_8x8_r101"


def test_there_is_one_experiment_per_data_set():
    names = [path.stem for path in FILES]
    assert names == ["airtlab", "ava", "builtin", "caviar", "charades", "jhmdb", "own", "people", "stage"]
    for first, second in combinations(FILES, 2):
        assert len(differences(load_experiment(first), load_experiment(second))) > 1


def test_a_bare_name_is_a_packaged_experiment_in_any_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "stage").mkdir()  # a folder of that name does not matter
    assert load_experiment(Path("stage")) == load_experiment(PACKAGED / "stage.toml")
    own = tmp_path / "own.toml"
    own.write_text((PACKAGED / "jhmdb.toml").read_text())
    assert experiment_file(Path("own.toml")) == Path("own.toml")
    assert experiment_file(Path("own")) == PACKAGED / "own.toml"
    with pytest.raises(ConfigError, match=r"Give a file, or one of airtlab, ava, .*, stage"):
        load_experiment(Path("stag"))


def test_the_folder_of_the_repository_is_the_one_of_the_package():
    assert (Path(__file__).resolve().parents[2] / "experiments").samefile(PACKAGED)


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_the_model_of_an_experiment_builds_on_the_meta_device(path):
    experiment = load_experiment(path)
    if isinstance(experiment.data, TableData) and experiment.data.num_known is None:
        experiment = load_experiment(path, ["data.num_known=6"])  # the split would say
    with torch.device("meta"):
        model = build_model(experiment)
    assert all(parameter.is_meta for parameter in model.parameters())
    assert set(build_constraints(find_system(experiment.system), experiment)) <= {"static_bias"}
    schedule = build_schedule(
        experiment.schedule, lr=experiment.optimizer.lr, epochs=experiment.training.epochs, epoch_steps=100
    )
    assert schedule.rate(schedule.warmup_steps) == pytest.approx(experiment.optimizer.lr)


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_no_experiment_names_a_folder_of_data(path):
    experiment = load_experiment(path)
    assert experiment.data.root is None
    assert experiment.backbone.weights is None
    settings = [line for line in path.read_text().splitlines() if not line.startswith("#")]
    assert not re.search(r'"[^"]*/[^"]*"', "\n".join(settings))
    assert "root" not in experiment_toml(experiment)


@pytest.mark.parametrize("name", ["ava", "charades"])
@pytest.mark.parametrize("settings", [[], [R101]], ids=["r50", "r101"])
def test_the_papers_numbers_are_in_its_experiments(name, settings):
    experiment = load_experiment(Path(name), settings)
    assert isinstance(experiment.data, TableData)
    assert experiment.system == "mule-literal"
    assert experiment.training.batch_clips == 32
    assert experiment.optimizer.kind == "sgd"
    assert experiment.schedule.warmup_epochs > 0
    assert experiment.view.val_short_side_px == 256
    clip = (experiment.data.num_frames, experiment.data.stride_frames)
    assert clip == ((32, 2) if name == "ava" else (32, 1))
    assert experiment.data.num_known == (40 if name == "ava" else 104)
    with torch.device("meta"):
        build_model(experiment)
