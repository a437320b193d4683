"""A run is written by one process at a time, and used only as it was written."""

import json
import shutil

import pytest
from tiny_runs import Heard, tiny_experiment

from mule.core.locks import FolderInUseError, only_writer
from mule.core.manifest import MANIFEST, SealError
from mule.training.build import load_run, run_experiment
from mule.training.loop import TrainingStopped
from mule.training.run_folder import experiment_of


@pytest.fixture(scope="module")
def trained(root, tmp_path_factory):
    run_dir = tmp_path_factory.mktemp("sealed") / "run"
    run_experiment(tiny_experiment(root, training__epochs=1), run_dir, listener=Heard())
    return run_dir


@pytest.fixture
def copy(trained, tmp_path):
    return shutil.copytree(trained, tmp_path / "copy")


def test_a_finished_run_lists_what_decides_and_can_be_copied(copy):
    files = json.loads((copy / MANIFEST).read_text())["files"]
    assert set(files) == {"experiment.toml", "model.safetensors", "card.json"}
    assert experiment_of(copy).system == load_run(copy).experiment.system


def test_an_edited_experiment_of_a_finished_run_is_refused(copy):
    path = copy / "experiment.toml"
    path.write_text(path.read_text().replace('"mule-without-aco-r"', '"slowfast"'))
    for use in (experiment_of, load_run):
        with pytest.raises(SealError, match=r"experiment\.toml: must be as it was written; it has changed"):
            use(copy)


def test_a_finished_run_without_its_manifest_is_refused(copy):
    (copy / MANIFEST).unlink()
    with pytest.raises(SealError, match=r"mule-manifest\.json: must list the files of this folder"):
        experiment_of(copy)


def test_a_run_that_is_trained_further_is_sealed_again(root, copy):
    run_experiment(tiny_experiment(root, training__epochs=2), copy, listener=Heard(), resumes=True)
    assert experiment_of(copy).training.epochs == 2
    load_run(copy)


def test_a_second_training_is_refused_before_it_writes_anything(root, trained):
    before = (trained / "experiment.toml").read_bytes(), (trained / "run.json").read_bytes()
    other = tiny_experiment(root, system="slowfast")
    with only_writer(trained):
        for resumes in (False, True):
            with pytest.raises(
                FolderInUseError, match=r"only one process may write here at a time; process \d+"
            ):
                run_experiment(other, trained, listener=Heard(), resumes=resumes)
    assert ((trained / "experiment.toml").read_bytes(), (trained / "run.json").read_bytes()) == before


def test_a_folder_that_is_removed_while_it_is_written_ends_in_one_sentence(root, tmp_path):
    class Removing(Heard):
        def stepped(self, step, num_steps, values):
            super().stepped(step, num_steps, values)
            shutil.rmtree(tmp_path / "run", ignore_errors=True)

    with pytest.raises(TrainingStopped, match=r"training stopped at step .*no such file or directory"):
        run_experiment(tiny_experiment(root), tmp_path / "run", listener=Removing())
    assert list(tmp_path.iterdir()) == []
