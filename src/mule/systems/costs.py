"""The cost of a network: parameters and multiply-adds of one clip, counted here and as published.

Counted are convolutions and matrix products. Publishers count more, each for every number that a batch norm returns:
pytorchvideo's model zoo five operations, except for SlowFast R50, and mmaction2 three, with the ReLU that follows.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

import torch
from torch import Tensor, nn
from torch.utils.flop_counter import FlopCounterMode

from mule.features.backbones.csn import CSN
from mule.features.backbones.i3d import I3D
from mule.features.backbones.slowfast import R50_8X8, R101_8X8, SlowFast
from mule.features.backbones.tiny import TinySlowFast
from mule.features.backbones.x3d import FACTORS, X3D
from mule.features.pooling import FeatureMaps
from mule.features.weights.card import Backbone
from mule.model import SceneBoxes
from mule.systems.catalogue import SYSTEMS
from mule.systems.design import Sizes, tiny_sizes

ResultT = TypeVar("ResultT")

AVA_KNOWN_CLASSES = 40
STAGE_KNOWN_CLASSES = 14
BY_PYTORCHVIDEO, BY_MMACTION2, BY_ITS_PAPER = "pytorchvideo", "mmaction2", "its paper"
NORM_OPERATIONS = {BY_PYTORCHVIDEO: 5, BY_MMACTION2: 3, BY_ITS_PAPER: 0}
"""Operations that a publisher counts for each number that a batch norm returns."""
NUM_ACTORS, NUM_OBJECTS = 4, 5
"""Actors and objects in the clip whose multiply-adds are counted."""


@dataclass(frozen=True)
class Cost:
    """Parameters and multiply-adds of one network, for an input of given frames, rows and columns."""

    name: str
    input_size: tuple[int, int, int]
    num_parameters: int
    num_multiply_adds: int
    """Of convolutions and matrix products."""
    num_normalised: int = 0
    """Numbers that batch norms return."""
    published_parameters_m: float | None = None
    published_multiply_adds_g: float | None = None
    publisher: str = ""
    norm_operations: int = 0
    """Operations that the publisher counts for each of these numbers."""

    @property
    def counted_alike(self) -> int:
        """Multiply-adds and the operations of batch norms, as the publisher counts them."""
        return self.num_multiply_adds + self.norm_operations * self.num_normalised


@dataclass(frozen=True)
class _Published:
    """A classifier for Kinetics-400 and its cost, where it was published."""

    name: str
    build: Callable[[], Backbone | TinySlowFast]
    input_size: tuple[int, int, int]
    parameters_m: float | None
    multiply_adds_g: float | None
    publisher: str = BY_PYTORCHVIDEO
    counts_norms: bool = True


_PUBLISHED = (
    _Published(
        "SlowFast R50 8x8", lambda: SlowFast(R50_8X8, num_classes=400), (32, 256, 256), 34.57, 65.71,
        counts_norms=False,
    ),
    _Published(
        "SlowFast R101 8x8", lambda: SlowFast(R101_8X8, num_classes=400), (32, 256, 256), 62.83, 127.20
    ),
    _Published("X3D-XS", lambda: X3D(FACTORS["XS"], num_classes=400), (4, 182, 182), 3.79, 0.91),
    _Published("X3D-S", lambda: X3D(FACTORS["S"], num_classes=400), (13, 182, 182), 3.79, 2.96),
    _Published("X3D-M", lambda: X3D(FACTORS["M"], num_classes=400), (16, 256, 256), 3.79, 6.72),
    _Published("X3D-L", lambda: X3D(FACTORS["L"], num_classes=400), (16, 356, 356), 6.15, 26.64),
    _Published("X3D-XL", lambda: X3D(FACTORS["XL"], num_classes=400), (16, 356, 356), 11.10, 48.4, BY_ITS_PAPER),
    _Published("ir-CSN-101", lambda: CSN(101, num_classes=400), (32, 256, 256), 22.21, 75.62),
    _Published("ir-CSN-152", lambda: CSN(152, num_classes=400), (32, 256, 256), 29.70, 98.10, BY_MMACTION2),
    _Published("I3D", lambda: I3D(num_classes=400), (64, 224, 224), None, None, ""),
    _Published("TinySlowFast (Stage)", TinySlowFast, (16, 96, 128), None, None, ""),
)  # fmt: skip


DETECTION_BACKBONES: Mapping[str, Callable[[], nn.Module]] = {
    "slowfast": lambda: SlowFast(R50_8X8, res5_stride=1, res5_dilation=2),
    "x3d": lambda: X3D(FACTORS["XL"], res5_stride=1, res5_dilation=2),
    "csn": lambda: CSN(152, res5_stride=1),
    "tiny": TinySlowFast,
}
INPUT_SIZES: Mapping[str, tuple[int, int, int]] = {
    "slowfast": (32, 256, 352),
    "x3d": (16, 256, 352),
    "csn": (32, 256, 352),
    "tiny": (16, 96, 128),
}


def backbone_costs() -> list[Cost]:
    """Return the cost of every backbone, as a classifier where it is one."""
    costs: list[Cost] = []
    for row in _PUBLISHED:
        with torch.device("meta"):
            network = row.build().eval()
            clips = torch.empty(1, 3, *row.input_size)
        _, count, num_normalised = _counted(
            network, lambda network=network, clips=clips: _classified(network, clips)
        )
        costs.append(
            Cost(
                row.name,
                row.input_size,
                _parameters(network),
                count,
                num_normalised,
                row.parameters_m,
                row.multiply_adds_g,
                row.publisher,
                NORM_OPERATIONS.get(row.publisher, 0) * row.counts_norms,
            )
        )
    return costs


def system_costs(*, tiny: bool = False) -> list[Cost]:
    """Return the cost of every system: with its published backbone and sizes, or with those of the rendered benchmark.

    The clip shows four actors and five objects.
    """
    costs: list[Cost] = []
    maps_of: dict[str, tuple[FeatureMaps, int, int]] = {}
    for system in SYSTEMS.values():
        name = "tiny" if tiny else system.backbone or "slowfast"
        if name not in maps_of:
            maps_of[name] = _seen(name)
        maps, num_parameters, seen = maps_of[name]
        sizes = (
            tiny_sizes(maps.channels, STAGE_KNOWN_CLASSES)
            if tiny
            else Sizes(maps.channels, AVA_KNOWN_CLASSES)
        )
        model, input_size = system.build(sizes).eval(), INPUT_SIZES[name]
        cost = num_parameters + _parameters(model), seen + _decided(model, maps, input_size)
        costs.append(Cost(system.name, input_size, *cost))
    return costs


def network_cost(name: str, backbone: nn.Module, decide: nn.Module, input_size: tuple[int, int, int]) -> Cost:
    """Return the cost of a backbone, on the meta device, and the network after it, for a clip as in `system_costs`."""
    maps, num_parameters, seen = _seen_by(backbone.eval(), input_size)
    decided = _decided(decide.eval(), maps, input_size)
    return Cost(name, input_size, num_parameters + _parameters(decide), seen + decided)


def _decided(decide: nn.Module, maps: FeatureMaps, input_size: tuple[int, int, int]) -> int:
    boxes = some_boxes(input_size)
    return _multiply_adds(lambda: decide([maps], boxes))


def _seen(name: str) -> tuple[FeatureMaps, int, int]:
    with torch.device("meta"):
        backbone = DETECTION_BACKBONES[name]().eval()
    return _seen_by(backbone, INPUT_SIZES[name])


def _seen_by(backbone: nn.Module, input_size: tuple[int, int, int]) -> tuple[FeatureMaps, int, int]:
    """Return zero maps of the backbone's shape, its parameters, and its multiply-adds."""
    clips = torch.empty(1, 3, *input_size, device="meta")
    maps, count, _ = _counted(backbone, lambda: backbone(clips))
    # RoIAlign's work depends on where boxes are, so what follows runs on real tensors
    zeros = FeatureMaps(tuple(torch.zeros(each.shape) for each in maps.maps), maps.stride)
    return zeros, _parameters(backbone), count


