"""One builder for the sides of a table: rows given by hand are seen exactly as the same rows of a split are."""

import numpy as np
import pytest
import torch
from made_films import settings_on, two_in_each_film, write_films
from tiny_rows import run_of_chance, silent, tiny_experiment

from mule.core.settings import TableData
from mule.data.split.splits import Rules
from mule.data.table.reading import read_actor_table
from mule.inference.running import outputs_of
from mule.inference.sides import ActorRows, read_side, table_side
from mule.training.data import table_sides, videos_of


def test_rows_given_by_hand_are_seen_as_those_of_the_split(tmp_path):
    write_films(tmp_path, two_in_each_film())
    experiment = tiny_experiment(tmp_path, data=settings_on(tmp_path), training__batch_clips=2)
    run = run_of_chance(experiment)
    table = read_actor_table(tmp_path / "actors.csv")
    third = table.at(np.array(table.video_names) == "film2")
    rows = ActorRows(third, videos_of({"film2"}, tmp_path / "videos"))
    by_hand = table_side(experiment, rows, name="examples", classes=run.classes)
    of_split = read_side(experiment, "val", noted=silent)
    assert not by_hand.truth.is_novel.any()
    found, expected = (outputs_of(run, side, dropout_passes=0) for side in (by_hand, of_split))
    assert found.num_actors == 4
    assert torch.equal(found.outputs, expected.outputs)
    assert torch.equal(found.backbone_features, expected.backbone_features)
    assert found.clip_names == expected.clip_names
    assert found.truth.actor_ids == expected.truth.actor_ids


@pytest.mark.parametrize("said", ["drop", "unlabel"])
def test_an_experiment_overrules_what_a_split_does_with_training_actors_of_novel_actions(tmp_path, said):
    table = two_in_each_film()
    table.labels[0, 2] = True  # a walker of the first film flies, too
    write_films(tmp_path, table, rules=Rules(train_novel=said))
    sides, digests = {}, {}
    for chosen in (None, "drop", "unlabel"):
        data = tiny_experiment(tmp_path, data={**settings_on(tmp_path), "train_novel": chosen}).data
        assert isinstance(data, TableData)
        of_table = table_sides(data)
        sides[chosen] = of_table.train_actors.labels_of(("walk", "run")).tolist()
        digests[chosen] = of_table.digests["split"]
        assert of_table.boxes("test").is_novel.tolist() == [False, True]  # walkers do not count
    walk, run = [True, False], [False, True]
    assert sides["unlabel"] == [walk, run] * 4
    assert sides["drop"] == [run, *[walk, run] * 3]
    assert sides[None] == sides[said]
    assert digests[None] == digests[said]
    assert digests["drop"] != digests["unlabel"]
