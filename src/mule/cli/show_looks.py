"""AUROC by number of looks: a row per score, a column per number of looks."""

from collections.abc import Mapping

from rich.console import Console
from rich.table import Table
from rich.text import Text

from mule.evaluation.open_set import OpenSetMeasures
from mule.inference.results import SideResult


def looks_table(side: str, results: Mapping[int, SideResult]) -> None:
    """Print AUROC by number of looks, closed-set mAP first, then the scores that were left out."""
    first = next(iter(results.values()))
    table = Table(
        "AUROC",
        *map(looks_in_words, results),
        title=f"{side}: {first.num_known} known and {first.num_novel} novel tracks",
    )
    table.add_row(
        "closed-set mAP", *(f"{result.mean_ap:.4f}" for result in results.values()), end_section=True
    )
    for name in dict.fromkeys(name for result in results.values() for name in result.scores):
        table.add_row(Text(name), *(_auroc(result, name) for result in results.values()))
    console = Console()
    console.print(table)
    left_out = {name: reason for result in results.values() for name, reason in result.left_out.items()}
    for name, reason in left_out.items():
        console.print(Text(f"left out: {name} ({reason})"), soft_wrap=True)
    console.print(Text(list(results.values())[-1].convention, style="dim"))


def looks_in_words(number: int) -> str:
    """Return the title of a column: `1 look`, `2 looks`."""
    return f"{number} look{'s' if number > 1 else ''}"


def _auroc(result: SideResult, name: str) -> str:
    score = result.scores.get(name)
    if score is None or not isinstance(score.measures, OpenSetMeasures):
        return "–"
    return f"{score.measures.auroc:.4f}"
