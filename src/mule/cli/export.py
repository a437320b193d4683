"""`mule export`: a model as graphs that run without torch. Torch is imported when the command runs."""

from pathlib import Path
from typing import Annotated

import typer


def export(
    model: Annotated[Path, typer.Argument(metavar="MODEL", help="A folder that `mule bundle` made.")],
    to: Annotated[str, typer.Option(metavar="onnx|openvino", help="What is to run it.")],
    out: Annotated[Path, typer.Option(metavar="DIR", help="Where it goes; must not exist yet.")],
    size: Annotated[
        str | None,
        typer.Option(
            metavar="ROWSxCOLS",
            help="Pixels of clips as the network sees them; by default 3 to 4, as small as videos are shown to it.",
        ),
    ] = None,
    limit: Annotated[
        float,
        typer.Option(
            min=0.0,
            help="Largest difference from torch that passes, as a share of the largest number beside it.",
        ),
    ] = 1e-3,
) -> None:
    """Export a model as two graphs: what sees a clip, and what decides about any number of actors and objects in it.

    Both are run and compared with torch on made scenes before they are kept. card.json beside them names inputs, outputs,
    digests and what was measured. `mule watch --runtime onnx|openvino` needs no export: it makes and keeps its own.
    """
    from mule.cli import show_export

    show_export.exported(show_export.Wanted(model, to, out, size, limit))
