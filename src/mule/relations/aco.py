"""ACO-R as the paper has it: a map for every pair of an actor and an object (section 3.1)."""

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from mule.relations.maps import (
    PUBLISHED,
    ActorFeature,
    FeatureMixing,
    MapRelations,
    RelationSettings,
    SizedAttention,
    mean_attention,
)
from mule.relations.scene import ActorAttention, SceneFeatures


class GridRelations(nn.Module):
    """Actor relational features from the full grid of pairs, F_ij = [A_i | X | O_j].

    All N·M pair maps of a clip attend to each other at every cell. The paper does not say how they become one
    feature per actor: here, the largest value over its objects, channel by channel, after the mean over cells.
    Time and memory grow with N·M.
    """

    def __init__(self, channels: int, settings: RelationSettings = PUBLISHED) -> None:
        super().__init__()
        self.settings = settings
        self.mixing = FeatureMixing(channels, settings.width)
        self.maps = MapRelations(settings)
        self.actor = ActorFeature(channels, settings)

    @property
    def dim(self) -> int:
        """The length of an actor's relational feature."""
        return 2 * self.settings.width

    def forward(self, scene: SceneFeatures) -> Float[Tensor, "actors dim"]:
        """One relational feature per actor, in the scene's order."""
        return self._related(scene)[0]

    def explained(self, scene: SceneFeatures) -> tuple[Float[Tensor, "actors dim"], ActorAttention]:
        """The same, and where each actor looked.

        Averaged over the actor's own pairs, over cells and over blocks: `to_actors` is the weight on all pairs of
        an actor, `to_objects` the weight on all pairs with an object. They are two ways to divide the same weight,
        so each adds up to one, less what went to the null object.
        """
        features, (pair_actor, pair_object), attention = self._related(scene)
        between_pairs = mean_attention(attention, num_asking=len(pair_actor), num_maps=len(pair_actor))
        is_of_actor = pair_actor[:, None] == torch.arange(len(scene.actors), device=pair_actor.device)
        is_with_object = pair_object[:, None] == torch.arange(len(scene.objects), device=pair_object.device)
        from_actor = (is_of_actor / is_of_actor.sum(dim=0)).T.to(between_pairs) @ between_pairs
        return features, ActorAttention(
            to_actors=from_actor @ is_of_actor.to(from_actor),
            to_objects=from_actor @ is_with_object.to(from_actor),
        )

    def _related(
        self, scene: SceneFeatures
    ) -> tuple[Float[Tensor, "actors dim"], Int[Tensor, "2 pairs"], tuple[SizedAttention, ...]]:
        """The features, the pairs (which actor, which object) and their attention to each other."""
        mixed = self.mixing(scene)
        pairs = (mixed.actor_clip_index[:, None] == mixed.object_clip_index).nonzero().T
        pair_actor, pair_object = pairs
        of_pair, attention = self.maps(
            mixed.actors[pair_actor] + mixed.objects[pair_object],
            mixed.actor_clip_index[pair_actor],
            mixed.context,
            num_asking=len(pair_actor),
        )
        related = of_pair.new_zeros(len(scene.actors), self.settings.width).scatter_reduce(
            0, pair_actor[:, None].expand_as(of_pair), of_pair, "amax", include_self=False
        )
        return self.actor(related, scene.actors), pairs, attention
