"""MULE as a whole: what is seen of a clip is what is said of its actors."""

import pytest
import torch
from scenes import boxes_of, maps_of, some_labels

from mule.core.errors import ShapeError
from mule.evidence.head import EvidenceHead
from mule.features.backbones.tiny import TinySlowFast
from mule.features.pooling import FeatureMaps, box_features, context_map
from mule.model import ModelOutput, MuleModel, PooledActors, RelationModel, SceneBoxes, looks_of, per_box
from mule.relations.aco import FactoredRelations, GridRelations
from mule.relations.maps import RelationSettings
from mule.systems.catalogue import SYSTEMS, find_system
from mule.systems.design import tiny_sizes

SMALL = RelationSettings(width=8, padding=1, is_downsampled=False, block_dropout=0.0)


def pooled_actors(channels, _):
    return PooledActors(channels, dropout=0.0)


def small_model(relations=GridRelations, num_classes=5):
    torch.manual_seed(0)
    related = relations(10, SMALL)
    return RelationModel(related, EvidenceHead(related.dim, num_classes)).eval()


@pytest.mark.parametrize("relations", [GridRelations, FactoredRelations, pooled_actors])
@pytest.mark.parametrize(
    ("actor_clips", "labels_per_actor"),
    [([0, 1], 1), ([0, 1], 2), ([0, 0, 0, 1, 1], 1), ([0, 0, 0, 1, 1], 2)],
    ids=["single actor, single action", "single, multi", "multi, single", "multi, multi"],
)
def test_all_four_settings_are_the_same_code(relations, actor_clips, labels_per_actor):
    model = small_model(relations).train()
    boxes, features = boxes_of(actor_clips, [0]), maps_of(2)
    targets = torch.zeros(len(actor_clips), 5)
    for actor in range(len(actor_clips)):
        targets[actor, [(actor + k) % 5 for k in range(labels_per_actor)]] = 1
    optimizer = torch.optim.Adam(model.parameters(), 0.1 if relations is pooled_actors else 0.02)
    for _ in range(60):
        output = model([features], boxes)
        loss = torch.nn.functional.binary_cross_entropy_with_logits(output.outputs, targets)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    said = model.eval()([features], boxes).outputs > 0
    assert torch.equal(said, targets.bool())


@pytest.mark.parametrize("relations", [GridRelations, FactoredRelations, pooled_actors])
def test_a_clip_does_not_depend_on_what_else_is_in_the_batch(relations):
    model = small_model(relations)
    small, large = maps_of(2, size=(6, 8), seed=1), maps_of(1, size=(9, 7), seed=2)
    boxes = boxes_of([2, 0, 1, 2, 0], [0, 2, 2])
    together = model([small, large], boxes)
    for clip, alone in enumerate(
        [*(FeatureMaps(tuple(m[i : i + 1] for m in small.maps), small.stride) for i in range(2)), large]
    ):
        actors, objects = boxes.actor_clip_index == clip, boxes.object_clip_index == clip
        own = SceneBoxes(
            boxes.actors_xyxy_px[actors],
            boxes.actor_clip_index[actors] * 0,
            boxes.objects_xyxy_px[objects],
            boxes.object_clip_index[objects] * 0,
        )
        torch.testing.assert_close(
            together.outputs[actors], model([alone], own).outputs, rtol=1e-4, atol=1e-5
        )


def test_kept_context_maps_say_the_same_as_the_maps_they_were_made_of():
    model, features, boxes = small_model(), maps_of(2), boxes_of([0, 1, 1], [1])
    kept = FeatureMaps((context_map(features).unsqueeze(2),), features.stride)
    torch.testing.assert_close(model([features], boxes).outputs, model([kept], boxes).outputs)


def test_end_to_end_is_backbone_then_relations():
    torch.manual_seed(0)
    backbone = TinySlowFast().eval()
    relations = PooledActors(backbone.channels)
    model = MuleModel(backbone, RelationModel(relations, EvidenceHead(relations.dim, 3))).eval()
    clips = torch.randn(2, 3, 8, 48, 64, generator=torch.Generator().manual_seed(0))
    boxes = boxes_of([0, 1], [])
    output = model([clips], boxes)
    maps = backbone(clips)
    pooled = box_features(context_map(maps), boxes.actors_xyxy_px, boxes.actor_clip_index, stride=maps.stride)
    torch.testing.assert_close(output.features, pooled)
    torch.testing.assert_close(output.context, context_map(maps).mean(dim=(2, 3)))


def test_nobody_gives_no_rows_and_every_clip_a_context():
    output = small_model()([maps_of(3)], boxes_of([], []))
    assert output.outputs.shape == (0, 5)
    assert output.evidence.num_actors == 0
    assert output.context.shape == (3, 10)


def test_parts_keep_the_order_of_boxes():
    features = [maps_of(2), maps_of(3)]
    clip_index = torch.tensor([4, 0, 2, 1, 3])
    boxes = torch.arange(20.0).reshape(5, 4)
    marked = per_box(
        features, boxes, clip_index, lambda part, own, clips: own[:, 0] + 1000 * part + 0 * clips
    )
    assert marked.tolist() == [1000.0, 4.0, 1008.0, 12.0, 1016.0]


def test_a_look_is_the_mean_of_what_lies_within_the_box():
    """On maps that rise evenly from left to right and from frame to frame, that is their value in the middle."""
    rise = torch.arange(8.0).expand(1, 1, 1, 6, 8)
    maps = [
        FeatureMaps((torch.cat([rise + first, rise + first + 2], dim=2),), stride=16)
        for first in (0.0, 100.0)
    ]
    actors = torch.tensor([[16.0, 16, 80, 64], [32.0, 0, 64, 32]])
    nobody = torch.zeros(0, 4)
    boxes = SceneBoxes(actors, torch.tensor([1, 0]), nobody, torch.zeros(0, dtype=torch.long))
    torch.testing.assert_close(looks_of(maps, boxes), torch.tensor([[104.0], [4.0]]))


def test_a_box_outside_every_clip_is_refused():
    boxes = SceneBoxes(
        torch.rand(1, 4), torch.tensor([2]), torch.zeros(0, 4), torch.zeros(0, dtype=torch.int64)
    )
    with pytest.raises(ShapeError, match="every box must lie in one of the 2 clips"):
        small_model()([maps_of(2)], boxes)


@pytest.mark.parametrize("name", SYSTEMS)
def test_every_system_learns_from_its_own_objective(name):
    torch.manual_seed(0)
    system = find_system(name)
    model = system.build(tiny_sizes(10, 4))
    boxes, features, targets = boxes_of([0, 0, 1, 2, 3, 3], [0, 3]), maps_of(4), some_labels(6, 4)
    optimizer = torch.optim.Adam(model.parameters(), 0.03)
    losses = []
    for step in range(30):
        output = model([features], boxes)
        assert isinstance(output, ModelOutput)
        found = system.objective(output, targets, step / 30)
        assert set(found.constraints) == set(system.constraints)
        optimizer.zero_grad()
        found.loss.backward()
        optimizer.step()
        losses.append(found.loss.item())
    assert losses[-1] < 0.98 * losses[0]


def test_an_unknown_system_is_refused_with_the_names():
    with pytest.raises(Exception, match=r"system must be one of mule, .*got 'mul'"):
        find_system("mul")
