"""From results to tables, figures, pictures and the page."""

import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from tiny_rows import JUDGING, contestants

from mule.comparison.figures import write_figures, write_pictures
from mule.comparison.page import (
    PageFacts,
    all_tables,
    what_numbers_mean,
    write_docs,
    write_results_page,
    write_tables,
)
from mule.comparison.paper_tables import paper_table
from mule.comparison.sheets import (
    drawn_difference,
    drawn_differences,
    findings_of,
    judged_comparison,
    method_names,
    paper_comparison,
    reference_differences,
    scenes_comparison,
)
from mule.core.config import ConfigError
from mule.core.errors import RangeError
from mule.core.settings import TableData
from mule.evaluation.intervals import draw_clips
from mule.evaluation.open_set import OpenSetMeasures
from mule.evaluation.outcomes import PAPER_MEASURES, Contender, Trial
from mule.inference.results import kept_outputs, read_novelties, read_result
from mule.metrics import MEASURES, auroc
from studies.outcomes import read_outcomes

SIDE = "test-uniform"
TOLD = PageFacts(
    command="mule compare", budget="3 gradient steps each", failures={"late-A-s0": "it was | late"}
)


@pytest.fixture(scope="module")
def findings(done):
    assert done.findings is not None
    return done.findings


def test_methods_are_called_by_their_system_unless_two_share_it(root):
    first, second = contestants(root, "mule", "slowfast")
    twin = replace(second, name="again")
    assert method_names([first, second]) == {"mule": "mule", "slowfast": "slowfast"}
    assert method_names([first, replace(second, name="file")])["file"] == "slowfast"
    assert method_names([second, twin]) == {"slowfast": "slowfast", "again": "again"}


def test_each_method_is_judged_by_the_score_of_its_kind_of_evidence(findings):
    assert findings.judged_by == {
        "mule-literal-without-aco-r": "PE",
        "slowfast": "joint-energy",
        "bce-aco-r": "joint-energy",
    }
    assert findings.reference == "bce-aco-r"


def test_a_score_or_method_that_is_not_there_is_refused(done, findings):
    pairs = [(each.row, each.results) for each in findings.rows]
    names = {row.contestant: row.contestant for row in done.rows}
    with pytest.raises(ConfigError, match=r"a method must be one of .*; got nobody"):
        findings_of(pairs, names, against="nobody")
    with pytest.raises(ConfigError, match=r"vacuity was left out: it is the uncertainty of a Dirichlet"):
        findings_of(pairs, names, judged_by={"slowfast": "vacuity"})
    chosen = findings_of(pairs, names, against="slowfast", judged_by={"bce-aco-r": "max-logit"})
    assert (chosen.reference, chosen.judged_by["bce-aco-r"]) == ("slowfast", "max-logit")


def test_cells_hold_the_numbers_of_the_result_files(done, findings):
    comparison = paper_comparison(findings, SIDE)
    for row in done.rows:
        result = read_result(row.folder, SIDE)
        assert result is not None
        for score in ("PE", "NE", "PNE", "Belief"):
            measures = result.scores[score].measures
            assert isinstance(measures, OpenSetMeasures)
            for measure in PAPER_MEASURES[:-1]:
                value = comparison.values(Contender(row.contestant, score), measure)[Trial("A", 0)]
                assert value == getattr(measures, measure.key)
        assert comparison.values(Contender(row.contestant, ""), PAPER_MEASURES[-1]) == {
            Trial("A", 0): result.mean_ap
        }


def test_scenes_are_compared_by_the_judged_score_and_the_gap_is_biased_minus_counter(findings):
    comparison = scenes_comparison(findings)
    uniform, biased, counter, gap = (
        comparison.values(Contender("slowfast", "joint-energy"), measure)[Trial("A", 0)]
        for measure in comparison.measures
    )
    folder = findings.of("slowfast")[0].row.folder
    novelty = read_novelties(folder, SIDE)["joint-energy"]
    assert uniform == auroc(novelty, kept_outputs(folder, SIDE).truth.is_novel)
    assert gap == biased - counter


