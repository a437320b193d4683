"""`Model.train`: a table and videos become a model, and what is too little is refused before training."""

import shutil

import pytest
from typer.testing import CliRunner

from mule import Model
from mule.api.own_videos import OwnVideosPlan, train_on_own_videos
from mule.cli.main import app
from mule.core.config import ConfigError, load_experiment
from mule.core.errors import TooFewActors, VideoError
from mule.data.split.sides import apply_split
from mule.data.split.splits import read_split
from mule.data.table.reading import read_actor_table
from mule.stage.benchmark import StageSet
from mule.stage.export import Export, write_dataset
from mule.training.step import Silence
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


class Heard(Silence):
    def __init__(self):
        self.sentences = []

    def noted(self, sentence):
        self.sentences.append(sentence)


def test_a_table_of_whole_clips_is_enough_and_every_decision_is_said_before_training(videos, tmp_path):
    """Labels of clips alone: a detector finds the people, and the model keeps it for watching."""
    table = read_actor_table(videos / "actors.csv")
    does = {
        video: sorted({name for row in rows for name in table.action_names(row)})
        for video in table.videos
        if (rows := [at for at, name in enumerate(table.video_names) if name == video])
    }
    labels = tmp_path / "labels.csv"
    labels.write_text(
        "\n".join(["video,actions", *(f"{video},{';'.join(names)}" for video, names in does.items())])
    )
    heard = Heard()
    model = Model.train(
        labels,
        videos=videos / "videos",
        out=tmp_path / "model",
        backbone="tiny",
        detector="builtin",
        val_share=0.5,
        settings=QUICK,
        listener=heard,
    )
    folder = tmp_path / "model.training"
    found = read_actor_table(folder / "actors.csv")
    assert found.has_box.all()
    assert found.has_time.all()
    for row, video in enumerate(found.video_names):
        assert set(found.action_names(row)) == set(does[video])
    assert f"people: {len(found)} found by builtin" in heard.sentences[0]
    said = "\n".join(heard.sentences)
    split = read_split(folder / "split.toml")
    used = apply_split(found, split)
    assert f"known actions ({len(model.classes)}): {', '.join(model.classes)}" in said
    assert "novel actions: none" in said
    assert (
        f"{len(used.train)} to train on, {len(used.val)} to choose the best epoch, {len(used.test)} to test on"
        in said
    )
    assert f"the training is kept in {folder}, the model will be {tmp_path / 'model'}" in said
    assert (tmp_path / "model" / "detector.safetensors").is_file()
    assert model.card.detector == "detector.safetensors"
    assert list(
        model.watch(next((videos / "videos").iterdir()), every_s=0.5)
    )  # without being told a detector
    again = OwnVideosPlan(labels, videos / "videos", tmp_path / "model", resumes=False)
    with pytest.raises(BundleError, match=f"mule watch VIDEOS --model {tmp_path / 'model'}"):
        train_on_own_videos(again)
    shutil.rmtree(tmp_path / "model")
    with pytest.raises(ConfigError, match="holds a training that was begun"):
        train_on_own_videos(again)


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
