"""The outputs that a forward pass stores, and a novelty score on them: what it needs and how it learns."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Literal, TypeVar, get_args

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Shaped
from torch import Tensor, nn

from mule.core.errors import MissingOutputs, NotFinite, NotFitted, RangeError, ShapeError, TooFewActors
from mule.core.records import Novelty, at_least_single
from mule.novelty.calibration import make_room
from mule.novelty.scores import require_known

Need = Literal["logits", "features", "readout", "dropout_logits"]
Stored = TypeVar("Stored")

HOW_TO_STORE: Mapping[Need, str] = {
    "logits": "keep the last layer's raw outputs",
    "features": "keep what the last linear layer sees",
    "readout": "keep LinearReadout(weight, bias) of the last linear layer",
    "dropout_logits": "run the network several times with dropout on and stack its raw outputs",
}

LARGEST_MISFIT = 0.02
"""Largest difference allowed between readout(features) and the logits, as a share of the largest logit.

It leaves room for half precision."""


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
    """What one forward pass stores about each actor.

    `logits` are the raw outputs h; `features` are the inputs of the last linear layer, `readout`;
    `dropout_logits` are the raw outputs of further passes with dropout. Each score names which of these it
    needs.
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
        """How many actors there are; may be zero."""
        return self.logits.shape[0]

    @property
    def num_classes(self) -> int:
        """How many actions are known."""
        return self.logits.shape[1]

    def missing(self, needs: Iterable[Need]) -> list[Need]:
        """Which of these needs were not stored, in the order of the fields."""
        wanted = set(needs)
        return [need for need in get_args(Need) if need in wanted and getattr(self, need) is None]


def require_stored(outputs: StoredOutputs, needs: Iterable[Need], *, score: str) -> None:
    """Require that everything a score needs was stored; the error names all that is missing."""
    missing = outputs.missing(needs)
    if missing:
        raise MissingOutputs(
            f"{score} needs {' and '.join(missing)}; these outputs do not have "
            f"{'it' if len(missing) == 1 else 'them'}. In the forward pass, "
            f"{'; '.join(HOW_TO_STORE[need] for need in missing)}."
        )


def stored(value: Stored | None, need: Need) -> Stored:
    """The value itself, or an error that says how to store it."""
    if value is None:
        raise MissingOutputs(f"{need} was not stored. In the forward pass, {HOW_TO_STORE[need]}.")
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


class OutputScore(nn.Module, ABC):
    """Measure how novel each actor is from stored outputs; larger is more novel.

    `needs` names what the forward pass must store, so a comparison can check before it starts. A score that
    `learns` must be fitted on known training actors. What it learns lives in buffers, whose sizes depend on
    the actors: `state_dict` saves them and `load_state_dict` restores them, also into a score that was never
    fitted.
    """

    is_fitted: Tensor
    fitted_sizes: Tensor

    def __init__(self, *needs: Need, learns: bool) -> None:
        super().__init__()
        self.needs: frozenset[Need] = frozenset(needs)
        self.learns = learns
        self.register_buffer("is_fitted", torch.tensor(not learns))
        self.register_buffer("fitted_sizes", torch.tensor([0, 0]))
        self.register_load_state_dict_pre_hook(make_room)

    def fit(self, train: StoredOutputs, targets: Shaped[Tensor, "actors classes"]) -> None:
        """Learn from known actors and their actions. Actors that do no known action are refused.

        A score that learns nothing only checks its arguments.
        """
        require_stored(train, self.needs, score=type(self).__name__)
        if targets.shape != train.logits.shape:
            raise ShapeError(
                f"targets must have one entry per actor and class, {tuple(train.logits.shape)}; got "
                f"{tuple(targets.shape)}."
            )
        require_known(targets)
        if not self.learns:
            return
        if train.num_actors == 0:
            raise TooFewActors(f"{type(self).__name__} learns from known actors; got none.")
        # stays so if fitting fails half-way
        self.is_fitted = torch.tensor(False, device=train.logits.device)
        with torch.no_grad():
            self._fit(train, targets > 0)
        self.fitted_sizes = torch.tensor(self._sizes(train), device=train.logits.device)
        self.is_fitted = torch.tensor(True, device=train.logits.device)

    def forward(self, outputs: StoredOutputs) -> Novelty:
        """The novelty of each actor."""
        name = type(self).__name__
        require_stored(outputs, self.needs, score=name)
        if not self.is_fitted:
            raise NotFitted(
                f"{name} must be fitted on known actors first. Call fit(train, targets) on the outputs of training actors, "
                "or load the state_dict of a fitted score."
            )
        if self.learns and self.fitted_sizes.tolist() != self._sizes(outputs):
            raise ShapeError(
                f"{name} was fitted on (classes, dim) = {tuple(self.fitted_sizes.tolist())}; got "
                f"{tuple(self._sizes(outputs))}. Use outputs of the network it was fitted on."
            )
        with torch.no_grad():
            return self._novelty(outputs)

    def _fit(self, train: StoredOutputs, does: Bool[Tensor, "actors classes"]) -> None:
        """Learn from known actors; `does` marks the actions of each."""

    @abstractmethod
    def _novelty(self, outputs: StoredOutputs) -> Novelty: ...

    def _sizes(self, outputs: StoredOutputs) -> list[int]:
        features = outputs.features if "features" in self.needs else None
        return [outputs.num_classes, 0 if features is None else features.shape[1]]


class LogitScore(OutputScore):
    """A score that is a function of the logits."""

    def __init__(self, novelty: Callable[[Tensor], Novelty]) -> None:
        super().__init__("logits", learns=False)
        self.novelty = novelty

    def _novelty(self, outputs: StoredOutputs) -> Novelty:
        return self.novelty(outputs.logits)


class DropoutScore(OutputScore):
    """A score that is a function of the logits of passes with dropout."""

    def __init__(self, novelty: Callable[[Tensor], Novelty]) -> None:
        super().__init__("dropout_logits", learns=False)
        self.novelty = novelty

    def _novelty(self, outputs: StoredOutputs) -> Novelty:
        return self.novelty(stored(outputs.dropout_logits, "dropout_logits"))
