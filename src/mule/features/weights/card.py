"""The card of a file of weights: what it holds, which backbone it fits, and what that backbone expects to see."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Any, Literal

from mule.core.errors import WeightsError
from mule.core.packages import IndexPackage
from mule.features.backbones.csn import CSN
from mule.features.backbones.i3d import I3D
from mule.features.backbones.slowfast import SlowFast, Variant
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
Publisher = Literal["pytorchvideo", "pyslowfast", "caffe2", "mmaction2", "acar", "jax"]

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
    """The clips that these weights expect, as in their publisher's tests."""

    num_frames: int
    stride_frames: int
    short_side_px: int
    crop_px: int | None
    """Side of the square crop; None keeps the whole frame, as in tests on AVA."""
    normalisation: str = "slowfast"
    """A key of `NORMALISATIONS`."""


@dataclass(frozen=True, kw_only=True)
class WeightCard:
    """A published file of weights.

    Attributes:
        options: Arguments of the backbone's constructor, except `num_classes`.
        source: The project that named the tensors; with `backbone` it selects the key map.
        num_tensors: Tensors of backbone and head in the file, including batch counters (caffe2 files have none).
        num_classes: Outputs of the classification head; None if the file has no usable one.
        label_map: Meaning of the outputs: kinetics400, ava80 (output i is AVA's action i + 1) or
            background_ava80 (output i is AVA's action i).
        address: URL, or None if a plain request cannot fetch the file, or nobody published it; see `note`.
        package: A package of the Python index that carries the file; asked where the address has nothing.
        hash_prefix: First digits of the SHA-256 checksum, if the publisher puts them into the file name.
        score: Reported value of `measure`, in percent.
        key_prefix: Prefix to add to the keys of the file before the key map.
    """

    name: str
    backbone: BackboneName
    options: Mapping[str, Any] = field(hash=False)
    source: Publisher
    num_tensors: int
    clip: ClipInput
    licence: str
    num_classes: int | None = None
    label_map: str | None = None
    score: float | None = None
    measure: str = ""
    address: str | None = None
    package: IndexPackage | None = None
    sha256: str | None = None
    hash_prefix: str | None = None
    key_prefix: str = ""
    note: str = ""

    def with_options(self, **overrides: Any) -> "WeightCard":  # noqa: ANN401
        """Return the card with other options, such as `res5_stride=1`; fields of a `Variant` change its variant."""
        options = {**self.options, **overrides}
        variant = options.get("variant")
        if isinstance(variant, Variant):
            its = {each.name for each in fields(variant)} & overrides.keys()
            options["variant"] = replace(variant, **{name: options.pop(name) for name in its})
        return replace(self, options=options)

    def our_name(self, key: str) -> str | None:
        """Return our name of a key in the file; None if it does not belong to the backbone or its head."""
        return KEY_MAPS[self.backbone, self.source](self.key_prefix + key)


def build_backbone(card: WeightCard, *, with_head: bool = False, **overrides: Any) -> Backbone:  # noqa: ANN401
    """Build the backbone of a card without weights; `overrides` replace its options, such as `res5_stride=1`."""
    if with_head and card.num_classes is None:
        raise WeightsError(f"card '{card.name}' has no classification head. Build without one.")
    options = card.with_options(**overrides).options
    return BACKBONES[card.backbone](**options, num_classes=card.num_classes if with_head else None)
