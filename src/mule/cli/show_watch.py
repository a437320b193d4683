"""Watching as people see it: a bar with the speed, then who did what and who was novel, and where it is written."""

import time
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path

import typer
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table
from rich.text import Text

from mule.cli.show_features import VIDEO_NAME
from mule.core.errors import DetectorError, MuleError, RangeError
from mule.core.files import cache_folder, sha256_of
from mule.detection.cards import YOLOX_CARDS
from mule.features.weights.download import place_of, require_checksum
from mule.video.sources import natural_key
from mule.watching.engine.bundle import SCENE_BOXES, Bundle, read_bundle
from mule.watching.engine.watch import Watcher, WatchSettings, open_watch, video_name
from mule.watching.moments import Moment, printable
from mule.watching.outputs.exports import EXPORTS
from mule.watching.outputs.results import MOMENTS, recorded, write_outputs
from mule.watching.outputs.summary import TABLE_TITLES, Summary, summary_rows

STOPPED = 130
"""The exit code of a command that was interrupted, as shells have it."""
WATCHED = Path("watched")


@dataclass(frozen=True)
class Wanted:
    """What is to be watched, with what, and where it goes."""

    source: str
    model: Path
    detector: str | None
    out: Path | None
    resumes: bool
    exports: tuple[str, ...]
    has_video: bool
    runtime: str = "torch"


def watched(wanted: Wanted, settings: WatchSettings, *, has_every: bool) -> int:
    """Watches every video that the source stands for; the exit code: 0, 2 if one failed, 130 if interrupted."""
    unknown = [name for name in wanted.exports if name not in EXPORTS]
    if unknown:
        raise RangeError(f"--export must be one of {', '.join(EXPORTS)}; got {', '.join(unknown)}.")
    bundle = read_bundle(wanted.model).on(wanted.runtime)
    if not has_every:
        settings = replace(settings, every_s=bundle.card.every_s)
    videos = _videos(wanted.source)
    if len(videos) == 1:
        return _watched(videos[0], bundle, wanted, settings, folder=wanted.out)
    failures: list[MuleError] = []
    for video in videos:
        folder = (wanted.out or WATCHED) / Path(video).name
        try:
            code = _watched(video, bundle, wanted, settings, folder=folder)
        except MuleError as error:
            failures.append(error)
            continue
        if code:
            return code
    for failure in failures:
        typer.echo(f"mule: {failure}", err=True)
    return 2 if failures else 0


def _watched(
    video: str, bundle: Bundle, wanted: Wanted, settings: WatchSettings, *, folder: Path | None
) -> int:
    detector = _detector(wanted.detector, bundle)
    with _Screen() as screen:
        watch = open_watch(video, bundle, detector=detector, settings=settings, noted=screen.noted)
        place = folder or WATCHED / _folder_name(video_name(watch.source))
        is_stopped = False
        screen.begin(watch)
        try:
            with closing(recorded(watch, place, resumes=wanted.resumes)) as moments:
                for moment in moments:
                    screen.saw(moment)
        except KeyboardInterrupt:
            is_stopped = True
        screen.end()
        if not (place / MOMENTS).exists():
            screen.noted(f"{video}: stopped before the first moment; nothing was written")
            return STOPPED
        summary = write_outputs(
            place,
            watch.source,
            exports=wanted.exports,
            has_video=wanted.has_video,
            thumbnails=bundle.thumbnails,
            told=screen.writing,
        )
    _tell(summary, watch, place, speed=screen.speed)
    if is_stopped:
        typer.echo(f"stopped at {summary.end_s:g} s; --resume goes on from there", err=True)
    return STOPPED if is_stopped else 0


def _videos(address: str) -> Sequence[str]:
    """The videos in a folder, by name; anything else, and a folder of images too, stands for itself."""
    folder = Path(address)
    if "://" in address or not folder.is_dir():
        return [address]
    files = [path for path in folder.iterdir() if VIDEO_NAME.fullmatch(path.name) and path.is_file()]
    return [str(path) for path in sorted(files, key=lambda path: natural_key(path.name))] or [address]


