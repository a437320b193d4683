"""OpenMax: logits revised by how extreme an actor is for each class; what they lose, the unknown class wins."""

from typing import Literal

import numpy as np
import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float
from scipy.stats import gumbel_l
from torch import Tensor

from mule.core.errors import RangeError
from mule.core.records import Novelty
from mule.rivals.scores.output_score import OutputScore
from mule.rivals.scores.outputs import StoredOutputs

Activations = Literal["as_given", "above_least"]

TRANSLATION = 10_000.0
"""libMR moves the tail this far from zero before fitting a Weibull without location."""
FEWEST_IN_TAIL = 3
EUCLIDEAN_SHARE = 1 / 200
"""Bendale and Boult's weight of the Euclidean distance beside the cosine one ("eucos")."""


class OpenMax(OutputScore):
    """Probability of the unknown class after the logits of the top classes were revised (Bendale and Boult 2016).

        v̂_c = v_c·(1 − w_c·α_c)      v̂_unknown = Σ_c v_c − v̂_c      novelty = softmax(v̂_unknown, v̂_1, …, v̂_K)_unknown

    α_c = (A + 1 − i)/A for the class at place i of the `num_revised` = A largest logits, 0 for the others. w_c is
    the Weibull probability that an actor of class c is nearer to its mean activation vector (MAV) than this one,
    with the distance ‖v − MAV_c‖/200 + cosine distance; the Weibull is fitted to the `tail_size` largest
    distances of training actors. Original: A = 10, tail 20; DEAR uses A = 1.

    Our reading for several labels. An actor is *recognised* as c if it does c and its logit is above 0. MAV and tail
    of c come from its recognised training actors; if there are fewer than three, from all that do c; if those are
    fewer than three too, or all equally far, the class is never revised (w_c = 0) and `num_unrevised` counts it.

    Revision assumes logits above zero: a negative v_c *rises* to v̂_c and the unknown class loses. Networks with one
    sigmoid per class give mostly negative logits. `activations="above_least"` first subtracts each actor's smallest
    logit, which a softmax cannot see, so that revision always feeds the unknown class; ``"as_given"`` is the letter.

    The rank is the log-odds of the unknown class, v̂_unknown − logsumexp(v̂).
    """

    mean_activation: Tensor
    tail_start: Tensor
    tail_location: Tensor
    tail_spread: Tensor
    has_tail: Tensor

    def __init__(
        self, *, tail_size: int = 20, num_revised: int = 10, activations: Activations = "as_given"
    ) -> None:
        super().__init__("logits", learns=True)
        if tail_size < FEWEST_IN_TAIL or num_revised < 1:
            raise RangeError(
                f"tail_size must be at least {FEWEST_IN_TAIL} and num_revised at least 1; got {tail_size} and "
                f"{num_revised}."
            )
        self.tail_size = tail_size
        self.num_revised = num_revised
        self.activations: Activations = activations
        for name in ("mean_activation", "tail_start", "tail_location", "tail_spread"):
            self.register_buffer(name, torch.zeros(0, dtype=torch.float64))
        self.register_buffer("has_tail", torch.zeros(0, dtype=torch.bool))

    @property
    def num_unrevised(self) -> int:
        """How many classes had too few training actors for a tail."""
        return int((~self.has_tail).sum())

    def _fit(self, train: StoredOutputs, does: Bool[Tensor, "actors classes"]) -> None:
        logits = train.logits.double()
        recognised = does & (logits > 0)
        members = torch.where(recognised.sum(dim=0) >= FEWEST_IN_TAIL, recognised, does)
        share = members.double() / members.sum(dim=0).clamp(min=1)
        self.mean_activation = share.T @ logits
        distances = eucos_distance(logits, self.mean_activation)
        tails = [self._tail_of(distances[members[:, c], c]) for c in range(train.num_classes)]
        fitted = torch.tensor([tail or (0.0, 0.0, 1.0) for tail in tails], dtype=torch.float64).to(logits)
        self.tail_start, self.tail_location, self.tail_spread = fitted.unbind(dim=1)
        self.has_tail = torch.tensor([tail is not None for tail in tails], device=logits.device)

    def _tail_of(self, distances: Float[Tensor, " members"]) -> tuple[float, float, float] | None:
        tail = distances.sort().values[-self.tail_size :].cpu().numpy()
        if len(tail) < FEWEST_IN_TAIL or tail[-1] - tail[0] <= 1e-12 * tail[-1]:
            return None
        return tail[0].item(), *weibull_tail(tail)

    def _novelty(self, outputs: StoredOutputs) -> Novelty:
        logits = outputs.logits.double()
        activation = logits
        if self.activations == "above_least":
            activation = logits - logits.amin(dim=1, keepdim=True)
        lost = activation * self._extremeness(logits) * self._place_weight(logits)
        rank = lost.sum(dim=1) - (activation - lost).logsumexp(dim=1)
        return Novelty(value=torch.sigmoid(rank), rank=rank)

    def _extremeness(self, logits: Float[Tensor, "actors classes"]) -> Float[Tensor, "actors classes"]:
        beyond = eucos_distance(logits, self.mean_activation) - self.tail_start
        position = TRANSLATION * torch.log1p((beyond / TRANSLATION).clamp(min=-1))
        nearer = -torch.expm1(-torch.exp((position - self.tail_location) / self.tail_spread))
        return torch.where(self.has_tail, nearer, 0.0)

    def _place_weight(self, logits: Float[Tensor, "actors classes"]) -> Float[Tensor, "actors classes"]:
        revised = min(self.num_revised, logits.shape[1])
        weights = torch.arange(revised, 0, -1).to(logits) / revised
        top = logits.topk(revised, dim=1).indices
        return torch.zeros_like(logits).scatter(1, top, weights.expand(len(logits), -1))


def eucos_distance(
    activations: Float[Tensor, "actors dim"], means: Float[Tensor, "classes dim"]
) -> Float[Tensor, "actors classes"]:
    """Euclidean distance over 200 plus cosine distance, from every actor to every class's mean."""
    euclidean = torch.cdist(activations, means, compute_mode="donot_use_mm_for_euclid_dist")
    cosine = F.normalize(activations, dim=1) @ F.normalize(means, dim=1).T
    return EUCLIDEAN_SHARE * euclidean + (1 - cosine)


def weibull_tail(tail: Float[np.ndarray, " distances"]) -> tuple[float, float]:
    """Where and how wide the Weibull of these distances is, by maximum likelihood, as libMR's fit_high.

    libMR fits shape k and scale λ to x = d − min d + 10,000. If x is Weibull then log x is Gumbel (of minima) with
    location log λ and spread 1/k; both are given here for 10,000·log(x / 10,000), which is near d − min d, because
    k itself is so large that fitting it directly is ill-conditioned.
    """
    location, spread = gumbel_l.fit(TRANSLATION * np.log1p((tail - tail.min()) / TRANSLATION))
    return float(location), float(spread)
