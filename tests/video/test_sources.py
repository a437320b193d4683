"""An address says what it is; folders and lists of images are videos; streams are never waited for without end."""

import socket
import time
from fractions import Fraction

import pytest
from rendered_video import number_of, numbered_image, numbers_of, render, save_image

from mule.core.errors import RangeError, VideoError
from mule.video.clips import ClipShape, clip_windows, key_times
from mule.video.reading import frames_at, read_clips, video_facts
from mule.video.sources import DecodeReport, ImageSequence, LiveStream, VideoFile, natural_key, video_source


def image_folder(folder, numbers, name="image_{:06d}.png"):
    folder.mkdir()
    for number in numbers:
        save_image(folder / name.format(number), numbered_image(number))
    return folder


def test_an_empty_folder_and_an_empty_list_are_refused_by_name(tmp_path):
    with pytest.raises(VideoError, match=r"must hold images.*it has none"):
        video_source(tmp_path)
    (tmp_path / "frames.txt").write_text("\n\n")
    with pytest.raises(VideoError, match=r"frames\.txt: .*at least one image; it is empty"):
        video_source(tmp_path / "frames.txt")


def test_names_sort_by_their_numbers():
    names = ["b2", "a10b1", "a9", "a10", "a010b0", "a"]
    assert sorted(names, key=natural_key) == ["a", "a9", "a10", "a010b0", "a10b1", "b2"]


def test_image_n_of_a_folder_is_on_screen_from_n_over_rate(tmp_path):
    folder = image_folder(tmp_path / "frames", range(1, 13), name="f{}.png")
    source = video_source(folder, image_rate=10)
    facts = video_facts(source)
    assert (facts.frame_rate, facts.duration_s, facts.rows, facts.cols) == (10, Fraction(12, 10), 48, 64)
    report = DecodeReport()
    assert numbers_of(frames_at(source, [0, 0.05, 0.1, 0.95, 1.1, 1.19], report=report)) == [
        1,
        1,
        2,
        10,
        12,
        12,
    ]
    assert report.num_decoded == 1 + 4  # the first is looked at once to learn its size


def test_an_image_that_is_missing_leaves_the_one_before_on_screen(tmp_path):
    folder = image_folder(tmp_path / "frames", [10, 11, 13, 16])
    report = DecodeReport()
    frames = frames_at(video_source(folder, image_rate=1), range(7), report=report)
    assert numbers_of(frames) == [10, 11, 11, 13, 13, 13, 16]
    assert report.num_missing == 3


def test_an_image_that_cannot_be_read_leaves_the_one_before_on_screen(tmp_path):
    folder = image_folder(tmp_path / "frames", range(6))
    for damaged in (0, 3, 4):
        (folder / f"image_{damaged:06d}.png").write_bytes(b"not an image")
    report = DecodeReport()
    frames = frames_at(video_source(folder, image_rate=1), range(6), report=report)
    assert numbers_of(frames) == [1, 1, 2, 2, 2, 5]
    assert report.num_damaged == 3


def test_numbers_may_begin_anywhere_and_go_up_by_any_step(tmp_path):
    folder = image_folder(tmp_path / "frames", range(100, 160, 10))
    source = video_source(folder, image_rate=1)
    assert isinstance(source, ImageSequence)
    assert source.positions == (0, 1, 2, 3, 4, 5)
    assert source.num_missing == 0


def test_names_that_are_no_frame_numbers_count_by_their_place(tmp_path):
    folder = tmp_path / "frames"
    folder.mkdir()
    for name in ("first.png", "second.png", "a7.png"):
        save_image(folder / name, numbered_image(0))
    source = video_source(folder)
    assert isinstance(source, ImageSequence)
    assert source.positions == (0, 1, 2)


def test_numbers_that_leave_more_gaps_than_images_are_refused(tmp_path):
    folder = image_folder(tmp_path / "frames", [0, 33, 67, 100])
    with pytest.raises(
        VideoError, match=r"97 frames are missing and 4 are there.*list the images in a text file"
    ):
        video_source(folder)


def test_images_of_two_sizes_are_refused_by_name(tmp_path):
    folder = image_folder(tmp_path / "frames", [0, 1])
    save_image(folder / "image_000001.png", numbered_image(1, size=(64, 48)))
    with pytest.raises(
        VideoError, match=r"image_000001\.png: all images .* one size, 48 × 64 .* has 64 × 48"
    ):
        frames_at(folder, [0, 1 / 30])


def test_a_folder_without_one_readable_image_is_refused(tmp_path):
    folder = tmp_path / "frames"
    folder.mkdir()
    (folder / "image_1.png").write_bytes(b"no")
    with pytest.raises(VideoError, match="at least one image must be readable; none of 1 is"):
        frames_at(folder, [0])


def test_a_list_gives_its_images_in_its_own_order(tmp_path):
    image_folder(tmp_path / "frames", range(5))
    listing = tmp_path / "order.txt"
    listing.write_text("\n".join(f"frames/image_{number:06d}.png" for number in (4, 0, 2, 2)) + "\n\n")
    assert numbers_of(frames_at(video_source(listing, image_rate=1), range(4))) == [4, 0, 2, 2]


