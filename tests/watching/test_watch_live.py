"""Live sources: opened anew when they break off, key times that go on rising, an end when nothing comes."""

import threading
from fractions import Fraction
from pathlib import Path

import pytest
import torch

from mule.core.errors import VideoError
from mule.video.clips import ClipShape
from mule.video.reading import Clip
from mule.video.sources import LiveStream, VideoFile, VideoSource, video_source
from mule.watching.engine.key_times import LiveSights, Patience, Rhythm, is_live

RHYTHM = Rhythm(Fraction(1), ClipShape(4, 1, 4), Fraction(8), None)
CAMERA = LiveStream("rtsp://user:secret@camera/1")
PATIENCE = Patience()


class Clock:
    """Time that passes when somebody waits, and a second with every clip."""

    def __init__(self):
        self.now_s = 100.0
        self.waits = []

    def __call__(self):
        return self.now_s

    def wait(self, seconds):
        self.waits.append(seconds)
        self.now_s += seconds
        return False


def sights(openings, *, patience=PATIENCE, source: VideoSource = CAMERA, start_s=0):
    """A source whose n-th opening gives so many clips and then ends, or fails where it is an error."""
    clock, said, left = Clock(), [], list(openings)

    def opened(_source, rhythm, start_s, _report):
        clips = left.pop(0) if left else VideoError("nobody answers.")
        if isinstance(clips, Exception):
            raise clips
        for _, window in zip(range(clips), rhythm.windows(start_s), strict=False):
            clock.now_s += 1
            yield Clip(window, torch.zeros(4, 3, 2, 2, dtype=torch.uint8), (2, 2), 0)

    class Stopping(threading.Event):
        def wait(self, timeout=None):
            return clock.wait(timeout)

    live = LiveSights(source, RHYTHM, Fraction(start_s), patience, said.append, opened, clock, Stopping())
    return live, clock, said


def times(found):
    return [float(sight.key_time_s) for sight in found]


def test_a_stream_that_never_shows_anything_is_an_error_in_the_end():
    live, clock, said = sights([], patience=Patience(give_up_s=40.0))
    with pytest.raises(VideoError, match="a stream must show a frame; nobody answers"):
        list(live)
    assert clock.waits == [1, 2, 4, 8, 16, 30]
    assert not any("secret" in sentence for sentence in said)


def test_a_broken_stream_is_opened_anew_and_its_clock_goes_on():
    live, clock, said = sights([3, VideoError("refused."), 2], patience=Patience(give_up_s=5.0))
    found = times(live)
    assert found[:3] == [0, 1, 2]
    # two seconds after the first clip, then one and two seconds of waiting: five seconds have passed
    assert found[3:] == [5, 6]
    assert clock.waits[:2] == [1, 2]
    assert live.num_openings >= 3
    assert "opening it again in 1 s" in said[0]


def test_what_is_said_of_a_broken_stream_names_it_once():
    name = str(sights([])[0].source)
    live, _, said = sights([1, VideoError(f"{name}: it must answer.")], patience=Patience(give_up_s=2.0))
    list(live)
    assert f"{name}: it must answer; opening it again in 2 s" in said


def test_key_times_rise_though_a_stream_returns_at_once():
    live, _, _ = sights([2, 2, 2], patience=Patience(first_wait_s=0.01, longest_wait_s=0.5, give_up_s=1.0))
    found = times(live)
    assert found == sorted(set(found))
    assert len(found) == 6


def test_waiting_starts_over_after_a_frame():
    live, clock, _ = sights([1, VideoError("a."), VideoError("b."), 1], patience=Patience(give_up_s=9.0))
    list(live)
    assert clock.waits[:4] == [1, 2, 4, 1]


def test_a_file_is_shown_at_its_own_speed_and_ends():
    live, clock, _ = sights([3], source=VideoFile(Path("clip.mp4")))
    opened_at = clock()
    assert times(live) == [0, 1, 2]
    assert live.num_openings == 1
    assert clock() - opened_at >= 2


def test_stopping_ends_it():
    live, _, _ = sights([100])
    found = []
    for sight in live:
        found.append(sight)
        if len(found) == 2:
            live.stopping.set()
    assert len(found) == 2


def test_a_resumed_stream_goes_on_behind_what_was_seen():
    live, _, _ = sights([2], patience=Patience(give_up_s=0.5), start_s=7)
    assert times(live) == [7, 8]


def test_a_resumed_file_goes_on_where_it_was_without_waiting_for_what_was_seen():
    live, clock, _ = sights([2], source=VideoFile(Path("clip.mp4")), start_s=7)
    found = list(live)
    assert times(found) == [7, 8]
    assert [sight.clip.window.key_time_s for sight in found] == [7, 8]
    assert sum(clock.waits) < 2


def test_what_is_live():
    assert is_live(CAMERA)
    assert is_live(video_source("/dev/video3"))
    assert not is_live(video_source("https://example.org/a.mp4"))
    assert not is_live(VideoFile(Path("a.mp4")))
