"""Frames in the order they are shown, with exact times. The only module that uses PyAV.

Time zero is the first frame. A frame's time is its presentation timestamp, an exact fraction of a second, so a
variable frame rate needs no special care. Frames are upright (the display matrix is applied) and in RGB by the
file's own colour matrix, or BT.601 where it names none, as in FFmpeg. Pixels are assumed square, interlaced
pictures are not deinterlaced, and high dynamic range is not tone-mapped.
"""

import struct
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from fractions import Fraction
from pathlib import Path

import av
import numpy as np
from av.container import InputContainer
from av.packet import Packet
from av.sidedata.sidedata import SideDataContainer
from av.stream import Disposition
from av.video.frame import VideoFrame
from av.video.reformatter import Interpolation, VideoReformatter
from av.video.stream import VideoStream
from jaxtyping import UInt8

from mule.core.errors import VideoError
from mule.core.threads import threads_each
from mule.video.sources import DecodeReport, LiveStream, VideoFacts, VideoFile, VideoSource
from mule.video.transforms import short_side_size

MAX_PIXELS = 64_000_000
"""Larger pictures are refused: a second of them would take six gigabytes."""

_FALLBACK_RATE = Fraction(25)
# Several frames of an MPEG program stream share one timestamp; after a jump FFmpeg gives it to the wrong one.
_SHARED_TIMESTAMPS = frozenset({"mpeg"})


@dataclass(frozen=True)
class Picture:
    """One frame and when it appears. Images of a folder are decoded on first use."""

    time_s: Fraction
    decoded: Callable[[], VideoFrame] = field(repr=False)


def frame_of_rgb(pixels: UInt8[np.ndarray, "rows cols 3"]) -> VideoFrame:
    """Pixels as a frame, as if they had been decoded."""
    return av.VideoFrame.from_ndarray(pixels, format="rgb24")


class RgbConverter:
    """Converts frames of one source to upright RGB of one size, scaled by libswscale if a short side is given."""

    def __init__(self, first: VideoFrame, report: DecodeReport, short_side_px: int | None = None) -> None:
        self._stored_size = (first.height, first.width)
        self._report = report
        self._rows, self._cols = short_side_size(*self._stored_size, short_side_px or min(self._stored_size))
        # Set up once: frame.to_ndarray(format=…) sets up a new one for every frame, three times slower in all.
        self._reformatter = VideoReformatter()

    def __call__(self, frame: VideoFrame) -> UInt8[np.ndarray, "rows cols channels"]:
        """Return the frame's pixels."""
        if (frame.height, frame.width) != self._stored_size:
            self._report.num_rescaled += 1
        rgb = self._reformatter.reformat(
            frame,
            width=self._cols,
            height=self._rows,
            format="rgb24",
            interpolation=Interpolation.BILINEAR,
            threads=1,
        )
        return _upright(rgb.to_ndarray(), _turn(frame))