def test_a_list_names_the_line_of_the_image_that_is_absent(tmp_path):
    image_folder(tmp_path / "frames", [0])
    listing = tmp_path / "order.txt"
    listing.write_text("frames/image_000000.png\n\nframes/absent.png\n")
    with pytest.raises(VideoError, match=r"order\.txt, line 3: .*absent\.png does not \(1 of 2"):
        video_source(listing)


def test_a_list_cannot_leave_its_folder(tmp_path):
    image_folder(tmp_path / "frames", [0])
    (tmp_path / "lists").mkdir()
    (tmp_path / "lists" / "link.png").symlink_to(tmp_path / "frames" / "image_000000.png")
    listing = tmp_path / "lists" / "order.txt"
    for line in ("../frames/image_000000.png", str(tmp_path / "frames" / "image_000000.png"), "link.png"):
        listing.write_text(f"\n{line}\n")
        with pytest.raises(VideoError, match=r"order\.txt, line 2: .* must lie in the folder of the list"):
            video_source(listing)


def test_a_list_that_is_no_text_is_refused(tmp_path):
    listing = tmp_path / "order.txt"
    listing.write_bytes(b"\xff\xfe\x00\x81")
    with pytest.raises(VideoError, match=r"order\.txt: .*UTF-8"):
        video_source(listing)


@pytest.mark.parametrize("name", ["photo.png", "scan_%03d.png", "rtsp:odd*[name].png"])
def test_one_image_is_a_video_of_one_frame_whatever_its_name(tmp_path, name):
    save_image(tmp_path / name, numbered_image(7))
    assert number_of(frames_at(tmp_path / name, [0])[0]) == 7


def test_an_address_says_what_it_is(tmp_path):
    path = render(tmp_path / "clip.mp4", 2)
    assert video_source(path) == video_source(str(path)) == VideoFile(path)
    assert video_source("/dev/video3") == LiveStream("/dev/video3", demuxer="v4l2")
    stream = video_source("rtsp://camera.example/1", timeout_s=3.0)
    assert stream == LiveStream("rtsp://camera.example/1", options={"rtsp_transport": "tcp"}, timeout_s=3.0)
    assert video_source(stream) is stream


def test_addresses_that_are_no_streams_are_refused():
    with pytest.raises(VideoError, match=r"must begin with one of http, https.*got 'ftp'"):
        video_source("ftp://example.org/film.mp4")


def test_image_rate_and_timeout_must_be_above_zero(tmp_path):
    folder = image_folder(tmp_path / "frames", [0])
    with pytest.raises(RangeError, match="image_rate must be above zero"):
        video_source(folder, image_rate=0)
    with pytest.raises(RangeError, match="timeout_s must be a positive number"):
        video_source("rtsp://camera.example/1", timeout_s=0.0)


def test_passwords_stay_out_of_messages():
    stream = video_source("rtsp://user:secret@127.0.0.1:1/live")
    with pytest.raises(
        VideoError, match=r"rtsp://127\.0\.0\.1:1/live: FFmpeg must be able to open it"
    ) as refusal:
        video_facts(stream)
    assert "secret" not in str(refusal.value)


@pytest.mark.parametrize("password", ["secret", "se@cret", "@secret@", "se:cret"])
def test_no_part_of_a_password_or_a_query_is_shown(password):
    stream = video_source(f"rtsp://user:{password}@camera/1?token=hush")
    assert str(stream) == "rtsp://camera/1?…"
    assert repr(stream) == "LiveStream('rtsp://camera/1?…')"


@pytest.mark.parametrize(
    "address",
    ["ftp://user:hush@host/1", "rtsp:/user:hush@camera/1", "user:hush@camera/1", "camera/1?token=hush"],
)
def test_a_refused_address_shows_no_secret(address):
    with pytest.raises(VideoError) as refusal:
        video_source(address)
    assert "hush" not in str(refusal.value)


def test_a_camera_that_is_not_there_is_refused_by_name():
    with pytest.raises(VideoError, match=r"/dev/video97: .*No such file.*Is it on"):
        video_facts("/dev/video97")


def test_a_server_that_never_answers_is_given_up_after_the_timeout():
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        server.listen(1)
        address = f"rtsp://127.0.0.1:{server.getsockname()[1]}/live"
        started_at = time.monotonic()
        with pytest.raises(VideoError, match=r"answer within 0\.5 s"):
            video_facts(video_source(address, timeout_s=0.5))
        assert time.monotonic() - started_at < 5


def test_a_live_stream_is_cut_into_clips_until_it_ends(tmp_path):
    path = render(tmp_path / "broadcast.ts", 100)
    report = DecodeReport()
    windows = clip_windows(key_times(period_s=1), ClipShape(8, 1, 2), 30)
    clips = list(read_clips(LiveStream(str(path)), windows, report=report))
    assert [numbers_of(clip.frames)[4] for clip in clips] == [0, 30, 60, 90]
    assert report.unread_from_s == 4
    assert report.num_decoded == 100
