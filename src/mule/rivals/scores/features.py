"""Novelty scores of the features before the last layer.

ViM            the part of a feature outside the space of known actors, as one more logit
Mahalanobis    distance to the nearest class; all classes share one covariance
kNN            distance to the nearest training actors
"""

from typing import Literal

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float
from torch import Tensor

from mule.core.errors import RangeError, TooFewActors
from mule.core.records import Novelty, at_least_single
from mule.rivals.scores.logits import joint_energy, label_energy
from mule.rivals.scores.outputs import OutputScore, StoredOutputs, stored

EnergyKind = Literal["joint", "softmax"]


class ViM(OutputScore):
    """A virtual logit, α times the residual of the feature, against the energy of the real ones (Wang et al. 2022).

        novelty = α·‖x^⊥‖ − energy(h)        x = f − o,  o = −W⁺b, where the logits are nearest to 0

    x^⊥ is what is left of x outside the principal subspace: the D' leading eigenvectors of Σ x xᵀ over
    training actors. α makes the mean virtual logit equal to the mean largest real one over training actors.

    * ``energy="softmax"`` is the paper's: energy = log Σ e^h, α = mean max h / mean ‖x^⊥‖; the value is the softmax
      share of the virtual class.
    * ``energy="joint"`` is our reading for several labels: energy = Σ log(1 + e^h) (JointEnergy), and α matches the
      mean of max log(1 + e^h), the same where networks are confident and never below 0. The value is the
      logistic function of the novelty.

    D' is `principal_dim`; by default as in the authors' code, 1000 for 2048 dimensions or more and 512 for
    768 or more. Ours for fewer: half of them; and never more than half as many as there are training actors.
    """

    origin: Tensor
    principal_basis: Tensor
    virtual_scale: Tensor

    def __init__(self, energy: EnergyKind = "joint", *, principal_dim: int | None = None) -> None:
        super().__init__("logits", "features", "readout", learns=True)
        self.energy: EnergyKind = energy
        self.principal_dim = principal_dim
        for name in ("origin", "principal_basis", "virtual_scale"):
            self.register_buffer(name, torch.zeros(0, dtype=torch.float64))

    def _fit(self, train: StoredOutputs, does: Bool[Tensor, "actors classes"]) -> None:
        features = stored(train.features, "features").double()
        readout = stored(train.readout, "readout")
        kept = self._kept_dim(*features.shape)
        self.origin = -torch.linalg.pinv(readout.weight.double()) @ readout.bias.double()
        moved = features - self.origin
        self.principal_basis = leading_directions(moved, kept)
        residual = self._residual(moved).mean()
        if residual <= 1e-9 * moved.norm(dim=1).mean():
            raise TooFewActors(
                f"ViM needs training actors outside their {kept} principal dimensions; {len(does)} actors leave no "
                "residual. Lower principal_dim, or fit on more actors."
            )
        self.virtual_scale = self._largest(train.logits).mean() / residual
        if self.virtual_scale <= 0:
            raise RangeError(
                "ViM's virtual logit is scaled to the mean largest logit of training actors, which must be above 0; "
                f"got {self._largest(train.logits).mean().item():.4g}. Use the joint energy for such a network."
            )

    def _novelty(self, outputs: StoredOutputs) -> Novelty:
        rank = self._virtual_logit(outputs) - self._energy_of(outputs.logits)
        return Novelty(value=torch.sigmoid(rank), rank=rank)

    def _virtual_logit(self, outputs: StoredOutputs) -> Float[Tensor, " actors"]:
        features = stored(outputs.features, "features").double()
        return self.virtual_scale * self._residual(features - self.origin)

    def _residual(self, moved: Float[Tensor, "actors dim"]) -> Float[Tensor, " actors"]:
        """‖x^⊥‖."""
        return (moved - (moved @ self.principal_basis) @ self.principal_basis.T).norm(dim=1)

    def _energy_of(self, logits: Float[Tensor, "actors classes"]) -> Float[Tensor, " actors"]:
        return joint_energy(logits) if self.energy == "joint" else logits.double().logsumexp(dim=1)

    def _largest(self, logits: Float[Tensor, "actors classes"]) -> Float[Tensor, " actors"]:
        return (label_energy(logits) if self.energy == "joint" else logits.double()).amax(dim=1)

    def _kept_dim(self, num_actors: int, dim: int) -> int:
        if self.principal_dim is None:
            return min(usual_principal_dim(dim), num_actors // 2)
        if not 0 <= self.principal_dim < dim:
            raise RangeError(
                f"principal_dim must be at least 0 and below the {dim} dimensions; got {self.principal_dim}."
            )
        return self.principal_dim


class ViMResidual(ViM):
    """ViM's virtual logit alone, α·‖x^⊥‖, for combining with other scores by p-values instead of by addition."""

    def _novelty(self, outputs: StoredOutputs) -> Novelty:
        virtual = self._virtual_logit(outputs)
        return Novelty(value=torch.tanh(virtual / 2), rank=virtual)


def leading_directions(moved: Float[Tensor, "actors dim"], number: int) -> Float[Tensor, "dim directions"]:
    """Return the leading eigenvectors of Σ x xᵀ, by singular values if there are fewer actors than dimensions."""
    if len(moved) < moved.shape[1]:
        return torch.linalg.svd(moved, full_matrices=False).Vh[:number].T.contiguous()
    directions = torch.linalg.eigh(moved.T @ moved / len(moved)).eigenvectors
    return directions.flip(1)[:, :number].contiguous()


def usual_principal_dim(dim: int) -> int:
    """Return the default dimension of the principal subspace: the authors' 1000 or 512, or half of `dim`."""
    if dim >= 2048:
        return 1000
    return 512 if dim >= 768 else dim // 2


class Mahalanobis(OutputScore):
    """The distance of a feature to the nearest class: min_c √((f − μ_c)ᵀ Σ⁻¹ (f − μ_c)) (Lee et al. 2018).

    Our reading for several labels is that of Wang et al. (2021): μ_c is the mean over the training actors
    that do c, and Σ the mean of (f − μ_c)(f − μ_c)ᵀ over all pairs of a training actor and an action it does.
    Classes nobody does have no mean. Σ is shrunk towards its mean variance, (1 − s)·Σ + s·tr(Σ)/D·I, with
    Ledoit and Wolf's s for these pairs, so it can be inverted when there are fewer actors than dimensions.
    Only the last layer's features are used and pixels are not perturbed.

    The value is the share of a Gaussian that lies nearer to its mean, the χ² distribution at the squared
    distance.
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
                f"the covariance needs actors that differ from the mean of their action; the {len(features)} actors of "
                f"{does.shape[1]} actions do not. Fit on more actors."
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


_ACTORS_AT_ONCE = 1024


class NearestNeighbours(OutputScore):
    """The distance to the k-th nearest training actor: ‖z − z_(k)‖ with z = f/‖f‖ (Sun et al. 2022).

    Labels are used only to refuse novel actors. The search is exact. The
    distance of unit vectors is at most 2; the value is half of it.
    """

    memory: Tensor

    def __init__(self, k: int = 10) -> None:
        super().__init__("features", learns=True)
        if k < 1:
            raise RangeError(f"k must be at least 1; got {k}.")
        self.k = k
        self.register_buffer("memory", torch.zeros(0, 0))

    def _fit(self, train: StoredOutputs, does: Bool[Tensor, "actors classes"]) -> None:
        if len(does) < self.k:
            raise TooFewActors(
                f"k nearest actors need at least k = {self.k} training actors; got {len(does)}. Lower k."
            )
        self.memory = _on_the_sphere(stored(train.features, "features"))

    def _novelty(self, outputs: StoredOutputs) -> Novelty:
        queries = _on_the_sphere(stored(outputs.features, "features"))
        memory = self.memory.to(queries)
        distance = torch.cat([self._kth_distance(some, memory) for some in queries.split(_ACTORS_AT_ONCE)])
        return Novelty(value=(distance / 2).clamp(max=1), rank=distance)

    def _kth_distance(
        self, queries: Float[Tensor, "actors dim"], memory: Float[Tensor, "known dim"]
    ) -> Float[Tensor, " actors"]:
        kth = (queries @ memory.T).topk(self.k, dim=1).indices[:, -1]
        # from the difference, not from 2 − 2·cosine, which loses the digits of near neighbours
        return (queries.double() - memory[kth].double()).norm(dim=1)


def _on_the_sphere(features: Float[Tensor, "actors dim"]) -> Float[Tensor, "actors dim"]:
    features = at_least_single(features)
    # the largest entry first, so that neither huge nor tiny features square out of range
    largest = features.abs().amax(dim=1, keepdim=True).clamp(min=torch.finfo(features.dtype).tiny)
    return F.normalize(features / largest, dim=1)
