"""`mule decide`: decide again what was watched, without the video. Torch is imported when the command runs."""

from pathlib import Path
from typing import Annotated

import typer

from mule.cli.watch import fetch_missing


def decide(
    watched: Annotated[
        list[Path],
        typer.Argument(
            metavar="WATCHED…", help="Folders that `mule watch` left, or folders of such folders."
        ),
    ],
    model: Annotated[
        Path,
        typer.Option(
            metavar="DIR",
            help="The model that watched, as it is now: taught, calibrated, with actions forgotten.",
        ),
    ] = Path("people"),
    threshold: Annotated[
        str | None,
        typer.Option(metavar="known-95|SHARE", help="As for `mule watch`. Default: that of the folder."),
    ] = None,
    probability: Annotated[
        float | None,
        typer.Option(
            min=0.0,
            max=1.0,
            metavar="P",
            help="Report a known action when its probability is at least this. Default: that of the folder.",
        ),
    ] = None,
    looks: Annotated[
        int, typer.Option(min=1, metavar="N", help="Use at most this many recent looks per person.")
    ] = 8,
    offline: Annotated[
        bool,
        typer.Option("--offline", envvar="MULE_OFFLINE", help="Fetch no weights; stop if some are missing."),
    ] = False,
) -> None:
    """Decide again what was watched, in seconds and without the video.

    After `mule teach`, `mule memory forget`, with another threshold or a
    better calibration: moments.jsonl, summary.txt, ava.csv and exports are
    replaced by what `mule watch` would write with the model as it is now.
    report.html and annotated.mp4 still show the earlier decisions.
    """
    from mule.watching.measuring import moments_below

    folders = [path.parent for path in moments_below(watched)]
    fetch_missing(model, None, offline=offline)
    from mule.watching.deciding import DecideSettings, decide_again
    from mule.watching.engine.bundle import read_bundle

    bundle = read_bundle(model)
    settings = DecideSettings(threshold=threshold, min_probability=probability, most_looks=looks)
    for folder in folders:
        summary = decide_again(folder, bundle, settings)
        typer.echo(
            f"{folder}: {summary.num_moments} key times decided again; {len(summary.actors)} actors, {summary.num_novel} novel "
            "at some time"
        )
