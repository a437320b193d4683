"""What a run says of every actor of a side, and that it is kept and found again."""

import json

import numpy as np
import pytest
import torch
from made_films import settings_on, two_in_each_film, write_films
from tiny_rows import TEST_CLIPS, run_of_chance, silent, tiny_experiment

from mule.core.errors import RangeError, WeightsError
from mule.evaluation.mean_ap import mean_average_precision
from mule.inference.outputs import read_side_outputs
from mule.inference.results import ResultError, kept_outputs
from mule.inference.running import NO_DROPOUT, NO_PASSES, NO_READOUT, OutputsOf, outputs_of
from mule.inference.sides import key_frame, read_side, require_sides, side_digest, sides_under_test
from mule.stage.classes import ACTIONS, stage_split
from mule.systems.catalogue import SYSTEMS
from mule.training.build import run_experiment
from mule.training.step import Silence, scene_boxes

SIDES = ("train", "val", "test-uniform", "test-biased", "test-counter")


def side_of(experiment, name="test-uniform"):
    return read_side(experiment, name, test_clips=TEST_CLIPS, noted=silent)


ON_ANY_BACKBONE = [name for name, system in SYSTEMS.items() if system.backbone is None]
"""The others are a large backbone with the head of slowfast."""


@pytest.mark.parametrize("name", ON_ANY_BACKBONE)
def test_every_system_gives_what_scores_ask_for_or_says_why_not(root, name):
    experiment = tiny_experiment(root, system=name)
    found = outputs_of(run_of_chance(experiment), side_of(experiment), dropout_passes=2)
    stored = found.stored  # checks that the last layer makes the logits of the features
    assert stored.logits.shape == found.labels.shape == (found.num_actors, 14)
    missing = set(stored.missing(("logits", "features", "readout", "dropout_logits")))
    assert missing == set(found.not_stored)
    assert set(found.not_stored.values()) <= {NO_DROPOUT, NO_READOUT}
    assert ("readout" in missing) == (name == "afac")
    assert ((found.probability >= 0) & (found.probability <= 1)).all()
    kinds = {
        "mule": "tied",
        "mule-literal": "independent",
        "dear": "dirichlet",
        "enn": "dirichlet",
        "afac": "read",
    }
    assert found.kind == kinds.get(name, found.kind)


@pytest.mark.parametrize("name", SIDES)
def test_actors_have_the_labels_of_the_rendered_clips_and_are_novel_if_they_do_a_novel_action(root, name):
    experiment = tiny_experiment(root)
    side = side_of(experiment, name)
    found = outputs_of(run_of_chance(experiment), side, dropout_passes=0)
    rows = np.concatenate([side.rows_of(clip) for clip in range(len(found.clip_names))])
    np.testing.assert_array_equal(found.truth.labels, side.truth.labels[rows])
    split, actions = stage_split("A"), list(ACTIONS)
    does_novel = found.truth.labels[:, [actions.index(action) for action in split.novel]].any(axis=1)
    np.testing.assert_array_equal(found.truth.is_novel, does_novel)
    assert does_novel.any() == name.startswith("test")
    known = found.truth.labels[:, [actions.index(action) for action in found.classes]]
    np.testing.assert_array_equal(found.labels, known)
    assert found.not_stored == {"dropout_logits": NO_PASSES}
    assert np.diff(found.clip_index).min() >= 0


def test_outputs_are_those_of_the_model_in_evaluation_mode(root):
    experiment = tiny_experiment(root, system="mule-without-aco-r")
    run = run_of_chance(experiment)
    found = outputs_of(run, side_of(experiment), dropout_passes=2)
    with torch.no_grad():
        outputs = [run.model(batch.pixels, scene_boxes(batch)) for batch in side_of(experiment).batches]
    assert torch.equal(found.outputs, torch.cat([each.outputs for each in outputs]))
    assert torch.equal(found.features, torch.cat([each.features for each in outputs]))
    assert not any(module.training for module in run.model.modules())


def test_passes_with_dropout_differ_and_come_again_with_their_seed(root):
    experiment = tiny_experiment(root)
    run, before = run_of_chance(experiment), torch.get_rng_state()
    first, again, other = (
        outputs_of(run, side_of(experiment), dropout_passes=3, seed=seed).dropout_logits for seed in (0, 0, 1)
    )
    assert first is not None
    assert again is not None
    assert other is not None
    assert torch.equal(first, again)
    assert not torch.equal(first, other)
    assert not torch.equal(first[0], first[1])
    assert torch.equal(torch.get_rng_state(), before)  # nobody else's chance was touched


