"""`Model.train`: a table and videos become a model, and what is too little is refused before training."""

import shutil

import pytest
from typer.testing import CliRunner

from mule import Model
from mule.cli.main import app
from mule.core.config import load_experiment
from mule.core.errors import TooFewActors, VideoError
from mule.data.split.splits import read_split
from mule.data.table.reading import read_actor_table
from mule.stage.benchmark import StageSet
from mule.stage.export import Export, write_dataset
from mule.watching.engine.bundle import BundleError

pytestmark = pytest.mark.slow  # trains for some seconds

QUICK = (
    "sizes=tiny", "data.num_frames=8", "view.val_short_side_px=24", "training.epochs=1", "training.tensorboard=false",
    "loading.workers=0",
)  # fmt: skip


@pytest.fixture(scope="module")
def videos(tmp_path_factory):
    """Forty videos of 24 x 32 pixels, and their table."""
    folder = tmp_path_factory.mktemp("own") / "stage"
    clips = StageSet(split="A", role="train", seed=3, num_clips=40, size=(24, 32), num_frames=16)
    write_dataset(Export(clips, lossless=True), folder, workers=1)
    return folder


@pytest.fixture(scope="module")
def trained(videos, tmp_path_factory):
    out = tmp_path_factory.mktemp("models") / "model"
    model = Model.train(
        videos / "actors.csv",
        videos=videos / "videos",
        out=out,
        backbone="tiny",
        val_share=0.4,
        settings=QUICK,
    )
    return model, out


def test_a_table_and_videos_become_a_model(trained, videos):
    model, out = trained
    table = read_actor_table(videos / "actors.csv")
    assert model.classes == table.classes
    assert model.card.name == "model"
    assert Model.load(out).classes == model.classes
    assert "remembered actors; calibrated on" in repr(model)
    assert model.card.metrics["num_held_out_actors"] >= 25
    video = next((videos / "videos").iterdir())
    moments = list(model.watch(video, detector=videos, every_s=0.25))
    assert moments


def test_the_training_is_kept_and_can_be_repeated(trained):
    _, out = trained
    folder = out.with_name("model.training")
    experiment = load_experiment(folder / "experiment.toml")
    split = read_split(folder / "split.toml")
    assert experiment.data.kind == "table"
    assert experiment.data.num_known == len(split.classes.known_train)
    assert (folder / "run" / "model.safetensors").is_file()


def test_the_same_training_again_makes_the_same_model(trained, videos):
    """Nothing is trained twice: the run is there, and only the bundle is made again."""
    model, out = trained
    arguments = {
        "videos": videos / "videos",
        "out": out,
        "backbone": "tiny",
        "val_share": 0.4,
        "settings": QUICK,
    }
    with pytest.raises(BundleError, match="must not exist yet"):
        Model.train(videos / "actors.csv", **arguments)
    shutil.rmtree(out)
    again = Model.train(videos / "actors.csv", **arguments)
    assert again.card.weights_sha256 == model.card.weights_sha256


def test_what_is_missing_is_said_before_training(videos, tmp_path):
    table = videos / "actors.csv"
    with pytest.raises(TooFewActors, match="validation side must have at least 25 people"):
        Model.train(table, videos=videos / "videos", out=tmp_path / "m", backbone="tiny", val_share=0.1)
    (tmp_path / "empty").mkdir()
    with pytest.raises(VideoError, match="empty"):
        Model.train(table, videos=tmp_path / "empty", out=tmp_path / "m", backbone="tiny")
    assert not (tmp_path / "m").exists()


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ((), "and nobody similar is remembered"),
        (
            ("--no-memory",),
            "no memory; a person is novel if the network finds little evidence for any known action",
        ),
    ],
)
def test_the_command_says_what_it_made(trained, tmp_path, options, sentence):
    _, out = trained
    run_dir = out.with_name("model.training") / "run"
    arguments = ["bundle", str(run_dir), "--out", str(tmp_path / "made"), "--name", "mine", *options]
    outcome = CliRunner().invoke(app, arguments)
    assert outcome.exit_code == 0, outcome.output
    assert sentence in outcome.stdout
    assert f"next: mule watch SOURCE --model {tmp_path / 'made'}" in outcome.stdout
    for jargon in ("Fisher", "PE of log", "vacuity"):
        assert jargon not in outcome.stdout
    made = Model.load(tmp_path / "made")
    assert made.card.name == "mine"
    assert ("no memory" in repr(made)) == bool(options)
