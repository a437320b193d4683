"""`mule data from-…`: other people's annotations as the one table. What converts is imported when a command runs."""

from enum import StrEnum
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from mule.cli.numbers import positive

if TYPE_CHECKING:
    from mule.data.convert.conversion import BoxSettings, ConversionReport
    from mule.data.table.table import ActorTable

app = typer.Typer(no_args_is_help=True)


class AvaSplit(StrEnum):
    """The parts of AVA that are annotated."""

    TRAIN = "train"
    VAL = "val"


class AvaClasses(StrEnum):
    """The lists of classes AVA has published."""

    SIXTY = "60"
    EIGHTY = "80"


class AvaVideos(StrEnum):
    """What the videos at hand begin with."""

    FULL = "full"
    CUT = "cut-900"


class CharadesRows(StrEnum):
    """What of a Charades video becomes rows."""

    VIDEO = "video"
    CLIPS = "clips"
    LOCALISATION = "localisation"


class ActionsIn(StrEnum):
    """What names the actions of a box."""

    CLASS = "class"
    ATTRIBUTES = "attributes"
    BOTH = "both"


def _size(text: str | tuple[int, int]) -> tuple[int, int]:
    width, _, height = text.partition("x") if isinstance(text, str) else (str(text[0]), "x", str(text[1]))
    if not (width.isdecimal() and height.isdecimal() and int(width) and int(height)):
        raise typer.BadParameter(f"must be WIDTHxHEIGHT in pixels, such as 1280x720; got '{text}'.")
    return int(width), int(height)


Out = Annotated[Path, typer.Option(metavar="TABLE", help="The table to write, .csv or .parquet.")]
KeepUnlabelled = Annotated[
    bool, typer.Option("--keep-unlabelled", help="Keep rows without an action; by default they are left out.")
]
Actions = Annotated[ActionsIn, typer.Option(help="What names the actions of a box.")]
Attributes = Annotated[
    list[str] | None, typer.Option("--attribute", help="Only this attribute names actions; may be repeated.")
]
OnlyClasses = Annotated[
    list[str] | None,
    typer.Option("--only-class", help="Only boxes of this class are actors; may be repeated."),
]
Every = Annotated[
    Fraction | None,
    typer.Option(parser=positive, metavar="SECONDS", help="From one key time to the next; else every frame."),
]
Fps = Annotated[
    Fraction | None,
    typer.Option(parser=positive, metavar="FPS", help="Frames per second by which frames are numbered."),
]
Video = Annotated[str | None, typer.Option(help="The name of the video.")]
Size = Annotated[
    tuple | None,
    typer.Option(parser=_size, metavar="WxH", help="Of the frames boxes were drawn in, in pixels."),
]


@app.command("from-ava")
def from_ava(
    folder: Annotated[
        Path, typer.Argument(metavar="ANNOTATIONS_DIR", help="AVA v2.2 files under their official names.")
    ],
    split: Annotated[AvaSplit, typer.Option(help="Which annotations.")],
    videos: Annotated[
        AvaVideos,
        typer.Option(
            help="What times refer to: whole films, or videos and folders of frames cut from second 900 on."
        ),
    ],
    out: Out,
    classes: Annotated[AvaClasses, typer.Option(help="The evaluated classes, or all.")] = AvaClasses.SIXTY,
    boxes: Annotated[
        Path | None,
        typer.Option(
            metavar="CSV",
            help="Write a table of these predicted boxes (video,time,x1,y1,x2,y2,label-or-empty,score) instead.",
        ),
    ] = None,
) -> None:
    """AVA v2.2: one row per person, box and time with all its actions; excluded times are left out."""
    from mule.data.convert.ava import actors_from_ava, boxes_from_ava
    from mule.data.table.writing import write_actor_table, write_object_table

    if boxes is None:
        num_classes = 60 if classes == AvaClasses.SIXTY else 80
        table, report = actors_from_ava(folder, split.value, num_classes=num_classes, videos=videos.value)
        write_actor_table(table, out)
    else:
        found, report = boxes_from_ava(boxes, folder, split.value, videos=videos.value)
        write_object_table(found, out)
    show(report, out)


@app.command("from-charades")
def from_charades(
    csv: Annotated[
        Path, typer.Argument(metavar="CSV", help="Charades_v1_train.csv or Charades_v1_test.csv.")
    ],
    out: Out,
    class_list: Annotated[
        Path | None,
        typer.Option(
            "--classes", metavar="TXT", help="Charades_v1_classes.txt; else classes are called by code."
        ),
    ] = None,
    rows: Annotated[
        CharadesRows,
        typer.Option(help="One row per video, per clip, or per time of the localisation task (25 a video)."),
    ] = CharadesRows.VIDEO,
    every: Annotated[
        Fraction, typer.Option(parser=positive, metavar="SECONDS", help="From one clip to the next.")
    ] = Fraction(1),
    frames: Annotated[int, typer.Option(min=1, help="Frames of a clip.")] = 32,
    stride: Annotated[int, typer.Option(min=1, help="From one frame of a clip to the next.")] = 1,
    fps: Annotated[
        Fraction,
        typer.Option(parser=positive, metavar="FPS", help="Frames per second by which clips are cut."),
    ] = Fraction(24),
    keep_unlabelled: KeepUnlabelled = False,
) -> None:
    """Charades v1: whole videos with all their actions, or moments with the actions that last then."""
    from mule.data.convert.charades import (
        actors_from_charades,
        clip_times,
        localisation_times,
        read_class_names,
        whole_video,
    )
    from mule.data.table.writing import write_actor_table
    from mule.video.clips import ClipShape

    moments = {
        CharadesRows.VIDEO: whole_video,
        CharadesRows.CLIPS: clip_times(
            every, shape=ClipShape(frames, stride, num_slow_frames=1), frame_rate=fps
        ),
        CharadesRows.LOCALISATION: localisation_times,
    }[rows]
    names = None if class_list is None else read_class_names(class_list)
    table, report = actors_from_charades(csv, moments, class_names=names, keep_unlabelled=keep_unlabelled)
    write_actor_table(table, out)
    show(report, out)


