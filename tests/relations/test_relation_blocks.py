"""One relation block against loops over clips, cells and maps; the factored stack against the same."""

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given
from hypothesis import strategies as st
from literal_relations import seeded
from relation_scenes import CLIPS, relations, scene

from mule.core.errors import RangeError
from mule.relations.aco import FactoredRelations
from mule.relations.maps import RelationBlock, RelationSettings, Seats, clips_alike

clip_indices = st.lists(st.integers(0, 3), max_size=12).map(
    lambda clips: torch.tensor(clips, dtype=torch.int64)
)


def drawn(*shape):
    return torch.randn(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(1))


def looped_block(block, maps, clip_index):
    """Every map asks every map of its clip, cell by cell."""
    query, key, value = block.query(maps), block.key(maps), block.value(maps)
    seen = torch.zeros_like(maps)
    for i in range(len(maps)):
        mates = [j for j in range(len(maps)) if clip_index[j] == clip_index[i]]
        for y in range(maps.shape[2]):
            for x in range(maps.shape[3]):
                likeness = torch.stack([query[i, :, y, x] @ key[j, :, y, x] for j in mates])
                weights = (likeness / maps.shape[1] ** 0.5).softmax(dim=0)
                seen[i, :, y, x] = sum(w * value[j, :, y, x] for w, j in zip(weights, mates, strict=True))
    centred = seen - seen.mean(dim=(1, 2, 3), keepdim=True)
    normal = centred / (centred.square().mean(dim=(1, 2, 3), keepdim=True) + block.norm.eps).sqrt()
    normal = normal * block.norm.weight[:, None, None] + block.norm.bias[:, None, None]
    return maps + block.out(torch.where(normal > 0, normal, block.slope * normal))


def looped_choice(module, actor, objects):
    """The mean of a clip's objects, weighted by how well their keys answer the actor's query."""
    weight_a, _, weight_o = module.mixing.convolution.weight[:, :, 0, 0].split(len(actor), dim=1)
    query = module.choice.query.weight @ (weight_a @ actor)
    likeness = [
        query @ (module.choice.key.weight @ (weight_o @ each)) / len(query) ** 0.5 for each in objects
    ]
    exponentials = [each.exp() for each in likeness]
    return sum(w * each for w, each in zip(exponentials, objects, strict=True)) / sum(exponentials)


def looped_factored(module, whole):
    """A map per actor and per object, one after the other."""
    out = torch.zeros(len(whole.actors), module.dim, dtype=whole.actors.dtype)
    for clip, context in enumerate(whole.context):
        actor_rows = (whole.actor_clip_index == clip).nonzero().squeeze(1).tolist()
        objects = list(whole.objects[whole.object_clip_index == clip]) or [module.mixing.null_object]
        maps = []
        for actor, one_object in [
            *[(whole.actors[row], looped_choice(module, whole.actors[row], objects)) for row in actor_rows],
            *[(torch.zeros_like(each), each) for each in objects],
        ]:
            parts = [
                actor[:, None, None].expand_as(context),
                context,
                one_object[:, None, None].expand_as(context),
            ]
            mixed = F.conv2d(torch.cat(parts).unsqueeze(0), module.mixing.convolution.weight)
            first = F.leaky_relu(mixed, module.settings.slope)
            second = F.leaky_relu(module.maps.norm(module.maps.convolution(first)), module.settings.slope)
            maps.append(F.max_pool2d(second, 3, stride=2, padding=1))
        maps = torch.cat(maps)
        for block in module.maps.blocks:
            maps = looped_block(block, maps, torch.zeros(len(maps)))
        for row, of_actor in zip(actor_rows, maps, strict=False):
            alone = F.leaky_relu(module.actor.linear(whole.actors[row]), module.settings.slope)
            out[row] = torch.cat([of_actor.mean(dim=(1, 2)), alone])
    return out


@pytest.mark.parametrize("clip_index", [[], [0], [3, 0, 1], [1, 1], [2, 0, 2, 1, 2]])
def test_a_block_equals_loops_over_cells_and_maps(clip_index):
    block = seeded(RelationBlock(RelationSettings(width=4)).double().eval())
    clip_index = torch.tensor(clip_index, dtype=torch.int64)
    maps = drawn(len(clip_index), 4, 3, 2)
    seats = Seats.of(clip_index, 4)
    found, weights = block(maps, asking=seats, asked=seats)
    torch.testing.assert_close(found, looped_block(block, maps, clip_index))
    assert weights.shape == (4, 6, seats.num_seats, seats.num_seats)


def test_maps_that_do_not_ask_are_still_asked():
    block = seeded(RelationBlock(RelationSettings(width=4, block_dropout=0.0)).double())
    clip_index = torch.tensor([0, 1, 0, 1, 0])
    maps = drawn(5, 4, 3, 2)
    everyone = Seats.of(clip_index, 2)
    of_all, _ = block(maps, asking=everyone, asked=everyone)
    of_some, _ = block(maps, asking=Seats.of(clip_index[:2], 2), asked=everyone)
    torch.testing.assert_close(of_some, of_all[:2])


@given(clip_indices)
def test_maps_rise_from_their_seats_as_they_sat_down(clip_index):
    seats = Seats.of(clip_index, 4)
    maps = torch.arange(1.0, 1 + 6 * len(clip_index)).reshape(len(clip_index), 2, 3, 1)
    table = seats.seated(maps)
    assert torch.equal(seats.risen(table).unflatten(2, (3, 1)), maps)
    assert torch.equal((table != 0).all(dim=3).all(dim=1), seats.is_taken)
    assert seats.is_taken.sum(dim=1).tolist() == [int((clip_index == clip).sum()) for clip in range(4)]


@given(clip_indices)
def test_clips_seated_together_have_as_many_maps_and_every_clip_is_seated_once(clip_index):
    clips = torch.tensor([0, 1, 3])
    groups = list(clips_alike(clip_index, clips))
    assert sorted(torch.cat(groups).tolist()) == clips.tolist()
    counts = [{int((clip_index == clip).sum()) for clip in group.tolist()} for group in groups]
    assert all(len(each) == 1 for each in counts)
    assert len(set.union(*counts)) == len(groups)  # no two groups could have been one


def test_factored_relations_equal_one_map_after_the_other():
    module, whole = relations(FactoredRelations), scene(CLIPS[:6])
    torch.testing.assert_close(module(whole), looped_factored(module, whole))


@pytest.mark.parametrize(
    ("wrong", "rule"),
    [
        ({"width": 0}, "width and depth must be at least 1"),
        ({"depth": 0}, "width and depth must be at least 1"),
        ({"kernel_size": 2}, "kernel_size must be odd"),
        ({"kernel_size": -1}, "kernel_size must be odd"),
        ({"padding": -1}, "padding must not be below 0"),
        ({"slope": -0.1}, "slope and block_slope must not be below 0"),
        ({"dropout": 1.0}, r"dropout and block_dropout must lie in \[0, 1\)"),
        ({"block_dropout": -0.1, "width": 0}, "width and depth.*; dropout and block_dropout"),
    ],
)
def test_settings_that_mean_nothing_are_refused_all_at_once(wrong, rule):
    with pytest.raises(RangeError, match=rule):
        RelationSettings(**wrong)
