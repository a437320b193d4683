"""Every setting that docs/DEVIATIONS.md names restores something: it loads, and what is built from it differs."""

import re
from functools import cache
from pathlib import Path

import pytest
import torch

from mule.core.config import load_experiment
from mule.core.settings import TableData
from mule.features.backbones.slowfast import SlowFast
from mule.model import RelationModel
from mule.training.build import build_constraints, build_model
from mule.training.choosing import system_of

PAGE = Path(__file__).resolve().parents[2] / "docs" / "DEVIATIONS.md"
SETTING = re.compile(r"`((?:[a-z0-9_]+\.)*[a-z0-9_]+=[^`]+)`")
OTHERS = [
    "system=mule-given-labels",
    "relations=factored",
    "objective.reduction=sum",
    'data.test_boxes="true"',
    "training.batch_clips=16",
    "data.stride_frames=5",
]
"""An experiment in which no restored value is the default."""


def restoring():
    """Number and setting of every setting in the last column of a numbered row."""
    found = []
    for line in PAGE.read_text(encoding="utf-8").splitlines():
        cells = [cell.strip() for cell in line.strip("|").split(" | ")]
        if cells[0].strip().isdecimal():
            found += [(int(cells[0]), setting) for setting in SETTING.findall(cells[-1])]
    return found


@cache
def built(*settings):
    """What training builds from an experiment, as comparable values."""
    experiment = load_experiment(Path("ava"), list(settings))
    with torch.device("meta"):
        model = build_model(experiment)
    system, decide, data = system_of(experiment), model.decide, experiment.data
    assert isinstance(decide, RelationModel)
    assert isinstance(model.backbone, SlowFast)
    assert isinstance(data, TableData)
    return {
        "head": repr(decide.head),
        "pooling": decide.sampling,
        "relations": type(decide.relations),
        "variant": model.backbone.variant,
        "objective": system.objective,
        "base_rate": system.base_rate,
        "constraints": build_constraints(system, experiment),
        "person_labels": data.person_labels,
        "test_boxes": data.test_boxes,
        "stride_frames": data.stride_frames,
        "split": data.split,
        "train_novel": data.train_novel,
        "batch_clips": experiment.training.batch_clips,
        "from_chance": experiment.backbone.from_chance,
    }


def test_the_page_names_a_setting_for_all_that_training_can_restore():
    assert {number for number, _ in restoring()} == {
        1,
        2,
        4,
        5,
        10,
        12,
        13,
        20,
        33,
        35,
        37,
        42,
        44,
        57,
        59,
        61,
        63,
        66,
        67,
        69,
    }


@pytest.mark.parametrize(("number", "setting"), restoring())
def test_a_restoring_setting_changes_what_is_built(number, setting):
    others = [each for each in OTHERS if each.partition("=")[0] != setting.partition("=")[0]]
    before, after = built(*OTHERS), built(*others, setting)
    if setting == 'objective.reduction="sum"':  # as in OTHERS
        before = built(*OTHERS[:2])
    assert before != after, f"row {number}: {setting} changes nothing"
