"""`mule teach`: one more action from a few examples, without retraining. Torch is imported when the command runs."""

from pathlib import Path
from typing import Annotated

import typer

from mule.cli.memory import SettingsOption, VideosOption


def teach(
    run_dir: Annotated[Path, typer.Argument(metavar="MODEL", help="The folder of a finished run.")],
    class_name: Annotated[str, typer.Option("--class", metavar="NAME", help="The action to teach.")],
    examples: Annotated[
        Path, typer.Option(metavar="TABLE", help="Actors doing it, .csv or .parquet; 10 to 20 are plenty.")
    ],
    videos: VideosOption = None,
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

    Rows of the table that do not do the action are not looked at, nor are those from videos that held-out actors are from.
    The run must have a memory (`mule memory build`).
    """
    from mule.cli import remember, show_memory
    from mule.memory.files import read_memory
    from mule.memory.teaching import require_new
    from mule.memory.teaching import teach as taught

    file = memory or run_dir / remember.MEMORY
    place = show_memory.place_for(out, instead_of=file)
    content = read_memory(file, model=remember.fingerprint(run_dir))
    with show_memory.about(file):
        require_new(content, class_name)
    actors = remember.seen_in_table(run_dir, examples, videos, settings=settings or [], doing=class_name)
    show_memory.noted_held_out(content.held_out, actors.actors.places.videos())
    exemplars = remember.apart_in_table(actors.at_known(content), content, examples)
    with show_memory.about(file):
        show_memory.taught(taught(content, exemplars, class_name=class_name), place)