def _detector(text: str | None, bundle: Bundle) -> str | Path | None:
    """A file or folder as it is, a card by its file in the cache; None for what the model has or finds by itself."""
    if text is None and bundle.own_detector is not None:
        return None
    name = text or bundle.card.detector
    if text is not None and Path(text).exists():
        return text
    if name in YOLOX_CARDS:
        card = YOLOX_CARDS[name]
        path = place_of(card, cache_folder())
        if not path.is_file():
            raise DetectorError(
                f"{path}: the detector must be on disk; it is not. Run `mule weights pull {name}`."
            )
        require_checksum(card, sha256_of(path), path)
        return path
    if text is None and name == SCENE_BOXES:
        return None
    raise DetectorError(
        f"{name}: a detector must be a file, a folder or one of {', '.join(YOLOX_CARDS)}; it is none."
    )


def _folder_name(video: str) -> str:
    """A name that is one folder and no other, whatever the address had in it."""
    name = "".join(letter if letter.isalnum() or letter in "._- " else "_" for letter in printable(video))
    return name.strip(". ") or "video"


class _Screen:
    """A bar on a terminal, and sentences."""

    def __init__(self) -> None:
        self._console = Console(stderr=True)
        self._bar = Progress(
            TextColumn("{task.description}", markup=False),
            BarColumn(),
            TextColumn("{task.fields[said]}", markup=False),
            TimeRemainingColumn(),
            console=self._console,
            transient=True,
            disable=not self._console.is_terminal,
        )
        self._task = self._bar.add_task("opening", total=None, said="")
        self._watch: Watcher | None = None
        self._started_at = time.perf_counter()
        self._first_s: float | None = None
        self._latest_s = 0.0
        self._has_drifted = False
        self._num_actors = 0
        self.speed = 0.0
        """Seconds of video per second."""

    def __enter__(self) -> "_Screen":
        self._bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._bar.stop()

    def begin(self, watch: Watcher) -> None:
        self._watch = watch
        self._has_drifted = watch.drift.is_alarm
        self._started_at = time.perf_counter()
        source = watch.header.source
        self._bar.update(self._task, description=Text(source.video).plain, total=source.duration_s)

    def saw(self, moment: Moment) -> None:
        watch = self._watch
        if watch is None:
            return
        every_s = watch.header.every_s
        self._first_s = moment.key_time_s if self._first_s is None else self._first_s
        seen_s = moment.key_time_s - self._first_s + every_s
        self.speed = seen_s / max(time.perf_counter() - self._started_at, 1e-9)
        said = [f"{moment.key_time_s:.1f} s", f"{self.speed:.2f} × real time", f"{len(moment.actors)} actors"]
        if watch.latency_s is not None:
            said += [f"latency {watch.latency_s:.1f} s", f"{watch.num_dropped} dropped"]
        self._bar.update(self._task, completed=moment.key_time_s + every_s, said=", ".join(said))
        if watch.drift.is_alarm and not self._has_drifted:
            self._has_drifted = True
            self.noted(f"drift at {moment.key_time_s:.1f} s: {watch.drift.in_words()}")

    def end(self) -> None:
        self._bar.update(self._task, said="", description="writing")

    def writing(self, name: str) -> None:
        self._bar.update(self._task, description=f"writing {name}")

    def noted(self, sentence: str) -> None:
        self._console.print(Text(sentence), soft_wrap=True)


def _tell(summary: Summary, watch: Watcher, folder: Path, *, speed: float) -> None:
    header = summary.header
    table = Table(*TABLE_TITLES, title=Text(f"{header.source.video}: who did what, most novel first"))
    for row in summary_rows(summary):
        table.add_row(*map(Text, row))
    console = Console()
    console.print(table)
    threshold = header.threshold
    lines = [
        f"{summary.num_moments} key times, {len(summary.actors)} actors, {summary.num_novel} novel at some time; "
        f"{threshold.name}: {threshold.meaning}",
        f"{speed:.2f} seconds of video per second",
    ]
    if watch.latency_s is not None:
        lines.append(f"latency {watch.latency_s:.1f} s at the end, {watch.num_dropped} key times dropped")
    if watch.report.num_damaged or watch.report.stopped_by:
        lines.append(f"read: {watch.report.summary()}")
    if watch.drift.is_alarm:
        lines.append(f"drift: {watch.drift.in_words()}")
    for line in lines:
        console.print(Text(line), soft_wrap=True)
    for path in sorted(folder.iterdir()):
        if not path.name.startswith(("resume.", ".")):
            typer.echo(f"{path}")
