"""Networks in eight-bit integers (NNCF, extra `mule-actions[openvino]`): faster than float32 allows, and what it costs.

Ranges of activations are read off clips that the caller brings; they should show what the network will see.
What is lost is measured on other clips, against the network that was not quantised.
"""

import contextlib
import io
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from importlib import import_module

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from mule.core.errors import TooFewActors
from mule.features.pooling import FeatureMaps, box_features, context_map
from mule.runtime.openvino import Network, RuntimeMissing, require_openvino, require_size

Clip = Float[Tensor, "1 3 _frames _rows _cols"]
Forward = Callable[[Clip], FeatureMaps]


def quantised(network: Network, clips: Iterable[Clip]) -> Network:
    """The network with weights and activations of its convolutions in eight bits, calibrated on the clips.

    A dozen or two are plenty. Biases are corrected layer by layer, which takes twice as long as NNCF's quick way
    and, on I3D with its Kinetics weights, leaves two thirds of the error.

    Raises:
        RuntimeMissing: NNCF is not installed.
        ShapeError: a clip is not of the network's size.
        TooFewActors: there are no clips.
    """
    require_openvino()
    try:
        nncf = import_module("nncf")
    except ImportError as missing:
        raise RuntimeMissing(
            f"Quantised backbones need NNCF: pip install 'mule-actions[openvino]'. It could not be imported: {missing}"
        ) from missing
    samples = list(clips)
    if not samples:
        raise TooFewActors("calibration needs at least one clip; got none. Bring clips like those to come.")
    for clip in samples:
        require_size(clip, network.size)
    dataset = nncf.Dataset([clip.contiguous().numpy() for clip in samples])
    with contextlib.redirect_stdout(io.StringIO()):  # NNCF draws progress bars
        graph = nncf.quantize(network.graph, dataset, subset_size=len(samples), fast_bias_correction=False)
    return Network(graph, network.size, network.stride)


@dataclass(frozen=True)
class Agreement:
    """How near an approximate backbone comes to the exact one, over some clips and the actors in them."""

    relative_error: float
    """‖approximate − exact‖ / ‖exact‖, over the feature maps of all clips."""
    largest_difference: float
    """Of any value in any map, as a share of the largest value of that map."""
    cosine: Float[Tensor, " actors"]
    """Of each actor's feature with its exact one."""
    same_top1: Bool[Tensor, " clips"] | None
    """Whether both put the same class first, clip by clip; None without a classification head."""

    def __str__(self) -> str:
        text = f"relative error {self.relative_error:.2e}, largest difference {self.largest_difference:.2e}"
        if len(self.cosine):
            text += f", cosine of {len(self.cosine)} actors {self.cosine.mean():.5f} (least {self.cosine.min():.5f})"
        if self.same_top1 is not None:
            text += f", same top-1 in {int(self.same_top1.sum())} of {len(self.same_top1)} clips"
        return text


@torch.inference_mode()
def agreement(
    exact: Forward,
    approximate: Forward,
    clips_and_boxes: Iterable[tuple[Clip, Float[Tensor, "_boxes 4"]]],
    *,
    logits: Callable[[FeatureMaps], Float[Tensor, "clips classes"]] | None = None,
) -> Agreement:
    """How two backbones agree on clips, each with its actors' boxes in pixels; one clip at a time in memory.

    Raises:
        TooFewActors: there are no clips.
    """
    squared_error = squared_length = largest = 0.0
    cosines: list[Tensor] = []
    same_top1: list[Tensor] = []
    for clip, boxes in clips_and_boxes:
        wanted, got = exact(clip), approximate(clip)
        for a, b in zip(wanted.maps, got.maps, strict=True):
            squared_error += float((b - a).square().sum())
            squared_length += float(a.square().sum())
            largest = max(largest, float((b - a).abs().max() / a.abs().max()))
        cosines.append(torch.cosine_similarity(_actor_features(wanted, boxes), _actor_features(got, boxes)))
        if logits is not None:
            same_top1.append(logits(wanted).argmax(1) == logits(got).argmax(1))
    if not cosines:
        raise TooFewActors("agreement needs at least one clip; got none.")
    return Agreement(
        relative_error=(squared_error / squared_length) ** 0.5,
        largest_difference=largest,
        cosine=torch.cat(cosines),
        same_top1=torch.cat(same_top1) if same_top1 else None,
    )


def _actor_features(
    features: FeatureMaps, boxes: Float[Tensor, "boxes 4"]
) -> Float[Tensor, "boxes channels"]:
    whose = torch.zeros(len(boxes), dtype=torch.long)
    return box_features(context_map(features), boxes, whose, stride=features.stride)
