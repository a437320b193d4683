"""What the tests of the studies' commands share; see `from_files`."""

import typer
from from_files import assert_refused, assert_same, assert_survives_the_file, table_of, written
from typer.testing import CliRunner

from mule.cli import main

__all__ = ["assert_refused", "assert_same", "assert_survives_the_file", "run_study", "table_of", "written"]


def run_study(app, *arguments):
    """The command with errors reported as `mule` does."""
    group = typer.Typer(cls=main.app.info.cls)
    group.add_typer(app, name="study")
    return CliRunner().invoke(group, ["study", *map(str, arguments)], env={"COLUMNS": "200"})
