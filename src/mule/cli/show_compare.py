"""A comparison as people see it: a line when a row starts and ends, the time left, the table, and where files are."""

import shlex
import sys
import threading
import time
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console
from rich.table import Table
from rich.text import Text

from mule.comparison.compare import Asked, Compared
from mule.comparison.compare import compare as run_comparison
from mule.comparison.controls import with_control
from mule.comparison.figures import write_figures
from mule.comparison.page import Told, all_tables, write_docs, write_page, write_tables
from mule.comparison.pictures import write_pictures
from mule.comparison.progress import WatchedRow, watched
from mule.comparison.rows import Contestant, Row, results_of
from mule.comparison.sheets import Findings, judged_comparison, networks_comparison, paper_comparison
from mule.core.config import ConfigError, Experiment, load_experiment
from mule.core.errors import RangeError
from mule.evaluation.open_set import OpenSetMeasures
from mule.evaluation.tables import Number, Sheet, paper_sheet, score_sheet
from mule.inference.results import SideResult
from mule.training.experiments import with_usual_places

LOOK_EVERY_S = 2.0
NUM_FRAMES = 3
"""Of the visual comparison; a picture of many methods is large."""
LEAST_SHARE = 0.05
"""Of a row must be done before time left is guessed."""


def contestants(
    files: Sequence[Path], settings: Sequence[str], systems: Sequence[str]
) -> tuple[Contestant, ...]:
    """The experiments of these files, named after them, and after their system where several are asked for.

    Raises:
        ConfigError: some cannot be read; all are named at once.
    """
    found: list[Contestant] = []
    wrong: list[str] = []
    for path in files:
        try:
            named = _anywhere(with_usual_places(load_experiment(path, settings)))
        except ConfigError as error:
            wrong.append(str(error))
            continue
        found += [
            Contestant(f"{path.stem}_{system}", named.model_copy(update={"system": system}))
            for system in systems
        ] or [Contestant(path.stem, named)]
    if wrong:
        raise ConfigError("\n".join(wrong))
    return tuple(found)


def start_of(file: Path, settings: Sequence[str]) -> Contestant:
    """The experiment that trains the backbone of all rows; of their settings it has those of the data and of what backbones are."""
    shared = [each for each in settings if each.startswith(("data.", "backbone.name", "backbone.options."))]
    (start,) = contestants([file], shared, [])
    return start


def _anywhere(experiment: Experiment) -> Experiment:
    """The experiment with paths that mean the same in any folder: rows may run in another."""
    data, backbone = experiment.data, experiment.backbone
    if data.root is not None:
        data = data.model_copy(update={"root": data.root.absolute()})
    if backbone.weights is not None:
        backbone = backbone.model_copy(update={"weights": backbone.weights.absolute()})
    return experiment.model_copy(update={"data": data, "backbone": backbone})


def noted(sentence: str) -> None:
    """One sentence, beside the results."""
    Console(stderr=True).print(Text(sentence), soft_wrap=True)


def judged_by(texts: Sequence[str]) -> dict[str, str]:
    """METHOD=SCORE, taken apart."""
    pairs = [text.partition("=") for text in texts]
    wrong = [text for text, (method, _, score) in zip(texts, pairs, strict=True) if not (method and score)]
    if wrong:
        raise ConfigError(f"a score must be given like bce-aco-r=max-logit; got {', '.join(wrong)}.")
    return {method: score for method, _, score in pairs}


def compare(asked: Asked, *, pictures: bool, docs: Path | None) -> bool:
    """Run the comparison, print its tables and where everything is; says whether a row has failed."""
    started_at = time.perf_counter()

    def watch(rows: Sequence[Row], num_finished: int) -> _Watch:
        if num_finished:
            noted(f"{num_finished} rows are finished already and stay as they are")
        return _Watch([watched(row) for row in rows])

    done = run_comparison(asked, watch=watch, noted=noted)
    for failure in done.failures:
        noted(f"{failure.name} failed: {failure.reason}")
    if done.findings is not None:
        told = _told(done, elapsed_s=time.perf_counter() - started_at)
        files = _written(done.findings, asked, told, pictures=pictures, docs=docs)
        _show(done.findings, files)
    if done.failures:
        noted(f"{len(done.failures)} of {len(done.rows)} rows failed; the same command goes on with them")
    return bool(done.failures)


def _told(done: Compared, *, elapsed_s: float) -> Told:
    return Told(
        command=command_shown(),
        budget=done.budget,
        failures={failure.name: failure.reason for failure in done.failures},
        elapsed_s=elapsed_s,
    )


def command_shown() -> str:
    """The command that was given, as a page shows it."""
    shown = map(without_place, sys.argv[1:])
    return " ".join([Path(sys.argv[0]).name, *(shlex.quote(each) if " " in each else each for each in shown)])


def without_place(argument: str) -> str:
    """An argument as a page shows it: of a path that means something on this machine alone, the last name."""
    key, is_setting, value = argument.rpartition("=")
    path = Path(value)
    return f"{key}{is_setting}…/{path.name}" if path.is_absolute() else argument