def some_boxes(input_size: tuple[int, int, int]) -> SceneBoxes:
    """Return the boxes of the actors and objects in the clip whose cost is counted."""
    rows, cols = input_size[1:]

    def spread(count: int) -> tuple[Tensor, Tensor]:
        left = torch.arange(count) * cols / (count + 1)
        box = torch.stack([left, left * 0 + rows / 4, left + cols / 5, left * 0 + rows * 3 / 4], dim=1)
        return box, torch.zeros(count, dtype=torch.int64)

    return SceneBoxes(*spread(NUM_ACTORS), *spread(NUM_OBJECTS))


def _classified(network: Backbone | TinySlowFast, clips: Tensor) -> Tensor | Sequence[Tensor]:
    features = network(clips)
    return features.maps if isinstance(network, TinySlowFast) else network.logits(features)


def _counted(network: nn.Module, run: Callable[[], ResultT]) -> tuple[ResultT, int, int]:
    """Run a network on the meta device; return its result, its multiply-adds, and how many numbers its norms return."""
    counts: list[int] = []

    def counted_only(input: Tensor) -> Tensor:
        counts.append(input.numel())
        return input

    # a batch norm changes no shape, and on the meta device it takes longer than all the rest
    norms = [each for each in network.modules() if isinstance(each, nn.BatchNorm2d | nn.BatchNorm3d)]
    for norm in norms:
        norm.forward = counted_only
    try:
        with torch.no_grad(), FlopCounterMode(display=False) as counter:
            result = run()
    finally:
        for norm in norms:
            del norm.forward
    return result, counter.get_total_flops() // 2, sum(counts)


def _multiply_adds(run: Callable[[], object]) -> int:
    with torch.no_grad(), FlopCounterMode(display=False) as counter:
        run()
    return counter.get_total_flops() // 2


def _parameters(network: nn.Module) -> int:
    return sum(parameter.numel() for parameter in network.parameters())
