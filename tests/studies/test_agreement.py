"""Two comparisons beside each other: the places of scores, and how far the two worlds agree."""

import numpy as np
import pytest
from scipy.stats import spearmanr
from study_commands import run_study

from mule.core.errors import AnnotationError, RangeError
from mule.evaluation.formats import outcomes_csv
from mule.evaluation.outcomes import Outcome, Trial
from studies.evaluate.__main__ import app
from studies.evaluate.agreement import agreement_sheets, agreements, read_aurocs

SCORES = ("PE", "knn", "memory", "vim", "odin")


def outcomes(path, values, *, network="mule", seeds=(0,)):
    """AUROC by score; further seeds lie around it."""
    found = [
        Outcome(network, "auroc", value + 0.01 * (seed - sum(seeds) / len(seeds)), Trial("A", seed), score)
        for score, value in values.items()
        for seed in seeds
    ]
    path.write_text(outcomes_csv([*found, Outcome(network, "map", 0.9, Trial("A", 0))]))
    return path


def drawn(seed):
    values = np.random.default_rng(seed).integers(5, 10, len(SCORES)) / 10  # some are equal
    return dict(zip(SCORES, values.tolist(), strict=True))


@pytest.mark.parametrize("seed", range(5))
def test_the_correlation_is_spearmans(tmp_path, seed):
    one, two = drawn(seed), drawn(seed + 50)
    paths = [
        outcomes(tmp_path / f"{name}.csv", each) for name, each in (("one", one), ("two", {**two, "new": 1}))
    ]
    (found,) = agreements(*map(read_aurocs, paths))
    expected = float(np.asarray(spearmanr(list(one.values()), list(two.values())))[0])
    assert found.correlation(1) == pytest.approx(expected, nan_ok=True)
    assert sorted(found.scores) == sorted(SCORES)  # what one world alone judged by is left out
    sums = [sum(each) for each in found.place]
    assert sums == sorted(sums)


def test_aurocs_are_means_over_trials_and_undefined_ones_are_left_out(tmp_path):
    path = outcomes(tmp_path / "a.csv", {"PE": 0.75, "knn": float("nan")}, seeds=(0, 1, 2))
    assert read_aurocs(path) == {"mule": {"PE": pytest.approx(0.75)}}


def test_worlds_that_share_no_network_are_refused(tmp_path):
    paths = [outcomes(tmp_path / f"{name}.csv", drawn(0), network=name) for name in ("mule", "dear")]
    with pytest.raises(RangeError, match="must share a network with 3 scores; their networks are mule; dear"):
        agreements(*map(read_aurocs, paths))


def test_a_file_that_is_none_is_named_with_its_line(tmp_path):
    wrong = tmp_path / "wrong.csv"
    wrong.write_text("a,b\n1,2\n")
    with pytest.raises(AnnotationError, match=r"wrong\.csv, line 1: the columns must be"):
        read_aurocs(wrong)
    with pytest.raises(AnnotationError, match=r"none\.csv: must be outcomes of a comparison"):
        read_aurocs(tmp_path / "none.csv")


def test_the_page_says_who_is_best_where(tmp_path):
    one = outcomes(tmp_path / "one.csv", dict(zip(SCORES, (0.9, 0.8, 0.7, 0.6, 0.5), strict=True)))
    two = outcomes(tmp_path / "two.csv", dict(zip(SCORES, (0.8, 0.9, 0.7, 0.6, 0.5), strict=True)))
    docs = tmp_path / "docs" / "page.md"
    shown = run_study(app, "agreement", one, two, "--names", "Stage", "a_b", "--docs", docs)
    assert shown.exit_code == 0, shown.output
    assert "knn (90.00)" in shown.output
    page = docs.read_text()
    assert "| mule | 5 | 0.90 | PE (90.00) | knn (90.00) |" in page
    assert "| PE | **90.00** | 80.00 | 1 | 2 |" in page
    assert "# Stage and a\\_b: do novelty scores agree?" in page
    assert list(agreement_sheets(agreements(read_aurocs(one), read_aurocs(two)), ("x", "y"))) == ["", "mule"]
