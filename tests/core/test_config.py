"""The experiment file: typed, complete, and clear about what is wrong with it."""

import pytest
from pydantic import ValidationError

from mule.core.config import (
    ConfigError,
    differences,
    experiment_from,
    experiment_toml,
    load_experiment,
    systems_by_row,
)
from mule.core.settings import StageData, TableData

SMALLEST = """
system = "mule"
[data]
kind = "stage"
[optimizer]
lr = 0.1
[training]
epochs = 3
"""


@pytest.fixture
def written(tmp_path):
    def write(text=SMALLEST):
        path = tmp_path / "small.toml"
        path.write_text(text)
        return path

    return write


def test_an_empty_file_is_told_all_that_is_missing(written):
    with pytest.raises(ConfigError) as told:
        load_experiment(written(""))
    for key in ("'system'", "'data'", "'optimizer'", "'training'"):
        assert f"{key} must be given" in str(told.value)


def test_what_is_not_said_has_its_documented_default(written):
    experiment = load_experiment(written())
    assert isinstance(experiment.data, StageData)
    assert experiment.training.batch_clips == 32
    assert experiment.objective.dual.tolerance == 1e-3
    assert experiment.view.crop_px is None


def test_an_experiment_does_not_change(written):
    with pytest.raises(ValidationError, match="frozen"):
        load_experiment(written()).seed = 3


def test_an_unknown_key_is_answered_with_the_nearest_one(written):
    with pytest.raises(ConfigError) as told:
        load_experiment(written(SMALLEST + "[objective.dual]\ntolerence = 1e-3\n[loading]\nworker = 2\n"))
    assert "[objective.dual]: unknown key 'tolerence'. Did you mean 'tolerance'?" in str(told.value)
    assert "[loading]: unknown key 'worker'. Did you mean 'workers'?" in str(told.value)
    assert str(told.value).startswith("small.toml")


def test_keys_of_the_data_are_those_of_its_kind(written):
    with pytest.raises(ConfigError, match=r"\[data\]: unknown key 'num_know'\."):
        load_experiment(written(), ["data.num_know=3"])
    with pytest.raises(ConfigError, match=r"\[data\]: unknown key 'num_know'. Did you mean 'num_known'"):
        load_experiment(written(), ["data.kind=table", "data.num_know=3"])
    with pytest.raises(ConfigError, match="expected tags: 'stage', 'table'"):
        load_experiment(written(), ["data.kind=film"])


@pytest.mark.parametrize(
    ("override", "told"),
    [
        ("optimizer.lr=fast", r"\[optimizer\]: lr = 'fast': input should be a valid number"),
        ("optimizer.lr=-1", "greater than 0"),
        ("optimizer.lr=nan", "finite"),
        ("seed=1.5", "seed = 1.5"),
        ("seed='1'", "valid integer"),
        ("training.epochs=true", "valid integer"),
        ("view.flip_probability=2", "less than or equal to 1"),
        ("training.keeps=first", "'best' or 'last'"),
        ("optimizer", "must look like optimizer.lr=1e-3"),
        ("=3", "must look like optimizer.lr=1e-3"),
        ("seed.more=3", "'seed' is a value"),
    ],
)
def test_what_is_set_is_checked_by_the_same_types(written, override, told):
    text = "seed = 1\n" + SMALLEST
    with pytest.raises(ConfigError, match=told):
        load_experiment(written(text), [override])


def test_what_is_set_replaces_what_the_file_says(written):
    experiment = load_experiment(
        written(),
        [
            "optimizer.lr=1e-3",
            "data.split=B",
            "data.root=/data/with space/stage",
            "view.short_sides_px=[256, 320]",
            "training.tensorboard=false",
            "schedule.milestones=[1, 2.5]",
            "objective.dual.tolerance=0",
        ],
    )
    assert experiment.optimizer.lr == 1e-3
    assert experiment.data.split == "B"
    assert str(experiment.data.root) == "/data/with space/stage"
    assert experiment.view.short_sides_px == (256, 320)
    assert experiment.training.tensorboard is False
    assert experiment.schedule.milestones == (1.0, 2.5)
    assert experiment.objective.dual.tolerance == 0.0


