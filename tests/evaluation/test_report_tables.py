import csv
import io
import math
import re

import pytest
from compared import AUROC, FPR, HOSTILE, MAP, compared, outcomes_of
from markdown_it import MarkdownIt

from mule.core.errors import AnnotationError, RangeError
from mule.evaluation.formats import (
    escaped_latex,
    latex,
    markdown,
    outcomes_csv,
    summary_csv,
)
from mule.evaluation.outcomes import PAPER_MEASURES, Comparison, Measure, MethodRow, Outcome, Trial
from mule.evaluation.tables import (
    Line,
    Sheet,
    TableNumber,
    difference_sheet,
    paper_sheet,
    score_sheet,
)
from studies.outcomes import read_outcomes

SHEET = Sheet(
    titles=("Method", "AUROC ↑", "mAP ↑"),
    spans=(("", 1), ("PE / NE", 1), ("", 1)),
    lines=(
        Line(
            ("MULE", (TableNumber("86.92", "± 0.31", True), TableNumber("63.54")), (TableNumber("27.80"),)),
            True,
        ),
        Line(
            (
                "w/o ACO-R",
                (TableNumber("–"), TableNumber("−1.50", "[−2.00, 1.00]")),
                (TableNumber("25.12"),),
            )
        ),
    ),
    notes=("In percent.",),
)


def table_cells(text):
    """The cells of the first Markdown table, as a reader of the page sees them."""
    tokens = MarkdownIt("gfm-like", {"linkify": False}).parse(text)
    rows, inside = [], False
    for token in tokens:
        if token.type == "tr_open":
            rows.append([])
        inside = token.type in ("th_open", "td_open") or (inside and token.type == "inline")
        if token.type == "inline" and inside:
            rows[-1].append("".join(child.content for child in token.children or ()))
    return rows


def last_number(line):
    (number,) = line.cells[-1]
    assert isinstance(number, TableNumber)
    return number


def two_methods():
    outcomes = []
    for method, auroc, fpr, mean_ap in (("MULE", 0.8, 0.2, 0.3), ("w/o ACO-R", 0.6, 0.5, 0.4)):
        for seed in range(3):
            trial = Trial("A", seed)
            for score, lost in (("PE", 0.0), ("NE", 0.1)):
                outcomes.append(Outcome(method, "auroc", auroc - lost + 0.01 * seed, trial, score))
                outcomes.append(Outcome(method, "fpr_at_95_tpr", fpr + lost + 0.01 * seed, trial, score))
            outcomes.append(Outcome(method, "map", mean_ap + 0.01 * seed, trial))
    rows = (MethodRow("MULE", is_ours=True), MethodRow("w/o ACO-R"))
    return Comparison(rows, (AUROC, FPR, MAP), tuple(outcomes))


def test_markdown_of_a_hand_made_sheet_is_this():
    assert markdown(SHEET) == (
        "| Method | AUROC ↑ (PE / NE) | mAP ↑ |\n"
        "| :-- | --: | --: |\n"
        "| MULE | **86.92** ± 0.31 / 63.54 | 27.80 |\n"
        "| w/o ACO-R | – / −1.50 \\[−2.00, 1.00\\] | 25.12 |\n"
        "\n"
        "In percent.\n"
    )


def test_latex_of_a_hand_made_sheet_is_this():
    lines = latex(SHEET, caption="50 % of all", label="tab:ours").splitlines()
    assert lines[1:] == [
        r"\begin{table*}[t]",
        r"\centering\scriptsize",
        r"\begin{adjustbox}{max width=\linewidth}",
        r"\begin{tabular}{lcc}",
        r"\toprule",
        r" & \multicolumn{1}{c}{\textbf{PE / NE}} &  \\",
        r"\cmidrule(lr){2-2}",
        r"\textbf{Method} & \textbf{AUROC $\uparrow$} & \textbf{mAP $\uparrow$} \\",
        r"\midrule",
        r"\rowcolor{green!12} MULE & \textbf{86.92}\textsubscript{$\pm$0.31} / 63.54 & 27.80 \\",
        r"w/o ACO-R & -- / $-$1.50\textsubscript{{[}$-$2.00, 1.00{]}} & 25.12 \\",
        r"\bottomrule",
        r"\end{tabular}",
        r"\end{adjustbox}",
        r"\caption{50 \% of all In percent.}",
        r"\label{tab:ours}",
        r"\end{table*}",
    ]


