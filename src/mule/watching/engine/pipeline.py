"""Work that overlaps: what one thread makes, another takes, with little room between them.

    decoding ─▶ room for a few ─▶ detecting and linking ─▶ room for a few ─▶ network

Decoders, onnxruntime, OpenVINO and torch let go of Python's lock while they compute, so two cores are busy. The network
may take every core, since it has most to do; decoding and detecting compute in one thread each, or three teams of threads
would wait for each other on two cores. Where the room is full, a file waits. A live stream does not: there the oldest
waiting key time that nobody has begun is dropped, and counted; frames that only link actors are dropped before any key
time.
"""

import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from typing import Generic, TypeVar

import torch

from mule.core.errors import RangeError

T = TypeVar("T")

JOIN_S = 5.0
"""How long closing waits for a thread; one that hangs in a network read ends with the process."""


class Overlapped(Generic[T]):
    """The same items in the same order, made in a thread of their own ahead of who takes them.

    What the making raises is raised here, the same object, after the items made before it. Closing ends the thread. What
    torch computes in it takes one core.
    """

    def __init__(
        self,
        items: Iterable[T],
        *,
        room: int = 2,
        drops: Callable[[T], bool] | None = None,
        dropped: Callable[[T], None] = lambda _: None,
    ) -> None:
        """Starts at once.

        Args:
            items: what to make; a generator is closed in its own thread.
            room: how many items may wait.
            drops: None waits where there is no room. Else the oldest waiting item for which it is true is dropped first,
                and the oldest of all where there is none.
            dropped: is told of each item that was dropped, in the thread that makes them.
        """
        if room < 1:
            raise RangeError(f"room must be at least 1; got {room}.")
        self._items, self._room = items, room
        self._drops, self._dropped = drops, dropped
        self._waiting: deque[T] = deque()
        self._error: BaseException | None = None
        self._is_done = self._is_closed = False
        self._changed = threading.Condition()
        self._is_alone = threading.Event()
        self._thread = threading.Thread(target=self._make, name="mule watch", daemon=True)
        num_threads = torch.get_num_threads()
        self._thread.start()
        self._is_alone.wait()
        torch.set_num_threads(num_threads)  # of this thread, and of those to come, as before

    def __iter__(self) -> Iterator[T]:
        return self

    def __next__(self) -> T:
        with self._changed:
            self._changed.wait_for(lambda: self._waiting or self._is_done or self._is_closed)
            if self._waiting and not self._is_closed:
                item = self._waiting.popleft()
                self._changed.notify_all()
                return item
            error, self._error = self._error, None
        if error is not None and not self._is_closed:
            raise error
        raise StopIteration

    def close(self) -> None:
        """Ends the thread; nothing more is handed out."""
        with self._changed:
            self._is_closed = True
            self._waiting.clear()
            self._changed.notify_all()
        if threading.current_thread() is not self._thread:
            self._thread.join(JOIN_S)

    def _make(self) -> None:
        torch.set_num_threads(1)  # of this thread, and of those to come until it is told otherwise
        self._is_alone.set()
        iterator = iter(self._items)
        try:
            for item in iterator:
                if not self._put(item):
                    break
        except BaseException as error:
            self._error = error
        finally:
            close = getattr(iterator, "close", None)
            if close is not None:
                close()
            with self._changed:
                self._is_done = True
                self._changed.notify_all()

    def _put(self, item: T) -> bool:
        """Whether anybody is still there to take it."""
        gone: T | None = None
        with self._changed:
            if self._drops is None:
                self._changed.wait_for(lambda: len(self._waiting) < self._room or self._is_closed)
            elif len(self._waiting) >= self._room:
                gone = self._drop()
            if self._is_closed:
                return False
            self._waiting.append(item)
            self._changed.notify_all()
        if gone is not None:
            self._dropped(gone)
        return True

    def _drop(self) -> T:
        drops = self._drops or (lambda _: True)
        place = next((at for at, each in enumerate(self._waiting) if drops(each)), 0)
        gone = self._waiting[place]
        del self._waiting[place]
        return gone
