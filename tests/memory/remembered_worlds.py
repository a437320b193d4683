"""Small worlds of remembered actors: clusters on a sphere, in clips, with labels."""

import torch

from mule.memory.building import SeenActors, build_memory, calibrate
from mule.memory.memory import EvidenceMemory, Places
from mule.memory.taught import HeldOut, Remembered

MODEL = "ab" * 32
OTHER_MODEL = "cd" * 32
NAMES = ("run", "sit", "talk", "wave")


def places(count, *, video="v", per_group=3, first=0):
    """Actors of videos in turn, each group of a few in one video."""
    groups = [f"{video}{first + i // per_group}" for i in range(count)]
    box = torch.tensor([[0.125, 0.25, 0.5, 0.75]]).repeat(count, 1)
    return Places.of(groups, torch.arange(first, first + count).double(), box)


def clustered(count, *, seed, dim=12, classes=4, spread=0.35, first_class=0):
    """Features near the axes of the one or two actions each actor does, after a ReLU, and the labels."""
    draw = torch.Generator().manual_seed(seed)
    labels = torch.zeros(count, classes)
    rows = torch.arange(count)
    labels[rows, torch.randint(classes, (count,), generator=draw)] = 1
    second = torch.rand(count, generator=draw) < 0.3
    labels[rows[second], torch.randint(classes, (int(second.sum()),), generator=draw)] = 1
    axes = torch.eye(dim)[first_class : first_class + classes]
    features = 3 * labels @ axes + spread * torch.randn(count, dim, generator=draw) + 0.2
    return features.relu(), labels


def seen(count, *, seed, video="v", **kwargs):
    features, labels = clustered(count, seed=seed, **kwargs)
    return SeenActors(features, labels, places(count, video=video))


def small_memory(count=60, *, seed=0, num_neighbours=5, **kwargs) -> EvidenceMemory:
    return build_memory(
        seen(count, seed=seed, **kwargs), class_names=NAMES, model=MODEL, num_neighbours=num_neighbours
    )


def held_out(count=40, *, seed=1, **kwargs) -> HeldOut:
    features, labels = clustered(count, seed=seed, **kwargs)
    return HeldOut(features, 4 * features[:, :4] - 6, labels, NAMES, MODEL)


def calibrated_memory(count=60, **kwargs) -> EvidenceMemory:
    return calibrate(small_memory(count, **kwargs), held_out())


def remembered(count=60, **kwargs) -> Remembered:
    return Remembered(calibrated_memory(count, **kwargs), held_out())
