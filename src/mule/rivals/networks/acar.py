"""Actor-context-actor relations (Pan et al., CVPR 2021): ACO-R without the objects, with ACAR's own layers.

    [A_i | X] ─ 1×1 ─ ReLU ─ 3×3 ─ ReLU ─ max pool ─ HR2O blocks between actors ─ mean over cells ─┐
         A_i ─ linear ─ ReLU ──────────────────────────────────────────────────────────────────────┴─▶ concat

No layer has a bias. As for objects, the 1×1 convolution of the concatenation is a sum: W_A·A + W_X·X.
"""

from dataclasses import replace

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from mule.core.errors import ShapeError
from mule.relations.aco import ActorFeature, SceneFeatures
from mule.relations.maps import PUBLISHED, MapRelations, RelationSettings, SizedContext


class ActorContextMixing(nn.Module):
    """W = [W_A | W_X]: the 1×1 convolution of the concatenation, kept as one weight and used in two parts."""

    def __init__(self, channels: int, width: int) -> None:
        super().__init__()
        self.channels = channels
        self.weight = nn.Conv2d(2 * channels, width, 1, bias=False).weight

    def forward(self, scene: SceneFeatures) -> tuple[Float[Tensor, "actors width"], tuple[SizedContext, ...]]:
        """W_A·A of each actor, and W_X·X of the clips of each size."""
        if scene.channels != self.channels:
            raise ShapeError(f"features must have {self.channels} channels; got {scene.channels}.")
        of_actors, of_context = self.weight.flatten(1).split(self.channels, dim=1)
        context = (
            SizedContext(
                clips=scene.actor_clip_index.new_tensor(clips),
                maps=F.linear(torch.stack([scene.context[clip].movedim(0, 2) for clip in clips]), of_context),
            )
            for clips in scene.clips_by_size()
        )
        return F.linear(scene.actors, of_actors), tuple(context)


class AcarRelations(nn.Module):
    """One feature per actor, after actors have attended to each other at every cell of the context."""

    def __init__(self, channels: int, settings: RelationSettings = PUBLISHED) -> None:
        super().__init__()
        self.channels = channels
        self.settings = replace(settings, slope=0.0, block_slope=0.0, is_normalised=False)
        self.mixing = ActorContextMixing(channels, settings.width)
        self.maps = MapRelations(self.settings)
        self.actor = ActorFeature(channels, self.settings)

    @property
    def dim(self) -> int:
        """The length of an actor's feature."""
        return 2 * self.settings.width

    def forward(self, scene: SceneFeatures) -> Float[Tensor, "actors dim"]:
        """One relational feature per actor, in the scene's order."""
        of_actors, context = self.mixing(scene)
        related, _ = self.maps(of_actors, scene.actor_clip_index, context, num_asking=len(scene.actors))
        return self.actor(related, scene.actors)
