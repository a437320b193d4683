"""`mule data`: tables of actors, checked, counted and composed. What computes is imported when a command runs."""

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
def compose(
    table: Table,
    tiles: Annotated[int, typer.Option(min=2, max=3, metavar="2|3", help="Clips side by side.")],
    videos: Annotated[Path, typer.Option(metavar="DIR", help="Where the videos lie.")],
    out: Annotated[
        Path,
        typer.Option(
            metavar="DIR",
            help="For videos/, labels.csv, sources.csv and, with --split, split.toml; new or empty.",
        ),
    ],
    clips: Annotated[
        int | None, typer.Option(min=1, metavar="N", help="Composites; by default as many as there can be.")
    ] = None,
    seed: Annotated[int, typer.Option(min=0, help="Which clips stand side by side.")] = 0,
    uses: Annotated[int, typer.Option(min=1, help="Composites that a clip may be part of.")] = 1,
    only: Annotated[
        Path | None,
        typer.Option(metavar="VIDEOS.txt", help="Use these videos alone, one per line: a side of a split."),
    ] = None,
    split: Annotated[
        Path | None,
        typer.Option(
            metavar="SPLIT.toml",
            help="Tiles of one composite are of one side of it; of the actors it uses, and of different groups of its own.",
        ),
    ] = None,
    groups: Annotated[
        str | None,
        typer.Option(
            metavar="VIDEOS.csv:COLUMN",
            help="Tiles come from different groups (films, scenes); the file has a column `video`.",
        ),
    ] = None,
    seconds: Annotated[
        float | None, typer.Option(min=0.5, help="Longest composite; by default as long as its tiles go.")
    ] = None,
    image_rate: ImageRate = Fraction(30),
) -> None:
    """Clips of one actor side by side: scenes of several actors in real pixels, each with labels of its own.

    Tiles have the height of the lowest and are shown so that their key times fall together, at the frame rate of the
    first, for as long as every tile goes. Two tiles are never of one video. The same seed gives the same composites.
    """
    from mule.cli import show_data
    from mule.core.text_rows import read_names
    from mule.data.convert.compose_split import Drawing
    from mule.data.split.splits import read_split
    from mule.data.table.reading import read_actor_table

    if split is not None and (only is not None or clips is not None):
        raise typer.BadParameter(
            "uses all actors of every side; it does not go with --only or --clips.", param_hint="--split"
        )
    actors, sides = read_actor_table(table), None if split is None else read_split(split)
    sources = show_data.sources(
        actors,
        videos,
        only=None if only is None else read_names(only, of="videos"),
        group_of=_groups(groups) if groups is not None else (sides and dict(sides.groups)) or None,
        max_length_s=seconds,
        image_rate=image_rate,
    )
    if sides is not None:
        drawing = Drawing(num_tiles=tiles, seed=seed, max_uses=uses)
        if not show_data.compose_in_sides(actors, sources, out, split=sides, drawing=drawing):
            raise typer.Exit(2)
        return
    if not show_data.compose(
        actors, sources, out, num_tiles=tiles, seed=seed, num_composites=clips, max_uses=uses
    ):
        raise typer.Exit(2)


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


def _groups(place: str) -> dict[str, str]:
    from mule.core.text_rows import read_pairs

    file, mark, column = place.rpartition(":")
    if not (file and mark and column):
        raise typer.BadParameter(
            f"must be a file and a column, VIDEOS.csv:COLUMN; got '{place}'.", param_hint="--groups"
        )
    return read_pairs(Path(file), "video", column)
