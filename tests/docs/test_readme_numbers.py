"""Numbers in the README are those of the page that a command writes from the others."""

import re
import shlex
import shutil
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from mule.cli.main import app

ROOT = Path(__file__).resolve().parents[2]
README = (ROOT / "README.md").read_text()
RESULTS = (ROOT / "docs/RESULTS.md").read_text()
SYSTEM = re.compile(r"`([\w-]+)`")


def rows(table):
    """The cells of a table's rows, below its heading."""
    lines = [line for line in table.splitlines() if line.startswith("| ")]
    return [[cell.strip(" *") for cell in line.strip("|").split("|")] for line in lines[2:]]


def test_the_table_of_the_readme_holds_the_numbers_of_the_results_page():
    shown = rows(README.partition("<!-- results: begin -->")[2].partition("<!-- results: end -->")[0])
    methods = RESULTS.partition("## Methods")[2].partition("\n## ")[0]
    measured = {system: (real, tags, stage) for system, stage, real, tags, *_ in rows(methods)}
    by_system = {name.group(1): numbers for method, *numbers in shown if (name := SYSTEM.search(method))}
    assert by_system.keys() >= {"mule-literal", "bce-aco-r", "mule-memory", "bce-aco-r-memory"}
    for system, numbers in by_system.items():
        expected = [float(number) for number in measured[system]]
        assert [float(number) for number in numbers] == pytest.approx(expected, abs=0.0501), system


def test_the_page_of_all_results_is_what_its_command_makes_of_the_others(tmp_path, monkeypatch):
    words = shlex.split(RESULTS.partition("Made by `")[2].partition("`;")[0])
    assert words[-2:] == ["--docs", "docs/RESULTS.md"]
    shutil.copytree(ROOT / "docs", tmp_path / "docs", ignore=shutil.ignore_patterns("pictures"))
    (tmp_path / "docs/RESULTS.md").unlink()
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", words)
    result = CliRunner().invoke(app, words[1:])
    assert result.exit_code == 0, result.output
    assert (tmp_path / "docs/RESULTS.md").read_text() == RESULTS


def test_methods_come_in_much_the_same_order_in_rendered_and_real_video():
    methods = RESULTS.partition("## Methods")[2].partition("\n## ")[0]
    correlations = re.findall(r" (\d\.\d\d)[,.]", methods.partition("Spearman's ρ")[2])
    assert len(correlations) == 2
    assert min(map(float, correlations)) > 0.8
