"""Section 3.1: actor relational features from the full grid of pairs, against the construction as printed."""

from dataclasses import replace

import pytest
import torch
from literal_relations import literal_clip_features, literal_features, seeded

from mule.relations.aco import GridRelations, SceneFeatures
from mule.relations.maps import RelationSettings

pytestmark = pytest.mark.paper("Section 3.1")


def one_clip(num_actors, num_objects, *, channels, size, dtype=torch.float32, seed=0):
    generator = torch.Generator().manual_seed(seed)

    def drawn(*shape):
        return torch.randn(*shape, generator=generator, dtype=dtype).requires_grad_()

    return SceneFeatures(
        context=(drawn(channels, *size),),
        actors=drawn(num_actors, channels),
        actor_clip_index=torch.zeros(num_actors, dtype=torch.int64),
        objects=drawn(num_objects, channels),
        object_clip_index=torch.zeros(num_objects, dtype=torch.int64),
    )


@pytest.mark.parametrize(
    "settings",
    [
        RelationSettings(width=32),
        RelationSettings(width=32, depth=1, kernel_size=1, is_downsampled=False),
        RelationSettings(width=32, depth=3, padding=1, is_downsampled=False),
        RelationSettings(width=32, kernel_size=5, padding=1, slope=0.0, block_slope=0.0),
    ],
    ids=["published but narrow", "no neighbours", "deep, of full size", "wide kernel, ReLU"],
)
@pytest.mark.parametrize(("num_actors", "num_objects"), [(0, 3), (1, 0), (1, 1), (3, 4)])
def test_equals_the_literal_concatenation(settings, num_actors, num_objects):
    grid = seeded(GridRelations(96, settings).eval())
    scene = one_clip(num_actors, num_objects, channels=96, size=(12, 16))
    torch.testing.assert_close(grid(scene), literal_features(grid, scene), atol=1e-5, rtol=0)


def test_equals_the_literal_concatenation_at_the_published_sizes():
    grid = seeded(GridRelations(1024).eval())
    scene = one_clip(2, 3, channels=1024, size=(16, 22))
    with torch.no_grad():
        torch.testing.assert_close(grid(scene), literal_features(grid, scene), atol=1e-5, rtol=0)


def test_gradients_equal_those_of_the_literal_concatenation():
    grid = seeded(GridRelations(6, RelationSettings(width=8, block_dropout=0.0)).double())
    scene = one_clip(3, 2, channels=6, size=(7, 8), dtype=torch.float64)
    inputs = [scene.context[0], scene.actors, scene.objects, *grid.parameters()]
    of_result = torch.arange(3.0 * grid.dim, dtype=torch.float64).sin().reshape(3, grid.dim)
    ours, theirs = (
        torch.autograd.grad(found, inputs, of_result, materialize_grads=True)
        for found in (grid(scene), literal_features(grid, scene))
    )
    for mine, literal in zip(ours, theirs, strict=True):
        torch.testing.assert_close(mine, literal)


def test_layers_are_those_of_the_released_code():
    # the released head has 25.78 M parameters for 40 classes; 2304 → 1024 and the two linear heads are not relations
    grid = GridRelations(1024)
    num_parameters = sum(weight.numel() for weight in grid.parameters())
    null_object, reduction, heads = 1024, 2304 * 1024, 2 * 1024 * 40
    assert num_parameters - null_object + reduction + heads == pytest.approx(25.78e6, abs=0.005e6)
    assert grid.dim == 1024


def test_without_attention_a_feature_is_the_largest_over_the_actors_own_pairs():
    grid = seeded(GridRelations(6, RelationSettings(width=8)).double().eval())
    for name, weight in grid.maps.blocks.named_parameters():
        if name.endswith("out.weight"):
            torch.nn.init.zeros_(weight)
    scene = one_clip(2, 3, channels=6, size=(7, 8), dtype=torch.float64)
    found = grid(scene)
    for actor in range(2):
        alone = [
            literal_clip_features(
                grid, scene.actors[actor : actor + 1], scene.context[0], scene.objects[j : j + 1]
            )
            for j in range(3)
        ]
        torch.testing.assert_close(found[actor : actor + 1], torch.stack(alone).amax(dim=0))


def test_every_pair_is_related_whatever_the_common_divisor_of_actors_and_objects():
    # pairing rows by lcm(N, M), as the released code does, leaves pairs out when N and M share a divisor
    grid = seeded(GridRelations(6, RelationSettings(width=8)).double().eval())
    scene = one_clip(2, 4, channels=6, size=(7, 8), dtype=torch.float64)
    _, attention = grid.explained(scene)
    assert (attention.to_objects > 0).all()
    for changed in range(4):
        objects = scene.objects.detach().clone()
        objects[changed] += 1
        difference = (grid(scene) - grid(replace(scene, objects=objects))).abs().amax(dim=1)
        assert (difference > 1e-9).all()
