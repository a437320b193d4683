"""The `mule` command."""

from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from mule.cli import (
    bundle,
    compare,
    data,
    data_detect,
    data_from,
    data_split,
    decide,
    discover,
    ending,
    evaluate,
    export,
    features,
    memory,
    models,
    review,
    share,
    stage,
    teach,
    train,
    watch,
    weights,
)
from mule.core import __version__
from mule.core.heap import keep_freed_memory
from mule.core.signals import take_sigterm_for_ctrl_c
from mule.core.threads import share_cores


class _Commands(TyperGroup):
    """Commands that end in one sentence whatever happens, and list whole sentences in their help."""

    def invoke(self, ctx: Any) -> Any:  # noqa: ANN401 - the signature is click's
        try:
            return super().invoke(ctx)
        except BaseException as error:
            shows_traceback = bool(ctx.find_root().params.get("shows_traceback"))
            code = ending.told(error, shows_traceback=shows_traceback)
            if code is None:
                raise
            raise typer.Exit(code) from None

    def format_commands(self, ctx: Any, formatter: Any) -> None:  # noqa: ANN401 - the signature is click's
        """List the commands with the first sentence of each, wrapped; click cuts it to one line."""
        shown = {name: self.get_command(ctx, name) for name in self.list_commands(ctx)}
        rows = [
            (name, command.get_short_help_str(limit=1000))
            for name, command in shown.items()
            if command is not None and not command.hidden
        ]
        with formatter.section("Commands"):
            formatter.write_dl(rows)


app = typer.Typer(
    cls=_Commands,
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_show_locals=False,
    rich_markup_mode=None,  # boxes leave too little room for words in 80 columns
)
data.app.add_typer(data_detect.app)
data.app.add_typer(data_from.app)
data.app.add_typer(data_split.app)
app.command("watch")(watch.watch_videos)
app.command()(decide.decide)
app.command()(discover.discover)
app.command()(review.review)
app.command()(train.train)
app.command()(bundle.bundle)
app.command()(teach.teach)
app.add_typer(memory.app, name="memory", cls=_Commands)
app.add_typer(data.app, name="data", cls=_Commands)
app.add_typer(evaluate.app, name="evaluate", cls=_Commands)
app.command("compare")(compare.compare_experiments)
app.command()(models.models)
app.command("push")(share.push_model)
app.command("pull")(share.pull_model)
app.add_typer(weights.app, name="weights", cls=_Commands)
app.add_typer(features.app, name="features", cls=_Commands)
app.add_typer(stage.app, name="stage", cls=_Commands)
app.command()(export.export)


def _print_version(is_wanted: bool) -> bool:
    if is_wanted:
        typer.echo(f"mule {__version__}")
        raise typer.Exit
    return is_wanted


@app.callback()
def main(
    _version: Annotated[
        bool,
        typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version and exit."),
    ] = False,
    shows_traceback: Annotated[
        bool, typer.Option("--traceback", help="Show where an unexpected error happened.")
    ] = False,
) -> None:
    """Recognise what every person in a video does, and notice actions never taught."""


def run() -> None:
    """Run the command line; whatever goes wrong ends in one sentence on stderr, as `mule.cli.ending` lists."""
    share_cores()
    keep_freed_memory()
    take_sigterm_for_ctrl_c()
    try:
        app()
    except SystemExit as end:
        if end.code == ending.STOPPED:
            ending.leave(ending.STOPPED)
        raise
