"""`mule compare`: experiments side by side, in the paper's tables. Torch is imported when the command runs."""

import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer
from rich.console import Console
from rich.text import Text

from mule.cli.printing import command_shown, noted, require_files, sheet_table

if TYPE_CHECKING:
    from mule.comparison.rows import Row, RowProgress
    from mule.comparison.sheets import Findings

LOOK_EVERY_S = 2.0
SHARE_BEFORE_ESTIMATE = 0.05
"""Share of the work that must be done before the remaining time is estimated."""


def compare_experiments(
    experiments: Annotated[
        list[Path] | None,
        typer.Argument(
            metavar="EXPERIMENT",
            help="Experiment files, or names of packaged ones, such as stage, own or ava.",
        ),
    ] = None,
    seeds: Annotated[
        int,
        typer.Option(
            min=1, metavar="N", help="Train each experiment with N seeds; on Stage each renders new data."
        ),
    ] = 1,
    first_seed: Annotated[int, typer.Option(min=0, metavar="N", help="First seed.")] = 0,
    splits: Annotated[
        list[str] | None,
        typer.Option(
            "--split", metavar="SPLIT", help="Value of data.split: which actions are known. Repeatable."
        ),
    ] = None,
    systems: Annotated[
        list[str] | None,
        typer.Option(
            "--system", metavar="NAME", help="Run each experiment with this system instead. Repeatable."
        ),
    ] = None,
    settings: Annotated[
        list[str] | None,
        typer.Option(
            "--set", metavar="KEY=VALUE", help="Override a setting in every experiment. Repeatable."
        ),
    ] = None,
    out: Annotated[Path, typer.Option(metavar="DIR", help="Folder for rows, tables and figures.")] = Path(
        "runs/compare"
    ),
    table: Annotated[
        int | None,
        typer.Option(
            min=1,
            max=7,
            metavar="1..7",
            help="Train the rows of this table of the paper and write it in the paper's layout. Tables 5 to 7 are in the "
            "appendix. --system then selects rows, and EXPERIMENT replaces ava or charades.",
        ),
    ] = None,
    equal: Annotated[
        Literal["steps", "epochs", "time", "own"] | None,
        typer.Option(
            metavar="steps|epochs|time|own",
            help="Give every row the same number of gradient steps or epochs, the same time, or its own budget. Default: "
            "steps; with --table, as in that table.",
        ),
    ] = None,
    steps: Annotated[
        int | None,
        typer.Option(
            min=1, metavar="N", help="Gradient steps of every row. Default: as the experiments say."
        ),
    ] = None,
    backbone_from: Annotated[
        Path | None,
        typer.Option(
            metavar="EXPERIMENT.toml",
            help="Train this experiment first, once per split and seed; every row starts from its backbone.",
        ),
    ] = None,
    engine: Annotated[
        Literal["local", "ray"],
        typer.Option(metavar="local|ray", help="Run rows in processes here, or on a Ray cluster."),
    ] = "local",
    workers: Annotated[
        int,
        typer.Option(
            min=0, metavar="N", help="Rows to run in parallel, one thread each; 0 runs them in this process."
        ),
    ] = 2,
    quick: Annotated[
        bool,
        typer.Option(
            "--quick",
            help="Use fewer clips and half the epochs. Without experiments, compare three on Stage.",
        ),
    ] = False,
    against: Annotated[
        str | None,
        typer.Option(
            metavar="METHOD", help="Report differences to this method. Default: bce-aco-r, or the first."
        ),
    ] = None,
    judge_by: Annotated[
        list[str] | None,
        typer.Option(metavar="METHOD=SCORE", help="Compare a method by this novelty score. Repeatable."),
    ] = None,
    pictures: Annotated[
        bool, typer.Option("--pictures", help="Also draw the key frames on which methods disagree most.")
    ] = False,
    test_clips: Annotated[
        int | None,
        typer.Option(
            min=1, metavar="N", help="Clips in each test set of Stage. Default: the benchmark's 400."
        ),
    ] = None,
    resamples: Annotated[
        int,
        typer.Option(
            min=0, metavar="N", help="Bootstrap resamples for confidence intervals; 0 disables them."
        ),
    ] = 1000,
    dropout_passes: Annotated[
        int,
        typer.Option(
            min=0,
            metavar="N",
            help="Forward passes with dropout, for scores that need them; 0 disables those scores.",
        ),
    ] = 10,
    docs: Annotated[
        Path | None,
        typer.Option(metavar="PAGE.md", help="Also write the results page here, with its figures beside it."),
    ] = None,
) -> None:
    """Train and test experiments side by side, as the paper's tables do.

    Each row is one run: one experiment, split and seed. Finished rows are reused and interrupted ones continue. A row
    that fails is listed and does not stop the others; the exit code is then 2.
    """
    from mule.core.config import experiment_file

    named = [*(experiments or []), *([backbone_from] if backbone_from else [])]
    must_be = "an experiment in TOML that can be read, or the name of a packaged one such as stage"
    require_files(*map(experiment_file, named), what=must_be)
    from mule.comparison.compare import ComparisonPlan, quickened, run_comparison, write_comparison
    from mule.comparison.contestants import QUICK, load_contestants, load_start, scores_by_method
    from mule.comparison.equal import with_steps
    from mule.comparison.page import PageFacts
    from mule.comparison.paper_tables import contestants_of, paper_table
    from mule.inference.judging import Judging

    if quick and not experiments:
        experiments, systems = [QUICK[0]], systems or list(QUICK[1])
    # steps and budgets are counted on the first split; the split an experiment names may not exist
    settings = [*(settings or []), *(f"data.split={each}" for each in (splits or [])[:1])]
    chosen = (
        None if table is None else paper_table(table, systems or (), experiment=_only_experiment(experiments))
    )
    contestants = (
        load_contestants(experiments or [], settings, systems or [])
        if chosen is None
        else contestants_of(chosen, settings)
    )
    if quick:
        contestants = tuple(map(quickened, contestants))
    if steps is not None:
        contestants = with_steps(contestants, steps)
    plan = ComparisonPlan(
        contestants=contestants,
        out=out,
        seeds=tuple(range(first_seed, first_seed + seeds)),
        splits=tuple(splits or ()),
        equal=equal or ("steps" if chosen is None else chosen.equal),
        table=chosen,
        judging=Judging(dropout_passes=dropout_passes, resamples=resamples, test_clips=test_clips),
        engine=engine,
        num_workers=workers,
        against=against,
        judged_by=scores_by_method(judge_by or []),
        start=load_start(backbone_from, settings) if backbone_from else None,
    )
    started_at = time.perf_counter()
    done = run_comparison(plan, watch=_progress_of, noted=noted)
    for failure in done.failures:
        noted(f"{failure.name} failed: {failure.reason}")
    if done.findings is not None:
        facts = PageFacts(
            command=command_shown(),
            budget=done.budget,
            failures={failure.name: failure.reason for failure in done.failures},
            elapsed_s=time.perf_counter() - started_at,
            table=chosen,
        )
        files_written = write_comparison(done.findings, plan, facts, pictures=pictures, docs=docs)
        _print_findings(done.findings, files_written)
    if done.failures:
        noted(f"{len(done.failures)} of {len(done.rows)} rows failed; run the same command to try them again")
        raise typer.Exit(2)


