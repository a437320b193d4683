"""A whole comparison in one function.

Plan, prepare, run what is not finished, and collect the results of all rows.

experiments ─▶ equal budgets ─▶ rows ─▶ prepare ─▶ engine: train, evaluate ─▶ findings ─▶ tables, figures, page
                                           └─ first one backbone per trial, if rows start from a shared one

    OUT/starts/NAME-SPLIT-sSEED/   a run that trains a shared backbone, and log.txt

The paper's systems all start from a backbone trained on Kinetics. A shared backbone is trained on the
training clips of its trial only, so novel actions stay unseen.
"""

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Literal

from mule.comparison.engines import JobFailure, run_jobs
from mule.comparison.equal import at_equal_time, require_equal_epochs, require_equal_steps, stretched
from mule.comparison.figures import write_figures, write_pictures
from mule.comparison.page import PageFacts, all_tables, write_docs, write_results_page, write_tables
from mule.comparison.paper_tables import PaperTable, write_paper_table
from mule.comparison.rows import (
    LOG,
    Contestant,
    Row,
    RowLog,
    finish_row,
    folder_name,
    gradient_steps,
    planned_rows,
    prepare,
    require_same_rows,
    results_of,
    trial_experiment,
)
from mule.comparison.sheets import Findings, findings_of, method_names, require_methods
from mule.core.config import ConfigError
from mule.core.errors import MuleError, RangeError
from mule.core.locks import only_writer
from mule.core.settings import Experiment, StageData
from mule.evaluation.outcomes import Trial
from mule.inference.judging import Judging
from mule.inference.results import SideResult
from mule.inference.score_rules import score_rules
from mule.systems.catalogue import find_system
from mule.training.build import run_experiment
from mule.training.data import Noted, root_of
from mule.training.run_folder import CARD

STARTS = "starts"
QUICK_CLIPS = {"train_clips": 800, "val_clips": 100}
QUICK_SHARE = 0.5
"""Share of the epochs that a quick comparison trains."""
NUM_FRAMES = 3
"""Frames of the visual comparison; a picture of many methods is large."""


@dataclass(frozen=True)
class ComparisonPlan:
    """What to compare, and how."""

    contestants: tuple[Contestant, ...]
    out: Path
    seeds: tuple[int, ...] = (0,)
    splits: tuple[str, ...] = ()
    equal: Literal["steps", "epochs", "time", "own"] = "steps"
    """What every row has the same of; "own" leaves each the budget of its experiment."""
    table: PaperTable | None = None
    """The table of the paper that the rows are of."""
    judging: Judging = field(default_factory=Judging)
    engine: Literal["local", "ray"] = "local"
    num_workers: int = 2
    against: str | None = None
    judged_by: Mapping[str, str] = field(default_factory=dict)
    start: Contestant | None = None
    """Trains the backbone that all rows of a trial start from; None follows the experiments."""


@dataclass(frozen=True)
class FinishedComparison:
    """The rows of a comparison and what they found."""

    rows: tuple[Row, ...]
    findings: Findings | None
    """None if no row has finished."""
    failures: tuple[JobFailure, ...]
    budget: str


@dataclass(frozen=True)
class SharedBackbone:
    """The training of the backbone that all rows of a trial start from."""

    experiment: Experiment
    trial: Trial
    folder: Path

    @property
    def name(self) -> str:
        """Its name in messages and for the engine."""
        return self.folder.name


def run_comparison(
    plan: ComparisonPlan,
    *,
    watch: Callable[[Sequence[Row], int], AbstractContextManager[object]],
    noted: Noted,
) -> FinishedComparison:
    """Finish every row, and collect what they found.

    Args:
        plan: what to compare.
        watch: is called with the rows that will run and the number of finished ones; watches while they run.
        noted: receives a sentence about each longer step.

    Raises:
        ConfigError: the rows cannot be compared, or their folders hold other experiments.
        FolderInUseError: another process runs this comparison.
    """
    _require_plan(plan)
    with only_writer(plan.out) as notes:
        for sentence in notes:
            noted(sentence)
        return _run(plan, watch=watch, noted=noted)


