"""Windows are times on a grid; which times is arithmetic that can be checked by hand."""

from fractions import Fraction
from itertools import islice, pairwise

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from mule.core.errors import RangeError
from mule.video.clips import (
    AVA_CLIP,
    CHARADES_CLIP,
    CHARADES_FRAME_RATE,
    ClipShape,
    ClipWindow,
    clip_window,
    clip_windows,
    exact,
    key_times,
    spread_windows,
)

shapes = st.builds(
    lambda frames, stride, slow: ClipShape(frames, stride, min(slow, frames)),
    st.integers(1, 64),
    st.integers(1, 8),
    st.integers(1, 16),
)


def test_no_key_times_no_windows():
    assert list(clip_windows([], AVA_CLIP, 30)) == []
    assert list(key_times(5, 5)) == []


@pytest.mark.parametrize("second", [2, 898])
def test_ava_takes_every_second_frame_from_32_before_the_key_frame_to_31_after(second):
    window = clip_window(second, AVA_CLIP, 30)
    centre = second * 30
    assert [time * 30 for time in window.times_s] == list(range(centre - 32, centre + 32, 2))
    assert window.times_s[16] == window.key_time_s == second


def test_charades_takes_32_consecutive_frames_and_every_fourth_for_the_slow_pathway():
    window = clip_window(10, CHARADES_CLIP, CHARADES_FRAME_RATE)
    assert [time * 24 for time in window.times_s] == list(range(240 - 16, 240 + 16))
    assert CHARADES_CLIP.slow_indices == tuple(range(0, 32, 4))


def test_slow_frames_of_ava_span_the_whole_clip():
    assert AVA_CLIP.slow_indices == (0, 4, 8, 13, 17, 22, 26, 31)


@pytest.mark.parametrize(("num_frames", "num_slow"), [(32, 8), (32, 4), (64, 16), (16, 4), (8, 8), (5, 1)])
def test_full_span_is_the_truncated_linspace(num_frames, num_slow):
    shape = ClipShape(num_frames, 2, num_slow)
    assert list(shape.slow_indices) == torch.linspace(0, num_frames - 1, num_slow).long().tolist()


@given(shape=shapes, key_ms=st.integers(0, 10_000), rate=st.sampled_from([24, 25, 30, Fraction(30000, 1001)]))
def test_times_lie_on_the_grid_and_the_key_frame_is_the_last_not_after_the_key_time(shape, key_ms, rate):
    window = clip_window(Fraction(key_ms, 1000), shape, rate)
    grid = [time * rate for time in window.times_s]
    assert all(index.denominator == 1 for index in grid)
    assert {after - before for before, after in pairwise(grid)} <= {shape.stride_frames}
    key_index = grid[0] + shape.span_frames // 2
    assert key_index / rate <= window.key_time_s + Fraction(1, 2000) < (key_index + 1) / rate


@given(index=st.integers(0, 10**6), rate=st.sampled_from([24, 25, 30, 50, 60, Fraction(30000, 1001)]))
def test_times_written_in_floats_or_milliseconds_mean_the_frame_they_were_read_from(index, rate):
    one = ClipShape(1, 1, 1)
    for key_time_s in (float(index / Fraction(rate)), round(float(index / Fraction(rate)), 3)):
        assert clip_window(key_time_s, one, rate).times_s == (index / Fraction(rate),)


def test_an_endless_row_of_key_times_is_asked_for_one_at_a_time():
    windows = clip_windows(key_times(1, period_s=0.25), AVA_CLIP, 30)
    assert [window.key_time_s for window in islice(windows, 3)] == [1, Fraction(5, 4), Fraction(3, 2)]


@pytest.mark.parametrize("num_video_frames", [1, 31, 32, 33, 100, 719])
@pytest.mark.parametrize("num_views", [1, 2, 3, 10])
def test_spread_views_reach_from_the_first_frame_to_the_last(num_video_frames, num_views):
    windows = spread_windows(num_video_frames, num_views, CHARADES_CLIP, 24)
    starts = [window.times_s[0] * 24 for window in windows]
    gap = max(num_video_frames - 32, 0)
    expected = [gap // 2] if num_views == 1 else [gap * k // (num_views - 1) for k in range(num_views)]
    assert starts == expected
    assert all(0 <= window.key_time_s * 24 < num_video_frames for window in windows)
    if num_views > 1 and num_video_frames >= 32:
        assert (windows[0].times_s[0], windows[-1].times_s[-1] * 24) == (0, num_video_frames - 1)


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda: ClipShape(0, 1, 1), "at least 1; got 0 and 1"),
        (lambda: ClipShape(8, 0, 1), "at least 1; got 8 and 0"),
        (lambda: ClipShape(8, 1, 9), "between 1 and num_frames = 8; got 9"),
        (lambda: ClipShape(32, 1, 5, "stride"), "must divide num_frames; got 5 and 32"),
        (lambda: ClipWindow(Fraction(0), ()), "at least one time"),
        (lambda: ClipWindow(Fraction(0), (Fraction(1), Fraction(0))), "must not go back"),
        (lambda: clip_window(-1, AVA_CLIP, 30), "must not be below zero"),
        (lambda: clip_window(1, AVA_CLIP, 0), "above zero frames per second; got 0"),
        (lambda: key_times(period_s=0), "period_s must be above zero"),
        (lambda: spread_windows(0, 3, AVA_CLIP, 30), "got 0 and 3"),
        (lambda: exact(float("inf")), "finite"),
    ],
)
def test_what_cannot_be_a_window_is_refused(make, said):
    with pytest.raises(RangeError, match=said):
        make()