@pytest.fixture(scope="module")
def finished(root, tmp_path_factory):
    run_dir = tmp_path_factory.mktemp("runs") / "run"
    run_experiment(tiny_experiment(root), run_dir, listener=Silence())
    return run_dir


def test_outputs_are_kept_and_computed_again_only_if_weights_or_data_are_others(root, finished):
    source = OutputsOf(finished, tiny_experiment(root), dropout_passes=2, test_clips=TEST_CLIPS)
    made = source.on("test-uniform", noted=silent)
    path = finished / "outputs" / "test-uniform.safetensors"
    written_at = path.stat().st_mtime_ns
    kept = source.on("test-uniform", noted=silent)
    assert path.stat().st_mtime_ns == written_at
    for name in ("outputs", "features", "dropout_logits"):
        assert torch.equal(getattr(made, name), getattr(kept, name))
    np.testing.assert_array_equal(made.truth.labels, kept.truth.labels)
    assert (made.clip_names, made.classes, made.kind) == (kept.clip_names, kept.classes, kept.kind)
    card = json.loads((finished / "card.json").read_text())
    others = {
        "weights": {**json.loads(source.key("test-uniform")), "weights_sha256": "other"},
        "data": json.loads(OutputsOf(finished, tiny_experiment(root), 2, TEST_CLIPS + 1).key("test-uniform")),
        "passes": json.loads(OutputsOf(finished, tiny_experiment(root), 3, TEST_CLIPS).key("test-uniform")),
    }
    assert card["weights_sha256"] in source.key("test-uniform")
    for key in others.values():
        assert read_side_outputs(finished, "test-uniform", key=json.dumps(key, sort_keys=True)) is None


def test_damaged_outputs_are_made_anew(root, finished):
    source = OutputsOf(finished, tiny_experiment(root), test_clips=TEST_CLIPS)
    made = source.on("val", noted=silent)
    path = finished / "outputs" / "val.safetensors"
    path.write_bytes(path.read_bytes()[:100])
    assert read_side_outputs(finished, "val") is None
    with pytest.raises(ResultError, match="must have its outputs here"):
        kept_outputs(finished, "val")
    assert torch.equal(source.on("val", noted=silent).outputs, made.outputs)


def test_a_run_that_is_not_finished_has_no_outputs(root, tmp_path):
    with pytest.raises(WeightsError, match=r"must have a card.*--resume"):
        OutputsOf(tmp_path, tiny_experiment(root)).on("val", noted=silent)


def test_a_side_of_another_name_is_refused(root):
    with pytest.raises(
        RangeError, match="one of train, val, test-uniform, test-biased, test-counter; got test"
    ):
        require_sides(tiny_experiment(root), ["val", "test"])


def test_a_frozen_backbone_sees_rendered_clips_as_its_kept_maps_were(root, finished, tmp_path):
    frozen = {"name": "tiny", "weights": str(finished), "frozen": True}
    experiment = tiny_experiment(root, backbone=frozen)
    run_experiment(experiment, tmp_path / "run", listener=Silence())
    lines = (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()
    trained = [json.loads(line)["mean_ap"] for line in lines if json.loads(line)["kind"] == "validation"][-1]
    found = OutputsOf(tmp_path / "run", experiment, test_clips=TEST_CLIPS).on("val", noted=silent)
    assert mean_average_precision(found.stored.logits.numpy(), found.labels) == pytest.approx(
        trained, abs=1e-9
    )


@pytest.fixture(scope="module")
def films(tmp_path_factory):
    return write_films(tmp_path_factory.mktemp("films"), two_in_each_film())


def test_a_table_has_a_test_side_whose_actors_are_those_of_its_rows(films):
    experiment = tiny_experiment(films, data=settings_on(films), training__batch_clips=3)
    assert sides_under_test(experiment) == ("test",)
    found = outputs_of(run_of_chance(experiment), side_of(experiment, "test"), dropout_passes=0)
    assert found.truth.is_novel.tolist() == [False, True]  # who walks does what is taught and not tested
    assert [found.truth.classes[at] for at in found.truth.labels.argmax(axis=1)] == ["run", "fly"]
    assert found.truth.actor_ids == ("1", "1")
    assert [(name.video, name.key_time_s) for name in found.clip_names] == [("film3", 0.5), ("film3", 1.0)]
    assert found.clip_index.tolist() == [0, 1]
    assert found.video_index.tolist() == [0, 0]  # two clips of one film
    pixels = key_frame(experiment, "test", (1, found.clip_names[1]))
    assert pixels.shape[2] == 3
    assert side_digest(experiment, "test") != side_digest(experiment, "val")
