"""Results as tables for people."""

from rich.console import Console
from rich.table import Table
from rich.text import Text

from mule.evaluation.open_set import (
    CharadesResult,
    MeanApResult,
    OpenSetMeasures,
    OpenSetResult,
    UndefinedMeasures,
)
from mule.metrics import MEASURES

_MEASURE_LABELS = {
    "auroc": "AUROC",
    "aupr_novel": "AUPR, novel positive",
    "aupr_known": "AUPR, known positive",
    "fpr_at_95_tpr": "FPR at 95 % TPR, known positive",
    "fpr_at_95_tpr_novel": "FPR at 95 % TPR, novel positive",
    "detection_error": "detection error at 95 % TPR",
    "min_detection_error": "least detection error",
}


def open_set(result: OpenSetResult) -> None:
    """Print the measures, the groups where there are any, and the convention."""
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


def mean_ap(result: MeanApResult, *, title: str) -> None:
    """Print the average precision of each class, their mean, what was left out, and the convention."""
    table = Table("class", "average precision", title=title)
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


def _groups(result: OpenSetResult) -> Table:
    table = Table("group", "known", "novel", "AUROC", "AUPR novel", "FPR at 95 % TPR", title="by group")
    for name, measures in result.groups.items():
        table.add_row(Text(name), str(measures.num_known), str(measures.num_novel), *_group_cells(measures))
    return table


def _group_cells(measures: OpenSetMeasures | UndefinedMeasures) -> list[str]:
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
