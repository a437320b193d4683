"""A long stream needs no more memory than a short one."""

import resource
from pathlib import Path

import pytest
from tiny_bundles import MadeUpBoxes, grey_video

from mule.watching.engine.watch import WatchSettings, open_watch

pytestmark = pytest.mark.slow

MOST_GROWTH_MB = 20


def resident_mb():
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * resource.getpagesize() / 1e6


def passes_by(period_s, offset_s):
    """A new person every period, so that tracks come and go all the time."""

    def box(time_s):
        left = ((time_s + offset_s) % period_s) / period_s
        return (left * 0.7, 0.2, left * 0.7 + 0.25, 0.9) if left < 0.9 else None

    return box


def test_memory_is_flat_from_minute_2_to_minute_10(tmp_path, bundle):
    video = grey_video(tmp_path / "long.mp4", seconds=10 * 60, rate=2)
    finder = MadeUpBoxes(passes_by(20, 0), passes_by(13, 5), has_ball=True)
    at_minute: dict[int, float] = {}
    for moment in open_watch(video, bundle, detector=finder, settings=WatchSettings(every_s=5.0)):
        minute, rest = divmod(moment.key_time_s, 60)
        if rest == 0:
            at_minute[int(minute)] = resident_mb()
    assert len(at_minute) == 10
    growth_mb = max(mb for minute, mb in at_minute.items() if minute >= 2) - at_minute[2]
    assert growth_mb < MOST_GROWTH_MB
