"""The files of a comparison: tables in three formats, and a page that says what was run and what the numbers mean.

OUT/results.md            the page
OUT/figures/*.png         its figures
OUT/tables.md .csv .tex   every table of every test side
OUT/outcomes-SIDE.csv     every number of every trial
"""

import shutil
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from mule.comparison.checks import control_note, promise_kept, with_control
from mule.comparison.figures import CAPTIONS
from mule.comparison.paper_tables import PaperTable
from mule.comparison.rows import gradient_steps
from mule.comparison.sheets import (
    Findings,
    FinishedRow,
    every_comparison,
    judged_comparison,
    networks_comparison,
    paper_comparison,
    reference_differences,
    scenes_comparison,
    trained_seconds,
)
from mule.comparison.tested import DEFAULT, PairedTest, default_against_others, default_in_short
from mule.core.files import write_file
from mule.core.settings import StageData
from mule.evaluation.formats import escaped_markdown, latex, markdown, outcomes_csv, summary_csv
from mule.evaluation.outcomes import Comparison, Trial
from mule.evaluation.tables import Cell, Sheet, paper_sheet, score_sheet
from mule.training.run_folder import RunFolder

MOST_TRIALS = 6
"""Up to this many trials are listed one by one."""


def what_was_run(findings: Findings, *, budget: str, elapsed_s: float | None) -> list[str]:
    """A table of commit, versions, hardware, data, trials and budget."""
    sessions = [
        session for each in findings.rows for session in RunFolder(each.row.folder).record()["sessions"]
    ]
    packages = _distinct(
        ", ".join(f"{name} {version}" for name, version in session["packages"].items())
        for session in sessions
    )
    hardware = [session["hardware"] for session in sessions]
    machines = _distinct(
        f"{each['processor']}, {each['num_cores']} cores, {each['torch_threads']} thread per row"
        + (f", {', '.join(each['gpus'])}" if each["gpus"] else "")
        for each in hardware
    )
    lines = [
        "| | |",
        "| --- | --- |",
        f"| commit | {_distinct(str(session['git_commit']) for session in sessions)} |",
        f"| versions | Python {_distinct(session['python'] for session in sessions)}, {packages} |",
        f"| hardware | {machines} |",
        f"| data | {_data(findings.rows)} |",
        f"| trials | {_trials(list(dict.fromkeys(each.row.trial for each in findings.rows)))} |",
        f"| budget | {budget} |",
    ]
    if elapsed_s is not None:
        lines.append(
            f"| whole command | {elapsed_s / 60:.1f} minutes, without rows that were finished before |"
        )
    return lines


def every_row(findings: Findings, failures: Mapping[str, str]) -> list[str]:
    """A table of the steps, time and data of each row; then the rows that failed, and why."""
    lines = [
        "| row | gradient steps | training | actors evaluated, known + novel | data |",
        "| --- | --: | --: | --: | --- |",
    ]
    for each in findings.rows:
        result = each.results[findings.tests[0]]
        lines.append(
            f"| {escaped_markdown(each.row.name)} | {gradient_steps(each.row.experiment)} | "
            f"{trained_seconds(each.row):.0f} s | {result.num_known} + {result.num_novel} | {_digests(each)} |"
        )
    return lines + [
        f"| {escaped_markdown(name)} | – | failed: {escaped_markdown(why)} | – | – |"
        for name, why in failures.items()
    ]


def what_numbers_mean(findings: Findings, table: PaperTable | None) -> str:
    """Say what the numbers are of, from how many trials, and whether they are the paper's."""
    is_stage = all(isinstance(each.row.experiment.data, StageData) for each in findings.rows)
    splits = {each.row.trial.split for each in findings.rows}
    trials = {each.row.trial for each in findings.rows}
    few = (
        f"They come from {len(trials)} trial{'s' * (len(trials) > 1)} and {len(splits)} class "
        f"split{'s' * (len(splits) > 1)}: other seeds and other actions may rank similar methods differently."
    )
    of_split_a = (
        " Methods were developed on split A, so these results are not a final verdict."
        if splits == {"A"}
        else ""
    )
    data = None if table is None else {"ava": "AVA", "charades": "Charades"}.get(table.experiment.stem)
    if table is not None and data is not None:
        return f"{OF_THE_PAPER.format(number=table.number, data=data)} {few}"
    if is_stage:
        return f"{OF_STAGE} {few}{of_split_a} {NOT_THE_PAPER}"
    backbones = {each.row.experiment.backbone.name for each in findings.rows}
    of_rows = "the same backbone" if len(backbones) == 1 else "each the backbone of its row"
    return f"{OF_TABLES.format(backbones=of_rows)} {few} {FOR_THE_PAPER}"


