"""The closed form and its candidates: parts that are fitted, crossed over films and combined by Fisher's rule."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int
from torch import Tensor

from mule.memory.building import SeenActors, build_memory
from mule.memory.memory import Places
from mule.memory.search import EntrySearch, memory_vacuity_novelty, weigh
from mule.novelty.combining import CombinedScore
from mule.novelty.crossfit import LABELS_INPUT, Inputs, group_folds
from mule.novelty.pretraining import LabelPrototypes
from mule.novelty.whitened import joined_blocks, oracle_shrinkage, principal_directions, within_set_residuals

Ranks = Callable[[Inputs], Float[Tensor, " actors"]]
Part = Callable[[Inputs, Bool[Tensor, "actors actions"], Int[Tensor, " actors"]], Ranks]
"""Fitted to known actors, what they do and their films, it gives the novelty of others."""


class Combined(NamedTuple):
    """The tested actors by all parts together, and by each alone."""

    rank: Float[Tensor, " tested"]
    p_value: Float[Tensor, " tested"]
    by_part: Float[Tensor, "tested parts"]


class Columns(NamedTuple):
    """The novelty of known and tested actors by one part."""

    known: Float[Tensor, " known"]
    tested: Float[Tensor, " tested"]


def at(inputs: Inputs, rows: Tensor) -> Inputs:
    """Return these rows of all inputs."""
    return {name: each[rows] for name, each in inputs.items()}


class Crossing:
    """Known and tested actors of a class split; every part is fitted once, however many combinations it is in."""

    def __init__(
        self,
        known: tuple[Inputs, Bool[Tensor, "known actions"], Int[Tensor, " known"]],
        tested: Inputs,
        *,
        most_folds: int = 10,
    ) -> None:
        self._known, self._tested = known, tested
        self.folds = group_folds(known[2], most=most_folds)
        self._made: dict[Part, Columns] = {}

    def columns(self, part: Part) -> Columns:
        """Return how novel known actors are by the part fitted without their fold, and tested ones by the part fitted to all."""
        if part not in self._made:
            inputs, labels, groups = self._known
            ranks = torch.empty(len(labels), dtype=torch.float64)
            for fold in self.folds.unique().tolist():
                inside, outside = (
                    torch.nonzero(each).flatten() for each in (self.folds == fold, self.folds != fold)
                )
                fitted = part(at(inputs, outside), labels[outside], groups[outside])
                ranks[inside] = fitted(at(inputs, inside)).double()
            self._made[part] = Columns(ranks, part(*self._known)(self._tested).double())
        return self._made[part]

    def together(self, columns: Sequence[Columns]) -> Combined:
        """Return the tested actors by all parts together, calibrated by the known ones."""
        combined = CombinedScore(len(columns))
        combined.fit_crossed(torch.stack([each.known for each in columns], dim=1), self.folds)
        tested = torch.stack([each.tested for each in columns], dim=1)
        found = combined(tested)
        return Combined(found.rank, found.conformal_p_value, tested)


def crossed(
    parts: Mapping[str, Part],
    known: tuple[Inputs, Bool[Tensor, "known actions"], Int[Tensor, " known"]],
    tested: Inputs,
    *,
    most_folds: int = 10,
) -> Combined:
    """Fit parts to known actors, calibrate them by leaving out films, and judge the tested ones."""
    crossing = Crossing(known, tested, most_folds=most_folds)
    return crossing.together([crossing.columns(part) for part in parts.values()])


def whitened(
    *,
    shrinkage: float | None = None,
    in_span: bool = False,
    num_actions: int | None = None,
    has_tags_in_sets: bool = False,
    only: str | None = None,
) -> Part:
    """Return the whitened cosine with another shrinkage, within the span of the known actors, or of `only` one block.

    Actors are compared with the first `num_actions` labels alone; those that follow are tags, which may count in label sets.
    """

    def fit(inputs: Inputs, labels: Tensor, _: Tensor) -> Ranks:
        blocks = [only] if only else sorted(name for name in inputs if name != LABELS_INPUT)
        unit = joined_blocks([inputs[name] for name in blocks])
        mean = unit.mean(dim=0)
        centred = unit - mean
        residuals, freedom = within_set_residuals(
            centred, labels if has_tags_in_sets else labels[:, :num_actions]
        )
        sums, directions = principal_directions(residuals)
        variances = sums / freedom
        basis = torch.linalg.qr(centred.T)[0] if in_span else None
        dim = len(centred) - 1 if in_span else unit.shape[1]
        share = oracle_shrinkage(variances, dim=dim, num_samples=freedom) if shrinkage is None else shrinkage
        even = share * variances.sum() / dim
        gain = ((1 - share) * variances + even).rsqrt() - even.rsqrt()

        def white(x: Tensor) -> Tensor:
            x = x if basis is None else (x @ basis) @ basis.T
            return F.normalize(x * even.rsqrt() + ((x @ directions) * gain) @ directions.T, dim=1)

        does = labels[:, :num_actions].double()
        along = centred * even.rsqrt() + ((centred @ directions) * gain) @ directions.T
        prototypes = F.normalize(does.T @ along, dim=1)
        has_any = does.any(dim=0)

        def ranks(others: Inputs) -> Tensor:
            moved = joined_blocks([others[name] for name in blocks]) - mean
            return -torch.where(has_any, white(moved) @ prototypes.T, -1.0).amax(dim=1)

        return ranks

    return fit


def prototypes(*, temperature_ratio: float = 1.0, num_actions: int | None = None) -> Part:
    """Return the label prototypes; a ratio above 1 softens the answers further."""

    def of(inputs: Inputs) -> Tensor:
        return F.normalize(inputs[LABELS_INPUT].pow(1 / temperature_ratio), dim=1)

    def fit(inputs: Inputs, labels: Tensor, _: Tensor) -> Ranks:
        score = LabelPrototypes.fit(of(inputs), labels[:, :num_actions])
        return lambda others: score.novelty(of(others)).rank

    return fit


def remembered() -> Part:
    """Return the product's memory over the same inputs, the labels included: novel is who has no near neighbour (G-Vac).

    Its reach is the median over known actors and their neighbours of other films.
    """

    def fit(inputs: Inputs, labels: Tensor, groups: Tensor) -> Ranks:
        films = [str(film) for film in groups.tolist()]
        boxes = torch.tensor([[0.0, 0.0, 1.0, 1.0]]).expand(len(films), 4)
        places = Places.of(films, torch.arange(len(films)).double(), boxes)
        names = [str(number) for number in range(labels.shape[1])]
        actors = SeenActors(_joined(inputs), labels.float(), places)
        memory = build_memory(actors, class_names=names, model="0" * 64)
        search = EntrySearch(memory.features, places.group_index)
        near = search.nearest(memory.features, memory.kernel.num_neighbours, excluding=places.group_index)
        reach = near.distance.square() / (memory.scales[near.index] * memory.kernel.typical_scale)
        memory = replace(memory, kernel=replace(memory.kernel, reach=reach.median().item()))
        return lambda others: memory_vacuity_novelty(weigh(memory, _joined(others))).rank

    return fit


def among_tested(
    novelty: Float[Tensor, " tested"], inputs: Inputs, *, num_neighbours: int
) -> Float[Tensor, " tested"]:
    """Return the novelty of each tested actor averaged with those of the tested actors who look most alike."""
    joined = _joined(inputs)
    nearest = (joined @ joined.T).topk(num_neighbours + 1, dim=1).indices  # the actor itself is the first
    return novelty[nearest].mean(dim=1)


def _joined(inputs: Inputs) -> Float[Tensor, "actors dims"]:
    return joined_blocks([inputs[name] for name in sorted(inputs)]).float()


PLAIN: Mapping[str, Part] = {"whitened": whitened(), "labels": prototypes()}
"""The closed form as it stands."""
