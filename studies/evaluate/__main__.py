"""`python -m studies.evaluate`: far novelty, more looks, ensembles, agreement between data sets."""

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated

import typer

from mule.evaluation.formats import escaped_markdown, markdown
from mule.evaluation.tables import Sheet
from mule.inference.judging import Judging
from mule.inference.score_rules import SCORE_NAMES
from studies.commands import (
    Docs,
    Resamples,
    Scores,
    Settings,
    experiment_of,
    looks_in_words,
    looks_table,
    noted,
    outputs_in_table,
    print_results,
    print_sheet,
    run,
    write_page,
)
from studies.evaluate.agreement import agreement_sheets, agreements, read_aurocs
from studies.evaluate.ensembles import judge_ensemble
from studies.evaluate.far import judge_far
from studies.evaluate.run_means import mean_sheets
from studies.evaluate.takes import NUMBERS_OF_LOOKS, Takes, judge_takes

MODULE = "studies.evaluate"
NEAR_AND_FAR = (
    "Near novelty (the first column): actions that were never taught, in videos of the same kind as the "
    "training videos. Far novelty: the known actors of the test side against everybody in other videos who "
    "does no action with a known name. Other videos also differ in camera, light and the size of people, so "
    "a score can do well there without knowing anything about actions. Near novelty is what counts."
)
LOOKS = (
    "The same tracks, judged by their first look, the first two, four and eight. A track lasts while one "
    "actor keeps doing the same actions; a track with fewer looks uses all it has. Evidence is fused along "
    "a track; rivals use the mean output and feature. The runs were trained on single looks; thresholds and "
    "p-values come from held-out tracks of as many looks."
)
AGREEMENT = (
    "Every network that was judged on both data sets, by every score that was. AUROC is the mean over "
    "trials, in percent; the best on each data set is bold. Do not rely on what holds on one data set "
    "alone."
)

app = typer.Typer(
    help="Evaluate trained runs in ways that only the studies use.",
    no_args_is_help=True,
    add_completion=False,
)


@app.command()
def ensemble(
    run_dirs: Annotated[
        list[Path],
        typer.Argument(metavar="RUN_DIR...", help="Finished runs on the same data, with other seeds."),
    ],
    splits: Annotated[
        list[str] | None,
        typer.Option("--split", metavar="SIDE", help="val, test, …. Repeatable; default: all."),
    ] = None,
    scores: Scores = None,
    settings: Settings = None,
    test_clips: Annotated[
        int | None, typer.Option(min=1, help="Clips per test side of Stage; default: 400.")
    ] = None,
    resamples: Resamples = 1000,
) -> None:
    """Judge several runs as one network: the mean of their logits, their features side by side.

    Train the runs on the same data with different seeds: `mule train …
    --set seed=1`, with the same data.seed.
    """
    runs = {each: experiment_of(each, settings or []) for each in run_dirs}
    judging = Judging(
        scores=tuple(scores or SCORE_NAMES), dropout_passes=0, resamples=resamples, test_clips=test_clips
    )
    print_results(judge_ensemble(runs, sides=splits or (), judging=judging, noted=noted))


@app.command()
def agreement(
    first: Annotated[Path, typer.Argument(help="OUT/outcomes-SIDE.csv of a comparison.")],
    second: Annotated[Path, typer.Argument(help="The same file of a comparison on other data.")],
    names: Annotated[
        tuple[str, str], typer.Option("--names", metavar="FIRST SECOND", help="Names of the two data sets.")
    ] = ("first", "second"),
    docs: Docs = None,
) -> None:
    """Show which novelty scores do well on two data sets, and which on one alone."""
    sheets = agreement_sheets(agreements(read_aurocs(first), read_aurocs(second)), names)
    for network, sheet in sheets.items():
        print_sheet(sheet, network)
    if docs is not None:
        title = f"{escaped_markdown(names[0])} and {escaped_markdown(names[1])}: do novelty scores agree?"
        write_page(docs, title, AGREEMENT, _sections(sheets), module=MODULE)


