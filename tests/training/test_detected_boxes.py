"""Detected persons: pooled from the kept maps of a frozen backbone, and labelled in training as `data.person_labels` says."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from made_films import persons_of, settings_on, two_in_each_film, write_films
from tiny_extraction import tiny_recipe
from tiny_rows import silent, tiny_experiment
from tiny_runs import Heard
from torch import nn

from mule.core.settings import TableData
from mule.data.split.splits import Rules
from mule.data.table.table import ActorTable, joined_tables
from mule.data.table.writing import write_object_table
from mule.features.extraction import FrozenBackbone
from mule.features.pooling import FeatureMaps
from mule.inference.running import outputs_of
from mule.inference.sides import keep_maps, read_side
from mule.training import actor_inputs, maps
from mule.training.build import build_parts, load_run, run_experiment
from mule.training.data import table_sides

CHANNELS, STRIDE = 1024, 32
MOVED = 0.04
"""Right and down; the IoU of a moved box is above a half."""


class WidePixels(nn.Module):
    """As many channels as I3D, each a mix of the pixels and of where they are, so that no two boxes look the same."""

    def __init__(self):
        super().__init__()
        self.conv = nn.Conv3d(5, CHANNELS, (1, STRIDE, STRIDE), stride=(1, STRIDE, STRIDE))
        self.eval()

    def forward(self, clips):
        rows, cols = (torch.linspace(-3, 3, size) for size in clips.shape[3:])
        place = torch.stack(torch.meshgrid(rows, cols, indexing="ij"))
        place = place[None, :, None].expand(len(clips), -1, clips.shape[2], -1, -1)
        return FeatureMaps((self.conv(torch.cat([clips, place], dim=1)),), STRIDE)


def actors_and_persons():
    """The films' actors, and moved detections of all but one known actor of the test, with a stranger beside them."""
    table = two_in_each_film()
    in_test = np.flatnonzero(np.array(table.video_names) == "film3")
    found = np.setdiff1d(np.arange(len(table)), in_test[:1])
    stranger = replace(table.at(in_test[:1]), boxes_xyxy_unit=np.array([[0.8, 0.0, 0.95, 0.15]]))
    return table, persons_of(joined_tables([table.at(found), stranger]), moved=MOVED)


@pytest.fixture(scope="module")
def patched():
    with pytest.MonkeyPatch.context() as patch:
        yield patch


@pytest.fixture(scope="module")
def films(tmp_path_factory, patched):
    torch.manual_seed(4)
    network = WidePixels()
    patched.setattr(actor_inputs, "load_classifier", lambda *_: None)
    patched.setattr(maps, "frozen_backbone", lambda *_, **__: FrozenBackbone(network, tiny_recipe()))
    table, persons = actors_and_persons()
    root = write_films(tmp_path_factory.mktemp("frozen"), table, rules=Rules(z1_at_test="known"))
    write_object_table(persons, root / "persons.csv")
    (root / "weights.pt").write_bytes(b"weights")
    return root


def frozen_on(root, **data):
    weights = {"name": "i3d_rgb_kinetics400", "weights": str(root / "weights.pt"), "frozen": True}
    settings = {**settings_on(root), "persons": "persons.csv", "test_boxes": "detected", **data}
    return tiny_experiment(
        root,
        system="mule",
        data=settings,
        view={"val_short_side_px": 128},
        backbone=weights,
        training__batch_clips=2,
    )


@pytest.fixture(scope="module")
def frozen_run(films, tmp_path_factory):
    run_experiment(frozen_on(films), folder := tmp_path_factory.mktemp("runs") / "run", listener=Heard())
    return load_run(folder)


def listed_as_actors(films, root):
    """The same videos, with the persons of the test side as the rows of a table of actors."""
    table, persons = actors_and_persons()
    in_test = np.flatnonzero(np.array(persons.videos)[persons.video_index] == "film3")
    labels = np.zeros((len(in_test), 3), dtype=bool)
    labels[:, 0] = True
    rows = ActorTable(
        persons.videos,
        table.classes,
        persons.video_index[in_test],
        persons.time_s[in_test],
        persons.boxes_xyxy_unit[in_test],
        labels,
        ("",) * len(in_test),
    )
    others = table.at(np.array(table.video_names) != "film3")
    write_films(root, joined_tables([others, rows]), rules=Rules(z1_at_test="known"))
    (root / "weights.pt").write_bytes((films / "weights.pt").read_bytes())
    return root


