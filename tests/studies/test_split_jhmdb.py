"""Splits of a real data set: J-HMDB, one action per clip, clips of one film in a group."""

import csv

import pytest
from made_tables import actors_of, split_of

from mule.core.text_rows import read_names, read_pairs
from mule.data.split.partition import drawn_sides, random_partition
from mule.data.split.sides import apply_split
from mule.data.split.splits import Rules


@pytest.fixture(scope="module")
def jhmdb(shared_data):
    folder = shared_data / "videos" / "jhmdb"
    with (folder / "labels.csv").open(newline="") as file:
        table = actors_of([(row["video"], row["action"]) for row in csv.DictReader(file)])
    return table, read_pairs(folder / "videos.csv", "video", "source_group")


@pytest.mark.parametrize("seed", range(3))
def test_fourteen_known_and_seven_novel_actions_are_on_every_side_they_belong_to_and_no_film_on_two(
    jhmdb, seed
):
    table, groups = jhmdb
    classes = random_partition(table.classes, seed=seed)
    videos = drawn_sides(table, classes, val_share=0.15, test_share=0.25, seed=seed, groups=groups)
    rules = Rules(z1_at_test="known", sides="drawn", val_share=0.15, test_share=0.25)
    split = split_of(table, classes, videos, rules, groups={video: groups[video] for video in table.videos})
    report = apply_split(table, split).report
    assert (len(classes.known_train), len(classes.z3)) == (14, 7)
    assert report.leakage.groups_on_two_sides == ()
    assert report.notes == ()
    assert min(each.train for each in report.classes if each.set in ("z1", "z2")) >= 10
    assert min(each.test for each in report.classes) >= 3
    assert abs(report.sides["test"].actors / 928 - 0.25) < 0.03


def test_kinetics_has_met_relatives_of_most_actions(jhmdb, shared_data):
    table, _ = jhmdb
    classes = random_partition(table.classes, seed=0)
    labels = read_names(shared_data / "backbones" / "kinetics400_label_map.txt", of="classes")
    split = split_of(table, classes, drawn_sides(table, classes, val_share=0.1, test_share=0.2, seed=0))
    met = {
        each.action
        for each in apply_split(table, split, pretraining_labels=labels).report.leakage.met_in_pretraining
    }
    assert met >= {"catch", "golf", "shoot_bow", "brush_hair", "pullup", "clap", "kick_ball", "throw"}
    assert set(table.classes) - met == {"pour", "sit", "stand", "wave"}
