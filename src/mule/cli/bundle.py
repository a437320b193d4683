"""`mule bundle`: a finished run made ready to watch with. Torch is imported when the command runs."""

from pathlib import Path
from typing import Annotated

import typer


def bundle(
    run_dir: Annotated[Path, typer.Argument(metavar="RUN_DIR", help="The folder of a finished run.")],
    out: Annotated[Path, typer.Option(metavar="DIR", help="The folder to make; it must not exist yet.")],
    name: Annotated[
        str | None, typer.Option(help="What results call the model; by default the run's folder.")
    ] = None,
    memory: Annotated[
        bool, typer.Option("--memory/--no-memory", help="Whether training actors are remembered.")
    ] = True,
    share: Annotated[
        float, typer.Option(min=0.001, max=1.0, help="Of the memory, how much is kept; 0.1 loses little.")
    ] = 1.0,
    pictures: Annotated[
        bool, typer.Option("--pictures", help="Keep a small picture of every remembered actor.")
    ] = False,
    settings: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="KEY=VALUE", help="Where data now lies, such as data.root=DIR."),
    ] = None,
) -> None:
    """A folder for `mule watch --model`: weights, remembered training actors, and what is usual among known ones.

    Training actors become the memory, the known actors of the validation side the calibration. A run whose network has
    two outputs per action has no memory; its novelty is PE of log alone.
    """
    from mule.cli import show_bundle

    wanted = show_bundle.Wanted(run_dir, out, name or run_dir.resolve().name, has_memory=memory, share=share)
    show_bundle.made(wanted, settings or [], has_pictures=pictures)
