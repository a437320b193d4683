"""Write and read a memory: one safetensors file with a card in its header. Nothing in it can run code.

    card      format · model · classes · tags · kernel · names of videos and groups · digests of tensors and card
    tensors   features · labels · counts · scales · places, one row per entry
              features · outputs · labels of the held-out actors it was calibrated on, if kept
              whitening · landmarks · coefficients of each taught action

With the held-out actors, a memory can be calibrated again after every change.
"""

import hashlib
import json
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

import safetensors.torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from mule.core.documents import json_of
from mule.core.errors import MuleError
from mule.core.manifest import write_sealed
from mule.memory.memory import EvidenceMemory, NeighbourKernel, Places
from mule.memory.taught import HeldOut, Remembered, TaughtAction, Whitening

_FORMAT = "mule-memory-2"
_CARD = "card"
_ROUNDED = ("features", "held_out.features", "held_out.outputs")


class MemoryFileError(MuleError, OSError):
    """A memory file cannot be written or used; the message names it."""


@contextmanager
def naming(path: Path) -> Generator[None]:
    """Name a file in the errors that its content causes."""
    try:
        yield
    except MuleError as error:
        if str(error).startswith(f"{path}:"):
            raise
        raise MemoryFileError(f"{path}: {error}") from error


def place_to_write(out: Path | None, *, instead_of: Path | None = None) -> Path:
    """Return the file to write a memory to: a new one, or the one that changes. Call it before computing anything."""
    if instead_of is not None and (out is None or (out.exists() and out.samefile(instead_of))):
        return instead_of
    if out is None:
        raise MemoryFileError("a memory must be written to a file; got none.")
    if out.exists():
        raise MemoryFileError(
            f"{out}: must not exist yet; it does, and its content would be lost. Choose another name, or remove it."
        )
    if not out.parent.is_dir():
        raise MemoryFileError(
            f"{out}: must lie in an existing folder; {out.parent} does not exist. Make it first."
        )
    return out


def write_memory(path: Path, remembered: Remembered, *, is_small: bool = False) -> None:
    """Write a memory; if that fails, the old file stays as it was. The manifest of its folder follows.

    A small file holds features and outputs in half precision.
    """
    memory, held_out = remembered.memory, remembered.held_out
    tensors = {name: tensor.detach().cpu().contiguous() for name, tensor in _tensors(remembered).items()}
    if is_small:
        tensors |= {name: tensors[name].half() for name in _ROUNDED if name in tensors}
    card = {
        "format": _FORMAT,
        "model": memory.model,
        "classes": memory.class_names,
        "tags": memory.tags,
        "num_entries": len(memory),
        "kernel": asdict(memory.kernel),
        "videos": memory.places.video_names,
        "groups": memory.places.group_names,
        "held_out_classes": None if held_out is None else held_out.class_names,
        "held_out_videos": None if held_out is None else held_out.videos,
        "taught": [
            {key: getattr(action, key) for key in ("name", "slope", "offset", "typical_log_trust", "videos")}
            for action in remembered.taught
        ],
        "tensors_sha256": tensors_digest(tensors),
    }
    card["card_sha256"] = card_digest(card)
    content = safetensors.torch.save(tensors, {_CARD: json.dumps(card, ensure_ascii=False)})
    write_sealed(path.parent, {path.name: content})


def read_memory(path: Path, *, model: str | None = None) -> Remembered:
    """Read a memory.

    Args:
        path: a file that `write_memory` wrote.
        model: SHA-256 of the weights that will use it; a memory of other weights is refused.

    Raises:
        MemoryFileError: the file does not exist, is damaged, or is of another version or model.
    """
    card, tensors = _read(path)
    if card.get("format") != _FORMAT:
        raise MemoryFileError(
            f"{path}: must be a memory in the format {_FORMAT}; got {card.get('format')!r}. Build it again with this "
            "version of mule."
        )
    try:
        # older files have no digest of the card
        if card["tensors_sha256"] != tensors_digest(tensors) or card.get("card_sha256", "") not in (
            "",
            card_digest(card),
        ):
            raise MemoryFileError(
                f"{path}: must be as it was written; its content has changed. Copy it again, or build it again."
            )
        remembered = _remembered(card, tensors)
    except MemoryFileError:
        raise
    except MuleError as error:
        raise MemoryFileError(f"{path}: {error}") from error
    except (LookupError, TypeError, ValueError) as error:
        raise MemoryFileError(
            f"{path}: must have a complete card; it does not ({error!r}). Build it again."
        ) from error
    if model is not None and remembered.memory.model != model:
        raise MemoryFileError(
            f"{path}: must be a memory of this model, {model[:12]}…; it is of {remembered.memory.model[:12]}…. Build a memory of "
            "this model (`mule memory build RUN_DIR`)."
        )
    return remembered