def test_the_paper_s_layout_is_one_row_per_method_with_every_score_in_a_cell():
    sheet = paper_sheet(two_methods())
    assert sheet.titles == ("Method", "AUROC ↑", "FPR at 95 % TPR ↓", "Closed-set mAP ↑")
    assert sheet.spans == (("", 1), ("PE / NE", 2), ("", 1))
    assert [line.cells for line in sheet.lines] == [
        (
            "MULE",
            (TableNumber("81.00", "± 1.00", True), TableNumber("71.00", "± 1.00", True)),
            (TableNumber("21.00", "± 1.00", True), TableNumber("31.00", "± 1.00", True)),
            (TableNumber("31.00", "± 1.00"),),
        ),
        (
            "w/o ACO-R",
            (TableNumber("61.00", "± 1.00"), TableNumber("51.00", "± 1.00")),
            (TableNumber("51.00", "± 1.00"), TableNumber("61.00", "± 1.00")),
            (TableNumber("41.00", "± 1.00", True),),
        ),
    ]


def test_the_long_layout_marks_one_best_per_column_over_all_scores():
    sheet = score_sheet(two_methods())
    assert sheet.titles[:2] == ("Method", "Score")
    marked = [
        (line.cells[1], at)
        for line in sheet.lines
        for at, cell in enumerate(line.cells)
        if not isinstance(cell, str) and cell[0].is_marked
    ]
    assert marked == [("PE", 2), ("PE", 3), ("PE", 4)]
    assert [line.cells[0] for line in sheet.lines] == ["MULE", "", "w/o ACO-R", ""]


def test_where_methods_have_scores_of_their_own_a_column_names_them():
    outcomes = [
        *outcomes_of("MULE", AUROC, [0.8], score="PE"),
        *outcomes_of("BCE", AUROC, [0.7], score="JointEnergy"),
        *outcomes_of("BCE", AUROC, [0.6], score="MaxLogit"),
    ]
    sheet = paper_sheet(Comparison((MethodRow("MULE"), MethodRow("BCE")), (AUROC,), tuple(outcomes)))
    assert sheet.titles == ("Method", "Scores", "AUROC ↑")
    assert sheet.spans == ()
    assert [line.cells[1] for line in sheet.lines] == ["PE", "JointEnergy / MaxLogit"]


def test_a_score_that_one_method_alone_has_is_not_marked_best():
    outcomes = [
        *outcomes_of("MULE", AUROC, [0.8], score="PE"),
        *outcomes_of("BCE", AUROC, [0.7], score="JointEnergy"),
    ]
    sheet = paper_sheet(Comparison((MethodRow("MULE"), MethodRow("BCE")), (AUROC,), tuple(outcomes)))
    assert "**" not in markdown(sheet)


@pytest.mark.parametrize("layout", [paper_sheet, score_sheet])
def test_a_comparison_of_nothing_is_a_table_without_rows(layout):
    sheet = layout(Comparison((), PAPER_MEASURES, ()))
    assert sheet.lines == ()
    assert sheet.notes == ("No trial has finished.",)
    assert markdown(sheet).startswith("| Method |")
    assert r"\toprule" in latex(sheet, caption="", label="t")


@pytest.mark.parametrize("layout", [paper_sheet, score_sheet])
def test_undefined_values_are_a_dash(layout):
    sheet = layout(compared({"undefined": [math.nan], "defined": [0.5], "unfinished": []}))
    cells = {line.cells[0]: line.cells[-1] for line in sheet.lines}
    assert cells["undefined"] == (TableNumber("–"),)
    assert cells["defined"] == (TableNumber("50.00"),)
    assert [row[-1] for row in table_cells(markdown(sheet))[1:]] == ["–", "50.00", "–"]