def test_a_method_minus_itself_is_exactly_zero(findings):
    (row,) = findings.of("slowfast")
    found = drawn_difference(row, row, SIDE, scores=("knn", "knn"), resamples=30)
    assert found is not None
    for difference in found.values():
        assert difference[:3] == (0.0, 0.0, 0.0)
        assert not difference.is_clear


def test_differences_of_one_trial_are_those_of_the_metrics_with_intervals_over_the_same_draws(findings):
    first, other = findings.of("slowfast")[0], findings.of("bce-aco-r")[0]
    found = drawn_difference(first, other, SIDE, scores=("knn", "max-logit"), resamples=25)
    assert found is not None
    shown = kept_outputs(first.row.folder, SIDE)
    novelties = [
        read_novelties(each.row.folder, SIDE)[score] for each, score in ((first, "knn"), (other, "max-logit"))
    ]
    is_novel = shown.truth.is_novel
    assert found["auroc"].mean == auroc(novelties[0], is_novel) - auroc(novelties[1], is_novel)
    draws = draw_clips(shown.clip_index, num_clips=len(shown.clip_names), resamples=25)
    slow = []
    for counts in draws.counts:
        actors = np.repeat(np.arange(len(is_novel)), counts[shown.clip_index])
        first_auroc, other_auroc = (auroc(each[actors], is_novel[actors]) for each in novelties)
        slow.append(first_auroc - other_auroc)
    np.testing.assert_allclose(found["auroc"][1:3], np.quantile(slow, (0.025, 0.975)))


def test_with_several_trials_differences_are_over_these(findings):
    again = tuple(
        replace(each, row=replace(each.row, trial=Trial("A", seed)))
        for seed in (0, 1)
        for each in findings.rows
    )
    sheet = reference_differences(replace(findings, rows=again), SIDE, resamples=20)
    assert sheet is not None
    assert "2 seeds" in sheet.notes[0]
    alone = reference_differences(findings, SIDE, resamples=20)
    assert alone is not None
    assert alone == drawn_differences(findings, SIDE, resamples=20)
    assert "resamples of the test clips" in alone.notes[0]
    (only,) = (each for each in findings.rows if each.method == "slowfast")
    assert reference_differences(replace(findings, rows=(only,)), SIDE, resamples=20) is None


def test_tables_come_in_three_formats_and_outcomes_can_be_read_back(findings, tmp_path):
    paths = write_tables(findings, tmp_path, all_tables(findings, resamples=20))
    assert {path.name for path in paths} == {path.name for path in tmp_path.iterdir()}
    text = (tmp_path / "tables.md").read_text()
    for side in findings.tests:
        assert f"## {side}" in text
    assert text.count("### Every score of every method") == len(findings.tests)
    assert (tmp_path / "tables.tex").read_text().count(r"\begin{table*}") == 7 * len(findings.tests)
    outcomes = read_outcomes((tmp_path / f"outcomes-{SIDE}.csv").read_text())
    values = judged_comparison(findings, SIDE).values(
        Contender("slowfast", "joint-energy"), PAPER_MEASURES[1]
    )
    assert [each.value for each in outcomes if (each.method, each.score, each.measure)
            == ("slowfast", "joint-energy", "auroc")] == list(values.values())  # fmt: skip
    assert {each.measure for each in outcomes} == {*MEASURES, "map"}


def at_thresholds(findings, **thresholds):
    """The findings with other thresholds; whoever is not named flags nobody."""

    def changed(each):
        score, result = findings.judged_by[each.method], each.results[SIDE]
        moved = result.scores[score].model_copy(update={"threshold": thresholds.get(each.method, 1e9)})
        other = result.model_copy(update={"scores": {**result.scores, score: moved}})
        return replace(each, results={**each.results, SIDE: other})

    return replace(findings, rows=tuple(map(changed, findings.rows)))