def _run(
    plan: ComparisonPlan,
    *,
    watch: Callable[[Sequence[Row], int], AbstractContextManager[object]],
    noted: Noted,
) -> FinishedComparison:
    contestants = plan.contestants
    if plan.equal == "time":
        contestants = at_equal_time(contestants, plan.out, noted=noted)
    rows = planned_rows(contestants, plan.out, seeds=plan.seeds, splits=plan.splits, judging=plan.judging)
    backbones = () if plan.start is None else planned_backbones(plan.start, rows, plan.out)
    rows = with_backbones(rows, backbones) if backbones else rows
    require_same_rows([*backbones, *rows])
    waiting = [row for row in rows if results_of(row) is None]
    prepare(waiting, noted=noted)
    failures = _train_backbones(backbones, waiting, plan, noted=noted)
    ready = [row for row in waiting if row.name not in {each.name for each in failures}]
    with watch(ready, len(rows) - len(waiting)):
        failures += tuple(
            failure
            for stage in (False, True)  # rows that reuse another row's weights run after it
            if (jobs := [row for row in ready if (row.trained_in is not None) == stage])
            for failure in run_jobs(
                jobs, finish_row, engine=plan.engine, num_workers=plan.num_workers, noted=noted
            )
        )
    finished = [(row, results) for row in rows if (results := results_of(row)) is not None]
    return FinishedComparison(rows, _findings(finished, plan), failures, _budget(plan, contestants))


def quickened(contestant: Contestant) -> Contestant:
    """The same experiment on fewer clips of Stage and for half the epochs.

    Raises:
        MuleError: it is not on Stage.
    """
    experiment = contestant.experiment
    if not isinstance(experiment.data, StageData):
        raise MuleError(f"--quick needs experiments on Stage; {contestant.name} is on a table.")
    data = experiment.data.model_copy(update=QUICK_CLIPS)
    fewer = experiment.model_copy(update={"data": data})
    return Contestant(contestant.name, stretched(fewer, max(round(QUICK_SHARE * fewer.training.epochs), 1)))


def require_backbone(start: Contestant, contestants: Sequence[Contestant]) -> None:
    """Require that every experiment can start from the backbone of this one.

    Raises:
        ConfigError: one has other data, another backbone, or weights already.
    """
    theirs = start.experiment
    for each in contestants:
        mine = each.experiment
        if mine.backbone.weights is not None:
            raise ConfigError(
                f"a row must start from one backbone; {each.name} sets backbone.weights, and --backbone-from names "
                f"{start.name}. Remove one of them."
            )
        if mine.data != theirs.data:
            raise ConfigError(
                f"a shared backbone must be trained on the data of the rows; the data of {start.name} and {each.name} "
                "differ."
            )
        if (mine.backbone.name, mine.backbone.options) != (theirs.backbone.name, theirs.backbone.options):
            raise ConfigError(
                f"rows must have the backbone of {start.name}, {_backbone(theirs)}; {each.name} has {_backbone(mine)}."
            )


def planned_backbones(start: Contestant, rows: Sequence[Row], out: Path) -> tuple[SharedBackbone, ...]:
    """One training of the backbone for every trial of the rows."""
    splits = {row.trial: row.experiment.data.split for row in rows}
    return tuple(
        SharedBackbone(
            trial_experiment(start, seed=trial.seed, split=split),
            trial,
            out.absolute() / STARTS / folder_name(start, trial),
        )
        for trial, split in splits.items()
    )


def with_backbones(rows: Sequence[Row], backbones: Sequence[SharedBackbone]) -> tuple[Row, ...]:
    """The same rows, each starting from the backbone of its trial."""
    folders = {backbone.trial: backbone.folder for backbone in backbones}
    return tuple(replace(row, experiment=_with_weights(row.experiment, folders[row.trial])) for row in rows)


def train_backbone(backbone: SharedBackbone) -> None:
    """Train the backbone unless that is done; resume a training that was interrupted."""
    if not (backbone.folder / CARD).exists():
        backbone.folder.mkdir(parents=True, exist_ok=True)
        log = RowLog(backbone.folder / LOG)
        run_experiment(backbone.experiment, backbone.folder, listener=log, resumes=True)


def _train_backbones(
    backbones: Sequence[SharedBackbone], waiting: Sequence[Row], plan: ComparisonPlan, *, noted: Noted
) -> tuple[JobFailure, ...]:
    """Train the backbones that waiting rows need.

    Return those that failed, and the rows that depend on them.
    """
    trials = {row.trial for row in waiting}
    needed = [backbone for backbone in backbones if backbone.trial in trials]
    if needed:
        noted(f"training the backbones that rows start from: {', '.join(each.name for each in needed)}")
    failures = run_jobs(needed, train_backbone, engine=plan.engine, num_workers=plan.num_workers, noted=noted)
    failed = {each.name for each in failures}
    lost = {backbone.trial: backbone.name for backbone in needed if backbone.name in failed}
    return failures + tuple(
        JobFailure(row.name, f"it starts from the backbone of {lost[row.trial]}, whose training failed.")
        for row in waiting
        if row.trial in lost
    )


