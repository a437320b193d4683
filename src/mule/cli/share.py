"""`mule push` and `mule pull`: share models on the Hugging Face Hub."""

from pathlib import Path
from typing import Annotated

import typer

Name = Annotated[str, typer.Argument(metavar="OWNER/NAME", help="The model on the Hub.", show_default=False)]


def push_model(
    folder: Annotated[
        Path,
        typer.Argument(
            metavar="MODEL", help="Folder that `mule bundle` or `mule train --data` made.", show_default=False
        ),
    ],
    name: Name,
    is_public: Annotated[bool, typer.Option("--public", help="Let everybody see a new repository.")] = False,
) -> None:
    """Put a model on the Hugging Face Hub, with a card of what it knows, how well, and what it cannot do.

    The token is the one that `hf auth login` stored, or HF_TOKEN. Models that hold pickles are refused.
    """
    from mule.api.hub import push_to_hub

    typer.echo(push_to_hub(folder, name, is_private=not is_public))


def pull_model(
    name: Name,
    out: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR", help="New folder. Default: NAME in the current folder.", show_default=False
        ),
    ] = None,
    revision: Annotated[
        str | None,
        typer.Option(
            metavar="REVISION", help="Commit, tag or branch. Default: the latest.", show_default=False
        ),
    ] = None,
) -> None:
    """Fetch a model from the Hugging Face Hub; every file is compared with the model's checksums."""
    from mule.api.hub import pull_from_hub

    folder = pull_from_hub(name, out or Path(name.rpartition("/")[2]), revision=revision)
    typer.echo(f"{folder}: `mule watch video.mp4 --model {folder}` watches with it")
