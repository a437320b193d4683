"""`mule evaluate`: metrics of trained runs and of plain files. What computes is imported when a command runs, so help is quick."""

from enum import StrEnum
from pathlib import Path
from typing import Annotated, Literal

import typer

app = typer.Typer(
    help="Measure trained runs, and scores and detections in plain files.", no_args_is_help=True
)

JsonOption = Annotated[
    Path | None, typer.Option("--json", metavar="OUT", help="Write the result here as JSON.")
]
SidesOption = Annotated[
    list[str] | None,
    typer.Option(
        "--split",
        metavar="SIDE",
        help="val, test, or on Stage test-uniform, test-biased, test-counter; may come again. All, if none.",
    ),
]
ScoresOption = Annotated[
    list[str] | None,
    typer.Option("--score", metavar="NAME", help="A novelty score; may come again. All, if none."),
]
SettingsOption = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="KEY=VALUE", help="Where data now lies, such as data.root=DIR."),
]
TestClipsOption = Annotated[
    int | None, typer.Option(min=1, help="Clips of each test side of Stage; by default the benchmark's 400.")
]
ClipResamplesOption = Annotated[
    int, typer.Option(min=0, help="Draws of clips for the intervals; 0 leaves them out.")
]


class CharadesRule(StrEnum):
    """How Charades treats videos without labels."""

    OFFICIAL = "official"
    PLAIN = "plain"


@app.command("open-set")
def open_set(
    scores: Annotated[
        Path, typer.Argument(help="CSV with a header: novelty, is_novel (0/1/true/false), optional group.")
    ],
    json: JsonOption = None,
    resamples: Annotated[
        int, typer.Option(min=0, help="Bootstrap resamples; 0 leaves intervals out.")
    ] = 1000,
    seed: Annotated[int, typer.Option(min=0, help="Seed of the bootstrap.")] = 0,
) -> None:
    """AUROC, AUPR, FPR at 95 % TPR and detection error of a novelty score, with confidence intervals."""
    from mule.cli import show
    from mule.evaluation.open_set import evaluate_open_set_file, require_place, write_json

    require_place(json)
    result = evaluate_open_set_file(scores, resamples=resamples, seed=seed)
    write_json(result, json)
    show.open_set(result)


@app.command()
def ava(
    ground_truth: Annotated[
        Path, typer.Option(help="Ground truth, CSV: video,time,x1,y1,x2,y2,action[,person] or video,time.")
    ],
    detections: Annotated[Path, typer.Option(help="Detections, CSV: video,time,x1,y1,x2,y2,action[,score].")],
    label_map: Annotated[Path, typer.Option(help="Evaluated classes, .pbtxt.")],
    excluded: Annotated[Path | None, typer.Option(help="Frames to leave out, CSV: video,time.")] = None,
    keep_top: Annotated[
        int | None,
        typer.Option(min=1, help="Detections kept per frame: 50 in the official program, else all."),
    ] = None,
    json: JsonOption = None,
) -> None:
    """AVA frame-mAP at IoU 0.5, as the official program defines it."""
    from mule.cli import show
    from mule.evaluation.ava import evaluate_ava_files
    from mule.evaluation.open_set import require_place, write_json

    require_place(json)
    result = evaluate_ava_files(ground_truth, detections, label_map, excluded=excluded, keep_top=keep_top)
    write_json(result, json)
    show.mean_ap(result, title="AVA frame-mAP at IoU 0.5")


@app.command()
def charades(
    ground_truth: Annotated[Path, typer.Option(help="Charades CSV with the columns id and actions.")],
    scores: Annotated[Path, typer.Option(help="One line per video: id s0 s1 … separated by spaces or tabs.")],
    rule: Annotated[
        CharadesRule, typer.Option(help="How videos without labels count.")
    ] = CharadesRule.OFFICIAL,
    json: JsonOption = None,
) -> None:
    """Charades classification mAP, by the official rule or the plain one."""
    from mule.cli import show
    from mule.evaluation.charades import evaluate_charades_files
    from mule.evaluation.open_set import require_place, write_json

    require_place(json)
    result = evaluate_charades_files(ground_truth, scores, rule=rule.value)
    write_json(result, json)
    show.mean_ap(result, title=f"Charades mAP, {rule.value} rule")


@app.command()
def run(
    run_dir: Annotated[Path, typer.Argument(metavar="RUN_DIR", help="A finished run of `mule train`.")],
    splits: SidesOption = None,
    scores: ScoresOption = None,
    settings: SettingsOption = None,
    test_clips: TestClipsOption = None,
    resamples: ClipResamplesOption = 1000,
    dropout_passes: Annotated[
        int, typer.Option(min=0, help="Passes with dropout on, for the scores that need them.")
    ] = 10,
    by: Annotated[
        Literal["look", "track"],
        typer.Option(help="Judge every look at an actor, or all looks along its track together."),
    ] = "look",
    looks: Annotated[
        list[int] | None,
        typer.Option(
            min=1,
            metavar="N",
            help="With --by track: the first N looks of each alone; may come again, as 1, 2, 4, 8.",
        ),
    ] = None,
) -> None:
    """Closed-set mAP and every open-set measure of every novelty score of a trained run.

    What is computed is kept in the folder of the run and found again until weights or data change. By track, evidence of
    all looks at an actor is fused, and other scores see the mean of what they need.
    """
    from mule.cli import show_compare, show_looks
    from mule.inference.judging import Judging, judge_looks, judge_run
    from mule.inference.score_rules import SCORE_NAMES
    from mule.inference.sides import sides_under_test
    from mule.training.experiments import experiment_of

    experiment = experiment_of(run_dir, settings or [])
    judging = Judging(
        scores=tuple(scores or SCORE_NAMES),
        dropout_passes=dropout_passes,
        resamples=resamples,
        test_clips=test_clips,
        by=by,
    )
    if looks:
        if by == "look":
            raise typer.BadParameter("goes with --by track.", param_hint="--looks")
        for side in splits or sides_under_test(experiment):
            found = judge_looks(
                run_dir, experiment, side, looks=looks, judging=judging, noted=show_compare.noted
            )
            show_looks.looks_table(side, found)
        return
    results = judge_run(run_dir, experiment, sides=splits or (), judging=judging, noted=show_compare.noted)
    show_compare.side_results(results)
