"""`mule data`: tables of actors, checked and counted. What computes is imported when a command runs."""

from fractions import Fraction
from pathlib import Path
from typing import Annotated

import typer

from mule.cli.numbers import positive

app = typer.Typer(help="Check, count, convert and split data sets.", no_args_is_help=True)


Table = Annotated[Path, typer.Argument(metavar="TABLE", help="Actors, .csv or .parquet.")]
ImageRate = Annotated[
    Fraction, typer.Option(parser=positive, metavar="FPS", help="Frames per second of folders of frames.")
]


@app.command()
def check(
    table: Table,
    objects: Annotated[
        Path | None, typer.Option(metavar="OBJECTS", help="Objects of the same videos, .csv or .parquet.")
    ] = None,
    videos: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="Where the videos lie: each is looked for, and opened."),
    ] = None,
    leave_out_missing: Annotated[
        Path | None,
        typer.Option(
            metavar="KEPT.csv", help="Write the rows of all other videos here, and say how many are left out."
        ),
    ] = None,
    image_rate: ImageRate = Fraction(30),
    shows_all: Annotated[bool, typer.Option("--all", help="Show every problem, however many.")] = False,
) -> None:
    """Every problem of a table, one per line: file, line, and what must hold.

    With videos, also every one that is missing or cannot be read, and every time beyond an end. The exit code is 2 if
    there is any problem. Missing videos, and those that cannot be read, are none if they are left out.
    """
    from mule.cli import show_data

    if leave_out_missing is not None and videos is None:
        raise typer.BadParameter(
            "missing videos are known only with --videos.", param_hint="--leave-out-missing"
        )
    checked = show_data.check(
        table,
        objects=objects,
        videos=videos,
        image_rate=image_rate,
        shows_all=shows_all,
        kept=leave_out_missing,
    )
    if not checked:
        raise typer.Exit(2)


@app.command()
def stats(
    table: Table,
    out: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="Write stats.json, classes.csv, pairs.csv and stats.png here."),
    ] = None,
    pairs: Annotated[int, typer.Option(min=0, help="How many pairs of classes to show.")] = 10,
) -> None:
    """How often each class comes, how many labels an actor has, who shares a clip, what comes together."""
    from mule.cli import show_data
    from mule.data.table.reading import read_actor_table
    from mule.data.table.stats import table_stats, write_stats

    counted = table_stats(read_actor_table(table))
    show_data.stats(counted, title=table.name, num_pairs=pairs)
    if out is not None:
        from mule.data.table.stats import draw_stats

        written = write_stats(counted, out)
        draw_stats(counted, out / "stats.png", title=table.name)
        typer.echo(f"wrote {', '.join(path.name for path in written)} and stats.png to {out}")


@app.command()
def detect(
    table: Table,
    videos: Annotated[Path, typer.Option(metavar="DIR", help="Where the videos lie.")],
    detector: Annotated[Path, typer.Option(metavar="FILE.onnx", help="A YOLOX detector.")],
    out: Annotated[Path, typer.Option(metavar="ACTORS.csv", help="The table with boxes, .csv or .parquet.")],
    score: Annotated[
        float | None,
        typer.Option(
            min=0, max=1, help="From which a person is an actor; by default as the detector's card says."
        ),
    ] = None,
) -> None:
    """Persons in the clips of a table that speaks of whole frames; each has the labels of its clip.

    Nobody said who does what: train on the table with data.labels_of = "clips". A clip in which nobody is found keeps its
    row, so the whole frame acts in it.
    """
    from mule.cli import show_data
    from mule.data.table.reading import read_actor_table
    from mule.data.table.table import require_table_suffix
    from mule.data.table.writing import write_actor_table

    require_table_suffix(out)
    if detector.suffix.lower() != ".onnx":
        raise typer.BadParameter(f"must be a YOLOX file (.onnx); got '{detector}'.", param_hint="--detector")
    found = show_data.detect(read_actor_table(table), videos, detector, actor_score=score)
    write_actor_table(found.actors, out)
    typer.echo(f"wrote {len(found.actors)} rows to {out}")
