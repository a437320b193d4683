"""Clips hold the frames of their windows; each frame is decoded once; edges are clamped and counted."""

from fractions import Fraction
from itertools import pairwise

import numpy as np
import pytest
import torch
from rendered_video import number_of, numbers_of, render

from mule.core.errors import RangeError
from mule.video.clips import (
    AVA_CLIP,
    CHARADES_CLIP,
    ClipShape,
    ClipWindow,
    clip_window,
    clip_windows,
    key_times,
)
from mule.video.reading import read_clips
from mule.video.sources import DecodeReport

NINE = ClipShape(num_frames=9, stride_frames=3, num_slow_frames=3)


def expected_numbers(window, rate=30, num_frames=200):
    """Frames by the stated rule, for a constant rate."""
    return [int(np.clip(time * rate, 0, num_frames - 1)) for time in window.times_s]


def test_no_windows_no_clips(numbered_video):
    assert list(read_clips(numbered_video, [])) == []


@pytest.mark.usefixtures("eager_seeking")
@pytest.mark.parametrize("period_s", [Fraction(1, 10), Fraction(1, 3), 1, 2])
def test_clips_hold_the_frames_of_their_windows(numbered_video, period_s):
    windows = list(clip_windows(key_times(0, 6, period_s=period_s), NINE, 30))
    clips = list(read_clips(numbered_video, windows))
    assert [clip.window for clip in clips] == windows
    for clip in clips:
        assert numbers_of(clip.frames) == expected_numbers(clip.window)


def test_overlapping_clips_decode_every_frame_once(numbered_video):
    report = DecodeReport()
    windows = clip_windows(key_times(0, 6, period_s=Fraction(1, 10)), AVA_CLIP, 30)
    assert len(list(read_clips(numbered_video, windows, report=report))) == 60
    assert report.num_decoded <= 200