@app.command()
def far(
    run_dirs: Annotated[
        list[Path],
        typer.Argument(metavar="RUN_DIR...", help="Finished runs, such as those of several class splits."),
    ],
    actors: Annotated[
        list[Path],
        typer.Option(help="A table of actors in other videos. Repeatable, each with its --videos."),
    ],
    videos: Annotated[list[Path], typer.Option(help="The folder of these videos, one per --actors.")],
    scores: Scores = None,
    settings: Settings = None,
    resamples: Resamples = 1000,
    docs: Docs = None,
) -> None:
    """Judge far novelty: the known actors of a test side against the actors of other videos.

    Actors who do an action with a known name are left out; names that only
    resemble a known one are reported. Other videos differ in more than
    actions, so far novelty is easier than the novel actions of the test
    side, which are shown beside it. Several runs are averaged.
    """
    if len(actors) != len(videos):
        raise typer.BadParameter(
            f"must be given once per --actors; got {len(videos)} for {len(actors)} tables.",
            param_hint="--videos",
        )
    if len({each.stem for each in actors}) != len(actors):
        raise typer.BadParameter(
            "tables name the columns, so their names must differ; got "
            f"{', '.join(each.name for each in actors)}.",
            param_hint="--actors",
        )
    judging = Judging(scores=tuple(scores or SCORE_NAMES), dropout_passes=0, resamples=resamples)
    results = []
    for run_dir in run_dirs:
        others = {
            table.stem: outputs_in_table(run_dir, table, folder, settings=settings or [])
            for table, folder in zip(actors, videos, strict=True)
        }
        experiment = experiment_of(run_dir, settings or [])
        results.append(judge_far(run_dir, experiment, others, judging=judging, noted=noted))
    if len(results) == 1:
        print_results(results[0])
    sheets = mean_sheets(results)
    _show_means(sheets, num_runs=len(results))
    if docs is not None:
        write_page(docs, "Near and far novelty", NEAR_AND_FAR, _sections(sheets), module=MODULE)


@app.command()
def looks(
    run_dirs: Annotated[list[Path], typer.Argument(metavar="RUN_DIR...", help="Finished runs.")],
    actors: Annotated[
        Path, typer.Option(help="A table of actors with actor_id, in takes longer than one look.")
    ],
    videos: Annotated[Path, typer.Option(help="The folder of these videos.")],
    held_out: Annotated[Path, typer.Option(help="A table of other takes; its known actors set thresholds.")],
    held_out_videos: Annotated[Path, typer.Option(help="The folder of those videos.")],
    numbers: Annotated[
        list[int] | None,
        typer.Option(
            "--looks",
            min=1,
            metavar="N",
            help="Use the first N looks per track. Repeatable; default: 1, 2, 4, 8.",
        ),
    ] = None,
    scores: Scores = None,
    settings: Settings = None,
    resamples: Resamples = 1000,
    docs: Docs = None,
) -> None:
    """Measure what more looks at each actor are worth, in takes outside the data of a run.

    An actor who does an action that the run was not taught is novel. `mule
    stage render --seconds 10 --role test` makes such takes.
    """
    judging = Judging(scores=tuple(scores or SCORE_NAMES), dropout_passes=0, resamples=resamples)
    results = []
    for run_dir in run_dirs:
        test, others = (
            outputs_in_table(run_dir, table, folder, settings=settings or [])
            for table, folder in ((actors, videos), (held_out, held_out_videos))
        )
        experiment = experiment_of(run_dir, settings or [])
        results.append(
            judge_takes(
                run_dir,
                experiment,
                Takes(test, others),
                looks=numbers or NUMBERS_OF_LOOKS,
                judging=judging,
                noted=noted,
            )
        )
    if len(results) == 1:
        looks_table("takes", results[0])
    titled = [{looks_in_words(number): result for number, result in each.items()} for each in results]
    sheets = mean_sheets(titled)
    _show_means(sheets, num_runs=len(results))
    if docs is not None:
        write_page(docs, "More looks", LOOKS, _sections(sheets), module=MODULE)


def _show_means(sheets: Mapping[str, Sheet], *, num_runs: int) -> None:
    """Print means over runs; one run has been shown already."""
    if num_runs > 1:
        for system, sheet in sheets.items():
            print_sheet(sheet, system)


def _sections(sheets: Mapping[str, Sheet]) -> dict[str, str]:
    return {
        escaped_markdown(name) if name else "All networks": markdown(sheet) for name, sheet in sheets.items()
    }


if __name__ == "__main__":
    run(app, MODULE)
