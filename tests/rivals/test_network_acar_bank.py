"""ACAR with its bank, beside its construction with the concatenation made."""

from dataclasses import replace

import torch
import torch.nn.functional as F
from scenes import COLS, ROWS, generator, scene_of

from mule.relations.maps import RelationSettings
from mule.relations.remembered import RememberedClip
from mule.rivals.networks.acar import AcarRelations
from mule.rivals.networks.acar_bank import AcarBankRelations

SMALL = RelationSettings(width=8, depth=2, padding=1, is_downsampled=True, block_dropout=0.0)
SIZE = (ROWS // 2, COLS // 2)


def network():
    torch.manual_seed(0)
    return AcarBankRelations(10, SMALL).eval()


def neighbour(near_clip, num_actors, size=SIZE, seed=6):
    return RememberedClip(near_clip, 3, torch.randn(num_actors, 8, *size, generator=generator(seed)).relu())


def literal(acar, actors, context, bank):
    """One clip: queries of its own actors, keys and values of these and of the bank, at every cell."""
    tiled = actors[:, :, None, None].expand(-1, -1, *context.shape[1:])
    maps = F.relu(F.conv2d(torch.cat([tiled, context.expand_as(tiled)], dim=1), acar.mixing.weight))
    maps = F.relu(F.conv2d(maps, acar.maps.convolution.weight, padding=1))
    first = maps = F.max_pool2d(maps, 3, stride=2, padding=1)
    for block in acar.maps.blocks:
        asked = torch.cat([maps, bank])
        query, key, value = block.query(maps), block.key(asked), block.value(asked)
        weight = (torch.einsum("idyx,jdyx->ijyx", query, key) / 8**0.5).softmax(dim=1)
        maps = maps + block.out(F.relu(block.norm(torch.einsum("ijyx,jdyx->idyx", weight, value))))
    own = F.relu(actors @ acar.actor.linear.weight.T)
    return torch.cat([maps.mean(dim=(2, 3)), own], dim=1), first


def test_equals_the_construction_with_the_concatenation_made():
    acar = network()
    near = (neighbour(0, 2), neighbour(0, 1, seed=7), neighbour(2, 4, seed=8), neighbour(1, 3, seed=9))
    scene = replace(scene_of([0, 0, 0, 2], [1], num_clips=3), remembered=near)
    nobody = torch.zeros(0, 8, *SIZE)
    first, of_first = literal(
        acar, scene.actors[:3], scene.context[0], torch.cat([near[0].actors, near[1].actors])
    )
    last, of_last = literal(acar, scene.actors[3:], scene.context[2], near[2].actors)
    found, seen = acar.remembering(scene)
    torch.testing.assert_close(found, torch.cat([first, last]), rtol=1e-5, atol=1e-5)
    for clip, expected in zip(seen, (of_first, nobody, of_last), strict=True):
        torch.testing.assert_close(clip, expected, rtol=1e-5, atol=1e-5)
        assert not clip.requires_grad


def test_without_neighbours_it_is_acar():
    bank = network()
    acar = AcarRelations(10, SMALL).eval()
    acar.load_state_dict(bank.state_dict())
    scene = scene_of([0, 0, 2, 1, 1, 1], [0], num_clips=4)
    torch.testing.assert_close(bank(scene), acar(scene))


def test_neighbours_matter_to_their_clip_alone():
    acar = network()
    scene = scene_of([0, 0, 1], [], num_clips=2)
    beside, alone = acar(replace(scene, remembered=(neighbour(0, 2),))), acar(scene)
    assert not torch.allclose(beside[:2], alone[:2])
    torch.testing.assert_close(beside[2:], alone[2:])


def test_maps_of_another_size_are_resampled():
    acar, scene = network(), scene_of([0, 0], [], num_clips=1)
    flat = neighbour(0, 2).actors.mean(dim=(2, 3), keepdim=True)  # the same at every cell, at any size
    small = RememberedClip(0, 3, flat.expand(-1, -1, 2, 2))
    large = RememberedClip(0, 3, flat.expand(-1, -1, *SIZE))
    torch.testing.assert_close(
        acar(replace(scene, remembered=(small,))), acar(replace(scene, remembered=(large,)))
    )