def _only_experiment(experiments: Sequence[Path] | None) -> Path | None:
    if experiments and len(experiments) > 1:
        raise typer.BadParameter("goes with one experiment at most.", param_hint="--table")
    return experiments[0] if experiments else None


def _print_findings(findings: "Findings", files: Sequence[Path | str]) -> None:
    from mule.comparison.checks import with_control
    from mule.comparison.sheets import judged_comparison, networks_comparison, paper_comparison
    from mule.evaluation.tables import paper_sheet, score_sheet

    console, side = Console(), findings.tests[0]
    if findings.tells_apart(side):
        console.print(
            sheet_table(paper_sheet(paper_comparison(findings, side)), f"{side}, the paper's scores")
        )
        judged = with_control(judged_comparison(findings, side), findings, side)
        console.print(sheet_table(score_sheet(judged), f"{side}, one score per method"))
    else:
        sheet = paper_sheet(networks_comparison(findings, side))
        console.print(sheet_table(sheet, f"{side}, no novel actors"))
    for file in files:
        console.print(Text(str(file)), soft_wrap=True)


def _progress_of(rows: "Sequence[Row]", num_finished: int) -> "_ProgressPrinter":
    from mule.comparison.rows import progress_of

    if num_finished:
        noted(f"{num_finished} rows are finished already and stay as they are")
    return _ProgressPrinter([progress_of(row) for row in rows])


class _ProgressPrinter:
    """Read the folders of rows every few seconds; print which started and finished, and the time left."""

    def __init__(self, rows: "Sequence[RowProgress]") -> None:
        self._waiting: list[RowProgress] = list(rows)
        self._running: list[RowProgress] = []
        self._num_rows = len(rows)
        self._shares = {each.row.name: each.done_share() for each in rows}
        self._share_at_start = sum(self._shares.values())
        self._began_at, self._clock_s = time.time(), time.perf_counter()
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._look_around, daemon=True)

    def __enter__(self) -> "_ProgressPrinter":
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
        from mule.comparison.rows import results_of

        for each in [each for each in self._waiting if each.was_started_after(self._began_at)]:
            self._waiting.remove(each)
            self._running.append(each)
            noted(f"{each.row.name} started{self._time_left()}")
        for each in list(self._running):
            is_finished = results_of(each.row) is not None
            self._shares[each.row.name] = 1.0 if is_finished else each.done_share()
            if is_finished:
                self._running.remove(each)
                num_done = self._num_rows - len(self._waiting) - len(self._running)
                noted(f"{each.row.name} finished, {num_done} of {self._num_rows}{self._time_left()}")

    def _time_left(self) -> str:
        share = sum(self._shares.values()) - self._share_at_start
        still = self._num_rows - sum(self._shares.values())
        if share <= SHARE_BEFORE_ESTIMATE or still <= 0:
            return ""
        left_s = (time.perf_counter() - self._clock_s) * still / share
        return f"; about {left_s / 60:.0f} min left" if left_s >= 90 else f"; about {left_s:.0f} s left"
