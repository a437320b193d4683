"""One p-value per actor from all that it is seen by, calibrated on the training actors themselves.

              ┌─ features (roi, frame, crop) ─▶ whitened cosine ──┐
 each actor ──┤                                                   ├─ each its p-value ─ −Σ log p ─▶ its p-value
              └─ labels of pre-training ─────▶ label prototypes ──┘

A score looks lower on actors it was fitted to than on new ones, so held-out actors must calibrate it. Where actors are
few, none can be spared: here every group of actors (a film, a video) is scored by parts fitted without it (cross-fitting),
and then the parts are fitted again, to all of them. No actor of a group calibrates what the group was fitted to, so films
that differ from each other count as they would when a new film comes.

*What holds.* If groups are exchangeable and of one size, P(p ≤ a) ≤ 2a + 2(1 − a)/(1 + n/F) for F folds of n groups
(cross-conformal prediction, Barber et al. 2021); in practice it is near a, and slightly below it, because the parts fitted
to all actors fit new ones a little better than those fitted without a fold. The tail beyond the 95th percentile is an
estimate without a guarantee.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from mule.core.errors import ShapeError, TooFewActors
from mule.core.progress import counted
from mule.novelty.calibration import CalibratedNovelty
from mule.novelty.combining import CombinedScore, folds_of
from mule.novelty.pretraining import LabelPrototypes
from mule.novelty.whitened import WhitenedCosine, joined_blocks

ROI, FRAME, CROP = "roi", "frame", "crop"
"""The features an actor can be seen by: its box on the map of the frame, the whole of that map, and a square around it."""
LABELS_INPUT = "labels"
"""The input that the backbone's own classifier gives; all others are features."""
MOST_FOLDS = 10
NEVER_LEFT_OUT = -1
"""The fold of examples from groups that no known actor is of."""

Inputs = Mapping[str, Float[Tensor, "actors _dim"]]
"""What each actor is seen by, by name: `roi`, `frame`, `crop`; `labels` are roots of probabilities."""


def group_folds(groups: Int[Tensor, " actors"], *, most: int = MOST_FOLDS) -> Int[Tensor, " actors"]:
    """Return a fold for each actor; a group is in one fold, and there are as many folds as groups allow, up to `most`.

    >>> group_folds(torch.tensor([3, 3, 8, 9])).tolist()
    [0, 0, 1, 2]
    """
    num_groups = len(groups.unique())
    if num_groups < 2:
        raise TooFewActors(
            f"cross-fitting needs actors of at least 2 groups (films or videos); got {num_groups}. Add videos."
        )
    return folds_of(groups, num_folds=min(most, num_groups))


def folds_with_examples(
    groups: Int[Tensor, " actors"], is_example: Bool[Tensor, " actors"]
) -> Int[Tensor, " actors"]:
    """Return a fold for each known actor and each example of a taught action.

    Examples calibrate nothing: somebody chose them. They are left out with known actors of their own group, whom they would
    make look less novel, and never otherwise.

    >>> folds_with_examples(torch.tensor([3, 8, 9, 8, 5]), torch.tensor([False, False, False, True, True])).tolist()
    [0, 1, 2, 1, -1]
    """
    folds = torch.full_like(groups, NEVER_LEFT_OUT)
    known = groups[~is_example]
    folds[~is_example] = group_folds(known)
    for at in torch.nonzero(is_example).flatten().tolist():
        beside = torch.nonzero((groups == groups[at]) & ~is_example).flatten()
        if len(beside):
            folds[at] = folds[beside[0]]
    return folds


@dataclass(frozen=True)
class SeenParts:
    """The scores that are combined, fitted to the same actors."""

    blocks: tuple[str, ...]
    """Names of the features that the whitened cosine reads, in their order."""
    whitened: WhitenedCosine
    prototypes: LabelPrototypes | None
    """None where the backbone has no classifier of its own."""

    @classmethod
    def fit(cls, inputs: Inputs, labels: Bool[Tensor, "actors actions"]) -> "SeenParts":
        """Fit each part to the same training actors."""
        blocks = tuple(name for name in sorted(inputs) if name != LABELS_INPUT)
        whitened = WhitenedCosine.fit(joined_blocks([inputs[name] for name in blocks]), labels)
        answers = inputs.get(LABELS_INPUT)
        return cls(blocks, whitened, None if answers is None else LabelPrototypes.fit(answers, labels))

    def ranks(self, inputs: Inputs) -> Float[Tensor, "actors parts"]:
        """Return the novelty of each actor by each part."""
        missing = [name for name in self.reads if name not in inputs]
        if missing:
            raise ShapeError(
                f"actors must be seen by {', '.join(self.reads)}; {', '.join(missing)} is missing."
            )
        columns = [self.whitened.novelty(joined_blocks([inputs[name] for name in self.blocks])).rank]
        if self.prototypes is not None:
            columns.append(self.prototypes.novelty(inputs[LABELS_INPUT]).rank)
        return torch.stack(columns, dim=1)

    def tensors(self) -> dict[str, Tensor]:
        """Return everything there is to save, except the names of the blocks."""
        whitened = {f"whitened.{name}": each for name, each in self.whitened.tensors().items()}
        prototypes = {} if self.prototypes is None else self.prototypes.tensors()
        return {**whitened, **{f"labels.{name}": each for name, each in prototypes.items()}}

    @classmethod
    def of(cls, tensors: Mapping[str, Tensor], blocks: Sequence[str]) -> "SeenParts":
        """Return the parts whose `tensors` and blocks were saved."""
        prototypes = _named(tensors, "labels.")
        return cls(
            tuple(blocks),
            WhitenedCosine.of(_named(tensors, "whitened.")),
            LabelPrototypes.of(prototypes) if prototypes else None,
        )

    @property
    def reads(self) -> Sequence[str]:
        """The names of the inputs it needs."""
        return self.blocks if self.prototypes is None else (*self.blocks, LABELS_INPUT)


