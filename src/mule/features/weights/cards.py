"""What a weight card says: where published weights are, which backbone they fit, what they expect and scored."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from mule.core.errors import WeightsError
from mule.features.backbones.csn import CSN
from mule.features.backbones.i3d import I3D
from mule.features.backbones.slowfast import SlowFast
from mule.features.backbones.x3d import X3D
from mule.features.weights.keymaps import KEY_MAPS
from mule.video.transforms import (
    ACAR_R101,
    IMAGENET,
    MMACTION2,
    PLUS_MINUS_ONE,
    SLOWFAST,
    Normalisation,
)

Backbone = SlowFast | X3D | CSN | I3D
BackboneName = Literal["slowfast", "x3d", "csn", "i3d"]
Source = Literal["pytorchvideo", "pyslowfast", "caffe2", "mmaction2", "acar", "jax"]

BACKBONES: Mapping[BackboneName, Callable[..., Backbone]] = {
    "slowfast": SlowFast,
    "x3d": X3D,
    "csn": CSN,
    "i3d": I3D,
}
NORMALISATIONS: Mapping[str, Normalisation] = {
    "slowfast": SLOWFAST,
    "imagenet": IMAGENET,
    "mmaction2": MMACTION2,
    "acar_r101": ACAR_R101,
    "plus_minus_one": PLUS_MINUS_ONE,
}


@dataclass(frozen=True)
class ClipInput:
    """What a clip must be for these weights, as their publisher tests them."""

    num_frames: int
    stride_frames: int
    short_side_px: int
    crop_px: int | None
    """Side of the square that is cut out; None keeps the whole frame, as AVA is tested."""
    normalisation: str = "slowfast"
    """A key of `NORMALISATIONS`."""


@dataclass(frozen=True, kw_only=True)
class WeightCard:
    """One published file of weights.

    Attributes:
        options: Arguments of the backbone's constructor, all but `num_classes`.
        source: Who named the tensors; with `backbone` it picks the key map.
        num_tensors: Tensors of backbone and head in the file. Batch counters are among them, except in caffe2
            files, which have none.
        num_classes: Outputs of the classification head; None if the file has none that fits.
        label_map: What these outputs are: kinetics400, ava80 (output i is AVA's action i + 1) or
            background_ava80 (output i is AVA's action i).
        address: None where a file cannot be had by one plain request; `note` then says where it is.
        hash_prefix: First digits of the SHA-256 checksum, where the publisher writes them into the file's name.
        score: What the publisher reports, in percent, of `measure`.
        key_prefix: What is missing before each key of the file for the key map to know it.
    """

    name: str
    backbone: BackboneName
    options: Mapping[str, Any] = field(hash=False)
    source: Source
    num_tensors: int
    clip: ClipInput
    licence: str
    num_classes: int | None = None
    label_map: str | None = None
    score: float | None = None
    measure: str = ""
    address: str | None = None
    sha256: str | None = None
    hash_prefix: str | None = None
    key_prefix: str = ""
    note: str = ""

    def our_name(self, key: str) -> str | None:
        """Our name for a key of the file; None if it holds nothing of the backbone or its head."""
        return KEY_MAPS[self.backbone, self.source](self.key_prefix + key)


def build_backbone(card: WeightCard, *, with_head: bool = False, **overrides: Any) -> Backbone:  # noqa: ANN401
    """The backbone of a card, without weights; `overrides` replace its options (`res5_stride=1`, say)."""
    if with_head and card.num_classes is None:
        raise WeightsError(f"card '{card.name}' promises no classification head. Build without one.")
    options = {**card.options, **overrides, "num_classes": card.num_classes if with_head else None}
    return BACKBONES[card.backbone](**options)
