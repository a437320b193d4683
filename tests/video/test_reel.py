"""A reel gives back the frames it was given, in views where it can, and never changes one that somebody holds."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from mule.video.reel import Reel

SIZE = (2, 3)


def image(number):
    """A frame that shows its number."""
    return np.full((*SIZE, 3), number, np.uint8)


def filled(num_frames, room=None):
    reel = Reel(SIZE)
    reel.make_room(room or num_frames, needed_from=None)
    assert [reel.append(image(number)).start for number in range(num_frames)] == list(range(num_frames))
    return reel


def shown(frames):
    """The numbers of the frames, each of one colour all over."""
    assert frames.shape[1:] == (3, *SIZE)
    assert (frames == frames[:, :1, :1, :1]).all()
    return frames[:, 0, 0, 0].tolist()


def test_a_reel_takes_as_many_frames_as_there_is_room_for():
    reel = Reel(SIZE)
    assert reel.room == 0
    reel.make_room(3, needed_from=None)
    assert reel.room >= 3
    assert [list(reel.append(image(7), times=times)) for times in (1, 2)] == [[0], [1, 2]]
    assert shown(reel.frames([0, 1, 2])) == [7, 7, 7]


@pytest.mark.parametrize("numbers", [[3], [0, 1, 2], [1, 3, 5], [0, 5]])
def test_frames_evenly_apart_are_views(numbers):
    reel = filled(6)
    first, second = reel.frames(numbers), reel.frames(numbers)
    assert shown(first) == numbers
    assert first.data_ptr() == second.data_ptr()


@pytest.mark.parametrize("numbers", [[2, 2], [0, 0, 1, 2], [0, 1, 3], [4, 5, 5]])
def test_frames_that_repeat_or_skip_are_copies(numbers):
    reel = filled(6)
    first, second = reel.frames(numbers), reel.frames(numbers)
    assert shown(first) == numbers
    assert first.data_ptr() != second.data_ptr()


def test_memory_is_used_again_when_nobody_holds_it():
    reel = filled(4)
    places = set()
    for number in range(4, 64):
        if reel.room == 0:
            reel.make_room(4, needed_from=number - 1)
        reel.append(image(number))
        places.add(reel.frames([number]).data_ptr())
    assert len(places) == 2 * 7  # two strips of 8 by turns; the first place is for the frame that moves


@pytest.mark.parametrize(
    "part", [lambda frames: frames, lambda frames: frames[1:, 2], lambda frames: frames.numpy()]
)
def test_memory_that_somebody_holds_is_left_alone(part):
    reel = filled(4)
    held = part(reel.frames([0, 1, 2, 3]))
    before = torch.as_tensor(held).clone()
    for number in range(4, 32):
        if reel.room == 0:
            reel.make_room(2, needed_from=None)
        reel.append(image(100 + number))
    assert torch.equal(torch.as_tensor(held), before)


@given(st.lists(st.tuples(st.integers(1, 4), st.integers(0, 5), st.booleans()), max_size=12), st.randoms())
def test_a_reel_is_a_list_whose_beginning_is_forgotten(turns, random):
    """Against a list; clips that are held, some of them, are looked at again in the end."""
    reel, kept, first = Reel(SIZE), [], 0
    held = []
    for room, num_needed, is_held in turns:
        first = max(first, len(kept) - num_needed)
        reel.make_room(room, needed_from=first if first < len(kept) else None)
        for _ in range(room):
            kept.append(random.randrange(256))
            assert list(reel.append(image(kept[-1]))) == [len(kept) - 1]
        numbers = sorted(random.choices(range(first, len(kept)), k=random.randrange(1, 5)))
        frames = reel.frames(numbers)
        assert shown(frames) == [kept[number] for number in numbers]
        if is_held:
            held.append((frames, frames.clone()))
        del frames
    assert all(torch.equal(frames, at_first) for frames, at_first in held)
