"""Free energy of the logits, of one softmax (Energy) and of one sigmoid per class (JointEnergy).

Novelty as the lack of any probable action: maximum softmax and maximum sigmoid probability.

Novelty as the lack of any large logit.

The paper's rule for a fair comparison: any network's outputs read as evidence.
"""

import torch
from jaxtyping import Float
from torch import Tensor

from mule.core.errors import RangeError
from mule.core.records import Evidence, Novelty
from mule.novelty.scores import NOVELTY_BY_KIND, NoveltyKind

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


def max_logit_novelty(logits: Float[Tensor, "actors classes"]) -> Novelty:
    """Novel is who moves no output far: −max_c h_c (MaxLogit, Hendrycks et al. 2022).

    The value is its logistic function. For one sigmoid per class this is the order of `max_sigmoid_novelty`; the
    two differ only in what they were derived from.
    """
    rank = -logits.double().amax(dim=1)
    return Novelty(value=torch.sigmoid(rank), rank=rank)


def relu_evidence(logits: Float[Tensor, "actors classes"]) -> Evidence:
    """Evidence of a network that was not taught to give any: α = ReLU(h) + 1, so e⁺ = ReLU(h).

    The paper says so of positive evidence and is silent about negative. A rival has one signed output per class,
    so what does not speak for an action speaks against it: e⁻ = ReLU(−h). Were it zero, NE would tell nobody
    apart and PNE would be PE again.
    """
    wide = logits.double()
    return Evidence(positive=wide.relu(), negative=(-wide).relu())


def relu_evidence_novelty(logits: Float[Tensor, "actors classes"], *, kind: NoveltyKind) -> Novelty:
    """PE, NE, PNE or Belief of ReLU evidence.

    Actors all of whose logits are at or below zero have no positive evidence and tie in PE and Belief: the rule
    cannot tell them apart.
    """
    return NOVELTY_BY_KIND[kind](relu_evidence(logits))