@dataclass(frozen=True)
class CrossFitted:
    """Whitened cosine and label prototypes as one calibrated novelty, fitted and calibrated on the same actors.

    >>> draw = torch.Generator().manual_seed(0)
    >>> does = torch.arange(120) % 3
    >>> seen = torch.eye(3, 16)[does] + 0.1 * torch.randn(120, 16, generator=draw)
    >>> score = CrossFitted.fit({"roi": seen}, does[:, None] == torch.arange(3), groups=torch.arange(120) // 2)
    >>> known, novel = score({"roi": torch.eye(16)[[1, 9]]}).p_value.tolist()
    >>> known > 0.05, novel < 0.05
    (True, True)
    """

    parts: SeenParts
    combined: CombinedScore

    @classmethod
    def fit(
        cls, inputs: Inputs, labels: Bool[Tensor, "actors actions"], groups: Int[Tensor, " actors"]
    ) -> "CrossFitted":
        """Fit to all known actors at hand, and calibrate by leaving out groups.

        Args:
            inputs: what each actor is seen by.
            labels: which actions each actor does; each does at least one.
            groups: the film or video of each actor.

        Raises:
            TooFewActors: there are fewer than 20 actors, or all are of one group.
        """
        folds = group_folds(groups)
        combined = CombinedScore(1 + (LABELS_INPUT in inputs))
        combined.fit_crossed(crossed_ranks(inputs, labels, folds), folds)
        return cls(SeenParts.fit(inputs, labels), combined)

    def __call__(self, inputs: Inputs) -> CalibratedNovelty:
        """Return the calibrated novelty of each actor."""
        return self.combined(self.parts.ranks(inputs))

    def tensors(self) -> dict[str, Tensor]:
        """Return everything there is to save, except the names of the blocks."""
        calibrated = {f"combined.{name}": each for name, each in self.combined.state_dict().items()}
        return {**self.parts.tensors(), **calibrated}

    @classmethod
    def of(cls, tensors: Mapping[str, Tensor], blocks: Sequence[str]) -> "CrossFitted":
        """Return the score whose `tensors` and blocks were saved."""
        parts = SeenParts.of(tensors, blocks)
        combined = CombinedScore(1 if parts.prototypes is None else 2)
        combined.load_state_dict(_named(tensors, "combined."))
        return cls(parts, combined)


def crossed_ranks(
    inputs: Inputs, labels: Bool[Tensor, "actors actions"], folds: Int[Tensor, " actors"]
) -> Float[Tensor, "actors parts"]:
    """Return the novelty of each actor by parts fitted without its fold; NaN for examples that no fold leaves out.

    An action that only one fold shows is unknown to the parts that judge it: its actors look as novel as they would if
    they came from a film of their own, and raise the threshold.
    """
    ranks = torch.full((len(labels), 1 + (LABELS_INPUT in inputs)), torch.nan, dtype=torch.float64)
    for fold, others in parts_without(inputs, labels, folds):
        is_in = folds == fold
        ranks[is_in] = others.ranks({name: each[is_in] for name, each in inputs.items()})
    return ranks


def parts_without(
    inputs: Inputs, labels: Bool[Tensor, "actors actions"], folds: Int[Tensor, " actors"]
) -> Iterator[tuple[int, SeenParts]]:
    """Yield each fold and the parts fitted without it."""
    for fold in counted(folds[folds != NEVER_LEFT_OUT].unique().tolist(), "calibrating novelty"):
        is_out = folds != fold
        yield fold, SeenParts.fit({name: each[is_out] for name, each in inputs.items()}, labels[is_out])


def _named(tensors: Mapping[str, Tensor], prefix: str) -> dict[str, Tensor]:
    return {name.removeprefix(prefix): each for name, each in tensors.items() if name.startswith(prefix)}
