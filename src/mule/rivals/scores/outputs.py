"""What one forward pass leaves behind: all that any rival's score can ask for."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Literal, TypeVar, get_args

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor

from mule.core.errors import MissingOutputs, NotFinite, RangeError, ShapeError
from mule.core.records import at_least_single

Need = Literal["logits", "features", "readout", "dropout_logits"]
Stored = TypeVar("Stored")

HOW_TO_STORE: Mapping[Need, str] = {
    "logits": "keep the last layer's raw outputs",
    "features": "keep what the last linear layer sees",
    "readout": "keep LinearReadout(weight, bias) of the last linear layer",
    "dropout_logits": "run the network several times with dropout on and stack its raw outputs",
}

LARGEST_MISFIT = 0.02
"""How far readout(features) may miss the logits, as a share of the largest: room for half precision, no more."""


@dataclass(frozen=True)
class LinearReadout:
    """The network's last layer, h = W·f + b. A layer without bias has b = 0."""

    weight: Float[Tensor, "classes dim"]
    bias: Float[Tensor, " classes"]

    def __call__(self, features: Float[Tensor, "actors dim"]) -> Float[Tensor, "actors classes"]:
        """The logits of these features, in float32 or finer."""
        features = at_least_single(features)
        return F.linear(features, self.weight.to(features), self.bias.to(features))


@dataclass(frozen=True)
class StoredOutputs:
    """What a network said about each actor, kept from one forward pass.

    `logits` are its raw outputs h; `features` are what its last linear layer, `readout`, sees; `dropout_logits`
    are the raw outputs of several more passes with dropout on. Each score names what it needs of these.
    """

    logits: Float[Tensor, "actors classes"]
    features: Float[Tensor, "actors dim"] | None = None
    readout: LinearReadout | None = None
    dropout_logits: Float[Tensor, "passes actors classes"] | None = None

    def __post_init__(self) -> None:
        problems = list(_misfits(self))
        if problems:
            raise ShapeError(f"stored outputs must be of the same actors and classes: {'; '.join(problems)}.")
        for name, tensor in _tensors(self):
            _require_finite(name, tensor)
        if self.features is not None and self.readout is not None:
            _require_same_layer(self.logits, self.readout(self.features))

    @property
    def num_actors(self) -> int:
        """How many actors there are; zero is an ordinary number."""
        return self.logits.shape[0]

    @property
    def num_classes(self) -> int:
        """How many actions are known."""
        return self.logits.shape[1]

    def missing(self, needs: Iterable[Need]) -> list[Need]:
        """Which of these needs the forward pass did not store, in the record's order."""
        wanted = set(needs)
        return [need for need in get_args(Need) if need in wanted and getattr(self, need) is None]


def require_stored(outputs: StoredOutputs, needs: Iterable[Need], *, score: str) -> None:
    """Everything the score needs was stored; otherwise stops with the names of all that was not."""
    missing = outputs.missing(needs)
    if missing:
        raise MissingOutputs(
            f"{score} needs {' and '.join(missing)}; these outputs do not hold "
            f"{'it' if len(missing) == 1 else 'them'}. At the forward pass, "
            f"{'; '.join(HOW_TO_STORE[need] for need in missing)}."
        )


def stored(value: Stored | None, need: Need) -> Stored:
    """The value itself, which a score has named among its needs."""
    if value is None:
        raise MissingOutputs(f"{need} was not stored. At the forward pass, {HOW_TO_STORE[need]}.")
    return value


def _tensors(outputs: StoredOutputs) -> Iterator[tuple[str, Tensor]]:
    yield "logits", outputs.logits
    if outputs.features is not None:
        yield "features", outputs.features
    if outputs.readout is not None:
        yield "readout.weight", outputs.readout.weight
        yield "readout.bias", outputs.readout.bias
    if outputs.dropout_logits is not None:
        yield "dropout_logits", outputs.dropout_logits


def _misfits(outputs: StoredOutputs) -> Iterator[str]:
    logits = outputs.logits
    if logits.ndim != 2 or logits.shape[1] == 0:
        yield f"logits must be (actors, classes) with at least one class, got {tuple(logits.shape)}"
        return
    actors, classes = logits.shape
    shapes = {name: tuple(tensor.shape) for name, tensor in _tensors(outputs)}
    dim = shapes.get("features", shapes.get("readout.weight", (0, 0)))[-1]
    passes = shapes.get("dropout_logits", (0,))[0]
    expected = {
        "logits": (actors, classes),
        "features": (actors, dim),
        "readout.weight": (classes, dim),
        "readout.bias": (classes,),
        "dropout_logits": (passes, actors, classes),
    }
    for name, tensor in _tensors(outputs):
        if shapes[name] != expected[name]:
            yield f"{name} must be {expected[name]}, got {shapes[name]}"
        if not tensor.is_floating_point() or tensor.device != logits.device:
            yield (f"{name} must be floating-point on {logits.device}, got {tensor.dtype} on {tensor.device}")


def _require_finite(name: str, tensor: Tensor) -> None:
    wrong = ~torch.isfinite(tensor)
    if wrong.any():
        at = tuple(torch.nonzero(wrong)[0].tolist())
        raise NotFinite(
            f"{name} must be finite; {int(wrong.sum())} of {wrong.numel()} are not, the first is "
            f"{tensor[at].item()} at {at}. Look for NaN in the network's inputs."
        )


def _require_same_layer(
    logits: Float[Tensor, "actors classes"], remade: Float[Tensor, "actors classes"]
) -> None:
    if logits.numel() == 0:
        return
    misfit = (logits.float() - remade.float()).abs().max().item()
    scale = max(1.0, logits.abs().max().item())
    if misfit > LARGEST_MISFIT * scale:
        raise RangeError(
            f"readout(features) must be the logits; they differ by up to {misfit:.4g} where the largest logit is "
            f"{scale:.4g}. Keep the features exactly as the last linear layer sees them (after its normalisation, "
            "without dropout), and that layer's own weight and bias."
        )
