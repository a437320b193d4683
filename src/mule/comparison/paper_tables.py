"""The tables of the paper: which rows each has, how their budgets compare, and which columns it shows.

    1  m = 0..5 on AVA          5  components for m = 2..5
    2  components on AVA        6  Table 3 with all four scores
    3  rivals on AVA, by PE     7  Table 4 with all four scores
    4  rivals on Charades, by PE

Tables 1 to 4 are the paper's, 5 to 7 its appendix's. A row is a name that `--system` takes; the experiment file says what
it is. MULE appears as printed and, below, in the form that works. Tables 1, 2 and 5 can be made of any experiment.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

from mule.comparison.contestants import load_contestants
from mule.comparison.rows import Contestant, Row
from mule.comparison.sheets import Findings, compared_by, training_session_seconds
from mule.core.config import ConfigError
from mule.core.errors import did_you_mean
from mule.core.files import write_file
from mule.evaluation.formats import latex, markdown, summary_csv
from mule.evaluation.outcomes import PAPER_MEASURES, Comparison, Measure, MethodRow, Outcome
from mule.evaluation.tables import Sheet, paper_sheet
from mule.inference.score_rules import PAPER_SCORES

HOURS = Measure("hours", "Hours per epoch", "neither", has_scores=False, scale=1.0, decimals=4)
_INNER_STEPS = (0, 1, 2, 3, 4, 5)
COMPONENTS = {
    "": "MULE",
    "-without-aco-r": "w/o ACO-R",
    "-without-beta-enn": "w/o Beta-ENN",
    "-without-m-edc": "w/o M-EDC",
}
PRINTED = "mule-literal"
ACTOR_MAP = "mAP over actors"


@dataclass(frozen=True)
class TableLine:
    """A line of a table: its text, the row's name for `--system`, and settings on top of the experiment."""

    text: str
    system: str
    pretraining: str = ""
    settings: tuple[str, ...] = ()
    without: str = ""
    """Suffix of the system without one of its parts."""

    @property
    def is_ours(self) -> bool:
        """Whether the line is MULE's."""
        return self.system.startswith("mule")


@dataclass(frozen=True)
class PaperTable:
    """One table: the experiment it is made of, its lines, how budgets compare, and its columns."""

    number: int
    caption: str
    experiment: Path
    lines: tuple[TableLine, ...]
    equal: Literal["epochs", "own"]
    scores: tuple[str, ...] = PAPER_SCORES
    measures: tuple[Measure, ...] = PAPER_MEASURES


def _steps_lines(system: str = PRINTED) -> tuple[TableLine, ...]:
    return tuple(
        TableLine(f"m = {m}", system, settings=(f"objective.inner_steps={m}",)) for m in _INNER_STEPS
    )


def _component_lines(inner_steps: Sequence[int], system: str = PRINTED) -> tuple[TableLine, ...]:
    """MULE and MULE without each part; with several m, a block for each."""
    return tuple(
        TableLine(
            f"{text}, m = {m}" if len(inner_steps) > 1 else text,
            system,
            settings=(f"objective.inner_steps={m}",),
            without=part,
        )
        for m in inner_steps
        for part, text in COMPONENTS.items()
    )


_OURS = (
    TableLine("MULE as printed, R-50", PRINTED, "K400"),
    TableLine("MULE as printed, R-101", f"{PRINTED}-r101", "K700"),
    TableLine("MULE, R-50", "mule", "K400"),
    TableLine("MULE, R-101", "mule-r101", "K700"),
)
_ON_AVA = (
    TableLine("SlowFast, R-101", "slowfast", "K600"),
    TableLine("ACAR, R-50", "acar-bank", "K400"),
    TableLine("ACAR, R-101", "acar-bank-r101", "K700"),
    TableLine("AFAC, R-101", "afac", "K600"),
    TableLine("AIA, R-101", "aia", "K700"),
    TableLine("DEAR, R-50", "dear", "K400"),
    *_OURS,
)
_ON_CHARADES = (
    TableLine("SlowFast, R-101", "slowfast", "K600"),
    TableLine("X3D-XL", "x3d", "K600"),
    TableLine("AFAC, R-101", "afac", "K600"),
    TableLine("AFAC, CSN-152", "afac-csn", "IG-65M"),
    TableLine("CSN-152", "csn", "IG-65M"),
    TableLine("DEAR, R-50", "dear", "K400"),
    *_OURS,
)
_AVA, _CHARADES = Path("ava"), Path("charades")


def _rivals(number: int, experiment: Path, scores: tuple[str, ...]) -> PaperTable:
    lines = {_AVA: _ON_AVA, _CHARADES: _ON_CHARADES}[experiment]
    caption = "Comparison with the state of the art"
    return PaperTable(number, caption, experiment, lines, "own", scores)


PAPER_TABLES: Mapping[int, PaperTable] = {
    each.number: each
    for each in (
        PaperTable(
            1, "Number m of averaged primal-dual steps", _AVA, _steps_lines(), "epochs",
            measures=(*PAPER_MEASURES[:-1], HOURS),
        ),
        PaperTable(2, "Components of MULE with m = 2", _AVA, _component_lines((2,)), "epochs"),
        _rivals(3, _AVA, ("PE",)),
        _rivals(4, _CHARADES, ("PE",)),
        PaperTable(
            5, "Components of MULE with m = 2..5", _AVA, _component_lines((2, 3, 4, 5)), "epochs",
            measures=PAPER_MEASURES[:-1],
        ),
        _rivals(6, _AVA, PAPER_SCORES),
        _rivals(7, _CHARADES, PAPER_SCORES),
    )
}  # fmt: skip


