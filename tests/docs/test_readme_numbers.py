"""Numbers in the README are those of the pages that commands write."""

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


def cells(page, title, begins):
    """The line of a table under a title that begins so."""
    table = (ROOT / "docs" / page).read_text().partition(f"## {title}")[2]
    return next(line for line in table.splitlines() if line.startswith(begins)).split("|")


def judged(method, page, column):
    line = cells(page, "Each method by the score it is judged by", f"| {method} |")
    return float(line[column].replace("*", "").split("±")[0])


def auroc(method, page="RESULTS_JHMDB.md"):
    return judged(method, page, 4)


def recognised(method, page):
    return judged(method, page, 7)


def auroc_of_rival(score, page="RESULTS_STAGE.md"):
    return float(cells(page, "mule-memory against every other", f"| bce-aco-r | {score} |")[3])


def test_what_the_readme_says_of_real_video_is_what_was_measured():
    told = README[README.index("On real video (J-HMDB") :].partition("\n\n")[0]
    said = [float(number) for number in re.findall(r"\d\d\.\d", told)]
    methods = ("mule-memory", "mule-literal", "bce-aco-r", "bce-aco-r-memory")
    assert said == pytest.approx([auroc(method) for method in methods], abs=0.0501)  # rounded to one place


def test_what_the_readme_says_of_several_labels_is_what_was_measured():
    told = README[README.index("With several labels per actor") :].partition("\n\n")[0]
    said = [float(number) for number in re.findall(r"\d\d\.\d", told)]
    page, before = "RESULTS_JHMDB_FRESH.md", "RESULTS_JHMDB_TAGS.md"
    measured = [auroc(method, page) for method in ("mule-memory", "bce-aco-r")]
    measured += [auroc_of_rival(score, page) for score in ("vim-softmax", "knn")]
    measured += [auroc(method, page) for method in ("mule-literal", "bce-aco-r-memory")]
    measured += [auroc(method, before) for method in ("mule-memory", "bce-aco-r")]
    assert said == pytest.approx(measured, abs=0.0501)
    now, then = (
        cells(each, "mule-memory against every other", "| bce-aco-r | joint-energy |")[5].strip()
        for each in (page, before)
    )
    assert f"in {now} splits" in told
    assert f"in {then}." in told
    assert "not told apart from bce-aco-r-memory" in (ROOT / "docs" / page).read_text()


def test_what_the_readme_says_of_two_people_in_view_is_what_was_measured():
    told = README[README.index("With two people in view") :].partition("\n\n")[0]
    said = [float(number) for number in re.findall(r"\d\d\.\d", told)]
    page = "RESULTS_JHMDB_TILES.md"
    measured = [recognised(method, page) for method in ("bce-aco-r", "slowfast")]
    assert said == pytest.approx([*measured, auroc("mule-memory", page)], abs=0.0501)


def test_what_the_readme_says_of_rendered_video_is_what_was_measured():
    told = README[README.index("the default reaches") :].partition("Ten examples")[0]
    said = [float(number) for number in re.findall(r"\d\d\.\d", told)]
    methods = ("mule-memory", "mule-literal", "bce-aco-r", "bce-aco-r-memory")
    measured = [auroc(method, "RESULTS_STAGE.md") for method in methods]
    measured += [auroc_of_rival(score) for score in ("vim-softmax", "knn")]
    assert said == pytest.approx(measured, abs=0.0501)
    first = README.partition("with the default at ")[2].partition(" ")[0]
    assert float(first) == pytest.approx(auroc("mule-memory", "RESULTS_FIRST.md"), abs=0.0501)


def test_the_page_of_all_results_is_what_its_command_makes_of_the_others(tmp_path, monkeypatch):
    told = (ROOT / "docs/RESULTS.md").read_text()
    words = shlex.split(told.partition("Made by `")[2].partition("`;")[0])
    assert words[-2:] == ["--docs", "docs/RESULTS.md"]
    shutil.copytree(ROOT / "docs", tmp_path / "docs", ignore=shutil.ignore_patterns("pictures"))
    (tmp_path / "docs/RESULTS.md").unlink()
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", words)
    said = CliRunner().invoke(app, words[1:])
    assert said.exit_code == 0, said.output
    assert (tmp_path / "docs/RESULTS.md").read_text() == told


def test_methods_come_in_the_order_the_readme_says_in_rendered_and_real_video():
    told = (ROOT / "docs/RESULTS.md").read_text().partition("## Methods")[2].partition("\n## ")[0]
    correlations = re.findall(r" (\d\.\d\d)[,.]", told.partition("Spearman's ρ")[2])
    assert len(correlations) == 2
    assert min(map(float, correlations)) > 0.8
