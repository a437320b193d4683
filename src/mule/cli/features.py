"""`mule features`: the feature maps a frozen backbone computes of videos. Torch is imported when a command runs."""

from contextlib import suppress
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer
from rich import progress as rich_progress
from rich.text import Text

from mule.cli.ending import Items
from mule.cli.printing import CountBar, positive, progress_bar

if TYPE_CHECKING:
    from mule.features.extraction import Extraction, ExtractionProgress
    from mule.video.sources import DecodeReport

app = typer.Typer(help="Compute features of videos once and keep them.", no_args_is_help=True)


@app.command()
def extract(
    videos: Annotated[
        list[str],
        typer.Argument(
            metavar="VIDEO_OR_FOLDER",
            help="Videos, lists of images, folders of frames, or folders of videos (without subfolders).",
        ),
    ],
    weights: Annotated[
        str,
        typer.Option(metavar="NAME_OR_FILE", help="A name from `mule weights list`, or a weights file."),
    ],
    out: Annotated[Path, typer.Option(metavar="DIR", help="Folder for features, one file per video.")],
    card: Annotated[
        str | None,
        typer.Option(
            metavar="NAME", help="Card of a weights file, if it fits several. See `mule weights check`."
        ),
    ] = None,
    every: Annotated[
        Fraction,
        typer.Option(parser=positive, metavar="SECONDS", help="Seconds from one clip to the next."),
    ] = Fraction(1),
    rate: Annotated[
        Fraction | None,
        typer.Option(
            parser=positive,
            metavar="FPS",
            help="Frame rate at which clips are cut (AVA: 30). Default: the video's own.",
        ),
    ] = None,
    short_side: Annotated[
        int | None,
        typer.Option(
            min=1, metavar="PX", help="Shorter side of the frames. Default: as the weights were tested."
        ),
    ] = None,
    half: Annotated[bool, typer.Option("--half", help="Store features in half precision.")] = False,
    batch: Annotated[
        int, typer.Option(min=1, metavar="N", help="Clips per forward pass of the backbone.")
    ] = 1,
    device: Annotated[
        str | None,
        typer.Option(
            metavar="NAME", help="Torch device of the backbone. Default: a GPU if there is one, else the CPU."
        ),
    ] = None,
    runtime: Annotated[
        Literal["torch", "openvino"],
        typer.Option(
            metavar="torch|openvino",
            help="Inference runtime. OpenVINO compiles the backbone for the CPU (pip install 'mule-actions[openvino]').",
        ),
    ] = "torch",
) -> None:
    """Compute the feature map of every clip of every video.

    Features of any boxes can later be pooled from the maps. Maps of the same video, weights and settings are reused,
    and an interrupted command continues where it stopped. A video that cannot be read does not stop the others; the
    exit code is then 2.
    """
    from mule.core.processes import own_device
    from mule.features.cache import Every
    from mule.features.extraction import Extractor, frozen_backbone
    from mule.features.weights.loading import weights_on_disk
    from mule.video.sources import videos_at

    path, found_card = weights_on_disk(weights, card)
    default = "cpu" if runtime == "openvino" else str(own_device())
    backbone = frozen_backbone(
        path, found_card, short_side_px=short_side, frame_rate=rate, half=half, device=device or default
    )
    if runtime == "openvino":
        from mule.runtime.openvino import compiled_frozen

        backbone = compiled_frozen(backbone)
    extractor = Extractor(backbone, out, batch_clips=batch)
    sources = [video for address in videos for video in videos_at(address)]
    items = Items(sources)
    with suppress(KeyboardInterrupt):  # the status of the video says it
        for number, video in enumerate(sources, start=1):
            with items.of(video):
                with _ClipBar(f"{number}/{len(sources)} {Path(video).name}") as bar:
                    extraction = extractor.extract(video, Every(every), on_progress=bar)
                _print_extraction(video, extraction)
                stopped_by = extraction.report.stopped_by
                if stopped_by is not None:
                    items.note(video, "damaged", f"{video}: only a part could be read ({stopped_by})")
    items.end()


@app.command("of")
def of_experiment(
    experiment: Annotated[
        Path, typer.Argument(metavar="EXPERIMENT.toml", help="An experiment with a frozen backbone.")
    ],
    overrides: Annotated[
        list[str] | None,
        typer.Option(
            "--set", metavar="KEY=VALUE", help="Override a setting, as in `mule train`. Repeatable."
        ),
    ] = None,
) -> None:
    """Compute the feature maps that an experiment will need.

    Training and evaluation compute missing maps themselves; this command computes those of every split beforehand.
    """
    from mule.core.config import load_experiment

    loaded = load_experiment(experiment, overrides or [])  # stops at a wrong file before torch is imported
    from mule.training.maps import keep_all_features
    from mule.training.run_folder import with_default_paths

    with CountBar("videos") as bar:
        num_videos, num_computed = keep_all_features(with_default_paths(loaded), on_progress=bar)
    typer.echo(f"feature maps of {num_videos} videos are on disk; {num_computed} were computed now")


def _print_extraction(video: str, extraction: "Extraction") -> None:
    how = "cached" if extraction.was_cached else "computed"
    if extraction.progress.num_reused:
        how += f" ({extraction.progress.num_reused} clips were there already)"
    num_clips, elapsed_s = len(extraction.features), extraction.elapsed_s
    clips = "1 clip" if num_clips == 1 else f"{num_clips} clips"
    typer.echo(f"{Path(video).name}: {clips}, {elapsed_s:.1f} s, {how}, {extraction.path}")
    for reason in extraction.discarded:
        typer.echo(f"  not used: {reason}")
    if _has_problems(extraction.report):
        typer.echo(f"  read: {extraction.report.summary()}")


def _has_problems(report: "DecodeReport") -> bool:
    """Whether reading met more than the ends of the video, which every first and last clip meets."""
    ordinary = ("num_decoded", "num_clamped")
    counts = [n for name, n in vars(report).items() if name.startswith("num_") and name not in ordinary]
    return any(counts) or report.stopped_by is not None


class _Speed(rich_progress.ProgressColumn):
    def render(self, task: rich_progress.Task) -> Text:
        speed = task.finished_speed or task.speed
        return Text("" if speed is None else f"{speed:.2f} clips/s")


class _ClipBar:
    """A progress bar with the speed in clips."""

    def __init__(self, title: str) -> None:
        self._title = title
        self._task: rich_progress.TaskID | None = None
        self._progress = progress_bar(
            rich_progress.TextColumn("{task.description}", markup=False),
            rich_progress.BarColumn(),
            rich_progress.MofNCompleteColumn(),
            _Speed(),
            rich_progress.TimeRemainingColumn(),
        )

    def __enter__(self) -> "_ClipBar":
        self._progress.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._progress.stop()

    def __call__(self, progress: "ExtractionProgress") -> None:
        num_done = progress.num_reused + progress.num_computed
        if self._task is None:  # starts at the reused clips, so that the speed is that of computing
            self._task = self._progress.add_task(self._title, total=progress.num_expected, completed=num_done)
        self._progress.update(self._task, total=progress.num_expected, completed=num_done)
