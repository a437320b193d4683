import pytest
import torch
import torch.nn.functional as F
from scenes import generator, scene_of

from mule.rivals.networks.aia import AiaRelations, AiaSettings, InteractionBlock

STRUCTURES = ("serial", "dense_serial", "parallel")


def stirred(module, seed=0):
    """The module with every parameter drawn anew: fresh blocks answer zero, which would hide mistakes."""
    g = generator(seed)
    for parameter in module.parameters():
        parameter.data.copy_(torch.randn(parameter.shape, generator=g) * 0.3)
    return module.eval()


def test_a_block_is_attention_over_the_actors_own_clip():
    block = stirred(InteractionBlock(8, dropout=0.0))
    g = generator()
    asking, asked = torch.randn(3, 8, generator=g), torch.randn(5, 8, generator=g)
    is_near = torch.tensor([[True, True, False, False, False]] * 2 + [[False, False, True, True, True]])
    told = F.scaled_dot_product_attention(
        block.query(asking)[None], block.key(asked)[None], block.value(asked)[None], attn_mask=is_near
    )[0]
    expected = asking + block.out(F.relu(F.layer_norm(told, (8,))))
    torch.testing.assert_close(block(asking, asked, is_near), expected)


@pytest.mark.parametrize("structure", STRUCTURES)
def test_a_fresh_network_does_not_interact_yet(structure):
    torch.manual_seed(0)
    aia = AiaRelations(10, AiaSettings(width=8, structure=structure)).eval()
    crowded, alone = scene_of([0, 0, 0], [0, 0], num_clips=1), scene_of([0, 0, 0], [], num_clips=1)
    torch.testing.assert_close(aia(crowded), aia(alone))


@pytest.mark.parametrize("structure", STRUCTURES)
def test_a_clip_does_not_depend_on_the_rest_of_the_batch(structure):
    aia = stirred(AiaRelations(10, AiaSettings(width=8, structure=structure)))
    both = scene_of([0, 0, 1], [0, 1], num_clips=2)
    first = type(both)(
        both.context[:1],
        both.actors[:2],
        both.actor_clip_index[:2],
        both.objects[:1],
        both.object_clip_index[:1],
    )
    torch.testing.assert_close(aia(both)[:2], aia(first))


def test_serial_blocks_ask_with_the_answer_of_the_one_before():
    aia = stirred(AiaRelations(10, AiaSettings(width=8, structure="serial")))
    scene = scene_of([0, 0], [0], num_clips=1)
    near = torch.ones(2, 2, dtype=torch.bool)
    x = aia.reduce_query(scene.actors)
    for kind, block in zip(("person", "object", "person", "object"), aia.blocks, strict=True):
        asked = scene.actors if kind == "person" else scene.objects
        x = block(x, aia.reduce[kind](asked), near[:, : len(asked)])
    expected = F.relu(aia.fc2(F.relu(aia.fc1(aia.person(scene.actors) + x))))
    torch.testing.assert_close(aia(scene), expected)


def test_dense_serial_starts_out_as_serial():
    dense = stirred(AiaRelations(10, AiaSettings(width=8, structure="dense_serial")))
    fresh = AiaRelations(10, AiaSettings(width=8, structure="dense_serial"))
    for ours, start in zip(dense.mixture, fresh.mixture, strict=True):
        ours.data.copy_(start)
    serial = AiaRelations(10, AiaSettings(width=8, structure="serial")).eval()
    serial.load_state_dict({k: v for k, v in dense.state_dict().items() if not k.startswith("mixture")})
    scene = scene_of([0, 0, 1], [0, 1], num_clips=2)
    torch.testing.assert_close(dense(scene), serial(scene), rtol=1e-2, atol=1e-3)


@pytest.mark.parametrize("structure", STRUCTURES)
def test_nobody_gives_no_rows(structure):
    aia = AiaRelations(10, AiaSettings(width=8, structure=structure)).eval()
    assert aia(scene_of([], [], num_clips=1)).shape == (0, 8)
