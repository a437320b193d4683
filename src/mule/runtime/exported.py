"""A model's two graphs in a folder, with a card that says what they are and how near they stay.

    DIR/see.onnx, decide.onnx                     for onnxruntime, or
        see.xml, see.bin, decide.xml, decide.bin  for OpenVINO
        card.json                                 digests, inputs, outputs, opset, parity

The folder appears when everything is in it and its parity has passed, or not at all.
"""

import os
import shutil
from collections.abc import Mapping
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch
from pydantic import BaseModel, ConfigDict, ValidationError

from mule.core.errors import WeightsError
from mule.core.files import cache_folder, sha256_of
from mule.model import MuleModel
from mule.runtime.engines import SUFFIXES, Runtime, Target, open_engine, runtime_version, write_graph
from mule.runtime.graphs import (
    BOXES,
    CLIPS,
    CONTEXT,
    DECIDE,
    OPSET,
    SAID,
    SEE,
    Graphs,
    digest_of,
    graphs_of,
)
from mule.runtime.openvino import ClipSize
from mule.runtime.running import LIMIT, Parity, ParityError, RunningModel, measured_parity, running_anywhere

CARD, FORMAT = "card.json", "mule-export-1"


class ExportCard(BaseModel):
    """What the folder holds."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    format: str = FORMAT
    target: Target
    model_sha256: str
    """Of all weights and layers."""
    about: Mapping[str, Any] = {}
    """What the exporter knew of the model: its name, its actions, how pixels are normalised."""
    versions: Mapping[str, str]
    opset: int = OPSET
    clip_size: ClipSize
    """Frames, rows and columns of clips."""
    map_size: tuple[int, int]
    stride: int
    graphs: Mapping[str, Mapping[str, Mapping[str, str]]]
    """Inputs and outputs of both graphs, with type and shape; a name is a number that may change, from 0 on."""
    limit: float
    parity: Parity
    files: Mapping[str, str]
    """SHA-256 of every file."""


def export_model(
    model: MuleModel,
    size: ClipSize,
    target: Target,
    out: Path,
    *,
    about: Mapping[str, Any] | None = None,
    limit: float = LIMIT,
) -> ExportCard:
    """Writes both graphs, runs them, compares them with torch, and keeps them if they are near enough.

    Args:
        model: on torch, in evaluation mode.
        size: frames, rows and columns of clips.
        target: what is to run them.
        out: the folder; must not exist yet.
        about: goes into the card.
        limit: see `mule.runtime.running.LIMIT`.

    Raises:
        ParityError: they differ by more than the limit; nothing is left behind.
        WeightsError: the folder is there already, or cannot be written.
        RangeError: the model has no form that could be exported.
        RuntimeMissing: the package that runs them is not installed.
    """
    if out.exists():
        raise WeightsError(f"{out}: must not exist yet; it does. Choose another name, or remove it.")
    graphs = graphs_of(model, size)
    parts = _existing(out.absolute().parent) / f".{out.name}.{os.getpid()}"
    try:
        parts.mkdir()
        for name, graph in ((SEE, graphs.see), (DECIDE, graphs.decide)):
            write_graph(graph, parts / f"{name}{SUFFIXES[target]}", target)
        parity = measured_parity(model, _opened(parts, target, graphs.size, graphs.stride, None), size)
        if not parity.largest <= limit:
            raise ParityError(
                f"{out}: what runs on {target} must stay within {limit:g} of torch; it differs by "
                f"{parity.largest:.2g}. Nothing was written."
            )
        described = _described(model, graphs, target, parts)
        card = ExportCard(**described, about=about or {}, limit=limit, parity=parity)
        (parts / CARD).write_text(card.model_dump_json(indent=2) + "\n", encoding="utf-8")
        out.parent.mkdir(parents=True, exist_ok=True)
        parts.rename(out)
    except OSError as error:
        raise WeightsError(f"{out}: a model must be exported; {error.strerror or error}.") from error
    finally:
        shutil.rmtree(parts, ignore_errors=True)
    return card


def open_exported(folder: Path, *, num_threads: int | None = None) -> RunningModel:
    """An exported model, ready to run.

    Raises:
        WeightsError: the folder is none, or a file of it is damaged.
        RuntimeMissing: the package that runs it is not installed.
    """
    card = read_export_card(folder)
    for name, sha256 in card.files.items():
        if not (folder / name).is_file() or sha256_of(folder / name) != sha256:
            raise WeightsError(
                f"{folder / name}: must be the file that the card beside it vouches for. Export anew."
            )
    return _opened(folder, card.target, card.clip_size, card.stride, num_threads)


def read_export_card(folder: Path) -> ExportCard:
    """What a folder holds.

    Raises:
        WeightsError: there is no card, or it is of another format.
    """
    path = folder / CARD
    try:
        return ExportCard.model_validate_json(path.read_bytes())
    except (OSError, ValidationError) as error:
        reason = str(error).replace("\n", " ")
        raise WeightsError(f"{path}: must be the card of an exported model; {reason[:200]}.") from None


def kept_graphs() -> Path:
    """Where graphs are kept if nobody says otherwise: beside what was downloaded."""
    return cache_folder() / "graphs"


def running_model(
    model: MuleModel, runtime: Runtime, *, kept_in: Path, num_threads: int | None = None
) -> MuleModel:
    """The model on another runtime. Graphs are made at the first clip of a size, and kept for the next time.

    Args:
        model: on torch, in evaluation mode.
        runtime: where it shall run; torch leaves it as it is.
        kept_in: the folder of kept graphs.
        num_threads: None takes as many as torch does.

    Raises:
        RangeError: the model has no form that could be exported.
    """
    if runtime == "torch":
        return model
    key = digest_of(model)

    def opened(size: ClipSize) -> RunningModel:
        return open_exported(_kept(model, key, size, runtime, kept_in), num_threads=num_threads)

    return running_anywhere(opened)


def _kept(model: MuleModel, key: str, size: ClipSize, target: Target, kept_in: Path) -> Path:
    """The folder of graphs for clips of a size; made if it is not there, or if anything it depends on has changed."""
    sizes = "x".join(map(str, size))
    made_by = "-".join(_versions(target).values())
    folder = kept_in / f"{key[:20]}-{sizes}-{target}-{made_by}"
    if not (folder / CARD).is_file() or not _is_of(folder, key):
        shutil.rmtree(folder, ignore_errors=True)
        export_model(model, size, target, folder)
    return folder


def _existing(folder: Path) -> Path:
    """The folder, or the nearest above it that is there: no folder is made before what goes into it is whole."""
    return folder if folder.is_dir() or folder == folder.parent else _existing(folder.parent)


def _is_of(folder: Path, key: str) -> bool:
    """Whether a kept folder is whole and of this model; one that is not is made anew."""
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


def _described(model: MuleModel, graphs: Graphs, target: Target, folder: Path) -> dict[str, Any]:
    """What can be said of both graphs without running them."""
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
    return {"mule": version("mule"), "torch": torch.__version__, target: runtime_version(target)}


def _signatures(size: ClipSize, map_size: tuple[int, int]) -> dict[str, dict[str, dict[str, str]]]:
    frames, rows, cols = size
    cells = f"{map_size[0]}, {map_size[1]}"
    boxes = {
        BOXES[0]: "float32 (actors, 4)",
        BOXES[1]: "int64 (actors)",
        BOXES[2]: "float32 (objects, 4)",
        BOXES[3]: "int64 (objects)",
    }
    said = dict(zip(SAID, ("outputs", "dim", "classes", "classes"), strict=True))
    return {
        SEE: {
            "inputs": {CLIPS: f"float32 (1, 3, {frames}, {rows}, {cols})"},
            "outputs": {CONTEXT: f"float32 (1, channels, {cells})"},
        },
        DECIDE: {
            "inputs": {CONTEXT: f"float32 (clips, channels, {cells})", **boxes},
            "outputs": {name: f"float32 (actors, {width})" for name, width in said.items()},
        },
    }
