"""`mule stage`: rendered scenes with exact ground truth. What draws them is imported when a command runs."""

from pathlib import Path
from typing import Annotated

import typer

app = typer.Typer(help="Render scenes of several actors, with exact ground truth.", no_args_is_help=True)


@app.callback()
def stage() -> None:
    """Render scenes of several actors, with exact ground truth."""


def _size(text: str) -> tuple[int, int]:
    rows, _, cols = text.partition("x")
    if not (rows.isdecimal() and cols.isdecimal()):
        raise typer.BadParameter(f"--size must be ROWSxCOLS, such as 96x128 or 720x1280; got '{text}'.")
    return int(rows), int(cols)


@app.command()
def render(
    out: Annotated[Path, typer.Argument(metavar="OUT", help="The folder to write; it must not exist yet.")],
    clips: Annotated[int, typer.Option(min=1, help="How many videos.")] = 20,
    seed: Annotated[int, typer.Option(min=0, help="Other seeds, other clips.")] = 0,
    split: Annotated[str, typer.Option(metavar="A|B|C", help="Which actions are known.")] = "A",
    role: Annotated[str, typer.Option(metavar="train|val|test", help="Whose actions are shown.")] = "train",
    scenes: Annotated[
        str | None,
        typer.Option(
            metavar="uniform|biased|counter",
            help="How scenes go with actions; by default biased for training, else uniform.",
        ),
    ] = None,
    bias: Annotated[
        float, typer.Option(help="Share of clips whose actors all do what is at home in one scene.")
    ] = 0.95,
    size: Annotated[
        str, typer.Option(metavar="ROWSxCOLS", help="Of the pictures, such as 96x128 or 720x1280.")
    ] = "96x128",
    seconds: Annotated[
        float | None,
        typer.Option(help="Longer takes, in which actors come, do one thing after another, and go."),
    ] = None,
    workers: Annotated[int, typer.Option(min=1, help="Processes that render.")] = 2,
    lossless: Annotated[
        bool, typer.Option("--lossless", help="Every pixel exact; many players cannot show it.")
    ] = False,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace OUT if it is there.")] = False,
) -> None:
    """Videos of several actors who each do several things, with boxes, labels, objects and tracks.

    A run that was stopped goes on where it was. OUT appears when everything is in it.
    """
    from rich.progress import Progress

    from mule.stage.benchmark import StageSet
    from mule.stage.export import Export, write_dataset

    wanted = StageSet(
        split=split, role=role, seed=seed, scenes=scenes, num_clips=clips, bias=float(bias), size=_size(size)
    )
    with Progress(transient=True) as bar:
        task = bar.add_task("rendering", total=clips)
        write_dataset(
            Export(wanted, seconds=seconds, lossless=lossless),
            out,
            workers=workers,
            overwrite=overwrite,
            on_progress=lambda done, _: bar.update(task, completed=done),
        )
    typer.echo(f"{out}: {clips} videos, actors.csv, objects.csv, tracks.csv, stage.json")


@app.command()
def sheet(
    out: Annotated[Path, typer.Argument(metavar="OUT.png", help="The picture to write.")],
    rows: Annotated[int, typer.Option(min=48, max=480, help="Of each frame.")] = 96,
    seed: Annotated[int, typer.Option(min=0, help="Other seeds, other actors.")] = 0,
    scenes: Annotated[bool, typer.Option("--scenes", help="The scenes instead of the actions.")] = False,
) -> None:
    """All 21 actions in one picture: a row for each, time runs to the right."""
    from mule.stage.classes import ACTIONS, SCENE_KINDS
    from mule.stage.takes import action_sheet, scene_sheet, write_png

    write_png(out, scene_sheet(rows) if scenes else action_sheet(rows, seed=seed))
    names = SCENE_KINDS if scenes else tuple(ACTIONS)
    typer.echo(f"{out}: from top to bottom {', '.join(names)}")
