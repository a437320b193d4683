"""Relations learn what neither an actor, nor an object, nor the context decides alone."""

import pytest
import torch
import torch.nn.functional as F
from relation_scenes import KINDS

from mule.relations.aco import SceneFeatures
from mule.relations.maps import RelationSettings

CHANNELS = 8
SMALL = RelationSettings(width=16, kernel_size=1, is_downsampled=False, block_dropout=0.0)


def matching_scene(generator, num_clips):
    """Actors and objects of two sorts; an actor's label says whether its clip has an object of its own sort."""

    def drawn(*shape):
        return torch.randn(*shape, generator=generator)

    def owners(least):
        counts = torch.randint(least, 4, (num_clips,), generator=generator)
        return torch.arange(num_clips).repeat_interleave(counts)

    actor_clip_index, object_clip_index = owners(1), owners(0)
    actor_sort = torch.randint(2, (len(actor_clip_index),), generator=generator)
    object_sort = torch.randint(2, (len(object_clip_index),), generator=generator)
    actors, objects = 0.3 * drawn(len(actor_sort), CHANNELS), 0.3 * drawn(len(object_sort), CHANNELS)
    actors[:, 0] += 2.0 * actor_sort - 1
    objects[:, 1] += 2.0 * object_sort - 1
    is_match = (actor_clip_index[:, None] == object_clip_index) & (actor_sort[:, None] == object_sort)
    scene = SceneFeatures(
        context=tuple(0.3 * drawn(num_clips, CHANNELS, 2, 2)),
        actors=actors,
        actor_clip_index=actor_clip_index,
        objects=objects,
        object_clip_index=object_clip_index,
    )
    return scene, is_match.any(dim=1).float()


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_whether_an_object_suits_the_actor_is_learned_and_holds_for_new_clips(kind):
    generator = torch.Generator().manual_seed(0)
    with torch.random.fork_rng():
        torch.manual_seed(0)  # layers draw their first weights from the global generator
        relations = kind(CHANNELS, SMALL)
        head = torch.nn.Linear(relations.dim, 1)
    optimizer = torch.optim.Adam([*relations.parameters(), *head.parameters()], lr=0.01)
    scene, labels = matching_scene(generator, num_clips=128)
    for _ in range(60):
        loss = F.binary_cross_entropy_with_logits(head(relations(scene)).squeeze(1), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    scene, labels = matching_scene(generator, num_clips=300)
    with torch.no_grad():
        is_right = (head(relations(scene)).squeeze(1) > 0) == labels.bool()
    assert 0.4 < labels.mean() < 0.6
    assert is_right.float().mean() > 0.9