def test_pictures_show_frames_that_are_disputed_and_none_if_all_agree(findings, tmp_path):
    shown = write_pictures(at_thresholds(findings, slowfast=-1e9), SIDE, tmp_path / "a.png", count=3)
    assert len(set(shown)) == 3
    assert (tmp_path / "a.png").stat().st_size > 1000
    with pytest.raises(RangeError, match="frames on which methods disagree; there are none"):
        write_pictures(at_thresholds(findings), SIDE, tmp_path / "b.png")
    assert not (tmp_path / "b.png").exists()


def test_the_page_says_what_was_run_and_what_the_numbers_are_not(findings, tmp_path):
    figures = write_figures(findings, SIDE, tmp_path / "figures")
    assert {path.name for path in figures} >= {
        "roc.png",
        "precision_recall.png",
        "scores.png",
        "reliability.png",
    }
    assert all(path.stat().st_size > 1000 for path in figures)
    pictures = tmp_path / "figures" / "disputed.png"
    write_pictures(at_thresholds(findings, slowfast=-1e9), SIDE, pictures, count=2)
    tables = all_tables(findings, resamples=20)
    write_results_page(
        findings, tmp_path / "results.md", figures=[*figures, pictures], facts=TOLD, tables=tables
    )
    text = (tmp_path / "results.md").read_text()
    for part in ("commit", "torch ", "Stage, 8 training, 4 validation", "not the paper's AVA and Charades tables",
                 "it was \\| late", "1 trial", "not a final verdict", "Scores left out"):  # fmt: skip
        assert part in text
    linked = re.findall(r"\]\((figures/[^)]+\.png)\)", text)
    assert {tmp_path / name for name in linked} == {*figures, pictures}
    write_docs(findings, tmp_path / "docs.md", figures=figures, facts=TOLD, tables=tables)
    copies = re.findall(r"\]\((pictures/docs/[^)]+\.png)\)", (tmp_path / "docs.md").read_text())
    assert len(copies) == len(figures)
    assert all((tmp_path / name).is_file() for name in copies)
    assert JUDGING.convention in text


@pytest.mark.parametrize(("experiment", "is_the_papers"), [("ava", True), ("stage", False)])
def test_the_page_of_a_paper_table_says_which_and_denies_it_on_other_data(
    findings, tmp_path, experiment, is_the_papers
):
    tables = all_tables(findings, resamples=20)
    facts = replace(TOLD, table=paper_table(1, experiment=Path(experiment)))
    write_results_page(findings, tmp_path / "results.md", figures=[], facts=facts, tables=tables)
    text = (tmp_path / "results.md").read_text()
    assert ("rows of Table 1 of the paper" in text) == is_the_papers
    assert ("not the paper's AVA and Charades tables" in text) != is_the_papers


def test_numbers_of_videos_are_not_denied_to_be_the_papers(findings):
    data = TableData(kind="table", actors="ava.csv")

    def of_videos(each):
        return replace(
            each, row=replace(each.row, experiment=each.row.experiment.model_copy(update={"data": data}))
        )

    said = what_numbers_mean(replace(findings, rows=tuple(map(of_videos, findings.rows))), None)
    assert "not the paper's" not in said
    assert "`mule compare --table N`" in said
    assert "not the paper's" in what_numbers_mean(findings, None)


def test_where_nobody_is_novel_recognition_alone_is_compared(findings, tmp_path):
    def closed(each):
        results = {side: found.model_copy(update={"num_novel": 0}) for side, found in each.results.items()}
        return replace(each, results=results)

    of_known = replace(findings, rows=tuple(map(closed, findings.rows)))
    assert findings.tells_apart(SIDE)
    assert not of_known.tells_apart(SIDE)
    tables = all_tables(of_known, resamples=20)
    assert {name for shown in tables.of_side.values() for name in shown} == {"networks"}
    assert tables.in_short is None
    assert [path.name for path in write_figures(of_known, SIDE, tmp_path)] == ["reliability.png"]
