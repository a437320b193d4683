"""The recipe of docs/REPRODUCE.md on miniatures: every command, with the tiny backbone. `make rehearsal` has the real ones."""

import os
import shlex
import tomllib
from pathlib import Path

import pytest
from typer.testing import CliRunner

from examples.miniatures import write_miniatures
from examples.rehearsal import PAGE, SIZE, commands_of, made_small
from mule.cli.main import app
from mule.evaluation.ava import evaluate_ava_files

TINY = (
    "backbone.name=tiny",
    "backbone.options=",
    "backbone.norm=batch",
    "backbone.from_chance=false",
    "sizes=tiny",
    "view.val_short_side_px=",
)
COMMANDS = commands_of(PAGE.read_text(encoding="utf-8"))


def run(words):
    return CliRunner().invoke(app, words, catch_exceptions=False)


def small(command):
    words = made_small(command)
    if words[0] in ("train", "compare"):
        words += [word for setting in TINY for word in ("--set", setting)]
    return [*words, *(("--system", "mule") if words[0] == "train" else ())]


@pytest.fixture(scope="module")
def walked(tmp_path_factory):
    """The folder in which every command up to the tables has run, and what each printed."""
    folder, before = tmp_path_factory.mktemp("rehearsal"), Path.cwd()
    write_miniatures(folder, SIZE)
    os.chdir(folder)
    try:
        printed = {}
        for command in COMMANDS:
            if " compare " not in command:
                outcome = run(small(command))
                assert outcome.exit_code == 0, f"{command}\n{outcome.output}"
                printed[command] = outcome.output
        yield folder, printed
    finally:
        os.chdir(before)


def test_the_page_has_commands_for_every_step_and_every_table():
    steps = {" ".join(shlex.split(command)[1:3]) for command in COMMANDS}
    assert {"data from-ava", "data from-charades", "data join", "data detect", "data split"} <= steps
    assert {"train ava", "train charades", "evaluate run"} <= steps
    compared = [shlex.split(command) for command in COMMANDS if " compare " in command]
    tables = [words[words.index("--table") + 1] for words in compared if "--table" in words]
    assert sorted(tables) == list("1234567")


@pytest.mark.slow
def test_a_run_on_ava_prints_the_official_measure_of_the_files_it_writes(walked):
    folder, printed = walked
    results = folder / "runs" / "ava-mule" / "results"
    official = evaluate_ava_files(
        results / "ava_ground_truth-test.csv",
        results / "ava_detections-test.csv",
        results / "ava_label_map-test.pbtxt",
    )
    (said,) = [text for command, text in printed.items() if "evaluate run runs/ava" in command]
    assert f"{official.map:.4f}" in " ".join(said.split())
    assert "were not detected" in " ".join(said.split())


@pytest.mark.slow
def test_a_run_on_charades_prints_its_official_measure(walked):
    _, printed = walked
    (said,) = [text for command, text in printed.items() if "evaluate run runs/charades-mule" in command]
    assert "Charades mAP over 104 known classes" in " ".join(said.split())


@pytest.mark.slow
def test_a_run_on_charades_that_knows_every_action_is_scored_on_all(walked):
    folder, printed = walked
    taught = tomllib.loads((folder / "charades" / "closed.toml").read_text())["classes"]
    num_known = sum(len(taught[part]) for part in ("z1", "z2"))
    (said,) = [text for command, text in printed.items() if "evaluate run runs/charades-closed" in command]
    assert f"Charades mAP over {num_known} known classes" in " ".join(said.split())


@pytest.mark.slow
def test_a_taught_class_that_never_occurs_is_named_and_trained_all_the_same(walked):
    """D1: a small part of AVA lacks some of the 40 taught classes."""
    _, printed = walked
    (said,) = [text for command, text in printed.items() if "train ava" in command]
    assert "of 40 taught actions have no training actor" in " ".join(said.split())


@pytest.mark.slow
def test_a_table_is_written_in_the_papers_layout(walked):
    folder, _ = walked
    command = "mule compare --table 3 --system mule --set data.root=ava --out runs/ava"
    outcome = run([*small(command), "--workers", "0"])
    assert outcome.exit_code == 0, outcome.output
    table = (folder / "runs" / "ava" / "table-3.md").read_text()
    header, _, line = table.splitlines()[2:5]
    assert header.startswith("| Method | Pre-train | Error ↓ (PE) | AUROC ↑ (PE) | AUPR ↑ (PE)")
    assert line.startswith("| MULE, R-50 | K400 | ")
    assert "Closed-set mAP: frame-mAP at IoU 0.5 over 40 known classes, detected boxes" in table
    assert r"\begin{table*}" in (folder / "runs" / "ava" / "table-3.tex").read_text()
