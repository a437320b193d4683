"""`mule weights`: published weights listed, fetched and looked into. Torch is imported when a command runs."""

from pathlib import Path
from typing import Annotated

import typer

app = typer.Typer(help="List, fetch and check published weights.", no_args_is_help=True)

FolderOption = Annotated[
    Path | None, typer.Option(help="Where files are kept; by default mule in the user's cache folder.")
]


@app.command("list")
def list_cards(
    names: Annotated[list[str] | None, typer.Argument(help="Say all there is to say about these.")] = None,
    folder: FolderOption = None,
) -> None:
    """The weights there are cards for, and which of them are on disk."""
    from mule.cli import show_weights

    if names:
        for name in names:
            show_weights.card(name, folder)
    else:
        show_weights.cards(folder)


@app.command()
def pull(
    names: Annotated[list[str], typer.Argument(help="Names from `mule weights list`.")],
    folder: FolderOption = None,
    offline: Annotated[
        bool, typer.Option("--offline", envvar="MULE_OFFLINE", help="Ask no server; use what is on disk.")
    ] = False,
) -> None:
    """Fetch weights, or go on where a fetch broke off, and check them against what their publisher says."""
    from mule.cli import show_weights

    for name in names:
        show_weights.pull(name, folder, offline=offline)


@app.command()
def check(
    file: Annotated[Path, typer.Argument(help="A file of weights in any format that is read.")],
    card: Annotated[str | None, typer.Option(help="The card it must agree with; by default any.")] = None,
) -> None:
    """What a file of weights is, and which cards it keeps the promise of; nothing in it is run."""
    from mule.cli import show_weights

    show_weights.check(file, card)
