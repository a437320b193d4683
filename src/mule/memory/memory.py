"""The evidence memory: one normalised feature per remembered actor, what it did, and where it was seen."""

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Float32, Float64, Int, Int64, Shaped
from torch import Tensor

from mule.core.errors import NotFinite, NotFitted, RangeError, ShapeError
from mule.core.records import at_least_single

NUM_NEIGHBOURS = 20
LARGEST_LENGTH_ERROR = 1e-3
"""How far the length of a normalised feature may be from 1."""

_SHA256 = re.compile(r"[0-9a-f]{64}")


@dataclass(frozen=True)
class Places:
    """Where each actor was seen, and its group. Actors of one group are never each other's neighbours.

    Each name is stored once, and actors point at it. A group is a clip, or a whole video if its clips
    resemble each other.
    """

    video_names: tuple[str, ...]
    video_index: Int64[Tensor, " actors"]
    time_s: Float64[Tensor, " actors"]
    """NaN for actors of a whole video."""
    boxes_xyxy_unit: Float32[Tensor, "actors 4"]
    """Corners as shares of the frame's width and height."""
    group_names: tuple[str, ...]
    group_index: Int64[Tensor, " actors"]

    def __post_init__(self) -> None:
        problems = list(_misplaced(self))
        if problems:
            raise ShapeError(f"places must be one per actor: {'; '.join(problems)}.")
        wrong = torch.nonzero(_wrong_boxes(self.boxes_xyxy_unit) | self.time_s.isinf()).flatten()
        if len(wrong):
            first = int(wrong[0])
            raise RangeError(
                "a place must be a finite time and a box x1 < x2, y1 < y2 within 0 to 1; "
                f"{len(wrong)} of {len(self)} are not, the first is actor {first}: {self.time_s[first].item()} s, "
                f"{self.boxes_xyxy_unit[first].tolist()}. Divide boxes in pixels by the frame's width and height."
            )

    @classmethod
    def of(
        cls,
        videos: Sequence[str],
        time_s: Float[Tensor, " actors"],
        boxes_xyxy_unit: Float[Tensor, "actors 4"],
        *,
        groups: Sequence[str] | None = None,
    ) -> "Places":
        """Return places from one video name per actor; without `groups`, the actors of one video are one group."""
        video_names, video_index = _numbered(videos)
        group_names, group_index = _numbered(videos if groups is None else groups)
        return cls(
            video_names, video_index, time_s.double(), boxes_xyxy_unit.float(), group_names, group_index
        )

    def __len__(self) -> int:
        """Return the number of actors."""
        return len(self.video_index)

    def __getitem__(self, rows: Shaped[Tensor, " chosen"]) -> "Places":
        """Return the places of some actors."""
        return replace(
            self,
            video_index=self.video_index[rows],
            time_s=self.time_s[rows],
            boxes_xyxy_unit=self.boxes_xyxy_unit[rows],
            group_index=self.group_index[rows],
        )

    def videos(self) -> list[str]:
        """Return the video of each actor."""
        return [self.video_names[i] for i in self.video_index.tolist()]

    def groups(self) -> list[str]:
        """Return the group of each actor."""
        return [self.group_names[i] for i in self.group_index.tolist()]


@dataclass(frozen=True)
class NeighbourKernel:
    """The weight of a remembered actor at distance d, w = exp(−d² / (ρ·s·s̄)), and its evidence, S times the weight."""

    num_neighbours: int
    typical_scale: float
    """s̄: the median over entries of the distance to their k-th neighbour from another group."""
    reach: float | None = None
    """ρ: the median of d² / (s·s̄) over held-out known actors and their neighbours; None before calibration."""
    evidence_scale: float | None = None
    """S: chosen on held-out known actors; None before calibration."""

    def __post_init__(self) -> None:
        if self.num_neighbours < 1:
            raise RangeError(f"num_neighbours must be at least 1; got {self.num_neighbours}.")
        for name in ("typical_scale", "reach", "evidence_scale"):
            value = getattr(self, name)
            if value is not None and not (math.isfinite(value) and value > 0):
                raise RangeError(
                    f"{name} must be a finite number above zero; got {value}. Check whether many actors have the same feature."
                )

    def calibrated_reach(self) -> float:
        """Return ρ; raise if the memory is not calibrated."""
        if self.reach is None:
            raise NotFitted(_uncalibrated("ρ"))
        return self.reach

    def calibrated_evidence_scale(self) -> float:
        """Return S; raise if the memory is not calibrated."""
        if self.evidence_scale is None:
            raise NotFitted(_uncalibrated("S"))
        return self.evidence_scale


