"""`mule watch`: your own video in, who does what and who is novel out. Torch is imported when the command runs."""

import time
from contextlib import closing, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer
from rich.console import Console
from rich.progress import BarColumn, TextColumn, TimeRemainingColumn
from rich.table import Table
from rich.text import Text

from mule.cli.ending import Items, Status
from mule.cli.printing import progress_bar
from mule.core.errors import VideoError

if TYPE_CHECKING:
    from mule.watching.engine.bundle import Bundle
    from mule.watching.engine.watch import Watcher, WatchSettings
    from mule.watching.moments import Moment
    from mule.watching.outputs.summary import Summary


def watch_videos(
    source: Annotated[
        str,
        typer.Argument(
            metavar="SOURCE",
            help="A video, a folder of videos or images, a camera (/dev/video0), or a stream (rtsp://HOST/PATH).",
        ),
    ],
    model: Annotated[
        Path,
        typer.Option(
            metavar="DIR",
            help="Model folder made by `mule bundle`; people, which knows everyday actions of real people (`mule models "
            "people`); or stage, for rendered scenes only.",
        ),
    ] = Path("people"),
    detector: Annotated[
        str | None,
        typer.Option(
            metavar="FILE|DIR|NAME",
            help="YOLOX (.onnx), Faster R-CNN (.pth), boxes (.csv, .json), a folder with tracks.csv or actors.csv, a name "
            "from `mule weights list`, or builtin. Default: the detector the model recommends.",
        ),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="Output folder. Default: watched/ and the video's name."),
    ] = None,
    every: Annotated[
        float | None,
        typer.Option(metavar="SECONDS", help="Seconds between key times. Default: as the model was made."),
    ] = None,
    threshold: Annotated[
        str,
        typer.Option(
            metavar="known-95|SHARE",
            help="Flag a person when they look stranger than this share of known people, such as 0.99, or use the "
            "calibrated known-95.",
        ),
    ] = "known-95",
    probability: Annotated[
        float | None,
        typer.Option(
            min=0.0,
            max=1.0,
            metavar="P",
            help="Report a known action when its probability is at least this. Default: the model's own.",
        ),
    ] = None,
    looks: Annotated[
        int, typer.Option(min=1, metavar="N", help="Use at most this many recent looks per person.")
    ] = 8,
    live: Annotated[
        bool,
        typer.Option("--live", help="Skip key times when processing falls behind (always on for streams)."),
    ] = False,
    resume: Annotated[
        bool, typer.Option("--resume", help="Continue after the last moment in the output folder.")
    ] = False,
    export: Annotated[
        list[str] | None,
        typer.Option(
            metavar="coco|viame|cvat|csv|parquet", help="Also write what was seen in this format. Repeatable."
        ),
    ] = None,
    video: Annotated[bool, typer.Option("--video/--no-video", help="Write annotated.mp4.")] = True,
    codec: Annotated[
        Literal["vp9", "h264"],
        typer.Option(
            metavar="vp9|h264",
            help="Codec of annotated.mp4. Browsers play both; H.264 is written by libx264, which has the GPL.",
        ),
    ] = "vp9",
    reasons: Annotated[
        bool,
        typer.Option(
            "--reasons/--no-reasons",
            help="Find which objects and people each decision depends on, by leaving each out.",
        ),
    ] = True,
    offline: Annotated[
        bool,
        typer.Option("--offline", envvar="MULE_OFFLINE", help="Fetch no weights; stop if some are missing."),
    ] = False,
    keep: Annotated[
        bool,
        typer.Option(
            "--keep/--no-keep",
            help="Keep what decides about everybody (looks.bin), so that `mule decide` and `mule discover` need no video.",
        ),
    ] = True,
    runtime: Annotated[
        str,
        typer.Option(
            metavar="auto|torch|onnx|openvino|DIR",
            help="Inference runtime, or a folder of `mule export`. auto finds the fastest installed one for 60 key times "
            "or more, and remembers it; ONNX and OpenVINO export the model on first use and cache it.",
        ),
    ] = "auto",
) -> None:
    """Watch a video: what every person does, and who does something novel.

    The output folder holds report.html, annotated.mp4, summary.txt, moments.jsonl, looks.bin and ava.csv. Ctrl-C keeps a complete
    result of what was watched, and --resume continues from there. A stream that breaks off is opened again.
    """
    from mule.video.sources import video_source, videos_at

    videos = videos_at(source)
    for each in videos:
        video_source(each)  # stops at a wrong path before torch is imported
    from mule.watching.engine.bundle import read_bundle
    from mule.watching.engine.key_times import num_key_times
    from mule.watching.engine.watch import WatchSettings
    from mule.watching.outputs.exports import require_exports
    from mule.watching.outputs.results import WATCHED

    require_exports(export or ())
    fetch_missing(model, detector, offline=offline)
    bundle = read_bundle(model)
    bundle = bundle.on(
        runtime,
        num_clips=num_key_times(map(video_source, videos), every or bundle.card.every_s),
        noted=lambda sentence: typer.echo(sentence, err=True),
    )
    settings = WatchSettings(
        every_s=bundle.card.every_s if every is None else float(every),
        threshold=threshold,
        min_probability=probability,
        most_looks=looks,
        explains=reasons,
        is_live=live,
    )
    outputs = {
        "detector": detector,
        "resumes": resume,
        "keeps": keep,
        "exports": tuple(export or ()),
        "has_video": video,
        "codec": codec,
    }
    if len(videos) == 1:
        _watch_one(videos[0], bundle, settings, folder=out, **outputs)
        return
    items = Items([Path(each).name for each in videos])
    with suppress(KeyboardInterrupt):  # the status of the video says it
        for each in videos:
            name = Path(each).name
            with items.of(name):
                folder = (out or WATCHED) / name
                watched = _watch_one(each, bundle, settings, folder=folder, **outputs)
                items.note(name, *_status(each, *watched))
    items.end()


