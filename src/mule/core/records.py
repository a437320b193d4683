"""Records that travel between rooms. Each record checks itself once, when it is made."""

from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from mule.core.errors import NotFinite, RangeError, ShapeError


def at_least_single(tensor: Tensor) -> Tensor:
    """Return half-precision numbers in float32, others unchanged: digamma and long sums need the digits."""
    return tensor.float() if tensor.dtype in (torch.float16, torch.bfloat16) else tensor


def _require_alike(what: str, first: Tensor, second: Tensor) -> None:
    if first.shape != second.shape:
        raise ShapeError(f"{what} must have one shape; got {tuple(first.shape)} and {tuple(second.shape)}.")
    if first.device != second.device or first.dtype != second.dtype:
        raise ShapeError(
            f"{what} must share device and type; got {first.dtype} on {first.device} and "
            f"{second.dtype} on {second.device}."
        )


def _require_evidence(name: str, values: Tensor) -> None:
    if torch.compiler.is_compiling():  # checking values would split the compiled graph
        return
    if not torch.isfinite(values).all():
        actor, action = torch.nonzero(~torch.isfinite(values))[0].tolist()
        raise NotFinite(
            f"{name} evidence must be finite; actor {actor}, class {action} has {values[actor, action].item()}. "
            "Look for NaN in the features, or lower the learning rate."
        )
    if (values < 0).any():
        actor, action = torch.nonzero(values < 0)[0].tolist()
        raise RangeError(
            f"{name} evidence must not be below zero; actor {actor}, class {action} has "
            f"{values[actor, action].item():.6g}. Raw outputs become evidence through EvidenceHead.evidence_from."
        )


@dataclass(frozen=True)
class Evidence:
    """Evidence for (`positive`) and against (`negative`) each known action, per actor. Never below zero.

    >>> evidence = Evidence(positive=torch.tensor([[3.0, 0.0]]), negative=torch.tensor([[0.0, 1.0]]))
    >>> evidence.num_actors, evidence.num_classes
    (1, 2)
    """

    positive: Float[Tensor, "actors classes"]
    negative: Float[Tensor, "actors classes"]

    def __post_init__(self) -> None:
        _require_alike("evidence for and against", self.positive, self.negative)
        if self.positive.ndim != 2 or self.positive.shape[1] == 0 or not self.positive.is_floating_point():
            raise ShapeError(
                "evidence must be floating-point, (actors, classes) with at least one class; got "
                f"{tuple(self.positive.shape)} of {self.positive.dtype}."
            )
        _require_evidence("positive", self.positive)
        _require_evidence("negative", self.negative)

    @property
    def num_actors(self) -> int:
        """The number of actors; it may be zero."""
        return self.positive.shape[0]

    @property
    def num_classes(self) -> int:
        """K: the number of known actions."""
        return self.positive.shape[1]


@dataclass(frozen=True)
class Opinion:
    """Belief, disbelief and uncertainty about each known action, per actor: three masses that sum to one.

    >>> opinion = Opinion(torch.tensor([[0.6]]), torch.tensor([[0.1]]), torch.tensor([[0.3]]), base_rate=0.5)
    >>> round(opinion.probability.item(), 2)
    0.75
    """

    belief: Float[Tensor, "actors classes"]
    disbelief: Float[Tensor, "actors classes"]
    uncertainty: Float[Tensor, "actors classes"]
    base_rate: float

    @property
    def probability(self) -> Float[Tensor, "actors classes"]:
        """The expected probability of each action, p = b + a·u."""
        return self.belief + self.base_rate * self.uncertainty


@dataclass(frozen=True)
class Novelty:
    """How novel each actor is, on two scales with the same order; larger means more novel in both.

    `value` lies in [0, 1] and is for people and thresholds (the paper's formula). It may round to exactly 0
    or 1. `rank` is in the log domain or unbounded, so it keeps the order where `value` cannot; metrics use it.

    >>> novelty = Novelty(value=torch.tensor([0.2, 1.0, 1.0]), rank=torch.tensor([-5.0, 30.0, 40.0]))
    >>> novelty.rank.argmax().item()
    2
    """

    value: Float[Tensor, " actors"]
    rank: Float[Tensor, " actors"]

    def __post_init__(self) -> None:
        _require_alike("value and rank", self.value, self.rank)
