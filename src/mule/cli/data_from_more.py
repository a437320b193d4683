"""`mule data from-…` of single data sets: J-HMDB, AIRTLab, CAVIAR. What converts is imported when a command runs."""

from enum import StrEnum
from fractions import Fraction
from pathlib import Path
from typing import Annotated, Literal

import typer

from mule.cli.data_from import (
    EveryOption,
    Fps,
    KeepUnlabelled,
    Out,
    SizeOption,
    Video,
    require_one_file,
    show,
)
from mule.cli.printing import positive

app = typer.Typer(no_args_is_help=True)

Groups = Annotated[
    Path | None,
    typer.Option(
        metavar="VIDEOS.csv", help="Also write what each video belongs to, for `mule data split --groups`."
    ),
]


class CaviarKind(StrEnum):
    """What CAVIAR says of an actor, of itself and of its group."""

    MOVEMENT = "movement"
    ROLE = "role"
    CONTEXT = "context"
    SITUATION = "situation"
    GROUP_MOVEMENT = "group_movement"
    GROUP_ROLE = "group_role"
    GROUP_CONTEXT = "group_context"
    GROUP_SITUATION = "group_situation"


@app.command("from-jhmdb")
def from_jhmdb(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="With labels.csv and videos.csv.")],
    out: Out,
    tags: Annotated[
        bool, typer.Option("--tags", help="View and visible part (labels_multi.csv) are actions too.")
    ] = False,
) -> None:
    """J-HMDB: the one person of each clip. Split by film: --groups DIR/videos.csv:source_group."""
    from mule.data.convert.jhmdb import actors_from_jhmdb
    from mule.data.table.writing import write_actor_table

    table, report = actors_from_jhmdb(folder, with_tags=tags)
    write_actor_table(table, out)
    show(report, out)


@app.command("from-airtlab")
def from_airtlab(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="With labels.csv and clips.")],
    out: Out,
    rows: Annotated[
        Literal["video", "middle", "clips"],
        typer.Option(help="A row per video, for its middle (frozen backbones need a time), or one per clip."),
    ] = "middle",
    every: Annotated[
        Fraction, typer.Option(parser=positive, metavar="SECONDS", help="From one clip to the next.")
    ] = Fraction(1),
    groups: Groups = None,
    block: Annotated[
        int, typer.Option(min=1, help="Scenes with consecutive numbers that make a block of --groups.")
    ] = 5,
) -> None:
    """AIRTLab: whole frames with the actions of their clip. Split by scene or, better, by block of scenes."""
    from mule.data.convert.airtlab import LABELS, actors_from_airtlab, read_takes, write_takes
    from mule.data.table.writing import write_actor_table

    table, report = actors_from_airtlab(folder, rows, period_s=every)
    if groups is not None:
        write_takes(groups, read_takes(folder / LABELS), block_scenes=block)
    write_actor_table(table, out)
    show(report, out)


@app.command("from-caviar")
def from_caviar(
    files: Annotated[
        list[Path], typer.Argument(metavar="XML_OR_CSV", help="Ground truth as published, or rows of labels.")
    ],
    out: Out,
    kind: Annotated[
        list[CaviarKind] | None,
        typer.Option(metavar="KIND", help="Only these labels are actions; may be repeated. Else all."),
    ] = None,
    every: EveryOption = None,
    fps: Fps = None,
    video: Video = None,
    size: SizeOption = None,
    groups: Groups = None,
    keep_unlabelled: KeepUnlabelled = False,
) -> None:
    """CAVIAR: people followed through a lobby, several labels each. Split by sequence (--groups), not by part."""
    from mule.data.convert.caviar import actors_from_caviar, write_sequences
    from mule.data.convert.conversion import ActionRule, BoxSettings
    from mule.data.table.writing import write_actor_table

    require_one_file(files, video)
    kinds = frozenset(each.value for each in kind) if kind else None
    rule = ActionRule(from_class=False, from_attributes=True, attributes=kinds)
    settings = BoxSettings(rule, every, None, keep_unlabelled, fps, video, size)
    table, report = actors_from_caviar(files, settings)
    if groups is not None:
        write_sequences(groups, table.videos)
    write_actor_table(table, out)
    show(report, out)
