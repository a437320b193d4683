"""Held-out known actors, which calibrate a memory, and actions taught from a few exemplars.

A taught action adds a column to the network's outputs, and trust to the actors that do it.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Float32
from torch import Tensor

from mule.core.errors import NotFinite, RangeError, ShapeError
from mule.core.records import Evidence
from mule.memory.memory import (
    EvidenceMemory,
    require_fingerprint,
    require_same_model,
    shape_misfits,
    unit_features,
)
from mule.memory.opinion import for_classes, memory_evidence
from mule.memory.search import Weighed


@dataclass(frozen=True)
class HeldOut:
    """Known actors that neither trained the network nor are remembered, as the network saw them.

    They define how novel known actors look, so novel actors must not be among them.
    """

    features: Float32[Tensor, "actors dim"]
    """What a memory keeps of each actor."""
    outputs: Float32[Tensor, "actors classes"]
    """h: the network's raw output for each action; positive means for, negative against."""
    labels: Float32[Tensor, "actors classes"]
    class_names: tuple[str, ...]
    model: str
    """SHA-256 of the weights that made features and outputs."""
    videos: tuple[str, ...] | None = None
    """Names of all their videos; None if they were not recorded."""

    def __post_init__(self) -> None:
        require_fingerprint(self.model)
        actors, classes = len(self.features), len(self.class_names)
        expected = {
            "features": (actors, self.features.shape[-1]),
            "outputs": (actors, classes),
            "labels": (actors, classes),
        }
        problems = list(shape_misfits(self, expected))
        if problems:
            raise ShapeError(f"held-out actors must have consistent parts: {'; '.join(problems)}.")
        if not (torch.isfinite(self.features).all() and torch.isfinite(self.outputs).all()):
            raise NotFinite(
                "features and outputs of held-out actors must be finite. Look for NaN in the network."
            )
        if ((self.labels < 0) | (self.labels > 1) | self.labels.isnan()).any():
            raise RangeError("labels of held-out actors must lie from 0 to 1.")
        is_novel = ~(self.labels > 0).any(dim=1)
        if is_novel.any():
            raise RangeError(
                f"held-out actors must do at least one known action; {int(is_novel.sum())} of {len(self)} do none, the "
                f"first is actor {int(torch.nonzero(is_novel)[0])}. Leave them out."
            )

    def __len__(self) -> int:
        """Return the number of actors."""
        return len(self.features)


def apart_from(held_out: HeldOut | None, videos: Sequence[str]) -> Bool[Tensor, " actors"]:
    """Return which actors, given the video of each, may be remembered: those from videos without held-out actors.

    Actors of one video share camera, light and often the person. If some were remembered, the held-out ones
    would look less novel than actors of a new video do, and more of these would be flagged than promised.
    """
    taken = set[str]() if held_out is None else set(held_out.videos or ())
    return torch.tensor([video not in taken for video in videos], dtype=torch.bool)


SHARPNESS = 2.0
"""γ of the kernel e^(γ·(cos − 1))."""


@dataclass(frozen=True)
class Whitening:
    """Features relative to known actors: directions that vary within known actions are shrunk.

    x ↦ (z/‖z‖ − centre)·transform, brought to length 1.
    """

    centre: Float32[Tensor, " dim"]
    transform: Float32[Tensor, "dim dim"]

    def __call__(self, features: Float[Tensor, "actors dim"]) -> Float32[Tensor, "actors dim"]:
        """Return the features whitened, on the unit sphere."""
        return unit_features((unit_features(features).float() - self.centre) @ self.transform)


@dataclass(frozen=True)
class TaughtAction:
    """An action learnt without retraining: a kernel read-out on whitened features, calibrated to log-odds.

    h = slope·Σ coefficient·e^(γ·(cos(x, landmark) − 1)) + offset; landmarks are exemplars and remembered
    actors.
    """

    name: str
    whitening: Whitening
    landmarks: Float32[Tensor, "landmarks dim"]
    coefficients: Float32[Tensor, " landmarks"]
    slope: float
    offset: float
    typical_log_trust: float
    """The median of log t over held-out known actors."""
    inputs: Mapping[str, Tensor] = field(default_factory=dict)
    """What its examples are seen by, where that decides about novelty; else empty."""
    videos: tuple[str, ...] = ()
    """The video of each example."""

    def __post_init__(self) -> None:
        problems = list(_action_misfits(self))
        if problems:
            raise ShapeError(f"the parts of a taught action must agree: {'; '.join(problems)}.")
        numbers = (self.slope, self.offset, self.typical_log_trust)
        tensors = (self.whitening.centre, self.whitening.transform, self.landmarks, self.coefficients)
        if not (all(map(math.isfinite, numbers)) and all(bool(t.isfinite().all()) for t in tensors)):
            raise NotFinite(
                f"every number of the taught action '{self.name}' must be finite. Teach it again."
            )
        if self.slope <= 0:
            raise RangeError(f"slope must be above zero; got {self.slope}.")

    def output(self, features: Float[Tensor, "actors dim"]) -> Float32[Tensor, " actors"]:
        """Return h, the log-odds that each actor does this action; it joins the network's outputs."""
        score = sphere_kernel(self.whitening(features), self.landmarks) @ self.coefficients
        return self.slope * score + self.offset


