"""Pages of results read back, and several of them on one page."""

import re

import pytest
from scipy.stats import spearmanr
from typer.testing import CliRunner

from mule.cli.main import app
from mule.comparison.overview import overview
from mule.comparison.page import PageFacts, all_tables, write_docs
from mule.comparison.results_pages import read_results_page
from mule.comparison.sheets import every_comparison, judged_comparison
from mule.core.errors import AnnotationError, RangeError
from mule.evaluation.outcomes import PAPER_MEASURES, Contender

SIDE = "test-uniform"
AUROC = next(each for each in PAPER_MEASURES if each.key == "auroc")
METHODS = {"a_b": 90.0, "bce-aco-r": 80.0, "new|one": 70.0, "last": 60.5}
SCORES = {"joint-energy": 80.0, "memory": 85.0, "knn": 70.0, "vim": 78.0}


def page(path, methods=METHODS, scores=SCORES, *, reference="bce-aco-r"):
    """What `mule compare --docs` writes, without what an overview does not read."""

    def table(rows):
        return ["| Method | Score | AUROC ↑ |", "| :-- | :-- | --: |", *rows, "", "A note.", ""]

    def escaped(name):
        return name.replace("_", "\\_").replace("|", "\\|")

    path.write_text(
        "\n".join(
            [
                "# Results",
                "",
                "In short.",
                "",
                "## Each method by the score it is judged by",
                "",
                *table(
                    f"| {escaped(name)} | joint-energy | {value} ± 1.50 |" for name, value in methods.items()
                ),
                f"## Every score on {reference}",
                "",
                *table(
                    f"| {reference if at == 0 else ''} | {score} | **{value}** \\[1.00, 2.00\\] |"
                    for at, (score, value) in enumerate(scores.items())
                ),
                "![Curves.](pictures/one/roc.png)",
                "![Others.](pictures/one/reliability.png)",
            ]
        )
    )
    return path


def test_what_a_comparison_wrote_is_read_back(done, tmp_path):
    findings = done.findings
    assert findings is not None
    told = PageFacts(command="mule compare", budget="3 gradient steps each", failures={})
    figure = tmp_path / "roc.png"
    figure.write_bytes(b"")
    tables = all_tables(findings, resamples=20)
    write_docs(findings, tmp_path / "docs.md", figures=[figure], facts=told, tables=tables)
    read = read_results_page(tmp_path / "docs.md")
    judged, every = judged_comparison(findings, SIDE), every_comparison(findings, SIDE)
    for method, score in findings.judged_by.items():
        (value,) = judged.values(Contender(method, score), AUROC).values()
        assert read.auroc_of_method[method] == pytest.approx(value, abs=0.00501)
    assert (read.reference, read.reference_score) == ("bce-aco-r", "joint-energy")
    assert set(read.auroc_of_score) == set(every.scores("bce-aco-r"))
    for score, found in read.auroc_of_score.items():
        (value,) = every.values(Contender("bce-aco-r", score), AUROC).values()
        assert found == pytest.approx(value, abs=0.00501)
    assert [each.path for each in read.pictures] == [tmp_path / "pictures" / "docs" / "roc.png"]
    assert read.methods.splitlines()[0].startswith("| Method | Score |")


def test_names_and_numbers_are_those_of_the_tables(tmp_path):
    read = read_results_page(page(tmp_path / "one.md"))
    assert read.auroc_of_method == {name: pytest.approx(value / 100) for name, value in METHODS.items()}
    assert read.auroc_of_score == {name: pytest.approx(value / 100) for name, value in SCORES.items()}
    assert read.in_short == "In short."
    assert [each.path.name for each in read.pictures] == ["roc.png"]


def test_a_value_that_is_not_there_is_left_out(tmp_path):
    read = read_results_page(page(tmp_path / "one.md", scores={**SCORES, "odin": "–"}))
    assert set(read.auroc_of_score) == set(SCORES)