def paper_table(number: int, systems: Sequence[str] = (), *, experiment: Path | None = None) -> PaperTable:
    """Return a table of the paper, with the lines of these systems alone where any are named.

    Tables 1, 2 and 5 vary one system, the printed MULE unless another form of it is named. `experiment` replaces
    the one that the table is of.

    Raises:
        ConfigError: the table has no such line.
    """
    table = PAPER_TABLES[number]
    table = replace(table, experiment=experiment or table.experiment)
    if not systems:
        return table
    if table.equal == "epochs":
        return replace(table, lines=tuple(line for system in systems for line in _varied(number, system)))
    names = [line.system for line in table.lines]
    for system in systems:
        if system not in names:
            raise ConfigError(
                f"--system must be a row of Table {number}: {', '.join(names)}; got {system!r}.{did_you_mean(system, names)}"
            )
    return replace(table, lines=tuple(line for line in table.lines if line.system in systems))


def _varied(number: int, system: str) -> tuple[TableLine, ...]:
    return {
        1: lambda: _steps_lines(system),
        2: lambda: _component_lines((2,), system),
        5: lambda: _component_lines((2, 3, 4, 5), system),
    }[number]()


def contestants_of(table: PaperTable, settings: Sequence[str]) -> tuple[Contestant, ...]:
    """Load the rows of a table.

    Raises:
        ConfigError: the experiment cannot be read, or lacks a row.
    """
    loaded: list[Contestant] = []
    for line in table.lines:
        (whole,) = load_contestants([table.experiment], [*line.settings, *settings], [line.system])
        each = _without(whole, line.without)
        name = "_".join([each.name, *(setting.split(".")[-1].replace("=", "") for setting in line.settings)])
        loaded.append(replace(each, name=name, text=line.text))
    return tuple(loaded)


def _without(whole: Contestant, part: str) -> Contestant:
    """The same experiment with its system less one part; every other setting stays."""
    experiment = whole.experiment.model_copy(update={"system": whole.experiment.system + part})
    return replace(whole, name=whole.name + part, experiment=experiment)


def write_paper_table(findings: Findings, table: PaperTable, out: Path) -> list[Path]:
    """Write the table in the paper's layout as Markdown, CSV and LaTeX, `table-N.*`, on the first test side."""
    compared = table_comparison(findings, table)
    sheet = _with_pretraining(paper_sheet(compared), table)
    if table.measures[-1].key == "map":
        note = f"Closed-set mAP: {official_name(findings) or ACTOR_MAP}, of the same network."
        sheet = replace(sheet, notes=(*sheet.notes, note))
    caption = f"{table.caption} ({table.experiment.stem})"
    files = {
        "md": f"# Table {table.number}. {caption}\n\n{markdown(sheet)}",
        "csv": summary_csv(compared),
        "tex": latex(sheet, caption=f"{caption}.", label=f"tab:{table.number}"),
    }
    for suffix, content in files.items():
        write_file(out / f"table-{table.number}.{suffix}", content)
    return [out / f"table-{table.number}.{suffix}" for suffix in files]


def table_comparison(findings: Findings, table: PaperTable) -> Comparison:
    """The outcomes of a table's lines, in their order, on the first test side."""
    side = findings.tests[0]
    # Dirichlet networks have no evidence against an action: their score is vacuity
    scores = {method: (*table.scores, "vacuity") for method in findings.methods}
    compared = compared_by(findings, side, scores)
    closed = [
        Outcome(each.method, "map", official.mean_ap, each.row.trial)
        for each in findings.rows
        if official_name(findings) and (official := each.results[side].official) is not None
    ]
    open_set = [each for each in compared.outcomes if not closed or each.measure != "map"]
    hours = [
        Outcome(each.method, HOURS.key, hours_per_epoch(each.row), each.row.trial) for each in findings.rows
    ]
    lines = {line.text: line for line in table.lines}
    rows = tuple(
        MethodRow(row.method, line.is_ours)
        for row in compared.rows
        if (line := lines.get(row.method)) is not None
    )
    return Comparison(rows, table.measures, (*open_set, *closed, *hours))


def official_name(findings: Findings) -> str | None:
    """The official closed-set measure of the data, if every row has it."""
    measures = [each.results[findings.tests[0]].official for each in findings.rows]
    return measures[0].name if measures[0] is not None and None not in measures else None


def _with_pretraining(sheet: Sheet, table: PaperTable) -> Sheet:
    """Add the column that says what each line's backbone was trained on, where the table has it."""
    trained_on = {line.text: line.pretraining for line in table.lines}
    if not any(trained_on.values()):
        return sheet
    lines = [
        replace(line, cells=(line.cells[0], trained_on[str(line.cells[0])], *line.cells[1:]))
        for line in sheet.lines
    ]
    spans = tuple((heading, num + (at == 0)) for at, (heading, num) in enumerate(sheet.spans))
    titles = (sheet.titles[0], "Pre-train", *sheet.titles[1:])
    return replace(sheet, titles=titles, lines=tuple(lines), spans=spans)


def hours_per_epoch(row: Row) -> float:
    """Hours of training per epoch, without validation."""
    return training_session_seconds(row, ("step_s", "wait_s")) / row.experiment.training.epochs / 3600
