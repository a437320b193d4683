"""The closed form and its candidates: parts that are fitted, crossed over films and combined by Fisher's rule."""

from collections.abc import Callable, Mapping
from typing import NamedTuple

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int
from torch import Tensor

from mule.novelty.combining import CombinedScore
from mule.novelty.crossfit import LABELS_INPUT, Inputs, group_folds
from mule.novelty.pretraining import LabelPrototypes
from mule.novelty.whitened import joined_blocks, oracle_shrinkage, within_set_residuals

Ranks = Callable[[Inputs], Float[Tensor, " actors"]]
Part = Callable[[Inputs, Bool[Tensor, "actors actions"]], Ranks]
"""Fitted to known actors, it gives the novelty of others."""


class Combined(NamedTuple):
    """The tested actors by all parts together, and by each alone."""

    rank: Float[Tensor, " tested"]
    p_value: Float[Tensor, " tested"]
    by_part: Float[Tensor, "tested parts"]


def at(inputs: Inputs, rows: Tensor) -> Inputs:
    """Return these rows of all inputs."""
    return {name: each[rows] for name, each in inputs.items()}


def crossed(
    parts: Mapping[str, Part],
    known: tuple[Inputs, Bool[Tensor, "known actions"], Int[Tensor, " known"]],
    tested: Inputs,
    *,
    most_folds: int = 10,
) -> Combined:
    """Fit parts to known actors, calibrate them by leaving out films, and judge the tested ones."""
    inputs, labels, groups = known
    folds = group_folds(groups, most=most_folds)
    ranks = torch.empty(len(labels), len(parts), dtype=torch.float64)
    for fold in folds.unique().tolist():
        inside, outside = (torch.nonzero(each).flatten() for each in (folds == fold, folds != fold))
        for column, part in enumerate(parts.values()):
            ranks[inside, column] = part(at(inputs, outside), labels[outside])(at(inputs, inside)).double()
    combined = CombinedScore(len(parts))
    combined.fit_crossed(ranks, folds)
    columns = torch.stack([part(inputs, labels)(tested).double() for part in parts.values()], dim=1)
    found = combined(columns)
    return Combined(found.rank, found.conformal_p_value, columns)


def whitened(
    *, shrinkage: float | None = None, in_span: bool = False, num_actions: int | None = None
) -> Part:
    """Return the whitened cosine with another shrinkage, or within the span of the known actors.

    With `num_actions`, label sets are of all labels, and actors are compared with these first actions alone.
    """

    def fit(inputs: Inputs, labels: Tensor) -> Ranks:
        blocks = sorted(name for name in inputs if name != LABELS_INPUT)
        unit = joined_blocks([inputs[name] for name in blocks])
        mean = unit.mean(dim=0)
        centred = unit - mean
        residuals, freedom = within_set_residuals(centred, labels)
        values, vectors = torch.linalg.eigh(residuals @ residuals.T)
        keeps = values > 1e-10 * values[-1]
        variances = values[keeps] / freedom
        directions = residuals.T @ (vectors[:, keeps] / values[keeps].sqrt())
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

    def fit(inputs: Inputs, labels: Tensor) -> Ranks:
        score = LabelPrototypes.fit(of(inputs), labels[:, :num_actions])
        return lambda others: score.novelty(of(others)).rank

    return fit


PLAIN: Mapping[str, Part] = {"whitened": whitened(), "labels": prototypes()}
"""The closed form as it stands."""
