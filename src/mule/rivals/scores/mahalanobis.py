"""Mahalanobis distance to the nearest class, all classes sharing one covariance."""

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from mule.core.errors import TooFewActors
from mule.core.records import Novelty
from mule.rivals.scores.output_score import OutputScore
from mule.rivals.scores.outputs import StoredOutputs, stored


class Mahalanobis(OutputScore):
    """Novel is whose feature is far from every class: min_c √((f − μ_c)ᵀ Σ⁻¹ (f − μ_c)) (Lee et al. 2018).

    Our reading for several labels is that of Wang et al. (2021): μ_c is the mean over the training actors that do c,
    and Σ the mean of (f − μ_c)(f − μ_c)ᵀ over all pairs of a training actor and an action it does. Classes nobody
    does have no mean. Σ is shrunk towards its mean variance, (1 − s)·Σ + s·tr(Σ)/D·I, with Ledoit and Wolf's s for
    these pairs, so it can be inverted when there are fewer actors than dimensions. Only the last layer's features
    are used and pixels are not perturbed.

    The value is the share of a Gaussian that lies nearer to its mean, the χ² distribution at the squared distance.
    """

    centre: Tensor
    whitening: Tensor
    whitened_means: Tensor

    def __init__(self) -> None:
        super().__init__("features", learns=True)
        for name in ("centre", "whitening", "whitened_means"):
            self.register_buffer(name, torch.zeros(0, dtype=torch.float64))

    def _fit(self, train: StoredOutputs, does: Bool[Tensor, "actors classes"]) -> None:
        features = stored(train.features, "features").double()
        self.centre = features.mean(dim=0)
        centred = features - self.centre
        does = does[:, does.any(dim=0)]
        means, covariance = tied_gaussians(centred, does.double())
        shrunk = shrunk_covariance(centred, means, covariance, does=does.double())
        lower, failed = torch.linalg.cholesky_ex(shrunk)
        if failed:
            raise TooFewActors(
                f"a covariance needs actors of one action that differ; got {len(features)} actors of "
                f"{does.shape[1]} actions whose features cannot be told apart from their class means."
            )
        identity = torch.eye(len(lower), dtype=lower.dtype, device=lower.device)
        self.whitening = torch.linalg.solve_triangular(lower, identity, upper=False).T
        self.whitened_means = means @ self.whitening

    def _novelty(self, outputs: StoredOutputs) -> Novelty:
        features = stored(outputs.features, "features").double()
        whitened = (features - self.centre) @ self.whitening
        distance = torch.cdist(whitened, self.whitened_means).amin(dim=1)
        half_dim = torch.full_like(distance, features.shape[1] / 2)
        return Novelty(value=torch.special.gammainc(half_dim, distance.square() / 2), rank=distance)


def tied_gaussians(
    features: Float[Tensor, "actors dim"], does: Float[Tensor, "actors classes"]
) -> tuple[Float[Tensor, "classes dim"], Float[Tensor, "dim dim"]]:
    """The mean of each class and the covariance they share, over all pairs of an actor and an action it does."""
    num_actors_of = does.sum(dim=0)
    means = does.T @ features / num_actors_of[:, None]
    scatter = (features * does.sum(dim=1)[:, None]).T @ features - (means * num_actors_of[:, None]).T @ means
    return means, scatter / num_actors_of.sum()


def shrunk_covariance(
    features: Float[Tensor, "actors dim"],
    means: Float[Tensor, "classes dim"],
    covariance: Float[Tensor, "dim dim"],
    *,
    does: Float[Tensor, "actors classes"],
) -> Float[Tensor, "dim dim"]:
    """The covariance moved towards its mean variance, as far as Ledoit and Wolf (2004) find best for these pairs."""
    dim, num_pairs = len(covariance), does.sum()
    mean_variance = covariance.trace() / dim
    identity = torch.eye(dim, dtype=covariance.dtype, device=covariance.device)
    fourth_powers = (does * torch.cdist(features, means).pow(4)).sum()
    noise = (fourth_powers / num_pairs - covariance.square().sum()) / (dim * num_pairs)
    structure = (covariance - mean_variance * identity).square().sum() / dim
    shrinkage = (noise / structure).clamp(0, 1) if structure > 0 else torch.ones_like(structure)
    return (1 - shrinkage) * covariance + shrinkage * mean_variance * identity
