"""The `mule` command."""

from importlib.metadata import version
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from mule.cli import (
    bundle,
    compare,
    data,
    data_from,
    data_split,
    evaluate,
    export,
    features,
    memory,
    models,
    stage,
    teach,
    train,
    watch,
    weights,
)
from mule.core.errors import MuleError
from mule.core.heap import keep_freed_memory


class _Commands(TyperGroup):
    """Commands that answer wrong input with its message alone, and exit code 2."""

    def invoke(self, ctx: Any) -> Any:  # noqa: ANN401 - the signature is click's
        try:
            return super().invoke(ctx)
        except MuleError as error:
            typer.echo(f"mule: {error}", err=True)
            raise typer.Exit(2) from None


app = typer.Typer(
    cls=_Commands, no_args_is_help=True, add_completion=False, pretty_exceptions_show_locals=False
)
data.app.add_typer(data_from.app)
data.app.add_typer(data_split.app)
app.add_typer(data.app, name="data")
app.add_typer(stage.app, name="stage")
app.add_typer(evaluate.app, name="evaluate")
app.add_typer(features.app, name="features")
app.add_typer(weights.app, name="weights")
app.command()(models.models)
app.command()(train.train)
app.command()(compare.compare)
app.add_typer(memory.app, name="memory")
app.command()(teach.teach)
app.command()(bundle.bundle)
app.command()(watch.watch)
app.command()(export.export)


def _print_version(is_wanted: bool) -> bool:
    if is_wanted:
        typer.echo(f"mule {version('mule')}")
        raise typer.Exit
    return is_wanted


@app.callback()
def main(
    _version: Annotated[
        bool,
        typer.Option("--version", callback=_print_version, is_eager=True, help="Say the version and stop."),
    ] = False,
) -> None:
    """Open-set action recognition for every person in a video."""


def run() -> None:
    """Run the command line; wrong input ends in one sentence on stderr and exit code 2."""
    keep_freed_memory()
    app()
