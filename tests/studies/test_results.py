"""The numbers of the studies, and the page made of them."""

import re
from pathlib import Path

import numpy as np
import pytest
from scipy.stats import spearmanr
from study_commands import run_study

from mule.core.errors import AnnotationError, RangeError
from mule.evaluation.formats import outcomes_csv
from mule.evaluation.outcomes import Outcome, Trial
from studies.results.__main__ import BEGIN, END, TABLE, app, between_markers
from studies.results.numbers import FOLDER, PairedTest, read_means, read_numbers
from studies.results.page import (
    DEFAULT,
    HEADLINES,
    OTHERS,
    PLAIN,
    PLAIN_SCORE,
    TWIN,
    best_rival,
    readme_table,
    results_page,
)

ROOT = Path(__file__).resolve().parents[2]
KEYS = [study.key for study in HEADLINES] + list(OTHERS)
STUDIES = {key: read_numbers(key) for key in KEYS}


def percent(value):
    return f"{100 * value:.2f}".replace("-", "−")


def page_rows(study, title):
    """The rows of the first table under a heading of a study's page."""
    text = (ROOT / "studies" / "pages" / f"{study}.md").read_text().partition(f"## {title}")[2]
    lines = [line.replace("**", "").replace("\\", "") for line in text.partition("\n## ")[0].splitlines()]
    return [[cell.strip() for cell in line.split("|")[1:-1]] for line in lines if line.startswith("| ")][1:]


@pytest.mark.parametrize("study", KEYS)
def test_the_numbers_are_those_of_the_page(study):
    numbers = STUDIES[study]
    rows = page_rows(study, "Each method by the score it is judged by")
    assert [row[0] for row in rows[1:]] == list(numbers.judged_by)
    for method, score, _, auroc, _, _, mean_ap in rows[1:]:
        assert numbers.judged_by[method] == score
        assert auroc.split(" ")[0] == percent(numbers.auroc(method))
        assert mean_ap.split(" ")[0] in (percent(numbers.mean_ap(method)), "–")
    tests = page_rows(study, "mule-memory against every other")[1:]
    assert [(row[0], row[1]) for row in tests] == list(numbers.tests)
    for against, score, auroc, difference, won in tests:
        test = numbers.tests[against, score]
        interval = f"[{percent(test.low)}, {percent(test.high)}]"
        assert (auroc, won) == (percent(test.auroc), f"{test.num_won} of {test.num_trials}")
        assert difference.removeprefix("+") == f"{percent(test.difference)} {interval}"


def test_every_study_is_on_the_page():
    files = {path.stem for path in FOLDER.glob("*.csv")} - {"judged_by", "paired_tests"}
    assert {name for name in files if not name.startswith(("seen", "watching"))} == set(KEYS)
    pages = {path.stem for path in (ROOT / "studies" / "pages").glob("*.md")}
    assert pages == set(KEYS) | {"discover", "far", "looks", "seen", "teaching_b", "watching", "README"}


def test_outcomes_of_single_trials_are_averaged(tmp_path):
    values = (0.7, 0.8, 0.9)
    outcomes = [Outcome("mule", "auroc", value, Trial("A", at), "PE") for at, value in enumerate(values)]
    outcomes += [Outcome("mule", "auroc", float("nan"), Trial("A", 3), "PE")]
    path = tmp_path / "new.csv"
    path.write_text(outcomes_csv([*outcomes, Outcome("mule", "map", 0.5, Trial("A", 0))]))
    means = read_means(path)
    assert means["mule", "PE", "auroc"] == pytest.approx((np.mean(values), np.std(values, ddof=1), 3))
    assert means["mule", "", "map"][::2] == (0.5, 1)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("a,b\n1,2\n", r"bad\.csv, line 1: the columns must be"),
        (
            "method,score,measure,mean,deviation,low,high,trials\na,b\n",
            r"bad\.csv, line 2: a row must have 8",
        ),
    ],
)
def test_a_wrong_file_is_named_with_its_line(tmp_path, text, words):
    (tmp_path / "bad.csv").write_text(text)
    with pytest.raises(AnnotationError, match=words):
        read_means(tmp_path / "bad.csv")
    with pytest.raises(AnnotationError, match=r"none\.csv: must be a readable CSV file"):
        read_means(tmp_path / "none.csv")


@pytest.mark.parametrize(
    ("low", "high", "standing"),
    [(0.1, 0.2, "better than"), (-0.1, 0.2, "level with"), (-2, -1, "worse than")],
)
def test_a_difference_counts_where_its_interval_excludes_zero(low, high, standing):
    assert PairedTest(0.5, 0.0, low, high, 1, 2).standing == standing


def test_the_best_rival_is_nobody_of_ours_and_has_no_row_of_its_own():
    for study in HEADLINES:
        numbers = STUDIES[study.key]
        method, score = best_rival(numbers)
        assert not method.startswith("mule")
        assert (method, score) not in ((PLAIN, PLAIN_SCORE), (TWIN, numbers.judged_by[TWIN]))
        assert "memory" not in score
        others = [numbers.auroc(name) for name in ("slowfast", "acar", "aia-serial", "afac", "dear", "enn")]
        others += [numbers.auroc(PLAIN, name) for name in ("energy", "knn", "vim", "vim-softmax", "odin")]
        assert numbers.auroc(method, score) == max(others)


def test_the_verdict_says_how_the_default_stands_to_each_method():
    page = results_page(STUDIES)
    for study in HEADLINES:
        numbers = STUDIES[study.key]
        (line,) = [each for each in page.splitlines() if each.startswith(f"- **{study.title}**")]
        for method, score in numbers.judged_by.items():
            if (method, score) in numbers.tests:
                test = numbers.tests[method, score]
                said = re.search(
                    rf"(better than|level with|worse than)[^;]*`{method}` \({test.num_won} of", line
                )
                assert said, (study.key, method)
                assert said[1] == test.standing


def test_scores_come_in_a_similar_order_on_all_data_sets():
    first, *others = (STUDIES[study.key].aurocs_of_scores(PLAIN) for study in HEADLINES)
    shared = [name for name in first if all(name in other for other in others)]
    page = results_page(STUDIES)
    for other in others:
        ranks = spearmanr([first[name] for name in shared], [other[name] for name in shared])
        correlation = float(np.asarray(ranks)[0])
        assert correlation > 0.8
        assert f"{correlation:.2f} with" in page


def test_the_committed_pages_are_what_the_command_writes(tmp_path):
    (tmp_path / "README.md").write_text(f"# Title\n\n{BEGIN}\nold\n{END}\n\nThe rest.\n")
    written = run_study(app, "results", "--folder", tmp_path)
    assert written.exit_code == 0, written.output
    for place in (Path("docs/RESULTS.md"), TABLE):
        assert (tmp_path / place).read_text() == (ROOT / place).read_text()
    table = (ROOT / TABLE).read_text()
    assert (tmp_path / "README.md").read_text() == f"# Title\n\n{BEGIN}\n{table}{END}\n\nThe rest.\n"
    assert readme_table(STUDIES).count("\n") == 6
    assert f"`{DEFAULT}`" in table


@pytest.mark.parametrize("text", ["", BEGIN, f"{END} {BEGIN}", f"{BEGIN}{END}{BEGIN}{END}"])
def test_a_readme_without_one_pair_of_markers_is_refused(text):
    with pytest.raises(RangeError, match=r"README\.md: must have one line"):
        between_markers(text, "table", name="README.md")
