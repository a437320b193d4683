"""What rows share is made once before they start: maps of a frozen backbone for all class splits together."""

from dataclasses import replace
from pathlib import Path

import pytest
from made_films import SIDES, WALK_RUN_FLY, settings_on, two_in_each_film, write_films
from tiny_rows import JUDGING, silent, tiny_experiment

from mule.comparison.rows import Contestant, planned_rows, prepare
from mule.data.split.splits import ClassSets, SideVideos
from mule.inference import sides


@pytest.fixture
def asked_for(monkeypatch):
    """The videos of each call for maps; none are computed."""
    calls = []

    def none_computed(_experiment, _data, videos, **_):
        calls.append(sorted(videos))
        return 0

    monkeypatch.setattr(sides, "keep_features", none_computed)
    return calls


def rows_on(folder, *splits):
    frozen = {"name": "i3d_rgb_kinetics400", "weights": str(folder / "none.pt"), "frozen": True}
    experiment = tiny_experiment(folder, data=settings_on(folder), backbone=frozen)
    contestants = [
        Contestant(system, experiment.model_copy(update={"system": system})) for system in ("mule", "dear")
    ]
    return planned_rows(contestants, Path("out"), seeds=(0, 1), splits=splits, judging=JUDGING)


def test_maps_are_asked_for_once_whatever_the_systems_seeds_and_splits(tmp_path, asked_for):
    table = two_in_each_film()
    swapped = ClassSets(("walk",), ("fly",), ("run",), ())
    for name, classes, videos in (
        ("first", WALK_RUN_FLY, SIDES),
        ("second", swapped, SideVideos(("film0", "film3"), ("film1",), ("film2",))),
    ):
        write_films(tmp_path, table, classes=classes, sides=videos)
        (tmp_path / "split.toml").rename(tmp_path / f"{name}.toml")
    prepare(rows_on(tmp_path, "first.toml", "second.toml"), noted=silent)
    assert asked_for == [["film0", "film1", "film2", "film3"]]


def test_maps_of_other_clips_are_asked_for_apart(tmp_path, asked_for):
    write_films(tmp_path, two_in_each_film())
    rows = rows_on(tmp_path)
    longer = rows[0].experiment.data.model_copy(update={"num_frames": 8})
    other = replace(rows[0], experiment=rows[0].experiment.model_copy(update={"data": longer}))
    prepare([*rows, other], noted=silent)
    assert len(asked_for) == 2
