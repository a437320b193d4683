"""`mule watch`: your own video in, who does what and who is novel out. Torch is imported when the command runs."""

from pathlib import Path
from typing import Annotated

import typer


def watch(
    source: Annotated[
        str,
        typer.Argument(
            metavar="SOURCE",
            help="A video, a folder of videos or of images, a camera (/dev/video0), or an address (rtsp://…).",
        ),
    ],
    model: Annotated[Path, typer.Option(metavar="DIR", help="A folder that `mule bundle` made, or builtin.")],
    detector: Annotated[
        str | None,
        typer.Option(
            metavar="FILE|DIR|NAME",
            help="A YOLOX file (.onnx), boxes (.csv, .json), a folder with tracks.csv or actors.csv, or a card of `mule "
            "weights list`; by default what the model recommends.",
        ),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="Where results go; by default watched/ and the video's name."),
    ] = None,
    every: Annotated[
        float | None, typer.Option(metavar="SECONDS", help="From one key time to the next.")
    ] = None,
    threshold: Annotated[
        str,
        typer.Option(
            metavar="known-95|SHARE",
            help="Known actors that pass, or the share that must be less novel, such as 0.99.",
        ),
    ] = "known-95",
    probability: Annotated[
        float, typer.Option(min=0.0, max=1.0, help="From which a known action is said.")
    ] = 0.5,
    looks: Annotated[int, typer.Option(min=1, help="Looks that an actor is judged by, at most.")] = 8,
    live: Annotated[
        bool,
        typer.Option("--live", help="Drop key times rather than fall behind; streams and cameras always do."),
    ] = False,
    resume: Annotated[bool, typer.Option("--resume", help="Go on after the last whole moment.")] = False,
    export: Annotated[
        list[str] | None, typer.Option(metavar="coco|viame|cvat", help="Another format; may come again.")
    ] = None,
    video: Annotated[
        bool, typer.Option("--video/--no-video", help="Whether annotated.mp4 is written.")
    ] = True,
    reasons: Annotated[
        bool,
        typer.Option(
            "--reasons/--no-reasons", help="Whether objects and others are left out to see who contributed."
        ),
    ] = True,
    runtime: Annotated[
        str,
        typer.Option(
            metavar="torch|onnx|openvino",
            help="What the network runs on; all but torch make graphs of it at the first clip, and keep them.",
        ),
    ] = "torch",
) -> None:
    """Watch a video and write down, for every person, known actions, novelty and why.

    Into the folder go moments.jsonl, ava.csv, annotated.mp4, report.html and summary.txt. Ctrl-C leaves a complete
    result of what was seen; --resume goes on from there. A stream that breaks off is opened again.
    """
    from mule.cli import show_watch
    from mule.watching.engine.watch import WatchSettings

    wanted = show_watch.Wanted(
        source=source,
        model=model,
        detector=detector,
        out=out,
        resumes=resume,
        exports=tuple(export or ()),
        has_video=video,
        runtime=runtime,
    )
    settings = WatchSettings(
        every_s=1.0 if every is None else float(every),
        threshold=threshold,
        min_probability=probability,
        most_looks=looks,
        explains=reasons,
        is_live=live,
    )
    code = show_watch.watched(wanted, settings, has_every=every is not None)
    if code:
        raise typer.Exit(code)
