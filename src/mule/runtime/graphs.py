"""A recogniser as two ONNX graphs: one sees a clip, one decides about all actors in it.

    see:     clips (1, 3, frames, rows, cols) ─▶ context (1, channels, map rows, map cols)
    decide:  context of any number of clips, boxes of any number of actors and objects ─▶ outputs, features, evidence

Two, because each clip is seen once but decided about often: once with everybody, and once without each.
"""

import hashlib
import io
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import Any

import torch
from torch import Tensor, nn

from mule.core.errors import RangeError, ShapeError
from mule.model import MuleModel, RelationModel
from mule.runtime.flat_head import FlatHead, MapSize, related_by
from mule.runtime.openvino import ClipSize, ContextMaps, RuntimeMissing

OPSET = 18
SEE, DECIDE = "see", "decide"
CLIPS, CONTEXT = "clips", "context"
BOXES = ("actors_xyxy_px", "actor_clip_index", "objects_xyxy_px", "object_clip_index")
RESULTS = ("outputs", "features", "positive_evidence", "negative_evidence")


@dataclass(frozen=True)
class Graphs:
    """Both graphs for clips of one size, as the bytes of ONNX files."""

    see: bytes
    decide: bytes
    size: ClipSize
    map_size: MapSize
    stride: int


def deciding(model: MuleModel) -> RelationModel:
    """Return the part of a model that is exported as `decide`.

    Raises:
        RangeError: it, or its relations, cannot be exported.
    """
    if not isinstance(model.decide, RelationModel):
        raise RangeError(
            f"only a network of pooling, relations and evidence can be exported; this one is "
            f"{type(model.decide).__name__}. Use --runtime torch."
        )
    related_by(model.decide.relations)
    return model.decide


def digest_of(model: MuleModel) -> str:
    """Return the SHA-256 checksum of every weight by name, and of the layers and settings around them."""
    decide = deciding(model)
    settings = getattr(decide.relations, "settings", None)
    digest = hashlib.sha256(f"{model}\n{decide.sampling}\n{settings}".encode())
    for name, tensor in sorted(model.state_dict().items()):
        digest.update(f"{name} {tuple(tensor.shape)} {tensor.dtype}".encode())
        digest.update(tensor.detach().contiguous().reshape(-1).view(torch.uint8).numpy())
    return digest.hexdigest()


def require_exporter() -> None:
    """Check that onnx is installed, which torch needs to export; running kept graphs does not need it.

    Raises:
        RuntimeMissing: it is not installed.
    """
    try:
        import_module("onnx")
    except ImportError as missing:
        raise RuntimeMissing(
            f"Exporting a model needs onnx: pip install 'mule-actions[onnx]'. It could not be imported: {missing}"
        ) from missing


def graphs_of(model: MuleModel, size: ClipSize) -> Graphs:
    """Export a model in evaluation mode, for clips of this size.

    Raises:
        RangeError: the model is in training mode, or cannot be exported.
        ShapeError: clips of this size are too small for this model.
        RuntimeMissing: onnx is not installed.
    """
    require_exporter()
    decide = deciding(model)
    if model.training:
        raise RangeError(
            "a model must be in evaluation mode to be exported; it is in training mode. Call eval()."
        )
    if not isinstance(model.backbone, nn.Module):
        raise RangeError("a model must run on torch to be exported; this one runs elsewhere already.")
    see = ContextMaps(model.backbone, decide.reduction, num_frames=size[0])
    clip = torch.zeros(1, 3, *size)
    with torch.no_grad():
        stride = model.backbone(clip).stride
        context = see(clip)
    _, _, rows, cols = context.shape
    head = FlatHead(decide, stride=stride, map_size=(rows, cols)).eval()
    _require_size_for(head, context)
    return Graphs(
        see=_onnx(see, (clip,), [CLIPS], [CONTEXT], dynamic={}),
        decide=_onnx(head, _example(context, stride), [CONTEXT, *BOXES], RESULTS, dynamic=_dynamic()),
        size=size,
        map_size=(rows, cols),
        stride=stride,
    )


def _require_size_for(head: FlatHead, context: Tensor) -> None:
    try:
        with torch.no_grad():
            head(*_example(context, head.stride))
    except RuntimeError as error:
        raise ShapeError(
            f"clips must be large enough for the relations; maps of {tuple(context.shape[2:])} cells are not: {error}"
        ) from error


def _example(context: Tensor, stride: int) -> tuple[Tensor, ...]:
    """Two clips, three actors, two objects: numbers that differ, so that tracing cannot confuse them."""
    box = torch.tensor([[0.0, 0.0, stride, stride]])
    return (
        context.repeat(2, 1, 1, 1),
        box.repeat(3, 1),
        torch.tensor([0, 1, 1]),
        box.repeat(2, 1),
        torch.tensor([0, 0]),
    )


def _dynamic() -> dict[str, dict[int, str]]:
    actors, objects = {0: "actors"}, {0: "objects"}
    of_inputs = dict(zip((CONTEXT, *BOXES), ({0: "clips"}, actors, actors, objects, objects), strict=True))
    return {**of_inputs, **dict.fromkeys(RESULTS, actors)}


def _onnx(
    module: nn.Module,
    inputs: tuple[Tensor, ...],
    input_names: Sequence[str],
    output_names: Sequence[str],
    *,
    dynamic: dict[str, dict[int, str]],
) -> bytes:
    """Export by tracing: torch's other exporter needs another package, and fixes box counts below two."""
    file: Any = io.BytesIO()  # the exporter takes a file too, though its type hint does not say so
    with torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter(
            "ignore"
        )  # about its age, and about checks that tracing skips; parity is measured instead
        torch.onnx.export(
            module,
            inputs,
            file,
            dynamo=False,
            opset_version=OPSET,
            input_names=list(input_names),
            output_names=list(output_names),
            dynamic_axes=dynamic,
        )
    return file.getvalue()
