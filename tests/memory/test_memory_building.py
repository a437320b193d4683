"""Built, calibrated, added to, merged, pruned, made to forget, looked into."""

from dataclasses import replace

import pytest
import torch
from remembered_worlds import (
    MODEL,
    NAMES,
    OTHER_MODEL,
    calibrated_memory,
    clustered,
    held_out,
    places,
    seen,
    small_memory,
)
from sklearn.cluster import KMeans

from mule.core.errors import RangeError, ShapeError, TooFewActors
from mule.memory.building import (
    SeenActors,
    add_actors,
    build_memory,
    calibrate,
    merge_memories,
    without_action,
)
from mule.memory.memory import unit_features
from mule.memory.pruning import memory_contents, prune_memory, sphere_means
from mule.memory.search import entry_scales, weigh


def mass(memory):
    return (memory.labels.double() * memory.counts.double()[:, None]).sum(dim=0)


def test_a_memory_of_nobody_can_be_built_and_looked_into():
    memory = build_memory(seen(0, seed=0), class_names=NAMES, model=MODEL)
    found = memory_contents(memory)
    assert (found.num_entries, found.num_actors, found.isolated_share) == (0, 0.0, 0.0)
    assert found.actors_by_class == dict.fromkeys(NAMES, 0.0)


def test_a_built_memory_holds_every_actor_as_it_was():
    actors = seen(60, seed=0)
    memory = build_memory(actors, class_names=NAMES, model=MODEL, num_neighbours=5)
    torch.testing.assert_close(memory.features, actors.features / actors.features.norm(dim=1, keepdim=True))
    assert torch.equal(memory.labels, actors.labels)
    assert memory.counts.tolist() == [1.0] * 60
    assert memory.kernel.reach is None


def test_half_of_all_pairs_of_held_out_actors_and_neighbours_weigh_more_than_one_over_e():
    memory, known = calibrated_memory(), held_out()
    share = (weigh(memory, known.features).weight >= torch.exp(torch.tensor(-1.0)) - 1e-6).float().mean()
    assert share.item() == pytest.approx(0.5, abs=0.01)


def test_building_refuses_novel_dead_and_too_few_actors():
    actors = seen(60, seed=0)
    with pytest.raises(RangeError, match="must do a known action; 60 of 60 do none"):
        build_memory(replace(actors, labels=0 * actors.labels), class_names=NAMES, model=MODEL)
    with pytest.raises(RangeError, match="feature other than zeros; 60 of 60 do not"):
        replace(actors, features=0 * actors.features)
    with pytest.raises(TooFewActors, match="must have 20 neighbours from other clips"):
        build_memory(seen(20, seed=0), class_names=NAMES, model=MODEL)
    with pytest.raises(ShapeError, match="one row per actor; got 60, 60 and 59"):
        SeenActors(actors.features, actors.labels, places(59))


def test_calibration_needs_the_same_model_and_every_class():
    memory, known = small_memory(), held_out()
    with pytest.raises(RangeError, match="memory and held-out actors must have features of one model"):
        calibrate(memory, replace(known, model=OTHER_MODEL))
    with pytest.raises(RangeError, match="walk have none"):
        calibrate(replace(memory, class_names=("run", "sit", "talk", "walk")), known)


def test_calibration_looks_classes_up_by_name():
    known = held_out()
    turned = replace(
        known, outputs=known.outputs.flip(1), labels=known.labels.flip(1), class_names=known.class_names[::-1]
    )
    assert calibrate(small_memory(), turned).kernel == calibrate(small_memory(), known).kernel


def test_merging_is_building_from_all_and_what_both_have_is_kept_once():
    first, second = seen(60, seed=0), seen(45, seed=4, video="w")
    both = merge_memories(
        build_memory(first, class_names=NAMES, model=MODEL, num_neighbours=5),
        build_memory(second, class_names=NAMES, model=MODEL, num_neighbours=5),
    )
    features = torch.cat([first.features, second.features])
    torch.testing.assert_close(both.features, unit_features(features))
    torch.testing.assert_close(
        both.scales, entry_scales(both.features, both.places.group_index, num_neighbours=5)
    )
    assert both.places.videos() == [*first.places.videos(), *second.places.videos()]
    assert both.kernel.reach is None
    assert len(merge_memories(both, small_memory())) == 105
    grown = add_actors(small_memory(), second)
    assert torch.equal(grown.features, both.features)
    assert len(add_actors(grown, second)) == 105


def test_nobody_from_videos_of_held_out_actors_is_added_or_merged():
    """Otherwise the held-out ones would look less strange than new actors do, and the promise would be void."""
    memory, others = small_memory(), seen(12, seed=4, video="w")
    kept_back = replace(held_out(), videos=("w1", "w3", "elsewhere"))
    allowed = torch.tensor([video not in ("w1", "w3") for video in others.places.videos()])
    assert allowed.sum() == 6
    found = add_actors(memory, others, held_out=kept_back)
    expected = add_actors(memory, others.at(allowed))
    assert torch.equal(found.features, expected.features)
    assert found.places.videos() == expected.places.videos()
    second = small_memory(seed=4, video="w")
    assert not {"w1", "w3"} & set(merge_memories(memory, second, held_out=kept_back).places.videos())
    assert (
        len(add_actors(memory, others, held_out=held_out())) == len(memory) + 12
    )  # where they were seen is not known


