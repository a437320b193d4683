"""From a bundle to graphs that run without torch, and how near they stay, in a table."""

import json
import re
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, get_args

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from mule.core.errors import RangeError
from mule.runtime.engines import Target, require_runtime
from mule.runtime.exported import ExportCard, export_model
from mule.runtime.openvino import ClipSize
from mule.training.run_folder import CARD
from mule.watching.engine.bundle import Bundle, read_bundle

SIZE = re.compile(r"([1-9]\d{0,4})x([1-9]\d{0,4})")
USUAL_SHORT_SIDE_PX = 256
"""Where a model takes frames of any size."""


@dataclass(frozen=True)
class Wanted:
    """What is to be exported, for what, and where it goes."""

    model: Path
    target: str
    out: Path
    size: str | None
    limit: float


def exported(wanted: Wanted) -> None:
    """Exports the model, and says what came of it."""
    target = _target(wanted.target)
    bundle = read_bundle(wanted.model)
    size = _clip_size(bundle, wanted.size)
    card = export_model(bundle.model, size, target, wanted.out, about=_about(bundle), limit=wanted.limit)
    _tell(card, wanted.out)


def _target(name: str) -> Target:
    for target in get_args(Target):
        if target == name:
            require_runtime(target)
            return target
    raise RangeError(f"--to must be one of {', '.join(get_args(Target))}; got '{name}'.")


def _clip_size(bundle: Bundle, text: str | None) -> ClipSize:
    """Frames, rows and columns; sides that fit no multiple are refused, for nothing would come of rounding them."""
    needs = bundle.needs
    if text is None:
        short_side_px = needs.short_side_px or USUAL_SHORT_SIDE_PX
        rows, cols = (
            max(1, round(side / needs.multiple_px)) * needs.multiple_px
            for side in (short_side_px, short_side_px * 4 / 3)
        )
        return needs.shape.num_frames, rows, cols
    found = SIZE.fullmatch(text)
    if found is None:
        raise RangeError(f"--size must be ROWSxCOLS, such as 192x256; got '{text}'.")
    rows, cols = int(found[1]), int(found[2])
    if rows % needs.multiple_px or cols % needs.multiple_px:
        raise RangeError(
            f"--size must be multiples of {needs.multiple_px} for this model; got {rows} and {cols}."
        )
    return needs.shape.num_frames, rows, cols


def _about(bundle: Bundle) -> dict[str, Any]:
    needs = bundle.needs
    return {
        "name": bundle.card.name,
        "weights_sha256": bundle.card.weights_sha256,
        "classes": json.loads((bundle.folder / CARD).read_text(encoding="utf-8"))[
            "classes"
        ],  # of the graph's columns
        "stride_frames": needs.shape.stride_frames,
        "frame_rate": None if needs.frame_rate is None else str(needs.frame_rate),
        "normalisation": asdict(needs.normalisation),
    }


def _tell(card: ExportCard, out: Path) -> None:
    table = Table(
        "clips",
        "actors",
        "objects",
        "outputs",
        "features",
        "evidence",
        title=Text(f"{card.target} against torch: largest difference, as a share of the largest number"),
    )
    for each in card.parity.scenes:
        counts = (each.num_clips, each.num_actors, each.num_objects)
        shares = (each.outputs, each.features, each.evidence)
        table.add_row(*map(str, counts), *(f"{share:.1e}" for share in shares))
    console = Console()
    console.print(table)
    frames, rows, cols = card.clip_size
    lines = (
        f"context maps {card.parity.context:.1e}; all within {card.limit:g}",
        f"clips of {frames} frames of {rows} × {cols}; any number of actors and objects; opset {card.opset}, model "
        f"{card.model_sha256[:12]}…",
    )
    for line in lines:
        console.print(Text(line), soft_wrap=True)
    for path in sorted(out.iterdir()):
        typer.echo(f"{path}")