class VideoFrames:
    """An open file or stream: its pictures in the order they are shown, and a jump to any time in a file."""

    def __init__(self, source: VideoFile | LiveStream, report: DecodeReport) -> None:
        self.report = report
        self._before = replace(report)
        self._source = source
        self._has_jumped = False
        self._num_discarded = 0
        self._last: tuple[Fraction, VideoFrame] | None = None
        self._container, self._stream = _open_video(source)
        self._time_base = self._stream.time_base or Fraction(1, av.time_base)
        try:
            self._go_on()
            first = self._next_frame()
            if first is None:
                raise VideoError(
                    f"{source}: a video must hold a frame that can be decoded; none could ({self._num_damaged} "
                    f"damaged; pictures above {MAX_PIXELS // 10**6} megapixels are refused)."
                )
        except BaseException:
            self._container.close()
            raise
        self._ready.appendleft(first)
        self.first_frame = first
        self._origin_s = self._origin(first)
        self.facts = self._facts(first)

    def _go_on(self) -> None:
        """Forget what was decoded; the next packet is read from the container's present position."""
        self._packets = self._container.demux(self._stream)
        self._ready: deque[VideoFrame] = deque()
        self._previous_s: Fraction | None = None
        self._not_before_s: Fraction | None = None
        self.report.end_s = None

    def __enter__(self) -> "VideoFrames":
        return self

    def __exit__(self, *_: object) -> None:
        self._container.close()

    @property
    def can_seek(self) -> bool:
        """Whether `seek` may be called: not on a live stream, nor where frames have no timestamps of their own."""
        is_timed = self.first_frame.pts is not None and self._container.format.name not in _SHARED_TIMESTAMPS
        return is_timed and isinstance(self._source, VideoFile)

    def next_picture(self) -> Picture | None:
        """Return the next picture, later than the one before, or None after the last."""
        while (frame := self._next_frame()) is not None:
            time_s = self._time_of(frame)
            if self._not_before_s is not None and time_s < self._not_before_s:
                continue
            if self._previous_s is not None and time_s <= self._previous_s:
                self.report.num_out_of_order += 1
                continue
            if self._previous_s is not None:
                self.report.longest_gap_s = max(self.report.longest_gap_s, time_s - self._previous_s)
            self._previous_s = time_s
            self._last = time_s, frame
            return Picture(time_s, lambda frame=frame: frame)
        self._finish()
        return None

    def seek(self, time_s: Fraction) -> Picture | None:
        """Jump to a key frame at or before the time, or to the first frame, and return its picture.

        Some containers land after the time, and some packets only claim to hold a key frame (a gradually refreshed
        stream shows garbage for a while after one); then the jump is repeated from further back.
        """
        self._has_jumped = True
        back_s = Fraction(0)
        while back_s < time_s:
            if (key_packet := self._key_packet_before(time_s - back_s)) is not None:
                # Pictures shown before their key frame may depend on frames that were jumped over.
                self._not_before_s = self._packet_time(key_packet)
                self._decode(key_packet)
                picture = self.next_picture()
                if picture is not None and picture.time_s <= time_s and picture.decoded().key_frame:
                    return picture
            back_s = 2 * back_s + 1
        self._container.close()
        self._container, self._stream = _open_video(self._source)
        self._go_on()
        return self.next_picture()

    def _key_packet_before(self, time_s: Fraction) -> Packet | None:
        ticks = round((time_s + self._origin_s) / self._time_base)
        try:
            self._container.seek(ticks, stream=self._stream, backward=True)
        except av.FFmpegError:
            return None
        self._go_on()
        while (packet := self._next_packet()) is not None:
            if packet.is_keyframe and packet.dts is not None:
                return packet
        return None

    def _next_packet(self) -> Packet | None:
        try:
            return next(self._packets, None)
        except av.FFmpegError as error:
            self.report.stopped_by = error.strerror or str(error)
            return None

    def _next_frame(self) -> VideoFrame | None:
        while not self._ready:
            packet = self._next_packet()
            if packet is None:
                return None
            self._decode(packet)
        return self._ready.popleft()

    def _decode(self, packet: Packet) -> None:
        self._num_discarded += packet.is_discard
        try:
            frames = packet.decode()
        except av.FFmpegError:
            self.report.num_damaged += 1
            return
        self.report.num_decoded += len(frames)
        self.report.num_concealed += sum(frame.is_corrupt for frame in frames)
        self._ready.extend(frames)

    def _finish(self) -> None:
        if self._last is not None:
            time_s, frame = self._last
            duration_s = frame.duration * self._time_base if frame.duration else 1 / self.facts.frame_rate
            self.report.end_s = time_s + duration_s
        if not self._has_jumped:
            num_decoded = self.report.num_decoded - self._before.num_decoded
            num_missing = self._stream.frames - num_decoded - self._num_damaged - self._num_discarded
            self.report.num_missing = self._before.num_missing + max(num_missing, 0)

    @property
    def _num_damaged(self) -> int:
        return self.report.num_damaged - self._before.num_damaged

    def _packet_time(self, packet: Packet) -> Fraction:
        ticks = packet.pts if packet.pts is not None else packet.dts
        return (ticks or 0) * self._time_base - self._origin_s

    def _time_of(self, frame: VideoFrame) -> Fraction:
        if frame.pts is not None:
            return frame.pts * self._time_base - self._origin_s
        self.report.num_untimed += 1
        return Fraction(0) if self._previous_s is None else self._previous_s + 1 / self.facts.frame_rate

    def _origin(self, first: VideoFrame) -> Fraction:
        """The first frame's time on the container's clock, or the stated one where frames before it were lost."""
        if first.pts is None:
            return Fraction(0)
        stated = self._stream.start_time
        was_lost = self._num_damaged > 0 and isinstance(self._source, VideoFile)
        return (stated if was_lost and stated is not None else first.pts) * self._time_base

    def _facts(self, first: VideoFrame) -> VideoFacts:
        stream, container = self._stream, self._container
        # FFmpeg calls every raw bitstream 25 frames per second; the guess reads the bitstream's own header.
        rates = (
            (stream.average_rate, stream.guessed_rate) if first.pts is not None else (stream.guessed_rate,)
        )
        duration_s = None
        if isinstance(self._source, VideoFile) and stream.duration is not None:
            duration_s = stream.duration * self._time_base
        elif isinstance(self._source, VideoFile) and container.duration is not None:
            duration_s = Fraction(container.duration, av.time_base)
        rows, cols = upright_size(first)
        return VideoFacts(
            rows=rows,
            cols=cols,
            frame_rate=next((Fraction(rate) for rate in rates if rate), _FALLBACK_RATE),
            duration_s=duration_s,
            codec=stream.codec_context.name,
        )


