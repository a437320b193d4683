"""The key times of a source, one after another: the clip around each, as a file is read or as a stream arrives.

windows   ├── key ──┤├ link ┤├ link ┤├ link ┤├── key ──┤      links: single frames between key times, for a detector
                │       │       │       │         │
          detector and tracker see all of them; the network sees key times alone

*Live streams* do not wait, and they break off. A stream that ends or fails is opened again after 1, 2, 4, … up to 30
seconds; a frame resets the wait. The clock runs on meanwhile, so key times say when things happened, and keep rising. A
file watched live plays at the speed of its own clock, which is useful for trying things out; it ends where it ends.

*Threads.* Decoding, detecting and the network overlap (`Overlapped`):

    decoding ─▶ room for a few ─▶ detecting and linking ─▶ room for a few ─▶ network

Decoders, onnxruntime, OpenVINO and torch release Python's lock while they compute, so two cores are busy. The network may
use every core, since it has most to do; decoding and detecting use one thread each, or three thread pools would wait for
each other on two cores. When the room is full, a file waits. A live stream drops the oldest waiting key time instead, and
counts it; frames that only link actors are dropped before any key time.
"""

import math
import threading
import time
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Generic, TypeVar

import torch

from mule.core.errors import RangeError, VideoError
from mule.video.clips import ClipShape, ClipWindow, PacedWindows, clip_window
from mule.video.reading import Clip, read_clips, video_facts
from mule.video.sources import DecodeReport, FrameStream, LiveStream, VideoSource

T = TypeVar("T")

LINK_STEPS = 5
"""A detector sees this many frames per key time."""
WAITING_SCHEMES = frozenset({"http", "https"})
"""Servers send these as fast as the reader takes them, so they are not live by themselves."""
JOIN_S = 5.0
"""How long `Overlapped.close` waits for its thread; one that hangs in a network read ends with the process."""


@dataclass(frozen=True)
class Rhythm:
    """When key times are, and which frames belong to each."""

    every_s: Fraction
    shape: ClipShape
    frame_rate: Fraction
    short_side_px: int | None
    link_steps: int = 1
    """Frames per key time that the detector sees; 1 is the key frame alone."""
    end_s: Fraction | None = None
    """Where the source ends, if that is known."""

    @property
    def link_every_s(self) -> Fraction:
        """Seconds from one detected frame to the next."""
        return self.every_s / self.link_steps

    def windows(self, start_s: Fraction = Fraction(0)) -> PacedWindows:
        """Without end: the clip at each key time from `start_s` on, and a single frame for each link between them.

        A clip lies inside the source where it can: at both ends it moves inwards, because no network has been trained on
        clips that stand still for half their length. A single frame's window begins as early as a clip's would, so
        that windows begin, and end, in the order of key times.
        """

        def window(number: int) -> ClipWindow:
            whole = self.window(start_s + number * self.link_every_s)
            is_key = number % self.link_steps == 0
            return whole if is_key else ClipWindow(whole.key_time_s, whole.times_s[:1])

        return PacedWindows(window, start_s=start_s, step_s=self.link_every_s)

    def window(self, key_time_s: Fraction) -> ClipWindow:
        """The clip around a key time, moved inside the source where it would reach over an end."""
        window = clip_window(key_time_s, self.shape, self.frame_rate)
        begin_s, last_s = window.times_s[0], window.times_s[-1]
        moved_s = Fraction(0)
        if self.end_s is not None and key_time_s < self.end_s:  # key times behind the end stay where they are
            over = math.ceil((last_s - self.end_s) * self.frame_rate) + 1
            moved_s = -max(over, 0) / self.frame_rate
        if begin_s + moved_s < 0:
            moved_s = -begin_s
        return ClipWindow(window.key_time_s, tuple(time_s + moved_s for time_s in window.times_s))


@dataclass(frozen=True)
class Sight:
    """A frame for the detector; at a key time, with the clip around it."""

    clip: Clip
    key_time_s: Fraction
    """On the clock of the whole watch, which runs on when a stream is opened again."""
    is_key: bool
    arrived_at: float
    """When the last frame of the clip arrived, on the monotonic clock."""


def open_clips(
    source: VideoSource, rhythm: Rhythm, start_s: Fraction, report: DecodeReport
) -> Generator[Clip, None, None]:
    """The clips of a source from a time on, by its own clock; a stream's clock starts when it is opened."""
    windows = rhythm.windows(start_s)
    return read_clips(
        source, windows, short_side_px=rhythm.short_side_px, keep_key_frames=True, report=report
    )


def sights_of(clips: Iterable[Clip], rhythm: Rhythm, *, offset_s: Fraction = Fraction(0)) -> Iterator[Sight]:
    """The same clips as sights, `offset_s` later on the clock of the watch; the first of them is at a key time."""
    first_s: Fraction | None = None
    for clip in clips:
        first_s = clip.window.key_time_s if first_s is None else first_s
        is_key = (clip.window.key_time_s - first_s) % rhythm.every_s == 0
        yield Sight(clip, clip.window.key_time_s + offset_s, is_key, time.monotonic())


def is_live(source: VideoSource) -> bool:
    """Whether the source cannot wait: a camera, or a stream that is sent whether or not anybody reads it."""
    scheme = source.address.split("://", 1)[0].lower() if isinstance(source, LiveStream) else ""
    return isinstance(source, LiveStream) and scheme not in WAITING_SCHEMES


