"""Files that are not what they claim are refused by name; damage is survived and counted."""

import struct
import zlib
from fractions import Fraction

import av
import numpy as np
import pytest
from av.stream import Disposition
from rendered_video import numbers_of, render

from mule.core.errors import VideoError
from mule.video.clips import ClipShape, clip_windows, key_times
from mule.video.decode import MAX_PIXELS
from mule.video.reading import frames_at, read_clips, video_facts
from mule.video.sources import DecodeReport, VideoFile

NUM_FRAMES = 150
EVERY_FRAME = ClipShape(num_frames=1, stride_frames=1, num_slow_frames=1)


def read_through(path, rate=30):
    """The number of every frame shown at 0, 1/rate, …, and what the reading met."""
    report = DecodeReport()
    windows = clip_windows(key_times(period_s=Fraction(1, rate)), EVERY_FRAME, rate)
    return [numbers_of(clip.frames)[0] for clip in read_clips(path, windows, report=report)], report


def sound_only(path):
    with av.open(str(path), "w") as container:
        stream = container.add_stream("aac", rate=16000)
        frame = av.AudioFrame.from_ndarray(np.zeros((1, 16000), np.float32), format="fltp", layout="mono")
        frame.sample_rate = 16000
        container.mux(stream.encode(frame))
        container.mux(stream.encode(None))


def sound_with_cover(path):
    """A music file whose only picture is its cover."""
    with av.open(str(path), "w") as container:
        sound = container.add_stream("libmp3lame", rate=16000)
        cover = container.add_stream("png", rate=1)
        cover.width = cover.height = 16
        cover.pix_fmt = "rgb24"
        cover.disposition = Disposition.attached_pic
        container.mux(
            cover.encode(av.VideoFrame.from_ndarray(np.zeros((16, 16, 3), np.uint8), format="rgb24"))
        )
        frame = av.AudioFrame.from_ndarray(np.zeros((1, 16000), np.float32), format="fltp", layout="mono")
        frame.sample_rate = 16000
        container.mux(sound.encode(frame))
        container.mux(sound.encode(None))


def huge_image(path, rows, cols):
    """A valid PNG header that promises far more pixels than anyone should unpack."""

    def chunk(kind, body):
        return struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))

    header = chunk(b"IHDR", struct.pack(">IIBBBBB", cols, rows, 8, 2, 0, 0, 0))
    body = chunk(b"IDAT", zlib.compress(b"\0" * 1000)) + chunk(b"IEND", b"")
    path.write_bytes(b"\x89PNG\r\n\x1a\n" + header + body)


def unknown_codec(path):
    render(path, 3)
    path.write_bytes(path.read_bytes().replace(b"avc1", b"zzz9"))


def huge_video(path):
    """The size in an AVI header is free for the taking."""
    render(path, 2, codec="rawvideo", pix_fmt="yuv420p")
    stated, claimed = struct.pack("<ii", 64, 48), struct.pack("<ii", 9000, 9000)
    path.write_bytes(path.read_bytes().replace(stated, claimed))


UNREADABLE = {
    "empty.mp4": (lambda path: path.write_bytes(b""), r"empty \(zero bytes\)"),
    "text.mp4": (lambda path: path.write_text("This is not a video.\n" * 50), "really a video"),
    "noise.mkv": (lambda path: path.write_bytes(np.random.default_rng(0).bytes(5000)), "really a video"),
    "sound.m4a": (sound_only, "must have a video stream; it holds audio only"),
    "sound.mp3": (sound_with_cover, "must have a video stream; it holds audio, video only"),
    "codec.mp4": (unknown_codec, "no decoder"),
    "huge.png": (lambda path: huge_image(path, 30_000, 30_000), "pictures above 64 megapixels are refused"),
    "huge.avi": (huge_video, "must not exceed 64 megapixels; these are 9000 × 9000"),
}


@pytest.mark.parametrize("name", UNREADABLE)
def test_what_is_no_video_is_refused_by_name(tmp_path, name):
    make, reason = UNREADABLE[name]
    make(tmp_path / name)
    for read in (video_facts, lambda path: frames_at(path, [0]), read_through):
        with pytest.raises(VideoError, match=reason) as refusal:
            read(tmp_path / name)
        assert str(tmp_path / name) in str(refusal.value)
    assert [path.name for path in tmp_path.iterdir()] == [name]


def test_what_is_not_there_is_refused_by_name(tmp_path):
    with pytest.raises(VideoError, match=r"absent\.mp4: a video must be a file.*nothing is there"):
        video_facts(tmp_path / "absent.mp4")


def test_a_file_that_went_away_is_refused_by_name(tmp_path):
    with pytest.raises(VideoError, match=r"gone\.mp4: FFmpeg must be able to open it; it reports: No such file"):
        video_facts(VideoFile(tmp_path / "gone.mp4"))


