"""What several commands share: sentences, progress bars, tables of results, and the numbers and paths they take."""

import shlex
import sys
from collections.abc import Iterable
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich import progress as rich_progress
from rich.console import Console
from rich.table import Table
from rich.text import Text

from mule.core.errors import FileError

if TYPE_CHECKING:  # these take seconds to import, and `mule --help` must be quick
    from mule.evaluation.open_set import MeanApResult, OpenSetMeasures, OpenSetResult, UndefinedMeasures
    from mule.evaluation.tables import Sheet

TableArgument = Annotated[Path, typer.Argument(metavar="TABLE", help="Table of actors, .csv or .parquet.")]

_MEASURE_LABELS = {
    "auroc": "AUROC",
    "aupr_novel": "AUPR, novel positive",
    "aupr_known": "AUPR, known positive",
    "fpr_at_95_tpr": "FPR at 95 % TPR, known positive",
    "fpr_at_95_tpr_novel": "FPR at 95 % TPR, novel positive",
    "detection_error": "detection error at 95 % TPR",
    "min_detection_error": "least detection error",
}


def positive(text: str | Fraction) -> Fraction:
    """Parse a number above zero exactly: a decimal or a ratio."""
    try:
        number = Fraction(text)
    except (ValueError, ZeroDivisionError):
        number = Fraction(0)
    if number <= 0:
        raise typer.BadParameter(f"must be a number above zero, such as 0.5, 30 or 30000/1001; got '{text}'.")
    return number


def require_files(*paths: Path | None, what: str = "a file that can be read") -> None:
    """Stop at a path with no file, before the command imports anything heavy.

    Raises:
        FileError: some files do not exist; the message names all of them.
    """
    _require(
        (path for path in paths if path is not None and not path.exists()), f"{what}; there is no such file"
    )


def require_folders(*paths: Path | None, what: str = "a folder") -> None:
    """Stop at a path with no folder, before the command imports anything heavy.

    Raises:
        FileError: some folders do not exist; the message names all of them.
    """
    _require(
        (path for path in paths if path is not None and not path.is_dir()), f"{what}; there is no such folder"
    )


def _require(missing: Iterable[Path], must_be: str) -> None:
    lines = [f"{path}: must be {must_be}." for path in missing]
    if lines:
        raise FileError("\n".join(lines))


def noted(sentence: str) -> None:
    """Print one sentence on stderr, beside the results."""
    Console(stderr=True).print(Text(sentence), soft_wrap=True)


def command_shown() -> str:
    """Return the command line of this process as a results page shows it."""
    shown = map(without_place, sys.argv[1:])
    return " ".join([Path(sys.argv[0]).name, *(shlex.quote(each) if " " in each else each for each in shown)])


def without_place(argument: str) -> str:
    """Shorten an absolute path in an argument to its last name; folders of this machine mean nothing on a page."""
    key, is_setting, value = argument.rpartition("=")
    path = Path(value)
    return f"{key}{is_setting}…/{path.name}" if path.is_absolute() else argument


def progress_bar(*columns: rich_progress.ProgressColumn) -> rich_progress.Progress:
    """Return a progress bar on a terminal, removed at the end; it is silent elsewhere."""
    console = Console(stderr=True)
    return rich_progress.Progress(*columns, console=console, transient=True, disable=not console.is_terminal)


class CountBar:
    """A progress bar that counts what is done."""

    def __init__(self, title: str) -> None:
        self._progress = progress_bar()
        self._task = self._progress.add_task(title, total=None)

    def __enter__(self) -> "CountBar":
        self._progress.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._progress.stop()

    def __call__(self, num_done: int, num_expected: int) -> None:
        """Show that `num_done` of `num_expected` are done."""
        self._progress.update(self._task, completed=num_done, total=num_expected)


def sheet_table(sheet: "Sheet", title: str) -> Table:
    """Lay out a table of a comparison for the terminal; our rows are bold, names are never cut."""
    table = Table(title=title)
    for name in sheet.titles:
        table.add_column(name, overflow="fold")
    for line in sheet.lines:
        cells = [
            cell if isinstance(cell, str) else " / ".join(each.text for each in cell) for cell in line.cells
        ]
        table.add_row(*map(Text, cells), style="bold" if line.is_ours else None)
    return table


def print_open_set(result: "OpenSetResult") -> None:
    """Print the open-set measures, those of each group if there are groups, and the conventions."""
    from mule.metrics import MEASURES

    table = Table("measure", "value", title=f"{result.num_known} known and {result.num_novel} novel actors")
    if result.intervals is not None:
        table.add_column(f"{100 * result.intervals.level:g} % interval")
    for name in MEASURES:
        cells = [_MEASURE_LABELS[name], _number(getattr(result, name))]
        if result.intervals is not None:
            low, high = getattr(result.intervals, name)
            cells.append(f"{_number(low)} to {_number(high)}")
        table.add_row(*cells)
    tables = [table, _groups(result)] if result.groups else [table]
    _print(tables, result.convention)


def print_mean_ap(result: "MeanApResult", *, title: str) -> None:
    """Print each class's average precision, their mean, what was ignored, and the conventions."""
    from mule.evaluation.open_set import CharadesResult

    table = Table("class", "average precision", title=title)
    table.columns[0].overflow = "fold"
    for name, value in result.per_class.items():
        table.add_row(Text(name), "no ground truth" if value is None else _number(value))
    table.add_section()
    table.add_row(f"mean over {result.num_classes} classes", _number(result.map), style="bold")
    if isinstance(result, CharadesResult):
        table.add_row("mean weighted by class frequency", _number(result.weighted_map))
    table.add_section()
    for reason, count in {**result.counts, **result.ignored}.items():
        word = "ignored: " if reason in result.ignored else ""
        table.add_row(word + reason.replace("_", " "), str(count))
    _print([table], result.convention)


def _groups(result: "OpenSetResult") -> Table:
    table = Table("group", "known", "novel", "AUROC", "AUPR novel", "FPR at 95 % TPR", title="by group")
    table.columns[0].overflow = "fold"
    for name, measures in result.groups.items():
        table.add_row(Text(name), str(measures.num_known), str(measures.num_novel), *_group_cells(measures))
    return table


def _group_cells(measures: "OpenSetMeasures | UndefinedMeasures") -> list[str]:
    from mule.evaluation.open_set import UndefinedMeasures

    if isinstance(measures, UndefinedMeasures):
        return [measures.undefined]
    return [_number(value) for value in (measures.auroc, measures.aupr_novel, measures.fpr_at_95_tpr)]


def _number(value: float) -> str:
    return f"{value:.4f}"


def _print(tables: list[Table], convention: str) -> None:
    console = Console()
    for table in tables:
        console.print(table)
    console.print(Text(convention, style="dim"))