@app.command("from-coco")
def from_coco(
    json: Annotated[
        Path, typer.Argument(metavar="JSON", help="COCO or KWCOCO with frames of videos as images.")
    ],
    out: Out,
    actions: Actions = ActionsIn.CLASS,
    attribute: Attributes = None,
    only_class: OnlyClasses = None,
    every: Every = None,
    fps: Fps = None,
    video: Video = None,
    size: Size = None,
    first_frame: Annotated[int, typer.Option(min=0, help="The number of the first frame in file names.")] = 0,
    keep_unlabelled: KeepUnlabelled = False,
) -> None:
    """COCO: annotations of one track (or one box) in one image are an actor; categories or attributes its actions."""
    from mule.data.convert.coco import actors_from_coco

    settings = _settings(actions, attribute, only_class, every, keep_unlabelled, (fps, video, size))
    _write(*actors_from_coco(json, settings, first_frame=first_frame), out)


@app.command("from-viame")
def from_viame(
    csv: Annotated[list[Path], typer.Argument(metavar="CSV", help="VIAME CSV files, one per video.")],
    out: Out,
    actions: Actions = ActionsIn.CLASS,
    attribute: Attributes = None,
    only_class: OnlyClasses = None,
    min_confidence: Annotated[
        float, typer.Option(min=0, max=1, help="A class counts from this confidence on.")
    ] = 0.5,
    every: Every = None,
    fps: Fps = None,
    video: Video = None,
    size: Size = None,
    videos: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Where the videos lie, to read their size.")
    ] = None,
    keep_unlabelled: KeepUnlabelled = False,
) -> None:
    """VIAME CSV, as DIVE writes it: tracks are actors, classes or attributes their actions."""
    from mule.data.convert.viame import actors_from_viame

    require_one_file(csv, video)
    settings = _settings(actions, attribute, only_class, every, keep_unlabelled, (fps, video, size))
    _write(*actors_from_viame(csv, settings, videos=videos, min_confidence=min_confidence), out)


@app.command("from-cvat")
def from_cvat(
    xml: Annotated[
        list[Path], typer.Argument(metavar="XML", help="'CVAT for video 1.1' files, one per video.")
    ],
    out: Out,
    fps: Annotated[
        Fraction, typer.Option(parser=positive, metavar="FPS", help="Frames per second of the video.")
    ],
    actions: Actions = ActionsIn.ATTRIBUTES,
    attribute: Attributes = None,
    only_class: OnlyClasses = None,
    every: Every = None,
    video: Video = None,
    size: Size = None,
    keep_unlabelled: KeepUnlabelled = False,
) -> None:
    """CVAT for video 1.1: tracks are actors, attributes or labels their actions."""
    from mule.data.convert.cvat import actors_from_cvat

    require_one_file(xml, video)
    settings = _settings(actions, attribute, only_class, every, keep_unlabelled, (fps, video, size))
    _write(*actors_from_cvat(xml, settings), out)


def _settings(
    actions: ActionsIn,
    attributes: list[str] | None,
    only_classes: list[str] | None,
    every_s: Fraction | None,
    keep_unlabelled: bool,
    left_open: tuple[Fraction | None, str | None, tuple[int, int] | None],
) -> "BoxSettings":
    from mule.data.convert.conversion import ActionRule, BoxSettings

    if attributes and actions == ActionsIn.CLASS:
        raise typer.BadParameter("needs --actions attributes or both.", param_hint="--attribute")
    rule = ActionRule(
        from_class=actions != ActionsIn.ATTRIBUTES,
        from_attributes=actions != ActionsIn.CLASS,
        attributes=frozenset(attributes) if attributes else None,
    )
    only = frozenset(only_classes) if only_classes else None
    return BoxSettings(rule, every_s, only, keep_unlabelled, *left_open)


def require_one_file(paths: list[Path], video: str | None) -> None:
    """Stop where one name is given to several videos."""
    if video is not None and len(paths) > 1:
        raise typer.BadParameter(f"names one video; got {len(paths)} files.", param_hint="--video")


def _write(table: "ActorTable", report: "ConversionReport", out: Path) -> None:
    from mule.data.table.writing import write_actor_table

    write_actor_table(table, out)
    show(report, out)


def show(report: "ConversionReport", out: Path) -> None:
    """Print what was read, what became of it, and why the rest did not."""
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table("", report.unit, title=Text(f"{out}: {report.num_table_rows} rows"))
    table.add_row("read", str(report.num_read))
    for reason, count in report.dropped.items():
        if count:
            table.add_row(Text(f"left out: {reason.replace('_', ' ')}"), str(count))
    table.add_row("kept", str(report.num_kept), style="bold")
    table.add_section()
    for name, count in report.noted.items():
        if count:
            table.add_row(Text(name.replace("_", " ")), str(count))
    Console().print(table)
