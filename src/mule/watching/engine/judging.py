"""From a network's outputs to evidence, trust and novelty; held-out and watched actors go through the same steps.

outputs h, features z ─┬─▶ evidence of the network, e^±h ──────────────┬─▶ evidence of network and memory together
                       ├─▶ neighbours in memory ─▶ weights, trust t ───╯
                       ╰─▶ novelty ranks: PE of log evidence; with a memory, all parts of the score that decides
inputs (roi, frame, labels) ──▶ novelty ranks of `crossfit`, for models with a frozen backbone; they replace the others

`mule.watching.engine.usual` turns novelty into a p-value, for one look and along a track.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from mule.core.errors import RangeError
from mule.core.records import Evidence
from mule.evidence.head import exp_evidence
from mule.memory.opinion import fused
from mule.memory.search import EntrySearch, Weighed, weigh
from mule.memory.taught import (
    Remembered,
    evidence_with_taught,
    log_trust_with_taught,
    outputs_with_taught,
)
from mule.novelty.combining import deciding_ranks
from mule.novelty.crossfit import Inputs
from mule.novelty.known import FittedToKnown
from mule.novelty.odds import IDLE_FROM
from mule.novelty.scores import positive_log_evidence_novelty

EVIDENCE_SCORE, MEMORY_SCORE = "PE of log", "memory vacuity"
"""Names of scores in results: the paper's PE of the logarithm of the evidence, and how far all remembered actors are."""


@dataclass(frozen=True)
class Judged:
    """Actors of one or many clips, one row each."""

    network: Evidence
    """Evidence of the network alone; actions taught later are read off its outputs."""
    together: Evidence
    """Evidence of network and memory, added up. The same as `network` without a memory."""
    ranks: Float[Tensor, "actors scores"]
    """The novelty scores to calibrate: those of `SeenParts`, or `DECIDING_PARTS` of `mule.novelty.combining`; without a
    memory, PE of the log evidence alone."""
    log_trust: Float[Tensor, " actors"] | None
    weighed: Weighed | None
    idle: Float[Tensor, " actors"] | None = None
    """How much each resembles idle people (`idle_share`); None where nobody knows any."""


@dataclass(frozen=True)
class Judgements:
    """Actors judged by one look, or by all their looks so far, one row each; they become `Judgement` records."""

    network: Evidence
    together: Evidence
    rank: Float[Tensor, " actors"]
    """−log p."""
    log_trust: Float[Tensor, " actors"]
    """The mean over looks; 0 without a memory."""
    num_looks: Int[Tensor, " actors"]
    """How many looks the evidence rests on."""
    idle: Float[Tensor, " actors"] | None = None
    """How much each resembles idle people now; None where nobody knows any."""

    def at(self, rows: slice) -> "Judgements":
        """Return some of these actors, in a row."""
        network, together = (
            Evidence(each.positive[rows], each.negative[rows]) for each in (self.network, self.together)
        )
        idle = None if self.idle is None else self.idle[rows]
        return Judgements(
            network, together, self.rank[rows], self.log_trust[rows], self.num_looks[rows], idle
        )

    @property
    def is_idle(self) -> Bool[Tensor, " actors"]:
        """Who resembles idle people more than people who act."""
        return torch.zeros(len(self.rank), dtype=torch.bool) if self.idle is None else self.idle > IDLE_FROM


