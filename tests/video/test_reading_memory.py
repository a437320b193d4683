"""Memory is that of the clips under way, however long the video."""

import gc
import subprocess
import sys
import weakref
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
from av.video.frame import VideoFrame
from rendered_video import render, repeat

from mule.video import reading, reel
from mule.video.clips import AVA_CLIP, clip_windows, key_times
from mule.video.decode import RgbConverter

PEAK_OF_READING = """
import sys
from pathlib import Path
from mule.video.clips import AVA_CLIP, clip_windows, key_times
from mule.video.reading import read_clips
for clip in read_clips(sys.argv[1], clip_windows(key_times(), AVA_CLIP, 30)):
    pass
print(next(line.split()[1] for line in Path("/proc/self/status").read_text().splitlines() if "VmHWM" in line))
"""


def test_pixels_live_no_longer_than_the_clips_that_need_them(numbered_video, tmp_path, monkeypatch):
    memory: list[weakref.ref[np.ndarray]] = []

    def num_alive():
        return sum(len(images) for each in memory if (images := each()) is not None)

    class WatchedStrip(reel.Strip):
        def __init__(self, num_frames, size):
            super().__init__(num_frames, size)
            memory.append(weakref.ref(self.images))

    monkeypatch.setattr(reel, "Strip", WatchedStrip)
    path = repeat(numbered_video, tmp_path / "five_times.mp4", 5)
    most, held = 0, None
    for clip in reading.read_clips(path, clip_windows(key_times(period_s=Fraction(1, 5)), AVA_CLIP, 30)):
        held, most = clip.frames, max(most, num_alive())
        del clip
    assert (
        32 <= most <= 4 * 32
    )  # of 500; a window and what its neighbours have in advance, here and in a clip held
    del held
    assert num_alive() == 0


def test_every_frame_that_is_needed_is_converted_once(numbered_video, monkeypatch):
    times = []

    class WatchedConverter(RgbConverter):
        def __call__(self, frame):
            times.append(frame.pts)
            return super().__call__(frame)

    monkeypatch.setattr(reading, "RgbConverter", WatchedConverter)
    windows = clip_windows(key_times(0, 6, period_s=Fraction(1, 5)), AVA_CLIP, 30)
    assert sum(1 for _ in reading.read_clips(numbered_video, windows)) == 30
    assert len(times) == 101  # each even frame, and the last, to which times after the end are clamped
    assert sorted(set(times)) == times


def test_frames_need_no_garbage_collection_to_go(numbered_video):
    gc.collect()
    gc.set_debug(gc.DEBUG_SAVEALL)
    try:
        for _ in reading.read_clips(numbered_video, clip_windows(key_times(0, 6), AVA_CLIP, 30)):
            pass
        gc.collect()
        assert not any(isinstance(each, VideoFrame | np.ndarray) for each in gc.garbage)
    finally:
        gc.set_debug(0)
        gc.garbage.clear()


@pytest.mark.slow
@pytest.mark.skipif(
    not Path("/proc/self/status").exists(), reason="reads the peak from /proc, which is Linux's"
)
def test_ten_times_the_length_takes_no_more_memory(tmp_path):
    short = render(tmp_path / "short.mp4", 900, size=(120, 160))
    long = repeat(short, tmp_path / "long.mp4", 10)
    short_kb, long_kb = (
        int(
            subprocess.run(
                [sys.executable, "-c", PEAK_OF_READING, str(path)], capture_output=True, check=True
            ).stdout
        )
        for path in (short, long)
    )
    assert long_kb < 1.1 * short_kb
