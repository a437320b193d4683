"""The score that decides whether an actor is novel unless told otherwise: one recipe for every data set.

    outputs h ─▶ evidence e⁺ = e^h, e⁻ = e^−h ─▶ novelty of the network ─┐
    [z | a] ────▶ memory ─▶ trust t ───────────▶ vacuity −log t ─────────┴─ each its p-value ─▶ −Σ log p

Judging a table and watching a stream both read it from here.
"""

from collections.abc import Callable, Mapping, Sequence

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor

from mule.core.records import Evidence, Novelty
from mule.evidence.head import exp_evidence
from mule.novelty.scores import belief_novelty

MEMORY = "whole-memory"
"""The part that a memory gives: its vacuity."""
DECIDING_PARTS: tuple[str, ...] = ("exp-pe", "exp-pe", MEMORY)
"""What is combined by Fisher's rule; a part named twice weighs twice (chosen in docs/PREREGISTRATION.md, section 8)."""


def exp_belief_novelty(logits: Float[Tensor, "actors classes"]) -> Novelty:
    """Belief (Eq. 10) of evidence read off one logit per action as tied and exponential, for any network that has one."""
    return belief_novelty(Evidence(exp_evidence(logits.double()), exp_evidence(-logits.double())))


def log_evidence_novelty(logits: Float[Tensor, "actors classes"]) -> Novelty:
    """PE on the logarithm of evidence read off one logit per action as tied and exponential, −Σ log(1 + e^h).

    It puts actors in the order of JointEnergy, whose rank is the logarithm of this sum; the exponential tail of a p-value,
    which goes by distances, tells them apart.
    """
    total = F.softplus(logits.double()).sum(dim=-1)
    return Novelty(value=torch.exp(-total), rank=-total)


def largest_logit_novelty(logits: Float[Tensor, "actors classes"]) -> Novelty:
    """MaxLogit: novel is whom no action fits; only the best one counts."""
    largest = logits.double().amax(dim=-1)
    return Novelty(value=torch.sigmoid(-largest), rank=-largest)


NETWORK_PARTS: Mapping[str, Callable[[Float[Tensor, "actors classes"]], Novelty]] = {
    "exp-pe": log_evidence_novelty,
    "exp-belief": exp_belief_novelty,
    "max-logit": largest_logit_novelty,
}
"""What may stand beside the memory; all are read off one logit per action, so cross-entropy's networks have them too."""


def fisher_name(parts: Sequence[str]) -> str:
    """What tables call the combination of these scores."""
    return f"fisher({'+'.join(parts)})"


DECIDING_SCORE = fisher_name(DECIDING_PARTS)


def deciding_ranks(
    logits: Float[Tensor, "actors classes"], log_trust: Float[Tensor, " actors"]
) -> Float[Tensor, "actors scores"]:
    """The novelty of each actor by each part, in the order of `DECIDING_PARTS`; what `CombinedScore` combines."""
    columns = [
        -log_trust.double() if part == MEMORY else NETWORK_PARTS[part](logits).rank.double()
        for part in DECIDING_PARTS
    ]
    return torch.stack(columns, dim=1)
