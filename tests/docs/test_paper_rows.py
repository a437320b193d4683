"""Every row of the paper's tables can be trained: its own backbone and weights, its own objective and budget."""

from pathlib import Path

import pytest
import torch

from mule.core.config import ConfigError, load_experiment, systems_by_row
from mule.core.errors import RangeError
from mule.core.settings import TableData
from mule.evidence.head import EvidenceHead
from mule.features.backbones.csn import CSN
from mule.features.backbones.slowfast import SlowFast
from mule.features.backbones.x3d import X3D
from mule.features.weights.cards import find_card
from mule.model import RelationModel
from mule.systems.catalogue import SYSTEMS
from mule.systems.design import Debiased
from mule.training.build import build_model
from mule.training.choosing import inner_steps_of, load_for_training, system_of

RECIPE = Path(__file__).resolve().parents[2] / "docs" / "REPRODUCE.md"
ROWS = [(file, row) for file in ("ava", "charades") for row in systems_by_row(Path(file))]
KINETICS_HEAD = 400 * (2304 + 1)
PUBLISHED = {
    "pytorchvideo_slowfast_8x8_r50": (SlowFast, 34.57e6 - KINETICS_HEAD),
    "acar_slowfast_r50_kinetics400": (SlowFast, 34.57e6 - KINETICS_HEAD),
    "mmaction2_slowfast_8x8_r50": (SlowFast, 34.565560e6 - KINETICS_HEAD),
    "acar_slowfast_r101_kinetics700": (SlowFast, 62.83e6 - KINETICS_HEAD),
    "slowfast_8x8_r101_kinetics600": (SlowFast, 59.34e6 - 80 * (2304 + 1)),
    "mmaction2_ircsn_152_ig65m": (CSN, 29.703568e6 - 400 * (2048 + 1)),
    # res5 of X3D-XL has 280 channels; conv5 widens them 2.25 times, lin5 has 2048 outputs
    "x3d_xl_kinetics600": (X3D, 11.10e6 - 280 * 630 - 2 * 630 - 630 * 2048 - 400 * (2048 + 1)),
}
"""The family of each backbone, and its parameters: those published of the classifier or AVA detector, less the head's."""


@pytest.mark.parametrize(("file", "row"), ROWS)
def test_a_row_has_the_backbone_of_its_family_and_published_size(file, row):
    experiment = load_for_training(Path(file), [], row)
    with torch.device("meta"):
        model = build_model(experiment)
    kind, num_parameters = PUBLISHED[experiment.backbone.name]
    backbone = model.backbone
    assert isinstance(backbone, SlowFast | CSN | X3D)
    assert type(backbone) is kind
    assert sum(p.numel() for p in backbone.parameters()) == pytest.approx(num_parameters, abs=2e4)
    assert experiment.system == systems_by_row(Path(file))[row]
    needed = SYSTEMS[experiment.system].backbone
    assert needed in (None, find_card(experiment.backbone.name).backbone)


@pytest.mark.parametrize(("file", "row"), ROWS)
def test_rivals_take_one_step_per_batch_and_only_the_printed_paper_averages_two(file, row):
    experiment = load_for_training(Path(file), [], row)
    assert inner_steps_of(experiment) == experiment.objective.inner_steps
    assert experiment.objective.inner_steps == (2 if row.startswith("mule-literal") else 1)


@pytest.mark.parametrize(("file", "row"), ROWS)
def test_a_row_warms_up_and_ends_within_its_budget(file, row):
    experiment = load_for_training(Path(file), [], row)
    schedule = experiment.schedule
    assert 0 < schedule.warmup_epochs < schedule.milestones[0] < schedule.milestones[-1]
    assert schedule.milestones[-1] < experiment.training.epochs
    assert (schedule.warmup_lr or 0) < experiment.optimizer.lr


def test_the_tables_of_the_paper_are_complete():
    ava, charades = systems_by_row(Path("ava")), systems_by_row(Path("charades"))
    table_3 = {"slowfast", "acar-bank", "acar-bank-r101", "afac", "aia", "dear", "mule", "mule-r101"}
    table_4 = {"slowfast", "x3d", "afac", "afac-csn", "csn", "dear", "mule", "mule-r101"}
    assert table_3 <= ava.keys()
    assert table_4 <= charades.keys()
    assert {*ava.values(), *charades.values()} <= SYSTEMS.keys()


