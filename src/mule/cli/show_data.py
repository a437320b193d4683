"""`mule data compose`, shown: composites as they are made."""

from collections.abc import Collection, Mapping, Sequence
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from mule.cli.data import opened_videos
from mule.cli.printing import CountBar
from mule.data.table.reading import read_actor_table
from mule.data.table.table import ActorTable

if TYPE_CHECKING:  # what opens videos takes a second to import, and only some commands need it
    from mule.data.convert.compose import Composite, Sources
    from mule.data.convert.compose_split import Drawing
    from mule.data.split.splits import Split


def sources(
    table: ActorTable,
    folder: Path,
    *,
    only: Collection[str] | None,
    group_of: Mapping[str, str] | None,
    max_length_s: float | None,
    image_rate: Fraction,
) -> "Sources":
    """The clips that can be tiles; print how many cannot, and why."""
    from mule.data.convert.compose import sources_of

    names = [name for name in table.videos if only is None or name in only]
    found, probed = opened_videos(names, folder, image_rate)
    for name, reason in [*found.refused.items(), *probed.unreadable.items()]:
        typer.echo(f"not used: {name}: {reason}", err=True)
    usable = sources_of(table, probed.readable, only=only, group_of=group_of, max_length_s=max_length_s)
    for reason, count in usable.left_out.items():
        typer.echo(f"not used: {count} rows {reason}")
    return usable


def compose(
    table: ActorTable,
    usable: "Sources",
    out: Path,
    *,
    num_tiles: int,
    seed: int,
    num_composites: int | None,
    max_uses: int,
) -> bool:
    """Make composites and print what became of them; says if all could be made."""
    from mule.data.convert.compose import draw_composites

    composites = draw_composites(
        usable.usable, num_tiles=num_tiles, seed=seed, num_composites=num_composites, max_uses=max_uses
    )
    made = _composed(table, composites, out)
    length_s = float(sum(composite.length_s for composite in made))
    typer.echo(
        f"{len(made)} composites of {num_tiles} tiles, {length_s:.1f} s, from {len(usable.usable)} clips, each used "
        f"at most {max_uses} times (seed {seed}): {out}"
    )
    return len(made) == len(composites)


def compose_in_sides(
    table: ActorTable, usable: "Sources", out: Path, *, split: "Split", drawing: "Drawing"
) -> bool:
    """Make composites inside each side of a split, and the split of what they make; says if all could be made."""
    from mule.data.convert.compose_split import draw_in_sides, split_of_composites
    from mule.data.split.sides import apply_split
    from mule.data.split.splits import write_split

    drawn = draw_in_sides(usable, apply_split(table, split), drawing)
    composites = [each for side in drawn.values() for each in side]
    made = _composed(table, composites, out)
    composed = read_actor_table(out / "labels.csv")
    found = split_of_composites(split, composed, drawn, num_tiles=drawing.num_tiles)
    write_split(found, out / "split.toml")
    numbers = ", ".join(f"{len(getattr(found.videos, side))} {side}" for side in drawn)
    typer.echo(
        f"{len(made)} composites of {drawing.num_tiles} tiles ({numbers}), each clip used at most {drawing.max_uses} "
        f"times (seed {drawing.seed}), and split.toml: {out}"
    )
    return len(made) == len(composites)


def _composed(table: ActorTable, composites: "Sequence[Composite]", out: Path) -> "list[Composite]":
    """Write composites, say which could not be made, and give those that were."""
    from mule.data.convert.compose_videos import write_composites

    with CountBar("composing") as bar:
        failed = write_composites(table, composites, out, on_progress=bar)
    for name, reason in failed.items():
        typer.echo(f"mule: {name} could not be made: {reason}", err=True)
    return [composite for composite in composites if composite.name not in failed]
