"""ACO-R: actors, context and objects become one relational feature per actor (section 3.1).

The paper concatenates [A | X | O] along channels and convolves with a 1×1 kernel W = [W_A | W_X | W_O]. That is
W_A·A + W_X·X + W_O·O: two vectors and one map, added. The concatenation, of 3C channels per pair, is never made.

`GridRelations` makes a map for every pair of an actor and an object, as the paper does. `FactoredRelations` makes one for
every actor and one for every object, at the cost of a scene's parts instead of its pairs.
"""

from dataclasses import dataclass
from functools import cached_property

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor, nn

from mule.core.errors import RangeError, ShapeError
from mule.relations.maps import PUBLISHED, MapRelations, RelationSettings, SizedContext, mean_attention
from mule.relations.remembered import RememberedClip


@dataclass(frozen=True)
class SceneFeatures:
    """The context map of each clip, of any size, and the actors and objects of all clips in flat rows.

    A batch of clips of one size is `context=tuple(batch)`. A clip without actors or objects simply has no rows.
    """

    context: tuple[Float[Tensor, "channels _rows _cols"], ...]
    """X of each clip: its feature map, averaged over time."""
    actors: Float[Tensor, "actors channels"]
    """A: one feature per actor, in any order."""
    actor_clip_index: Int[Tensor, " actors"]
    objects: Float[Tensor, "objects channels"]
    """O: one feature per object, in any order."""
    object_clip_index: Int[Tensor, " objects"]
    remembered: tuple[RememberedClip, ...] = ()
    """Neighbouring clips, for relations that attend to them."""

    def __post_init__(self) -> None:
        problems = [
            *self._shape_problems(),
            *_index_problems("actor", self.actors, self.actor_clip_index),
            *_index_problems("object", self.objects, self.object_clip_index),
        ]
        if problems:
            raise ShapeError(" ".join(problems))
        self._require_known_clips("actor_clip_index", self.actor_clip_index)
        self._require_known_clips("object_clip_index", self.object_clip_index)
        stray = [each.near_clip for each in self.remembered if not 0 <= each.near_clip < self.num_clips]
        if stray:
            raise RangeError(
                f"a remembered clip must be near one of {self.num_clips} clips, from 0; got clip {stray[0]}."
            )

    @property
    def num_clips(self) -> int:
        """The number of clips, with actors or without."""
        return len(self.context)

    @property
    def channels(self) -> int:
        """C: the length of every feature."""
        return self.actors.shape[1]

    @cached_property
    def context_means(self) -> Float[Tensor, "clips channels"]:
        """X of each clip, averaged over its cells."""
        return torch.stack([each.mean(dim=(1, 2)) for each in self.context])

    def clips_by_size(self) -> list[list[int]]:
        """Group the clips whose maps have the same rows and columns, so that they can be processed together."""
        clips: dict[torch.Size, list[int]] = {}
        for clip, each in enumerate(self.context):
            clips.setdefault(each.shape, []).append(clip)
        return list(clips.values())

    def _shape_problems(self) -> list[str]:
        problems: list[str] = []
        if any(each.ndim != 3 for each in self.context) or self.actors.ndim != 2 or self.objects.ndim != 2:
            problems.append(
                "context maps must be (channels, rows, cols), actors and objects (number, channels); got "
                f"{[tuple(each.shape) for each in self.context]}, {tuple(self.actors.shape)} and "
                f"{tuple(self.objects.shape)}."
            )
            return problems
        features = (*self.context, *(each.T for each in (self.actors, self.objects)))
        if len({each.shape[0] for each in features}) > 1:
            problems.append(
                f"context, actors and objects must have the same channels; got {[len(each) for each in self.context]}, "
                f"{self.actors.shape[1]} and {self.objects.shape[1]}. Pool actors and objects from the context map."
            )
        kinds = sorted({f"{each.dtype} on {each.device}" for each in features})
        if len(kinds) > 1 or not self.actors.is_floating_point():
            problems.append(
                f"context, actors and objects must share one floating-point type and device; got {', '.join(kinds)}."
            )
        return problems

    def _require_known_clips(self, name: str, clip_index: Tensor) -> None:
        is_recording = torch.compiler.is_compiling() or torch.jit.is_tracing()
        if is_recording or len(clip_index) == 0:  # a graph cannot check values
            return
        least, most = int(clip_index.min()), int(clip_index.max())
        if least < 0 or most >= self.num_clips:
            raise RangeError(
                f"{name} must name one of {self.num_clips} clips, from 0; got values from {least} to {most}."
            )


