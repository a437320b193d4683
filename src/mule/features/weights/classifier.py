"""The classifier that published weights bring along: what the backbone already has names for."""

from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import cast

import torch
from jaxtyping import Float
from torch import Tensor, nn

from mule.core.errors import ShapeError
from mule.features.backbones.i3d import I3D, MIXED_4F_CHANNELS
from mule.features.backbones.x3d import X3D
from mule.features.weights.card import Backbone, WeightCard, build_backbone
from mule.features.weights.loading import load_backbone

NAMES_FOLDER = "label_names"


@dataclass(frozen=True)
class LabelClassifier:
    """The last layer of a published network: label logits from a mean of the backbone's last map.

    It is linear, so the mean of several features has the mean of their logits.

    >>> classifier = LabelClassifier(torch.eye(2), torch.zeros(2), ("archery", "juggling"))
    >>> classifier(torch.tensor([[3.0, 1.0]])).tolist()
    [[3.0, 1.0]]
    """

    weight: Float[Tensor, "labels channels"]
    bias: Float[Tensor, " labels"]
    names: tuple[str, ...]
    """Empty if the package does not know them."""

    def __call__(self, features: Float[Tensor, "actors channels"]) -> Float[Tensor, "actors labels"]:
        """Return the logit of each label."""
        if features.shape[1] != self.weight.shape[1]:
            raise ShapeError(
                f"this classifier reads {self.weight.shape[1]} channels, those of the backbone's last map; got "
                f"{features.shape[1]}."
            )
        return features.float() @ self.weight.T + self.bias


def has_classifier(card: WeightCard) -> bool:
    """Whether the card's file has a classifier that is linear in the mean of the map that the backbone ends with.

    X3D's is not linear, and I3D's reads mixed_5c alone.
    """
    reads_last = card.options.get("endpoint", "mixed_5c") == "mixed_5c"
    return card.num_classes is not None and reads_last and not isinstance(_empty(card), X3D)


def label_names(card: WeightCard) -> tuple[str, ...]:
    """Return the names of the labels in the order of the outputs; empty if the package does not ship them."""
    place = files("mule.features.weights") / NAMES_FOLDER / f"{card.label_map}.txt"
    return tuple(place.read_text(encoding="utf-8").splitlines()) if place.is_file() else ()


def last_channels(card: WeightCard) -> int:
    """Return how many channels the backbone's last map has; they come first where a card keeps a finer map beside it."""
    backbone = _empty(card)
    is_beside = isinstance(backbone, I3D) and backbone.also_mixed_4f
    return backbone.channels - (MIXED_4F_CHANNELS if is_beside else 0)


def load_classifier(path: Path, card: WeightCard) -> LabelClassifier | None:
    """Load the classifier of a file of weights; None if the card says that there is none.

    Raises:
        WeightsError: the file cannot be read or does not match the card.
    """
    if not has_classifier(card):
        return None
    head = cast("nn.Conv3d | nn.Linear", load_backbone(path, card, with_head=True).head)
    bias = cast("Tensor | None", head.bias)
    weight = head.weight.detach().float().flatten(1).contiguous()
    return LabelClassifier(
        weight,
        torch.zeros(len(weight)) if bias is None else bias.detach().float(),
        label_names(card),
    )


def _empty(card: WeightCard) -> Backbone:
    """Return the backbone without weights."""
    with torch.device("meta"):
        return build_backbone(card)
