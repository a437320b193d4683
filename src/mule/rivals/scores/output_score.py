"""A novelty score on stored outputs: what it needs, how it is fitted, and that larger means more novel."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping

import torch
from jaxtyping import Bool, Shaped
from torch import Tensor, nn

from mule.core.errors import NotFitted, ShapeError, TooFewActors
from mule.core.records import Novelty
from mule.novelty.scores import require_known
from mule.rivals.scores.outputs import Need, StoredOutputs, require_stored, stored


class OutputScore(nn.Module, ABC):
    """How novel each actor is, read off stored outputs; larger is more novel.

    `needs` names what the forward pass must have stored, so a comparison can tell beforehand. A score that
    `learns` must first see known training actors; what it learnt lives in buffers, whose sizes come from the
    actors, so `state_dict` saves it and `load_state_dict` brings it back into a score that has seen nobody.
    """

    is_fitted: Tensor
    fitted_sizes: Tensor

    def __init__(self, *needs: Need, learns: bool) -> None:
        super().__init__()
        self.needs: frozenset[Need] = frozenset(needs)
        self.learns = learns
        self.register_buffer("is_fitted", torch.tensor(not learns))
        self.register_buffer("fitted_sizes", torch.tensor([0, 0]))
        self.register_load_state_dict_pre_hook(_make_room)

    def fit(self, train: StoredOutputs, targets: Shaped[Tensor, "actors classes"]) -> None:
        """Learns from known actors and their actions; refuses actors that do no known action.

        A score that learns nothing checks what it is given, all the same, and stays as it is.
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
        self.is_fitted = torch.tensor(
            False, device=train.logits.device
        )  # what stops half-way has not been fitted
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
                f"{name} has not seen known actors yet. Call fit(train, targets) on the outputs of training "
                "actors, or load a state_dict that was saved after it."
            )
        if self.learns and self.fitted_sizes.tolist() != self._sizes(outputs):
            raise ShapeError(
                f"{name} was fitted on (classes, dim) = {tuple(self.fitted_sizes.tolist())}; got "
                f"{tuple(self._sizes(outputs))}. Judge actors by the network whose outputs it was fitted on."
            )
        with torch.no_grad():
            return self._novelty(outputs)

    def _fit(self, train: StoredOutputs, does: Bool[Tensor, "actors classes"]) -> None:
        """Learns from which known actions (`does`) each actor does."""

    @abstractmethod
    def _novelty(self, outputs: StoredOutputs) -> Novelty: ...

    def _sizes(self, outputs: StoredOutputs) -> list[int]:
        features = outputs.features if "features" in self.needs else None
        return [outputs.num_classes, 0 if features is None else features.shape[1]]


class LogitScore(OutputScore):
    """A score that is a plain function of the logits."""

    def __init__(self, novelty: Callable[[Tensor], Novelty]) -> None:
        super().__init__("logits", learns=False)
        self.novelty = novelty

    def _novelty(self, outputs: StoredOutputs) -> Novelty:
        return self.novelty(outputs.logits)


class DropoutScore(OutputScore):
    """A score that is a plain function of the logits of passes with dropout on."""

    def __init__(self, novelty: Callable[[Tensor], Novelty]) -> None:
        super().__init__("dropout_logits", learns=False)
        self.novelty = novelty

    def _novelty(self, outputs: StoredOutputs) -> Novelty:
        return self.novelty(stored(outputs.dropout_logits, "dropout_logits"))


def _make_room(score: nn.Module, state_dict: Mapping[str, Tensor], prefix: str, *_: object) -> None:
    """Buffers take the sizes and types that were saved, which an unfitted score cannot know."""
    for name, buffer in list(score.named_buffers(recurse=False)):
        saved = state_dict.get(prefix + name)
        if saved is not None:
            setattr(score, name, torch.empty_like(saved, device=buffer.device))
