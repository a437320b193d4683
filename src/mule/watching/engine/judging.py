"""From what a network says of actors to evidence, trust and novelty ranks; held-out actors and watched ones alike.

outputs h, features z ─┬─▶ evidence of the network, e^±h ──────────────┬─▶ evidence of network and memory together
                       ├─▶ neighbours in memory ─▶ weights, trust t ───╯
                       ╰─▶ novelty ranks: PE of log; with a memory, the parts of the score that decides
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from mule.core.errors import RangeError
from mule.core.records import Evidence
from mule.evidence.head import EvidenceHead, exp_evidence
from mule.memory.kernel import Weighed, weigh
from mule.memory.opinion import fused
from mule.memory.search import EntrySearch
from mule.memory.taught import (
    Remembered,
    evidence_with_taught,
    log_trust_with_taught,
    outputs_with_taught,
)
from mule.model import RelationModel
from mule.novelty.deciding import DECIDING_PARTS, MEMORY, deciding_ranks
from mule.novelty.scores import positive_log_evidence_novelty

EVIDENCE_SCORE, MEMORY_SCORE = "PE of log", "memory vacuity"


@dataclass(frozen=True)
class Judged:
    """Actors of one or many clips, one row each."""

    network: Evidence
    """What the network alone says; actions taught since are its read-outs."""
    together: Evidence
    """What network and memory say: their evidence adds. The same as `network` without a memory."""
    ranks: Float[Tensor, "actors scores"]
    """The novelty scores that are calibrated, in the order of `Judge.score_names`."""
    log_trust: Float[Tensor, " actors"] | None
    weighed: Weighed | None


class Judge:
    """What a network's outputs mean, with a memory beside it or without."""

    def __init__(
        self,
        decide: object,
        classes: Sequence[str],
        remembered: Remembered | None,
        *,
        tags: Sequence[str] = (),
    ) -> None:
        """Finds the columns that the memory speaks of, and those that novelty is read from: all but tags.

        Raises:
            RangeError: the memory speaks of actions the network does not have, or needs one logit per action.
        """
        head = decide.head if isinstance(decide, RelationModel) else None
        self._pair_head = (
            head if isinstance(head, EvidenceHead) and head.parameterisation == "independent" else None
        )
        self.remembered = remembered
        self.classes: tuple[str, ...] = tuple(classes)
        self._columns = torch.arange(len(classes))
        self._search: EntrySearch | None = None
        if remembered is not None:
            self._remember(remembered, classes)
        self._is_action = torch.tensor([name not in tags for name in self.classes], dtype=torch.bool)

    def _remember(self, remembered: Remembered, classes: Sequence[str]) -> None:
        if self._pair_head is not None:
            raise RangeError(
                "a memory needs a network with one logit per action; this one has two outputs for each. Leave "
                "memory.safetensors out of the folder."
            )
        unknown = [name for name in remembered.network_class_names if name not in classes]
        if unknown:
            raise RangeError(
                f"a memory must speak of the network's actions; it has {', '.join(unknown)}, which the network has not."
            )
        trained = remembered.network_class_names
        self._columns = torch.tensor([list(classes).index(name) for name in trained], dtype=torch.int64)
        self.classes = (*trained, *(action.name for action in remembered.taught))
        self._search = EntrySearch(remembered.memory.features, remembered.memory.places.group_index)

    @property
    def score_names(self) -> tuple[str, ...]:
        """The novelty scores that are combined."""
        if self.remembered is None:
            return (EVIDENCE_SCORE,)
        names = {MEMORY: MEMORY_SCORE, "exp-pe": EVIDENCE_SCORE}
        return tuple(names.get(part, part) for part in DECIDING_PARTS)

    def __call__(
        self, outputs: Float[Tensor, "actors outputs"], features: Float[Tensor, "actors dim"]
    ) -> Judged:
        """What is to be said of each actor, from the raw outputs and what a memory keeps of it."""
        if self.remembered is None:
            network = self._evidence(outputs)
            rank = positive_log_evidence_novelty(self._of_actions(network)).rank.double()
            return Judged(network, network, rank[:, None], None, None)
        remembered = self.remembered
        logits = outputs_with_taught(remembered, outputs[:, self._columns], features)
        network = self._evidence(logits)
        weighed = weigh(remembered.memory, features, search=self._search)
        log_trust = log_trust_with_taught(remembered, weighed, features).double()
        ranks = deciding_ranks(logits[:, self._is_action], log_trust)
        together = fused(network, evidence_with_taught(remembered, weighed))
        return Judged(network, together, ranks, log_trust, weighed)

    def _of_actions(self, evidence: Evidence) -> Evidence:
        return Evidence(evidence.positive[:, self._is_action], evidence.negative[:, self._is_action])

    def _evidence(self, outputs: Float[Tensor, "actors outputs"]) -> Evidence:
        """One logit h becomes e⁺ = e^h and e⁻ = e^−h, whose expected probability is exactly the sigmoid of h.

        So a network trained by cross-entropy is read as the tied exponential one is, and means what it meant.
        """
        if self._pair_head is not None:
            return self._pair_head.evidence_from(outputs)
        outputs = outputs.float()
        return Evidence(exp_evidence(outputs), exp_evidence(-outputs))
