"""A model's two graphs in a folder, with a card that says what they are and how close they are to torch.

    DIR/see.onnx, decide.onnx                     for onnxruntime, or
        see.xml, see.bin, decide.xml, decide.bin  for OpenVINO
        card.json                                 digests, inputs, outputs, opset, parity

The folder appears once everything is in it and its parity check has passed, or not at all.
"""

import os
import shutil
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any, Literal

import torch
from pydantic import BaseModel, ConfigDict, ValidationError

from mule.core import __version__
from mule.core.errors import FileError, RangeError, WeightsError
from mule.core.files import cache_folder, os_reason, sha256_of
from mule.model import MuleModel
from mule.runtime.eight_bits import (
    LEAST_SAME_ACTION,
    EightBitAgreement,
    ExampleClips,
    eight_bit_agreement,
    quantised,
)
from mule.runtime.engines import SUFFIXES, Runtime, Target, open_engine, runtime_version, write_graph
from mule.runtime.graphs import (
    BOXES,
    CLIPS,
    CONTEXT,
    DECIDE,
    OPSET,
    RESULTS,
    SEE,
    Graphs,
    digest_of,
    graphs_of,
)
from mule.runtime.openvino import ClipSize, Network
from mule.runtime.running import LIMIT, Parity, ParityError, RunningModel, measured_parity, running_anywhere

EXPORT_CARD, EXPORT_FORMAT = "card.json", "mule-export-1"


