"""Threads that overlap: nothing is lost, reordered, repaired or left running."""

import threading
import time

import pytest

from mule.core.errors import RangeError, VideoError
from mule.watching.engine.key_times import Overlapped


def test_without_items_there_are_none():
    assert list(Overlapped([])) == []


@pytest.mark.parametrize("room", [1, 3])
def test_items_come_in_their_order_and_all_of_them(room):
    assert list(Overlapped(range(50), room=room)) == list(range(50))


def test_nobody_makes_more_than_there_is_room_for():
    made = []
    items = Overlapped((made.append(number) or number for number in range(100)), room=2)
    assert next(items) == 0
    time.sleep(0.05)
    assert len(made) <= 1 + 2 + 1  # taken, waiting, and the one in hand
    items.close()


@pytest.mark.parametrize("error", [VideoError("the camera is gone."), KeyboardInterrupt(), ValueError("x")])
def test_an_error_crosses_unchanged_after_what_was_made_before_it(error):
    def failing():
        yield 1
        raise error

    items = Overlapped(failing())
    assert next(items) == 1
    with pytest.raises(type(error)) as raised:
        next(items)
    assert raised.value is error


def test_closing_ends_the_thread_and_closes_what_it_reads():
    closed = threading.Event()

    def endless():
        try:
            while True:
                yield 0
        finally:
            closed.set()

    before = threading.active_count()
    items = Overlapped(endless())
    next(items)
    items.close()
    assert closed.wait(5)
    assert threading.active_count() == before
    assert list(items) == []


def test_a_chain_closes_from_its_source():
    def forever():
        while True:
            time.sleep(0.001)
            yield 0

    source = Overlapped(forever())
    second = Overlapped(item + 1 for item in source)
    assert next(second) == 1
    source.close()
    second.close()
    assert threading.active_count() == 1 or not any(t.name == "mule watch" for t in threading.enumerate())


def test_the_oldest_that_may_go_is_dropped_first_and_every_drop_is_told():
    done, go = threading.Event(), threading.Event()

    def stream():
        yield 0
        go.wait(5)
        yield from (1, 2, 3, 4, 5)
        done.set()

    dropped = []
    items = Overlapped(stream(), room=2, drops=lambda item: item % 2 == 0, dropped=dropped.append)
    assert next(items) == 0
    go.set()
    assert done.wait(5)
    kept = list(items)
    assert dropped == [2, 1, 4]  # 1 2 | 3 → 2 goes; 1 3 | 4 → none even, 1 goes; 3 4 | 5 → 4 goes
    assert kept == [3, 5]


def test_room_is_at_least_one():
    with pytest.raises(RangeError, match="room must be at least 1"):
        Overlapped([], room=0)
