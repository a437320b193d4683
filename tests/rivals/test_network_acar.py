from dataclasses import replace

import pytest
import torch
import torch.nn.functional as F
from scenes import scene_of

from mule.relations.maps import RelationSettings
from mule.rivals.networks.acar import AcarRelations
from mule.systems.catalogue import SYSTEMS
from mule.systems.design import SIZES, HeadOptions

SMALL = RelationSettings(width=8, depth=2, padding=1, is_downsampled=True, block_dropout=0.0)


def literal_acar(acar, actors, context):
    """One clip, the concatenation of actor and context really made, no bias anywhere, ReLU everywhere."""
    tiled = actors[:, :, None, None].expand(-1, -1, *context.shape[1:])
    maps = torch.cat([tiled, context.expand_as(tiled)], dim=1)
    maps = F.relu(F.conv2d(maps, acar.mixing.weight))
    maps = F.relu(F.conv2d(maps, acar.maps.convolution.weight, padding=1))
    maps = F.max_pool2d(maps, 3, stride=2, padding=1)
    for block in acar.maps.blocks:
        query, key, value = (block.query(maps), block.key(maps), block.value(maps))
        weight = (torch.einsum("idyx,jdyx->ijyx", query, key) / 8**0.5).softmax(dim=1)
        maps = maps + block.out(F.relu(block.norm(torch.einsum("ijyx,jdyx->idyx", weight, value))))
    return torch.cat([maps.mean(dim=(2, 3)), F.relu(actors @ acar.actor.linear.weight.T)], dim=1)


R101 = replace(SMALL, depth=1, last_kernel_size=1)


@pytest.mark.parametrize("settings", [SMALL, R101])
def test_equals_the_construction_with_the_concatenation_made(settings):
    torch.manual_seed(0)
    acar = AcarRelations(10, settings).eval()
    scene = scene_of([0, 0, 0, 2], [1], num_clips=3)
    expected = torch.cat(
        [
            literal_acar(acar, scene.actors[:3], scene.context[0]),
            literal_acar(acar, scene.actors[3:], scene.context[2]),
        ]
    )
    torch.testing.assert_close(acar(scene), expected, rtol=1e-5, atol=1e-5)


def test_objects_do_not_matter_to_acar():
    torch.manual_seed(0)
    acar = AcarRelations(10, SMALL).eval()
    with_objects, without = scene_of([0, 0], [0, 0], num_clips=1), scene_of([0, 0], [], num_clips=1)
    torch.testing.assert_close(acar(with_objects), acar(without))


def test_no_layer_but_the_norms_has_a_bias():
    acar = AcarRelations(10, SMALL)
    assert all(".norm." in name for name, _ in acar.named_parameters() if name.endswith("bias"))


@pytest.mark.parametrize(("sizes", "depth", "last_side"), [("published", 2, 3), ("acar-r101", 1, 1)])
def test_the_head_is_as_large_as_the_released_one(sizes, depth, last_side):
    """Of ACAR's release for R-50 and R-101: reduction, pair layers, blocks of four convolutions, actor layer, 60 actions."""
    with torch.device("meta"):
        head = SYSTEMS["acar"].build(replace(SIZES[sizes](2304, 60), head=HeadOptions(bias=False)))
    pairs = 2048 * 512 + 512 * 512 * 9
    block = 3 * 512 * 512 * 9 + 512 * 512 * last_side**2 + 2 * 512
    expected = 2304 * 1024 + pairs + depth * block + 1024 * 512 + 1024 * 60
    assert sum(weight.numel() for weight in head.parameters()) == expected
