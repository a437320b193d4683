"""`mule evaluate`: metrics of trained runs and of plain files. Heavy modules are imported when a command runs."""

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from mule.cli.evaluate_run import (
    ClipResamplesOption,
    DataSettingsOption,
    SidesOption,
    TestClipsOption,
    evaluate_run,
    print_results,
)
from mule.cli.printing import noted, print_mean_ap, print_open_set

app = typer.Typer(help="Evaluate trained runs, or scores and detections in files.", no_args_is_help=True)

JsonOption = Annotated[
    Path | None, typer.Option("--json", metavar="FILE", help="Also write the result as JSON.")
]
ScoresOption = Annotated[
    list[str] | None,
    typer.Option("--score", metavar="NAME", help="Novelty score to compute. Repeatable. Default: all."),
]


class CharadesRule(StrEnum):
    """Treatment of Charades videos without labels."""

    OFFICIAL = "official"
    PLAIN = "plain"


@app.command("open-set")
def open_set(
    scores: Annotated[
        Path,
        typer.Argument(
            metavar="SCORES.csv",
            help="CSV with the columns novelty, is_novel (0, 1, true or false) and, optionally, group.",
        ),
    ],
    json: JsonOption = None,
    resamples: Annotated[
        int,
        typer.Option(
            min=0, metavar="N", help="Bootstrap resamples for confidence intervals; 0 disables them."
        ),
    ] = 1000,
    seed: Annotated[int, typer.Option(min=0, metavar="N", help="Seed of the bootstrap.")] = 0,
) -> None:
    """Measure how well a novelty score separates novel from known.

    Reports AUROC, AUPR, FPR at 95 % TPR and detection error, with confidence intervals.
    """
    from mule.evaluation.open_set import evaluate_open_set_file, require_place, write_json

    require_place(json)
    result = evaluate_open_set_file(scores, resamples=resamples, seed=seed)
    write_json(result, json)
    print_open_set(result)


@app.command()
def ava(
    ground_truth: Annotated[
        Path,
        typer.Option(
            metavar="CSV", help="Ground truth: video, time, x1, y1, x2, y2, action; or video, time."
        ),
    ],
    detections: Annotated[
        Path, typer.Option(metavar="CSV", help="Detections: video, time, x1, y1, x2, y2, action, score.")
    ],
    label_map: Annotated[Path, typer.Option(metavar="PBTXT", help="Classes to evaluate.")],
    excluded: Annotated[
        Path | None, typer.Option(metavar="CSV", help="Frames to leave out: video, time.")
    ] = None,
    keep_top: Annotated[
        int | None,
        typer.Option(
            min=1,
            metavar="N",
            help="Detections to keep per frame; the official program keeps 50. Default: all.",
        ),
    ] = None,
    json: JsonOption = None,
) -> None:
    """Compute AVA frame-mAP at IoU 0.5.

    The definition is that of the official evaluation program.
    """
    from mule.evaluation.ava import evaluate_ava_files
    from mule.evaluation.open_set import require_place, write_json

    require_place(json)
    result = evaluate_ava_files(ground_truth, detections, label_map, excluded=excluded, keep_top=keep_top)
    write_json(result, json)
    print_mean_ap(result, title="AVA frame-mAP at IoU 0.5")


@app.command()
def charades(
    ground_truth: Annotated[
        Path, typer.Option(metavar="CSV", help="Charades file with the columns id and actions.")
    ],
    scores: Annotated[
        Path,
        typer.Option(
            metavar="TXT", help="One line per video: its id and one score per class, space-separated."
        ),
    ],
    rule: Annotated[
        CharadesRule,
        typer.Option(metavar="official|plain", help="Treatment of videos without labels."),
    ] = CharadesRule.OFFICIAL,
    json: JsonOption = None,
) -> None:
    """Compute Charades classification mAP.

    The official rule is that of the published program; the plain one counts videos without labels as negatives.
    """
    from mule.evaluation.charades import evaluate_charades_files
    from mule.evaluation.open_set import require_place, write_json

    require_place(json)
    result = evaluate_charades_files(ground_truth, scores, rule=rule.value)
    write_json(result, json)
    print_mean_ap(result, title=f"Charades mAP, {rule.value} rule")


app.command("run")(evaluate_run)


@app.command()
def ensemble(
    run_dirs: Annotated[
        list[Path],
        typer.Argument(metavar="RUN_DIR...", help="Finished runs on the same data, of other seeds."),
    ],
    splits: SidesOption = None,
    scores: ScoresOption = None,
    settings: DataSettingsOption = None,
    test_clips: TestClipsOption = None,
    resamples: ClipResamplesOption = 1000,
) -> None:
    """Several runs judged as one network: the mean of their logits, their features side by side.

    Train them with other seeds on the same data: `mule train … --set seed=1`, data.seed as it is.
    """
    from mule.comparison.ensembles import judge_ensemble
    from mule.inference.judging import Judging
    from mule.inference.score_rules import SCORE_NAMES
    from mule.training.experiments import experiment_of

    runs = {each: experiment_of(each, settings or []) for each in run_dirs}
    judging = Judging(
        scores=tuple(scores or SCORE_NAMES), dropout_passes=0, resamples=resamples, test_clips=test_clips
    )
    results = judge_ensemble(runs, sides=splits or (), judging=judging, noted=noted)
    print_results(results)