def fetch_missing(model: Path, detector: str | None, *, offline: bool) -> None:
    """Fetch the weights that a model and a detector need, after a line for each; bars show how far they are."""
    import os

    from mule.cli.weights import download_bar
    from mule.core.packages import OFFLINE
    from mule.features.weights.download import at_hand
    from mule.watching.engine.bundle import EARLIER_NAMES
    from mule.watching.engine.watch import needed_cards

    if offline:
        os.environ[OFFLINE] = "1"
    if str(model) in EARLIER_NAMES and not model.exists():
        typer.echo(
            f"'{model}' is the earlier name of '{EARLIER_NAMES[str(model)]}', which knows rendered scenes only; for "
            "videos of real people leave --model out.",
            err=True,
        )
    for card in needed_cards(model, detector):
        with download_bar(card.name) as bar:
            at_hand(card, noted=lambda sentence: typer.echo(sentence, err=True), on_progress=bar)


def _watch_one(
    video: str,
    bundle: "Bundle",
    settings: "WatchSettings",
    *,
    folder: Path | None,
    detector: str | None,
    resumes: bool,
    keeps: bool,
    exports: tuple[str, ...],
    has_video: bool,
    codec: Literal["vp9", "h264"],
) -> tuple["Watcher", "Summary"]:
    """Watch one video, write its files, print its summary.

    Raises:
        KeyboardInterrupt: Ctrl-C ended it; what was watched is complete.
        VideoError: the video shows nothing at any key time.
    """
    from mule.watching.engine import watch as engine
    from mule.watching.outputs.results import MOMENTS, recorded, result_folder, write_outputs

    boxes = engine.named_detector(detector, bundle)
    with _Screen() as screen:
        watching = engine.open_watch(video, bundle, detector=boxes, settings=settings, noted=screen.noted)
        place = folder or result_folder(engine.video_name(watching.source))
        is_stopped = False
        screen.begin(watching)
        try:
            with closing(recorded(watching, place, resumes=resumes, keeps=keeps)) as moments:
                for moment in moments:
                    screen.saw(moment)
        except KeyboardInterrupt:
            is_stopped = True
        screen.end()
        if not (place / MOMENTS).exists():
            if is_stopped:
                raise KeyboardInterrupt(
                    f"{watching.source}: stopped before the first moment; nothing was written"
                )
            raise VideoError(
                f"{watching.source}: a video must show something at a key time; this one does not "
                f"({watching.report.summary()}). Nothing was written."
            )
        summary = write_outputs(
            place,
            watching.source,
            exports=exports,
            has_video=has_video,
            codec=codec,
            thumbnails=bundle.thumbnails,
            writing=screen.writing,
        )
    _print_summary(summary, watching, place, speed=screen.speed)
    if is_stopped:
        raise KeyboardInterrupt(f"stopped at {summary.end_s:g} s; --resume continues from there")
    return watching, summary