def scores_left_out(findings: Findings, side: str) -> list[str]:
    """The scores that do not apply to some methods: one line for each reason."""
    methods: dict[tuple[str, tuple[str, ...]], list[str]] = {}
    for method in findings.methods:
        left_out = findings.of(method)[0].results[side].left_out
        for reason in dict.fromkeys(left_out.values()):
            scores = tuple(score for score, why in left_out.items() if why == reason)
            methods.setdefault((reason, scores), []).append(method)
    lines = [
        f"- {escaped_markdown(reason)}: {', '.join(map(escaped_markdown, scores))} "
        f"(for {', '.join(map(escaped_markdown, those))})"
        for (reason, scores), those in methods.items()
    ]
    return ["## Scores left out", "", *lines] if lines else []


def _trials(trials: Sequence[Trial]) -> str:
    if len(trials) <= MOST_TRIALS:
        return ", ".join(f"split {trial.split} seed {trial.seed}" for trial in trials)
    splits, seeds = (list(dict.fromkeys(map(str, each))) for each in zip(*trials, strict=True))
    return (
        f"{len(trials)}: splits {', '.join(map(escaped_markdown, splits))}; "
        f"seed{'s' * (len(seeds) > 1)} {', '.join(seeds)}"
    )


def _digests(each: FinishedRow) -> str:
    digests = RunFolder(each.row.folder).record()["data_digests"]
    return ", ".join(f"{name} {str(digest)[-16:]}" for name, digest in digests.items())


def _data(rows: Sequence[FinishedRow]) -> str:
    data = rows[0].row.experiment.data
    numbers = sorted({each.results[each.row.sides[1]].num_clips for each in rows})
    clips = str(numbers[0]) if len(numbers) == 1 else f"{numbers[0]} to {numbers[-1]}"
    if isinstance(data, StageData):
        return (
            f"Stage, {data.train_clips} training, {data.val_clips} validation and {clips} test clips of "
            f"{data.rows} × {data.cols} pixels, scene bias {data.bias:g} in training"
        )
    splits = {each.row.experiment.data.split for each in rows}
    under = f"{len(splits)} class splits" if len(splits) > 1 else escaped_markdown(data.split)
    return f"{escaped_markdown(data.actors)} under {under}, {clips} test clips"


def _distinct(texts: Iterable[str]) -> str:
    return "; ".join(dict.fromkeys(texts))


OF_STAGE = (
    "These results are on Stage, a rendered world of short clips, with a small network trained for minutes. They compare "
    "methods that had the same data, the same backbone and the same budget."
)
NOT_THE_PAPER = (
    "They are not the paper's AVA and Charades tables. Those need the videos of AVA and Charades, weights trained on "
    "Kinetics, and GPUs; the experiments are `ava` and `charades`, and with the data at hand the command is "
    "`mule compare --table 3 --set data.root=DIR`."
)
OF_TABLES = (
    "These results are on the data named above. They compare methods that had the same data, {backbones}, and the budget "
    "named above."
)
FOR_THE_PAPER = (
    "`mule compare --table N` trains the rows of Table N of the paper and writes it in the paper's layout; its numbers "
    "compare with the paper's where the data are all of AVA or Charades."
)
OF_THE_PAPER = (
    "These are the rows of Table {number} of the paper, on the data named above; `table-{number}.md` has the paper's layout. "
    "The paper's numbers are on all of {data}."
)


@dataclass(frozen=True)
class PageFacts:
    """What the page states beside the numbers."""

    command: str
    budget: str
    """How rows were made comparable: equal steps or equal time."""
    failures: Mapping[str, str]
    """Rows that failed, and why."""
    elapsed_s: float | None = None
    table: PaperTable | None = None
    """The table of the paper that the rows are of."""


@dataclass(frozen=True)
class Tables:
    """All tables of a comparison, made once for all files because bootstrap intervals take minutes."""

    of_side: Mapping[str, Mapping[str, tuple[str, Sheet]]]
    """For each test side, every table by a short name, with its title."""
    in_short: str | None
    """A sentence that compares the default with the others on the first test side."""


def all_tables(findings: Findings, *, resamples: int) -> Tables:
    """Make the tables of every test side; where nobody is novel, only that of the networks."""
    tests = {side: PairedTest(findings, side, resamples=resamples) for side in findings.tests}
    return Tables(
        {side: _tables(findings, test) for side, test in tests.items()},
        default_in_short(tests[findings.tests[0]]),
    )


def _tables(findings: Findings, test: PairedTest) -> dict[str, tuple[str, Sheet]]:
    side = test.side
    networks = ("The networks", paper_sheet(networks_comparison(findings, side)))
    if not findings.tells_apart(side):
        return {"networks": networks}
    differences = reference_differences(findings, side, resamples=test.resamples)
    reference = findings.reference
    every = every_comparison(findings, side)
    judged = with_control(judged_comparison(findings, side), findings, side)
    tables: dict[str, tuple[str, Sheet | None]] = {
        "paper": ("The paper's table", _without_spread(paper_sheet(paper_comparison(findings, side)))),
        "judged": (
            "Each method by the score it is judged by",
            _also_noted(score_sheet(judged), control_note(judged)),
        ),
        "differences": (f"Differences from {reference}", differences),
        "tested": (f"{DEFAULT} against the others", default_against_others(test)),
        "scenes": (
            "Where scenes mislead",
            score_sheet(scenes_comparison(findings)) if len(findings.tests) > 1 else None,
        ),
        "promise": ("Known actors flagged (at most 5 % are promised)", promise_kept(findings, side)),
        "networks": networks,
        "rivals": (f"Every score on {reference}", score_sheet(_only(every, reference))),
        "every": ("Every score of every method", score_sheet(every)),
    }
    return {name: (title, sheet) for name, (title, sheet) in tables.items() if sheet is not None}


