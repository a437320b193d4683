"""`python -m studies.compose`: clips of one actor side by side, as a new data set."""

from collections.abc import Sequence
from fractions import Fraction
from pathlib import Path
from typing import Annotated

import typer

from mule.core.text_rows import read_names, read_pairs
from mule.data.batches.video_clips import find_videos
from mule.data.split.sides import apply_split
from mule.data.split.splits import Split, read_split, write_split
from mule.data.table.reading import read_actor_table
from mule.data.table.table import ActorTable
from mule.data.table.videos import VideoOnDisk, probe_videos
from studies.commands import CountBar, ImageRate, run
from studies.compose.composites import Composite, Sources, draw_composites, sources_of
from studies.compose.sides import Drawing, draw_in_sides, split_of_composites
from studies.compose.videos import write_composites

app = typer.Typer(add_completion=False)


@app.command()
def compose(
    table: Annotated[Path, typer.Argument(metavar="TABLE", help="Actors, .csv or .parquet.")],
    tiles: Annotated[int, typer.Option(min=2, max=3, metavar="2|3", help="Clips side by side.")],
    videos: Annotated[Path, typer.Option(metavar="DIR", help="Folder of the videos.")],
    out: Annotated[
        Path,
        typer.Option(
            metavar="DIR",
            help="New or empty folder for videos/, labels.csv, sources.csv and, with --split, split.toml.",
        ),
    ],
    clips: Annotated[
        int | None,
        typer.Option(min=1, metavar="N", help="Number of composites; default: as many as possible."),
    ] = None,
    seed: Annotated[int, typer.Option(min=0, help="Random seed: decides which clips share a composite.")] = 0,
    uses: Annotated[int, typer.Option(min=1, help="Use each clip in at most this many composites.")] = 1,
    only: Annotated[
        Path | None,
        typer.Option(
            metavar="VIDEOS.txt", help="Use only these videos, one per line, such as one side of a split."
        ),
    ] = None,
    split: Annotated[
        Path | None,
        typer.Option(
            metavar="SPLIT.toml",
            help="Draw the tiles of a composite from one side of this split and from different groups of it.",
        ),
    ] = None,
    groups: Annotated[
        str | None,
        typer.Option(
            metavar="VIDEOS.csv:COLUMN",
            help="Draw tiles from different groups (films, scenes); the file has a column `video`.",
        ),
    ] = None,
    seconds: Annotated[
        float | None, typer.Option(min=0.5, help="Longest composite; default: as long as all tiles last.")
    ] = None,
    image_rate: ImageRate = Fraction(30),
) -> None:
    """Place clips of one actor side by side: scenes of several actors, each with their own labels.

    All tiles get the height of the lowest one. They are aligned at their
    key times, play at the frame rate of the first tile, and last as long as
    every tile does. Two tiles never come from one video. The same seed
    gives the same composites.
    """
    if split is not None and (only is not None or clips is not None):
        raise typer.BadParameter(
            "uses all actors of every side; do not combine it with --only or --clips.", param_hint="--split"
        )
    actors, sides = read_actor_table(table), None if split is None else read_split(split)
    usable_names = None if only is None else read_names(only, of="videos")
    names = [name for name in actors.videos if usable_names is None or name in usable_names]
    sources = sources_of(
        actors,
        _opened(names, videos, image_rate),
        only=usable_names,
        group_of=_groups(groups) if groups is not None else (sides and dict(sides.groups)) or None,
        max_length_s=seconds,
    )
    for reason, count in sources.left_out.items():
        typer.echo(f"not used: {count} rows {reason}")
    drawing = Drawing(num_tiles=tiles, seed=seed, max_uses=uses)
    if sides is not None:
        is_complete = _compose_in_sides(actors, sources, out, split=sides, drawing=drawing)
    else:
        is_complete = _compose(actors, sources, out, num_composites=clips, drawing=drawing)
    if not is_complete:
        raise typer.Exit(2)


def _compose(
    table: ActorTable, sources: Sources, out: Path, *, num_composites: int | None, drawing: Drawing
) -> bool:
    """Make the composites and report them; returns whether all could be made."""
    composites = draw_composites(
        sources.usable,
        num_tiles=drawing.num_tiles,
        seed=drawing.seed,
        num_composites=num_composites,
        max_uses=drawing.max_uses,
    )
    made = _written(table, composites, out)
    length_s = float(sum(composite.length_s for composite in made))
    typer.echo(
        f"{len(made)} composites of {drawing.num_tiles} tiles, {length_s:.1f} s, from {len(sources.usable)} "
        f"clips, each used at most {drawing.max_uses} times (seed {drawing.seed}): {out}"
    )
    return len(made) == len(composites)


def _compose_in_sides(
    table: ActorTable, sources: Sources, out: Path, *, split: Split, drawing: Drawing
) -> bool:
    """Make composites within each side of a split, and their own split; returns whether all could be made."""
    drawn = draw_in_sides(sources, apply_split(table, split), drawing)
    composites = [each for side in drawn.values() for each in side]
    made = _written(table, composites, out)
    composed = read_actor_table(out / "labels.csv")
    composed_split = split_of_composites(split, composed, drawn, num_tiles=drawing.num_tiles)
    write_split(composed_split, out / "split.toml")
    numbers = ", ".join(f"{len(getattr(composed_split.videos, side))} {side}" for side in drawn)
    typer.echo(
        f"{len(made)} composites of {drawing.num_tiles} tiles ({numbers}), each clip used at most "
        f"{drawing.max_uses} times (seed {drawing.seed}), and split.toml: {out}"
    )
    return len(made) == len(composites)


def _opened(names: Sequence[str], folder: Path, image_rate: Fraction) -> dict[str, VideoOnDisk]:
    """The videos that can be read; reports the others on stderr."""
    found = find_videos(names, folder)
    with CountBar("opening videos") as bar:
        probed = probe_videos(found.paths, on_progress=bar, image_rate=image_rate)
    for name, reason in [*found.refused.items(), *probed.unreadable.items()]:
        typer.echo(f"not used: {name}: {reason}", err=True)
    return dict(probed.readable)


def _written(table: ActorTable, composites: Sequence[Composite], out: Path) -> list[Composite]:
    """Write composites and report those that could not be made; returns those that were."""
    with CountBar("composing") as bar:
        failed = write_composites(table, composites, out, on_progress=bar)
    for name, reason in failed.items():
        typer.echo(f"could not make {name}: {reason}", err=True)
    return [composite for composite in composites if composite.name not in failed]


def _groups(place: str) -> dict[str, str]:
    file, mark, column = place.rpartition(":")
    if not (file and mark and column):
        raise typer.BadParameter(
            f"must be a file and a column, VIDEOS.csv:COLUMN; got '{place}'.", param_hint="--groups"
        )
    return read_pairs(Path(file), "video", column)


if __name__ == "__main__":
    run(app, "studies.compose")