def _written(
    findings: Findings, asked: Asked, told: Told, *, pictures: bool, docs: Path | None
) -> list[Path | str]:
    """Everything on disk; its places, and what could not be drawn."""
    out, side = asked.out, findings.tests[0]
    tables = all_tables(findings, resamples=asked.judging.resamples)
    places: list[Path | str] = [*write_tables(findings, out, tables)]
    figures = write_figures(findings, side, out / "figures")
    if pictures:
        path = out / "figures" / "disputed.png"
        try:
            write_pictures(findings, side, path, count=NUM_FRAMES)
            figures.append(path)
        except RangeError as error:
            places.append(str(error))
    write_page(findings, out / "results.md", figures=figures, told=told, tables=tables)
    if docs is not None:
        write_docs(findings, docs, figures=figures, told=told, tables=tables)
    return [*places, out / "figures", out / "results.md", *([docs] if docs else [])]


def _show(findings: Findings, files: Sequence[Path | str]) -> None:
    console, side = Console(), findings.tests[0]
    if findings.tells_apart(side):
        console.print(_table(paper_sheet(paper_comparison(findings, side)), f"{side}, the paper's scores"))
        judged = with_control(judged_comparison(findings, side), findings, side)
        console.print(_table(score_sheet(judged), f"{side}, one score each"))
    else:
        console.print(_table(paper_sheet(networks_comparison(findings, side)), f"{side}, nobody is novel"))
    for file in files:
        console.print(Text(str(file)), soft_wrap=True)


def side_results(results: dict[str, SideResult]) -> None:
    """Print what a judgement found on each side: one table per side, then what was left out."""
    console = Console()
    for side, result in results.items():
        table = Table(
            "score", "AUROC", "AUPR", "FPR at 95 % TPR", "known flagged", "ties",
            title=f"{side}: {result.num_known} known and {result.num_novel} novel actors, closed-set mAP {result.mean_ap:.4f}",
        )  # fmt: skip
        for name, score in result.scores.items():
            cells = ["–"] * 3
            if isinstance(score.measures, OpenSetMeasures):
                values = (score.measures.auroc, score.measures.aupr_novel, score.measures.fpr_at_95_tpr)
                cells = [f"{value:.4f}" for value in values]
            flagged = "–" if score.known_flagged is None else f"{score.known_flagged:.1%}"
            table.add_row(Text(name), *cells, flagged, f"{score.tied_share:.0%}")
        console.print(table)
    first = next(iter(results.values()))
    for name, reason in first.left_out.items():
        console.print(Text(f"left out: {name} ({reason})"), soft_wrap=True)
    console.print(Text(first.convention, style="dim"))


def sheet_shown(sheet: Sheet, title: str) -> None:
    """Print a table, and its notes."""
    console = Console()
    console.print(_table(sheet, title))
    for note in sheet.notes:
        console.print(Text(note, style="dim"), soft_wrap=True)


def _table(sheet: Sheet, title: str) -> Table:
    table = Table(*sheet.titles, title=title)
    for block in sheet.blocks:
        for line in block.lines:
            cells = [cell if isinstance(cell, str) else " / ".join(map(_shown, cell)) for cell in line.cells]
            table.add_row(*(Text(cell) for cell in cells), style="bold" if line.is_ours else None)
    return table


def _shown(number: Number) -> str:
    return number.text


class _Watch:
    """Looks at the folders of rows now and then, and says which have started and ended and how long it may take."""

    def __init__(self, rows: Sequence[WatchedRow]) -> None:
        self._waiting, self._running = list(rows), list[WatchedRow]()
        self._num_rows = len(rows)
        self._shares = {each.row.name: each.done_share() for each in rows}
        self._share_at_start = sum(self._shares.values())
        self._began_at, self._clock_s = time.time(), time.perf_counter()
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._look_around, daemon=True)

    def __enter__(self) -> "_Watch":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._is_over.set()
        self._thread.join()
        self._look()

    def _look_around(self) -> None:
        while not self._is_over.wait(LOOK_EVERY_S):
            self._look()

    def _look(self) -> None:
        for each in [each for each in self._waiting if each.was_begun_after(self._began_at)]:
            self._waiting.remove(each)
            self._running.append(each)
            noted(f"{each.row.name} started{self._left()}")
        for each in list(self._running):
            is_finished = results_of(each.row) is not None
            self._shares[each.row.name] = 1.0 if is_finished else each.done_share()
            if is_finished:
                self._running.remove(each)
                num_done = self._num_rows - len(self._waiting) - len(self._running)
                noted(f"{each.row.name} finished, {num_done} of {self._num_rows}{self._left()}")

    def _left(self) -> str:
        share = sum(self._shares.values()) - self._share_at_start
        still = self._num_rows - sum(self._shares.values())
        if share <= LEAST_SHARE or still <= 0:
            return ""
        left_s = (time.perf_counter() - self._clock_s) * still / share
        return f"; about {left_s / 60:.0f} min left" if left_s >= 90 else f"; about {left_s:.0f} s left"