def write_tables(findings: Findings, out: Path, tables: Tables) -> list[Path]:
    """Write the tables of every test side as Markdown, CSV and LaTeX, and every number as CSV."""
    text, tex = ["# Tables"], list[str]()
    for side in findings.tests:
        text.append(f"\n## {side}")
        for name, (title, sheet) in tables.of_side[side].items():
            text += [f"\n### {title}\n", markdown(sheet)]
            tex.append(latex(sheet, caption=f"{title} ({side}).", label=f"tab:{side}-{name}"))
    main = findings.tests[0]
    files = {
        "tables.md": "\n".join(text),
        "tables.tex": "\n".join(tex),
        "tables.csv": summary_csv(every_comparison(findings, main)),
        **{
            f"outcomes-{side}.csv": outcomes_csv(every_comparison(findings, side).outcomes)
            for side in findings.tests
        },
    }
    for name, content in files.items():
        write_file(out / name, content)
    return [out / name for name in files]


def write_results_page(
    findings: Findings, path: Path, *, figures: Sequence[Path], facts: PageFacts, tables: Tables
) -> None:
    """Write the page; its figures are in a folder beside it."""
    side = findings.tests[0]
    text = [
        "# Results",
        "",
        *([] if tables.in_short is None else [escaped_markdown(tables.in_short), ""]),
        f"Generated by `{facts.command}`.",
        "",
        *what_was_run(findings, budget=facts.budget, elapsed_s=facts.elapsed_s),
        "",
        "## What these numbers mean",
        "",
        what_numbers_mean(findings, facts.table),
        "",
        *_how_compared(findings, side),
    ]
    shown = set[str]()
    for name, (title, sheet) in tables.of_side[side].items():
        if name != "every":
            new = replace(sheet, notes=tuple(note for note in sheet.notes if note not in shown))
            text += ["", f"## {title}", "", markdown(new).rstrip()]
            shown |= set(sheet.notes)
    text += ["", "## Figures", ""]
    for figure in figures:
        caption = next(
            (words for kind, words in CAPTIONS.items() if figure.stem.startswith(kind)), figure.stem
        )
        place = figure.relative_to(path.parent).as_posix()
        text += [f"![{caption}]({place})", "", caption, ""]
    text += [*scores_left_out(findings, side), "", "## Every row", "", *every_row(findings, facts.failures)]
    text += ["", "## Conventions", "", findings.rows[0].results[side].convention]
    write_file(path, "\n".join(text).rstrip() + "\n")


def write_docs(
    findings: Findings, path: Path, *, figures: Sequence[Path], facts: PageFacts, tables: Tables
) -> None:
    """Write the page into the documentation, with copies of its figures in `pictures/PAGE` beside it."""
    folder = path.parent / "pictures" / path.stem.lower()
    folder.mkdir(parents=True, exist_ok=True)
    copies = [folder / figure.name for figure in figures]
    for figure, copy in zip(figures, copies, strict=True):
        shutil.copyfile(figure, copy)
    write_results_page(findings, path, figures=copies, facts=facts, tables=tables)


def _only(comparison: Comparison, method: str) -> Comparison:
    return replace(
        comparison,
        rows=tuple(row for row in comparison.rows if row.method == method),
        outcomes=tuple(each for each in comparison.outcomes if each.method == method),
    )


def _also_noted(sheet: Sheet, note: str | None) -> Sheet:
    return sheet if note is None else replace(sheet, notes=(*sheet.notes, note))


def _without_spread(sheet: Sheet) -> Sheet:
    """Drop intervals of a single trial: four numbers in a cell leave no room; the next table has them."""

    def bare(cell: Cell) -> Cell:
        if isinstance(cell, str):
            return cell
        return tuple(
            replace(each, spread="" if each.spread.startswith("[") else each.spread) for each in cell
        )

    lines = [replace(line, cells=tuple(map(bare, line.cells))) for line in sheet.lines]
    return replace(sheet, lines=tuple(lines))


def _how_compared(findings: Findings, side: str) -> list[str]:
    judged = ", ".join(
        f"{escaped_markdown(method)} by {score}" for method, score in findings.judged_by.items()
    )
    return [
        "## How methods were compared",
        "",
        f"Tables show the {side} set unless they say otherwise. Each method is compared by one score, fixed before any "
        f"result was seen: {judged}. For networks that were not trained to give evidence, PE, NE, PNE and Belief follow the "
        "paper's rule α = ReLU(h) + 1. Scores that learn use training actors only; no threshold, score or setting was "
        "chosen on a novel actor.",
    ]
