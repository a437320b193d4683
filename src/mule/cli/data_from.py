"""`mule data from-…`: annotations in other formats as a table of actors. Converters are imported when a command runs."""

from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from mule.cli.printing import positive

if TYPE_CHECKING:
    from mule.data.convert.conversion import ConversionReport
    from mule.data.table.table import ActorTable

app = typer.Typer(no_args_is_help=True)


def _size(text: str | tuple[int, int]) -> tuple[int, int]:
    width, _, height = text.partition("x") if isinstance(text, str) else (str(text[0]), "x", str(text[1]))
    if not (width.isdecimal() and height.isdecimal() and int(width) and int(height)):
        raise typer.BadParameter(f"must be WIDTHxHEIGHT in pixels, such as 1280x720; got '{text}'.")
    return int(width), int(height)


ActionsFrom = Literal["class", "attributes", "both"]
Out = Annotated[Path, typer.Option(metavar="TABLE", help="Table to write, .csv or .parquet.")]
KeepUnlabelled = Annotated[
    bool, typer.Option("--keep-unlabelled", help="Keep rows without an action; they are left out by default.")
]
Actions = Annotated[
    ActionsFrom,
    typer.Option(
        metavar="class|attributes|both",
        help="Take the actions of a box from its class, its attributes, or both.",
    ),
]
Attributes = Annotated[
    list[str] | None,
    typer.Option("--attribute", metavar="NAME", help="Take actions from this attribute only. Repeatable."),
]
OnlyClasses = Annotated[
    list[str] | None,
    typer.Option("--only-class", metavar="NAME", help="Use boxes of this class only. Repeatable."),
]
EveryOption = Annotated[
    Fraction | None,
    typer.Option(
        parser=positive, metavar="SECONDS", help="Seconds between key times. Default: every annotated frame."
    ),
]
Fps = Annotated[
    Fraction | None,
    typer.Option(parser=positive, metavar="FPS", help="Frame rate by which frames are numbered."),
]
Video = Annotated[str | None, typer.Option(metavar="NAME", help="Name of the video.")]
SizeOption = Annotated[
    tuple | None,
    typer.Option(
        parser=_size,
        metavar="WIDTHxHEIGHT",
        help="Size in pixels of the frames in which boxes were drawn.",
    ),
]


@app.command("from-ava")
def from_ava(
    folder: Annotated[
        Path, typer.Argument(metavar="ANNOTATIONS_DIR", help="AVA v2.2 files under their official names.")
    ],
    split: Annotated[Literal["train", "val"], typer.Option(metavar="train|val", help="Part of AVA.")],
    videos: Annotated[
        Literal["full", "cut-900"],
        typer.Option(
            metavar="full|cut-900",
            help="What times refer to: whole films, or videos and folders of frames cut from second 900 on.",
        ),
    ],
    out: Out,
    classes: Annotated[
        Literal["60", "80"], typer.Option(metavar="60|80", help="The 60 evaluated classes, or all 80.")
    ] = "60",
    boxes: Annotated[
        Path | None,
        typer.Option(
            metavar="CSV",
            help="Convert these predicted boxes instead. Columns: video, time, x1, y1, x2, y2, label (may be empty), "
            "score.",
        ),
    ] = None,
) -> None:
    """Convert AVA v2.2 annotations.

    The table has one row per person, box and time with all its actions. Excluded times are left out.
    """
    from mule.data.convert.ava import CUT_AT_S, actors_from_ava, boxes_from_ava
    from mule.data.convert.origin import ava_origin, write_origin
    from mule.data.table.writing import write_object_table

    if boxes is not None:
        objects, report = boxes_from_ava(boxes, folder, split, videos=videos)
        write_object_table(objects, out)
        show(report, out)
        return
    num_classes = 60 if classes == "60" else 80
    _write(*actors_from_ava(folder, split, num_classes=num_classes, videos=videos), out)
    write_origin(ava_origin(num_classes=num_classes, starts_at_s=CUT_AT_S[videos]), out)


@app.command("from-charades")
def from_charades(
    csv: Annotated[
        Path, typer.Argument(metavar="CSV", help="Charades_v1_train.csv or Charades_v1_test.csv.")
    ],
    out: Out,
    class_list: Annotated[
        Path | None,
        typer.Option(
            "--classes", metavar="TXT", help="Charades_v1_classes.txt. Default: classes are named by code."
        ),
    ] = None,
    rows: Annotated[
        Literal["video", "clips", "localisation"],
        typer.Option(
            metavar="video|clips|localisation",
            help="One row per video, per clip, or per time of the localisation task (25 a video).",
        ),
    ] = "video",
    every: Annotated[
        Fraction, typer.Option(parser=positive, metavar="SECONDS", help="Seconds from one clip to the next.")
    ] = Fraction(1),
    frames: Annotated[int, typer.Option(min=1, metavar="N", help="Frames in a clip.")] = 32,
    stride: Annotated[
        int, typer.Option(min=1, metavar="N", help="Video frames from one frame of a clip to the next.")
    ] = 1,
    fps: Annotated[
        Fraction,
        typer.Option(parser=positive, metavar="FPS", help="Frame rate at which clips are cut."),
    ] = Fraction(24),
    keep_unlabelled: KeepUnlabelled = False,
) -> None:
    """Convert Charades v1 annotations.

    Rows are whole videos with all their actions, or moments with the actions at that time.
    """
    from mule.data.convert.charades import actors_from_charades, clip_times, read_class_names, rows_of
    from mule.data.convert.origin import charades_origin, write_origin
    from mule.video.clips import ClipShape

    clips = clip_times(every, shape=ClipShape(frames, stride, num_slow_frames=1), frame_rate=fps)
    names = None if class_list is None else read_class_names(class_list)
    table, report = actors_from_charades(
        csv, rows_of(rows, clips), class_names=names, keep_unlabelled=keep_unlabelled
    )
    _write(table, report, out)
    write_origin(charades_origin(names), out)


