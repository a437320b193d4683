"""The sizes of everything after the backbone: as published, or small enough for a few clips."""

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Literal

from mule.evidence.head import EvidenceFunction, Parameterisation
from mule.features.pooling import DETECTION_HEAD, RoiSampling
from mule.relations.maps import PUBLISHED, RelationSettings


@dataclass(frozen=True)
class HeadOptions:
    """What an experiment changes in the evidence head; None keeps the system's own."""

    parameterisation: Parameterisation | None = None
    function: EvidenceFunction | None = None
    bias: bool | None = None

    def given(self) -> dict[str, Any]:
        """Return the options that are given, as arguments of a head."""
        return {name: value for name, value in asdict(self).items() if value is not None}


@dataclass(frozen=True)
class Sizes:
    """The sizes of everything after the backbone; the defaults are the published ones."""

    channels: int
    """Channels of the backbone's maps, all pathways together."""
    num_classes: int
    reduced: int | None = 1024
    """Channels after the 1×1 convolution that precedes relations; None leaves the convolution out."""
    relations: RelationSettings = PUBLISHED
    width: int = 1024
    """Width of AIA's layers; AFAC and DEAR's branches have half of it."""
    dropout: float = 0.5
    """Dropout probability before the last layer of rivals without relations."""
    sampling: RoiSampling = DETECTION_HEAD
    aco_r: Literal["grid", "factored"] | None = None
    """The form of actor-context-object relations, in systems that have them; None keeps each system's own."""
    head: HeadOptions = field(default_factory=HeadOptions)


def tiny_sizes(channels: int, num_classes: int) -> Sizes:
    """Return sizes for the rendered benchmark, whose maps have 12 × 16 cells."""
    relations = RelationSettings(width=32, padding=1, is_downsampled=False, block_dropout=0.0)
    return Sizes(
        channels, num_classes, reduced=None, relations=relations, width=64, dropout=0.1,
        sampling=RoiSampling(bins=4, samples=2),
    )  # fmt: skip


def small_sizes(channels: int, num_classes: int) -> Sizes:
    """Return sizes for about a hundred clips with a frozen backbone: as tiny, with dropout 0.5."""
    tiny = tiny_sizes(channels, num_classes)
    return replace(tiny, relations=replace(tiny.relations, dropout=0.5), dropout=0.5)


def medium_sizes(channels: int, num_classes: int) -> Sizes:
    """Return sizes for several hundred clips with a frozen backbone: as small, three times as wide, down-sampled."""
    small = small_sizes(channels, num_classes)
    return replace(small, relations=replace(small.relations, width=96, is_downsampled=True))


SIZES: Mapping[str, Callable[[int, int], Sizes]] = {
    "published": Sizes,
    "tiny": tiny_sizes,
    "small": small_sizes,
    "medium": medium_sizes,
}
