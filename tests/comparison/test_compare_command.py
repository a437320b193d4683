"""`mule compare` and `mule evaluate run` on the command line: what they print, what they write, and their exit codes."""

import json
import re
from pathlib import Path

import pytest
import typer
from made_films import two_in_each_film, write_films
from tiny_rows import TEST_CLIPS, times_of, tiny_experiment
from typer.testing import CliRunner

from mule.cli.compare import compare_experiments
from mule.cli.evaluate import app as evaluate_app
from mule.cli.main import app as main_app
from mule.cli.printing import without_place
from mule.comparison import equal
from mule.comparison.contestants import load_contestants, load_start
from mule.core.config import experiment_toml
from mule.core.settings import StageData
from mule.novelty.combining import DECIDING_SCORE

FEW = ["--workers", "0", "--resamples", "10", "--dropout-passes", "2", "--test-clips", str(TEST_CLIPS)]


@pytest.fixture(scope="module")
def app():
    """The whole command; its group answers wrong input with exit code 2."""
    grouped = typer.Typer(cls=main_app.info.cls, no_args_is_help=True)
    grouped.callback()(lambda: None)
    grouped.command("compare")(compare_experiments)
    grouped.add_typer(evaluate_app, name="evaluate")
    return grouped


@pytest.fixture(scope="module")
def files(root, tmp_path_factory):
    """Experiments as files."""
    folder = tmp_path_factory.mktemp("experiments")
    for name, changes in {
        "linear": {"system": "slowfast"},
        "dirichlet": {"system": "enn"},
        "longer": {"system": "slowfast", "training__epochs": 2},
        "table": {"data": {"kind": "table", "num_known": 2, "root": str(root)}},
        "broken": {"system": "slowfast", "data__train_clips": 3, "training__epochs": 2},
    }.items():
        (folder / f"{name}.toml").write_text(experiment_toml(tiny_experiment(root, **changes)))
    return folder


def printed(result):
    return " ".join((result.output + result.stderr).split())


@pytest.fixture(scope="module")
def compared(app, files, tmp_path_factory):
    out = tmp_path_factory.mktemp("out")
    names = [str(files / f"{name}.toml") for name in ("linear", "dirichlet")]
    result = CliRunner().invoke(app, ["compare", *names, "--out", str(out), *FEW, "--pictures"])
    assert result.exit_code == 0, printed(result)
    return out, names, result


@pytest.mark.parametrize(
    ("argument", "shown"),
    [
        ("--seeds", "--seeds"),
        ("experiments/a.toml", "experiments/a.toml"),
        ("data.root=/home/me/jhmdb", "data.root=…/jhmdb"),
        ("/home/me/out", "…/out"),
        ("optimizer.lr=1e-3", "optimizer.lr=1e-3"),
    ],
)
def test_a_page_shows_commands_without_places_of_this_machine(argument, shown):
    assert without_place(argument) == shown


def test_a_comparison_prints_its_progress_and_writes_its_files(compared):
    out, _, result = compared
    for part in ("linear-A-s0 started", "dirichlet-A-s0 finished, 2 of 2", "AUROC", "enn", "results.md"):
        assert part in printed(result)
    for name in ("tables.md", "tables.csv", "tables.tex", "results.md", "figures/roc.png"):
        assert (out / name).stat().st_size > 100
    assert not [path for path in out.rglob(".*") if path.is_file()]  # nothing half-written


def test_the_same_command_again_works_on_no_row(app, compared):
    out, names, _ = compared
    before = times_of(out / "rows")
    result = CliRunner().invoke(app, ["compare", *names, "--out", str(out), *FEW])
    assert result.exit_code == 0
    assert "2 rows are finished already and stay as they are" in printed(result)
    assert times_of(out / "rows") == before


