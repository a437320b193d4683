"""`mule models`: every backbone and every system, and what each costs. Torch is imported when the command runs."""

from typing import Annotated

import typer
from rich import box
from rich.console import Console
from rich.table import Table


def models(
    stage: Annotated[
        bool,
        typer.Option("--stage", help="Show systems as trained on Stage: tiny backbone, small relations."),
    ] = False,
) -> None:
    """List every backbone and system with its size and cost.

    Multiply-adds are those of convolutions and matrix products for one clip of the size shown. The clip of a system
    holds four actors and five objects.
    """
    from mule.systems.catalogue import SYSTEMS
    from mule.systems.costs import backbone_costs, system_costs

    console = Console()
    table = _table(
        "Backbones, as classifiers of Kinetics-400; clip: frames x rows x columns",
        ("backbone", "clip", "params", "published", "mult-adds", "published"),
    )
    for cost in backbone_costs():
        table.add_row(
            cost.name,
            "x".join(map(str, cost.input_size)),
            f"{cost.num_parameters / 1e6:.2f} M",
            "" if cost.published_parameters_m is None else f"{cost.published_parameters_m:.2f} M",
            f"{cost.num_multiply_adds / 1e9:.2f} G",
            "" if cost.published_multiply_adds_g is None else f"{cost.published_multiply_adds_g:.2f} G",
        )
    console.print(table)
    network = (
        "with TinySlowFast and Stage's 14 known actions"
        if stage
        else "with SlowFast R50, X3D-XL or CSN-152 and 40 known actions"
    )
    table = _table(f"Systems, {network}", ("system", "params", "mult-adds"))
    table.add_column("published as", overflow="fold")
    for cost in system_costs(tiny=stage):
        table.add_row(
            cost.name,
            f"{cost.num_parameters / 1e6:.3f} M" if stage else f"{cost.num_parameters / 1e6:.1f} M",
            f"{cost.num_multiply_adds / 1e9:.2f} G",
            SYSTEMS[cost.name].source,
        )
    console.print(table)


def _table(title: str, columns: tuple[str, ...]) -> Table:
    """A table whose names and numbers are never cut, however narrow the terminal is."""
    table = Table(title=title, title_justify="left", box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0))
    for at, name in enumerate(columns):
        table.add_column(name, justify="right" if at else "left", no_wrap=True)
    return table
