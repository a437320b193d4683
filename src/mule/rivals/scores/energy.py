"""Free energy of the logits, of one softmax (Energy) and of one sigmoid per class (JointEnergy)."""

import torch
from jaxtyping import Float
from torch import Tensor

from mule.core.records import Novelty

NEGLIGIBLE = -30.0
"""Below this, log(softplus(h)) is h to the last digit of a double."""


def energy_novelty(logits: Float[Tensor, "actors classes"]) -> Novelty:
    """Novel is whom the network gives high free energy, −log Σ_c e^{h_c} (Energy, Liu et al. 2020).

    The value is its logistic function, 1 / (1 + Σ e^h): the share the softmax would give one more class whose
    logit is 0.
    """
    rank = -logits.double().logsumexp(dim=1)
    return Novelty(value=torch.sigmoid(rank), rank=rank)


def joint_energy(logits: Float[Tensor, "actors classes"]) -> Float[Tensor, " actors"]:
    """Σ_c log(1 + e^{h_c}), the label-wise energies together (JointEnergy, Wang et al. 2021); in double."""
    return label_energy(logits).sum(dim=1)


def label_energy(logits: Float[Tensor, "actors classes"]) -> Float[Tensor, "actors classes"]:
    """log(1 + e^h) for each class, exact where e^h overflows; in double."""
    wide = logits.double()
    return torch.logaddexp(wide, torch.zeros_like(wide))


def joint_energy_novelty(logits: Float[Tensor, "actors classes"]) -> Novelty:
    """Novel is who has little joint energy Σ_c log(1 + e^{h_c}) (JointEnergy, Wang et al. 2021).

    The value is e^{−JointEnergy} = Π_c (1 − σ(h_c)), the probability of no known action when classes are
    independent. The rank is −log JointEnergy, which keeps the order where all logits are so low that the sum
    underflows.
    """
    wide = logits.double()
    log_energy = torch.where(wide < NEGLIGIBLE, wide, label_energy(wide).clamp(min=1e-300).log())
    return Novelty(value=torch.exp(-joint_energy(wide)), rank=-log_energy.logsumexp(dim=1))
