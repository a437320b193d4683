"""Memory is that of the clips under way, however long the video."""

import subprocess
import sys
import weakref
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
from rendered_video import render, repeat

from mule.video import reading
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


def test_pixels_live_no_longer_than_the_clips_that_need_them(numbered_video, monkeypatch):
    seen: list[weakref.ref[np.ndarray]] = []

    def num_alive():
        return sum(image() is not None for image in seen)

    class Watched(np.ndarray):
        """An array that can be watched."""

    class WatchingConverter(RgbConverter):
        def __call__(self, frame):
            image = np.array(super().__call__(frame)).view(Watched)
            seen.append(weakref.ref(image))
            return image

    monkeypatch.setattr(reading, "RgbConverter", WatchingConverter)
    most = 0
    for _ in reading.read_clips(
        numbered_video, clip_windows(key_times(0, 6, period_s=Fraction(1, 5)), AVA_CLIP, 30)
    ):
        most = max(most, num_alive())
    assert 32 <= most <= 2 * 32  # of 200; a window and what its neighbours have in advance
    assert len(seen) == 101  # each even frame once, and the last, to which times after the end are clamped
    assert num_alive() == 0


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
