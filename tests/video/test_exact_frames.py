"""The frame given for a time is the one on screen at that time: any container, any jump, any frame rate."""

from fractions import Fraction

import numpy as np
import pytest
import torch
from rendered_video import number_of, numbered_image, numbers_of, render

from mule.core.errors import RangeError, VideoError
from mule.video.reading import frames_at, video_facts
from mule.video.sources import DecodeReport, VideoFile

NUM_FRAMES = 100
CASES = {
    "b_frames.mp4": {},
    "b_frames.mkv": {},
    "b_frames.ts": {},
    "long_gop.mp4": {"options": {"g": "600"}},
    "open_gop.mp4": {"options": {"x264-params": "open-gop=1:keyint=24:bframes=3"}},
    "open_gop.ts": {"options": {"x264-params": "open-gop=1:keyint=24:bframes=3"}},
    "refreshed_bit_by_bit.ts": {"options": {"x264-params": "intra-refresh=1:keyint=24:bframes=0"}},
    "ntsc.mkv": {"rate": Fraction(30000, 1001)},
    "ten_bit.mkv": {"codec": "ffv1", "pix_fmt": "yuv420p10le"},
    "ten_bit.mp4": {"pix_fmt": "yuv420p10le"},
    "odd_size.mkv": {"codec": "ffv1", "size": (49, 67), "pix_fmt": "yuv444p"},
    "mpeg4.avi": {"codec": "mpeg4"},
    "mpeg4_b_frames.avi": {"codec": "mpeg4", "options": {"bf": "2"}},
    "mpeg2.mpg": {"codec": "mpeg2video", "options": {"bf": "2"}},
    "jpeg.avi": {"codec": "mjpeg", "pix_fmt": "yuvj420p"},
    "palette.gif": {"codec": "gif", "pix_fmt": "rgb8", "rate": 25},
    "vp9.webm": {"codec": "libvpx-vp9", "options": {"cpu-used": "8", "deadline": "realtime"}},
    "no_timestamps.h264": {},
}


@pytest.fixture(scope="module", params=CASES)
def video(request, tmp_path_factory):
    return render(tmp_path_factory.mktemp("exact") / request.param, NUM_FRAMES, **CASES[request.param])


def test_frame_n_is_on_screen_from_n_over_rate_to_n_plus_one_over_rate(video):
    rate = video_facts(video).frame_rate
    starts = [n / rate for n in range(NUM_FRAMES)]
    assert numbers_of(frames_at(video, starts)) == list(range(NUM_FRAMES))
    some = range(0, NUM_FRAMES, 7)
    assert numbers_of(frames_at(video, [starts[n] + Fraction(9, 10) / rate for n in some])) == list(some)
    assert numbers_of(frames_at(video, [float(starts[n]) for n in some])) == list(some)


@pytest.mark.usefixtures("eager_seeking")
def test_a_jump_gives_the_frame_that_reading_through_gives(video):
    rate = video_facts(video).frame_rate
    for number in (0, 17, 50, 73, 99):
        assert numbers_of(frames_at(video, [number / rate])) == [number]
    assert numbers_of(frames_at(video, [n / rate for n in (2, 40, 80, 99)])) == [2, 40, 80, 99]


def test_times_may_come_in_any_order_and_more_than_once(numbered_video):
    assert numbers_of(frames_at(numbered_video, [3.0, 0.0, 3.0, 1.5])) == [90, 0, 90, 45]


def test_frames_are_rgb_bytes_with_channels_before_rows(numbered_video):
    frames = frames_at(numbered_video, [0.1])
    assert frames.shape == (1, 3, 48, 64)
    assert frames.dtype == torch.uint8
    assert frames.is_contiguous(memory_format=torch.channels_last)
    np.testing.assert_allclose(frames[0].permute(1, 2, 0), numbered_image(3), atol=40)


@pytest.mark.parametrize("suffix", ["mp4", "mkv"])
def test_with_a_variable_rate_the_last_frame_that_appeared_stays_on_screen(tmp_path, suffix):
    gaps = np.random.default_rng(3).integers(10, 400, size=40)
    starts_ms = np.concatenate([[0], np.cumsum(gaps)[:-1]])
    path = render(tmp_path / f"variable.{suffix}", 40, rate=1000, times=starts_ms.tolist())
    asked_ms = np.arange(0, int(starts_ms[-1]), 37)
    shown = [int(np.flatnonzero(starts_ms <= time)[-1]) for time in asked_ms]
    assert numbers_of(frames_at(path, [Fraction(int(time), 1000) for time in asked_ms])) == shown
    report = DecodeReport()
    frames_at(path, [Fraction(int(starts_ms[-1]), 1000)], report=report)
    assert report.longest_gap_s == Fraction(int(gaps[:-1].max()), 1000)


