"""Videos for these tests, rendered once."""

from fractions import Fraction

import pytest
from rendered_video import render


@pytest.fixture(scope="session")
def numbered_video(tmp_path_factory):
    """Two hundred numbered frames at 30 per second: B-frames, a key frame every 24."""
    return render(tmp_path_factory.mktemp("video") / "numbered.mp4", 200)


@pytest.fixture
def eager_seeking(monkeypatch):
    """Jumps over every gap of half a second, so that short videos meet the jumps of long ones."""
    monkeypatch.setattr("mule.video.reading.SEEK_AHEAD_S", Fraction(1, 2))
