"""Streams that do not wait, and that break off: read as they come, opened anew when they end.

A stream that ends or fails is opened again after 1, 2, 4, … up to 30 seconds; a frame resets the wait. The clock of the
watch goes on meanwhile, so that key times tell when things happened, and go on rising. A file that is watched live is
shown at the speed of its own clock, to try things out; its end is its end.
"""

import math
import threading
import time
from collections.abc import Callable, Generator, Iterator
from dataclasses import dataclass, field
from fractions import Fraction

from mule.core.errors import RangeError, VideoError
from mule.video.reading import Clip, read_clips
from mule.video.sources import DecodeReport, LiveStream, VideoSource
from mule.watching.engine.looking import Rhythm, Sight, sights_of

WAITING_SCHEMES = frozenset({"http", "https"})
"""What a server sends as fast as it is asked: not live unless somebody says so."""

OpenClips = Callable[[VideoSource, Rhythm, Fraction, DecodeReport], Generator[Clip, None, None]]


def open_clips(
    source: VideoSource, rhythm: Rhythm, start_s: Fraction, report: DecodeReport
) -> Generator[Clip, None, None]:
    """The clips of a source from a time of its own clock on; a stream's begins when it is opened."""
    return read_clips(
        source,
        rhythm.windows(start_s),
        short_side_px=rhythm.short_side_px,
        keep_key_frames=True,
        report=report,
    )


def is_live(source: VideoSource) -> bool:
    """Whether the source cannot wait: a camera, or a stream that is sent whether anybody listens or not."""
    scheme = source.address.split("://", 1)[0].lower() if isinstance(source, LiveStream) else ""
    return isinstance(source, LiveStream) and scheme not in WAITING_SCHEMES


@dataclass(frozen=True)
class Patience:
    """How long to wait before a stream is opened anew, and when to give up."""

    first_wait_s: float = 1.0
    longest_wait_s: float = 30.0
    give_up_s: float = 600.0
    """After so long without a frame the stream is taken to be over."""

    def __post_init__(self) -> None:
        if not 0 < self.first_wait_s <= self.longest_wait_s:
            raise RangeError(
                f"waits must be above zero and rise; got {self.first_wait_s} s to {self.longest_wait_s} s."
            )


@dataclass
class LiveSights:
    """The sights of a live source, over as many openings as it takes."""

    source: VideoSource
    rhythm: Rhythm
    start_s: Fraction = Fraction(0)
    """The first key time."""
    patience: Patience = Patience()
    noted: Callable[[str], None] = lambda _: None
    open: OpenClips = open_clips
    clock: Callable[[], float] = time.monotonic
    stopping: threading.Event = field(default_factory=threading.Event)
    report: DecodeReport = field(default_factory=DecodeReport)
    num_openings: int = 0

    def __iter__(self) -> Iterator[Sight]:
        """Until the stream is over: it stayed silent for too long, or somebody set `stopping`.

        Raises:
            VideoError: no frame was ever seen, in all the time there was.
        """
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
                self.noted(f"{self.source}: silent for {self.patience.give_up_s:g} s; taken to be over")
                return
            self.noted(f"{self.source}: {reason}; opening it anew in {wait_s:g} s")
            self.stopping.wait(wait_s)
            wait_s = min(2 * wait_s, self.patience.longest_wait_s)
            if began_at is not None:
                offset_s = self._next_offset_s(self.clock() - began_at, latest_s)

    def _opened(self, offset_s: Fraction) -> Iterator[Sight]:
        self.num_openings += 1
        is_stream = isinstance(self.source, LiveStream)
        begin_s = Fraction(0) if is_stream else offset_s  # a file that is resumed goes on where it was
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
        """The key time of a stream's new beginning: the next of the grid that lies ahead."""
        every_s = self.rhythm.every_s
        steps = math.ceil(elapsed_s / every_s)
        if latest_s is not None:
            steps = max(steps, math.floor((latest_s - self.start_s) / every_s) + 1)
        return self.start_s + steps * every_s
