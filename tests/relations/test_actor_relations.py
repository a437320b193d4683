"""Laws that both kinds of relations obey: the grid of pairs, and the factored one."""

from dataclasses import replace

import pytest
import torch
from literal_relations import literal_features
from relation_scenes import CHANNELS, CLIPS, KINDS, TINY, only, relations, scene

from mule.core.errors import ShapeError
from mule.relations.aco import FactoredRelations, GridRelations
from mule.relations.maps import RelationSettings

both = pytest.mark.parametrize("kind", KINDS)


@both
@pytest.mark.parametrize("clips", [[], [(7, 9, 0, 0)], [(7, 9, 0, 3), (5, 6, 0, 2)]])
def test_no_actors_give_no_rows_and_a_gradient_of_nothing(kind, clips):
    module, empty = relations(kind), scene(clips)
    features, attention = module.explained(empty)
    assert features.shape == (0, module.dim)
    assert attention.to_actors.shape == (0, 0)
    assert attention.to_objects.shape == (0, len(empty.objects))
    features.sum().backward()


@both
def test_a_clip_does_not_depend_on_the_rest_of_the_batch(kind):
    module, whole = relations(kind), scene()
    features = module(whole)
    for clip in range(len(CLIPS)):
        alone = module(only(whole, clip))
        torch.testing.assert_close(features[whole.actor_clip_index == clip], alone, atol=1e-12, rtol=0)


@both
def test_what_is_broken_in_one_clip_stays_there(kind):
    module, whole = relations(kind), scene()
    actors = whole.actors.clone()
    actors[whole.actor_clip_index == 0] = torch.nan
    features = module(replace(whole, actors=actors))
    is_broken = features.isnan().any(dim=1)
    assert torch.equal(is_broken, whole.actor_clip_index == 0)


@both
def test_order_of_actors_is_the_order_of_features(kind):
    module, whole = relations(kind), scene()
    order = torch.randperm(len(whole.actors), generator=torch.Generator().manual_seed(1))
    turned = replace(whole, actors=whole.actors[order], actor_clip_index=whole.actor_clip_index[order])
    torch.testing.assert_close(module(turned), module(whole)[order], atol=1e-12, rtol=0)


@both
def test_order_of_objects_changes_nothing(kind):
    module, whole = relations(kind), scene()
    order = torch.randperm(len(whole.objects), generator=torch.Generator().manual_seed(1))
    turned = replace(whole, objects=whole.objects[order], object_clip_index=whole.object_clip_index[order])
    torch.testing.assert_close(module(turned), module(whole), atol=1e-12, rtol=0)


@both
def test_a_clip_without_objects_has_the_learned_null_object(kind):
    module, without = relations(kind), scene([(7, 9, 3, 0)])
    null = replace(
        without,
        objects=module.mixing.null_object.detach().unsqueeze(0),
        object_clip_index=torch.zeros(1, dtype=torch.int64),
    )
    torch.testing.assert_close(module(without), module(null), atol=1e-12, rtol=0)
    module(without).sum().backward()
    assert module.mixing.null_object.grad.abs().sum() > 0


@both
def test_every_weight_has_a_gradient_and_every_input_that_an_actor_can_see(kind):
    module, whole = relations(kind), scene()
    inputs = [each.requires_grad_() for each in (*whole.context, whole.actors, whole.objects)]
    features = module(whole)
    # squares of different weight: a plain sum is blind to what normalisation takes away
    loss = (features * torch.arange(features.numel()).view_as(features)).square().sum()
    of_weights = torch.autograd.grad(loss, list(module.parameters()), retain_graph=True)
    assert all(each.any() for each in of_weights)
    *of_context, of_actors, of_objects = torch.autograd.grad(loss, inputs)
    clips = torch.arange(whole.num_clips)
    has_actors = torch.isin(clips, whole.actor_clip_index)
    assert [bool(each.any()) for each in of_context] == has_actors.tolist()
    assert of_actors.any(dim=1).all()
    assert torch.equal(of_objects.any(dim=1), has_actors[whole.object_clip_index])


@both
def test_gradients_are_those_of_finite_differences(kind):
    module = relations(kind, RelationSettings(width=2, depth=2, is_downsampled=False), channels=2)
    tiny = scene([(3, 4, 2, 1), (4, 3, 1, 0)], channels=2)

    def features(first, second, actors, objects, *_):
        return module(replace(tiny, context=(first, second), actors=actors, objects=objects))

    inputs = [*tiny.context, tiny.actors, tiny.objects, *module.parameters()]
    assert torch.autograd.gradcheck(features, [each.requires_grad_() for each in inputs], fast_mode=True)


