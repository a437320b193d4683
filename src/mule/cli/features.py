"""`mule features`: what a frozen backbone makes of videos. Torch is imported when a command runs."""

from fractions import Fraction
from pathlib import Path
from typing import Annotated, Literal

import typer

from mule.cli.numbers import positive

app = typer.Typer(help="Compute features of videos once, and keep them.", no_args_is_help=True)


@app.callback()
def features() -> None:
    """Compute features of videos once, and keep them."""


@app.command()
def extract(
    videos: Annotated[
        list[str],
        typer.Argument(
            metavar="VIDEO_OR_FOLDER",
            help="Videos, lists of images, folders of frames, or folders of videos (not their subfolders).",
        ),
    ],
    weights: Annotated[
        str,
        typer.Option(metavar="CARD_OR_FILE", help="A name from `mule weights list`, or a file of weights."),
    ],
    out: Annotated[Path, typer.Option(metavar="DIR", help="Where features are kept, one file per video.")],
    card: Annotated[
        str | None, typer.Option(help="What a file of weights is, where several cards fit it.")
    ] = None,
    every: Annotated[
        Fraction, typer.Option(parser=positive, metavar="SECONDS", help="From one clip to the next.")
    ] = Fraction(1),
    rate: Annotated[
        Fraction | None,
        typer.Option(
            parser=positive,
            metavar="FPS",
            help="Frames per second by which clips are cut (AVA: 30); by default the video's own.",
        ),
    ] = None,
    short_side: Annotated[
        int | None,
        typer.Option(min=1, metavar="PX", help="Of the frames; by default as the weights were tested."),
    ] = None,
    half: Annotated[bool, typer.Option("--half", help="Keep features in half precision.")] = False,
    batch: Annotated[int, typer.Option(min=1, help="Clips that go through the backbone together.")] = 1,
    device: Annotated[str, typer.Option(help="Where the backbone runs, as torch names it.")] = "cpu",
    runtime: Annotated[
        Literal["torch", "openvino"],
        typer.Option(
            help="What runs the backbone; OpenVINO, an extra of this package, compiles it for the CPU."
        ),
    ] = "torch",
) -> None:
    """The context map of each clip of each video, from which features of any boxes can be pooled.

    What is there already, made from the same video with the same weights and settings, is not computed again. A run
    that was stopped goes on where it was. A video that cannot be read does not stop the others; the exit code is 2.
    """
    from mule.cli import show_features
    from mule.features.extraction import frozen_backbone

    path, found = show_features.weights(weights, card)
    backbone = frozen_backbone(
        path, found, short_side_px=short_side, frame_rate=rate, half=half, device=device
    )
    if runtime == "openvino":
        from mule.runtime.openvino import compiled_frozen

        backbone = compiled_frozen(backbone)
    if show_features.extract(videos, backbone, out, period_s=every, batch_clips=batch):
        raise typer.Exit(2)


@app.command("of")
def of_experiment(
    experiment: Annotated[
        Path, typer.Argument(metavar="EXPERIMENT.toml", help="One with a frozen backbone.")
    ],
    overrides: Annotated[
        list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="As for `mule train`.")
    ] = None,
) -> None:
    """The maps of every clip of an experiment's table, as training and evaluation will look for them.

    They would compute what is missing themselves; this does it beforehand, for all sides of every split at once.
    """
    from mule.cli.count_bar import CountBar
    from mule.core.config import load_experiment
    from mule.training.experiments import with_usual_places
    from mule.training.maps import keep_all_features

    wanted = with_usual_places(load_experiment(experiment, overrides or []))
    with CountBar("videos") as bar:
        num_videos, num_computed = keep_all_features(wanted, on_progress=bar)
    typer.echo(f"maps of {num_videos} videos are kept; {num_computed} were computed now")
