"""Rivals on the same looks, with the same examples of nothing, folds, tracks and threshold: kNN and JointEnergy."""

from collections.abc import Callable
from typing import Protocol

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from mule.novelty.crossfit import Inputs, group_folds
from mule.novelty.known import KnownActors, idle_share
from mule.novelty.watched import IDLE_FROM
from mule.novelty.whitened import joined_blocks
from studies.watching.judging import Judged, Looked

NEIGHBOURS = 5
DECAY, MOST_ITERATIONS = 1e-3, 60


class Score(Protocol):
    """A rival fitted to known actors and examples of nothing."""

    def novelty(self, features: Tensor) -> Tensor:
        """Return how novel each actor looks."""
        ...

    def similarity(self, features: Tensor) -> Tensor:
        """Return how much each actor resembles each action, and last each idle class."""
        ...


class NearestNeighbours:
    """Minus the mean cosine with the nearest known actors, idle ones among them."""

    def __init__(self, features: Tensor, labels: Tensor) -> None:
        self._features, self._labels = features, labels

    def novelty(self, features: Tensor) -> Tensor:
        """Return how novel each actor looks."""
        return -(features @ self._features.T).topk(NEIGHBOURS, dim=1).values.mean(dim=1)

    def similarity(self, features: Tensor) -> Tensor:
        """Return the largest cosine with an actor of each class."""
        cosine = features @ self._features.T
        return torch.stack(
            [
                cosine[:, does].amax(dim=1) if does.any() else cosine.new_full((len(cosine),), -1.0)
                for does in self._labels.T
            ],
            dim=1,
        )


class JointEnergy:
    """Minus the summed free energies of a linear layer trained with cross-entropy, idle classes among its outputs."""

    def __init__(self, features: Tensor, labels: Tensor) -> None:
        self._mean, self._scale = features.mean(dim=0), features.std(dim=0).clamp(min=1e-6)
        x, y = self._scaled(features), labels.to(features)
        weight = torch.zeros(labels.shape[1], features.shape[1] + 1, dtype=features.dtype, requires_grad=True)
        optimizer = torch.optim.LBFGS([weight], max_iter=MOST_ITERATIONS, line_search_fn="strong_wolfe")

        def loss() -> Tensor:
            optimizer.zero_grad()
            value = (
                F.binary_cross_entropy_with_logits(x @ weight.T, y) + DECAY * weight[:, :-1].square().sum()
            )
            value.backward()
            return value

        optimizer.step(loss)
        self._weight = weight.detach()

    def novelty(self, features: Tensor) -> Tensor:
        """Return how novel each actor looks."""
        return -F.softplus(self.similarity(features)).sum(dim=1)

    def similarity(self, features: Tensor) -> Tensor:
        """Return the logits."""
        return self._scaled(features) @ self._weight.T

    def _scaled(self, features: Tensor) -> Tensor:
        scaled = (features - self._mean) / self._scale
        return torch.cat([scaled, scaled.new_ones(len(scaled), 1)], dim=1)


RIVALS: dict[str, Callable[[Tensor, Tensor], Score]] = {"kNN": NearestNeighbours, "JointEnergy": JointEnergy}


def features_of(inputs: Inputs) -> Tensor:
    """Return everything that a look is seen by as one feature of length 1."""
    return joined_blocks([inputs[name] for name in sorted(inputs)])


def judged_by(
    fit: Callable[[Tensor, Tensor], Score],
    known: KnownActors,
    watched: Looked,
    groups: Tensor,
    others: Looked,
) -> tuple[Judged, Judged]:
    """Return what a rival says of the training reels, films left out in turn, and of other reels."""
    features, seen = features_of(known.inputs), features_of(watched.inputs)
    folds, num_actions = group_folds(known.groups), len(known.actions)
    of_known = torch.empty(len(known), dtype=features.dtype)
    whole = fit(features, known.labels)
    novelty, similarity = whole.novelty(seen), whole.similarity(seen)
    for fold in folds.unique().tolist():
        out = folds == fold
        part = fit(features[~out], known.labels[~out])
        of_known[out] = part.novelty(features[out])
        rows = torch.isin(groups, known.groups[out])
        novelty[rows], similarity[rows] = part.novelty(seen[rows]), part.similarity(seen[rows])
    reference = of_known[known.calibrates].sort().values

    def judged(novelty: Tensor, similarity: Tensor) -> Judged:
        larger = len(reference) - torch.searchsorted(reference, novelty)
        rank = -((1 + larger) / (1 + len(reference))).double().log()
        idle = idle_share(similarity, num_idle=len(known.idle))
        probabilities = torch.softmax(similarity[:, :num_actions] / 0.05, dim=1).numpy()
        return Judged(rank, idle, np.where((idle > IDLE_FROM).numpy()[:, None], 0.0, probabilities))

    tested = features_of(others.inputs)
    return judged(novelty, similarity), judged(whole.novelty(tested), whole.similarity(tested))
