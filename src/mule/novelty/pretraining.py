"""What the backbone's own classifier says of an actor: known actions have typical answers, novel ones do not.

label logits ℓ ─ softmax(ℓ / T) ─ square root ─▶ q, of length 1 ─ largest cosine with an action's mean ─▶ novelty

The classifier need not name the taught actions. It works best where pre-training had a name for the novel action, so
report named and unnamed novel actions apart.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float
from torch import Tensor

from mule.core.errors import ShapeError
from mule.core.records import Novelty

_TEMPERATURE = 1.5
"""Softens the classifier, which is surer than it is right."""


def root_probabilities(
    logits: Float[Tensor, "actors labels"], *, temperature: float = _TEMPERATURE
) -> Float[Tensor, "actors labels"]:
    """Return the square root of each label's probability: a vector of length 1, whose products are Bhattacharyya's.

    >>> root_probabilities(torch.zeros(1, 4)).tolist()
    [[0.5, 0.5, 0.5, 0.5]]
    """
    return F.log_softmax(logits.double() / temperature, dim=1).mul(0.5).exp()


@dataclass(frozen=True)
class LabelPrototypes:
    """The mean answer of the backbone's classifier to the actors of each action.

    >>> answers = root_probabilities(torch.tensor([[9.0, 0, 0], [0, 9.0, 0], [0, 0, 9.0]]))
    >>> score = LabelPrototypes.fit(answers[:2], torch.eye(2, dtype=torch.bool))
    >>> [round(rank, 2) for rank in score.novelty(answers).rank.tolist()]
    [-1.0, -1.0, -0.1]
    """

    prototypes: Float[Tensor, "actions labels"]
    """Of length 1; zeros for an action that nobody does."""

    @classmethod
    def fit(
        cls, answers: Float[Tensor, "actors labels"], labels: Bool[Tensor, "rows actions"]
    ) -> "LabelPrototypes":
        """Learn the mean answer (`root_probabilities`) to the actors of each action."""
        if len(answers) != len(labels):
            raise ShapeError(
                f"answers and labels must have one row per actor; got {len(answers)} and {len(labels)}."
            )
        return cls(F.normalize(labels.double().T @ answers.double(), dim=1))

    def similarity(self, answers: Float[Tensor, "actors labels"]) -> Float[Tensor, "actors actions"]:
        """Return the cosine of each actor's answer with each action's; −1 for an action that nobody did in training."""
        if answers.ndim != 2 or answers.shape[1] != self.prototypes.shape[1]:
            raise ShapeError(
                f"answers must be (actors, {self.prototypes.shape[1]}), as in fit; got {tuple(answers.shape)}."
            )
        cosines = F.normalize(answers.double(), dim=1) @ self.prototypes.T
        return torch.where(self.prototypes.any(dim=1), cosines, -1.0)

    def novelty(self, answers: Float[Tensor, "actors labels"]) -> Novelty:
        """Return minus the largest cosine: an actor is novel if the classifier answers as it does for no action."""
        nearest = self.similarity(answers).amax(dim=1)
        return Novelty(value=(1 - nearest).clamp(0, 2) / 2, rank=-nearest)

    def tensors(self) -> dict[str, Tensor]:
        """Return everything there is to save."""
        return {"prototypes": self.prototypes}

    @classmethod
    def of(cls, tensors: Mapping[str, Tensor]) -> "LabelPrototypes":
        """Return the score whose `tensors` were saved."""
        return cls(tensors["prototypes"])
