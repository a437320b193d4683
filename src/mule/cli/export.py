"""`mule export`: write a model as graphs that run without torch. Torch is imported when the command runs."""

import re
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from mule.runtime.exported import ExportCard

SIZE = re.compile(r"([1-9]\d{0,4})x([1-9]\d{0,4})")


def export(
    model: Annotated[
        Path, typer.Argument(metavar="MODEL", help="Folder made by `mule bundle`, people or stage.")
    ],
    to: Annotated[str, typer.Option(metavar="onnx|openvino", help="Runtime to export to.")],
    out: Annotated[Path, typer.Option(metavar="DIR", help="Folder to make; it must not exist yet.")],
    size: Annotated[
        str | None,
        typer.Option(
            metavar="ROWSxCOLS",
            help="Size of the clips in pixels; by default 3 to 4, with the short side the model was validated on.",
        ),
    ] = None,
    limit: Annotated[
        float,
        typer.Option(
            min=0.0,
            help="Largest difference from torch that passes, relative to the largest number of the same output.",
        ),
    ] = 1e-3,
    bits: Annotated[
        int,
        typer.Option(
            metavar="8|32",
            help="8 makes the network several times as fast (openvino only), chosen on the model's own training clips; "
            "what changes for people in other training clips is printed.",
        ),
    ] = 32,
    settings: Annotated[
        list[str] | None,
        typer.Option(
            "--set", metavar="data.root=DIR", help="With --bits 8: where the training data lies now."
        ),
    ] = None,
) -> None:
    """Export a model as graphs that run without torch.

    One graph sees a clip; the other decides about any number of actors and
    objects in it. Both are compared with torch on made scenes before they are
    written. card.json names inputs, outputs, checksums and differences.

    `mule watch --runtime DIR` runs these graphs. `--runtime onnx|openvino`
    needs no export: it makes and caches its own.
    """
    from mule.api.exporting import export_bundle
    from mule.watching.engine.bundle import read_bundle

    clip_size = _rows_and_cols(size)
    card = export_bundle(
        read_bundle(model), to, out, size=clip_size, limit=limit, bits=bits, settings=settings or ()
    )
    _print(card, out)


def _rows_and_cols(text: str | None) -> tuple[int, int] | None:
    from mule.core.errors import RangeError

    if text is None:
        return None
    match = SIZE.fullmatch(text)
    if match is None:
        raise RangeError(f"--size must be ROWSxCOLS, such as 192x256; got '{text}'.")
    return int(match[1]), int(match[2])


def _print(card: "ExportCard", out: Path) -> None:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    titles = ("clips", "actors", "objects", "outputs", "features", "evidence")
    table = Table(*titles, title=Text(f"{card.target} against torch: largest relative difference"))
    for each in card.parity.scenes:
        counts = (each.num_clips, each.num_actors, each.num_objects)
        shares = (each.outputs, each.features, each.evidence)
        table.add_row(*map(str, counts), *(f"{share:.1e}" for share in shares))
    console = Console()
    console.print(table)
    frames, rows, cols = card.clip_size
    lines = (
        f"context maps {card.parity.context:.1e}; all within {card.limit:g}"
        if card.agreement is None
        else f"eight bits: {card.agreement}",
        f"clips of {frames} frames of {rows} × {cols}, any number of actors and objects; opset {card.opset}, model "
        f"{card.model_sha256[:12]}…",
    )
    for line in lines:
        console.print(Text(line), soft_wrap=True)
    for path in sorted(out.iterdir()):
        typer.echo(f"{path}")
