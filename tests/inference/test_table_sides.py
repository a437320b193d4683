"""One builder for the sides of a table: rows given by hand are seen exactly as the same rows of a split are."""

import numpy as np
import torch
from made_films import settings_on, two_in_each_film, write_films
from tiny_rows import run_of_chance, silent, tiny_experiment

from mule.data.table.reading import read_actor_table
from mule.inference.running import outputs_of
from mule.inference.sides import ActorRows, read_side, table_side
from mule.training.data import videos_of


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