@both
def test_attention_is_off_by_default_and_changes_no_feature(kind):
    module, whole = relations(kind), scene()
    features, _ = module.explained(whole)
    assert torch.equal(module(whole), features)


@both
def test_attention_stays_in_the_clip_and_adds_up_to_one(kind):
    module, whole = relations(kind), scene()
    _, attention = module.explained(whole)
    actor_clip, object_clip = whole.actor_clip_index, whole.object_clip_index
    assert torch.equal(attention.to_actors > 0, actor_clip[:, None] == actor_clip)
    assert torch.equal(attention.to_objects > 0, actor_clip[:, None] == object_clip)
    has_objects = torch.isin(actor_clip, object_clip)
    to_actors, to_objects = attention.to_actors.sum(dim=1), attention.to_objects.sum(dim=1)
    if kind is GridRelations:
        torch.testing.assert_close(to_actors, torch.ones_like(to_actors))
        torch.testing.assert_close(to_objects, has_objects.double())
    else:
        torch.testing.assert_close(
            (to_actors + to_objects)[has_objects], torch.ones_like(to_actors)[has_objects]
        )
        assert (to_actors[~has_objects] < 1).all()


@both
def test_where_all_maps_are_alike_to_an_actor_attention_is_even(kind):
    module, whole = relations(kind), scene([(7, 9, 3, 2)])
    for block in module.maps.blocks:
        torch.nn.init.zeros_(block.query.weight)
    _, attention = module.explained(whole)
    share_of_actor, share_of_object = (1 / 3, 1 / 2) if kind is GridRelations else (1 / 5, 1 / 5)
    torch.testing.assert_close(attention.to_actors, torch.full((3, 3), share_of_actor).double())
    torch.testing.assert_close(attention.to_objects, torch.full((3, 2), share_of_object).double())


@both
@pytest.mark.parametrize(
    "settings",
    [
        RelationSettings(width=32, kernel_size=1, is_downsampled=False),
        RelationSettings(width=32, depth=1, padding=1),
        RelationSettings(width=8, kernel_size=5, padding=2, dropout=0.5),
    ],
)
def test_settings_of_any_size_give_a_finite_feature_of_the_stated_length(kind, settings):
    module = relations(kind, settings)
    features = module.train()(scene())
    assert features.shape == (10, module.dim)
    assert features.isfinite().all()


@both
def test_dropout_is_for_training_only(kind):
    module, whole = relations(kind, replace(TINY, dropout=0.5)), scene()
    assert torch.equal(module(whole), module(whole))
    module.train()
    assert not torch.equal(module(whole), module(whole))


def test_with_one_actor_and_one_object_an_actors_map_starts_as_the_grids_pair():
    grid, factored = relations(GridRelations, seed=1), relations(FactoredRelations, seed=2)
    missing = factored.load_state_dict(grid.state_dict(), strict=False)
    assert missing.missing_keys == ["choice.query.weight", "choice.key.weight"]
    assert missing.unexpected_keys == []
    assert grid.dim == factored.dim
    whole = scene([(5, 7, 1, 1)])
    pair, actor = (vectors_into_maps(module, whole) for module in (grid, factored))
    torch.testing.assert_close(actor[:1], pair)


def vectors_into_maps(module, whole):
    """What is spread over the context of the maps."""
    found = []
    hook = module.maps.register_forward_pre_hook(lambda _, given: found.append(given[0]))
    module(whole)
    hook.remove()
    return found[0]


def test_the_grid_equals_the_literal_construction_of_every_clip_in_turn():
    grid, whole = relations(GridRelations), scene()
    torch.testing.assert_close(grid(whole), literal_features(grid, whole), atol=1e-12, rtol=0)


@both
def test_a_map_smaller_than_the_kernel_is_refused(kind):
    with pytest.raises(ShapeError, match=r"at least 3 rows and columns.*got 2 × 9.*set padding"):
        relations(kind)(scene([(2, 9, 1, 1)]))
    assert relations(kind, replace(TINY, padding=1))(scene([(2, 9, 1, 1)])).isfinite().all()


@both
def test_features_of_other_channels_are_refused(kind):
    with pytest.raises(ShapeError, match=f"the {CHANNELS} channels.*got 3"):
        relations(kind)(scene(channels=3))