@pytest.mark.parametrize("period_s", [Fraction(1, 30), Fraction(1, 3), Fraction(1, 2), 1])
@pytest.mark.parametrize("short_side_px", [None, 20])
def test_overlapping_clips_equal_clips_read_alone(numbered_video, period_s, short_side_px):
    windows = list(clip_windows(key_times(0, 6, period_s=period_s), AVA_CLIP, 30))
    together = list(read_clips(numbered_video, windows, short_side_px=short_side_px))
    for index in range(0, len(windows), max(len(windows) // 5, 1)):
        (alone,) = read_clips(numbered_video, [windows[index]], short_side_px=short_side_px)
        assert torch.equal(together[index].frames, alone.frames)


def test_clips_that_were_handed_out_stay_as_they_are(numbered_video):
    windows = clip_windows(key_times(0, 6, period_s=Fraction(1, 5)), NINE, 30)
    clips = [(clip.frames, clip.frames.clone()) for clip in read_clips(numbered_video, windows)]
    assert len(clips) == 30
    assert all(torch.equal(frames, at_first) for frames, at_first in clips)


def test_overlapping_clips_share_their_pixels(numbered_video):
    windows = clip_windows(key_times(2, 4, period_s=Fraction(1, 10)), CHARADES_CLIP, 30)
    clips = list(read_clips(numbered_video, windows))
    shared = [b.frames.data_ptr() == a.frames[3].data_ptr() for a, b in pairwise(clips)]
    assert sum(shared) >= 0.8 * len(shared)  # all but where the memory of one strip ended


@pytest.mark.parametrize(("rate", "start_s", "stop_s"), [(30, 0, 1), (30, 6, 7), (75, 3, 4)])
def test_clips_that_repeat_frames_share_them_too(numbered_video, rate, start_s, stop_s):
    windows = clip_windows(key_times(start_s, stop_s, period_s=Fraction(1, 15)), CHARADES_CLIP, rate)
    clips = list(read_clips(numbered_video, windows))
    size = clips[0].frames.numel()
    shared = [abs(b.frames.data_ptr() - a.frames.data_ptr()) < size for a, b in pairwise(clips)]
    assert sum(shared) >= 0.7 * len(shared)


@pytest.mark.usefixtures("eager_seeking")
def test_a_gap_between_clips_is_jumped_over(numbered_video):
    report = DecodeReport()
    clips = list(read_clips(numbered_video, clip_windows([0, 6], ClipShape(2, 1, 1), 30), report=report))
    assert numbers_of(clips[1].frames) == [179, 180]
    assert report.num_decoded < 100


def test_times_before_the_first_and_after_the_last_frame_are_clamped_and_counted(numbered_video):
    report = DecodeReport()
    windows = list(clip_windows([0, 3, Fraction(199, 30)], AVA_CLIP, 30))
    first, middle, last = read_clips(numbered_video, windows, report=report)
    assert numbers_of(first.frames) == [0] * 16 + list(range(0, 32, 2))
    assert numbers_of(last.frames) == list(range(167, 200, 2)) + [199] * 15
    assert (first.num_clamped, middle.num_clamped, last.num_clamped) == (16, 0, 15)
    assert report.num_clamped == 31


def test_windows_after_the_end_are_not_read_and_the_report_says_from_where(numbered_video):
    report = DecodeReport()
    windows = clip_windows(key_times(5, period_s=Fraction(1, 2)), NINE, 30)
    clips = list(read_clips(numbered_video, windows, report=report))
    assert [clip.window.key_time_s for clip in clips] == [5, 5.5, 6, 6.5]
    assert report.unread_from_s == 7


def test_a_nominal_rate_repeats_or_skips_frames_of_the_file(tmp_path):
    path = render(tmp_path / "slow.mp4", 60, rate=10)
    (clip,) = read_clips(path, [clip_window(2, ClipShape(12, 1, 1), 30)])
    assert numbers_of(clip.frames) == [18] * 3 + [19] * 3 + [20] * 3 + [21] * 3


def test_key_frames_come_in_full_size_beside_scaled_clips(numbered_video):
    windows = list(clip_windows(key_times(0, 6), NINE, 30))
    for clip in read_clips(numbered_video, windows, short_side_px=24, keep_key_frames=True):
        assert clip.frames.shape == (9, 3, 24, 32)
        assert clip.source_size == (48, 64)
        assert clip.key_frame is not None
        assert clip.key_frame.shape == (3, 48, 64)
        assert number_of(clip.key_frame) == clip.window.key_time_s * 30


def test_the_key_frame_may_lie_outside_the_window(numbered_video):
    windows = [
        ClipWindow(Fraction(1), (Fraction(3), Fraction(4))),
        ClipWindow(Fraction(5), (Fraction(2),)),
    ]
    clips = list(read_clips(numbered_video, windows, keep_key_frames=True))
    assert [number_of(clip.key_frame) for clip in clips] == [30, 150]
    assert [numbers_of(clip.frames) for clip in clips] == [[90, 120], [60]]


def test_without_being_asked_no_key_frame_is_kept(numbered_video):
    (clip,) = read_clips(numbered_video, [clip_window(1, NINE, 30)])
    assert clip.key_frame is None


def test_clips_of_different_shapes_may_be_mixed(numbered_video):
    windows = sorted(
        [clip_window(time, shape, 30) for time in (1, 2, 3) for shape in (AVA_CLIP, NINE)],
        key=lambda window: window.begin_s,
    )
    for clip in read_clips(numbered_video, windows):
        assert numbers_of(clip.frames) == expected_numbers(clip.window)


def test_windows_out_of_order_are_refused(numbered_video):
    with pytest.raises(RangeError, match=r"sorted by their begin; one beginning at 0\.566667 s follows"):
        list(read_clips(numbered_video, clip_windows([2, 1], NINE, 30)))


def test_a_short_side_below_one_is_refused(numbered_video):
    with pytest.raises(RangeError, match="short_side_px must be at least 1; got 0"):
        list(read_clips(numbered_video, clip_windows([1], NINE, 30), short_side_px=0))


def test_scaling_while_decoding_equals_scaling_afterwards(numbered_video):
    from mule.video.transforms import resized

    (full,) = read_clips(numbered_video, [clip_window(2, NINE, 30)])
    (small,) = read_clips(numbered_video, [clip_window(2, NINE, 30)], short_side_px=20)
    assert torch.equal(small.frames, resized(full.frames, (20, 26)))


def test_swscale_gives_almost_the_same_pixels(numbered_video):
    (ours,) = read_clips(numbered_video, [clip_window(2, NINE, 30)], short_side_px=36)
    (theirs,) = read_clips(numbered_video, [clip_window(2, NINE, 30)], short_side_px=36, scaler="swscale")
    assert ours.frames.shape == theirs.frames.shape
    assert numbers_of(ours.frames) == numbers_of(theirs.frames)
    assert (ours.frames.float() - theirs.frames.float()).abs().mean() < 8


def test_leaving_a_reading_early_closes_the_file(numbered_video):
    clips = read_clips(numbered_video, clip_windows(key_times(0), NINE, 30))
    next(clips)
    clips.close()
    assert list(clips) == []


def test_counts_of_several_readings_add_up_in_one_report(numbered_video):
    report = DecodeReport()
    for _ in range(2):
        list(read_clips(numbered_video, clip_windows([0], NINE, 30), report=report))
    assert report.num_clamped == 2 * 5