@dataclass(frozen=True)
class EvidenceMemory:
    """Remembered actors, in no particular order. Its tensors never change.

    After pruning an entry stands for several actors: its labels are their mean, its count is their number.
    """

    features: Float32[Tensor, "entries dim"]
    """The feature of each actor (`whole_features`), on the unit sphere."""
    labels: Float32[Tensor, "entries classes"]
    """The share of each entry's actors that did each action, from 0 to 1."""
    counts: Float32[Tensor, " entries"]
    scales: Float32[Tensor, " entries"]
    """s: the distance of each entry to its k-th neighbour from another group."""
    places: Places
    class_names: tuple[str, ...]
    kernel: NeighbourKernel
    model: str
    """SHA-256 of the weights that made the features."""
    tags: tuple[str, ...] = ()
    """Labels among `class_names` that describe how an actor is seen, not what it does; they are not actions."""

    def __post_init__(self) -> None:
        require_fingerprint(self.model)
        strange = [name for name in self.tags if name not in self.class_names]
        if strange:
            raise RangeError(f"the tags of a memory must be among its labels; {', '.join(strange)} are not.")
        problems = list(_misfits(self))
        if problems:
            raise ShapeError(
                f"the parts of a memory must agree in entries and classes: {'; '.join(problems)}."
            )
        _require_values(self)

    def __len__(self) -> int:
        """Return the number of entries, which may be zero."""
        return len(self.features)

    def at(self, rows: Shaped[Tensor, " chosen"]) -> "EvidenceMemory":
        """Return the memory with some of its entries."""
        return replace(
            self,
            features=self.features[rows],
            labels=self.labels[rows],
            counts=self.counts[rows],
            scales=self.scales[rows],
            places=self.places[rows],
        )

    @property
    def dim(self) -> int:
        """The length of a feature."""
        return self.features.shape[1]

    @property
    def is_action(self) -> Bool[Tensor, " classes"]:
        """Return which labels are actions; tags are not."""
        return torch.tensor([name not in self.tags for name in self.class_names], dtype=torch.bool)

    @property
    def num_classes(self) -> int:
        """The number of remembered labels."""
        return len(self.class_names)


def unit_features(features: Float[Tensor, "actors dim"]) -> Float[Tensor, "actors dim"]:
    """Return features on the unit sphere, z / ‖z‖; a feature of zeros stays zero, equally far from all."""
    features = at_least_single(features)
    # divide by the largest entry first, so that squares of huge or tiny features stay in range
    largest = features.abs().amax(dim=1, keepdim=True).clamp(min=torch.finfo(features.dtype).tiny)
    return F.normalize(features / largest, dim=1)


def whole_features(
    related: Float[Tensor, "actors dim"], looks: Float[Tensor, "actors channels"]
) -> Float[Tensor, "actors whole"]:
    """Return what a memory keeps of an actor: [z/‖z‖ | a/‖a‖], the last layer's feature and the backbone's in the box.

    The last layer's feature separates known actions and drops the rest, which the backbone's feature still
    has. Both count the same.
    """
    return torch.cat([unit_features(related), unit_features(looks)], dim=1)


def require_fingerprint(model: str) -> None:
    """Raise unless `model` is a SHA-256, which names a model by its weights."""
    if not _SHA256.fullmatch(model):
        raise RangeError(
            f"model must be the 64 hexadecimal digits of its weights' SHA-256; got '{model}'. A run's card.json has "
            "them as weights_sha256."
        )


