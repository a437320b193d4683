"""`python -m studies.variants`: the experiments of the studies that change more than the system."""

import tomllib
from pathlib import Path
from typing import Annotated, NamedTuple

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from mule.core.config import experiment_toml, load_experiment
from mule.core.errors import RangeError
from mule.core.files import write_file
from mule.core.settings import Experiment
from studies.commands import run

VARIANTS = Path(__file__).with_name("variants.toml")

app = typer.Typer(add_completion=False)


class Variant(NamedTuple):
    """An experiment of the package with settings on top."""

    about: str
    experiment: str
    settings: tuple[str, ...]

    def load(self) -> Experiment:
        """Return the experiment with its settings."""
        return load_experiment(Path(self.experiment), self.settings)


def read_variants() -> dict[str, Variant]:
    """Return every variant by name."""
    tables = tomllib.loads(VARIANTS.read_text(encoding="utf-8"))
    return {
        name: Variant(each["about"], each["experiment"], tuple(each["set"])) for name, each in tables.items()
    }


@app.command()
def variants(
    names: Annotated[
        list[str] | None,
        typer.Argument(metavar="NAME...", help="Variants to write; without names, list all."),
    ] = None,
    out: Annotated[Path, typer.Option(metavar="DIR", help="Folder for NAME.toml.")] = Path(
        "runs/experiments"
    ),
) -> None:
    """List the variants, or write some as experiment files for `mule train` and `mule compare`."""
    known = read_variants()
    unknown = [name for name in names or [] if name not in known]
    if unknown:
        raise RangeError(f"a variant must be one of {', '.join(known)}; got {', '.join(unknown)}.")
    for name in names or []:
        write_file(out / f"{name}.toml", experiment_toml(known[name].load()))
        typer.echo(out / f"{name}.toml")
    if not names:
        table = Table("Variant", "What it changes", "Settings")
        for name, each in known.items():
            table.add_row(Text(name), Text(each.about), Text("\n".join((each.experiment, *each.settings))))
        Console().print(table)


if __name__ == "__main__":
    run(app, "studies.variants")
