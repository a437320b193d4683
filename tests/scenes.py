"""Small scenes for tests of relations, models and rivals: maps, boxes and labels from a seed."""

import torch

from mule.features.pooling import FeatureMaps
from mule.model import SceneBoxes
from mule.relations.aco import SceneFeatures

ROWS, COLS, STRIDE = 6, 8, 8


def generator(seed=0):
    return torch.Generator().manual_seed(seed)


def maps_of(num_clips, channels=(6, 4), frames=(2, 4), size=(ROWS, COLS), seed=0):
    """Two pathways with as many channels and frames as given."""
    g = generator(seed)
    parts = zip(channels, frames, strict=True)
    return FeatureMaps(tuple(torch.randn(num_clips, c, t, *size, generator=g) for c, t in parts), STRIDE)


def some_boxes(clip_index, seed=1, size=(ROWS, COLS)):
    """One box per entry, inside a frame of `size` cells."""
    g = generator(seed)
    clip_index = torch.tensor(clip_index, dtype=torch.int64)
    limit = torch.tensor([size[1], size[0]]) * float(STRIDE)
    low = torch.rand(len(clip_index), 2, generator=g) * limit * 0.5
    high = low + 8 + torch.rand(len(clip_index), 2, generator=g) * limit * 0.3
    return torch.cat([low, high], dim=1), clip_index


def boxes_of(actor_clips, object_clips, seed=1, size=(ROWS, COLS)):
    """Actors and objects in the given clips."""
    return SceneBoxes(*some_boxes(actor_clips, seed, size), *some_boxes(object_clips, seed + 1, size))


def scene_of(actor_clips, object_clips, num_clips, channels=10, seed=2):
    """Features as relations see them."""
    g = generator(seed)
    return SceneFeatures(
        context=tuple(torch.randn(num_clips, channels, ROWS, COLS, generator=g)),
        actors=torch.randn(len(actor_clips), channels, generator=g),
        actor_clip_index=torch.tensor(actor_clips, dtype=torch.int64),
        objects=torch.randn(len(object_clips), channels, generator=g),
        object_clip_index=torch.tensor(object_clips, dtype=torch.int64),
    )


def some_labels(num_actors, num_classes, seed=3):
    """At least one action each."""
    labels = torch.rand(num_actors, num_classes, generator=generator(seed)) < 0.3
    labels[torch.arange(num_actors), torch.arange(num_actors) % num_classes] = True
    return labels.float()
