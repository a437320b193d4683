"""`mule stage`: rendered scenes with exact ground truth. The renderer is imported when a command runs."""

from pathlib import Path
from typing import Annotated

import typer

from mule.cli.printing import CountBar

app = typer.Typer(help="Render scenes of several actors with exact ground truth.", no_args_is_help=True)


def _size(text: str) -> tuple[int, int]:
    rows, _, cols = text.partition("x")
    if not (rows.isdecimal() and cols.isdecimal()):
        raise typer.BadParameter(f"--size must be ROWSxCOLS, such as 96x128 or 720x1280; got '{text}'.")
    return int(rows), int(cols)


@app.command("render")
def render_videos(
    out: Annotated[Path, typer.Argument(metavar="OUT", help="Output folder; it must not exist yet.")],
    clips: Annotated[int, typer.Option(min=1, metavar="N", help="Number of videos.")] = 20,
    seed: Annotated[int, typer.Option(min=0, metavar="N", help="Random seed of the clips.")] = 0,
    split: Annotated[str, typer.Option(metavar="A|B|C", help="Class split: which actions are known.")] = "A",
    role: Annotated[
        str,
        typer.Option(metavar="train|val|test", help="Part of the benchmark; test shows novel actions too."),
    ] = "train",
    scenes: Annotated[
        str | None,
        typer.Option(
            metavar="uniform|biased|counter",
            help="How scenes go with actions. Default: biased for training, otherwise uniform.",
        ),
    ] = None,
    bias: Annotated[
        float,
        typer.Option(
            metavar="SHARE", help="Share of clips whose actors all do actions typical of the scene."
        ),
    ] = 0.95,
    size: Annotated[
        str, typer.Option(metavar="ROWSxCOLS", help="Frame size, such as 96x128 or 720x1280.")
    ] = "96x128",
    seconds: Annotated[
        float | None,
        typer.Option(
            metavar="SECONDS",
            help="Render longer takes in which actors enter, do one action after another, and leave.",
        ),
    ] = None,
    workers: Annotated[int, typer.Option(min=1, metavar="N", help="Rendering processes.")] = 2,
    lossless: Annotated[
        bool, typer.Option("--lossless", help="Keep every pixel exact; many players cannot show such videos.")
    ] = False,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace OUT if it exists.")] = False,
) -> None:
    """Render videos with boxes, labels, objects and tracks.

    Several actors each do several things. An interrupted command continues where it stopped; OUT appears when it is
    complete.
    """
    from mule.stage.benchmark import StageSet
    from mule.stage.export import Export, write_dataset

    wanted = StageSet(
        split=split, role=role, seed=seed, scenes=scenes, num_clips=clips, bias=float(bias), size=_size(size)
    )
    export = Export(wanted, seconds=seconds, lossless=lossless)
    with CountBar("rendering") as bar:
        write_dataset(export, out, workers=workers, overwrite=overwrite, on_progress=bar)
    typer.echo(f"{out}: {clips} videos, actors.csv, objects.csv, tracks.csv, stage.json")


@app.command()
def sheet(
    out: Annotated[Path, typer.Argument(metavar="OUT.png", help="Output picture.")],
    rows: Annotated[int, typer.Option(min=48, max=480, metavar="PX", help="Height of each frame.")] = 96,
    seed: Annotated[int, typer.Option(min=0, metavar="N", help="Random seed of the actors.")] = 0,
    scenes: Annotated[bool, typer.Option("--scenes", help="Show the scenes instead of the actions.")] = False,
) -> None:
    """Draw all 21 actions in one picture, one row each.

    Time runs from left to right.
    """
    from mule.stage.classes import ACTIONS, SCENE_KINDS
    from mule.stage.takes import action_sheet, scene_sheet, write_png

    write_png(out, scene_sheet(rows) if scenes else action_sheet(rows, seed=seed))
    names = SCENE_KINDS if scenes else tuple(ACTIONS)
    typer.echo(f"{out}: from top to bottom {', '.join(names)}")