def test_merging_lines_classes_up_by_name_and_refuses_others():
    first, second = small_memory(), small_memory(seed=4, video="w")
    turned = replace(second, class_names=NAMES[::-1], labels=second.labels.flip(1))
    assert torch.equal(merge_memories(first, turned).labels, merge_memories(first, second).labels)
    with pytest.raises(
        RangeError, match="same actions; only the first knows wave and only the second knows walk"
    ):
        merge_memories(first, replace(second, class_names=("run", "sit", "talk", "walk")))
    with pytest.raises(RangeError, match="merged memories must have features of one model"):
        merge_memories(first, replace(second, model=OTHER_MODEL))
    with pytest.raises(RangeError, match="must do a known action"):
        add_actors(first, replace(seen(9, seed=1, video="w"), labels=torch.zeros(9, 4)))


def test_forgetting_drops_the_label_and_those_who_did_nothing_else():
    memory = small_memory()
    smaller = without_action(memory, "talk")
    kept = (memory.labels[:, [0, 1, 3]] > 0).any(dim=1)
    assert smaller.class_names == ("run", "sit", "wave")
    assert torch.equal(smaller.features, memory.features[kept])
    assert torch.equal(smaller.labels, memory.labels[kept][:, [0, 1, 3]])
    assert calibrate(smaller, held_out()).kernel.reach is not None
    with pytest.raises(
        RangeError, match=r"must be remembered; got 'fly'\. Remembered are run, sit, talk, wave"
    ):
        without_action(memory, "fly")


def test_the_last_action_is_not_forgotten():
    actors = seen(60, seed=0, classes=1)
    memory = build_memory(actors, class_names=("run",), model=MODEL, num_neighbours=5)
    with pytest.raises(RangeError, match="a memory must keep an action; 'run' is the only one"):
        without_action(memory, "run")


@pytest.mark.parametrize("share", [1.0, 0.5, 0.2])
def test_pruning_keeps_the_label_mass_of_every_action(share):
    memory = small_memory(200)
    smaller = prune_memory(memory, share=share)
    assert len(smaller) == round(share * 200)
    torch.testing.assert_close(mass(smaller), mass(memory), rtol=1e-5, atol=1e-4)
    assert smaller.counts.sum().item() == 200
    torch.testing.assert_close(mass(prune_memory(smaller, share=0.7)), mass(memory), rtol=1e-5, atol=1e-4)


def test_contents_count_the_actors_of_every_action_before_and_after_pruning():
    memory = small_memory(200)
    in_turn = {name: sum(row[column] for row in memory.labels.tolist()) for column, name in enumerate(NAMES)}
    for each in (memory, prune_memory(memory, share=0.25)):
        found = memory_contents(each)
        assert found.num_actors == 200
        assert found.actors_by_class == pytest.approx(in_turn, abs=1e-4)


def test_a_pruned_memory_says_nearly_the_same():
    memory, known = small_memory(400), held_out(80)
    queries = torch.cat([known.features, torch.rand(80, 12, generator=torch.Generator().manual_seed(3))])
    whole = weigh(calibrate(memory, known), queries).log_trust
    pruned = weigh(calibrate(prune_memory(memory, share=0.25), known), queries).log_trust
    assert torch.corrcoef(torch.stack([whole, pruned]))[0, 1].item() > 0.9


def test_means_on_the_sphere_are_as_tight_as_scikit_learns():
    points = unit_features(clustered(300, seed=2)[0])
    ours = sphere_means(points, torch.ones(300), num_clusters=8, seed=0)
    assert torch.bincount(ours.index, minlength=8).min() >= 1
    spread = (points - ours.centres[ours.index]).square().sum().item()
    theirs = KMeans(8, random_state=0).fit(points.double().numpy())
    assert spread < 1.25 * -float(theirs.score(points.double().numpy()))
    again = sphere_means(points, torch.ones(300), num_clusters=8, seed=0)
    assert torch.equal(again.index, ours.index)


def test_no_cluster_is_empty_even_of_equal_points():
    points = unit_features(torch.ones(6, 3))
    found = sphere_means(points, torch.ones(6), num_clusters=4, seed=0)
    assert torch.bincount(found.index, minlength=4).min() >= 1


def test_a_pruned_entry_is_placed_where_a_member_was_seen():
    memory = small_memory(100)
    smaller = prune_memory(memory, share=0.3)
    assert set(smaller.places.time_s.tolist()) <= set(memory.places.time_s.tolist())
    assert len(set(smaller.places.time_s.tolist())) == 30


def test_what_would_leave_too_little_is_refused():
    with pytest.raises(TooFewActors, match=r"more than k = 5 entries; 0\.05 of 60 is 3"):
        prune_memory(small_memory(), share=0.05)
    with pytest.raises(RangeError, match="share must lie above 0 and up to 1; got 0"):
        prune_memory(small_memory(), share=0.0)
    with pytest.raises(RangeError, match="num_clusters must lie from 1 to 3"):
        sphere_means(torch.eye(3), torch.ones(3), num_clusters=4, seed=0)


def test_inspection_counts_actors_sources_and_the_isolated():
    memory = small_memory()
    found = memory_contents(memory)
    assert found.num_entries == 60
    assert list(found.actors_by_class.values()) == memory.labels.sum(dim=0).tolist()
    assert sum(found.entries_by_video.values()) == 60
    assert found.num_groups == 20
    lonely = replace(
        memory, scales=torch.where(torch.arange(60) < 6, 3 * memory.kernel.typical_scale, memory.scales)
    )
    expected = (lonely.scales > 2 * memory.kernel.typical_scale).float().mean().item()
    assert memory_contents(lonely).isolated_share == pytest.approx(expected)
