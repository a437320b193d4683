"""Activity-specific features and activity correlations (Zhang, Li and Marsic, CVPR 2021), per actor.

Re-implemented from the paper's description; no code or layer sizes were published. Read for one actor:

    cells of the actor's box ── n attention maps ──▶ n observations ── per action ──▶ one feature per action
                                                                                          │ actions attend to each other
                                                                          own weights ◀───┘  ─▶ one logit per action
"""

from collections.abc import Sequence

import torch
from jaxtyping import Float
from torch import Tensor, nn

from mule.features.pooling import DETECTION_HEAD, FeatureMaps, RoiSampling, box_volumes, context_map
from mule.model import ModelOutput, SceneBoxes, per_box
from mule.rivals.scores.logits import relu_evidence


class AfacHead(nn.Module):
    """Decides each action from a feature of its own, a mixture of observations of the actor.

    Attention over cells makes observation n: o_n = Σ softmax(w_n · x) · V x. Attention over observations
    makes the feature of action c: f_c = Σ softmax(q_c · o_n / √d) · o_n. Correlations: actions attend to each
    other's features, and the result is added. The logit of c is w_c · f_c + b_c, with weights of its own.
    """

    def __init__(
        self, channels: int, num_classes: int, *, width: int = 512, num_observations: int = 16
    ) -> None:
        super().__init__()
        self.dim = width
        self.look = nn.Linear(channels, num_observations, bias=False)
        self.value = nn.Linear(channels, width)
        self.query = nn.Parameter(torch.randn(num_classes, width) * width**-0.5)
        self.norm = nn.LayerNorm(width)
        self.correlation = nn.MultiheadAttention(width, num_heads=1, batch_first=True)
        self.weight = nn.Parameter(torch.randn(num_classes, width) * width**-0.5)
        self.bias = nn.Parameter(torch.zeros(num_classes))

    def forward(
        self, cells: Float[Tensor, "actors tokens channels"]
    ) -> tuple[Float[Tensor, "actors classes"], Float[Tensor, "actors dim"]]:
        """The logits, and the mean of the activity-specific features."""
        specific = self.activity_features(cells)
        logits = torch.einsum("acd,cd->ac", specific, self.weight) + self.bias
        return logits, specific.mean(dim=1)

    def activity_features(
        self, cells: Float[Tensor, "actors tokens channels"]
    ) -> Float[Tensor, "actors classes dim"]:
        """One feature per actor and action."""
        weight = self.look(cells).softmax(dim=1)  # over tokens, one map per observation
        observations = weight.transpose(1, 2) @ self.value(cells)  # (actors, observations, dim)
        likeness = observations @ self.query.T / self.dim**0.5  # (actors, observations, classes)
        specific = likeness.softmax(dim=1).transpose(1, 2) @ observations
        related = (
            self.correlation(specific, specific, specific, need_weights=False)[0] if len(cells) else specific
        )
        return self.norm(specific + related)


class AfacModel(nn.Module):
    """AFAC on the bounding volume of each actor: every cell of every frame in the box is a token."""

    def __init__(
        self,
        channels: int,
        num_classes: int,
        *,
        width: int = 512,
        num_observations: int = 16,
        sampling: RoiSampling = DETECTION_HEAD,
    ) -> None:
        super().__init__()
        self.sampling = sampling
        self.head = AfacHead(channels, num_classes, width=width, num_observations=num_observations)

    def forward(self, features: Sequence[FeatureMaps], boxes: SceneBoxes) -> ModelOutput:
        """One logit per actor and action; evidence by the paper's rule for rivals."""

        def cells(part: int, boxes_xyxy_px: Tensor, clip_index: Tensor) -> Tensor:
            volume = box_volumes(features[part], boxes_xyxy_px, clip_index, sampling=self.sampling)
            return volume.flatten(2).transpose(1, 2)

        logits, actor_features = self.head(
            per_box(features, boxes.actors_xyxy_px, boxes.actor_clip_index, cells)
        )
        return ModelOutput(
            outputs=logits,
            evidence=relu_evidence(logits),
            features=actor_features,
            context=torch.cat([context_map(each).mean(dim=(2, 3)) for each in features]),
            actor_clip_index=boxes.actor_clip_index,
        )
