"""Novelty as the lack of any large logit."""

import torch
from jaxtyping import Float
from torch import Tensor

from mule.core.records import Novelty


def max_logit_novelty(logits: Float[Tensor, "actors classes"]) -> Novelty:
    """Novel is who moves no output far: −max_c h_c (MaxLogit, Hendrycks et al. 2022).

    The value is its logistic function. For one sigmoid per class this is the order of `max_sigmoid_novelty`; the
    two differ only in what they were derived from.
    """
    rank = -logits.double().amax(dim=1)
    return Novelty(value=torch.sigmoid(rank), rank=rank)