@dataclass(frozen=True)
class Remembered:
    """Everything a model knows besides its network: a memory, its held-out actors, and taught actions."""

    memory: EvidenceMemory
    held_out: HeldOut | None = None
    taught: tuple[TaughtAction, ...] = ()

    def __post_init__(self) -> None:
        if self.held_out is not None:
            require_same_model(self.memory.model, self.held_out.model, what="memory and held-out actors")
        names = [action.name for action in self.taught]
        strangers = [name for name in names if name not in self.memory.class_names]
        if strangers or len(set(names)) != len(names):
            raise RangeError(f"taught actions must be different and remembered; got {', '.join(names)}.")

    @property
    def network_class_names(self) -> tuple[str, ...]:
        """The remembered actions that the network was trained on, in the memory's order."""
        names = {action.name for action in self.taught}
        return tuple(name for name in self.memory.class_names if name not in names)


def outputs_with_taught(
    remembered: Remembered, outputs: Float[Tensor, "actors classes"], features: Float[Tensor, "actors dim"]
) -> Float[Tensor, "actors all_classes"]:
    """Return the network's outputs h with one more column per taught action; the other columns do not change.

    Columns are in the order of `network_class_names`, then of `taught`.
    """
    if outputs.shape[1] != len(remembered.network_class_names):
        raise ShapeError(
            f"outputs must have a column each for {', '.join(remembered.network_class_names)}; got {outputs.shape[1]} columns."
        )
    taught = [action.output(features).to(outputs)[:, None] for action in remembered.taught]
    return torch.cat([outputs, *taught], dim=1)


def log_trust_with_taught(
    remembered: Remembered, weighed: Weighed, features: Float[Tensor, "actors dim"]
) -> Float[Tensor, " actors"]:
    """Return log trust, raised for actors that do a taught action to that of a typical known actor.

        t' = (1 − q)·t + q·max(t, t̄)      q = 1 − Π(1 − σ(h)) over taught actions, the belief that it does one of them

    t̄ is the trust of the typical held-out known actor. A few exemplars cannot fill the k nearest places, so
    without this an actor would be recognised and still called novel. No actor is trusted less than before.
    """
    log_trust = weighed.log_trust
    if not remembered.taught:
        return log_trust
    outputs = torch.stack([action.output(features) for action in remembered.taught])
    log_neither = -F.softplus(outputs.double()).sum(dim=0)
    log_either = torch.log(-torch.expm1(log_neither))
    typical = max(action.typical_log_trust for action in remembered.taught)
    as_known = log_trust.double().clamp(min=typical)
    return torch.logaddexp(log_neither + log_trust, log_either + as_known).to(log_trust.dtype)


def evidence_with_taught(remembered: Remembered, weighed: Weighed) -> Evidence:
    """Return the neighbours' evidence for each action, to be added to the network's; none for taught actions.

    Among the k nearest entries a few exemplars would be outvoted, so only the read-out of a taught action
    counts. Columns are in the order of `outputs_with_taught`.
    """
    trained = remembered.network_class_names
    said = memory_evidence(remembered.memory, weighed)
    about_trained = for_classes(said, remembered.memory.class_names, trained)
    names = (*trained, *(action.name for action in remembered.taught))
    return for_classes(about_trained, trained, names)


def sphere_kernel(
    points: Float[Tensor, "points dim"], others: Float[Tensor, "others dim"]
) -> Float[Tensor, "points others"]:
    """Return e^(γ·(cos − 1)): 1 for the same direction, e^(−2γ) for the opposite."""
    return torch.exp(SHARPNESS * (points @ others.T - 1))


def _action_misfits(action: TaughtAction) -> Iterator[str]:
    dim = len(action.whitening.centre)
    landmarks = len(action.coefficients)
    for name, tensor, expected in (
        ("transform", action.whitening.transform, (dim, dim)),
        ("landmarks", action.landmarks, (landmarks, dim)),
    ):
        if tuple(tensor.shape) != expected:
            yield f"{name} must be {expected}, got {tuple(tensor.shape)}"