def test_a_failed_row_is_named_the_others_finish_and_the_exit_code_is_two(app, files, tmp_path, monkeypatch):
    monkeypatch.setattr(equal, "epoch_seconds", lambda _: {"linear": 1.0, "broken": 2.0})
    names = [str(files / f"{name}.toml") for name in ("linear", "broken")]
    result = CliRunner().invoke(app, ["compare", *names, "--equal", "time", "--out", str(tmp_path), *FEW])
    assert result.exit_code == 2
    for part in (
        "broken-A-s0 failed: an epoch must have at least one batch",
        "1 of 2 rows failed",
        "1 epochs instead of 2",
    ):
        assert part in printed(result)
    assert "broken-A-s0" in (tmp_path / "results.md").read_text()
    assert (tmp_path / "rows" / "linear-A-s0" / "results" / "test-uniform.json").exists()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "a comparison needs at least one experiment; got none"),
        (["none.toml", "neither.toml"], "neither.toml: must be an experiment in TOML"),
        (["linear.toml", "linear.toml"], "got linear twice"),
        (["linear.toml", "longer.toml"], "got linear 2, longer 4"),
        (
            ["linear.toml", "table.toml"],
            "must have the same kind of data; linear has data.kind stage, table has",
        ),
        (["linear.toml", "--split", "Z"], "split = 'Z'"),
        (["linear.toml", "--set", "training.epoch=3"], "Did you mean 'epochs'?"),
        (["linear.toml", "--judge-by", "PE"], "a score must be given like"),
        (["linear.toml", "--against", "nobody"], "a method must be one of slowfast; got nobody"),
        (["linear.toml", "--judge-by", "slowfast=magic"], "a score must be one of PE"),
        (["stag"], "stag: must be an experiment in TOML that can be read"),
    ],
)
def test_wrong_input_ends_with_code_two_and_leaves_nothing(
    app, files, tmp_path, monkeypatch, arguments, message
):
    monkeypatch.chdir(tmp_path)
    named = [str(files / each) if each.endswith(".toml") else each for each in arguments]
    result = CliRunner().invoke(app, ["compare", *named, "--out", str(tmp_path / "out"), *FEW])
    assert result.exit_code == 2
    assert message in printed(result)
    assert list(tmp_path.iterdir()) == []


def test_steps_are_counted_on_a_split_that_is_given_and_the_experiments_own_need_not_be_there(
    app, files, tmp_path
):
    write_films(tmp_path, two_in_each_film())
    (tmp_path / "split.toml").rename(tmp_path / "other.toml")
    settings = ["--set", f"data.root={tmp_path}", "--set", "training.batch_clips=2", "--steps", "7"]
    command = ["compare", str(files / "table.toml"), *settings]
    result = CliRunner().invoke(app, [*command, "--split", "other.toml", "--out", str(tmp_path / "out")])
    assert result.exit_code == 2
    assert "got 7, and the gradient steps per epoch are table 2" in printed(result)
    result = CliRunner().invoke(app, [*command, "--out", str(tmp_path / "out")])
    assert "split.toml: must be a readable split" in printed(result)


def test_a_changed_experiment_is_refused_with_a_remedy(app, compared):
    out, names, _ = compared
    before = times_of(out)
    result = CliRunner().invoke(
        app, ["compare", *names, "--out", str(out), "--set", "optimizer.lr=0.5", *FEW]
    )
    assert result.exit_code == 2
    for part in ("linear-A-s0: optimizer.lr was 0.001, is 0.5", "use another folder (--out)"):
        assert part in printed(result)
    assert times_of(out) == before


def test_a_run_is_evaluated_on_the_sides_and_scores_that_were_requested(app, compared):
    out, _, _ = compared
    run_dir = out / "rows" / "dirichlet-A-s0"
    command = [
        "evaluate",
        "run",
        str(run_dir),
        "--split",
        "test-counter",
        "--score",
        "vacuity",
        "--score",
        "NE",
    ]
    result = CliRunner().invoke(app, [*command, "--test-clips", str(TEST_CLIPS), "--resamples", "10"])
    assert result.exit_code == 0
    for part in ("test-counter", "vacuity", "left out: NE (a Dirichlet gives no evidence against an action)"):
        assert part in printed(result)
    written = json.loads((run_dir / "results" / "test-counter.json").read_text())
    assert list(written["scores"]) == ["vacuity"]