def require_same_model(ours: str, theirs: str, *, what: str) -> None:
    """Raise unless two fingerprints are equal; features of different models cannot be compared."""
    if ours != theirs:
        raise RangeError(
            f"{what} must have features of one model; got {ours[:12]}… and {theirs[:12]}…. Build the memory again "
            "with the model that uses it."
        )


def _uncalibrated(what: str) -> str:
    return f"{what} must be set before a memory is used; this memory is not calibrated. Call calibrate(memory, held_out)."


def _numbered(names: Sequence[str]) -> tuple[tuple[str, ...], Int[Tensor, " actors"]]:
    numbers: dict[str, int] = {}
    index = [numbers.setdefault(name, len(numbers)) for name in names]
    return tuple(numbers), torch.tensor(index, dtype=torch.int64)


def _misplaced(places: Places) -> Iterator[str]:
    actors = len(places.video_index)
    for name, expected in (
        ("video_index", (actors,)),
        ("time_s", (actors,)),
        ("boxes_xyxy_unit", (actors, 4)),
        ("group_index", (actors,)),
    ):
        found = tuple(getattr(places, name).shape)
        if found != expected:
            yield f"{name} must be {expected}, got {found}"
    for name, index, names in (
        ("video_index", places.video_index, places.video_names),
        ("group_index", places.group_index, places.group_names),
    ):
        if len(index) and not 0 <= int(index.min()) <= int(index.max()) < len(names):
            yield f"{name} must point at one of {len(names)} names, got {int(index.min())} to {int(index.max())}"


def _wrong_boxes(boxes: Float[Tensor, "actors 4"]) -> Shaped[Tensor, " actors"]:
    x1, y1, x2, y2 = boxes.unbind(dim=1)
    return ~((x1 >= 0) & (y1 >= 0) & (x2 <= 1) & (y2 <= 1) & (x1 < x2) & (y1 < y2))


def shape_misfits(record: object, expected: Mapping[str, tuple[int, ...]]) -> Iterator[str]:
    """Say which parts of a record are not float32 of the expected shape."""
    for name, shape in expected.items():
        tensor = getattr(record, name)
        if tuple(tensor.shape) != shape or tensor.dtype != torch.float32:
            yield f"{name} must be float32 {shape}, got {tensor.dtype} {tuple(tensor.shape)}"


def _misfits(memory: EvidenceMemory) -> Iterator[str]:
    entries, classes = len(memory.features), len(memory.class_names)
    yield from shape_misfits(
        memory,
        {
            "features": (entries, memory.features.shape[-1]),
            "labels": (entries, classes),
            "counts": (entries,),
            "scales": (entries,),
        },
    )
    if len(memory.places) != entries:
        yield f"places must be {entries}, got {len(memory.places)}"
    if len(set(memory.class_names)) != classes or not all(memory.class_names):
        yield f"class_names must be different and not empty, got {memory.class_names}"


def _require_values(memory: EvidenceMemory) -> None:
    for name in ("features", "labels", "counts", "scales"):
        wrong = torch.nonzero(~torch.isfinite(getattr(memory, name)))
        if len(wrong):
            raise NotFinite(
                f"{name} of a memory must be finite; {len(wrong)} numbers are not, the first in entry "
                f"{int(wrong[0, 0])}. Look for NaN in the network's outputs."
            )
    lengths = torch.linalg.vector_norm(memory.features, dim=1)
    bad = {
        "features of length 1": (lengths - 1).abs() > LARGEST_LENGTH_ERROR,
        "labels from 0 to 1": ((memory.labels < 0) | (memory.labels > 1)).any(dim=1),
        "a count above 0": memory.counts <= 0,
        "a scale above 0": memory.scales <= 0,
    }
    problems = [
        f"{what} ({int(rows.sum())} do not, the first is entry {int(torch.nonzero(rows)[0])})"
        for what, rows in bad.items()
        if rows.any()
    ]
    if problems:
        raise RangeError(
            f"every entry of a memory must have {' and '.join(problems)}. Build it with build_memory."
        )
