"""Plans drawn: boxes hold what is drawn, scenes leave actors alone, size and chunks change nothing."""

from dataclasses import replace

import numpy as np
import pytest
from stage_digest import STAGE_1_SHA256, benchmark_digest, clip_digest

from mule.core.errors import RangeError
from mule.stage import rendering
from mule.stage.benchmark import StageSet
from mule.stage.classes import ACTIONS, SCENE_KINDS
from mule.stage.plans import Plan, ScenePlan
from mule.stage.rendering import render, render_chunks
from mule.stage.takes import TakeRecipe, action_plan, plan_take

SIZE = (96, 128)


def plain(plan, **changes):
    """The plan without noise and shadows, so that a pixel differs only where something is drawn."""
    return replace(plan, noise=0.0, scene=replace(plan.scene, shadow=0.0), **changes)


def short(plan, num_frames=6):
    return replace(plan, num_frames=num_frames)


def differs(first, second):
    return (first.frames != second.frames).any(axis=-1)


def inside(boxes, size, margin_px):
    """Which pixels are within the boxes (frames, boxes, 4), give or take a margin."""
    rows, cols = size
    y, x = np.arange(rows)[:, None] + 0.5, np.arange(cols)[None, :] + 0.5
    scaled = boxes * [cols, rows, cols, rows]
    x1, y1, x2, y2 = np.moveaxis(scaled, -1, 0)[..., None, None]
    held = (
        (x > x1 - margin_px) & (x < x2 + margin_px) & (y > y1 - margin_px) & (y < y2 + margin_px)
    )  # (frames, boxes, rows, cols)
    return held.any(axis=1)


def test_a_plan_without_actors_is_a_still_scene():
    clip = render(plain(StageSet().plan(0), actors=(), props=(), num_frames=3))
    assert clip.frames.shape == (3, 96, 128, 3)
    assert clip.actor_boxes_xyxy_unit.shape == (3, 0, 4)
    assert clip.object_boxes_xyxy_unit.shape == (3, 0, 4)
    assert clip.labels(0) == ()
    assert (clip.frames == clip.frames[:1]).all()


@pytest.mark.parametrize("action", ACTIONS)
def test_boxes_hold_every_pixel_that_is_drawn_and_no_more(action):
    plan = short(plain(action_plan(action)), 3)
    clip, empty = render(plan), render(replace(plan, actors=()))
    changed = differs(clip, empty)
    boxes = np.concatenate([clip.actor_boxes_xyxy_unit, clip.object_boxes_xyxy_unit], axis=1)
    assert not (changed & ~inside(boxes, SIZE, 1.0)).any()
    assert changed.any(axis=(1, 2)).all()
    for frame in range(len(clip.frames)):
        rows, cols = np.nonzero(changed[frame])
        drawn = np.array([cols.min(), rows.min(), cols.max() + 1, rows.max() + 1])
        union = np.concatenate([boxes[frame, :, :2].min(axis=0), boxes[frame, :, 2:].max(axis=0)])
        np.testing.assert_allclose(drawn, union * [128, 96, 128, 96], atol=2.0)


@pytest.mark.parametrize("index", [1, 3])
def test_taking_one_actor_away_changes_pixels_only_in_its_box_and_its_things(index):
    plan = short(plain(StageSet(role="test").plan(index)), 4)
    clip = render(plan)
    for number, actor in enumerate(plan.actors):
        if actor.segments[0].partner is not None:
            continue
        without = replace(plan, actors=tuple(other for other in plan.actors if other is not actor))
        changed = differs(clip, render(without))
        boxes = np.concatenate(
            [clip.actor_boxes_xyxy_unit[:, number : number + 1], clip.object_boxes_xyxy_unit], axis=1
        )
        assert not (changed & ~inside(boxes, SIZE, 1.0)).any()


def test_boxes_lie_in_the_picture_and_are_not_empty_where_an_actor_is_seen():
    for index in range(4):
        clip = render(short(StageSet().plan(index)))
        boxes = clip.actor_boxes_xyxy_unit
        assert boxes.min() >= 0
        assert boxes.max() <= 1
        is_seen = clip.visibility > 0
        assert ((boxes[..., 2] > boxes[..., 0]) & (boxes[..., 3] > boxes[..., 1]))[is_seen].all()
        assert ((clip.visibility >= 0) & (clip.visibility <= 1)).all()


def test_an_actor_alone_in_the_middle_is_seen_whole_and_one_behind_another_is_not():
    plan = action_plan("clap")
    assert (render(short(plan)).visibility == 1).all()
    front = replace(plan.actors[0], actor_id=1, lane=plan.actors[0].lane + 0.02)
    both = render(short(replace(plan, actors=(plan.actors[0], front))))
    assert (both.visibility[:, 0] < 0.4).all()
    assert (both.visibility[:, 1] == 1).all()


def test_an_actor_who_walks_out_of_the_picture_keeps_the_part_of_the_box_that_is_in_it():
    plan = action_plan("clap")
    part = replace(plan.actors[0].segments[0], start_x=0.0, end_x=-0.5)
    clip = render(replace(plan, actors=(replace(plan.actors[0], segments=(part,)),)))
    assert (clip.actor_boxes_xyxy_unit[:, 0, 0] == 0).all()
    assert 0 < clip.visibility[0, 0] < 1
    assert clip.visibility[-1, 0] == 0
    assert clip.actor_boxes_xyxy_unit[-1, 0, 2] == 0


