"""A scene checks itself at birth, and knows which of its clips are of one size."""

from dataclasses import replace

import pytest
import torch
from relation_scenes import CLIPS, scene
from strategies import unchecked

from mule.core.errors import RangeError, ShapeError
from mule.relations.aco import SceneFeatures


def made(**changes):
    """A scene as users make it: outside pytest nothing checks shapes before it does."""
    good = scene()
    fields = {name: getattr(good, name) for name in SceneFeatures.__dataclass_fields__} | changes
    made_unchecked = object.__new__(SceneFeatures)
    for name, value in fields.items():
        object.__setattr__(made_unchecked, name, value)
    unchecked(SceneFeatures.__post_init__)(made_unchecked)
    return made_unchecked


@pytest.mark.parametrize(("clips", "groups"), [([], []), (CLIPS, [[0, 2, 3, 6], [1, 4], [5]])])
def test_clips_of_one_size_are_found_together(clips, groups):
    assert scene(clips).clips_by_size() == groups


def test_a_batch_of_one_size_is_a_tuple_of_its_clips():
    batch = torch.randn(3, 5, 7, 9, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    whole = scene([(7, 9, 2, 1)] * 3)
    assert replace(whole, context=tuple(batch)).clips_by_size() == [[0, 1, 2]]


@pytest.mark.parametrize(
    ("changes", "rule"),
    [
        ({"actors": torch.zeros(10)}, r"must be \(channels, rows, cols\), actors and objects"),
        ({"context": (torch.zeros(7, 9),)}, r"must be \(channels, rows, cols\)"),
        ({"objects": torch.zeros(11, 4).double()}, r"the same channels; got \[5.*, 5 and 4"),
        (
            {"objects": torch.zeros(11, 5).float()},
            "one floating-point type and device; got torch.float32.*64",
        ),
        (
            {"actor_clip_index": torch.zeros(9, dtype=torch.int64)},
            r"one int64 per actor; got \(9,\).*10 actors",
        ),
        ({"object_clip_index": torch.zeros(11)}, "one int64 per object; got .*float32 for 11 objects"),
        (
            {"objects": torch.zeros(11, 4).double(), "actor_clip_index": torch.zeros(9, dtype=torch.int64)},
            "the same channels.*one int64 per actor",
        ),
    ],
)
def test_shapes_that_do_not_agree_are_refused_all_at_once(changes, rule):
    with pytest.raises(ShapeError, match=rule):
        made(**changes)


@pytest.mark.parametrize("clip", [-1, 7])
def test_a_clip_that_is_not_there_is_refused(clip):
    with pytest.raises(RangeError, match="actor_clip_index must name one of 7 clips"):
        made(actor_clip_index=torch.full((10,), clip))
    with pytest.raises(RangeError, match="object_clip_index must name one of 7 clips"):
        made(object_clip_index=torch.full((11,), clip))
