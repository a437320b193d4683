"""ViM: the part of a feature that known actors do not have, as one more logit."""

from typing import Literal

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from mule.core.errors import RangeError, TooFewActors
from mule.core.records import Novelty
from mule.rivals.scores.energy import joint_energy, label_energy
from mule.rivals.scores.output_score import OutputScore
from mule.rivals.scores.outputs import StoredOutputs, stored

EnergyKind = Literal["joint", "softmax"]


class ViM(OutputScore):
    """A virtual logit, α times the residual of the feature, against the energy of the real ones (Wang et al. 2022).

        novelty = α·‖x^⊥‖ − energy(h)        x = f − o,  o = −W⁺b, where the logits are nearest to 0

    x^⊥ is what is left of x outside the principal subspace: the D' leading eigenvectors of Σ x xᵀ over training
    actors. α makes the mean virtual logit equal to the mean largest real one over training actors.

    * ``energy="softmax"`` is the paper's: energy = log Σ e^h, α = mean max h / mean ‖x^⊥‖; the value is the softmax
      share of the virtual class.
    * ``energy="joint"`` is our reading for several labels: energy = Σ log(1 + e^h) (JointEnergy), and α matches the
      mean of max log(1 + e^h), the same where networks are confident and never below 0. The value is the logistic
      function of the novelty.

    D' is `principal_dim`; by default as in the authors' code, 1000 for 2048 dimensions or more and 512 for 768 or
    more. Ours for fewer: half of them; and never more than half as many as there are training actors.
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
    """ViM's virtual logit alone, α·‖x^⊥‖, to be combined with other scores by their p-values instead of by addition."""

    def _novelty(self, outputs: StoredOutputs) -> Novelty:
        virtual = self._virtual_logit(outputs)
        return Novelty(value=torch.tanh(virtual / 2), rank=virtual)


def leading_directions(moved: Float[Tensor, "actors dim"], number: int) -> Float[Tensor, "dim directions"]:
    """So many leading eigenvectors of Σ x xᵀ; of fewer actors than dimensions by the smaller of two problems."""
    if len(moved) < moved.shape[1]:
        return torch.linalg.svd(moved, full_matrices=False).Vh[:number].T.contiguous()
    directions = torch.linalg.eigh(moved.T @ moved / len(moved)).eigenvectors
    return directions.flip(1)[:, :number].contiguous()


def usual_principal_dim(dim: int) -> int:
    """How many of so many dimensions span the principal subspace: 1000 or 512 as in the authors' code, or half."""
    if dim >= 2048:
        return 1000
    return 512 if dim >= 768 else dim // 2