def test_one_report_for_several_videos_tells_their_damage_apart(tmp_path, numbered_video):
    path = render(tmp_path / "broken.mp4", NUM_FRAMES)
    broken(path, at=0.4, num_bytes=500)
    report = DecodeReport()
    for video in (path, numbered_video):
        windows = clip_windows(key_times(period_s=Fraction(1, 30)), EVERY_FRAME, 30)
        last = [numbers_of(clip.frames)[0] for clip in read_clips(video, windows, report=report)][-1]
    assert last == 199
    assert report.num_missing == 0
    assert report.num_decoded + report.num_damaged == NUM_FRAMES + 200


def test_the_error_is_an_os_error_too(tmp_path):
    with pytest.raises(OSError, match="absent"):
        video_facts(tmp_path / "absent.mp4")


def test_the_limit_lets_8k_video_pass():
    assert MAX_PIXELS > 7680 * 4320


def test_a_video_cut_short_before_its_index_is_refused(tmp_path):
    path = render(tmp_path / "cut.mp4", NUM_FRAMES)
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
    with pytest.raises(VideoError, match=r"cut\.mp4.*complete"):
        video_facts(path)


@pytest.mark.parametrize(
    ("name", "more"),
    [("cut.mp4", {"container_options": {"movflags": "faststart"}}), ("cut.mkv", {}), ("cut.ts", {})],
)
def test_a_video_cut_short_is_read_as_far_as_it_goes(tmp_path, name, more):
    path = render(tmp_path / name, NUM_FRAMES, **more)
    path.write_bytes(path.read_bytes()[: int(path.stat().st_size * 0.6)])
    numbers, report = read_through(path)
    assert 20 < len(numbers) < NUM_FRAMES
    assert numbers == list(range(len(numbers)))
    assert report.unread_from_s == Fraction(len(numbers), 30)
    assert f"windows from {len(numbers) / 30:g} s on lie after the end" in report.summary()
    if name == "cut.mp4":
        assert report.num_missing + report.num_damaged == NUM_FRAMES - len(numbers)


def broken(path, at, num_bytes):
    """The same file with some bytes in the middle turned over."""
    content = bytearray(path.read_bytes())
    start = int(len(content) * at)
    for position in range(start, start + num_bytes):
        content[position] ^= 0x5A
    path.write_bytes(content)


# Matroska is read on from its next cluster, which begins after five seconds.
@pytest.mark.parametrize(
    ("name", "num_frames"), [("broken.mp4", 150), ("broken.ts", 150), ("broken.mkv", 450)]
)
def test_damage_is_survived_and_costs_no_later_frame_its_time(tmp_path, name, num_frames):
    path = render(tmp_path / name, num_frames)
    broken(path, at=0.4, num_bytes=500)
    numbers, report = read_through(path)
    assert len(numbers) == num_frames
    is_right = np.array(numbers) == np.arange(num_frames)
    assert is_right[:24].all()
    assert is_right[-24:].all()
    assert report.num_decoded < num_frames
    assert report.num_damaged + report.num_concealed > 0 or report.longest_gap_s > Fraction(1, 30)
    assert report.summary() != f"{report.num_decoded} decoded"


def test_a_damaged_beginning_does_not_shift_the_clock(tmp_path):
    path = render(tmp_path / "broken.mp4", NUM_FRAMES)
    content = bytearray(path.read_bytes())
    start = content.index(b"mdat") + 4
    content[start : start + 900] = bytes(900)
    path.write_bytes(content)
    numbers, report = read_through(path)
    assert report.num_damaged > 0
    assert numbers[-48:] == list(range(NUM_FRAMES - 48, NUM_FRAMES))
    assert report.num_clamped > 0  # times before the first frame that could be decoded


def test_a_sound_video_has_a_clean_report(numbered_video):
    numbers, report = read_through(numbered_video)
    assert numbers == list(range(200))
    assert report == DecodeReport(
        num_decoded=200, longest_gap_s=Fraction(1, 30), end_s=Fraction(20, 3), unread_from_s=Fraction(20, 3)
    )


def test_frames_that_change_size_midway_are_made_equal_and_counted(tmp_path):
    first = render(tmp_path / "first.ts", 30, size=(48, 64))
    second = render(tmp_path / "second.ts", 30, size=(96, 128), times=[1000 + 33 * n for n in range(30)])
    path = tmp_path / "joined.ts"
    path.write_bytes(first.read_bytes() + second.read_bytes())
    report = DecodeReport()
    frames = frames_at(path, [0.5, 1.5], report=report)
    assert frames.shape == (2, 3, 48, 64)
    assert report.num_rescaled == 1


def test_timestamps_that_do_not_move_forward_are_dropped_and_counted(tmp_path):
    path = render(tmp_path / "first.ts", 30)
    path.write_bytes(path.read_bytes() * 2)
    numbers, report = read_through(path)
    assert numbers == list(range(30))
    assert report.num_out_of_order == 30
