"""What several commands share: sentences, progress bars, tables of results, and the numbers and paths they take."""

import shlex
import sys
import time
from collections.abc import Callable, Generator, Iterable
from contextlib import contextmanager
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich import progress as rich_progress
from rich.console import Console
from rich.table import Table
from rich.text import Text

from mule.core.errors import FileError
from mule.core.progress import hearing

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


def said_once() -> Callable[[str], None]:
    """Return what notes a sentence the first time it comes."""
    said: set[str] = set()

    def note(sentence: str) -> None:
        if sentence not in said:
            said.add(sentence)
            noted(sentence)

    return note


def command_shown() -> str:
    """Return the command line of this process as a results page shows it."""
    shown = map(without_place, sys.argv[1:])
    return " ".join([Path(sys.argv[0]).name, *(shlex.quote(each) if " " in each else each for each in shown)])


def without_place(argument: str) -> str:
    """Shorten an absolute path in an argument to its last name; folders of this machine mean nothing on a page."""
    key, is_setting, value = argument.rpartition("=")
    path = Path(value)
    return f"{key}{is_setting}…/{path.name}" if path.is_absolute() else argument


FIRST_LINE_S, NEXT_LINE_S = 2.0, 10.0
"""Without a terminal a step that lasts longer is told in lines: the first after this time, the next ones this far apart."""
_MINUTE_S, _HOUR_S = 60, 3600


class ProgressShown(rich_progress.Progress):
    """Bars with the time left on a terminal, removed at the end; elsewhere now and then a line on stderr."""

    def __init__(self, *columns: str | rich_progress.ProgressColumn) -> None:
        console = Console(stderr=True)
        super().__init__(*columns, console=console, transient=True, disable=not console.is_terminal)
        self._is_told = not console.is_terminal
        self._told_at: dict[rich_progress.TaskID, float] = {}

    def update(self, task_id: rich_progress.TaskID, **changes: Any) -> None:  # noqa: ANN401 - the arguments are rich's
        """Change a step; tell it in a line if there is no bar and the last line is old enough."""
        super().update(task_id, **changes)
        if self._is_told:
            self._tell(self._tasks[task_id])

    def _tell(self, task: rich_progress.Task) -> None:
        now = time.monotonic()
        told_at = self._told_at.setdefault(task.id, now + FIRST_LINE_S - NEXT_LINE_S)
        if now - told_at < NEXT_LINE_S or not task.completed or task.finished:
            return
        self._told_at[task.id] = now
        self.console.print(Text(progress_line(task)), soft_wrap=True)


def progress_line(task: rich_progress.Task) -> str:
    """Return how far a step is and how long it will still take."""
    parts = [each for each in (task.completed, task.total) if each is not None]
    done = " of ".join(f"{round(each, 1):.10g}" for each in parts)
    words = [f"{task.description}: {done}", task.fields.get("status") or ""]
    left_s = task.time_remaining
    if left_s is None and task.remaining is not None and task.elapsed and task.completed:
        left_s = task.elapsed * task.remaining / task.completed
    return ", ".join(filter(None, [*words, "" if left_s is None else f"{duration(float(left_s))} left"]))


def duration(seconds: float) -> str:
    """Return a time in the unit that people use.

    >>> duration(61.0)
    '1 min'
    """
    if seconds < _MINUTE_S:
        return f"{seconds:.0f} s"
    return f"{seconds / _MINUTE_S:.0f} min" if seconds < _HOUR_S else f"{seconds / _HOUR_S:.1f} h"


def progress_bar(*columns: rich_progress.ProgressColumn) -> ProgressShown:
    """Return a progress bar on a terminal, removed at the end; elsewhere it is told in lines."""
    return ProgressShown(*columns)


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


@contextmanager
def steps_shown() -> Generator[ProgressShown]:
    """Show every step that rooms count (`mule.core.progress`), each under its name, for the length of the context."""
    columns = (
        rich_progress.TextColumn("{task.description}"),
        rich_progress.BarColumn(),
        rich_progress.MofNCompleteColumn(),
        rich_progress.TimeRemainingColumn(),
        rich_progress.TextColumn("{task.fields[status]}", markup=False),
    )
    with progress_bar(*columns) as shown:
        tasks: dict[str, rich_progress.TaskID] = {}

        def hears(step: str, num_done: int, num_all: int, status: str) -> None:
            if num_done >= num_all:
                if step in tasks:
                    shown.remove_task(tasks.pop(step))
                return
            if step not in tasks:
                tasks[step] = shown.add_task(step, total=num_all, status="")
            shown.update(tasks[step], completed=num_done, total=num_all, status=status)

        with hearing(hears):
            yield shown


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
