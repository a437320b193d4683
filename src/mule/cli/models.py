"""`mule models`: every backbone and every system, and what it costs."""

from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table


def models(
    stage: Annotated[
        bool, typer.Option("--stage", help="As trained on Stage: a tiny backbone and small relations.")
    ] = False,
) -> None:
    """List every backbone and system with its parameters and multiply-adds.

    Multiply-adds are those of convolutions and matrix products for one clip of the size shown; for systems it holds
    four actors and five objects.
    """
    from mule.systems.catalogue import SYSTEMS
    from mule.systems.costs import backbone_costs, system_costs

    console = Console()
    table = Table(title="Backbones (as classifiers of Kinetics-400)", title_justify="left")
    for name in (
        "backbone",
        "frames x rows x cols",
        "parameters",
        "published",
        "multiply-adds",
        "published ",
    ):
        table.add_column(name, justify="left" if name == "backbone" else "right", no_wrap=True)
    for cost in backbone_costs():
        table.add_row(
            cost.name,
            " x ".join(map(str, cost.input_size)),
            f"{cost.num_parameters / 1e6:.2f} M",
            "" if cost.published_parameters_m is None else f"{cost.published_parameters_m:.2f} M",
            f"{cost.num_multiply_adds / 1e9:.2f} G",
            "" if cost.published_multiply_adds_g is None else f"{cost.published_multiply_adds_g:.2f} G",
        )
    console.print(table)
    network = (
        "TinySlowFast, Stage's 14 known actions"
        if stage
        else "on SlowFast R50, X3D-XL or CSN-152; 40 known actions"
    )
    table = Table(title=f"Systems ({network})", title_justify="left")
    for name in ("system", "parameters", "multiply-adds", "published as"):
        table.add_column(name, justify="right" if "-" in name or name == "parameters" else "left")
    for cost in system_costs(tiny=stage):
        table.add_row(
            cost.name,
            f"{cost.num_parameters / 1e6:.3f} M" if stage else f"{cost.num_parameters / 1e6:.1f} M",
            f"{cost.num_multiply_adds / 1e9:.2f} G",
            SYSTEMS[cost.name].source,
        )
    console.print(table)