def _status(video: str, watching: "Watcher", summary: "Summary") -> tuple[Status, str]:
    if watching.report.stopped_by is not None and not watching.is_live:
        return (
            "damaged",
            f"{video}: only a part could be read ({watching.report.stopped_by}); it was watched.",
        )
    return ("done" if summary.actors else "no person"), ""


class _Screen:
    """A progress bar on a terminal, and sentences."""

    def __init__(self) -> None:
        self._bar = progress_bar(
            TextColumn("{task.description}", markup=False),
            BarColumn(),
            TextColumn("{task.fields[status]}", markup=False),
            TimeRemainingColumn(),
        )
        self._task = self._bar.add_task("opening", total=None, status="")
        self._watch: Watcher | None = None
        self._started_at = time.perf_counter()
        self._first_s: float | None = None
        self._has_drifted = False
        self.speed = 0.0
        """Seconds of video per second."""

    def __enter__(self) -> "_Screen":
        self._bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._bar.stop()

    def begin(self, watch: "Watcher") -> None:
        self._watch = watch
        self._has_drifted = watch.drift.is_alarm
        self._started_at = time.perf_counter()
        source = watch.header.source
        self._bar.update(self._task, description=Text(source.video).plain, total=source.duration_s)

    def saw(self, moment: "Moment") -> None:
        watch = self._watch
        if watch is None:
            return
        every_s = watch.header.every_s
        self._first_s = moment.key_time_s if self._first_s is None else self._first_s
        seen_s = moment.key_time_s - self._first_s + every_s
        self.speed = seen_s / max(time.perf_counter() - self._started_at, 1e-9)
        status = [
            f"{moment.key_time_s:.1f} s",
            f"{self.speed:.2f} × real time",
            f"{len(moment.actors)} actors",
        ]
        if watch.latency_s is not None:
            status += [f"latency {watch.latency_s:.1f} s", f"{watch.num_dropped} skipped"]
        self._bar.update(self._task, completed=moment.key_time_s + every_s, status=", ".join(status))
        if watch.drift.is_alarm and not self._has_drifted:
            self._has_drifted = True
            self.noted(f"drift at {moment.key_time_s:.1f} s: {watch.drift.in_words()}")

    def end(self) -> None:
        self._bar.update(self._task, status="", description="writing")

    def writing(self, name: str) -> None:
        self._bar.update(self._task, description=f"writing {name}")

    def noted(self, sentence: str) -> None:
        self._bar.console.print(Text(sentence), soft_wrap=True)


def _print_summary(summary: "Summary", watch: "Watcher", folder: Path, *, speed: float) -> None:
    from mule.watching.outputs.looks_file import LOOKS
    from mule.watching.outputs.summary import TABLE_TITLES, summary_rows

    table = Table(title=Text(f"{summary.header.source.video}: who did what, most novel first"))
    for title in TABLE_TITLES:
        table.add_column(title, overflow="fold")
    for row in summary_rows(summary):
        table.add_row(*map(Text, row))
    console = Console()
    console.print(table)
    for line in _facts(summary, watch, speed=speed):
        console.print(Text(line), soft_wrap=True)
    for path in sorted(folder.iterdir()):
        if not path.name.startswith(("resume.", ".")):
            typer.echo(f"{path}{_size(path) if path.name == LOOKS else ''}")


def _size(path: Path) -> str:
    return f" ({path.stat().st_size / 1e6:.1f} MB)"


def _facts(summary: "Summary", watch: "Watcher", *, speed: float) -> list[str]:
    threshold = summary.header.threshold
    lines = [
        f"{summary.num_moments} key times, {len(summary.actors)} actors, {summary.num_novel} novel at some time; "
        f"{threshold.name}: {threshold.meaning}",
        f"{speed:.2f} seconds of video per second",
        f"calibration: {watch.calibration}",
    ]
    if watch.latency_s is not None:
        lines.append(f"latency {watch.latency_s:.1f} s at the end, {watch.num_dropped} key times skipped")
    if watch.report.num_damaged or watch.report.stopped_by:
        lines.append(f"reading the video: {watch.report.summary()}")
    if watch.drift.is_alarm:
        lines.append(f"drift: {watch.drift.in_words()}")
    return lines
