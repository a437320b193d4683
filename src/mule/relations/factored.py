"""ACO-R at the cost of a scene's parts, not of its pairs: a map for every actor and for every object."""

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
