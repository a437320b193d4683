"""`mule evaluate`: metrics of trained runs and of plain files. Heavy modules are imported when a command runs."""

from pathlib import Path
from typing import Annotated, Literal

import typer

from mule.cli.evaluate_run import evaluate_run
from mule.cli.evaluate_watch import evaluate_watched_folders
from mule.cli.printing import print_mean_ap, print_open_set

app = typer.Typer(
    help="Evaluate trained runs, watched videos, or scores and detections in files.", no_args_is_help=True
)

JsonOption = Annotated[
    Path | None, typer.Option("--json", metavar="FILE", help="Also write the result as JSON.")
]


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
            metavar="CSV",
            help="Ground truth: video, time, x1, y1, x2, y2, action; a frame without actions: video, time.",
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

    The computation follows the official evaluation program.
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
        Literal["official", "plain"],
        typer.Option(metavar="official|plain", help="Treatment of videos without labels."),
    ] = "official",
    json: JsonOption = None,
) -> None:
    """Compute Charades classification mAP.

    The official rule follows the published program; the plain rule counts videos without labels as negatives.
    """
    from mule.evaluation.charades import evaluate_charades_files
    from mule.evaluation.open_set import require_place, write_json

    require_place(json)
    result = evaluate_charades_files(ground_truth, scores, rule=rule)
    write_json(result, json)
    print_mean_ap(result, title=f"Charades mAP, {rule} rule")


app.command("run")(evaluate_run)
app.command("watch")(evaluate_watched_folders)
