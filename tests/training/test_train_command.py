"""`mule train` on the command line: what it prints, and its exit code."""

import pytest
import typer
from tiny_runs import settings_of
from typer.testing import CliRunner

from mule.cli.main import app as main_app
from mule.cli.train import train
from mule.core.config import experiment_from, experiment_toml, load_experiment


@pytest.fixture(scope="module")
def app():
    """The whole command; its group answers wrong input with exit code 2."""
    grouped = typer.Typer(cls=main_app.info.cls, no_args_is_help=True)
    grouped.callback()(lambda: None)
    grouped.command("train")(train)
    return grouped


@pytest.fixture(scope="module")
def experiment(tmp_path_factory):
    folder = tmp_path_factory.mktemp("experiment")
    wanted = experiment_from(settings_of(folder / "stage", training__epochs=1), source="")
    path = folder / "tiny.toml"
    path.write_text(experiment_toml(wanted))
    return path


def run(app, *arguments):
    return CliRunner().invoke(app, ["train", *map(str, arguments)])


def test_a_training_prints_its_progress_and_refuses_the_folder_the_second_time(app, experiment, tmp_path):
    first = run(app, experiment, "--out", tmp_path / "run")
    assert first.exit_code == 0, first.output
    assert "mAP of known actions" in first.output
    assert "3 steps" in first.output
    second = run(app, experiment, "--out", tmp_path / "run")
    assert second.exit_code == 2
    assert "--resume" in second.output
    third = run(app, experiment, "--out", tmp_path / "run", "--resume", "--set", "training.epochs=2")
    assert third.exit_code == 0, third.output
    assert "training.epochs was 1 and is 2 from here on" in third.output
    assert "6 steps" in third.output


def test_an_interrupted_training_says_how_it_continues(app, experiment, tmp_path, monkeypatch):
    def interrupted(*_, listener, **__):
        listener.stepped(4, 9, {"epoch": 0, "loss": 1.0, "multipliers": {}})
        raise KeyboardInterrupt

    monkeypatch.setattr("mule.training.build.run_experiment", interrupted)
    result = run(app, experiment, "--out", tmp_path / "run")
    assert result.exit_code == 130
    assert "stopped at step 4; the same command with --resume continues" in result.output


def test_a_wrong_setting_ends_with_code_two_and_no_folder(app, experiment, tmp_path):
    result = run(app, experiment, "--out", tmp_path / "run", "--set", "optimizer.lrr=1")
    assert result.exit_code == 2
    assert "Did you mean 'lr'?" in result.output
    assert not (tmp_path / "run").exists()


def test_an_unknown_system_ends_with_code_two(app, experiment, tmp_path):
    result = run(app, experiment, "--out", tmp_path / "run", "--set", "system=mul")
    assert result.exit_code == 2
    assert "system must be one of" in result.output


def test_a_loss_that_is_not_finite_ends_with_code_two_and_what_to_do(app, experiment, tmp_path):
    sets = ["--set", "optimizer.kind=sgd", "--set", "optimizer.lr=1e30", "--set", "schedule.kind=constant"]
    result = run(app, experiment, "--out", tmp_path / "run", *sets)
    assert result.exit_code == 2
    assert "training stopped at step" in result.output
    assert "lower optimizer.lr" in result.output


def test_a_system_can_be_chosen_and_names_the_run(app, experiment, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    result = run(app, experiment, "--system", "bce-aco-r", "--set", "training.epochs=1")
    assert result.exit_code == 0, result.output
    trained = load_experiment(tmp_path / "runs" / "tiny_bce-aco-r" / "experiment.toml")
    assert trained.system == "bce-aco-r"


def test_a_packaged_experiment_is_found_by_its_name(app, tmp_path):
    result = run(app, "stage", "--out", tmp_path / "run", "--set", "optimizer.lrr=1")
    assert result.exit_code == 2
    assert "Did you mean 'lr'?" in result.output  # read, and refused for its setting alone
    unknown = run(app, "stge", "--out", tmp_path / "run")
    assert unknown.exit_code == 2
    assert "stge: must be an experiment in TOML that can be read; no such file" in unknown.output
