"""What the tests of converters of single data sets share; see `from_files`."""

import typer
from from_files import assert_refused, assert_same, assert_survives_the_file, table_of, written
from typer.testing import CliRunner

from mule.cli import data_from_more, main

__all__ = ["assert_refused", "assert_same", "assert_survives_the_file", "run", "table_of", "written"]


def run(*arguments):
    app = typer.Typer(cls=main.app.info.cls)
    app.add_typer(data_from_more.app, name="data")
    return CliRunner().invoke(app, ["data", *map(str, arguments)], env={"COLUMNS": "200"})
