"""`mule teach`: one more action from a few examples, without retraining. Torch is imported when the command runs."""

from pathlib import Path
from typing import Annotated

import typer

from mule.cli.memory import SettingsOption


def teach(
    run_dir: Annotated[Path, typer.Argument(metavar="MODEL", help="The folder of a finished run.")],
    class_name: Annotated[str, typer.Option("--class", metavar="NAME", help="The action to teach.")],
    examples: Annotated[
        Path, typer.Option(metavar="TABLE", help="Actors doing it, .csv or .parquet; 10 to 20 are plenty.")
    ],
    videos: Annotated[Path, typer.Option(metavar="DIR", help="Where the videos of the table lie.")],
    memory: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="By default memory.safetensors in the run's folder."),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE", help="Where the taught memory goes; by default in place of the old one."
        ),
    ] = None,
    settings: SettingsOption = None,
) -> None:
    """Teach an action: it is recognised from then on and no longer called novel, and nothing else is forgotten.

    Rows of the table that do not do the action are not looked at. The run must have a memory (`mule memory build`).
    """
    from mule.cli import remember, show_memory
    from mule.memory.files import read_memory
    from mule.memory.teaching import teach as taught

    place = memory or run_dir / remember.MEMORY
    content = read_memory(place, model=remember.fingerprint(run_dir))
    actors = remember.seen_in_table(run_dir, examples, videos, settings=settings or [], doing=class_name)
    show_memory.taught(taught(content, actors.at_known(content), class_name=class_name), out or place)