def read_image(path: Path) -> VideoFrame | None:
    """Return the picture in an image file, or None if it cannot be decoded."""
    try:
        with av.open(
            _file_address(path), options={"pattern_type": "none"}, metadata_errors="replace"
        ) as container:
            stream = container.streams.video[0]
            stream.codec_context.options = {"max_pixels": str(MAX_PIXELS)}
            return next(container.decode(stream), None)
    except (av.FFmpegError, IndexError):
        return None


def upright_size(frame: VideoFrame) -> tuple[int, int]:
    """Return the rows and columns of the frame once it is upright."""
    is_sideways, _, _ = _turn(frame)
    return (frame.width, frame.height) if is_sideways else (frame.height, frame.width)


def _open_video(source: VideoFile | LiveStream) -> tuple[InputContainer, VideoStream]:
    is_live = isinstance(source, LiveStream)
    if not is_live and source.path.is_file() and source.path.stat().st_size == 0:
        raise VideoError(f"{source}: a video must hold frames; the file is empty (zero bytes).")
    try:
        container = av.open(
            source.address if is_live else _file_address(source.path),
            format=source.demuxer if is_live else None,
            options=dict(source.options) if is_live else {"pattern_type": "none"},
            metadata_errors="replace",
            timeout=source.timeout_s if is_live else None,
        )
    except av.ProtocolNotFoundError:
        scheme = source.address.split("://")[0] if is_live else "file"
        raise VideoError(
            f"{source}: FFmpeg must know the protocol; the one that MULE uses was built without {scheme}. Send the stream as "
            "rtsp://, http:// or udp://."
        ) from None
    except (av.FFmpegError, OSError, ValueError) as error:  # not chained: it may show a password
        reason = getattr(error, "strerror", None) or type(error).__name__
        advice = (
            f"Is it on, and does it answer within {source.timeout_s:g} s?"
            if is_live
            else "Is the file complete, and really a video?"
        )
        raise VideoError(
            f"{source}: FFmpeg must be able to open it; it reports: {reason}. {advice}"
        ) from None
    try:
        stream = _video_stream(container, source)
    except BaseException:
        container.close()
        raise
    stream.thread_type = "AUTO"
    stream.thread_count = source.num_threads or threads_each()
    stream.codec_context.options = {"max_pixels": str(MAX_PIXELS)}
    return container, stream


def _file_address(path: Path) -> str:
    return f"file:{path.absolute()}"  # so that a file called rtsp:… or concat:… is a file


def _video_stream(container: InputContainer, source: VideoSource) -> VideoStream:
    # The cover of a music file is a "video" stream with one attached picture.
    films = [s for s in container.streams.video if not s.disposition & Disposition.attached_pic]
    if not films:
        others = sorted({stream.type for stream in container.streams}) or ["nothing"]
        raise VideoError(f"{source}: a video must have a video stream; it holds {', '.join(others)} only.")
    decodable = [s for s in films if s.codec_context]
    if not decodable:
        raise VideoError(
            f"{source}: FFmpeg must know the codec; it has no decoder for this one. Convert it to H.264."
        )
    stream = max(decodable, key=lambda s: s.width * s.height)
    if stream.width * stream.height > MAX_PIXELS:
        raise VideoError(
            f"{source}: pictures must not exceed {MAX_PIXELS // 10**6} megapixels; these are "
            f"{stream.width} × {stream.height}. Scale the video down first."
        )
    return stream


def _turn(frame: VideoFrame) -> tuple[bool, bool, bool]:
    """Whether to swap rows with columns, then to reverse the rows, then to reverse the columns.

    The display matrix sends x to a·x + c·y and y to b·x + d·y; a slant is taken as the nearest quarter turn.
    """
    # Not frame.side_data: frame and container then hold each other, and frames pile up until garbage is collected.
    matrix = SideDataContainer(frame).get("DISPLAYMATRIX")  # pyright: ignore[reportCallIssue]
    if matrix is None:
        return False, False, False
    a, b, _, c, d = struct.unpack("=5i", bytes(matrix)[:20])
    if max(abs(a), abs(d)) > max(abs(b), abs(c)):
        return False, d < 0, a < 0
    return True, b < 0, c < 0


def _upright(
    image: UInt8[np.ndarray, "rows cols channels"], turn: tuple[bool, bool, bool]
) -> UInt8[np.ndarray, "upright_rows upright_cols channels"]:
    is_sideways, rows_reversed, cols_reversed = turn
    if is_sideways:
        image = image.transpose(1, 0, 2)
    return image[:: -1 if rows_reversed else 1, :: -1 if cols_reversed else 1]