def test_a_mean_over_fewer_trials_says_so():
    sheet = score_sheet(compared({"all": [0.5, 0.6, 0.7], "two": [0.5, math.nan, 0.7], "one": [0.5]}))
    spreads = [last_number(line).spread for line in sheet.lines]
    assert spreads == ["± 10.00", "± 14.14 (2 of 3)", "(1 of 3)"]


def test_with_one_trial_its_own_interval_is_shown():
    outcomes = outcomes_of("a", AUROC, [0.8], score="PE", intervals=[(0.7, 0.9)])
    sheet = score_sheet(Comparison((MethodRow("a"),), (AUROC,), tuple(outcomes)))
    assert sheet.lines[0].cells[-1] == (TableNumber("80.00", "[70.00, 90.00]"),)


def test_other_scales_and_digits_are_the_measure_s():
    hours = Measure("hours", "hours per epoch", "lower", has_scores=False, scale=1.0, decimals=1)
    sheet = paper_sheet(compared({"a": [4.25, 4.75], "b": [9.0, 9.0]}, hours, score=""))
    assert sheet.lines[0].cells[-1] == (TableNumber("4.5", "± 0.4", True),)
    assert not any("percent" in note for note in sheet.notes)


def test_differences_are_paired_and_marked_where_the_interval_leaves_zero_out():
    values = {"MULE": [0.50, 0.60, 0.70], "steady": [0.55, 0.66, 0.75], "erratic": [0.9, 0.4, 0.8]}
    sheet = difference_sheet(compared(values), "MULE", score_of=dict.fromkeys(values, "PE"))
    numbers = {line.cells[0]: last_number(line) for line in sheet.lines}
    assert list(numbers) == ["steady", "erratic"]
    assert numbers["steady"] == TableNumber("+5.33", "[3.90, 6.77]", True)
    assert numbers["erratic"].text == "+10.00"
    assert not numbers["erratic"].is_marked
    assert "over 3 seeds" in sheet.notes[0]
    assert "The 2 intervals are not adjusted" in sheet.notes[0]


def test_a_method_is_compared_by_its_own_score():
    outcomes = [
        *outcomes_of("MULE", AUROC, [0.5, 0.6], score="PE"),
        *outcomes_of("BCE", AUROC, [0.7, 0.7], score="JointEnergy"),
    ]
    comparison = Comparison((MethodRow("MULE"), MethodRow("BCE")), (AUROC,), tuple(outcomes))
    sheet = difference_sheet(comparison, "MULE", score_of={"MULE": "PE", "BCE": "JointEnergy"})
    assert sheet.lines[0].cells[:2] == ("BCE", "JointEnergy")
    assert last_number(sheet.lines[0]).text == "+15.00"


def test_one_trial_has_a_difference_and_no_interval():
    sheet = difference_sheet(compared({"a": [0.5], "b": [0.4]}), "a", score_of={"a": "PE", "b": "PE"})
    assert sheet.lines[0].cells[-1] == (TableNumber("−10.00"),)


@pytest.mark.parametrize(
    ("against", "score_of", "words"),
    [
        ("ghost", {}, "against a method of the table, .* got 'ghost'"),
        ("a", {"b": "NE"}, "'b' has no score 'NE'"),
    ],
)
def test_differences_need_methods_and_scores_that_exist(against, score_of, words):
    with pytest.raises(RangeError, match=words):
        difference_sheet(compared({"a": [0.5], "b": [0.4]}), against, score_of=score_of)


def hostile_comparison():
    rows = tuple(MethodRow(name) for name in HOSTILE)
    outcomes = [each for name in HOSTILE for each in outcomes_of(name, AUROC, [0.5], score=name)]
    return Comparison(rows, (AUROC,), tuple(outcomes))


def one_line(name):
    return " ".join(name.split())


