"""A whole comparison as one function: plan, prepare, run what is not finished, and say what all rows found.

experiments ─▶ equal budgets ─▶ rows ─▶ prepare ─▶ engine: train, judge ─▶ findings ─▶ tables, figures, page
                                           └─ one backbone per trial first, if rows are to begin with one
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, Protocol, runtime_checkable

from mule.comparison.engines import JobFailure, run_jobs
from mule.comparison.equal import at_equal_time, gradient_steps, require_equal_steps, stretched
from mule.comparison.figures import write_figures
from mule.comparison.page import Told, all_tables, write_docs, write_page, write_tables
from mule.comparison.pictures import write_pictures
from mule.comparison.rows import (
    Contestant,
    Row,
    finish_row,
    planned_rows,
    prepare,
    require_same_rows,
    results_of,
)
from mule.comparison.sheets import Findings, findings_of, method_names, require_methods
from mule.comparison.starting import Start, begun_with, planned_starts, require_start, train_start
from mule.core.config import ConfigError, StageData
from mule.core.errors import MuleError, RangeError
from mule.inference.judging import Judging
from mule.inference.results import SideResult
from mule.inference.score_rules import score_rules
from mule.systems.catalogue import find_system
from mule.training.data import Noted, root_of

QUICK_CLIPS = {"train_clips": 800, "val_clips": 100}
QUICK_SHARE = 0.5
"""Of the epochs."""
NUM_FRAMES = 3
"""Of the visual comparison; a picture of many methods is large."""


@dataclass(frozen=True)
class Asked:
    """What is to be compared, and how."""

    contestants: tuple[Contestant, ...]
    out: Path
    seeds: tuple[int, ...] = (0,)
    splits: tuple[str, ...] = ()
    equal: Literal["steps", "time"] = "steps"
    judging: Judging = field(default_factory=Judging)
    engine: Literal["local", "ray"] = "local"
    num_workers: int = 2
    against: str | None = None
    judged_by: Mapping[str, str] = field(default_factory=dict)
    start: Contestant | None = None
    """Whose backbone every row begins with, trained once per class split and seed; None is as experiments say."""


@dataclass(frozen=True)
class Compared:
    """What came of it."""

    rows: tuple[Row, ...]
    findings: Findings | None
    """None if no row has finished."""
    failures: tuple[JobFailure, ...]
    budget: str


@runtime_checkable
class Watch(Protocol):
    """Who is told which rows are about to run, and when they no longer do."""

    def __enter__(self) -> object:
        """They are about to run."""
        ...

    def __exit__(self, *_: object) -> None:
        """They no longer do."""
        ...


def compare(asked: Asked, *, watch: Callable[[Sequence[Row], int], Watch], noted: Noted) -> Compared:
    """Every row finished, now or before, and what they found.

    Args:
        asked: what is to be compared.
        watch: makes, of the rows that are about to run and the number of those that need not, someone who watches.
        noted: is told what people should know meanwhile.

    Raises:
        ConfigError: the rows cannot be compared, or their folders hold other experiments.
    """
    contestants = asked.contestants
    _require_plan(asked)
    if asked.equal == "time":
        contestants = at_equal_time(contestants, asked.out, noted=noted)
    rows = planned_rows(contestants, asked.out, seeds=asked.seeds, splits=asked.splits, judging=asked.judging)
    starts = () if asked.start is None else planned_starts(asked.start, rows, asked.out)
    rows = begun_with(rows, starts) if starts else rows
    require_same_rows([*starts, *rows])
    waiting = [row for row in rows if results_of(row) is None]
    prepare(waiting, noted=noted)
    failures = _trained_first(starts, waiting, asked, noted=noted)
    ready = [row for row in waiting if row.name not in {each.name for each in failures}]
    with watch(ready, len(rows) - len(waiting)):
        failures += tuple(
            failure
            for stage in (False, True)  # rows with the weights of others come when those are finished
            if (jobs := [row for row in ready if (row.trained_in is not None) == stage])
            for failure in run_jobs(
                jobs, finish_row, engine=asked.engine, num_workers=asked.num_workers, noted=noted
            )
        )
    found = [(row, results) for row in rows if (results := results_of(row)) is not None]
    return Compared(rows, _findings(found, asked), failures, _budget(asked, contestants))


def _trained_first(
    starts: Sequence[Start], waiting: Sequence[Row], asked: Asked, *, noted: Noted
) -> tuple[JobFailure, ...]:
    """The backbones that could not be trained, and with each the rows that would have begun with it."""
    trials = {row.trial for row in waiting}
    needed = [start for start in starts if start.trial in trials]
    if needed:
        noted(f"first the backbones that rows begin with: {', '.join(start.name for start in needed)}")
    failures = run_jobs(needed, train_start, engine=asked.engine, num_workers=asked.num_workers, noted=noted)
    failed = {each.name for each in failures}
    lost = {start.trial: start.name for start in needed if start.name in failed}
    return failures + tuple(
        JobFailure(row.name, f"it begins with the backbone of {lost[row.trial]}, which was not trained.")
        for row in waiting
        if row.trial in lost
    )


def quickened(contestant: Contestant) -> Contestant:
    """The same experiment on fewer clips of Stage and over half the epochs.

    Raises:
        MuleError: it is not on Stage.
    """
    experiment = contestant.experiment
    if not isinstance(experiment.data, StageData):
        raise MuleError(f"--quick is for experiments on Stage; {contestant.name} is on a table.")
    data = experiment.data.model_copy(update=QUICK_CLIPS)
    fewer = experiment.model_copy(update={"data": data})
    return Contestant(contestant.name, stretched(fewer, max(round(QUICK_SHARE * fewer.training.epochs), 1)))


def _require_plan(asked: Asked) -> None:
    """All that can be known to be wrong before anything is written."""
    planned_rows(asked.contestants, asked.out, seeds=asked.seeds, splits=asked.splits, judging=asked.judging)
    if asked.out.exists() and not asked.out.is_dir():
        raise ConfigError(
            f"{asked.out}: a comparison needs a folder; this is a file. Choose another (--out)."
        )
    require_methods(method_names(asked.contestants), asked.against, asked.judged_by)
    score_rules([*asked.judging.scores, *asked.judged_by.values()])
    kinds = {each.name: each.experiment.data.kind for each in asked.contestants}
    if len(set(kinds.values())) > 1:
        told = ", ".join(f"{name} has data.kind {kind}" for name, kind in kinds.items())
        raise ConfigError(
            f"what is compared must be tested on the same sides; {told}. Compare each kind by itself."
        )
    for each in asked.contestants:
        find_system(each.experiment.system)
        root_of(each.experiment.data)
    if asked.start is not None:
        require_start(asked.start, asked.contestants)
    if asked.equal == "steps":
        require_equal_steps(asked.contestants)


def _findings(found: Sequence[tuple[Row, Mapping[str, SideResult]]], asked: Asked) -> Findings | None:
    if not found:
        return None
    methods = method_names(asked.contestants)
    return findings_of(found, methods, against=asked.against, judged_by=asked.judged_by)


def _budget(asked: Asked, contestants: Sequence[Contestant]) -> str:
    steps = {each.name: gradient_steps(each.experiment) for each in contestants}
    if asked.equal == "steps":
        return f"{next(iter(steps.values()))} gradient steps each (epochs × batches × inner steps){_begun(asked)}"
    told = ", ".join(f"{name} {number}" for name, number in steps.items())
    return (
        f"equal time: steps of each were timed in turns, and epochs set to take as long as the first one's; gradient "
        f"steps: {told}{_begun(asked)}"
    )


def _begun(asked: Asked) -> str:
    if asked.start is None:
        return ""
    steps = gradient_steps(asked.start.experiment)
    return f", from a backbone that {asked.start.name} has trained on the same clips for {steps} steps"


def write_comparison(
    findings: Findings, asked: Asked, told: Told, *, pictures: bool, docs: Path | None
) -> list[Path | str]:
    """Write tables, figures and the results page; return their paths, and why a picture could not be drawn."""
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