@pytest.mark.parametrize(
    ("pattern", "wrong", "said"),
    [
        ("## Each method.*", "## Other", "it has no table under 'Each method by the score it is judged by'"),
        ("## Every score on.*", "## Other", "it has no table under 'Every score on'"),
        (r"\| knn \|", "|", r"line 22 has 2 cells and its table 3"),
        ("AUROC ↑", "Area", r"the table in line 7 has no column AUROC ↑"),
        ("## Every score on bce-aco-r", "## Every score on mule", "mule is not among its methods"),
    ],
)
def test_a_page_that_is_none_is_named_with_what_is_wrong(tmp_path, pattern, wrong, said):
    path = page(tmp_path / "one.md")
    path.write_text(re.sub(pattern, wrong, path.read_text()))
    with pytest.raises(AnnotationError, match=rf"one\.md: must be a page of results; {said}"):
        read_results_page(path)


def test_a_page_that_is_not_there_is_refused(tmp_path):
    with pytest.raises(AnnotationError, match=r"none\.md: must be a page of results; .*No such file"):
        read_results_page(tmp_path / "none.md")


def test_the_overview_says_what_holds_everywhere_and_what_does_not(tmp_path):
    other = {"joint-energy": 75.0, "memory": 76.0, "knn": 77.0, "vim": 70.0}
    methods = {"a_b": 60.0, "bce-aco-r": 75.0, "new|one": 65.0, "last": 50.0}
    pages = {
        "Stage": read_results_page(page(tmp_path / "one.md")),
        "real_world": read_results_page(page(tmp_path / "two.md", methods, other)),
    }
    text = overview(pages, command="mule evaluate overview", folder=tmp_path / "docs")
    assert "- Above joint-energy, the score that bce-aco-r is judged by, on all of them: memory." in text
    assert "- On real\\_world alone: knn." in text
    assert "- On none: joint-energy, vim." in text
    assert "| a\\_b | **90.00** | 60.00 | 1 | 3 |" in text
    assert "| memory | **85.00** | 76.00 | 1 | 2 |" in text
    rho = spearmanr(list(SCORES.values()), list(other.values()))[0]
    assert f"places of 4 scores: Stage and real\\_world {rho:.2f}." in text
    assert "- [real\\_world](../two.md): In short." in text
    assert "![Curves.](../pictures/one/roc.png)" in text


def test_an_overview_is_of_two_pages_or_more(tmp_path):
    with pytest.raises(RangeError, match="at least 2 pages with names of their own; got 1"):
        overview({"one": read_results_page(page(tmp_path / "one.md"))}, command="", folder=tmp_path)


def test_pages_that_share_too_little_are_refused(tmp_path):
    one = read_results_page(page(tmp_path / "one.md"))
    others = {"bce-aco-r": 70.0, "last": 60.0, "alone": 50.0}
    two = read_results_page(page(tmp_path / "two.md", others))
    with pytest.raises(RangeError, match="at least 3 methods in common; they have bce-aco-r, last"):
        overview({"one": one, "two": two}, command="", folder=tmp_path)
    of_another = read_results_page(page(tmp_path / "three.md", reference="last"))
    with pytest.raises(
        RangeError, match="must share a network with 3 scores; their networks are bce-aco-r; last"
    ):
        overview({"one": one, "three": of_another}, command="", folder=tmp_path)


def asked(*arguments):
    return CliRunner().invoke(app, ["evaluate", "overview", *map(str, arguments)])


def test_the_command_writes_what_it_prints(tmp_path):
    one, two = page(tmp_path / "one.md"), page(tmp_path / "two.md")
    docs = tmp_path / "new" / "results.md"
    said = asked(one, two, "--name", "Stage", "--name", "real", "--docs", docs)
    assert said.exit_code == 0, said.output
    assert docs.read_text() == said.stdout


def test_pages_without_names_of_their_own_are_refused_and_nothing_is_written(tmp_path):
    one, two = page(tmp_path / "one.md"), page(tmp_path / "two.md")
    docs = tmp_path / "results.md"
    for names in ([], ["--name", "a"], ["--name", "a", "--name", "a"]):
        said = asked(one, two, *names, "--docs", docs)
        assert said.exit_code == 2
        assert "every page must have a name of its own" in " ".join(said.output.split())
    before = one.read_text()
    said = asked(one, two, "--name", "a", "--name", "b", "--docs", one)
    assert said.exit_code == 2
    assert one.read_text() == before
    assert not docs.exists()
