"""Novelty as the lack of any probable action: maximum softmax and maximum sigmoid probability."""

import torch
from jaxtyping import Float
from torch import Tensor

from mule.core.errors import RangeError
from mule.core.records import Novelty


def max_softmax_novelty(logits: Float[Tensor, "actors classes"]) -> Novelty:
    """Novel is whom the softmax gives to no class with confidence (Hendrycks and Gimpel 2017).

    1 − max_c p_c with p = softmax(h). The rank is the log-odds log((1 − p)/p) = logsumexp over the other classes
    − max h, which goes on rising and falling where p rounds to 1.
    """
    if logits.shape[1] < 2:
        raise RangeError(
            "softmax over one class is 1 for every actor and tells nobody apart; use max-sigmoid."
        )
    top, others = _top_and_others(logits.double())
    rank = others.logsumexp(dim=1) - top
    return Novelty(value=torch.sigmoid(rank), rank=rank)


def max_sigmoid_novelty(logits: Float[Tensor, "actors classes"]) -> Novelty:
    """Novel is who does no known action with any probability: 1 − max_c σ(h_c).

    The maximum softmax probability of the multi-label case, where each class has its own sigmoid. The rank is
    the log-odds of the value, −max h.
    """
    rank = -logits.double().amax(dim=1)
    return Novelty(value=torch.sigmoid(rank), rank=rank)


def _top_and_others(
    logits: Float[Tensor, "actors classes"],
) -> tuple[Float[Tensor, " actors"], Float[Tensor, "actors others"]]:
    ordered = logits.sort(dim=1, descending=True).values
    return ordered[:, 0], ordered[:, 1:]
