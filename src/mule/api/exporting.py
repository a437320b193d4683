"""Export a bundle as graphs that run without torch."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any, get_args

from mule.core.errors import RangeError, TooFewActors, WeightsError
from mule.core.settings import StageData
from mule.data.batches.samples import ClipSample
from mule.runtime.eight_bits import ExampleClips
from mule.runtime.engines import Target, require_runtime
from mule.runtime.exported import ExportCard, export_model
from mule.runtime.openvino import ClipSize
from mule.training.data import source_clips
from mule.training.run_folder import experiment_of, read_card
from mule.video.transforms import normalised, px_from_unit, resized
from mule.watching.engine.bundle import Bundle

DEFAULT_SHORT_SIDE_PX = 256
"""For models that accept frames of any size."""
EXAMPLE_CLIPS = 16
"""Eight bits are chosen on at most this many training clips, and compared on as many others."""
DEFAULT_LIMIT = 1e-3
"""Largest difference from torch, relative to the largest number of the same output."""


def export_bundle(  # noqa: PLR0913 - what a command offers
    bundle: Bundle,
    target: str,
    out: Path,
    *,
    size: tuple[int, int] | None = None,
    limit: float = DEFAULT_LIMIT,
    bits: int = 32,
    settings: Sequence[str] = (),
) -> ExportCard:
    """Export a bundle's network, compare it with torch on made scenes, and write it; `Model.export` documents the arguments."""
    runtime = _target(target)
    if bits not in (8, 32):
        raise RangeError(f"bits must be 8 or 32; got {bits}.")
    if out.exists():
        raise WeightsError(f"{out}: must not exist yet; it does. Choose another name, or remove it.")
    if bits == 32:
        clip_size, examples = _clip_size(bundle, size), None
    else:
        clips = _training_clips(bundle, settings)
        clip_size = _clip_size(bundle, size) if size else _usual_size(bundle, clips)
        examples = _examples(bundle, clips, clip_size)
    return export_model(
        bundle.model, clip_size, runtime, out, about=_about(bundle), limit=limit, examples=examples
    )


def _training_clips(bundle: Bundle, settings: Sequence[str]) -> list[ClipSample]:
    """Read clips from all over the training side; the experiment in the bundle says where its data lies."""
    experiment = experiment_of(bundle.folder, settings)
    samples = source_clips(experiment, noted=lambda _: None).train
    count = min(2 * EXAMPLE_CLIPS, len(samples))
    if count < 2:
        raise TooFewActors(f"eight bits are chosen on at least 2 training clips; there are {len(samples)}.")
    step = experiment.data.stride_frames if isinstance(experiment.data, StageData) else 1
    chosen = [samples[number * len(samples) // count] for number in range(count)]
    return [replace(each, frames=each.frames[::step]) for each in chosen]


def _usual_size(bundle: Bundle, clips: Sequence[ClipSample]) -> ClipSize:
    """Return the size that most of the clips have when they are watched."""
    sizes = Counter(tuple(bundle.needs.pixels(each.frames).shape[2:]) for each in clips)
    frames, rows, cols = sizes.most_common(1)[0][0]
    return frames, rows, cols


def _examples(bundle: Bundle, clips: Sequence[ClipSample], size: ClipSize) -> ExampleClips:
    """Scale the clips to one size; every other one is for choosing, the rest for comparing."""
    _, rows, cols = size
    made = [
        (
            normalised(resized(each.frames, (rows, cols)), bundle.needs.normalisation)[None],
            px_from_unit(each.actor_boxes_xyxy_unit, width_px=cols, height_px=rows),
        )
        for each in clips
    ]
    return ExampleClips(made[::2], made[1::2])


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
