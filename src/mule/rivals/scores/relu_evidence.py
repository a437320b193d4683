"""The paper's rule for a fair comparison: any network's outputs read as evidence."""

from jaxtyping import Float
from torch import Tensor

from mule.core.records import Evidence, Novelty
from mule.novelty.scores import NOVELTY_BY_KIND, NoveltyKind


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