class Judge:
    """Turns a network's outputs into evidence and novelty, with or without a memory, by what actors are seen by if it knows."""

    def __init__(
        self,
        pair_evidence: Callable[[Tensor], Evidence] | None,
        classes: Sequence[str],
        remembered: Remembered | None,
        *,
        tags: Sequence[str] = (),
        seen: FittedToKnown | None = None,
    ) -> None:
        """Find the columns of the actions in memory, and those that count for novelty: all except tags.

        With `seen`, novelty is read from an actor's inputs. `pair_evidence` makes evidence of two outputs per action (`System.pair_evidence`); None reads one logit per action.
        """
        self._pair_evidence = pair_evidence
        self.remembered = remembered
        self.seen = seen
        self.classes: tuple[str, ...] = tuple(classes)
        self._columns = torch.arange(len(classes))
        self._search: EntrySearch | None = None
        if remembered is not None:
            self._remember(remembered, classes)
        self._is_action = torch.tensor([name not in tags for name in self.classes], dtype=torch.bool)

    def _remember(self, remembered: Remembered, classes: Sequence[str]) -> None:
        if self._pair_evidence is not None:
            raise RangeError(
                "a memory needs a network with one logit per action; this one has two outputs for each. Leave "
                "memory.safetensors out of the folder."
            )
        unknown = [name for name in remembered.network_class_names if name not in classes]
        if unknown:
            raise RangeError(
                f"a memory must hold actions of the network; it has {', '.join(unknown)}, which the network does not know."
            )
        trained = remembered.network_class_names
        self._columns = torch.tensor([list(classes).index(name) for name in trained], dtype=torch.int64)
        self.classes = (*trained, *(action.name for action in remembered.taught))
        self._search = EntrySearch(remembered.memory.features, remembered.memory.places.group_index)

    def __call__(
        self,
        outputs: Float[Tensor, "actors outputs"],
        features: Float[Tensor, "actors dim"],
        inputs: Inputs | None = None,
    ) -> Judged:
        """Judge each actor by its raw outputs, by the features a memory keeps of it, and by its inputs if they decide."""
        network = self.network(outputs, features)
        if self.remembered is None:
            return Judged(
                network, network, self._ranks(outputs, None, inputs), None, None, self._idle(inputs)
            )
        remembered = self.remembered
        weighed = weigh(remembered.memory, features, search=self._search)
        log_trust = log_trust_with_taught(remembered, weighed, features).double()
        logits = self._logits(outputs, features)
        together = fused(network, evidence_with_taught(remembered, weighed))
        ranks = self._ranks(logits, log_trust, inputs)
        return Judged(network, together, ranks, log_trust, weighed, self._idle(inputs))

    def _idle(self, inputs: Inputs | None) -> Float[Tensor, " actors"] | None:
        return None if self.seen is None else self.seen.idle({} if inputs is None else inputs)

    def network(
        self, outputs: Float[Tensor, "actors outputs"], features: Float[Tensor, "actors dim"]
    ) -> Evidence:
        """Return the evidence of the network alone."""
        return self._evidence(self._logits(outputs, features))

    def _logits(self, outputs: Tensor, features: Tensor) -> Tensor:
        """The outputs for the actions that it knows, those taught later last."""
        if self.remembered is None:
            return outputs
        return outputs_with_taught(self.remembered, outputs[:, self._columns], features)

    def _ranks(
        self, outputs: Tensor, log_trust: Tensor | None, inputs: Inputs | None
    ) -> Float[Tensor, "actors scores"]:
        if self.seen is not None:
            return self.seen.parts.ranks({} if inputs is None else inputs)
        if log_trust is not None:
            return deciding_ranks(outputs[:, self._is_action], log_trust)
        network = self._evidence(outputs)
        of_actions = Evidence(network.positive[:, self._is_action], network.negative[:, self._is_action])
        return positive_log_evidence_novelty(of_actions).rank.double()[:, None]

    def _evidence(self, outputs: Float[Tensor, "actors outputs"]) -> Evidence:
        """One logit h becomes e⁺ = e^h and e⁻ = e^−h, whose expected probability is exactly the sigmoid of h.

        A network trained with cross-entropy is therefore read like the tied exponential one, and keeps its meaning.
        """
        if self._pair_evidence is not None:
            return self._pair_evidence(outputs)
        outputs = outputs.float()
        return Evidence(exp_evidence(outputs), exp_evidence(-outputs))


@dataclass(frozen=True)
class HeldOutOutputs:
    """Held-out known actors as the network saw them; a later change of the memory does not make them stale."""

    outputs: Float[Tensor, "actors outputs"]
    features: Float[Tensor, "actors whole"]
    """What a memory keeps of each actor (`mule.memory.memory.whole_features`)."""
    clip_index: Int[Tensor, " actors"]
    track_index: Int[Tensor, " actors"]
    labels: Float[Tensor, "actors classes"] | None = None
    """Which of the trained actions each actor does; None if the labels were not kept."""

    def still_known(
        self, trained: Sequence[str], remembered: Remembered | None, *, tags: Sequence[str] = ()
    ) -> "HeldOutOutputs":
        """Return the actors that do an action which was not forgotten since; all of them without labels.

        An actor who does nothing but forgotten actions is novel now and must not count among known ones.
        """
        if remembered is None or self.labels is None:
            return self
        known = set(remembered.memory.class_names).difference(tags)
        is_known = torch.tensor([name in known for name in trained], dtype=torch.bool)
        rows = (self.labels[:, is_known] > 0).any(dim=1)
        return HeldOutOutputs(
            self.outputs[rows],
            self.features[rows],
            self.clip_index[rows],
            self.track_index[rows],
            self.labels[rows],
        )