def test_pictures_of_two_sizes_have_the_same_boxes():
    plan = short(StageSet(role="test").plan(1), 3)
    small, large = render(plan, (96, 128)), render(plan, (240, 320))
    np.testing.assert_array_equal(small.actor_boxes_xyxy_unit, large.actor_boxes_xyxy_unit)
    np.testing.assert_array_equal(small.object_boxes_xyxy_unit, large.object_boxes_xyxy_unit)
    shrunk = large.frames.reshape(3, 48, 5, 64, 5, 3).mean(axis=(2, 4))
    coarse = small.frames.reshape(3, 48, 2, 64, 2, 3).mean(axis=(2, 4))
    assert np.abs(shrunk - coarse).mean() < 6


def test_a_wider_picture_shows_more_of_the_scene_on_both_sides():
    plan = short(plain(action_plan("clap")), 2)
    narrow, wide = render(plan, (96, 128)), render(plan, (96, 160))
    is_body = differs(narrow, render(replace(plan, actors=()), (96, 128)))
    np.testing.assert_array_equal(wide.frames[:, :, 16:-16][is_body], narrow.frames[is_body])


def test_the_same_actors_before_another_scene_have_the_same_boxes_and_the_same_pixels():
    plan = short(plain(StageSet(role="test").plan(1)), 3)
    empty = replace(plan, actors=(), props=())
    images = []
    for kind in SCENE_KINDS[:3]:
        scene = ScenePlan(kind, 5, shadow=0.0)
        clip, bare = render(replace(plan, scene=scene)), render(replace(empty, scene=scene))
        images.append((clip, differs(clip, bare)))
    reference, drawn = images[0]
    for clip, also_drawn in images[1:]:
        np.testing.assert_array_equal(clip.actor_boxes_xyxy_unit, reference.actor_boxes_xyxy_unit)
        both = drawn & also_drawn
        is_equal = (clip.frames == reference.frames).all(axis=-1)
        assert is_equal[both].mean() > 0.6  # all but the pixels at edges, which show some of the scene


@pytest.mark.parametrize("kind", SCENE_KINDS)
def test_scene_instances_differ_and_each_is_drawn_alike_again(kind):
    def picture(seed):
        rendering.background.cache_clear()
        return rendering.background(ScenePlan(kind, seed), SIZE, 4 / 3)

    np.testing.assert_array_equal(picture(1), picture(1))
    assert np.abs(picture(1) - picture(2)).mean() > 2


def test_chunks_are_the_same_frames_as_one_piece(monkeypatch):
    plan = plan_take(TakeRecipe(seconds=2.0, num_actors=2, seed=4, aspect=4 / 3))
    whole = render(plan, (48, 64))
    monkeypatch.setattr(rendering, "_CHUNK_PIXELS", 7 * 48 * 64)
    pieces = list(render_chunks(plan, (48, 64)))
    assert [len(piece.frames) for piece in pieces] == [7, 7, 7, 7, 4]
    for name in (
        "frames",
        "actor_boxes_xyxy_unit",
        "visibility",
        "object_boxes_xyxy_unit",
        "object_is_there",
    ):
        joined = np.concatenate([getattr(piece, name) for piece in pieces])
        np.testing.assert_array_equal(joined, getattr(whole, name))


def test_noise_is_new_in_every_frame_and_has_the_planned_strength():
    plan = replace(StageSet().plan(0), actors=(), props=(), num_frames=4, noise=4.0, gain=0.5)
    scene = replace(plan, scene=ScenePlan("gym", 1))
    noisy, still = render(scene).frames.astype(float), render(replace(scene, noise=0.0)).frames.astype(float)
    errors = noisy - still
    assert np.std(errors) == pytest.approx(4.0, rel=0.05)
    assert abs(np.corrcoef(errors[0].ravel(), errors[1].ravel())[0, 1]) < 0.05


def test_run_moves_faster_and_reaches_further_than_walk():
    def travel(action):
        boxes = render(action_plan(action), (48, 64)).actor_boxes_xyxy_unit[:, 0]
        return abs(boxes[-1, [0, 2]].mean() - boxes[0, [0, 2]].mean())

    assert travel("run") > 1.25 * travel("walk") > 0.1


def test_objects_are_those_of_the_actions_and_the_props():
    plan = StageSet().plan(0)
    for action in ("clap", "carry_box", "juggle", "pass_ball"):
        clip = render(short(replace(action_plan(action), props=plan.props), 2), (48, 64))
        expected = [*[prop.kind for prop in plan.props], *ACTIONS[action].objects]
        assert list(clip.object_classes) == expected
        assert clip.object_is_there.all()


def test_the_same_clip_twice_is_the_same_bytes():
    clips = StageSet(role="test", num_frames=4, size=(48, 64))
    assert clip_digest(clips.clip(3)) == clip_digest(clips.clip(3)) != clip_digest(clips.clip(4))


def test_the_benchmark_is_the_one_of_this_version():
    assert benchmark_digest() == STAGE_1_SHA256


@pytest.mark.parametrize("size", [(8, 64), (96, 8), (4000, 64), (96, 9000)])
def test_sizes_that_cannot_be_drawn_are_refused(size):
    with pytest.raises(RangeError, match=f"got {size[0]} × {size[1]}"):
        render(StageSet().plan(0), size)


def test_a_plan_needs_frames():
    with pytest.raises(RangeError, match="it has 0 frames"):
        replace(StageSet().plan(0), num_frames=0)
    assert isinstance(StageSet().plan(0), Plan)
