"""A recogniser as two graphs in ONNX's format: what sees a clip, and what decides about everybody in it.

    see:     clips (1, 3, frames, rows, cols) ─▶ context (1, channels, map rows, map cols)
    decide:  context of any number of clips, boxes of any number of actors and objects ─▶ outputs, features, evidence

Two, because a clip is seen once and decided about often: once with everybody there, and once without each.
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
SAID = ("outputs", "features", "positive_evidence", "negative_evidence")


@dataclass(frozen=True)
class Graphs:
    """Both graphs for clips of one size, as the bytes of ONNX files."""

    see: bytes
    decide: bytes
    size: ClipSize
    map_size: MapSize
    stride: int


def deciding(model: MuleModel) -> RelationModel:
    """The part of a model that is exported as `decide`.

    Raises:
        RangeError: it, or its relations, have no form that could be exported.
    """
    if not isinstance(model.decide, RelationModel):
        raise RangeError(
            f"a network to be exported must be pooling, relations and evidence; {type(model.decide).__name__} is something "
            "else. Use --runtime torch."
        )
    related_by(model.decide.relations)
    return model.decide


def digest_of(model: MuleModel) -> str:
    """SHA-256 over every weight by name, and over the layers and settings around them."""
    decide = deciding(model)
    settings = getattr(decide.relations, "settings", None)
    found = hashlib.sha256(f"{model}\n{decide.sampling}\n{settings}".encode())
    for name, tensor in sorted(model.state_dict().items()):
        found.update(f"{name} {tuple(tensor.shape)} {tensor.dtype}".encode())
        found.update(tensor.detach().contiguous().reshape(-1).view(torch.uint8).numpy())
    return found.hexdigest()


def require_exporter() -> None:
    """Returns if the package is there with which torch writes graphs; running those that are kept needs none.

    Raises:
        RuntimeMissing: it is not.
    """
    try:
        import_module("onnx")
    except ImportError as missing:
        raise RuntimeMissing(
            f"Making graphs needs onnx: pip install 'mule[onnx]'. It could not be imported: {missing}"
        ) from missing


def graphs_of(model: MuleModel, size: ClipSize) -> Graphs:
    """The graphs of a model in evaluation mode, for clips of this size.

    Raises:
        RangeError: the model is in training mode, or has no form that could be exported.
        ShapeError: clips of this size are not for this model.
        RuntimeMissing: the package that torch's exporter needs is not installed.
    """
    require_exporter()
    decide = deciding(model)
    if model.training:
        raise RangeError(
            "a model to be exported must be in evaluation mode; it is in training mode. Call eval()."
        )
    if not isinstance(model.backbone, nn.Module):
        raise RangeError("a model to be exported must run on torch; this one was exported already.")
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
        decide=_onnx(head, _example(context, stride), [CONTEXT, *BOXES], SAID, dynamic=_dynamic()),
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
    """Two clips, three actors, two objects: no number that is traced is another's."""
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
    return {**of_inputs, **dict.fromkeys(SAID, actors)}


def _onnx(
    module: nn.Module,
    inputs: tuple[Tensor, ...],
    input_names: Sequence[str],
    output_names: Sequence[str],
    *,
    dynamic: dict[str, dict[int, str]],
) -> bytes:
    """By the exporter that traces: the other one needs a package more, and fixes numbers of boxes below two."""
    file: Any = io.BytesIO()  # the exporter takes a file too, though its type does not say so
    with torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of its age, and of checks that leave no trace; parity is measured
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