def _index_problems(name: str, features: Tensor, clip_index: Tensor) -> list[str]:
    if clip_index.shape == features.shape[:1] and clip_index.dtype == torch.int64:
        return []
    return [
        f"{name}_clip_index must be one int64 per {name}; got {tuple(clip_index.shape)} of {clip_index.dtype} for "
        f"{len(features)} {name}s."
    ]


@dataclass(frozen=True)
class ActorAttention:
    """How much each actor looks at the actors and the objects of its clip; zero for those of other clips.

    The remainder to one went to the null object, which stands in where a clip has no objects.
    """

    to_actors: Float[Tensor, "actors actors"]
    to_objects: Float[Tensor, "actors objects"]


@dataclass(frozen=True)
class MixedFeatures:
    """W_A·A, W_X·X and W_O·O. Every clip has at least one object, if need be the null object."""

    actors: Float[Tensor, "actors width"]
    actor_clip_index: Int[Tensor, " actors"]
    objects: Float[Tensor, "objects width"]
    """Null objects come after the objects of the scene."""
    object_clip_index: Int[Tensor, " objects"]
    context: tuple[SizedContext, ...]


class FeatureMixing(nn.Module):
    """W = [W_A | W_X | W_O]: the 1×1 convolution of the concatenation, kept as one weight and used in three parts.

    Where a clip has no objects, a learned null object takes their place; it starts at zero.
    """

    def __init__(self, channels: int, width: int) -> None:
        super().__init__()
        self.channels = channels
        self.convolution = nn.Conv2d(3 * channels, width, 1, bias=False)
        self.null_object = nn.Parameter(torch.zeros(channels))

    def forward(self, scene: SceneFeatures) -> MixedFeatures:
        """Return the three products, none of them larger than one map per clip."""
        if scene.channels != self.channels:
            raise ShapeError(
                f"features must have the {self.channels} channels these relations were made for; got {scene.channels}."
            )
        of_actors, of_context, of_objects = self.convolution.weight.flatten(1).split(self.channels, dim=1)
        num_objects = torch.bincount(scene.object_clip_index, minlength=scene.num_clips)
        without_objects = (num_objects == 0).nonzero().squeeze(1)
        objects = torch.cat([scene.objects, self.null_object.expand(len(without_objects), -1)])
        context = (
            SizedContext(
                clips=scene.actor_clip_index.new_tensor(clips),
                maps=F.linear(torch.stack([scene.context[clip].movedim(0, 2) for clip in clips]), of_context),
            )
            for clips in scene.clips_by_size()
        )
        return MixedFeatures(
            actors=F.linear(scene.actors, of_actors),
            actor_clip_index=scene.actor_clip_index,
            objects=F.linear(objects, of_objects),
            object_clip_index=torch.cat([scene.object_clip_index, without_objects]),
            context=tuple(context),
        )


class ActorFeature(nn.Module):
    """An actor's relations beside its own appearance: [H | LeakyReLU(W·A)]."""

    def __init__(self, channels: int, settings: RelationSettings) -> None:
        super().__init__()
        self.slope = settings.slope
        self.linear = nn.Linear(channels, settings.width, bias=False)
        self.dropout = nn.Dropout(settings.dropout)

    def forward(
        self, related: Float[Tensor, "actors width"], actors: Float[Tensor, "actors channels"]
    ) -> Float[Tensor, "actors dim"]:
        """Return one relational feature per actor, twice as long as maps are wide."""
        return self.dropout(torch.cat([related, F.leaky_relu(self.linear(actors), self.slope)], dim=1))


