"""Teaching measured by a study: exemplars are never tested on, and a run without novel actors enough is refused."""

import pytest
import typer
from typer.testing import CliRunner

from mule.core.config import experiment_from
from mule.core.errors import RangeError
from mule.training.build import run_experiment
from mule.training.step import Silence
from studies.teaching import TeachingPlan, TeachingTest, main

pytestmark = pytest.mark.slow  # trains for some seconds

app = typer.Typer()
app.command()(main)

SETTINGS = {
    "system": "mule-memory",
    "sizes": "tiny",
    "data": {
        "kind": "stage",
        "train_clips": 32,
        "val_clips": 48,
        "rows": 24,
        "cols": 32,
        "num_frames": 8,
        "stride_frames": 2,
    },
    "optimizer": {"kind": "adamw", "lr": 1e-3},
    "training": {"epochs": 1, "batch_clips": 4, "tensorboard": False},
    "loading": {"workers": 0},
}
CLIPS = 40


@pytest.fixture(scope="module")
def run_dir(tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs")
    settings = {**SETTINGS, "data": {**SETTINGS["data"], "root": str(folder / "stage")}}
    run_experiment(experiment_from(settings, source="tiny.toml"), folder / "run", listener=Silence())
    return folder / "run"


def test_every_novel_action_is_taught_and_measured(run_dir, tmp_path):
    arguments = [run_dir, "--examples", 2, "--draws", 1, "--test-clips", CLIPS]
    outcome = CliRunner().invoke(app, [*map(str, arguments), "--out", str(tmp_path / "teaching.md")])
    assert outcome.exit_code == 0, outcome.output
    text = (tmp_path / "teaching.md").read_text()
    test = TeachingTest(TeachingPlan(run_dir, None, 2, 1, CLIPS), [])
    actions = test.novel_actions(num_examples=2)
    for action in actions:
        assert f"| {action.replace('_', chr(92) + '_')} | 0." in text or f"| {action} | 0." in text
    assert text.count("met") >= 4
    found = [test.taught(actions[0], num_examples=2, seed=seed) for seed in (0, 0, 1)]
    assert found[0] == found[1] != found[2]
    assert 0 <= found[0].average_precision <= 1
    assert 0 <= found[0].known_flagged_before <= 0.3


def test_more_examples_than_there_are_actors_are_refused(run_dir):
    with pytest.raises(RangeError, match="Ask for fewer examples"):
        TeachingTest(TeachingPlan(run_dir, None, 500, 1, CLIPS), []).novel_actions(num_examples=500)