@pytest.mark.parametrize("file", ["ava", "charades"])
@pytest.mark.parametrize("row", ["mule-literal", "mule-literal-r101"])
def test_the_literal_rows_are_the_paper_as_printed(file, row):
    experiment = load_for_training(Path(file), [], row)
    system = system_of(experiment)
    with torch.device("meta"):
        model = build_model(experiment)
    assert isinstance(model.decide, RelationModel)
    assert isinstance(model.backbone, SlowFast)
    head = model.decide.head
    assert isinstance(head, EvidenceHead)
    assert (head.parameterisation, head.function, head.linear.bias) == ("independent", "relu", None)
    assert isinstance(system.objective, Debiased)
    assert system.objective.fitted.reduction == "sum"
    assert system.base_rate == 1.0
    assert experiment.objective.measures_with == "own_pass"
    assert not model.backbone.variant.slow_spans_clip


def test_ava_trains_on_true_and_predicted_boxes():
    data = load_experiment(Path("ava")).data
    assert isinstance(data, TableData)
    assert (data.persons, data.person_score) == ("persons.csv", 0.9)


@pytest.mark.parametrize("name", ["x3d", "csn"])
def test_a_system_that_is_a_backbone_refuses_another_one(name):
    with pytest.raises(ConfigError, match=rf"system {name} must see with .* family {name}; .* 'tiny'"):
        load_for_training(Path("stage"), [], name)
    other = "backbone.name=pytorchvideo_slowfast_8x8_r50"
    experiment = load_experiment(Path("ava"), [f"system={name}", other, "backbone.options="])
    with torch.device("meta"), pytest.raises(ConfigError, match=r"use --system slowfast"):
        build_model(experiment)


def test_an_unknown_name_is_answered_with_the_rows_and_the_nearest():
    with pytest.raises(
        ConfigError, match=r"acar-r101, .*mule-memory.*got 'mule-r10'\. Did you mean .?mule-r101"
    ):
        load_for_training(Path("ava"), [], "mule-r10")


def test_steps_that_contradict_a_system_are_refused_by_name():
    with pytest.raises(ConfigError, match=r"objective.inner_steps must be 0 or 1 for acar.*got 3"):
        load_for_training(Path("ava"), ["objective.inner_steps=3"], "acar-r101")
    assert load_for_training(Path("ava"), ["objective.inner_steps=3"], "mule").objective.inner_steps == 3


def test_a_rival_does_not_inherit_the_steps_of_the_file(tmp_path):
    path = tmp_path / "own.toml"
    path.write_text(
        'system = "mule"\n[data]\nkind = "stage"\n[optimizer]\nlr = 0.1\n[training]\nepochs = 3\n[objective]\n'
        "inner_steps = 4\n"
    )
    assert load_for_training(path).objective.inner_steps == 4
    assert load_for_training(path, [], "slowfast").objective.inner_steps == 1
    assert inner_steps_of(load_experiment(path, ["system=slowfast"])) == 1


@pytest.mark.parametrize(
    ("system", "setting", "told"),
    [
        ("dear", "evidence.bias=false", "evidence.bias must not be set: dear has a head of its own"),
        ("afac", "evidence.function=exp", "evidence.function must not be set: afac"),
        ("acar", "evidence.parameterisation=independent", "acar has one logit per action"),
        ("enn", "objective.reduction=sum", "objective.reduction must not be set: .* loss of its own"),
        ("acar", "objective.estimator=biased", "objective.estimator must not be set: .* no constraint"),
    ],
)
def test_a_setting_that_a_system_does_not_have_is_refused_by_name(system, setting, told):
    with pytest.raises(RangeError, match=told):
        load_for_training(Path("stage"), [setting], system)


@pytest.mark.parametrize("part", ["costs", "gpu-hours", "space"])
def test_the_recipe_tells_the_costs_of_every_row(part):
    text = RECIPE.read_text(encoding="utf-8").split(f"<!-- {part}: begin -->")[1].split("<!--")[0]
    for file in ("ava", "charades"):
        table = text.split(f"| row of `{file}` |")[1].split("\n\n")[0]
        listed = [line.split("`")[1] for line in table.splitlines() if line.startswith("| `")]
        # mule-unlabel is the network of mule, so sizes and memory leave it out
        assert listed == [
            row for row in systems_by_row(Path(file)) if part == "gpu-hours" or row != "mule-unlabel"
        ]