class GridRelations(nn.Module):
    """Actor relational features from the full grid of pairs, F_ij = [A_i | X | O_j].

    All N·M pair maps of a clip attend to each other at every cell. The paper does not say how they become one
    feature per actor; here it is the largest value over its objects, channel by channel, after the mean over cells.
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
        """Return one relational feature per actor, in the scene's order."""
        mixed = self.mixing(scene)
        vectors, clip_index, (pair_actor, _) = _pairs(mixed)
        of_pair, _ = self.maps(vectors, clip_index, mixed.context, num_asking=len(vectors))
        return self.actor(self._largest(of_pair, pair_actor, len(scene.actors)), scene.actors)

    def explained(self, scene: SceneFeatures) -> tuple[Float[Tensor, "actors dim"], ActorAttention]:
        """Return the same features, and where each actor looked.

        Attention is averaged over the actor's own pairs, over cells and over blocks: `to_actors` is the weight on all
        pairs of an actor, `to_objects` the weight on all pairs with an object. Both divide the same weight, so each
        adds up to one, less the share of the null object.
        """
        mixed = self.mixing(scene)
        vectors, clip_index, (pair_actor, pair_object) = _pairs(mixed)
        of_pair, attention = self.maps(vectors, clip_index, mixed.context, num_asking=len(vectors))
        features = self.actor(self._largest(of_pair, pair_actor, len(scene.actors)), scene.actors)
        between_pairs = mean_attention(attention, num_asking=len(vectors), num_maps=len(vectors))
        is_of_actor = pair_actor[:, None] == torch.arange(len(scene.actors), device=pair_actor.device)
        is_with_object = pair_object[:, None] == torch.arange(len(scene.objects), device=pair_object.device)
        from_actor = (is_of_actor / is_of_actor.sum(dim=0)).T.to(between_pairs) @ between_pairs
        return features, ActorAttention(
            to_actors=from_actor @ is_of_actor.to(from_actor),
            to_objects=from_actor @ is_with_object.to(from_actor),
        )

    def _largest(
        self, of_pair: Float[Tensor, "pairs width"], pair_actor: Int[Tensor, " pairs"], num_actors: int
    ) -> Float[Tensor, "actors width"]:
        """The largest value over the pairs of each actor, channel by channel."""
        return of_pair.new_zeros(num_actors, self.settings.width).scatter_reduce(
            0, pair_actor[:, None].expand_as(of_pair), of_pair, "amax", include_self=False
        )


def _pairs(
    mixed: MixedFeatures,
) -> tuple[Float[Tensor, "pairs width"], Int[Tensor, " pairs"], Int[Tensor, "2 pairs"]]:
    """W_A·A_i + W_O·O_j and the clip of every pair, and the pairs (actor, object)."""
    pairs = (mixed.actor_clip_index[:, None] == mixed.object_clip_index).nonzero().T
    vectors = mixed.actors[pairs[0]] + mixed.objects[pairs[1]]
    return vectors, mixed.actor_clip_index[pairs[0]], pairs


class ObjectChoice(nn.Module):
    """Each actor's choice among the objects of its clip: Ō_i = Σ_j w_ij O_j, w_ij = softmax over j of q_i·k_j / √width."""

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
        """Return each actor's choice. Every clip with an actor must have an object."""
        likeness = self.query(actors) @ self.key(objects).T / actors.shape[1] ** 0.5
        is_same_clip = actor_clip_index[:, None] == object_clip_index
        lowest = torch.finfo(likeness.dtype).min
        return torch.where(is_same_clip, likeness, lowest).softmax(dim=1) @ objects


class FactoredRelations(nn.Module):
    """Actor relational features from N actor maps [A_i | X | Ō_i] and M object maps [X | O_j].

    Ō_i is the object an actor chooses: with one object in a clip, [A_i | X | Ō_i] is the grid's pair. At every cell,
    actors and objects attend to the actors and objects of their clip; in the last block only actors do, because
    nothing reads the objects' result. Time and memory grow with N + M.
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
        """Return one relational feature per actor, in the scene's order."""
        vectors, clip_index, context = self._vectors(scene)
        related, _ = self.maps(vectors, clip_index, context, num_asking=len(scene.actors))
        return self.actor(related, scene.actors)

    def explained(self, scene: SceneFeatures) -> tuple[Float[Tensor, "actors dim"], ActorAttention]:
        """Return the same features, and where each actor looked.

        Attention is averaged over cells and blocks: the weight of an actor's map on that of each actor, itself included,
        and of each object. All together add up to one, less the share of the null object.
        """
        vectors, clip_index, context = self._vectors(scene)
        num_actors, num_objects = len(scene.actors), len(scene.objects)
        related, attention = self.maps(vectors, clip_index, context, num_asking=num_actors)
        weight = mean_attention(attention, num_asking=num_actors, num_maps=len(vectors))
        return self.actor(related, scene.actors), ActorAttention(
            to_actors=weight[:, :num_actors], to_objects=weight[:, num_actors : num_actors + num_objects]
        )

    def _vectors(
        self, scene: SceneFeatures
    ) -> tuple[Float[Tensor, "maps width"], Int[Tensor, " maps"], tuple[SizedContext, ...]]:
        """The vectors of actors, then of objects, with their clips, and the context of all clips."""
        mixed = self.mixing(scene)
        chosen = self.choice(mixed.actors, mixed.actor_clip_index, mixed.objects, mixed.object_clip_index)
        return (
            torch.cat([mixed.actors + chosen, mixed.objects]),
            torch.cat([mixed.actor_clip_index, mixed.object_clip_index]),
            mixed.context,
        )
