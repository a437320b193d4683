"""A contrastive loss for actors with several labels: features of actors that share actions are drawn together."""

import torch
import torch.nn.functional as F
from jaxtyping import Float, Shaped
from torch import Tensor

from mule.core.processes import gather_actors

TEMPERATURE = 0.1


def shared_actions(labels: Shaped[Tensor, "actors classes"]) -> Float[Tensor, "actors actors"]:
    """Return the Jaccard index of two actors' actions, for every pair; 0 where neither does any."""
    does = labels.float()
    both = does @ does.T
    either = does.sum(dim=1)[:, None] + does.sum(dim=1)[None, :] - both
    return both / either.clamp(min=1)


def contrast_loss(
    features: Float[Tensor, "actors dim"],
    labels: Shaped[Tensor, "actors classes"],
    *,
    temperature: float = TEMPERATURE,
) -> Float[Tensor, ""]:
    """Return the SupCon loss with Jaccard weights.

        −Σ_j w_ij·log softmax_j(cos(z_i, z_j)/τ) / Σ_j w_ij,  j ≠ i,  mean over actors that share an action with another

    w is `shared_actions`. Actors of all ranks are gathered; without any pair the loss is 0.
    """
    features, labels = gather_actors(features), gather_actors(labels.float())
    unit = F.normalize(features.float(), dim=1)
    is_self = torch.eye(len(unit), dtype=torch.bool, device=unit.device)
    likeness = (unit @ unit.T / temperature).masked_fill(is_self, -torch.inf)
    weight = shared_actions(labels).masked_fill(is_self, 0.0)
    log_share = F.log_softmax(likeness, dim=1).masked_fill(is_self, 0.0)
    total = weight.sum(dim=1)
    has_others = total > 0
    if not has_others.any():
        return features.sum() * 0.0
    each = -(weight * log_share).sum(dim=1)[has_others] / total[has_others]
    return each.mean()