def test_hostile_names_are_seen_in_markdown_as_they_are():
    rows = table_cells(markdown(score_sheet(hostile_comparison())))
    assert rows[0] == ["Method", "Score", "AUROC ↑"]
    assert [row[:2] for row in rows[1:]] == [[one_line(name)] * 2 for name in HOSTILE]


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_names_leave_latex_with_its_columns_and_braces(name):
    text = latex(score_sheet(hostile_comparison()), caption=name, label="tab:x")
    bare = re.sub(r"\\[\\&%$#_{}]", "", text.split("\n", 1)[1])
    assert bare.count("{") == bare.count("}")
    rows = [line for line in text.splitlines() if line.endswith("50.00 \\\\")]
    assert len(rows) == len(HOSTILE)
    assert all(len(re.findall(r"(?<!\\)&", row)) == 2 for row in rows)
    assert "%" not in bare
    assert "#" not in bare


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", ""),
        ("a|b", r"a\textbar{}b"),
        ("50%_x", r"50\%\_x"),
        ("\\~^", r"\textbackslash{}\textasciitilde{}\textasciicircum{}"),
        ("$x & {y} #1", r"\$x \& \{y\} \#1"),
        ("R-50, m = 2", "R-50, m = 2"),
    ],
)
def test_signs_with_a_meaning_in_latex_are_escaped(text, expected):
    assert escaped_latex(text) == expected


@pytest.mark.parametrize("label", ["", "a b", "tab}", "a%"])
def test_a_label_that_latex_cannot_use_is_an_error(label):
    with pytest.raises(RangeError, match="LaTeX label"):
        latex(SHEET, caption="", label=label)


def test_the_summary_as_csv_holds_the_names_and_unscaled_numbers():
    rows = list(csv.DictReader(io.StringIO(summary_csv(two_methods()), newline="")))
    assert [(row["method"], row["score"]) for row in rows] == [
        ("MULE", "PE"),
        ("MULE", "NE"),
        ("w/o ACO-R", "PE"),
        ("w/o ACO-R", "NE"),
    ]
    assert float(rows[0]["auroc"]) == pytest.approx(0.81)
    assert float(rows[0]["auroc_deviation"]) == pytest.approx(0.01)
    assert [row["auroc_is_best"] for row in rows] == ["1", "0", "0", "0"]
    assert {row["map_trials"] for row in rows} == {"3"}


def test_hostile_names_come_back_from_the_summary_csv():
    rows = list(csv.DictReader(io.StringIO(summary_csv(hostile_comparison()), newline="")))
    assert [row["method"] for row in rows] == HOSTILE


def test_outcomes_come_back_from_csv_bit_for_bit():
    outcomes = [
        Outcome(name, "auroc", value, Trial(name, seed), score=name, interval=interval)
        for seed, name in enumerate(HOSTILE)
        for value, interval in ((1 / 3 + seed, None), (0.1 + 0.2, (1e-17, 2 / 3)))
    ]
    assert read_outcomes(outcomes_csv(outcomes)) == tuple(outcomes)
    (undefined,) = read_outcomes(outcomes_csv([Outcome("a", "auroc", math.nan, Trial("A", 0))]))
    assert math.isnan(undefined.value)
    assert read_outcomes(outcomes_csv([])) == ()


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "run.csv, line 1: the columns must be"),
        ("method,score,measure,split,seed,value,low,high\na,PE,auroc,A,x,0.5,,\n", "run.csv, line 2: invalid literal"),
        ("method,score,measure,split,seed,value,low,high\na,PE,auroc,A,0,much,,\n", "run.csv, line 2: could not convert"),
        ("method,score,measure,split,seed,value,low,high\na,PE\n", "run.csv, line 2: "),
    ],
    ids=["empty", "seed", "value", "short"],
)  # fmt: skip
def test_csv_that_holds_no_outcomes_is_an_error_with_its_line(text, words):
    with pytest.raises(AnnotationError, match=words):
        read_outcomes(text, name="run.csv")