def test_time_zero_is_the_first_frame_whatever_the_containers_clock_says(tmp_path):
    times = [5000 + 40 * n for n in range(30)]
    path = render(tmp_path / "late.mkv", 30, rate=25, times=times)
    assert numbers_of(frames_at(path, [0, Fraction(40, 1000), 1])) == [0, 1, 25]


@pytest.mark.parametrize("degrees", [0, 90, 180, 270])
@pytest.mark.parametrize("flips", [{}, {"hflip": True}, {"vflip": True}])
def test_display_matrix_is_applied(tmp_path, degrees, flips):
    path = render(tmp_path / "turned.mp4", 3, turn={"degrees": degrees, **flips})
    upright = np.rot90(numbered_image(2), k=degrees // 90)
    if flips.get("hflip"):
        upright = upright[:, ::-1]
    if flips.get("vflip"):
        upright = upright[::-1]
    frames = frames_at(path, [Fraction(2, 30)])
    facts = video_facts(path)
    assert (facts.rows, facts.cols) == upright.shape[:2]
    np.testing.assert_allclose(frames[0].permute(1, 2, 0), upright, atol=60)


@pytest.mark.parametrize("short_side", [12, 48, 96])
@pytest.mark.parametrize("scaler", ["torch", "swscale"])
def test_turned_and_scaled_frames_have_the_turned_size(tmp_path, short_side, scaler):
    path = render(tmp_path / "turned.mp4", 2, turn={"degrees": 90})
    frames = frames_at(path, [0], short_side_px=short_side, scaler=scaler)
    assert tuple(frames.shape[2:]) == (short_side * 64 // 48, short_side)


@pytest.mark.parametrize("matrix", [None, 1, 5, 9])
@pytest.mark.parametrize("colour", [(200, 30, 30), (30, 200, 30), (30, 30, 200)])
def test_colours_survive_under_the_matrix_the_file_names(tmp_path, matrix, colour):
    import av

    path = tmp_path / "colour.mp4"
    image = np.broadcast_to(np.array(colour, np.uint8), (64, 64, 3)).copy()
    with av.open(str(path), "w") as container:
        stream = container.add_stream("libx264", rate=25, options={"crf": "4"})
        stream.width = stream.height = 64
        stream.pix_fmt = "yuv420p"
        frame = av.VideoFrame.from_ndarray(image, format="rgb24").reformat(
            format="yuv420p", dst_colorspace=matrix
        )
        if matrix is not None:
            stream.codec_context.colorspace = frame.colorspace = matrix
        container.mux(stream.encode(frame))
        container.mux(stream.encode(None))
    pixels = frames_at(path, [0])[0, :, 32, 32]
    np.testing.assert_allclose(pixels, colour, atol=4)


def test_one_frame_is_a_video(tmp_path):
    path = render(tmp_path / "one.mp4", 1)
    assert numbers_of(frames_at(path, [0, 0.01])) == [0, 0]


def test_number_of_threads_changes_nothing(numbered_video):
    times = [Fraction(n, 30) for n in range(0, 200, 7)]
    one = frames_at(VideoFile(numbered_video, num_threads=1), times)
    assert torch.equal(one, frames_at(VideoFile(numbered_video, num_threads=3), times))


def test_a_time_after_the_end_or_below_zero_is_refused(numbered_video):
    assert number_of(frames_at(numbered_video, [199 / 30])[0]) == 199
    with pytest.raises(
        VideoError, match=r"numbered\.mp4: times must lie before the end \(6\.66667 s\); got 6\.7 s"
    ):
        frames_at(numbered_video, [1.0, 6.7])
    with pytest.raises(RangeError, match="none below zero"):
        frames_at(numbered_video, [-0.1])
    with pytest.raises(RangeError, match="one or more"):
        frames_at(numbered_video, [])
    with pytest.raises(RangeError, match="finite"):
        frames_at(numbered_video, [float("nan")])


def test_facts_are_those_of_the_file(numbered_video):
    facts = video_facts(numbered_video)
    assert (facts.rows, facts.cols) == (48, 64)
    assert (facts.frame_rate, facts.duration_s) == (30, Fraction(200, 30))
    assert facts.codec == "h264"


@pytest.mark.usefixtures("eager_seeking")
def test_frames_of_real_videos_are_the_same_by_jump_and_by_reading_through(shared_data):
    for name in ("opencv_vtest.avi", "torchvision_basketball.mp4", "v_SoccerJuggling_g23_c01.avi"):
        path = shared_data / "videos" / "samples" / name
        rate = video_facts(path).frame_rate
        times = [n / rate for n in range(120)]
        through = frames_at(path, times, short_side_px=64, scaler="swscale")
        for n in (31, 64, 119):
            assert torch.equal(
                frames_at(path, [times[n]], short_side_px=64, scaler="swscale")[0], through[n]
            ), name