@app.command("from-coco")
def from_coco(
    json: Annotated[
        Path, typer.Argument(metavar="JSON", help="COCO or KWCOCO file whose images are frames of videos.")
    ],
    out: Out,
    actions: Actions = "class",
    attribute: Attributes = None,
    only_class: OnlyClasses = None,
    every: EveryOption = None,
    fps: Fps = None,
    video: Video = None,
    size: SizeOption = None,
    first_frame: Annotated[
        int, typer.Option(min=0, metavar="N", help="Number of the first frame in file names.")
    ] = 0,
    keep_unlabelled: KeepUnlabelled = False,
) -> None:
    """Convert COCO or KWCOCO annotations.

    The annotations of one track (or one box) in one image are an actor; categories or attributes are its actions.
    """
    from mule.data.convert.coco import actors_from_coco
    from mule.data.convert.conversion import ActionRule, BoxSettings

    rule = ActionRule.named_by(actions, attribute or ())
    settings = BoxSettings(rule, every, _only(only_class), keep_unlabelled, fps, video, size)
    _write(*actors_from_coco(json, settings, first_frame=first_frame), out)


@app.command("from-viame")
def from_viame(
    csv: Annotated[list[Path], typer.Argument(metavar="CSV", help="VIAME CSV files, one per video.")],
    out: Out,
    actions: Actions = "class",
    attribute: Attributes = None,
    only_class: OnlyClasses = None,
    min_confidence: Annotated[
        float,
        typer.Option(min=0, max=1, metavar="SHARE", help="Use a class when its confidence is at least this."),
    ] = 0.5,
    every: EveryOption = None,
    fps: Fps = None,
    video: Video = None,
    size: SizeOption = None,
    videos: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Folder of the videos, to read their size.")
    ] = None,
    keep_unlabelled: KeepUnlabelled = False,
) -> None:
    """Convert VIAME CSV annotations, as DIVE writes them.

    Tracks are actors; classes or attributes are their actions.
    """
    from mule.data.convert.conversion import ActionRule, BoxSettings
    from mule.data.convert.viame import actors_from_viame

    require_one_file(csv, video)
    rule = ActionRule.named_by(actions, attribute or ())
    settings = BoxSettings(rule, every, _only(only_class), keep_unlabelled, fps, video, size)
    _write(*actors_from_viame(csv, settings, videos=videos, min_confidence=min_confidence), out)


@app.command("from-cvat")
def from_cvat(
    xml: Annotated[
        list[Path], typer.Argument(metavar="XML", help="'CVAT for video 1.1' files, one per video.")
    ],
    out: Out,
    fps: Annotated[Fraction, typer.Option(parser=positive, metavar="FPS", help="Frame rate of the video.")],
    actions: Actions = "attributes",
    attribute: Attributes = None,
    only_class: OnlyClasses = None,
    every: EveryOption = None,
    video: Video = None,
    size: SizeOption = None,
    keep_unlabelled: KeepUnlabelled = False,
) -> None:
    """Convert 'CVAT for video 1.1' annotations.

    Tracks are actors; attributes or labels are their actions.
    """
    from mule.data.convert.conversion import ActionRule, BoxSettings
    from mule.data.convert.cvat import actors_from_cvat

    require_one_file(xml, video)
    rule = ActionRule.named_by(actions, attribute or ())
    settings = BoxSettings(rule, every, _only(only_class), keep_unlabelled, fps, video, size)
    _write(*actors_from_cvat(xml, settings), out)


def _only(classes: list[str] | None) -> frozenset[str] | None:
    return frozenset(classes) if classes else None


def require_one_file(paths: list[Path], video: str | None) -> None:
    """Stop if one name is given for several videos."""
    if video is not None and len(paths) > 1:
        raise typer.BadParameter(f"names one video; got {len(paths)} files.", param_hint="--video")


def _write(table: "ActorTable", report: "ConversionReport", out: Path) -> None:
    from mule.data.table.writing import write_actor_table

    write_actor_table(table, out)
    show(report, out)


def show(report: "ConversionReport", out: Path) -> None:
    """Print how many entries were read, kept and left out, and why."""
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
