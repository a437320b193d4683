"""What an approximate backbone loses, such as one in eight bits (`mule.runtime.eight_bits`), measured on clips."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from mule.core.errors import TooFewActors
from mule.features.pooling import FeatureMaps, box_features, context_map
from mule.runtime.eight_bits import ClipPixels

Forward = Callable[[ClipPixels], FeatureMaps]


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
    clips_and_boxes: Iterable[tuple[ClipPixels, Float[Tensor, "_boxes 4"]]],
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
