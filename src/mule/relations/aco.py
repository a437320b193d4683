"""ACO-R as the paper has it: a map for every pair of an actor and an object (section 3.1).

ACO-R at the cost of a scene's parts, not of its pairs: a map for every actor and for every object.
"""

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from mule.relations.maps import (
    PUBLISHED,
    ActorAttention,
    ActorFeature,
    FeatureMixing,
    MapRelations,
    RelationSettings,
    SceneFeatures,
    SizedAttention,
    mean_attention,
)


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


class ObjectChoice(nn.Module):
    """Every actor's choice among the objects of its clip, Ō_i = Σ_j w_ij O_j with w_ij = softmax over j of q_i·k_j / √width."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.query = nn.Linear(width, width, bias=False)
        self.key = nn.Linear(width, width, bias=False)

    def forward(
        self,
        actors: Float[Tensor, "actors width"],
        actor_clip_index: Int[Tensor, " actors"],
        objects: Float[Tensor, "objects width"],
        object_clip_index: Int[Tensor, " objects"],
    ) -> Float[Tensor, "actors width"]:
        """What each actor chose. Every clip with an actor must have an object; those of other clips weigh nothing."""
        likeness = self.query(actors) @ self.key(objects).T / actors.shape[1] ** 0.5
        is_same_clip = actor_clip_index[:, None] == object_clip_index
        lowest = torch.finfo(likeness.dtype).min
        return torch.where(is_same_clip, likeness, lowest).softmax(dim=1) @ objects


class FactoredRelations(nn.Module):
    """Actor relational features from N actor maps [A_i | X | Ō_i] and M object maps [X | O_j].

    Ō_i is the object an actor chooses: with one object in a clip, [A_i | X | Ō_i] is the grid's pair. At every cell,
    actors attend to the objects and actors of their clip, and objects do too, except in the last block, where
    nothing would read what they found. Time and memory grow with N + M.
    """

    def __init__(self, channels: int, settings: RelationSettings = PUBLISHED) -> None:
        super().__init__()
        self.settings = settings
        self.mixing = FeatureMixing(channels, settings.width)
        self.choice = ObjectChoice(settings.width)
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

        Averaged over cells and blocks: the weight of an actor's map on that of each actor, itself too, and of each
        object. All together add up to one, less what went to the null object.
        """
        features, attention, num_maps = self._related(scene)
        num_actors, num_objects = len(scene.actors), len(scene.objects)
        weight = mean_attention(attention, num_asking=num_actors, num_maps=num_maps)
        return features, ActorAttention(
            to_actors=weight[:, :num_actors], to_objects=weight[:, num_actors : num_actors + num_objects]
        )

    def _related(
        self, scene: SceneFeatures
    ) -> tuple[Float[Tensor, "actors dim"], tuple[SizedAttention, ...], int]:
        mixed = self.mixing(scene)
        chosen = self.choice(mixed.actors, mixed.actor_clip_index, mixed.objects, mixed.object_clip_index)
        related, attention = self.maps(
            torch.cat([mixed.actors + chosen, mixed.objects]),
            torch.cat([mixed.actor_clip_index, mixed.object_clip_index]),
            mixed.context,
            num_asking=len(mixed.actors),
        )
        return self.actor(related, scene.actors), attention, len(mixed.actors) + len(mixed.objects)
