"""Whitened cosine: an actor is novel if it points towards no action, in a space where an action's actors vary equally.

features g ─ g/‖g‖ − mean ─▶ x ─ W'^(−½) ─▶ z ─ largest cosine with an action's mean ─▶ novelty

W is the covariance of training actors around the mean of their label set, W' its shrunk form. There is no gradient and
nothing to tune: shrinkage follows from the number of actors.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float
from torch import Tensor

from mule.core.errors import RangeError, ShapeError, TooFewActors
from mule.core.records import Novelty

_SMALLEST_SHARE = 1e-10
"""Directions with less variance than this share of the largest are rounding errors: products of features square them."""


def joined_blocks(blocks: Sequence[Float[Tensor, "actors _dim"]]) -> Float[Tensor, "actors dims"]:
    """Return several features of each actor as one of length 1, in which every block has the same length.

    >>> joined = joined_blocks([torch.tensor([[3.0, 4.0]]), torch.tensor([[0.5]])])
    >>> joined.square().round(decimals=2).tolist()
    [[0.18, 0.32, 0.5]]
    """
    if not blocks:
        raise ShapeError("features need at least one block; got none.")
    unit = [F.normalize(block.double(), dim=1) for block in blocks]
    return torch.cat(unit, dim=1) / len(unit) ** 0.5


def within_set_residuals(
    features: Float[Tensor, "actors dim"], labels: Bool[Tensor, "actors actions"]
) -> tuple[Float[Tensor, "actors dim"], int]:
    """Return each actor's difference from the mean of its label set, and the degrees of freedom that remain.

    A label set is all that an actor does: who walks and talks is compared with those who walk and talk, not with
    everybody who walks. An actor alone in its set differs by nothing and costs one degree of freedom.

    >>> features = torch.tensor([[0.0], [2.0], [7.0]])
    >>> residuals, freedom = within_set_residuals(features, torch.tensor([[True], [True], [False]]))
    >>> residuals.flatten().tolist(), freedom
    ([-1.0, 1.0, 0.0], 1)
    """
    sets, set_index = labels.unique(dim=0, return_inverse=True)
    sums = torch.zeros(len(sets), features.shape[1], dtype=features.dtype, device=features.device)
    sums.index_add_(0, set_index, features)
    means = sums / set_index.bincount(minlength=len(sets)).to(features)[:, None]
    return features - means[set_index], len(features) - len(sets)


def principal_directions(
    residuals: Float[Tensor, "actors dim"],
) -> tuple[Float[Tensor, " rank"], Float[Tensor, "dim rank"]]:
    """Return the sum of squares along each direction in which actors differ, largest first, and these directions.

    They are eigenvectors of RᵀR. Of n actors with fewer than d features, those of RRᵀ lead there: RRᵀv = λv gives
    RᵀR(Rᵀv/√λ) = λ(Rᵀv/√λ). The smaller matrix is taken; a singular value decomposition takes two to three times as long.

    >>> sums, directions = principal_directions(torch.tensor([[3.0, 4.0, 0.0], [-3.0, -4.0, 0.0]], dtype=torch.float64))
    >>> [round(each, 6) for each in sums.tolist()], [round(each, 6) for each in directions.abs().flatten().tolist()]
    ([50.0], [0.6, 0.8, 0.0])
    """
    has_few = len(residuals) <= residuals.shape[1]
    sums, vectors = torch.linalg.eigh(residuals @ residuals.T if has_few else residuals.T @ residuals)
    is_kept = sums > _SMALLEST_SHARE * sums[-1]
    sums, vectors = sums[is_kept].flip(0), vectors[:, is_kept].flip(1)
    return sums, residuals.T @ (vectors / sums.sqrt()) if has_few else vectors.contiguous()


def oracle_shrinkage(variances: Float[Tensor, " rank"], *, dim: int, num_samples: int) -> float:
    """Return how far a covariance must shrink towards a multiple of the identity (oracle approximating shrinkage).

        ρ = min(1, ((1 − 2/d)·tr W² + tr² W) / ((n + 1 − 2/d)·(tr W² − tr² W / d)))

    This is the fixed point of the best shrinkage for Gaussian samples (Chen, Wiesel, Eldar and Hero 2010). It needs the
    eigenvalues of the covariance only: `variances`, and zeros up to `dim` of them.

    >>> oracle_shrinkage(torch.tensor([1.0, 1.0]), dim=2, num_samples=100)
    1.0
    """
    square_of_trace, trace_of_square = float(variances.sum()) ** 2, float(variances.square().sum())
    spread = trace_of_square - square_of_trace / dim
    if spread <= 0:
        return 1.0
    numerator = (1 - 2 / dim) * trace_of_square + square_of_trace
    return min(1.0, numerator / ((num_samples + 1 - 2 / dim) * spread))


@dataclass(frozen=True)
class WhitenedCosine:
    """Cosine with the mean of each action after within-class whitening, fitted to training actors in closed form.

    >>> draw = torch.Generator().manual_seed(0)
    >>> means = torch.eye(2, 8).repeat_interleave(20, dim=0)
    >>> features = means + 0.1 * torch.randn(40, 8, generator=draw)
    >>> score = WhitenedCosine.fit(features, means[:, :2] > 0)
    >>> known, novel = score.novelty(torch.eye(8)[[0, 5]]).rank.tolist()
    >>> known < novel
    True
    """

    mean: Float[Tensor, " dim"]
    """Of the unit-length features of all training actors."""
    directions: Float[Tensor, "dim rank"]
    """Orthonormal directions in which actors of one label set differ."""
    scales: Float[Tensor, " rank"]
    """W'^(−½) along each direction."""
    scale_elsewhere: Float[Tensor, ""]
    """W'^(−½) across all of them."""
    prototypes: Float[Tensor, "actions dim"]
    """The whitened mean of the actors who do each action, of length 1; zeros for an action that nobody does."""

    @classmethod
    def fit(
        cls,
        features: Float[Tensor, "actors dim"],
        labels: Bool[Tensor, "rows actions"],
        *,
        shrinkage: float | None = None,
    ) -> "WhitenedCosine":
        """Learn means and covariance from training actors, several labels each.

        Args:
            features: one row per actor; only their direction counts.
            labels: which actions each actor does.
            shrinkage: share of the identity in W', above 0; None takes `oracle_shrinkage`.

        Raises:
            ShapeError: features and labels do not belong together.
            TooFewActors: no two actors do the same, so nothing is known of how actors of an action differ.
        """
        _require_pairs(features, labels)
        unit = F.normalize(features.double(), dim=1)
        mean = unit.mean(dim=0)
        centred = unit - mean
        residuals, freedom = within_set_residuals(centred, labels)
        if freedom < 1 or not residuals.any():
            raise TooFewActors(
                f"whitening needs actors that do the same and differ; among {len(features)} there are none. Give more actors."
            )
        sums, directions = principal_directions(residuals)
        variances = sums / freedom
        share = _share(shrinkage, variances, dim=features.shape[1], num_samples=freedom)
        even = share * variances.sum() / features.shape[1]
        fitted = cls(
            mean,
            directions,
            ((1 - share) * variances + even).rsqrt(),
            even.rsqrt(),
            centred.new_zeros(labels.shape[1], features.shape[1]),
        )
        sums = labels.double().T @ fitted._whitened(centred)
        return cls(mean, directions, fitted.scales, fitted.scale_elsewhere, F.normalize(sums, dim=1))

    def similarity(self, features: Float[Tensor, "actors dim"]) -> Float[Tensor, "actors actions"]:
        """Return the cosine of each actor with each action; −1 for an action that nobody did in training."""
        if features.ndim != 2 or features.shape[1] != len(self.mean):
            raise ShapeError(
                f"features must be (actors, {len(self.mean)}), as in fit; got {tuple(features.shape)}."
            )
        return torch.where(self.prototypes.any(dim=1), self.whitened(features) @ self.prototypes.T, -1.0)

    def whitened(self, features: Float[Tensor, "actors dim"]) -> Float[Tensor, "actors dim"]:
        """Return each actor in the whitened space, of length 1."""
        return F.normalize(self._whitened(F.normalize(features.double(), dim=1) - self.mean), dim=1)

    def novelty(self, features: Float[Tensor, "actors dim"]) -> Novelty:
        """Return minus the largest cosine: an actor is novel if it resembles no action."""
        nearest = self.similarity(features).amax(dim=1)
        return Novelty(value=(1 - nearest).clamp(0, 2) / 2, rank=-nearest)

    def tensors(self) -> dict[str, Tensor]:
        """Return everything there is to save."""
        return {each.name: getattr(self, each.name) for each in fields(self)}

    @classmethod
    def of(cls, tensors: Mapping[str, Tensor]) -> "WhitenedCosine":
        """Return the score whose `tensors` were saved."""
        return cls(**{each.name: tensors[each.name] for each in fields(cls)})

    def _whitened(self, centred: Float[Tensor, "actors dim"]) -> Float[Tensor, "actors dim"]:
        along = centred @ self.directions
        return (
            centred * self.scale_elsewhere
            + (along * (self.scales - self.scale_elsewhere)) @ self.directions.T
        )


def _share(shrinkage: float | None, variances: Tensor, *, dim: int, num_samples: int) -> float:
    if shrinkage is None:
        return oracle_shrinkage(variances, dim=dim, num_samples=num_samples)
    if not 0 < shrinkage <= 1:
        raise RangeError(f"shrinkage must be above 0 and at most 1; got {shrinkage}.")
    return shrinkage


def _require_pairs(features: Tensor, labels: Tensor) -> None:
    if len(features) != len(labels):
        raise ShapeError(
            f"features and labels must have one row per actor; got {len(features)} and {len(labels)}."
        )
    if not labels.any():
        raise TooFewActors("a score of known actions needs actors that do one; none does. Check the labels.")