@app.command()
def agreement(
    first: Annotated[Path, typer.Argument(help="OUT/outcomes-SIDE.csv of a comparison.")],
    second: Annotated[Path, typer.Argument(help="The same of another, on other data.")],
    names: Annotated[
        tuple[str, str], typer.Option("--names", metavar="FIRST SECOND", help="What to call the two.")
    ] = ("first", "second"),
    docs: Annotated[Path | None, typer.Option(help="Write the tables here as Markdown.")] = None,
) -> None:
    """Which novelty scores do well on two data sets, and which on one alone."""
    from mule.cli import show_agreement

    show_agreement.agreement(first, second, names, docs)


@app.command()
def overview(
    pages: Annotated[
        list[Path],
        typer.Argument(
            metavar="PAGE.md...", help="Pages that `mule compare --docs` wrote, of different data."
        ),
    ],
    names: Annotated[
        list[str] | None,
        typer.Option("--name", metavar="NAME", help="What to call each page, in their order."),
    ] = None,
    docs: Annotated[Path | None, typer.Option(help="Write the page here as Markdown.")] = None,
) -> None:
    """Comparisons on several data sets on one page: what each found, and on what they agree."""
    from mule.cli import show_overview

    show_overview.show_overview(pages, names or [], docs)


@app.command()
def far(
    run_dirs: Annotated[
        list[Path],
        typer.Argument(metavar="RUN_DIR...", help="Finished runs, such as those of several class splits."),
    ],
    actors: Annotated[
        list[Path],
        typer.Option(help="A table of actors in other videos; may come again, each with its --videos."),
    ],
    videos: Annotated[list[Path], typer.Option(help="The folder of these videos; as often as --actors.")],
    scores: ScoresOption = None,
    settings: DataSettingsOption = None,
    resamples: ClipResamplesOption = 1000,
    docs: Annotated[Path | None, typer.Option(help="Write means over the runs here as Markdown.")] = None,
) -> None:
    """Far novelty: known actors of a run's test side against the actors of other videos.

    Those who do an action of a known name are left out; names that only resemble a known one are said. Other videos differ in
    more than actions, so this is easier than novel actions on the test side itself, which stands beside it. Of several
    runs the mean is shown.
    """
    from mule.cli import show_elsewhere
    from mule.inference.judging import Judging
    from mule.inference.score_rules import SCORE_NAMES

    if len(actors) != len(videos):
        raise typer.BadParameter(
            f"must come as often as --actors; got {len(videos)} and {len(actors)}.", param_hint="--videos"
        )
    if len({each.stem for each in actors}) != len(actors):
        names = ", ".join(each.name for each in actors)
        raise typer.BadParameter(
            f"columns are called as the tables, so no two may have one name; got {names}.",
            param_hint="--actors",
        )
    show_elsewhere.far(
        run_dirs,
        [show_elsewhere.Videos(*each) for each in zip(actors, videos, strict=True)],
        settings=settings or [],
        judging=Judging(scores=tuple(scores or SCORE_NAMES), dropout_passes=0, resamples=resamples),
        docs=docs,
    )


@app.command()
def looks(
    run_dirs: Annotated[list[Path], typer.Argument(metavar="RUN_DIR...", help="Finished runs.")],
    actors: Annotated[
        Path, typer.Option(help="A table of actors with actor_id, in takes longer than one look.")
    ],
    videos: Annotated[Path, typer.Option(help="The folder of these videos.")],
    held_out: Annotated[
        Path, typer.Option(help="Such a table of other takes; its known actors set thresholds.")
    ],
    held_out_videos: Annotated[Path, typer.Option(help="The folder of those videos.")],
    numbers: Annotated[
        list[int] | None,
        typer.Option(
            "--looks",
            min=1,
            metavar="N",
            help="The first N looks of each track; may come again. [1, 2, 4, 8]",
        ),
    ] = None,
    scores: ScoresOption = None,
    settings: DataSettingsOption = None,
    resamples: ClipResamplesOption = 1000,
    docs: Annotated[Path | None, typer.Option(help="Write means over the runs here as Markdown.")] = None,
) -> None:
    """What more looks at each actor are worth, in takes that are no part of a run's data.

    Whoever does an action that the run was not taught is novel. `mule stage render --seconds 10 --role test` makes such takes.
    """
    from mule.cli import show_elsewhere
    from mule.comparison.looks import NUMBERS_OF_LOOKS
    from mule.inference.judging import Judging
    from mule.inference.score_rules import SCORE_NAMES

    show_elsewhere.looks(
        run_dirs,
        show_elsewhere.Videos(actors, videos),
        show_elsewhere.Videos(held_out, held_out_videos),
        looks=numbers or NUMBERS_OF_LOOKS,
        settings=settings or [],
        judging=Judging(scores=tuple(scores or SCORE_NAMES), dropout_passes=0, resamples=resamples),
        docs=docs,
    )
