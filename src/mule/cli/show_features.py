"""Features on their way to disk, shown to people."""

import re
from collections.abc import Sequence
from fractions import Fraction
from pathlib import Path

import typer
from rich import progress as rich_progress
from rich.console import Console
from rich.text import Text

from mule.core.errors import MuleError, NotFinite, VideoError, WeightsError
from mule.core.files import cache_folder, sha256_of
from mule.features.cache import Every
from mule.features.extraction import Extraction, ExtractionProgress, Extractor, FrozenBackbone
from mule.features.weights.cards import WEIGHT_CARDS, WeightCard, find_card
from mule.features.weights.download import place_of, require_checksum
from mule.video.sources import DecodeReport, natural_key

VIDEO_NAME = re.compile(
    r".*\.(3gp|asf|avi|flv|gif|h26[45]|hevc|m2ts|m4v|mkv|mov|mp4|mpe?g|mts|mxf|ogv|ts|vob|webm|wmv|y4m)",
    re.IGNORECASE | re.DOTALL,
)
"""What is taken from a folder. A video that is named itself may have any suffix."""


def weights(card_or_file: str, card_name: str | None) -> tuple[Path, WeightCard | None]:
    """A file of weights, and its card as far as that was named."""
    path = Path(card_or_file)
    if path.is_file() or card_or_file not in WEIGHT_CARDS:
        return path, None if card_name is None else find_card(card_name)
    card = find_card(card_or_file)
    path = place_of(card, cache_folder())
    if not path.is_file():
        raise WeightsError(
            f"{path}: weights must be on disk; these are not. Run `mule weights pull {card.name}`. {card.note}".rstrip()
        )
    require_checksum(card, sha256_of(path), path)
    return path, card


def extract(
    addresses: Sequence[str], backbone: FrozenBackbone, folder: Path, *, period_s: Fraction, batch_clips: int
) -> int:
    """Print a line for each video as its features come to be, then what failed; says how many videos did."""
    extractor = Extractor(backbone, folder, batch_clips=batch_clips)
    videos = [video for address in addresses for video in _videos(address)]
    failures: list[MuleError] = []
    try:
        for number, video in enumerate(videos, start=1):
            try:
                with _Bar(f"{number}/{len(videos)} {Path(video).name}") as bar:
                    extraction = extractor.extract(video, Every(period_s), on_progress=bar)
            except (VideoError, NotFinite) as error:
                failures.append(error)
            else:
                _print(video, extraction)
    finally:
        for failure in failures:
            typer.echo(f"mule: {failure}", err=True)
        if failures:
            typer.echo(f"mule: {len(failures)} of {len(videos)} videos failed.", err=True)
    return len(failures)


def _videos(address: str) -> list[str]:
    """The videos in a folder, by name; anything else, and a folder of frames too, stands for itself."""
    folder = Path(address)
    if not folder.is_dir():
        return [address]
    files = [path for path in folder.iterdir() if VIDEO_NAME.fullmatch(path.name) and path.is_file()]
    return [str(path) for path in sorted(files, key=lambda path: natural_key(path.name))] or [address]


def _print(video: str, extraction: Extraction) -> None:
    how = "cached" if extraction.was_cached else "computed"
    if extraction.progress.num_reused:
        how += f" ({extraction.progress.num_reused} clips were there already)"
    num_clips, elapsed_s = len(extraction.features), extraction.elapsed_s
    clips = "1 clip" if num_clips == 1 else f"{num_clips} clips"
    typer.echo(f"{Path(video).name}: {clips}, {elapsed_s:.1f} s, {how}, {extraction.path}")
    for reason in extraction.discarded:
        typer.echo(f"  not used: {reason}")
    if _is_worth_saying(extraction.report):
        typer.echo(f"  read: {extraction.report.summary()}")


def _is_worth_saying(report: DecodeReport) -> bool:
    """Whether reading met anything but the edges of the video, which every first and last clip meets."""
    ordinary = ("num_decoded", "num_clamped")
    counts = [n for name, n in vars(report).items() if name.startswith("num_") and name not in ordinary]
    return any(counts) or report.stopped_by is not None


class _Speed(rich_progress.ProgressColumn):
    def render(self, task: rich_progress.Task) -> Text:
        speed = task.finished_speed or task.speed
        return Text("" if speed is None else f"{speed:.2f} clips/s")


class _Bar:
    """A progress bar on a terminal that goes when it is done; silence anywhere else."""

    def __init__(self, title: str) -> None:
        console = Console(stderr=True)
        self._title = title
        self._task: rich_progress.TaskID | None = None
        self._progress = rich_progress.Progress(
            rich_progress.TextColumn("{task.description}", markup=False),
            rich_progress.BarColumn(),
            rich_progress.MofNCompleteColumn(),
            _Speed(),
            rich_progress.TimeRemainingColumn(),
            console=console,
            transient=True,
            disable=not console.is_terminal,
        )

    def __enter__(self) -> "_Bar":
        self._progress.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._progress.stop()

    def __call__(self, progress: ExtractionProgress) -> None:
        num_done = progress.num_reused + progress.num_computed
        if self._task is None:  # begins with what was there, so that the speed is that of the computing
            self._task = self._progress.add_task(self._title, total=progress.num_expected, completed=num_done)
        self._progress.update(self._task, total=progress.num_expected, completed=num_done)
