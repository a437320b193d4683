"""`python -m studies.convert`: J-HMDB, AIRTLab and CAVIAR as the one table of actors."""

from enum import StrEnum
from fractions import Fraction
from pathlib import Path
from typing import Annotated, Literal

import typer

from mule.data.convert.conversion import ActionRule, BoxSettings
from mule.data.table.writing import write_actor_table
from studies.commands import (
    Every,
    Fps,
    KeepUnlabelled,
    Out,
    Size,
    Video,
    positive,
    require_one_file,
    run,
    show_conversion,
)
from studies.convert.airtlab import LABELS, actors_from_airtlab, read_takes, write_takes
from studies.convert.caviar import actors_from_caviar, write_sequences
from studies.convert.jhmdb import actors_from_jhmdb

app = typer.Typer(
    help="Convert the data sets of the studies to one table of actors.",
    no_args_is_help=True,
    add_completion=False,
)

Groups = Annotated[
    Path | None,
    typer.Option(
        metavar="VIDEOS.csv", help="Also write the group of each video, for `mule data split --groups`."
    ),
]


class CaviarKind(StrEnum):
    """The kinds of labels that CAVIAR gives a person, and the group the person belongs to."""

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
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="Folder with labels.csv and videos.csv.")],
    out: Out,
    tags: Annotated[
        bool, typer.Option("--tags", help="Add view and visible body part as actions (labels_multi.csv).")
    ] = False,
) -> None:
    """Convert J-HMDB: one person per clip. Split by film with --groups DIR/videos.csv:source_group."""
    table, report = actors_from_jhmdb(folder, with_tags=tags)
    write_actor_table(table, out)
    show_conversion(report, out)


@app.command("from-airtlab")
def from_airtlab(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="Folder with labels.csv and clips/.")],
    out: Out,
    rows: Annotated[
        Literal["video", "middle", "clips"],
        typer.Option(
            help="One row per video, per middle of a video (frozen backbones need a time), or per clip."
        ),
    ] = "middle",
    every: Annotated[
        Fraction, typer.Option(parser=positive, metavar="SECONDS", help="Time between clips.")
    ] = Fraction(1),
    groups: Groups = None,
    block: Annotated[
        int, typer.Option(min=1, help="Scenes with consecutive numbers per block in --groups.")
    ] = 5,
) -> None:
    """Convert AIRTLab: whole frames with the actions of their clip. Split by scene or, better, by block."""
    table, report = actors_from_airtlab(folder, rows, period_s=every)
    if groups is not None:
        write_takes(groups, read_takes(folder / LABELS), block_scenes=block)
    write_actor_table(table, out)
    show_conversion(report, out)


@app.command("from-caviar")
def from_caviar(
    files: Annotated[
        list[Path], typer.Argument(metavar="XML_OR_CSV", help="Published ground truth, or rows of labels.")
    ],
    out: Out,
    kind: Annotated[
        list[CaviarKind] | None,
        typer.Option(help="Use only this kind of label as actions. Repeatable; default: all."),
    ] = None,
    every: Every = None,
    fps: Fps = None,
    video: Video = None,
    size: Size = None,
    groups: Groups = None,
    keep_unlabelled: KeepUnlabelled = False,
) -> None:
    """Convert CAVIAR: people in a lobby, several labels each. Split by sequence (--groups), not by part."""
    require_one_file(files, video)
    kinds = frozenset(each.value for each in kind) if kind else None
    rule = ActionRule(from_class=False, from_attributes=True, attributes=kinds)
    settings = BoxSettings(rule, every, None, keep_unlabelled, fps, video, size)
    table, report = actors_from_caviar(files, settings)
    if groups is not None:
        write_sequences(groups, table.videos)
    write_actor_table(table, out)
    show_conversion(report, out)


if __name__ == "__main__":
    run(app, "studies.convert")
