"""Export a bundle as graphs that run without torch."""

from dataclasses import asdict
from pathlib import Path
from typing import Any, get_args

from mule.core.errors import RangeError
from mule.runtime.engines import Target, require_runtime
from mule.runtime.exported import ExportCard, export_model
from mule.runtime.openvino import ClipSize
from mule.training.run_folder import read_card
from mule.watching.engine.bundle import Bundle

DEFAULT_SHORT_SIDE_PX = 256
"""For models that accept frames of any size."""
DEFAULT_LIMIT = 1e-3
"""Largest difference from torch, relative to the largest number of the same output."""


def export_bundle(
    bundle: Bundle,
    target: str,
    out: Path,
    *,
    size: tuple[int, int] | None = None,
    limit: float = DEFAULT_LIMIT,
) -> ExportCard:
    """Export a bundle's network, compare it with torch on made scenes, and write it; `Model.export` documents the arguments."""
    runtime = _target(target)
    return export_model(
        bundle.model, _clip_size(bundle, size), runtime, out, about=_about(bundle), limit=limit
    )


def _target(name: str) -> Target:
    for target in get_args(Target):
        if target == name:
            require_runtime(target)
            return target
    raise RangeError(f"the runtime to export to must be one of {', '.join(get_args(Target))}; got '{name}'.")


def _clip_size(bundle: Bundle, size: tuple[int, int] | None) -> ClipSize:
    """Return frames, rows and columns; a size the network would have to round is refused."""
    needs = bundle.needs
    if size is None:
        short_side_px = needs.short_side_px or DEFAULT_SHORT_SIDE_PX
        rows, cols = needs.fitting_px(short_side_px), needs.fitting_px(short_side_px * 4 / 3)
        return needs.shape.num_frames, rows, cols
    rows, cols = size
    if rows % needs.multiple_px or cols % needs.multiple_px:
        raise RangeError(
            f"rows and columns must be multiples of {needs.multiple_px} for this model; got {rows} and {cols}."
        )
    return needs.shape.num_frames, rows, cols


def _about(bundle: Bundle) -> dict[str, Any]:
    needs = bundle.needs
    card = read_card(bundle.folder)
    return {
        "name": bundle.card.name,
        "weights_sha256": bundle.card.weights_sha256,
        "classes": card["classes"],  # the graph's columns: trained actions alone
        "stride_frames": needs.shape.stride_frames,
        "frame_rate": None if needs.frame_rate is None else str(needs.frame_rate),
        "normalisation": asdict(needs.normalisation),
    }
