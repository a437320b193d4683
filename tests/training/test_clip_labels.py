"""Labels of whole clips: actors speak for their clip in training, in validation and in judgement."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from made_films import FOUR, settings_on, write_films
from tiny_runs import Heard, tiny_experiment

from mule.data.split.splits import ClassSets, Rules
from mule.data.table.table import ActorTable
from mule.inference.running import NO_READOUT, outputs_of
from mule.inference.sides import read_side
from mule.training.build import build_parts, load_run, run_experiment
from mule.training.loop import validated
from mule.training.step import BatchObjective, labelled_output, labels_in, scene_boxes

CPU = torch.device("cpu")
ACTORS = (3, 1, 2, 2)
"""In the two moments of each film; the one of film1 is the whole frame."""


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    """Films of which every actor of a clip has all that is done in it."""
    folder = tmp_path_factory.mktemp("films")
    rows = [(film, time, actor) for film in range(4) for time in (0.5, 1.0) for actor in range(ACTORS[film])]
    film, time, actor = (np.array(column) for column in zip(*rows, strict=True))
    boxes = np.stack([0.1 + 0.2 * actor, 0.2 + 0 * actor, 0.3 + 0.2 * actor, 0.9 + 0 * actor], axis=1)
    boxes[film == 1] = np.nan
    labels = np.stack([time == 0.5, (time == 1.0) | (film == 2)], axis=1)
    table = ActorTable(FOUR, ("walk", "run"), film, time.astype(float), boxes, labels, ("",) * len(rows))
    classes, rules = ClassSets(("walk",), ("run",), (), ()), Rules(z1_at_test="known")
    return write_films(folder, table, classes=classes, rules=rules)


def experiment_on(root, labels_of="clips", **changes):
    data = {**settings_on(root), "labels_of": labels_of}
    return tiny_experiment(root, data=data, training__batch_clips=4, **changes)


@pytest.fixture(scope="module")
def parts(root):
    return build_parts(experiment_on(root), device=CPU, listener=Heard())[0]


def first_batch(parts):
    [batch] = list(parts.val)  # to the end, so that the next test begins again
    return batch


def test_a_clip_does_what_is_written_of_any_of_its_actors(parts):
    batch = first_batch(parts)
    assert batch.actor_clip_index.tolist() == [0, 0, 1, 1]
    assert labels_in(batch, "clips").tolist() == [[True, True], [False, True]]
    one_of_them = replace(batch, labels=torch.tensor([[0, 1], [1, 0], [0, 0], [0, 1]]).bool())
    assert labels_in(one_of_them, "clips").tolist() == [[True, True], [False, True]]
    assert labels_in(batch, "actors") is batch.labels


def test_the_loss_is_the_mean_over_clips_of_what_their_strongest_actors_say(parts):
    batch = first_batch(parts)
    parts.model.eval()
    found = BatchObjective(parts.model, batch, parts.objective, progress=0.0, labels_of="clips")()
    output = parts.model(batch.pixels, scene_boxes(batch))
    clips = torch.stack([output.outputs[:2].amax(dim=0), output.outputs[2:].amax(dim=0)])
    spoken = labelled_output(output, "clips")
    assert torch.equal(spoken.outputs, clips)
    expected = parts.objective(spoken, labels_in(batch, "clips").float(), 0.0)
    torch.testing.assert_close(found.loss, expected.loss)
    for name, value in expected.constraints.items():
        torch.testing.assert_close(found.constraints[name], value)


def test_validation_counts_clips(parts):
    found = validated(parts.model, parts.val, device=CPU, labels_of=parts.labels_of)
    assert found.num_actors == 2
    assert validated(parts.model, parts.val, device=CPU).num_actors == 4


@pytest.mark.parametrize("system", ["mule-without-aco-r", "mule-literal-without-aco-r", "dear-pooled"])
def test_a_training_on_labels_of_clips_runs_and_is_judged_by_clip(root, tmp_path, system):
    experiment = experiment_on(root, system=system)
    run_experiment(experiment, tmp_path / "run", listener=Heard())
    run = load_run(tmp_path / "run")
    side = read_side(experiment, "test", noted=lambda _: None)
    found = outputs_of(run, side, dropout_passes=2)
    assert found.num_actors == len(found.clip_names) == 2
    assert found.labels.tolist() == [[True, False], [False, True]]
    assert found.readout is None
    assert found.not_stored["readout"] == NO_READOUT
    of_actors = experiment_on(root, "actors", system=system)
    one_by_one = outputs_of(run._replace(experiment=of_actors), side, dropout_passes=0)
    assert one_by_one.num_actors == 4
    logits = one_by_one.stored.logits
    expected = torch.stack([logits[:2].amax(dim=0), logits[2:].amax(dim=0)])
    torch.testing.assert_close(found.stored.logits, expected)
    torch.testing.assert_close(found.features[1], one_by_one.features[2:].mean(dim=0))
    assert found.dropout_logits is not None
    assert found.dropout_logits.shape == (2, 2, 2)