def num_key_times(sources: Iterable[VideoSource], every_s: float) -> float:
    """Return how many key times the sources have together: live streams without end, frames in memory none.

    Whoever brings frames says nothing of their number, so they count as few.
    """
    count = 0.0
    for source in sources:
        if isinstance(source, LiveStream):
            return math.inf
        if not isinstance(source, FrameStream):
            with suppress(VideoError):  # whoever watches it says so
                count += float(video_facts(source).duration_s or 0) / every_s
    return count


@dataclass(frozen=True)
class Patience:
    """How long to wait before a stream is opened again, and when to give up."""

    first_wait_s: float = 1.0
    longest_wait_s: float = 30.0
    give_up_s: float = 600.0
    """A stream without a frame for this long counts as over."""

    def __post_init__(self) -> None:
        if not 0 < self.first_wait_s <= self.longest_wait_s:
            raise RangeError(
                f"waits must be above 0 s and rise; got {self.first_wait_s} s to {self.longest_wait_s} s."
            )


@dataclass
class LiveSights:
    """The sights of a live source, which is opened as often as it takes."""

    source: VideoSource
    rhythm: Rhythm
    start_s: Fraction = Fraction(0)
    """The first key time."""
    patience: Patience = Patience()
    noted: Callable[[str], None] = lambda _: None
    open: Callable[[VideoSource, Rhythm, Fraction, DecodeReport], Generator[Clip, None, None]] = open_clips
    clock: Callable[[], float] = time.monotonic
    stopping: threading.Event = field(default_factory=threading.Event)
    report: DecodeReport = field(default_factory=DecodeReport)
    num_openings: int = 0

    def __iter__(self) -> Iterator[Sight]:
        """Sights until the stream stays silent for too long, or `stopping` is set."""
        began_at: float | None = None
        latest_at, wait_s = self.clock(), self.patience.first_wait_s
        offset_s, latest_s = self.start_s, None
        while not self.stopping.is_set():
            reason = ""
            try:
                for sight in self._opened(offset_s):
                    latest_at, wait_s = self.clock(), self.patience.first_wait_s
                    began_at = latest_at if began_at is None else began_at
                    latest_s = sight.key_time_s
                    yield sight
                reason = self.report.stopped_by or "it ended"
            except VideoError as error:
                reason = str(error).removeprefix(f"{self.source}: ").rstrip(".")
            if not isinstance(self.source, LiveStream) or self.stopping.is_set():
                return
            if self.clock() - latest_at > self.patience.give_up_s:
                if latest_s is None:
                    raise VideoError(f"{self.source}: a stream must show a frame; {reason}.")
                self.noted(f"{self.source}: no frame for {self.patience.give_up_s:g} s; the stream is over")
                return
            self.noted(f"{self.source}: {reason}; opening it again in {wait_s:g} s")
            self.stopping.wait(wait_s)
            wait_s = min(2 * wait_s, self.patience.longest_wait_s)
            if began_at is not None:
                offset_s = self._next_offset_s(self.clock() - began_at, latest_s)

    def _opened(self, offset_s: Fraction) -> Iterator[Sight]:
        self.num_openings += 1
        is_stream = isinstance(self.source, LiveStream)
        begin_s = Fraction(0) if is_stream else offset_s  # a file is resumed where it was left
        clips = self.open(self.source, self.rhythm, begin_s, self.report)
        opened_at = self.clock()
        try:
            for sight in sights_of(clips, self.rhythm, offset_s=offset_s - begin_s):
                if not is_stream:
                    ahead_s = float(sight.clip.window.times_s[-1] - begin_s) - (self.clock() - opened_at)
                    if ahead_s > 0 and self.stopping.wait(ahead_s):
                        return
                if self.stopping.is_set():
                    return
                yield Sight(sight.clip, sight.key_time_s, sight.is_key, self.clock())
        finally:
            clips.close()

    def _next_offset_s(self, elapsed_s: float, latest_s: Fraction | None) -> Fraction:
        """The key time at which a stream starts again: the next on the grid that lies ahead."""
        every_s = self.rhythm.every_s
        steps = math.ceil(elapsed_s / every_s)
        if latest_s is not None:
            steps = max(steps, math.floor((latest_s - self.start_s) / every_s) + 1)
        return self.start_s + steps * every_s


class Overlapped(Generic[T]):
    """The same items in the same order, made ahead in a thread of their own.

    An error in that thread is raised here, the same object, after the items made before it. `close` ends the thread. Torch
    uses one core in it.
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
            drops: with None, the thread waits for room. Otherwise it drops the oldest waiting item for which this is
                true, or the oldest of all if there is none.
            dropped: called with each dropped item, in the thread that makes them.
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
        torch.set_num_threads(num_threads)  # as before, for this thread and those started later

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
        """Ends the thread; no more items follow."""
        with self._changed:
            self._is_closed = True
            self._waiting.clear()
            self._changed.notify_all()
        if threading.current_thread() is not self._thread:
            self._thread.join(JOIN_S)

    def _make(self) -> None:
        torch.set_num_threads(1)  # for this thread, and for those started until __init__ sets it back
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
        """Hands over an item; False once `close` was called."""
        dropped: T | None = None
        with self._changed:
            if self._drops is None:
                self._changed.wait_for(lambda: len(self._waiting) < self._room or self._is_closed)
            elif len(self._waiting) >= self._room:
                place = next((at for at, each in enumerate(self._waiting) if self._drops(each)), 0)
                dropped = self._waiting[place]
                del self._waiting[place]
            if self._is_closed:
                return False
            self._waiting.append(item)
            self._changed.notify_all()
        if dropped is not None:
            self._dropped(dropped)
        return True
