"""Evidential neural networks for one action per actor (Sensoy et al., NeurIPS 2018): Dirichlet evidence."""

import torch
import torch.nn.functional as F
from jaxtyping import Float, Shaped
from torch import Tensor, nn

from mule.core.records import Evidence, Novelty
from mule.model import ModelOutput
from mule.objective.beta_loss import reduce_over_actors
from mule.objective.dirichlet_loss import (
    dirichlet_digamma_loss,
    dirichlet_parameters,
    linear_annealing,
    misleading_evidence_kl,
)

ANNEALED_SHARE = 0.2
"""The published annealing ends after 10 epochs of 50."""


class DirichletHead(nn.Module):
    """One linear layer whose outputs become evidence for each action, e = softplus(h); none speaks against one.

    The published examples use ReLU, under which an action whose output once falls below zero for every actor is never
    learnt again. Softplus, which the authors' code offers too, has no such end.
    """

    def __init__(self, dim: int, num_classes: int) -> None:
        super().__init__()
        self.linear = nn.Linear(dim, num_classes)

    def outputs(self, relations: Float[Tensor, "actors dim"]) -> Float[Tensor, "actors classes"]:
        """The raw outputs h."""
        return self.linear(relations)

    def evidence_from(self, outputs: Float[Tensor, "actors classes"]) -> Evidence:
        """The evidence that raw outputs stand for."""
        positive = F.softplus(outputs.float())
        return Evidence(positive=positive, negative=torch.zeros_like(positive))


def enn_loss(
    output: ModelOutput, targets: Shaped[Tensor, "actors classes"], *, progress: float
) -> Float[Tensor, ""]:
    """Expected cross-entropy (their Eq. 4, the paper's Eq. 11) plus the annealed KL of misleading evidence; mean over actors.

    Sensoy et al. prefer the expected squared error, their Eq. 5. Next to it the KL of this many actions outweighs the
    error: all evidence goes before any action is learnt.

    `progress` runs from 0 to 1 over the training. An actor with several actions has several ones in its target,
    which the Dirichlet, whose probabilities sum to one, cannot meet: what the paper holds against it.
    """
    evidence = output.evidence.positive
    annealed = linear_annealing(progress, num_epochs=ANNEALED_SHARE)
    loss = dirichlet_digamma_loss(evidence, targets) + annealed * misleading_evidence_kl(evidence, targets)
    return reduce_over_actors(loss, "mean")


def dirichlet_vacuity_novelty(evidence: Evidence) -> Novelty:
    """The mass that no action has claimed, u = K/S with S = Σ(e + 1); what ENN and DEAR call uncertainty."""
    alpha, total = dirichlet_parameters(evidence.positive)
    rank = -torch.log(total.squeeze(-1) / alpha.shape[-1])
    return Novelty(value=rank.exp(), rank=rank)
