"""Small scenes to relate: clips of several sizes, with and without actors and objects, in no order."""

import torch
from literal_relations import seeded

from mule.relations.aco import FactoredRelations, GridRelations, SceneFeatures
from mule.relations.maps import RelationSettings

CHANNELS = 5
TINY = RelationSettings(width=4, depth=2)
KINDS = [GridRelations, FactoredRelations]
# (rows, cols, actors, objects): of one size, of others, without actors, without objects, with neither
CLIPS = [(7, 9, 3, 2), (5, 6, 2, 3), (7, 9, 1, 0), (7, 9, 0, 2), (5, 6, 2, 0), (6, 6, 0, 0), (7, 9, 2, 4)]


def scene(clips=CLIPS, *, channels=CHANNELS, seed=0, dtype=torch.float64):
    """Features drawn at random; actors and objects of all clips shuffled."""
    generator = torch.Generator().manual_seed(seed)

    def drawn(*shape):
        return torch.randn(*shape, generator=generator, dtype=dtype)

    def owners(counts):
        index = torch.repeat_interleave(torch.arange(len(counts)), torch.tensor(counts, dtype=torch.int64))
        return index[torch.randperm(len(index), generator=generator)]

    actor_clip_index = owners([num_actors for _, _, num_actors, _ in clips])
    object_clip_index = owners([num_objects for _, _, _, num_objects in clips])
    return SceneFeatures(
        context=tuple(drawn(channels, rows, cols) for rows, cols, _, _ in clips),
        actors=drawn(len(actor_clip_index), channels),
        actor_clip_index=actor_clip_index,
        objects=drawn(len(object_clip_index), channels),
        object_clip_index=object_clip_index,
    )


def only(whole, clip):
    """One clip of a scene, alone."""
    is_actor, is_object = whole.actor_clip_index == clip, whole.object_clip_index == clip
    return SceneFeatures(
        context=(whole.context[clip],),
        actors=whole.actors[is_actor],
        actor_clip_index=torch.zeros_like(whole.actor_clip_index[is_actor]),
        objects=whole.objects[is_object],
        object_clip_index=torch.zeros_like(whole.object_clip_index[is_object]),
    )


def relations(kind, settings=TINY, *, channels=CHANNELS, seed=0):
    """Relations in double precision, outside training."""
    return seeded(kind(channels, settings).double().eval(), seed)