def test_a_frozen_backbone_shows_detected_persons_as_if_a_table_listed_their_boxes(
    films, frozen_run, tmp_path
):
    detected = outputs_of(frozen_run, read_side(frozen_on(films), "test", noted=silent), dropout_passes=0)
    listed = frozen_on(listed_as_actors(films, tmp_path), persons=None, test_boxes="true")
    expected = outputs_of(frozen_run, read_side(listed, "test", noted=silent), dropout_passes=0)
    assert detected.num_actors == expected.num_actors == 4
    order, other = (
        sorted(
            range(4),
            key=lambda row: (each.clip_names[each.clip_index[row]], *each.truth.boxes_xyxy_unit[row]),
        )
        for each in (detected, expected)
    )
    assert torch.equal(detected.backbone_features[order], expected.backbone_features[other])
    torch.testing.assert_close(detected.outputs[order], expected.outputs[other])


def test_a_frozen_backbone_pools_the_detected_box_and_judges_who_has_a_truth(films, frozen_run):
    side = read_side(frozen_on(films), "test", noted=silent)
    found = outputs_of(frozen_run, side, dropout_passes=0)
    table, persons = actors_and_persons()
    in_test = np.array(persons.videos)[persons.video_index] == "film3"
    assert sorted(found.truth.boxes_xyxy_unit.tolist()) == sorted(persons.boxes_xyxy_unit[in_test].tolist())
    assert found.is_judged is not None
    assert found.is_judged.sum() == 3  # the stranger is seen, the lost actor is not
    assert found.truth.is_novel[found.is_judged].sum() == 1
    true = outputs_of(
        frozen_run, read_side(frozen_on(films, test_boxes="true"), "test", noted=silent), dropout_passes=0
    )
    assert true.num_actors == int((np.array(table.video_names) == "film3").sum()) == 4
    assert not torch.isclose(found.backbone_features[:3], true.backbone_features[1:]).all(dim=1).any()


def test_maps_do_not_depend_on_the_boxes_so_detected_ones_need_none_anew(films, frozen_run, monkeypatch):
    keep_maps([frozen_on(films)], noted=silent)
    monkeypatch.setattr(maps, "frozen_backbone", lambda *_, **__: pytest.fail("computed"))
    for boxes in ("true", "detected"):
        for side in ("train", "val", "test"):
            outputs_of(
                frozen_run,
                read_side(frozen_on(films, test_boxes=boxes), side, noted=silent),
                dropout_passes=0,
            )


WALKER, RUNNER, PERSON = [0.1, 0.2, 0.5, 0.9], [0.1, 0.2, 0.5, 0.8], [0.1, 0.2, 0.5, 0.88]


@pytest.fixture
def crowded(tmp_path):
    """Films in which two actors nearly cover each other; one detection overlaps both, and the walker most."""
    table = two_in_each_film()
    boxes = np.tile([WALKER, RUNNER], (len(table) // 2, 1))
    table = replace(table, boxes_xyxy_unit=boxes)
    root = write_films(tmp_path, table, rules=Rules(z1_at_test="known"))
    persons = persons_of(
        replace(table, boxes_xyxy_unit=np.tile([PERSON], (len(table), 1))).at(np.arange(0, len(table), 2))
    )
    write_object_table(persons, root / "persons.csv")
    return root


@pytest.mark.parametrize(("labels", "expected"), [("best", [True, False]), ("all", [True, True])])
def test_a_detected_person_trains_with_the_labels_of_its_best_match_or_of_all(crowded, labels, expected):
    data = {**settings_on(crowded), "persons": "persons.csv", "person_labels": labels}
    parts, _ = build_parts(
        tiny_experiment(crowded, data=data, training__batch_clips=2),
        device=torch.device("cpu"),
        listener=Heard(),
    )
    batches = list(parts.train)
    assert (
        sum(batch.num_actors for batch in batches) == 4 * 3
    )  # two actors and a person at each of four moments
    for batch in batches:
        for first in range(0, batch.num_actors, 3):
            assert batch.labels[first : first + 3].tolist() == [[True, False], [False, True], expected]


def test_the_labels_of_persons_decide_nothing_outside_training(crowded):
    sides = {}
    for labels in ("best", "all"):
        settings = settings_on(crowded) | {
            "persons": "persons.csv",
            "person_labels": labels,
            "test_boxes": "detected",
        }
        data = tiny_experiment(crowded, data=settings).data
        assert isinstance(data, TableData)
        sides[labels] = table_sides(data)
    for side in ("val", "test"):
        best, every = (sides[labels].boxes(side) for labels in ("best", "all"))
        assert np.array_equal(best.actors.labels, every.actors.labels)
        assert best.counts == every.counts
    differs = sides["best"].train_actors.labels != sides["all"].train_actors.labels
    assert differs.any(axis=1).sum() == 4  # the persons of four moments