def _tensors(remembered: Remembered) -> dict[str, Tensor]:
    memory, held_out = remembered.memory, remembered.held_out
    tensors = {
        "features": memory.features,
        "labels": memory.labels,
        "counts": memory.counts,
        "scales": memory.scales,
        "video_index": memory.places.video_index,
        "time_s": memory.places.time_s,
        "boxes_xyxy_unit": memory.places.boxes_xyxy_unit,
        "group_index": memory.places.group_index,
    }
    if held_out is not None:
        tensors |= {
            "held_out.features": held_out.features,
            "held_out.outputs": held_out.outputs,
            "held_out.labels": held_out.labels,
        }
    for number, action in enumerate(remembered.taught):
        tensors |= {
            f"taught.{number}.centre": action.whitening.centre,
            f"taught.{number}.transform": action.whitening.transform,
            f"taught.{number}.landmarks": action.landmarks,
            f"taught.{number}.coefficients": action.coefficients,
            **{f"taught.{number}.inputs.{name}": each for name, each in action.inputs.items()},
        }
    return tensors


def _remembered(card: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> Remembered:
    memory = EvidenceMemory(
        features=tensors["features"].float(),  # a file may hold half precision
        labels=tensors["labels"],
        counts=tensors["counts"],
        scales=tensors["scales"],
        places=Places(
            tuple(card["videos"]),
            tensors["video_index"],
            tensors["time_s"],
            tensors["boxes_xyxy_unit"],
            tuple(card["groups"]),
            tensors["group_index"],
        ),
        class_names=tuple(card["classes"]),
        kernel=NeighbourKernel(**card["kernel"]),
        model=card["model"],
        tags=tuple(card.get("tags", ())),  # older files have none
    )
    held_out = None
    if card["held_out_classes"] is not None:
        held_out = HeldOut(
            features=tensors["held_out.features"].float(),
            outputs=tensors["held_out.outputs"].float(),
            labels=tensors["held_out.labels"],
            class_names=tuple(card["held_out_classes"]),
            model=card["model"],
            videos=None if card.get("held_out_videos") is None else tuple(card["held_out_videos"]),
        )
    taught = [_taught(facts, tensors, f"taught.{number}") for number, facts in enumerate(card["taught"])]
    return Remembered(memory, held_out, tuple(taught))


def _taught(facts: Mapping[str, Any], tensors: Mapping[str, Tensor], prefix: str) -> TaughtAction:
    return TaughtAction(
        facts["name"],
        Whitening(tensors[f"{prefix}.centre"], tensors[f"{prefix}.transform"]),
        tensors[f"{prefix}.landmarks"],
        tensors[f"{prefix}.coefficients"],
        facts["slope"],
        facts["offset"],
        facts["typical_log_trust"],
        {
            name.removeprefix(f"{prefix}.inputs."): each
            for name, each in tensors.items()
            if name.startswith(f"{prefix}.inputs.")
        },
        tuple(facts.get("videos", ())),  # older files have neither
    )


def _read(path: Path) -> tuple[dict[str, Any], dict[str, Tensor]]:
    if path.is_dir():  # safetensors would report a device
        raise MemoryFileError(f"{path}: must be a memory file; it is a folder.")
    try:
        with safe_open(path, framework="pt") as file:
            card = json_of((file.metadata() or {}).get(_CARD, "{}"))
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 - no dict
            return card if isinstance(card, dict) else {}, tensors
    except FileNotFoundError:
        raise MemoryFileError(f"{path}: must be a memory file; it does not exist.") from None
    except (OSError, ValueError, SafetensorError) as error:
        reason = str(error).partition("\n")[0] or type(error).__name__
        raise MemoryFileError(
            f"{path}: must be a complete memory file; it is damaged or something else ({reason}). Build it again."
        ) from error


def tensors_digest(tensors: Mapping[str, Tensor]) -> str:
    """Return the digest of a memory's tensors, with their names, types and shapes."""
    digest = hashlib.sha256()
    for name in sorted(tensors):
        digest.update(f"{name} {tensors[name].dtype} {tuple(tensors[name].shape)}".encode())
        digest.update(tensors[name].numpy().tobytes())
    return digest.hexdigest()


def card_digest(card: Mapping[str, Any]) -> str:
    """Return the digest of a memory's card, without the digest that it states."""
    words = {key: value for key, value in card.items() if key != "card_sha256"}
    return hashlib.sha256(json.dumps(words, sort_keys=True).encode()).hexdigest()
