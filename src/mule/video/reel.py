"""Memory for the frames of clips: they lie side by side, so that overlapping clips are views of the same pixels."""

import weakref
from collections.abc import Sequence

import numpy as np
import torch
from jaxtyping import UInt8
from torch import Tensor

FrameArray = UInt8[np.ndarray, "rows cols channels"]


class Reel:
    """The frames that clips need, numbered from zero in the order they are shown.

    They lie on a strip of memory. When it is full, the frames still needed move to another strip: the previous one if
    no clip of it is held any more, else a new one. So a clip never changes after it was handed out.
    """

    def __init__(self, size: tuple[int, int]) -> None:
        self._strip = self._strip_before = Strip(0, size)
        self._size = size
        self._first = 0
        self._end = 0

    @property
    def room(self) -> int:
        """How many frames can be appended before `make_room` is called."""
        return len(self._strip.images) - (self._end - self._first)

    def make_room(self, num_frames: int, *, needed_from: int | None) -> None:
        """Make room for more frames, and forget those before number `needed_from`; all, if it is None."""
        first = self._end if needed_from is None else needed_from
        needed = self._strip.images[first - self._first : self._end - self._first]
        strip = self._strip_before
        if strip.is_held or len(strip.images) < len(needed) + num_frames:
            # Longer than needed, so that it can be reused: new memory costs more than copying.
            strip = Strip(2 * max(len(needed), num_frames), self._size)
        strip.images[: len(needed)] = needed
        self._strip, self._strip_before = strip, self._strip
        self._first = first

    def append(self, image: FrameArray, *, times: int = 1) -> range:
        """Store a frame so many times in a row, and return its numbers; its pixels are copied."""
        numbers = range(self._end, self._end + times)
        self._strip.images[self._end - self._first : numbers.stop - self._first] = image
        self._end = numbers.stop
        return numbers

    def frames(self, numbers: Sequence[int]) -> UInt8[Tensor, "frames channels rows cols"]:
        """Return the frames of these numbers: a view of the reel if they are evenly spaced, else a copy."""
        places = np.subtract(numbers, self._first)
        steps = np.diff(places)
        step = steps[0] if len(steps) else 1
        if step < 1 or (steps != step).any():
            images = self._strip.images[places]
        else:
            images = self._strip.lend(slice(places[0], places[-1] + 1, step))
        return torch.from_numpy(images).permute(0, 3, 1, 2)


class Strip:
    """Memory for some frames, and the views of it that are still alive."""

    def __init__(self, num_frames: int, size: tuple[int, int]) -> None:
        self.images = np.empty((num_frames, *size, 3), np.uint8)
        self._views: list[weakref.ref[np.ndarray]] = []

    @property
    def is_held(self) -> bool:
        """Whether a view is alive: torch keeps it as long as any tensor shares its memory."""
        self._views = [view for view in self._views if view() is not None]
        return bool(self._views)

    def lend(self, places: slice) -> UInt8[np.ndarray, "frames rows cols channels"]:
        """Return a view of some frames; as long as it lives, this memory is held."""
        view = self.images[places]
        self._views.append(weakref.ref(view))
        return view