def test_a_key_set_to_nothing_goes_back_to_its_default(written):
    text = SMALLEST + "patience_epochs = 2\n"
    assert load_experiment(written(text)).training.patience_epochs == 2
    assert load_experiment(written(text), ["training.patience_epochs="]).training.patience_epochs is None


def test_the_resolved_file_gives_the_same_experiment_back(written):
    sets = [
        "data.kind=table",
        "data.num_known=40",
        "data.root=/d",
        "backbone.options.res5_stride=1",
        "view.crop_px=224",
    ]
    for overrides in ([], sets):
        experiment = load_experiment(written(), overrides)
        resolved = written(experiment_toml(experiment))
        assert load_experiment(resolved) == experiment
        assert "batch_clips = 32" in resolved.read_text()  # defaults are written out


@pytest.mark.parametrize("text", ["seed = ", "\x00", "a = 1\na = 2"])
def test_a_file_that_is_no_toml_is_named(written, text):
    with pytest.raises(ConfigError, match=r"small\.toml: must be an experiment in TOML"):
        load_experiment(written(text))
    with pytest.raises(ConfigError, match=r"none\.toml"):
        load_experiment(written().with_name("none.toml"))


def test_where_data_lies_and_who_reads_it_is_no_difference(written):
    first = load_experiment(written())
    moved = load_experiment(written(), ["data.root=/elsewhere", "loading.workers=7"])
    assert differences(first, moved) == {}
    other = load_experiment(written(), ["optimizer.lr=1.0", "view.crop_px=8"])
    assert differences(first, other) == {"optimizer.lr": (0.1, 1.0), "view.crop_px": (None, 8)}
    table = experiment_from(
        {
            "system": "mule",
            "data": {"kind": "table", "num_known": 3},
            "optimizer": {"lr": 0.1},
            "training": {"epochs": 3},
        },
        source="",
    )
    assert isinstance(table.data, TableData)
    assert differences(first, table)["data.kind"] == ("stage", "table")


ROWS = (
    SMALLEST
    + """
[backbone.options]
res5_stride = 1
[view]
crop_px = 224
[systems.dear]
optimizer.lr = 0.2
[systems.dear-wide]
system = "dear"
view.crop_px = ""
backbone.options = { factors = [2.9, 5.0] }
"""
)


def test_the_table_of_the_chosen_system_applies_before_what_is_set(written):
    plain, dear = (load_experiment(written(ROWS), [f"system={name}"]) for name in ("mule", "dear"))
    assert (plain.optimizer.lr, dear.optimizer.lr) == (0.1, 0.2)
    assert differences(plain, dear) == {"system": ("mule", "dear"), "optimizer.lr": (0.1, 0.2)}
    assert load_experiment(written(ROWS), ["optimizer.lr=0.3", "system=dear"]).optimizer.lr == 0.3
    assert load_experiment(written(ROWS.replace('"mule"', '"dear"', 1))) == dear


def test_a_row_names_its_system_replaces_options_and_clears_a_key(written):
    row = load_experiment(written(ROWS), ["system=dear-wide"])
    assert row.system == "dear"
    assert row.view.crop_px is None
    assert row.backbone.options == {"factors": (2.9, 5.0)}
    assert systems_by_row(written(ROWS)) == {"dear": "dear", "dear-wide": "dear"}


def test_the_resolved_file_of_a_row_is_flat(written):
    row = load_experiment(written(ROWS), ["system=dear-wide"])
    text = experiment_toml(row)
    assert "systems" not in text
    assert load_experiment(written(text)) == row


def test_keys_of_a_row_are_checked_when_it_is_chosen(written):
    text = ROWS + "[systems.odd]\noptimizer.rate = 1.0\n"
    with pytest.raises(ConfigError, match=r"\[optimizer\]: unknown key 'rate'"):
        load_experiment(written(text), ["system=odd"])
    with pytest.raises(ConfigError, match=r"systems must hold tables"):
        load_experiment(written("systems = 3\n" + SMALLEST))