def _with_weights(experiment: Experiment, folder: Path) -> Experiment:
    backbone = experiment.backbone.model_copy(update={"weights": folder})
    return experiment.model_copy(update={"backbone": backbone})


def _backbone(experiment: Experiment) -> str:
    options = [f"{name} = {value}" for name, value in experiment.backbone.options.items()]
    return " with ".join([experiment.backbone.name, *options])


def _require_plan(plan: ComparisonPlan) -> None:
    """Check everything that can be checked before anything is written."""
    planned_rows(plan.contestants, plan.out, seeds=plan.seeds, splits=plan.splits, judging=plan.judging)
    if plan.out.exists() and not plan.out.is_dir():
        raise ConfigError(f"{plan.out}: --out must be a folder; this is a file. Choose another.")
    require_methods(method_names(plan.contestants), plan.against, plan.judged_by)
    score_rules([*plan.judging.scores, *plan.judged_by.values()])
    kinds = {each.name: each.experiment.data.kind for each in plan.contestants}
    if len(set(kinds.values())) > 1:
        listed = ", ".join(f"{name} has data.kind {kind}" for name, kind in kinds.items())
        raise ConfigError(
            f"all experiments must have the same kind of data; {listed}. Compare each kind separately."
        )
    for each in plan.contestants:
        find_system(each.experiment.system)
        root_of(each.experiment.data)
    if plan.start is not None:
        require_backbone(plan.start, plan.contestants)
    if plan.equal == "steps":
        require_equal_steps(plan.contestants)
    if plan.equal == "epochs":
        require_equal_epochs(plan.contestants)


def _findings(
    finished: Sequence[tuple[Row, Mapping[str, SideResult]]], plan: ComparisonPlan
) -> Findings | None:
    if not finished:
        return None
    methods = method_names(plan.contestants)
    return findings_of(finished, methods, against=plan.against, judged_by=plan.judged_by)


def _budget(plan: ComparisonPlan, contestants: Sequence[Contestant]) -> str:
    steps = {each.name: gradient_steps(each.experiment) for each in contestants}
    if plan.equal == "steps":
        return (
            f"{next(iter(steps.values()))} gradient steps each (epochs × batches × inner steps){_start(plan)}"
        )
    if plan.equal == "epochs":
        return f"{contestants[0].experiment.training.epochs} epochs each{_start(plan)}"
    listed = ", ".join(f"{name} {number}" for name, number in steps.items())
    if plan.equal == "own":
        return f"that of each experiment; gradient steps: {listed}{_start(plan)}"
    return (
        "equal time: the steps of each experiment were timed in turns, and its epochs set to take as long as those of the "
        f"first; gradient steps: {listed}{_start(plan)}"
    )


def _start(plan: ComparisonPlan) -> str:
    if plan.start is None:
        return ""
    steps = gradient_steps(plan.start.experiment)
    return f", starting from a backbone that {plan.start.name} trained on the same clips for {steps} steps"


def write_comparison(
    findings: Findings, plan: ComparisonPlan, facts: PageFacts, *, pictures: bool, docs: Path | None
) -> list[Path | str]:
    """Write tables, figures and the results page; return their paths, and why a picture could not be drawn."""
    with only_writer(plan.out):
        return _written(findings, plan, facts, pictures=pictures, docs=docs)


def _written(
    findings: Findings, plan: ComparisonPlan, facts: PageFacts, *, pictures: bool, docs: Path | None
) -> list[Path | str]:
    out, side = plan.out, findings.tests[0]
    tables = all_tables(findings, resamples=plan.judging.resamples)
    places: list[Path | str] = [*write_tables(findings, out, tables)]
    if plan.table is not None:
        places += write_paper_table(findings, plan.table, out)
    figures = write_figures(findings, side, out / "figures")
    if pictures:
        path = out / "figures" / "disputed.png"
        try:
            write_pictures(findings, side, path, count=NUM_FRAMES)
            figures.append(path)
        except RangeError as error:
            places.append(str(error))
    write_results_page(findings, out / "results.md", figures=figures, facts=facts, tables=tables)
    if docs is not None:
        write_docs(findings, docs, figures=figures, facts=facts, tables=tables)
    return [*places, out / "figures", out / "results.md", *([docs] if docs else [])]
