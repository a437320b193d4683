"""A batch holds its clips' rows flat, in order, none padded; what is empty is ordinary."""

from dataclasses import replace

import pytest
import torch
from made_clips import CLASSES, made_sample
from strategies import unchecked
from torch import Tensor

from mule.core.errors import RangeError, ShapeError
from mule.data.batches.batches import ActorBatch, BatchClip, batch_of
from mule.data.batches.samples import ClipName, TrainingView, WholeView

WHOLE = WholeView()


def batch_clips(positions, view=WHOLE, **settings):
    samples = [made_sample(position, **settings) for position in positions]
    return [
        BatchClip(position, sample, view(sample, torch.Generator().manual_seed(position)))
        for position, sample in zip(positions, samples, strict=True)
    ]


def made_batch(positions=(1, 2), **settings):
    return batch_of(batch_clips(positions, **settings), num_classes=len(CLASSES))


def tensors_of(batch):
    return [*batch.pixels, *(value for value in vars(batch).values() if isinstance(value, Tensor))]


def test_a_batch_without_clips_is_empty_and_knows_its_classes():
    batch = batch_of([], num_classes=7)
    assert (batch.num_clips, batch.num_actors, batch.pixels, batch.labels.shape) == (0, 0, (), (0, 7))
    with pytest.raises(ShapeError, match="one stack needs clips of one size; this batch of 0"):
        _ = batch.stack


def test_clips_without_actors_or_objects_have_no_rows():
    batch = made_batch([0, 0], num_actors=0, num_objects=0)
    assert batch.num_clips == len(batch.stack) == 2
    assert batch.num_actors == len(batch.object_class) == 0


@pytest.mark.parametrize("view", [WholeView(), TrainingView(short_sides_px=(12, 14), crop_px=8)])
def test_rows_of_each_clip_are_those_of_its_sample_in_view(view):
    clips = batch_clips(range(12), view)
    batch = batch_of(clips, num_classes=len(CLASSES))
    for number, clip in enumerate(clips):
        mine, sample = batch.actor_clip_index == number, clip.sample
        index = batch.actor_index[mine]
        assert torch.equal(batch.actor_boxes_xyxy_px[mine], clip.view.actor_boxes_xyxy_px)
        assert torch.equal(batch.labels[mine], sample.labels[index])
        ids = [batch.actor_ids[row] for row in torch.nonzero(mine).flatten().tolist()]
        assert ids == [sample.actor_ids[i] for i in index.tolist()]
        its_objects = batch.object_clip_index == number
        assert torch.equal(batch.object_boxes_xyxy_px[its_objects], clip.view.object_boxes_xyxy_px)
        assert torch.equal(batch.object_class[its_objects], sample.object_class[clip.view.object_index])
        assert torch.equal(batch.object_scores[its_objects], sample.object_scores[clip.view.object_index])
        assert torch.equal(batch.stack[number], clip.view.pixels)
    assert batch.clip_names == tuple(clip.sample.name for clip in clips)
    assert batch.positions.tolist() == list(range(12))
    assert batch.num_lost_actors == sum(len(clip.sample.labels) for clip in clips) - batch.num_actors


def test_clips_of_several_sizes_stay_in_order_in_a_stack_per_run():
    clips = [
        *batch_clips([1, 2], size=(12, 16)),
        *batch_clips([3], size=(16, 12)),
        *batch_clips([4], size=(12, 16)),
    ]
    batch = batch_of(clips, num_classes=len(CLASSES))
    assert [len(stack) for stack in batch.pixels] == [2, 1, 1]
    for pixels, clip in zip((each for stack in batch.pixels for each in stack), clips, strict=True):
        assert torch.equal(pixels, clip.view.pixels)
    with pytest.raises(ShapeError, match=r"batch of 4 has 2: \[\(12, 16\), \(16, 12\)\]"):
        _ = batch.stack


def test_damage_met_on_the_way_is_added_up():
    clips = [
        replace(clip, sample=replace(clip.sample, num_damaged=clip.position))
        for clip in batch_clips([1, 2, 4])
    ]
    assert batch_of(clips, num_classes=len(CLASSES)).num_damaged == 7


def test_a_batch_moves_whole():
    batch = made_batch()
    moved = batch.to("meta")
    assert all(tensor.is_meta for tensor in tensors_of(moved))
    assert moved.clip_names == batch.clip_names
    assert moved.labels.shape == batch.labels.shape


def test_pinning_reaches_every_tensor(monkeypatch):
    pinned = []
    monkeypatch.setattr(Tensor, "pin_memory", lambda tensor: pinned.append(tensor) or tensor)
    batch = made_batch()
    batch.pin_memory()
    assert {id(tensor) for tensor in pinned} == {id(tensor) for tensor in tensors_of(batch)}


@pytest.mark.parametrize(
    "change",
    [
        {"clip_names": ()},
        {"positions": torch.zeros(3, dtype=torch.int64)},
        {"actor_ids": ("one",)},
        {"labels": torch.zeros(1, 4, dtype=torch.bool)},
        {"object_class": torch.zeros(9, dtype=torch.int64)},
        {"actor_clip_index": torch.tensor([0, 1, 2])},
        {"actor_clip_index": torch.tensor([-1, 1, 1])},
    ],
)
def test_a_batch_whose_parts_disagree_is_refused(change):
    fields = vars(made_batch([1, 2], num_objects=1)) | change
    blank = object.__new__(ActorBatch)
    for name, value in fields.items():
        object.__setattr__(blank, name, value)
    with pytest.raises(ShapeError):
        unchecked(ActorBatch.__post_init__)(blank)


@pytest.mark.parametrize("box", [[0.0, 0.0, 64.0, 48.0], [0.5, 0.1, 0.4, 0.2], [0.1, 0.1, 0.2, float("nan")]])
def test_a_sample_refuses_boxes_that_are_no_fractions_of_the_frame(box):
    with pytest.raises(RangeError, match=r"film0 at 1 s: actor boxes must have 0 <= x1"):
        replace(made_sample(1), actor_boxes_xyxy_unit=torch.tensor([box]))


def test_a_sample_refuses_actors_without_labels():
    with pytest.raises(ShapeError, match=r"got \[1, 2\] of actors"):
        replace(made_sample(2), actor_ids=("only one",))


def test_a_clip_of_a_whole_video_is_called_by_its_video():
    assert str(ClipName("film", float("nan"))) == "film"
    assert str(ClipName("film", 902.0)) == "film at 902 s"


def test_the_small_views_leave_the_size_alone():
    sample = made_sample(3, size=(9, 11))
    for view in (WholeView(), TrainingView()):
        assert view(sample, torch.Generator().manual_seed(0)).pixels.shape == (3, 3, 9, 11)
