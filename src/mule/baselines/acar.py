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

from mule.errors import ShapeError
from mule.relations.maps import PUBLISHED, ActorFeature, MapRelations, RelationSettings, SizedContext
from mule.relations.scene import SceneFeatures


class AcarRelations(nn.Module):
    """One feature per actor, after actors have attended to each other at every cell of the context."""

    def __init__(self, channels: int, settings: RelationSettings = PUBLISHED) -> None:
        super().__init__()
        self.channels = channels
        self.settings = replace(settings, slope=0.0, block_slope=0.0, is_normalised=False)
        self.mixing = nn.Conv2d(2 * channels, settings.width, 1, bias=False)
        self.maps = MapRelations(self.settings)
        self.actor = ActorFeature(channels, self.settings)

    @property
    def dim(self) -> int:
        """The length of an actor's feature."""
        return 2 * self.settings.width

    def forward(self, scene: SceneFeatures) -> Float[Tensor, "actors dim"]:
        """One relational feature per actor, in the scene's order."""
        if scene.channels != self.channels:
            raise ShapeError(f"features must have {self.channels} channels; got {scene.channels}.")
        of_actors, of_context = self.mixing.weight.flatten(1).split(self.channels, dim=1)
        context = tuple(
            SizedContext(
                clips=scene.actor_clip_index.new_tensor(clips),
                maps=F.linear(torch.stack([scene.context[clip] for clip in clips]).movedim(1, 3), of_context),
            )
            for clips in scene.clips_by_size()
        )
        related, _ = self.maps(
            F.linear(scene.actors, of_actors), scene.actor_clip_index, context, num_asking=len(scene.actors)
        )
        return self.actor(related, scene.actors)