class ExportCard(BaseModel):
    """What the folder of an exported model contains."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    format: str = EXPORT_FORMAT
    target: Target
    model_sha256: str
    """The checksum of all weights and layers."""
    about: Mapping[str, Any] = {}
    """Facts about the model: its name, its actions, how pixels are normalised."""
    versions: Mapping[str, str]
    opset: int = OPSET
    clip_size: ClipSize
    """Frames, rows and columns of clips."""
    map_size: tuple[int, int]
    stride: int
    graphs: Mapping[str, Mapping[str, Mapping[str, str]]]
    """Inputs and outputs of both graphs, with type and shape; a name in a shape is a number that may vary, from 0."""
    limit: float
    parity: Parity
    bits: Literal[32, 8] = 32
    """Of the weights and activations of `see`."""
    agreement: EightBitAgreement | None = None
    """Of a network in eight bits with torch, on real clips; its parity, on noise, has no limit."""
    files: Mapping[str, str]
    """The SHA-256 checksum of every file."""


def export_model(  # noqa: PLR0913 - what a command offers
    model: MuleModel,
    size: ClipSize,
    target: Target,
    out: Path,
    *,
    about: Mapping[str, Any] | None = None,
    limit: float = LIMIT,
    examples: ExampleClips | None = None,
) -> ExportCard:
    """Write both graphs, run them, compare them with torch, and keep them if they are close enough.

    Args:
        model: on torch, in evaluation mode.
        size: frames, rows and columns of clips.
        target: the format.
        out: the folder; must not exist yet.
        about: facts for the card.
        limit: see `mule.runtime.running.LIMIT`.
        examples: clips to choose eight bits on, for OpenVINO; None writes float32.

    Raises:
        ParityError: the graphs differ from torch by more than the limit; nothing is left behind.
        WeightsError: the folder exists already.
        FileError: the folder cannot be written.
        RangeError: the model cannot be exported.
        RuntimeMissing: the package that runs the graphs is not installed.
    """
    if out.exists():
        raise WeightsError(f"{out}: must not exist yet; it does. Choose another name, or remove it.")
    if examples is not None and target != "openvino":
        raise RangeError(f"eight bits need openvino; got {target}. Export to openvino.")
    graphs = graphs_of(model, size)
    in_eight_bits = partial(_in_eight_bits, graphs, examples) if examples is not None else _unchanged
    parts = _existing(out.absolute().parent) / f".{out.name}.{os.getpid()}"
    try:
        parts.mkdir()
        for name, graph, changed in (
            (SEE, graphs.see, in_eight_bits),
            (DECIDE, graphs.decide, _unchanged),
        ):
            write_graph(graph, parts / f"{name}{SUFFIXES[target]}", target, changed=changed)
        running = _opened(parts, target, graphs.size, graphs.stride, None)
        facts = _facts(model, graphs, target, parts) | {"about": about or {}, "limit": limit}
        if examples is None:
            card = ExportCard(**facts, parity=_near_enough(model, running, out, target, limit))
        else:
            agreement = _agreeing(model, running, out, examples)
            parity = measured_parity(model, running, size)
            card = ExportCard(**facts, parity=parity, bits=8, agreement=agreement)
        (parts / EXPORT_CARD).write_text(card.model_dump_json(indent=2) + "\n", encoding="utf-8")
        out.parent.mkdir(parents=True, exist_ok=True)
        parts.rename(out)
    except OSError as error:
        raise FileError(f"{out}: cannot be written: {os_reason(error)}.") from error
    finally:
        shutil.rmtree(parts, ignore_errors=True)
    return card


def _unchanged(graph: Any) -> Any:  # noqa: ANN401 - an openvino.Model
    return graph


def _in_eight_bits(graphs: Graphs, examples: ExampleClips, graph: Any) -> Any:  # noqa: ANN401 - an openvino.Model
    clips = [clip for clip, _ in examples.chosen_on]
    return quantised(Network(graph, graphs.size, graphs.stride), clips).graph


def _near_enough(model: MuleModel, running: RunningModel, out: Path, target: Target, limit: float) -> Parity:
    parity = measured_parity(model, running, running.size)
    if not parity.largest <= limit:
        raise ParityError(
            f"{out}: results on {target} must stay within {limit:g} of torch; they differ by {parity.largest:.2g}. "
            "Nothing was written. Use --runtime torch, or a larger --limit."
        )
    return parity


def _agreeing(
    model: MuleModel, running: RunningModel, out: Path, examples: ExampleClips
) -> EightBitAgreement:
    agreement = eight_bit_agreement(model, running, examples.compared_on)
    if agreement.same_action < LEAST_SAME_ACTION:
        raise ParityError(
            f"{out}: eight bits must leave the likeliest action of {LEAST_SAME_ACTION:.0%} of people as it is; {agreement}. "
            "Nothing was written. Export without --bits 8."
        )
    return agreement


def open_exported(folder: Path, *, num_threads: int | None = None) -> RunningModel:
    """Open an exported model.

    Raises:
        WeightsError: the folder holds no exported model, or a file in it is damaged.
        RuntimeMissing: the package that runs it is not installed.
    """
    card = read_export_card(folder)
    for name, sha256 in card.files.items():
        if not (folder / name).is_file() or sha256_of(folder / name) != sha256:
            raise WeightsError(
                f"{folder / name}: must be the file whose checksum is in {EXPORT_CARD}; it is missing or damaged. Export again."
            )
    return _opened(folder, card.target, card.clip_size, card.stride, num_threads)


def read_export_card(folder: Path) -> ExportCard:
    """Read the card of an exported model.

    Raises:
        WeightsError: the card is missing, or has another format.
    """
    path = folder / EXPORT_CARD
    try:
        return ExportCard.model_validate_json(path.read_bytes())
    except (OSError, ValidationError) as error:
        reason = str(error).replace("\n", " ")
        raise WeightsError(f"{path}: must be the card of an exported model; {reason[:200]}.") from None


def kept_graphs() -> Path:
    """Return the default folder for exported graphs: `graphs` in the cache folder."""
    return cache_folder() / "graphs"


def running_model(
    model: MuleModel,
    runtime: Runtime,
    *,
    kept_in: Path,
    num_threads: int | None = None,
    noted: Callable[[str], None] = lambda _: None,
) -> MuleModel:
    """Return the model on another runtime. Graphs are exported at the first clip of a size, and kept for the next time.

    Args:
        model: on torch, in evaluation mode.
        runtime: where to run it; torch returns it unchanged.
        kept_in: the folder of kept graphs.
        num_threads: None takes as many as torch.
        noted: receives a sentence before an export, which takes seconds to a minute.

    Raises:
        RangeError: the model cannot be exported.
    """
    if runtime == "torch":
        return model
    key = digest_of(model)

    def opened(size: ClipSize) -> RunningModel:
        folder = _kept_folder(key, size, runtime, kept_in)
        if not _is_of(folder, key):
            noted(
                f"exporting the model to {runtime} for clips of {size[2]} × {size[1]} pixels; it is kept for the next time"
            )
            shutil.rmtree(folder, ignore_errors=True)
            export_model(model, size, runtime, folder)
        return open_exported(folder, num_threads=num_threads)

    return running_anywhere(opened)


def _kept_folder(key: str, size: ClipSize, target: Target, kept_in: Path) -> Path:
    """The folder of graphs for clips of a size; its name holds all that they depend on."""
    sizes = "x".join(map(str, size))
    made_by = "-".join(_versions(target).values())
    return kept_in / f"{key[:20]}-{sizes}-{target}-{made_by}"


def _existing(folder: Path) -> Path:
    """The folder, or the nearest existing one above it: no folder is created before its content is complete."""
    return folder if folder.is_dir() or folder == folder.parent else _existing(folder.parent)


def _is_of(folder: Path, key: str) -> bool:
    """Whether a kept folder is complete and belongs to this model; otherwise it is exported again."""
    try:
        card = read_export_card(folder)
    except WeightsError:
        return False
    return card.model_sha256 == key and all(
        (folder / name).is_file() and sha256_of(folder / name) == sha256
        for name, sha256 in card.files.items()
    )


def _opened(
    folder: Path, target: Target, size: ClipSize, stride: int, num_threads: int | None
) -> RunningModel:
    see, decide = (
        open_engine(folder / f"{name}{SUFFIXES[target]}", target, num_threads=num_threads)
        for name in (SEE, DECIDE)
    )
    return RunningModel(see, decide, size=size, stride=stride)


def _facts(model: MuleModel, graphs: Graphs, target: Target, folder: Path) -> dict[str, Any]:
    """The fields of the card that need no run of the graphs."""
    return {
        "target": target,
        "model_sha256": digest_of(model),
        "versions": _versions(target),
        "clip_size": graphs.size,
        "map_size": graphs.map_size,
        "stride": graphs.stride,
        "graphs": _signatures(graphs.size, graphs.map_size),
        "files": {path.name: sha256_of(path) for path in sorted(folder.iterdir())},
    }


def _versions(target: Target) -> dict[str, str]:
    return {"mule": __version__, "torch": torch.__version__, target: runtime_version(target)}


def _signatures(size: ClipSize, map_size: tuple[int, int]) -> dict[str, dict[str, dict[str, str]]]:
    frames, rows, cols = size
    cells = f"{map_size[0]}, {map_size[1]}"
    boxes = {
        BOXES[0]: "float32 (actors, 4)",
        BOXES[1]: "int64 (actors)",
        BOXES[2]: "float32 (objects, 4)",
        BOXES[3]: "int64 (objects)",
    }
    results = dict(zip(RESULTS, ("outputs", "dim", "classes", "classes"), strict=True))
    return {
        SEE: {
            "inputs": {CLIPS: f"float32 (1, 3, {frames}, {rows}, {cols})"},
            "outputs": {CONTEXT: f"float32 (1, channels, {cells})"},
        },
        DECIDE: {
            "inputs": {CONTEXT: f"float32 (clips, channels, {cells})", **boxes},
            "outputs": {name: f"float32 (actors, {width})" for name, width in results.items()},
        },
    }
