"""`mule compare`: experiments side by side, in the paper's tables. Torch is imported when the command runs."""

from pathlib import Path
from typing import Annotated, Literal

import typer

QUICK = ("stage_mule", "stage_mule_literal", "stage_bce")


def compare(
    experiments: Annotated[
        list[Path] | None, typer.Argument(metavar="EXPERIMENT.toml...", help="What to compare.")
    ] = None,
    seeds: Annotated[
        int, typer.Option(min=1, help="Trials of each: seeds 0, 1, …; on Stage each draws new data.")
    ] = 1,
    first_seed: Annotated[int, typer.Option(min=0, help="The first of the seeds.")] = 0,
    splits: Annotated[
        list[str] | None,
        typer.Option(
            "--split", metavar="SPLIT", help="Which actions are known (data.split); may come again."
        ),
    ] = None,
    systems: Annotated[
        list[str] | None,
        typer.Option(
            "--system", metavar="NAME", help="Each experiment with this system instead; may come again."
        ),
    ] = None,
    settings: Annotated[
        list[str] | None,
        typer.Option(
            "--set", metavar="KEY=VALUE", help="Replace a setting in every experiment; may come again."
        ),
    ] = None,
    out: Annotated[Path, typer.Option(metavar="DIR", help="Where rows, tables and figures go.")] = Path(
        "runs/compare"
    ),
    equal: Annotated[
        Literal["steps", "time"], typer.Option(help="What every row may spend: gradient steps, or time.")
    ] = "steps",
    steps: Annotated[
        int | None,
        typer.Option(min=1, help="Gradient steps of every row, in place of what the experiments say."),
    ] = None,
    backbone_from: Annotated[
        Path | None,
        typer.Option(
            metavar="EXPERIMENT.toml",
            help="Train this first, once per split and seed; every row begins with its backbone.",
        ),
    ] = None,
    engine: Annotated[
        Literal["local", "ray"], typer.Option(help="Who runs the rows: processes here, or a Ray cluster.")
    ] = "local",
    workers: Annotated[
        int, typer.Option(min=0, help="Rows at a time, one thread each; 0 is in this process.")
    ] = 2,
    quick: Annotated[
        bool,
        typer.Option(
            "--quick", help="Fewer clips and half the epochs; without experiments, three rows on Stage."
        ),
    ] = False,
    against: Annotated[
        str | None,
        typer.Option(metavar="METHOD", help="Whom to subtract; by default bce-aco-r, or the first."),
    ] = None,
    judge_by: Annotated[
        list[str] | None,
        typer.Option(metavar="METHOD=SCORE", help="The score a method is compared by; may come again."),
    ] = None,
    pictures: Annotated[
        bool, typer.Option("--pictures", help="Also draw the key frames that methods dispute most.")
    ] = False,
    test_clips: Annotated[
        int | None,
        typer.Option(min=1, help="Clips of each test side of Stage; by default the benchmark's 400."),
    ] = None,
    resamples: Annotated[
        int, typer.Option(min=0, help="Draws of clips for intervals; 0 leaves them out.")
    ] = 1000,
    dropout_passes: Annotated[
        int,
        typer.Option(min=0, help="Passes with dropout on, for the scores that need them; 0 leaves them out."),
    ] = 10,
    docs: Annotated[
        Path | None, typer.Option(metavar="PAGE.md", help="Also write the page here, its pictures beside it.")
    ] = None,
) -> None:
    """Train and judge every experiment with every seed, and write the paper's tables and figures.

    Each row is a run of its own: finished ones are not computed again, unfinished ones go on. A row that fails is listed
    and does not stop the others; the exit code is then 2.
    """
    from mule.cli import show_compare
    from mule.comparison.compare import ComparisonPlan, quickened
    from mule.comparison.equal import with_steps
    from mule.inference.judging import Judging

    files = show_compare.quick_files(QUICK) if quick and not experiments else experiments or []
    # steps and budgets are counted on the first split; the experiments' own may not be there
    settings = [*(settings or []), *(f"data.split={each}" for each in (splits or [])[:1])]
    contestants = show_compare.contestants(files, settings, systems or [])
    if quick:
        contestants = tuple(map(quickened, contestants))
    if steps is not None:
        contestants = with_steps(contestants, steps)
    start = show_compare.start_of(backbone_from, settings) if backbone_from else None
    asked = ComparisonPlan(
        contestants=contestants,
        out=out,
        seeds=tuple(range(first_seed, first_seed + seeds)),
        splits=tuple(splits or ()),
        equal=equal,
        judging=Judging(dropout_passes=dropout_passes, resamples=resamples, test_clips=test_clips),
        engine=engine,
        num_workers=workers,
        against=against,
        judged_by=show_compare.judged_by(judge_by or []),
        start=start,
    )
    if show_compare.compare(asked, pictures=pictures, docs=docs):
        raise typer.Exit(2)
