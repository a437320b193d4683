"""AIA with memory, beside its construction actor by actor."""

from dataclasses import replace

import pytest
import torch
import torch.nn.functional as F
from scenes import generator, scene_of

from mule.core.errors import RangeError, ShapeError
from mule.relations.remembered import RememberedClip
from mule.rivals.networks.aia import AiaSettings
from mule.rivals.networks.aia_memory import AiaMemoryRelations

STRUCTURES = ("serial", "dense_serial", "parallel")
CHANNELS, WIDTH = 10, 8


def stirred(structure):
    """A network with every parameter drawn at random: new blocks end in zeros, which would hide mistakes."""
    aia = AiaMemoryRelations(CHANNELS, AiaSettings(width=WIDTH, structure=structure))
    g = generator(4)
    for parameter in aia.parameters():
        parameter.data.copy_(torch.randn(parameter.shape, generator=g) * 0.3)
    return aia.eval()


def with_neighbours(scene):
    g = generator(5)
    return replace(
        scene,
        remembered=(
            RememberedClip(0, -30, torch.randn(2, CHANNELS, generator=g)),
            RememberedClip(0, 7, torch.randn(1, CHANNELS, generator=g)),
        ),
    )


def literal_block(block, query, others, seconds=None):
    """One actor, all it may attend to, as released."""
    key, value = block.key(others), block.value(others)
    if block.seconds is not None:
        key, value = key + block.seconds[0, seconds], value + block.seconds[1, seconds]
    if len(others) == 0:
        return block.shortcut(query)
    told = F.scaled_dot_product_attention(block.query(query)[None, None], key[None], value[None])[0, 0]
    return block.shortcut(query) + block.out(F.relu(F.layer_norm(told, (WIDTH,))))


def literal_aia(aia, scene):
    """One clip. Its own first five actors are remembered at second 0."""
    actors = scene.actors
    remembered = [(0, actors[:5])] + [(each.offset_s, each.actors) for each in scene.remembered]
    memory = aia.reduce["memory"](torch.cat([rows for _, rows in remembered]))
    seconds = [offset + 30 for offset, rows in remembered for _ in rows]
    objects = aia.reduce["object"](scene.objects)
    first, persons = aia.reduce["query"](actors), aia.reduce["person"](actors)

    def step(at, query, persons):
        block = aia.blocks[at]
        asked = {0: (persons,), 1: (objects,), 2: (memory, seconds)}[at % 3]
        return torch.stack([literal_block(block, row, *asked) for row in query])

    if aia.structure == "parallel":
        halves = [step(at, first, persons) for at in range(3)]
        out = sum(step(at + 3, half, halves[0]) for at, half in enumerate(halves))
    else:
        told, query = [], first
        for at in range(6):
            if aia.structure == "dense_serial" and at >= 2:
                weight = aia.mixture[at - 2].softmax(dim=0)
                query = sum(w * each for w, each in zip(weight, told, strict=True))
            query = step(at, query, persons if at == 0 else query)
            told.append(query)
        out = query
    return F.relu(aia.fc2(F.relu(aia.fc1(actors + out))))


@pytest.mark.parametrize("structure", STRUCTURES)
@pytest.mark.parametrize("num_actors", [2, 7])
def test_equals_the_construction_actor_by_actor(structure, num_actors):
    aia = stirred(structure)
    scene = with_neighbours(scene_of([0] * num_actors, [0, 0], num_clips=1))
    torch.testing.assert_close(aia(scene), literal_aia(aia, scene), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("structure", STRUCTURES)
def test_without_neighbours_a_clip_remembers_only_itself(structure):
    aia = stirred(structure)
    scene = scene_of([0, 0], [], num_clips=1)
    torch.testing.assert_close(aia(scene), literal_aia(aia, scene), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("structure", STRUCTURES)
def test_neighbours_matter_to_their_clip_alone(structure):
    aia = stirred(structure)
    scene = scene_of([0, 1, 1], [0], num_clips=2)
    beside, alone = aia(with_neighbours(scene)), aia(scene)
    assert not torch.allclose(beside[0], alone[0])
    torch.testing.assert_close(beside[1:], alone[1:])


def test_what_is_remembered_are_the_pooled_actors_of_each_clip_without_gradients():
    aia = stirred("serial")
    scene = scene_of([2, 0, 2], [], num_clips=3)
    scene.actors.requires_grad_()
    features, seen = aia.remembering(scene)
    torch.testing.assert_close(features, aia(scene))
    assert [len(each) for each in seen] == [1, 0, 2]
    assert torch.equal(seen[2], scene.actors[[0, 2]])
    assert not any(each.requires_grad for each in seen)


def test_blocks_have_the_published_number_of_parameters():
    with torch.device("meta"):
        aia = AiaMemoryRelations(2304)
    inner, channels, square = 1024, 2304, 1024 * 1024 + 1024
    counts = [sum(p.numel() for p in block.parameters()) for block in aia.blocks]
    plain, memory = 4 * square, 4 * square + 2 * 61 * inner
    last = 3 * square + 2 * 61 * inner + 2 * (inner * channels + channels)
    assert counts == [plain, plain, memory, plain, plain, last]
    assert sum(p.numel() for p in aia.reduce.parameters()) == 4 * (channels * inner + inner)
    assert sum(p.numel() for p in aia.mixture) == (2 + 3 + 4 + 5) * inner


def test_a_fresh_network_is_told_nothing_yet():
    torch.manual_seed(0)
    aia = AiaMemoryRelations(CHANNELS, AiaSettings(width=WIDTH)).eval()
    scene = scene_of([0, 0], [0], num_clips=1)
    torch.testing.assert_close(aia(with_neighbours(scene)), aia(scene))


def test_bad_memories_are_refused():
    scene, aia = scene_of([0], [], num_clips=1), stirred("serial")
    with pytest.raises(ShapeError, match="within 30 s"):
        aia(replace(scene, remembered=(RememberedClip(0, 31, torch.zeros(1, CHANNELS)),)))
    with pytest.raises(RangeError, match="near one of 1 clips"):
        replace(scene, remembered=(RememberedClip(1, 3, torch.zeros(1, CHANNELS)),))


@pytest.mark.parametrize("structure", STRUCTURES)
def test_nobody_gives_no_rows(structure):
    assert stirred(structure)(scene_of([], [], num_clips=1)).shape == (0, WIDTH)