def test_a_run_leads_with_who_would_be_flagged_and_shows_all_scores_on_demand(app, compared):
    out, _, _ = compared
    run_dir = out / "rows" / "linear-A-s0"
    command = ["evaluate", "run", str(run_dir), "--split", "test-uniform", *FEW[2:]]
    few = CliRunner().invoke(app, command, env={"COLUMNS": "80"})
    assert few.exit_code == 0, printed(few)
    result = json.loads((run_dir / "results" / "test-uniform.json").read_text())
    assert result["kind"] == "read"
    assert DECIDING_SCORE in result["left_out"]  # too few held-out actors for its p-values
    first = next(iter(result["scores"]))
    shares = [f"{100 * result['scores'][first][key]:.1f} %" for key in ("known_flagged", "novel_flagged")]
    sentence = f"test-uniform: {shares[0]} of known and {shares[1]} of novel people would be flagged as novel"
    assert sentence in printed(few)
    novel = re.findall(r"(\S+) \(novel\) +(\d+) +(\d+)", few.stdout)
    assert novel
    assert all(int(num_flagged) <= int(num_people) for _, num_people, num_flagged in novel)
    rows = {line.split()[0] for line in few.stdout.splitlines() if line.strip()}
    assert set(result["mean_ap_by_class"]) <= rows  # each known action has its row
    assert max(map(len, few.stdout.splitlines())) <= 80
    assert "…" not in few.stdout
    assert "relu-pe" not in few.stdout.split()
    every = CliRunner().invoke(app, [*command, "--all-scores"], env={"COLUMNS": "80"})
    assert [name for name in result["scores"] if name not in every.stdout] == []
    again = CliRunner().invoke(app, [*command, "--score", "all"], env={"COLUMNS": "80"})
    assert again.stdout == every.stdout
    assert "left out: vacuity" in printed(every)


@pytest.mark.parametrize(
    ("folder", "options", "message"),
    [
        ("none", [], "must be the folder of a run"),
        ("unfinished", [], "a finished run must have a card"),
        ("linear-A-s0", ["--split", "test"], "one of train, val, test-uniform"),
        ("linear-A-s0", ["--score", "magic"], "a score must be one of"),
        ("linear-A-s0", ["--score", "joint-enrgy"], "Did you mean 'joint-energy'?"),
        ("linear-A-s0", ["--set", "system=mule"], "system cannot be changed"),
    ],
)
def test_what_cannot_be_evaluated_is_reported_and_nothing_is_written(
    app, compared, tmp_path, folder, options, message
):
    out, _, _ = compared
    run_dir = out / "rows" / folder
    if folder == "unfinished":
        run_dir = tmp_path
        (run_dir / "experiment.toml").write_text((out / "rows/linear-A-s0/experiment.toml").read_text())
    before = times_of(out), times_of(tmp_path)
    result = CliRunner().invoke(app, ["evaluate", "run", str(run_dir), *options, "--test-clips", "3"])
    assert result.exit_code == 2
    assert message in printed(result)
    assert (times_of(out), times_of(tmp_path)) == before


@pytest.mark.slow
def test_rows_in_processes_of_their_own_find_what_rows_in_this_one_found(app, compared, tmp_path):
    out, names, _ = compared
    options = ["--out", str(tmp_path), *FEW[2:], "--workers", "2"]
    assert CliRunner().invoke(app, ["compare", *names, *options]).exit_code == 0
    for name in ("linear-A-s0", "dirichlet-A-s0"):
        for side in ("val", "test-uniform"):
            here, there = (
                json.loads((each / "rows" / name / "results" / f"{side}.json").read_text())
                for each in (out, tmp_path)
            )
            assert here["scores"].keys() == there["scores"].keys()
            assert here["mean_ap"] == pytest.approx(there["mean_ap"], abs=1e-9)


def test_one_experiment_under_several_systems_is_as_many_contestants():
    found = load_contestants([Path("stage")], [], ["mule", "dear"])
    assert [(each.name, each.experiment.system) for each in found] == [
        ("stage_mule", "mule"),
        ("stage_dear", "dear"),
    ]
    (alone,) = load_contestants([Path("stage")], [], [])
    assert (alone.name, alone.experiment) == ("stage", found[0].experiment)


def test_a_start_has_of_the_settings_of_rows_those_of_data_and_backbone_alone():
    settings = ["data.train_clips=64", "training.epochs=1", "backbone.options.sees_motion=true"]
    start = load_start(Path("stage"), settings).experiment
    assert isinstance(start.data, StageData)
    assert (start.data.train_clips, start.training.epochs) == (64, 8)
    assert start.backbone.options == {"sees_motion": True}
