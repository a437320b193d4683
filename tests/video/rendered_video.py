"""Videos whose frames carry their own number, so that a test can say which frame it was given."""

from fractions import Fraction
from typing import Any

import av
import numpy as np

ROWS_OF_BITS, COLS_OF_BITS = 3, 4


def numbered_image(number, size=(48, 64), tint=255):
    """The number in twelve black or bright blocks: no lossy codec mistakes one for the other."""
    bits = [(number >> bit) & 1 for bit in range(ROWS_OF_BITS * COLS_OF_BITS)]
    blocks = np.array(bits, dtype=np.uint8).reshape(ROWS_OF_BITS, COLS_OF_BITS) * tint
    rows = np.arange(size[0]) * ROWS_OF_BITS // size[0]
    cols = np.arange(size[1]) * COLS_OF_BITS // size[1]
    return np.repeat(blocks[rows][:, cols][..., None], 3, axis=2)


def number_of(image):
    """The number in an image (channels, rows, cols)."""
    grey = np.asarray(image, dtype=float).mean(axis=0)
    row = [int((r + 0.5) * grey.shape[0] / ROWS_OF_BITS) for r in range(ROWS_OF_BITS)]
    col = [int((c + 0.5) * grey.shape[1] / COLS_OF_BITS) for c in range(COLS_OF_BITS)]
    bits = (grey[row][:, col] > 127).flatten()
    return sum(1 << bit for bit, is_set in enumerate(bits) if is_set)


def numbers_of(frames):
    return [number_of(image) for image in frames]


def render(path, num_frames=60, *, codec="libx264", rate=30, size=(48, 64), pix_fmt="yuv420p", **more):
    """A video of numbered frames. `times`: milliseconds of each; `turn`: arguments of set_display_rotation."""
    options = {"bf": "3", "g": "24"} if codec == "libx264" else {}
    with av.open(str(path), "w", options=more.get("container_options", {})) as container:
        stream: Any = container.add_stream(codec, rate=rate, options=options | more.get("options", {}))
        stream.height, stream.width = size
        stream.pix_fmt = pix_fmt
        times = more.get("times")
        if times is not None:
            stream.codec_context.time_base = Fraction(1, 1000)
        if "turn" in more:
            stream.set_display_rotation(**more["turn"])
        for number in range(num_frames):
            frame = av.VideoFrame.from_ndarray(numbered_image(number, size), format="rgb24")
            if times is not None:
                frame.pts, frame.time_base = times[number], Fraction(1, 1000)
            container.mux(stream.encode(frame))
        container.mux(stream.encode(None))
    return path


def save_image(path, image, codec="png", pix_fmt="rgb24"):
    """One image file."""
    encoder: Any = av.CodecContext.create(codec, "w")
    encoder.height, encoder.width = image.shape[:2]
    encoder.pix_fmt = pix_fmt
    encoder.time_base = Fraction(1, 25)
    frame = av.VideoFrame.from_ndarray(image, format="rgb24").reformat(format=pix_fmt)
    path.write_bytes(b"".join(bytes(packet) for packet in [*encoder.encode(frame), *encoder.encode(None)]))
    return path


def repeat(source, path, times):
    """The same film over and over, without encoding it again."""
    with av.open(str(path), "w") as output:
        stream: Any = None
        for turn in range(times):
            with av.open(str(source)) as film:
                original = film.streams.video[0]
                stream = stream or output.add_stream_from_template(original)
                for packet in film.demux(original):
                    if packet.dts is not None and packet.pts is not None:
                        packet.pts += turn * (original.duration or 0)
                        packet.dts += turn * (original.duration or 0)
                        packet.stream = stream
                        output.mux(packet)
    return path
